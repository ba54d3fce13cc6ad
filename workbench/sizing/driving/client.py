"""Is the client itself in the way? Lateness of its event loop, its CPU, the connections it may open."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from workbench.errors import ConfigError
from workbench.sizing.driving.reply import clock

EVERY_S = 0.01
# Timers wait in whole milliseconds and so fire up to one late; answers do not wait for timers.
TIMER_S = 0.001
# Of a process, beside the connections: files, pipes, the resolver.
OTHER_FILES = 64


class LagSampler:
    """How late the event loop comes to what is due: sampled a hundred times a second, while it runs."""

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """Begin anew."""
        self._lags = []
        self._began = (clock(), time.process_time())
        self._task = asyncio.get_running_loop().create_task(self._sample())

    def stop(self) -> tuple[list[float], float]:
        """Lateness of each sample in seconds, and the CPU that this process used since the start, of one core."""
        if self._task is not None:
            self._task.cancel()
        wall_s = clock() - self._began[0]
        return self._lags, (time.process_time() - self._began[1]) / wall_s if wall_s > 0 else 0.0

    async def _sample(self) -> None:
        while True:
            due = clock() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self._lags.append(max(0.0, clock() - due - TIMER_S))


def p99(lags_s: list[float]) -> float | None:
    """The 99th percentile; null without a sample.

    Examples
    --------
    >>> p99([0.001] * 99 + [0.5]) < 0.01, p99([])
    (True, None)
    """
    return float(np.quantile(lags_s, 0.99)) if lags_s else None


def allow_connections(wanted: int) -> None:
    """Raise this process's limit of open files as far as needed.

    Raises
    ------
    ConfigError
        The system allows fewer.
    """
    try:
        import resource
    except ModuleNotFoundError:
        # Windows sets no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            "more requests in flight than this process may open connections",
            where="ulimit -n",
            found=f"{wanted} requests, {hard} open files",
            do=f"ulimit -n {needed}, or share the load: --processes {-(-wanted // max(1, hard - OTHER_FILES))}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
