"""Runs of a workflow by the toolkit, in a process of the Python that has the toolkit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from workbench.errors import ConfigError, RunFailedError
from workbench.sizing.calculator.dataset import Item
from workbench.sizing.calculator.workflow_runs import Run, Told, cleaned

CHILD = Path(__file__).with_name("workflow_child.py")
INSTALL = "pip install 'nvidia-nat[profiler]==1.9.0' langchain-core"
LONGEST_LINE_BYTES = 64 << 20
START_LIMIT_S = 300.0
END_LIMIT_S = 10.0


class LocalWorkflow:
    """The toolkit's workflow in a process of the Python that has the toolkit.

    Parameters
    ----------
    config_file
        The toolkit's YAML.
    python
        That Python; null for this one.
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
            await self._start()
        except BaseException:
            await self._end(now=True)
            raise
        return self

    async def _start(self) -> None:
        try:
            # A session of its own: Ctrl-C is ours to pass on, once what was measured is on disk.
            self._child = await asyncio.create_subprocess_exec(
                self._python,
                str(CHILD),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                limit=LONGEST_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            found = f"{self._python}: {error.strerror}"
            raise ConfigError("that Python cannot be started", where="--nat_python", found=found) from error
        try:
            said = await asyncio.wait_for(self._told(), START_LIMIT_S)
        except TimeoutError:
            found = f"no answer within {START_LIMIT_S:g} s"
            raise RunFailedError("the toolkit does not start", where=self._python, found=found) from None
        if "missing" in said:
            do = f"{INSTALL}, or name a Python that has it with --nat_python"
            found = f"no module {said['missing']} in {self._python}"
            raise ConfigError("the NeMo Agent Toolkit is needed to run this workflow", found=found, do=do)
        self.name = f"local, nvidia-nat {said.get('ready')}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(now=kind is not None)

    async def level(self, concurrency: int, items: list[Item], told: Told) -> list[Run]:
        """Run the items in a workflow built for this level.

        Raises
        ------
        ConfigError
            The toolkit refuses the configuration.
        RunFailedError
            Its process died.
        """
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
        while "done" not in (said := await self._told()):
            if "broken" in said:
                found = cleaned(str(said["broken"]))
                raise ConfigError("the toolkit cannot run this workflow", where=self._config_file, found=found)
            runs.append(_local_run(said))
            told(len(runs), len(items))
        return runs

    async def _told(self) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if not line:
            code = await self._child.wait()
            raise RunFailedError(
                "the toolkit's process died", where=self._python, found=f"exit code {code}{self._last()}"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def _last(self) -> str:
        """The last lines that the process wrote, without this process's secrets."""
        assert self._log is not None
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        text = self._log.read().decode(errors="replace").strip()
        return f"; its last lines: {cleaned(text)[-800:]}" if text else ""

    async def _end(self, *, now: bool) -> None:
        child = self._child
        if child is not None and child.returncode is None:
            assert child.stdin is not None
            child.stdin.close()
            try:
                await asyncio.wait_for(child.wait(), 0 if now else END_LIMIT_S)
            except TimeoutError:
                # With all that the workflow may have started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if self._log is not None:
            self._log.close()


def _local_run(said: dict[str, Any]) -> Run:
    if not said["ok"]:
        return Run(said["item"], "failed", detail=cleaned(str(said["error"])))
    first, last = said["first"], said["last"]
    # Without events there is only the clock around the run.
    runtime_s = last - first if first is not None and last > first else said["wall_s"]
    return Run(said["item"], "ok", runtime_s, said["llm_s"], first, last)
