"""Runs a workflow for a calculation, in a toolkit process or at a served endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from workbench.core.child_process import end_worker
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.redaction import is_secret_name, read_secrets, redact_value
from workbench.sizing.compat_nat.eval_dataset import Item

ProgressCallback = Callable[[int, int], None]
CHILD_SCRIPT = Path(__file__).with_name("workflow_child.py")
INSTALL_COMMAND = "pip install 'nvidia-nat[profiler]==1.9.0' langchain-core"
MAX_LINE_BYTES = 64 << 20
WORKFLOW_START_LIMIT_S = 300.0
WORKFLOW_END_LIMIT_S = 10.0


@dataclass(frozen=True)
class WorkflowRun:
    """One run of the workflow; times of a failed one are null.

    `outcome`: ok, or the kind of failure (OUTCOMES of `workbench/sizing/tables.py`).
    `server_s`: Runtime by the service's own events, where `runtime_s` is another.
    """

    item: str
    outcome: str
    runtime_s: float | None = None
    llm_s: list[float] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    server_s: float | None = None
    detail: str | None = None


class CalcWorkflow(Protocol):
    """Workflow that a calculation drives, one level after the other; opened with `async with`."""

    name: str

    async def __aenter__(self) -> Self:
        """Make ready."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""

    async def run_level(
        self, concurrency: int, items: list[Item], report_progress: ProgressCallback
    ) -> list[WorkflowRun]:
        """Run the items with so many in flight; after the first failure none is begun.

        `report_progress` is called with how many have ended, of how many.
        """


def redact_text(text: str, *names: str) -> str:
    """Remove this process's secrets: those named to the workbench, and variables whose names give them away."""
    telling = [name for name in os.environ if is_secret_name(name)]
    return redact_value(text, [*read_secrets(), *read_secrets([*telling, *names])])


