"""One client process: does what the sweep orders, and reports requests as they end.

Run as `python -m workbench.sizing.driving.worker`: commands come on stdin, reports go to what was stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable

from workbench.errors import WorkbenchError
from workbench.sizing.driving import wire
from workbench.sizing.driving.client import LagSampler, allow_connections
from workbench.sizing.driving.loops import Driver, Target
from workbench.sizing.driving.targets.function import Workflow
from workbench.sizing.driving.targets.opening import opened

REPORT_EVERY_S = 0.1


class Worker:
    """Drives its share of each step.

    Parameters
    ----------
    report
        Called with each report, in the loop that it runs in.
    workflow
        The callable to drive, when it is no module's.
    """

    def __init__(self, report: Callable[[wire.Report], None], workflow: Workflow | None = None) -> None:
        self._report = report
        self._workflow = workflow
        self._target: Target | None = None
        self._opening: wire.Open | None = None
        self._driver: Driver | None = None
        self._lag = LagSampler()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    async def take(self, command: wire.Command) -> None:
        """Do what is ordered; what cannot be done is reported as `Broken`."""
        try:
            await self._do(command)
        except WorkbenchError as error:
            facts = {name: None if fact is None else str(fact) for name, fact in error.facts.items()}
            self._report(wire.Broken(error.what, facts))

    async def close(self) -> None:
        """Break off what runs and let go of the target."""
        for task in self._tasks:
            task.cancel()
        self._lag.stop()
        if self._driver is not None:
            await self._driver.abort()
        if self._target is not None:
            await self._target.close()

    async def _do(self, command: wire.Command) -> None:
        if isinstance(command, wire.Open):
            self._opening = command
            self._target = opened(command.target, self._workflow)
            await self._target.open()
            self._report(wire.Ready())
        elif isinstance(command, wire.Begin):
            self._begin(command)
        elif isinstance(command, wire.Tail):
            if self._driver is not None:
                self._driver.begin_tail()
                self._flush()
        else:
            self._stop(command)

    def _begin(self, order: wire.Begin) -> None:
        assert self._target is not None
        assert self._opening is not None
        load = order.load
        if self._opening.target.protocol != "function":
            most = load.users if load.loop == "closed" else load.max_in_flight
            allow_connections(-(-most // load.shares))
        self._driver = Driver(self._target, self._opening.prompts, order)
        self._ending = None
        self._lag.start()
        self._driver.start()
        self._spawn(self._report_often(self._driver))

    def _stop(self, command: wire.Stop) -> None:
        if self._driver is None:
            return
        if command.now and self._ending is not None:
            self._spawn(self._driver.abort())
        elif self._ending is None:
            lags_s, cpu_share = self._lag.stop()
            self._ending = self._spawn(self._end(self._driver, command.now, lags_s, cpu_share))

    async def _end(self, driver: Driver, now: bool, lags_s: list[float], cpu_share: float) -> None:
        driver.stop()
        if now:
            await driver.abort()
        await driver.drained()
        self._flush()
        self._driver = None
        simulated = self._target is not None and self._target.simulated
        self._report(wire.Drained(lags_s, cpu_share, list(driver.failures.items()), simulated))

    async def _report_often(self, driver: Driver) -> None:
        while self._driver is driver:
            await asyncio.sleep(REPORT_EVERY_S)
            if self._driver is driver:
                self._flush()

    def _flush(self) -> None:
        driver = self._driver
        if driver is not None:
            rows = driver.take()
            self._report(wire.Rows(rows, driver.in_flight, driver.kept_open, driver.tail, driver.exhausted))

    def _spawn(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def serve(commands: int, reports: int) -> None:
    """Take commands from one file descriptor and report to another, until the sweep is over or dead."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(commands, "rb"))
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(reports, "wb"))
    worker = Worker(lambda report: transport.write(wire.frame(report)))
    # What is loaded by now stays: looking through it for garbage would be a pause in the middle of a step.
    gc.freeze()
    with contextlib.suppress(asyncio.IncompleteReadError, EOFError):
        while True:
            body = await reader.readexactly(wire.length(await reader.readexactly(4)))
            await worker.take(wire.command(body))
    await worker.close()
    transport.close()


def main() -> None:
    """Serve on stdin and stdout; what the user's code prints goes to stderr, or it would spoil the reports."""
    reports = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asyncio.run(serve(os.dup(0), reports))


if __name__ == "__main__":
    main()
