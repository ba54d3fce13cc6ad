"""Costs of one run: elapsed time, CPU and run time of its tasks, of Python workers and native threads, memory, spill.

Elapsed time depends on the load of the machine; CPU time hardly does. Both are different quantities: CPU and run time
are added up over tasks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.lore.spark_bridge.spark_internals import Bridge

_WAIT_MS = 60_000
_NANOS = 1e9


@dataclass(frozen=True)
class RunCost:
    """Cost of one run.

    `cpu_s`: CPU time of its tasks with their Python workers, in task-seconds; with `count_process` that of the whole
    JVM and its children, which includes native threads, garbage collection and compilation.
    `peak_memory_bytes`, `spill_bytes`: Largest sum of execution memory of a stage by Spark's own count, and bytes
    spilled to disk.
    """

    wall_s: float
    cpu_s: float | None = None
    run_s: float | None = None
    peak_memory_bytes: int | None = None
    spill_bytes: int | None = None


class CostMeter:
    """Measures calls that run Spark jobs.

    `count_process`: Count the CPU of the whole process group instead of that of tasks: for engines with threads of
    their own.
    """

    def __init__(self, bridge: Bridge, *, count_process: bool = False) -> None:
        self.bridge, self.count_process = bridge, count_process
        self.context = bridge.context._jsc.sc()
        self.process = bridge.find_jvm_process()

    def measure_run(self, body: Callable[[], object]) -> RunCost:
        """Cost of a call; its jobs are found by their group."""
        group = f"lore-{uuid.uuid4().hex}"
        self.context.setJobGroup(group, "lore: timed run", False)
        before_s = self._read_process_cpu()
        try:
            begun = time.perf_counter()
            body()
            wall_s = time.perf_counter() - begun
        finally:
            self.context.clearJobGroup()
        after_s = self._read_process_cpu()
        outside_s = None if before_s is None or after_s is None else after_s - before_s
        return self._sum_stages(group, wall_s, outside_s)

    def _sum_stages(self, group: str, wall_s: float, outside_s: float | None) -> RunCost:
        self.context.listenerBus().waitUntilEmpty(_WAIT_MS)
        tracker, store = self.context.statusTracker(), self.context.statusStore()
        cpu_ns, run_ms, memory, spill = 0, 0, 0, 0
        for job in tracker.getJobIdsForGroup(group):
            for stage_id in tracker.getJobInfo(job).get().stageIds():
                stage = store.lastStageAttempt(stage_id)
                cpu_ns += int(stage.executorCpuTime())
                run_ms += int(stage.executorRunTime())
                memory = max(memory, int(stage.peakExecutionMemory()))
                spill += int(stage.diskBytesSpilled())
        cpu_s = cpu_ns / _NANOS
        if outside_s is not None:
            cpu_s = outside_s if self.count_process else cpu_s + outside_s
        return RunCost(wall_s, cpu_s, run_ms / 1e3, memory, spill)

    def _read_process_cpu(self) -> float | None:
        """CPU seconds of Python workers, or of the whole process group; null without a process of our own."""
        import psutil

        if self.process is None:
            return None
        total = 0.0
        try:
            group = self.process.children(recursive=True)
            if self.count_process:
                group.append(self.process)
        except psutil.Error:
            return None
        for process in group:
            try:
                used = process.cpu_times()
            except psutil.Error:
                continue
            # Of children that have ended, too: workers end when they are idle.
            total += used.user + used.system + used.children_user + used.children_system
        return total


def list_metric_rows(side: str, metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of `tables.METRICS`: the engine's own metrics of one run, with their units."""
    return [
        {"side": side, "metric": name, "value": value, "unit": unit} for name, (value, unit) in sorted(metrics.items())
    ]
