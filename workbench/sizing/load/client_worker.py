"""Client process: runs the commands of a sweep and reports finished requests.

Run as `python -m workbench.sizing.load.client_worker`: commands come on stdin, reports go to what was stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable

from workbench.core.errors import WorkbenchError
from workbench.sizing.load import client_messages
from workbench.sizing.load.load_driver import LagSampler, LoadDriver, Target, raise_file_limit
from workbench.sizing.load.service_targets.function_target import Workflow
from workbench.sizing.load.service_targets.target_factory import create_target

REPORT_EVERY_S = 0.1


class ClientWorker:
    """Drives its share of each step."""

    def __init__(self, report: Callable[[client_messages.Report], None], workflow: Workflow | None = None) -> None:
        self._report = report
        self._workflow = workflow
        self._target: Target | None = None
        self._opening: client_messages.Open | None = None
        self._driver: LoadDriver | None = None
        self._lag = LagSampler()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    async def handle_command(self, command: client_messages.Command) -> None:
        """Do what is ordered; what cannot be done is reported as `Broken`."""
        try:
            await self._run_command(command)
        except WorkbenchError as error:
            facts = {name: None if fact is None else str(fact) for name, fact in error.facts.items()}
            self._report(client_messages.Broken(error.what, facts))

    async def close(self) -> None:
        """Break off what runs and let go of the target."""
        for task in self._tasks:
            task.cancel()
        self._lag.stop()
        if self._driver is not None:
            await self._driver.abort()
        if self._target is not None:
            await self._target.close()

    async def _run_command(self, command: client_messages.Command) -> None:
        if isinstance(command, client_messages.Open):
            self._opening = command
            self._target = create_target(command.target, self._workflow)
            await self._target.open()
            self._report(client_messages.Ready())
        elif isinstance(command, client_messages.Begin):
            self._begin_step(command)
        elif isinstance(command, client_messages.Tail):
            if self._driver is not None:
                self._driver.begin_tail()
                self._report_rows()
        else:
            self._stop_step(command)

    def _begin_step(self, order: client_messages.Begin) -> None:
        assert self._target is not None
        assert self._opening is not None
        load = order.load
        if self._opening.target.protocol != "function":
            n_connections = load.users if load.loop == "closed" else load.max_in_flight
            raise_file_limit(-(-n_connections // load.shares))
        self._driver = LoadDriver(self._target, self._opening.prompts, order)
        self._ending = None
        self._lag.start()
        self._driver.start()
        self._start_task(self._report_periodically(self._driver))

    def _stop_step(self, command: client_messages.Stop) -> None:
        if self._driver is None:
            return
        if command.now and self._ending is not None:
            self._start_task(self._driver.abort())
        elif self._ending is None:
            lags_s, cpu_share = self._lag.stop()
            self._ending = self._start_task(self._end_step(self._driver, command.now, lags_s, cpu_share))

    async def _end_step(self, driver: LoadDriver, now: bool, lags_s: list[float], cpu_share: float) -> None:
        driver.stop()
        if now:
            await driver.abort()
        await driver.wait_until_idle()
        self._report_rows()
        self._driver = None
        simulated = self._target is not None and self._target.simulated
        failures, notes = list(driver.failures), list(getattr(self._target, "notes", ()))
        scale = getattr(self._target, "time_scale", None)
        self._report(client_messages.Drained(lags_s, cpu_share, failures, simulated, driver.example, notes, scale))

    async def _report_periodically(self, driver: LoadDriver) -> None:
        while self._driver is driver:
            await asyncio.sleep(REPORT_EVERY_S)
            if self._driver is driver:
                self._report_rows()

    def _report_rows(self) -> None:
        driver = self._driver
        if driver is not None:
            counts = driver.in_flight, driver.kept_open, driver.tail, driver.exhausted
            self._report(client_messages.Rows(driver.take_rows(), *counts, driver.refusal))

    def _start_task(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def serve_commands(commands: int, reports: int) -> None:
    """Take commands from one file descriptor and report to another, until the sweep is over or dead."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(commands, "rb"))
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(reports, "wb"))
    worker = ClientWorker(lambda report: transport.write(client_messages.encode_frame(report)))
    # What is loaded by now stays: looking through it for garbage would be a pause in the middle of a step.
    gc.freeze()
    with contextlib.suppress(asyncio.IncompleteReadError, EOFError):
        while True:
            body = await reader.readexactly(client_messages.frame_length(await reader.readexactly(4)))
            await worker.handle_command(client_messages.decode_command(body))
    await worker.close()
    transport.close()


def main() -> None:
    """Serve on stdin and stdout; what the user's code prints goes to stderr, or it would spoil the reports."""
    reports = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asyncio.run(serve_commands(os.dup(0), reports))


if __name__ == "__main__":
    main()
