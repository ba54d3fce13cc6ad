"""Load on this machine while a run is sampled: busy cores, and the sampler's own CPU time."""

from __future__ import annotations

import os

from workbench.scaletest.cluster_api.clock import now_ns
from workbench.scaletest.observation import run_records


class LoadMeter:
    """CPU and memory use since the previous reading."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._cpu_s = _own_cpu_s()
        self._host = self._host_times()

    def read(self) -> run_records.Load:
        """Build a record for the health file; `host_busy` is None if the counters did not change."""
        cpu_s, host = _own_cpu_s(), self._host_times()
        all_s, idle_s = host[0] - self._host[0], host[1] - self._host[1]
        busy = min(1.0, max(0.0, 1 - idle_s / all_s)) if all_s > 0 else None
        found = run_records.Load(now_ns(), cpu_s - self._cpu_s, int(self._process.memory_info().rss), busy)
        self._cpu_s, self._host = cpu_s, host
        return found

    def _host_times(self) -> tuple[float, float]:
        """Total and idle seconds, summed over all cores."""
        times = self._psutil.cpu_times()
        # guest time is already part of user time
        counted = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        return sum(counted.values()), times.idle + getattr(times, "iowait", 0.0)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system
