"""simulated-runai as a child process or in the foreground; it ends when its parent ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.core.child_process import ChildProcess, watch_stdin_end
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.kubernetes.client import Target, load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.simulated_runai import NAME, controller

READY_LINE = "ready"
_START_LIMIT_S = 60.0
_END_LIMIT_S = 10.0


@contextmanager
def run_simulated_runai(kubeconfig: Path, context: str | None = None, *, scheduler: str | None = None) -> Iterator[int]:
    """Run simulated-runai beside the block; gives its process id once it watches everything.

    `kubeconfig`, `context`: Of an administrator of a cluster on this machine, because kinds are installed.
    """
    settings = json.dumps({"kubeconfig": str(kubeconfig), "context": context, "scheduler": scheduler})
    command = [sys.executable, "-m", "workbench.scaletest.simulated_runai", settings]
    with ChildProcess(command, with_stdin=True, grace_s=_END_LIMIT_S) as child:
        child.wait_for_line(lambda line: line == READY_LINE, timeout_s=_START_LIMIT_S)
        yield child.pid


def check_target(target: Target) -> Target:
    """A target that simulated-runai may touch."""
    if not target.is_local:
        raise ConfigError(
            f"{NAME} is for clusters on this machine",
            where=f"context {target.context}",
            do="workbench scaletest cluster up",
        )
    return target


async def serve_controller(target: Target, ended: asyncio.Event, *, scheduler: str | None = None) -> AsyncIterator[str]:
    """Run the controller until `ended`; yields `ready` once."""
    async with Connection(check_target(target), max_connections=64) as api:
        ready = asyncio.Event()
        work = asyncio.create_task(controller.run_controller(api, ready, scheduler=scheduler))
        waits = [asyncio.create_task(ready.wait()), asyncio.create_task(ended.wait())]
        try:
            await asyncio.wait([work, waits[0]], return_when=asyncio.FIRST_COMPLETED)
            if ready.is_set():
                yield READY_LINE
                await asyncio.wait([work, waits[1]], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        except* WorkbenchError as group:
            raise group.exceptions[0] from None
        finally:
            for task in (work, *waits):
                task.cancel()
            await asyncio.gather(work, *waits, return_exceptions=True)


async def run_in_foreground(target: Target, *, scheduler: str | None, tell: Callable[[str], None]) -> None:
    """Run the controller until SIGINT or SIGTERM; `tell` is called when it is ready."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async for word in serve_controller(target, ended, scheduler=scheduler):
        tell(word)


async def _serve_until_stdin_ends(settings: dict[str, str | None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.call_soon_threadsafe(ended.set)

    watch_stdin_end(end)
    target = load_target(settings["kubeconfig"], settings["context"])
    async for word in serve_controller(target, ended, scheduler=settings["scheduler"]):
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


def main(settings: str) -> int:
    """Main function of the child process, which ends when its stdin does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    try:
        asyncio.run(_serve_until_stdin_ends(json.loads(settings)))
    except WorkbenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0
