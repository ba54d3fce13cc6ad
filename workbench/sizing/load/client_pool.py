"""Pool of client processes: sends commands to all of them and collects their reports."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from types import TracebackType
from typing import Self

import msgspec

from workbench.core.child_process import end_worker
from workbench.core.errors import ConfigError, RunFailedError
from workbench.sizing.load import client_messages
from workbench.sizing.load.client_worker import ClientWorker
from workbench.sizing.load.service_targets.function_target import Workflow

WORKER_MODULE = "workbench.sizing.load.client_worker"
WORKER_START_LIMIT_S = 120.0
WORKER_END_LIMIT_S = 10.0


class LostClientError(Exception):
    """A client is gone, and its share of the load with it; the others go on."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.what = message


class ClientPool:
    """Some client processes, or this one (`processes` 0); opened with `async with`."""

    start_lead_s = 0.05
    """Time for the command to reach all processes before a step starts."""
    clock_error_s: float | None = None

    def __init__(self, opening: client_messages.Open, processes: int, workflow: Workflow | None = None) -> None:
        self._opening = opening
        self._processes = processes
        self._workflow = workflow
        self._local: ClientWorker | None = None
        self._children: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._reports: asyncio.Queue[tuple[int, client_messages.Report]] = asyncio.Queue()

    @property
    def size(self) -> int:
        """Number of clients that share the load."""
        return max(1, self._processes)

    async def __aenter__(self) -> Self:
        if self._processes == 0:
            self._local = ClientWorker(lambda report: self._reports.put_nowait((0, report)), self._workflow)
        try:
            for number in range(self._processes):
                await self._start_worker(number)
            await self.send_to_all(self._opening)
            for _ in range(self.size):
                await self.next_report(WORKER_START_LIMIT_S)
        except BaseException:
            await self._close_workers()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close_workers()

    async def prepare_step(self) -> None:
        """Nothing to do: all processes are there, and have one clock."""

    async def send_to_all(self, command: client_messages.Command) -> None:
        """Give all the same command; a load is shared among them, an allowance too."""
        for number in range(self.size):
            await self._send_command(number, split_command(command, number, self.size))

    async def next_report(self, limit_s: float | None = None) -> tuple[int, client_messages.Report]:
        """The next report and whose it is."""
        number, report = await asyncio.wait_for(self._reports.get(), limit_s)
        if isinstance(report, client_messages.Broken):
            if report.facts:
                raise ConfigError(report.what, **report.facts)
            raise RunFailedError(report.what, where=f"client process {number}")
        return number, report

    async def _start_worker(self, number: int) -> None:
        # A session of its own: Ctrl-C reaches the sweep alone, which then lets the requests in flight end.
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            WORKER_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._children.append(child)
        self._readers.append(asyncio.get_running_loop().create_task(self._read_reports(number, child)))

    async def _read_reports(self, number: int, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        try:
            while True:
                body = await child.stdout.readexactly(client_messages.frame_length(await child.stdout.readexactly(4)))
                self._reports.put_nowait((number, client_messages.decode_report(body)))
        except (asyncio.IncompleteReadError, EOFError, OSError, msgspec.MsgspecError):
            code = await child.wait()
            self._reports.put_nowait((number, client_messages.Broken(f"a client process died with exit code {code}")))

    async def _send_command(self, number: int, command: client_messages.Command) -> None:
        if self._local is not None:
            await self._local.handle_command(command)
            return
        stdin = self._children[number].stdin
        assert stdin is not None
        # A dead process is reported by its reader.
        with contextlib.suppress(ConnectionError):
            stdin.write(client_messages.encode_frame(command))
            await stdin.drain()

    async def _close_workers(self) -> None:
        if self._local is not None:
            await self._local.close()
        await asyncio.gather(*(end_worker(child, grace_s=WORKER_END_LIMIT_S) for child in self._children))
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)


def split_command(command: client_messages.Command, number: int, size: int) -> client_messages.Command:
    """Command for client `number` of `size`: its share of the load and of the allowance."""
    if not isinstance(command, client_messages.Begin):
        return command
    load = msgspec.structs.replace(command.load, share=number, shares=size)
    allowance = command.allowance
    if allowance is not None:
        # Among those that have users: what another got would never be sent.
        sharing = min(size, load.users) if load.loop == "closed" else size
        allowance = 0 if number >= sharing else allowance // sharing + (number < allowance % sharing)
    return msgspec.structs.replace(command, load=load, allowance=allowance)
