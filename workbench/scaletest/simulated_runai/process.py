"""simulated-runai as a process of its own, tied to the one that started it: it ends when that one ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from workbench.errors import ConfigError, RunFailedError, WorkbenchError
from workbench.scaletest.connection import Connection, Target, target
from workbench.scaletest.simulated_runai import NAME, controller

READY = "ready"
_START_LIMIT_S = 60.0
_END_LIMIT_S = 10.0


@contextmanager
def running(kubeconfig: Path, context: str | None = None, *, scheduler: str | None = None) -> Iterator[int]:
    """Have simulated-runai run beside the block; gives its process id once it watches everything.

    Parameters
    ----------
    kubeconfig, context
        An administrator's, of a cluster on this machine: kinds are installed.
    scheduler
        schedulerName of the pods.

    Raises
    ------
    RunFailedError
        It did not start: what it said is told.
    """
    settings = json.dumps({"kubeconfig": str(kubeconfig), "context": context, "scheduler": scheduler})
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "workbench.scaletest.simulated_runai", settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _wait_ready(process)
        yield process.pid
    finally:
        _end(process)


def _wait_ready(process: subprocess.Popen[str]) -> None:
    said: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    stdout: IO[str] = process.stdout
    threading.Thread(target=lambda: said.put(stdout.readline()), daemon=True).start()
    try:
        line = said.get(timeout=_START_LIMIT_S)
    except queue.Empty:
        raise RunFailedError(f"{NAME} does not start", found=f"nothing within {_START_LIMIT_S:.0f} s") from None
    if line.strip() != READY:
        process.wait(_END_LIMIT_S)
        told = process.stderr.read(4000) if process.stderr is not None else ""
        raise RunFailedError(f"{NAME} did not start", found=told.strip() or line.strip())


def _end(process: subprocess.Popen[str]) -> None:
    """Closing its input is the word; it is killed only when it does not take it."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def checked(found: Target) -> Target:
    """A target that simulated-runai may touch.

    Raises
    ------
    ConfigError
        Its server is not on this machine.
    """
    if not found.is_local:
        raise ConfigError(
            f"{NAME} is for clusters on this machine",
            where=f"context {found.context}",
            do="workbench scaletest cluster up",
        )
    return found


async def serve(found: Target, ended: asyncio.Event, *, scheduler: str | None = None) -> AsyncIterator[str]:
    """Be the controller until `ended`; gives `ready` once."""
    async with Connection(checked(found), most=64) as api:
        ready = asyncio.Event()
        work = asyncio.create_task(controller.run(api, ready, scheduler=scheduler))
        waits = [asyncio.create_task(ready.wait()), asyncio.create_task(ended.wait())]
        try:
            await asyncio.wait([work, waits[0]], return_when=asyncio.FIRST_COMPLETED)
            if ready.is_set():
                yield READY
                await asyncio.wait([work, waits[1]], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        except* WorkbenchError as group:
            raise group.exceptions[0] from None
        finally:
            for task in (work, *waits):
                task.cancel()
            await asyncio.gather(work, *waits, return_exceptions=True)


async def foreground(found: Target, *, scheduler: str | None, tell: Callable[[str], None]) -> None:
    """Until Ctrl-C or a polite end; `tell` is told when it is ready."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async for word in serve(found, ended, scheduler=scheduler):
        tell(word)


async def _child(settings: dict[str, str | None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    found = target(settings["kubeconfig"], settings["context"])
    async for word in serve(found, ended, scheduler=settings["scheduler"]):
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


def main(settings: str) -> int:
    """The process: it ends when its stdin does, which is when the one that started it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    try:
        asyncio.run(_child(json.loads(settings)))
    except WorkbenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0