class LocalWorkflow:
    """The toolkit's workflow in a process of the Python that has the toolkit.

    `python`: That Python; null for this one.
    """

    def __init__(self, config_file: Path, python: str | None = None) -> None:
        self.name = "local"
        self._config_file = config_file.resolve()
        self._python = python or sys.executable
        self._child: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            await self._start_child()
        except BaseException:
            await self._end_child(now=True)
            raise
        return self

    async def _start_child(self) -> None:
        try:
            # A session of its own: Ctrl-C is ours to pass on, once what was measured is on disk.
            self._child = await asyncio.create_subprocess_exec(
                self._python,
                str(CHILD_SCRIPT),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                limit=MAX_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            finding = f"{self._python}: {error.strerror}"
            raise ConfigError("that Python cannot be started", where="--nat_python", found=finding) from error
        try:
            message = await asyncio.wait_for(self._read_message(), WORKFLOW_START_LIMIT_S)
        except TimeoutError:
            finding = f"no answer within {WORKFLOW_START_LIMIT_S:g} s"
            raise RunFailedError("the toolkit does not start", where=self._python, found=finding) from None
        if "missing" in message:
            do = f"{INSTALL_COMMAND}, or name a Python that has it with --nat_python"
            finding = f"no module {message['missing']} in {self._python}"
            raise ConfigError("the NeMo Agent Toolkit is needed to run this workflow", found=finding, do=do)
        self.name = f"local, nvidia-nat {message.get('ready')}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_child(now=kind is not None)

    async def run_level(
        self, concurrency: int, items: list[Item], report_progress: ProgressCallback
    ) -> list[WorkflowRun]:
        """Run the items in a workflow built for this level."""
        assert self._child is not None
        assert self._child.stdin is not None
        order = {
            "config_file": str(self._config_file),
            "concurrency": concurrency,
            "items": [[item.id, item.prompt] for item in items],
        }
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await self._child.stdin.drain()
        runs = []
        while "done" not in (message := await self._read_message()):
            if "broken" in message:
                reason = redact_text(str(message["broken"]))
                raise ConfigError("the toolkit cannot run this workflow", where=self._config_file, found=reason)
            if not message["ok"]:
                local_run = WorkflowRun(message["item"], "failed", detail=redact_text(str(message["error"])))
            else:
                first, last = message["first"], message["last"]
                # Without events there is only the clock around the run.
                runtime_s = last - first if first is not None and last > first else message["wall_s"]
                local_run = WorkflowRun(message["item"], "ok", runtime_s, message["llm_s"], first, last)
            runs.append(local_run)
            report_progress(len(runs), len(items))
        return runs

    async def _read_message(self) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if not line:
            code = await self._child.wait()
            raise RunFailedError(
                "the toolkit's process died", where=self._python, found=f"exit code {code}{self._read_last_output()}"
            )
        message: dict[str, Any] = json.loads(line)
        return message

    def _read_last_output(self) -> str:
        """The last lines that the process wrote, without this process's secrets."""
        assert self._log is not None
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        text = self._log.read().decode(errors="replace").strip()
        return f"; its last lines: {redact_text(text)[-800:]}" if text else ""

    async def _end_child(self, *, now: bool) -> None:
        if self._child is not None:
            await end_worker(self._child, grace_s=0 if now else WORKFLOW_END_LIMIT_S)
        if self._log is not None:
            self._log.close()


class ServedWorkflow:
    """A workflow that is served: `POST URL/generate/full`.

    `server_clock`: Take the server's events for the runtime, as the toolkit does; else this client's clock, which
    also sees the wait before the server begins.
    """

    def __init__(
        self, url: str, *, timeout_s: float, header_env: Mapping[str, str] | None = None, server_clock: bool = False
    ) -> None:
        self.name = "endpoint"
        self._url = url
        self._timeout_s = timeout_s
        self._header_env = dict(header_env or {})
        self._server_clock = server_clock

    async def __aenter__(self) -> Self:
        from workbench.sizing.load.client_messages import TargetSpec
        from workbench.sizing.load.load_driver import raise_file_limit
        from workbench.sizing.load.service_targets.target_factory import create_target

        self._allow = raise_file_limit
        self._target = create_target(
            TargetSpec(protocol="nat", url=self._url, timeout_s=self._timeout_s, header_env=self._header_env)
        )
        await self._target.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._target.close()

    async def run_level(
        self, concurrency: int, items: list[Item], report_progress: ProgressCallback
    ) -> list[WorkflowRun]:
        """Send the items, so many in flight."""
        self._allow(concurrency)
        waiting, runs = iter(items), list[WorkflowRun]()
        failed = False

        async def run_user() -> None:
            nonlocal failed
            for item in waiting:
                if failed:
                    return
                run = await self._send_item(item)
                failed = failed or run.outcome != "ok"
                runs.append(run)
                report_progress(len(runs), len(items))

        await asyncio.gather(*(run_user() for _ in range(min(concurrency, len(items)))))
        return runs

    async def _send_item(self, item: Item) -> WorkflowRun:
        sent = time.perf_counter()
        reply = await self._target.send(item.prompt)
        if reply.outcome != "ok":
            status = f"HTTP {reply.status}: " if reply.status else ""
            return WorkflowRun(
                item.id,
                reply.outcome,
                detail=redact_text(f"{status}{reply.detail or reply.outcome}", *self._header_env.values()),
            )
        took = reply.ended - sent
        runtime_s = reply.server_runtime_s if self._server_clock and reply.server_runtime_s else took
        return WorkflowRun(item.id, "ok", runtime_s, reply.llm_s or [], sent, reply.ended, reply.server_runtime_s)


def endpoint_host(url: str) -> str:
    """The host of an endpoint, in lower case."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    del port
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        allowed = "http://HOST:PORT or https://HOST, without a user name"
        raise ConfigError(
            "not a URL of a served workflow", where="--endpoint", found=url.split("@")[-1], allowed=allowed
        )
    return host.lower()
