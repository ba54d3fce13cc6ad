"""The sampler as a child process: start it, wait until it is ready, read its state, stop it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from pydantic import Field

from workbench.core.child_process import ChildProcess
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.schema import StrictModel
from workbench.kubernetes.resources import ApiResource

MODULE = "workbench.scaletest.observation"
READY_LINE = "ready"
STATE_EVERY_S = 1.0
READY_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
MAX_OUTPUT_BYTES = 64 << 10


class SamplerOptions(StrictModel):
    """Options of a sampler, which its process gets as one JSON document.

    `folder`: The run folder, to which the observations are written.
    `kubeconfig`, `context`: The cluster and the measuring identity.
    `kinds`: Resources of the workloads; jobs and pods are always watched.
    `by_namespace`: Watch pods, jobs and workloads of the namespaces without a label selector: for operators that do
    not copy labels.
    `foreign_pods`: Also count evictions and pending pods of other users, cluster-wide.
    `audit_log`: The API server's audit log, if readable; request counts go to tables/requests.parquet at the end.
    `side_pids`: Processes of a local cluster's components: whose this machine's time was.
    `metrics`: Components on this machine and the URLs of their metrics; the API server's are read in any case.
    """

    folder: Path
    run: str
    namespaces: tuple[str, ...] = Field(min_length=1)
    kubeconfig: Path | None = None
    context: str | None = None
    kinds: tuple[ApiResource, ...] = ()
    by_namespace: bool = False
    foreign_pods: bool = False
    audit_log: Path | None = None
    side_pids: tuple[int, ...] = ()
    metrics: dict[str, str] = Field(default={})


def start_sampler(options: SamplerOptions) -> SamplerProcess:
    """Start a sampler; `wait_until_ready` waits for it."""
    return SamplerProcess([sys.executable, "-m", MODULE, options.model_dump_json()])


class SamplerProcess:
    """A running sampler. It ends with `stop`, at the end of a `with` block, or when this process exits.

    `is_ready`: Whether every watch has been connected.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.is_ready = False
        self._state: dict[str, Any] = {}
        self._told_s = time.monotonic()
        # Detached: at this interpreter's exit the end of its input stops it, so that it writes its files.
        self._child = ChildProcess(
            command,
            name="the sampler",
            with_stdin=True,
            on_line=self._take_line,
            max_output_bytes=MAX_OUTPUT_BYTES,
            is_detached=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
            return
        with contextlib.suppress(ConfigError, RunFailedError):
            self.stop()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._child.is_running

    def wait_until_ready(self, timeout_s: float = READY_LIMIT_S) -> None:
        """Wait until every watch is connected and the clock offset is known."""
        self._child.wait_for_line(lambda line: line == READY_LINE, timeout_s=timeout_s)
        self.is_ready = True

    def check(self) -> None:
        """Raise the sampler's error if it has ended.

        Raises
        ------
        ConfigError, RunFailedError
            The sampler ended before `stop`.
        """
        self._child.raise_if_ended()

    def lag_s(self) -> float:
        """Watch lag, or the time without a report from the sampler if that is longer."""
        silent = time.monotonic() - self._told_s - STATE_EVERY_S
        return max(float(self._state.get("lag_s", 0.0)), silent if self.is_ready else 0.0)

    def state(self) -> dict[str, Any]:
        """Last reported state: the fields of `sampler.SamplerState`; empty before the first report."""
        return dict(self._state)

    def stop(self, timeout_s: float = STOP_LIMIT_S) -> None:
        """Stop the sampler and wait until all its files are written.

        Raises
        ------
        ConfigError, RunFailedError
            The sampler had failed, with its own message; or it did not stop in time and was killed. Its files hold
            complete lines in both cases.
        """
        self._child.close_stdin()
        ended = self._child.wait(timeout_s) is not None
        code = self._child.end(grace_s=0)
        if not ended:
            raise RunFailedError("the sampler did not end and was killed", where=f"within {timeout_s:g} s")
        if code:
            self._child.raise_if_ended()

    def _take_line(self, line: str) -> None:
        self._told_s = time.monotonic()
        with contextlib.suppress(msgspec.MsgspecError):  # that it is ready
            self._state = msgspec.json.decode(line, type=dict[str, Any])
