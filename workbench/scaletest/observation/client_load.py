"""Load on this machine while a run is sampled: busy cores, whose they are, and the sampler's own CPU time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from workbench.scaletest.cluster_api.clock import now_ns
from workbench.scaletest.observation import run_records


class ProcessTimes:
    """CPU time of processes, by pid; one that has ended keeps what it had."""

    def __init__(self, pids: Sequence[int]) -> None:
        import psutil

        self._gone = (psutil.NoSuchProcess, psutil.AccessDenied)
        self._processes = {}
        for pid in pids:
            with contextlib.suppress(*self._gone):
                self._processes[pid] = psutil.Process(pid)
        self._last = dict.fromkeys(self._processes, 0.0)

    def read_s(self) -> float | None:
        """Seconds of all of them together; null without any."""
        for pid, process in self._processes.items():
            with contextlib.suppress(*self._gone):
                times = process.cpu_times()
                self._last[pid] = times.user + times.system
        return sum(self._last.values()) if self._last else None


class LoadMeter:
    """CPU and memory use since the previous reading, and whose it was.

    `side_pids`: The components of a local cluster; none where the cluster is elsewhere.
    """

    def __init__(self, client_pids: Sequence[int] = (), side_pids: Sequence[int] = ()) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._client, self._side = ProcessTimes([os.getpid(), *client_pids]), ProcessTimes(side_pids)
        self._cpu_s, self._client_s, self._side_s = _own_cpu_s(), self._client.read_s(), self._side.read_s()
        self._host = self._host_times()

    def read(self) -> run_records.Load:
        """Build a record for the health file; `host_busy` is None if the counters did not change."""
        cpu_s, host = _own_cpu_s(), self._host_times()
        all_s, idle_s = host[0] - self._host[0], host[1] - self._host[1]
        busy = min(1.0, max(0.0, 1 - idle_s / all_s)) if all_s > 0 else None
        load = run_records.Load(now_ns(), cpu_s - self._cpu_s, int(self._process.memory_info().rss), busy)
        client_s, side_s = self._client.read_s(), self._side.read_s()
        if busy is not None and client_s is not None and self._client_s is not None:
            load.client = min(1.0, max(0.0, (client_s - self._client_s) / all_s))
            load.side = 0.0 if side_s is None else min(1.0, max(0.0, (side_s - (self._side_s or 0.0)) / all_s))
            load.others = max(0.0, busy - load.client - load.side)
        self._cpu_s, self._host, self._client_s, self._side_s = cpu_s, host, client_s, side_s
        return load

    def _host_times(self) -> tuple[float, float]:
        """Total and idle seconds, summed over all cores."""
        times = self._psutil.cpu_times()
        # guest time is already part of user time
        counted = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        return sum(counted.values()), times.idle + getattr(times, "iowait", 0.0)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system
