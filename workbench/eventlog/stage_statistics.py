"""Task metrics of one stage attempt: raw values while it is open, exact quantiles when it closes.

Memory is bounded by the concurrently open stages, not by the log: a closed stage keeps one row, one row per
accumulator, and for accumulators of SQL plans a compact copy of their values until the execution ends (several stages
may work on one plan node, and quantiles of parts cannot be combined).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from workbench.eventlog.listener_events import TaskEnd, TaskMetrics

Ints = npt.NDArray[np.integer]
Sample: TypeAlias = "Ints | array[int]"
StageKey = tuple[int, int]

# Sums over the tasks of a stage attempt, in the order of `StageTasks._add_metrics`; units as in the event log.
TOTALS = (
    "executor_run_time_ms",
    "executor_cpu_time_ns",
    "executor_deserialize_time_ms",
    "executor_deserialize_cpu_time_ns",
    "result_size_bytes",
    "jvm_gc_time_ms",
    "result_serialization_time_ms",
    "memory_spilled_bytes",
    "disk_spilled_bytes",
    "input_bytes",
    "input_records",
    "output_bytes",
    "output_records",
    "shuffle_read_remote_blocks",
    "shuffle_read_local_blocks",
    "shuffle_read_fetch_wait_time_ms",
    "shuffle_read_remote_bytes",
    "shuffle_read_remote_bytes_to_disk",
    "shuffle_read_local_bytes",
    "shuffle_read_records",
    "shuffle_write_bytes",
    "shuffle_write_records",
    "shuffle_write_time_ns",
    "getting_result_time_ms",
)
# Limit for stages with thousands of failed tasks; `stage_tasks` has the counts.
MAX_FAILURES_PER_STAGE = 20
INTERNAL = "internal.metrics."
INT64_MAX = 2**63 - 1
# Up to this many values Python is faster than numpy, which takes a microsecond or more per call.
SMALL_SAMPLE = 4


@dataclass(slots=True)
class StageTasks:
    """Raw state of one stage attempt, or of its part in one chunk of the log."""

    key: StageKey
    started: int = 0
    failed: int = 0
    killed: int = 0
    speculative: int = 0
    with_metrics: int = 0
    submitted: bool = False
    planned_tasks: int | None = None
    completed: bool = False
    stage_failed: bool = False
    first_launch_ms: int | None = None
    last_finish_ms: int | None = None
    failed_duration_ms: int = 0
    dropped: int = 0  # durations that were counted and released when the stage was closed
    peak_memory_bytes: int = 0
    largest_result_bytes: int = 0
    durations_ms: array[int] = field(default_factory=lambda: array("q"))
    totals: list[int] = field(default_factory=lambda: [0] * len(TOTALS))
    values: dict[int, array[int]] = field(default_factory=dict)
    not_integer: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    values_at_end: dict[int, int] = field(default_factory=dict)
    failures: list[tuple[int, int, str | None, str, str]] = field(default_factory=list)

    def add_task(self, task: TaskEnd) -> None:
        """Count one ended task: its outcome, its duration and its task metrics (not its accumulators)."""
        info = task.info
        duration = info.finish_ms - info.launch_ms
        self.durations_ms.append(duration)
        if info.killed:
            self.killed += 1
            self.failed_duration_ms += duration
        elif info.failed:
            self.failed += 1
            self.failed_duration_ms += duration
        if info.speculative:
            self.speculative += 1
        if self.first_launch_ms is None or info.launch_ms < self.first_launch_ms:
            self.first_launch_ms = info.launch_ms
        if self.last_finish_ms is None or info.finish_ms > self.last_finish_ms:
            self.last_finish_ms = info.finish_ms
        if info.getting_result_ms:
            self.totals[23] += info.finish_ms - info.getting_result_ms
        if task.metrics is not None:
            self._add_metrics(task.metrics)

    def _add_metrics(self, metrics: TaskMetrics) -> None:
        # Unrolled, and guarded where most tasks have zeros: this runs once per task (400,000 times per GB).
        self.with_metrics += 1
        total = self.totals
        total[0] += metrics.run_ms
        total[1] += metrics.cpu_ns
        total[2] += metrics.deserialize_ms
        total[3] += metrics.deserialize_cpu_ns
        total[4] += metrics.result_bytes
        if metrics.result_bytes > self.largest_result_bytes:
            self.largest_result_bytes = metrics.result_bytes
        if metrics.peak_memory_bytes > self.peak_memory_bytes:
            self.peak_memory_bytes = metrics.peak_memory_bytes
        if metrics.gc_ms:
            total[5] += metrics.gc_ms
        if metrics.result_serialization_ms:
            total[6] += metrics.result_serialization_ms
        if metrics.memory_spilled_bytes or metrics.disk_spilled_bytes:
            total[7] += metrics.memory_spilled_bytes
            total[8] += metrics.disk_spilled_bytes
        if (read := metrics.input) is not None and (read.bytes or read.records):
            total[9] += read.bytes
            total[10] += read.records
        if (wrote := metrics.output) is not None and (wrote.bytes or wrote.records):
            total[11] += wrote.bytes
            total[12] += wrote.records
        shuffle = metrics.shuffle_read
        if shuffle is not None and (
            shuffle.remote_blocks or shuffle.local_blocks or shuffle.records or shuffle.fetch_wait_ms
        ):
            total[13] += shuffle.remote_blocks
            total[14] += shuffle.local_blocks
            total[15] += shuffle.fetch_wait_ms
            total[16] += shuffle.remote_bytes
            total[17] += shuffle.remote_bytes_to_disk
            total[18] += shuffle.local_bytes
            total[19] += shuffle.records
        written = metrics.shuffle_write
        if written is not None and (written.bytes or written.records or written.time_ns):
            total[20] += written.bytes
            total[21] += written.records
            total[22] += written.time_ns

    def merge_later(self, later: StageTasks) -> None:
        """Add the state of a later chunk for the same stage attempt."""
        for name in ("started", "failed", "killed", "speculative", "with_metrics", "failed_duration_ms"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.submitted |= later.submitted
        self.completed |= later.completed
        self.stage_failed |= later.stage_failed
        self.planned_tasks = later.planned_tasks if self.planned_tasks is None else self.planned_tasks
        self.first_launch_ms = min(_drop_none(self.first_launch_ms, later.first_launch_ms), default=None)
        self.last_finish_ms = max(_drop_none(self.last_finish_ms, later.last_finish_ms), default=None)
        self.peak_memory_bytes = max(self.peak_memory_bytes, later.peak_memory_bytes)
        self.largest_result_bytes = max(self.largest_result_bytes, later.largest_result_bytes)
        self.durations_ms.extend(later.durations_ms)
        self.totals = [mine + its for mine, its in zip(self.totals, later.totals, strict=True)]
        for accumulator_id, values in later.values.items():
            self.values.setdefault(accumulator_id, array("q")).extend(values)
        for accumulator_id, count in later.not_integer.items():
            self.not_integer[accumulator_id] = self.not_integer.get(accumulator_id, 0) + count
        self.names = later.names | self.names
        self.values_at_end |= later.values_at_end
        self.failures = (self.failures + later.failures)[:MAX_FAILURES_PER_STAGE]

    @property
    def ended(self) -> int:
        """Number of ended tasks, whatever their outcome."""
        return len(self.durations_ms) + self.dropped

    @property
    def succeeded(self) -> int:
        return self.ended - self.failed - self.killed

    @property
    def finished(self) -> bool:
        """Have all tasks ended? Speculative tasks and those of a failed stage end after their stage.

        Spark drops events when its queue is full: where starts are missing, all partitions must have succeeded.
        """
        if not self.completed or self.ended < self.started:
            return False
        return self.ended == self.started or self.succeeded >= (self.planned_tasks or 0)


def _drop_none(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


@dataclass(frozen=True)
class SampleSummary:
    """Exact statistics of each of k integer samples, as parallel lists."""

    n: list[int]
    min: list[int | None]
    median: list[float | None]
    p95: list[float | None]
    max: list[int | None]
    total: list[int | None]


@dataclass(frozen=True)
class StageFacts:
    """A closed stage attempt: counts and totals, statistics of accumulators, compact values of SQL metrics."""

    tasks: StageTasks  # emptied of raw values
    duration: SampleSummary  # of one sample: the tasks' durations
    accumulator_ids: list[int]
    names: list[str]
    not_integer: list[int]
    values_at_end: list[int | None]
    accumulators: SampleSummary
    sql_values: dict[int, array[int]]


def summarize_stage(tasks: StageTasks) -> StageFacts:
    """Compute exact statistics of a stage, and release its raw values."""
    for accumulator_id in tasks.not_integer:
        tasks.values.setdefault(accumulator_id, array("q"))
    ids = sorted(tasks.values)
    samples = [tasks.values[i] for i in ids]
    names = [tasks.names.get(i, "") for i in ids]
    sql_values = {
        i: compact_values(values)
        for i, name, values in zip(ids, names, samples, strict=True)
        if not name.startswith(INTERNAL)
    }
    facts = StageFacts(
        tasks,
        summarize_samples([tasks.durations_ms]),
        ids,
        names,
        [tasks.not_integer.get(i, 0) for i in ids],
        [tasks.values_at_end.get(i) for i in ids],
        summarize_samples(samples),
        sql_values,
    )
    tasks.values, tasks.names, tasks.not_integer, tasks.values_at_end = {}, {}, {}, {}
    tasks.dropped, tasks.durations_ms = tasks.ended, array("q")
    return facts


def compact_values(values: array[int]) -> array[int]:
    """A copy in the narrowest integer type."""
    if len(values) <= SMALL_SAMPLE:
        return array(_narrowest_typecode(min(values), max(values)) if values else "q", values)
    matrix = np.asarray(values)
    kind = _narrowest_typecode(int(matrix.min()), int(matrix.max()))
    narrow = array(kind)
    narrow.frombytes(matrix.astype(kind).tobytes())
    return narrow


def _narrowest_typecode(low: int, high: int) -> Literal["b", "h", "i", "q"]:
    if low >= -0x80 and high < 0x80:
        return "b"
    if low >= -0x8000 and high < 0x8000:
        return "h"
    return "i" if low >= -0x80000000 and high < 0x80000000 else "q"


def summarize_samples(samples: Sequence[Sample]) -> SampleSummary:
    """n, min, median, 95th percentile, max and total of each sample; an empty one has n 0 and total 0, null elsewhere.

    Samples of the same size are processed together: a stage has about 40 accumulators, and separate numpy calls would
    take longer than reading the log. Median and percentile are numpy's (linear between order statistics).
    """
    count = len(samples)
    n = [0] * count
    columns: list[list[Any]] = [*([None] * count for _ in range(4)), [0] * count]
    by_size: dict[int, list[int]] = {}
    for position, sample in enumerate(samples):
        if size := len(sample):
            n[position] = size
            by_size.setdefault(size, []).append(position)
    for size, positions in by_size.items():
        alike = [samples[position] for position in positions]
        found = _summarize_small_samples(alike, size) if size <= SMALL_SAMPLE else _summarize_large_samples(alike)
        for column, values in zip(columns, found, strict=True):
            for position, value in zip(positions, values, strict=True):
                column[position] = value
    return SampleSummary(n, *columns)


def _summarize_small_samples(samples: list[Sample], size: int) -> list[list[Any]]:
    """The columns after n for samples of one small size, equal to `_summarize_large_samples`."""
    if size == 1:
        values = [sample.tolist()[0] for sample in samples]
        reals = list(map(float, values))
        return [values, reals, reals, values, values]
    rows = [sorted(sample.tolist()) for sample in samples]
    return [
        [row[0] for row in rows],
        [_small_sample_quantile(row, 0.5) for row in rows],
        [_small_sample_quantile(row, 0.95) for row in rows],
        [row[-1] for row in rows],
        [_none_beyond_64_bits(sum(row)) for row in rows],
    ]


def _small_sample_quantile(row: list[int], q: float) -> float:
    place = (len(row) - 1) * q
    below = int(place)
    share, low, high = place - below, float(row[below]), float(row[min(below + 1, len(row) - 1)])
    if q == 0.5:
        return low if share == 0 else (low + high) / 2
    gap = high - low
    return high - gap * (1 - share) if share >= 0.5 else low + gap * share


def _none_beyond_64_bits(total: int) -> int | None:
    return total if abs(total) <= INT64_MAX else None


def _summarize_large_samples(samples: list[Sample]) -> list[list[Any]]:
    """The columns after n for samples of one size."""
    matrix = np.sort(np.stack(samples), axis=1)
    low, high = matrix[:, 0].tolist(), matrix[:, -1].tolist()
    return [low, _row_quantiles(matrix, 0.5), _row_quantiles(matrix, 0.95), high, _sum_rows_exactly(matrix)]


def _row_quantiles(matrix: Ints, q: float) -> list[float]:
    """numpy's linear quantile of sorted rows, with the same rounding."""
    size = matrix.shape[1]
    place = (size - 1) * q
    below = int(place)
    above = min(below + 1, size - 1)
    share = place - below
    low, high = matrix[:, below].astype(np.float64), matrix[:, above].astype(np.float64)
    if q == 0.5:
        middle: list[float] = (low if share == 0 else (low + high) / 2).tolist()
        return middle
    gap = high - low
    result: list[float] = (high - gap * (1 - share) if share >= 0.5 else low + gap * share).tolist()
    return result


def _sum_rows_exactly(matrix: Ints) -> list[int | None]:
    """Exact row sums; null beyond 64 bits."""
    if max(abs(int(matrix[:, 0].min())), abs(int(matrix[:, -1].max()))) * matrix.shape[1] <= INT64_MAX:
        sums: list[int | None] = matrix.sum(axis=1).tolist()
        return sums
    return [_none_beyond_64_bits(sum(row)) for row in matrix.tolist()]
