"""Task metrics of one stage attempt: raw values while it is open, exact quantiles when it closes.

Memory is bounded by the concurrently open stages, not by the log: a closed stage keeps one row, one row per
accumulator, and for accumulators of SQL plans a compact copy of their values until the execution ends (several stages
may work on one plan node, and quantiles of parts cannot be combined). Stages are summarized together, by numpy: a call
for each of their 40 accumulators would take longer than reading the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from workbench.core.tables import Coded
from workbench.eventlog.column_slices import Ints, Rows, Slice
from workbench.eventlog.listener_events import TaskEnd, TaskMetrics, Update

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
StageKey = tuple[int, int]
# n, min, median, 95th percentile, max and total of a sample of integers.
Summary: TypeAlias = tuple[int, "int | None", "float | None", "float | None", "int | None", "int | None"]
NO_VALUES: Summary = (0, None, None, None, None, 0)

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
MAX_VALUE = 2**60
# Shorter times without a running task are the scheduler's, between one task and the next.
MIN_GAP_MS = 1000
# A slot is free before the driver has the result of its task, at most so much: its next task may be launched meanwhile.
RESULT_DELAY_MS = 1000
# Up to so many tasks, loops are faster than numpy's calls.
FEW_TASKS = 16
# Attempts of a stage whose times are kept one by one; of more, so many are chosen evenly in the order of launch.
MAX_LISTED_TASKS = 1000
# Tasks differ in which accumulators they update; beyond so many kinds in a stage, updates are kept by accumulator.
MAX_TASK_KINDS = 256
NARROW_TYPES: tuple[type[np.signedinteger[Any]], ...] = (np.int8, np.int16, np.int32, np.int64)


# Of a stage attempt's parts in several chunks, added up.
COUNTERS = (
    "started",
    "failed",
    "killed",
    "speculative",
    "resubmitted",
    "repeated",
    "double",
    "with_metrics",
    "failed_duration_ms",
)


@dataclass(slots=True)
class StageTasks:
    """Raw state of one stage attempt, or of its part in one chunk of the log."""

    key: StageKey
    started: int = 0
    failed: int = 0
    killed: int = 0
    speculative: int = 0
    resubmitted: int = 0  # second ends of tasks whose output was lost: they are no attempts
    repeated: int = 0  # ends that were in the log before, and were not counted again
    double: int = 0  # ends that were counted twice, since they lie in different chunks
    with_metrics: int = 0
    submitted: bool = False
    planned_tasks: int | None = None
    completed: bool = False
    stage_failed: bool = False
    first_launch_ms: int | None = None
    last_finish_ms: int | None = None
    earliest_end_ms: int | None = None  # of its tasks or its own
    step_back_ms: int = 0  # of the driver's clock, between ends in the order of the log
    failed_duration_ms: int = 0
    dropped: int = 0  # durations that were counted and released when the stage was closed
    peak_memory_bytes: int = 0
    largest_result_bytes: int = 0
    durations_ms: array[int] = field(default_factory=lambda: array("q"))
    launches_ms: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("q"))  # by task; they grow as tasks are launched
    rows_read: array[int] = field(default_factory=lambda: array("q"))  # by task, -1 without metrics
    executor_numbers: dict[str, int] = field(default_factory=dict)  # by the executor's id
    executors: array[int] = field(default_factory=lambda: array("q"))  # by task, its executor's number
    task_ids: set[int] = field(default_factory=set)  # of those that ended
    totals: list[int] = field(default_factory=lambda: [0] * len(TOTALS))
    # By the accumulators that a task updates: the updates, task after task.
    updates: dict[tuple[int, ...], array[int]] = field(default_factory=dict)
    not_integer: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    of_plans: set[int] = field(default_factory=set)  # accumulators that are metrics of plans
    values_at_end: dict[int, int] = field(default_factory=dict)
    failures: list[tuple[int, int, str | None, str, str]] = field(default_factory=list)

    def add_task(self, task: TaskEnd) -> None:
        """Count one ended task: its outcome, its duration and its task metrics (not its accumulators)."""
        info = task.info
        duration = info.finish_ms - info.launch_ms
        self.durations_ms.append(duration)
        self.launches_ms.append(info.launch_ms)
        self.ids.append(info.task_id if -1 <= info.task_id < MAX_VALUE else -1)
        self.executors.append(self.executor_numbers.setdefault(info.executor_id, len(self.executor_numbers)))
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
        if self.last_finish_ms is None:
            self.last_finish_ms = self.earliest_end_ms = info.finish_ms
        elif info.finish_ms > self.last_finish_ms:
            self.last_finish_ms = info.finish_ms
        else:
            self.compare_end(info.finish_ms)
        if info.getting_result_ms:
            self.totals[23] += info.finish_ms - info.getting_result_ms
        rows = -1 if task.metrics is None else self._add_metrics(task.metrics)
        self.rows_read.append(rows if rows < MAX_VALUE else MAX_VALUE)

    def compare_end(self, time_ms: int) -> None:
        """Compare an end with those of tasks before it in the log: the driver's clock never goes back."""
        if self.last_finish_ms is not None and self.earliest_end_ms is not None:
            self.step_back_ms = max(self.step_back_ms, self.last_finish_ms - time_ms)
            self.earliest_end_ms = min(self.earliest_end_ms, time_ms)

    def add_updates(self, ids: tuple[int, ...], updates: list[Update]) -> None:
        """Add the updates of one task to these accumulators, whose names are known."""
        values = self.updates.get(ids)
        if values is None:
            if len(self.updates) >= MAX_TASK_KINDS:
                self._split_updates()
            values = self.updates.setdefault(ids, array("q"))
        try:
            values.fromlist([update.update for update in updates])  # type: ignore[misc]
        except (TypeError, OverflowError):  # no update given, or beyond 64 bits
            self._add_single_updates(updates)

    def _add_single_updates(self, updates: list[Update]) -> None:
        for update in updates:
            try:
                if update.update is not None:
                    self.updates.setdefault((update.id,), array("q")).append(update.update)
            except OverflowError:
                self.not_integer[update.id] = self.not_integer.get(update.id, 0) + 1

    def _split_updates(self) -> None:
        together, self.updates = self.updates, {}
        for ids, values in together.items():
            for place, accumulator_id in enumerate(ids):
                self.updates.setdefault((accumulator_id,), array("q")).extend(values[place :: len(ids)])

    def collect_samples(self) -> tuple[list[int], Ints, Ints]:
        """Return the sorted accumulators, their updates one accumulator after the other, and how many each has."""
        accumulator_ids = sorted(self.names.keys() | self.not_integer.keys())
        parts = [(ids, np.asarray(values).reshape(-1, len(ids)).T) for ids, values in self.updates.items()]
        if len(parts) == 1 and list(parts[0][0]) == accumulator_ids:
            columns = parts[0][1]
            return accumulator_ids, columns.ravel(), np.full(len(accumulator_ids), columns.shape[1])
        if not parts:
            return accumulator_ids, np.empty(0, np.int64), np.zeros(len(accumulator_ids), np.int64)
        values = np.concatenate([columns.ravel() for _, columns in parts])
        owners = np.concatenate([np.repeat(ids, columns.shape[1]) for ids, columns in parts])
        order = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[order], accumulator_ids, side="right")
        return accumulator_ids, values[order], np.diff(ends, prepend=0)

    def _add_metrics(self, metrics: TaskMetrics) -> int:
        """Add the metrics of a task; returns the rows that it read."""
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
        rows = 0
        if (read := metrics.input) is not None and (read.bytes or read.records):
            total[9] += read.bytes
            total[10] += read.records
            rows = read.records
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
            rows += shuffle.records
        written = metrics.shuffle_write
        if written is not None and (written.bytes or written.records or written.time_ns):
            total[20] += written.bytes
            total[21] += written.records
            total[22] += written.time_ns
        return rows

    def merge_later(self, later: StageTasks) -> None:
        """Add the state of a later chunk for the same stage attempt."""
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.submitted |= later.submitted
        self.completed |= later.completed
        self.stage_failed |= later.stage_failed
        self.planned_tasks = later.planned_tasks if self.planned_tasks is None else self.planned_tasks
        self.step_back_ms = max(self.step_back_ms, later.step_back_ms)
        if later.earliest_end_ms is not None:
            self.compare_end(later.earliest_end_ms)
        self.earliest_end_ms = min(_drop_none(self.earliest_end_ms, later.earliest_end_ms), default=None)
        self.first_launch_ms = min(_drop_none(self.first_launch_ms, later.first_launch_ms), default=None)
        self.last_finish_ms = max(_drop_none(self.last_finish_ms, later.last_finish_ms), default=None)
        self.peak_memory_bytes = max(self.peak_memory_bytes, later.peak_memory_bytes)
        self.largest_result_bytes = max(self.largest_result_bytes, later.largest_result_bytes)
        self.durations_ms.extend(later.durations_ms)
        self.launches_ms.extend(later.launches_ms)
        self.ids.extend(later.ids)
        self.rows_read.extend(later.rows_read)
        numbers = [
            self.executor_numbers.setdefault(name, len(self.executor_numbers)) for name in later.executor_numbers
        ]
        self.executors.extend(numbers[number] for number in later.executors)
        self.double += len(self.task_ids & later.task_ids)
        self.task_ids |= later.task_ids
        self.totals = [total + its for total, its in zip(self.totals, later.totals, strict=True)]
        for ids, values in later.updates.items():
            self.updates.setdefault(ids, array("q")).extend(values)
        for accumulator_id, count in later.not_integer.items():
            self.not_integer[accumulator_id] = self.not_integer.get(accumulator_id, 0) + count
        self.names = later.names | self.names
        self.of_plans |= later.of_plans
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
class Summaries:
    """Summaries of samples by column; of an empty sample, `n` and `total` are 0 and the others mean nothing."""

    n: Ints
    min: Ints
    median: Floats
    p95: Floats
    max: Ints
    total: Ints
    fits: Bools  # the total, in 64 bits

    @classmethod
    def make_empty(cls, size: int) -> Summaries:
        """Of so many empty samples."""
        ints = [np.zeros(size, np.int64) for _ in range(4)]
        return cls(ints[0], ints[1], np.zeros(size), np.zeros(size), ints[2], ints[3], np.ones(size, bool))

    @classmethod
    def of(cls, numbers: Mapping[str, npt.NDArray[Any]]) -> Summaries:
        """Those among other columns."""
        return cls(*(numbers[one.name] for one in fields(cls)))

    def put(self, places: Ints, others: Summaries) -> None:
        """Put the others at these places."""
        for one in fields(self):
            getattr(self, one.name)[places] = getattr(others, one.name)

    def take(self, places: Ints) -> Summaries:
        """The summaries at these places."""
        return Summaries(*(getattr(self, one.name)[places] for one in fields(self)))

    def rows(self) -> list[Summary]:
        """Each summary by itself; None for what means nothing."""
        columns = (getattr(self, one.name).tolist() for one in fields(self))
        return [
            (n, low, median, p95, high, total if fits else None) if n else NO_VALUES
            for n, low, median, p95, high, total, fits in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class CompactSamples:
    """Samples of integers, each in the narrowest type that holds its values."""

    sizes: Ints
    kinds: Ints
    starts: Ints  # within the values of the sample's kind
    values: list[Ints]  # by kind

    def sample(self, place: int) -> Ints:
        """The values of one sample."""
        start = self.starts[place]
        sample: Ints = self.values[self.kinds[place]][start : start + self.sizes[place]]
        return sample


@dataclass(frozen=True)
class BusyTime:
    """When tasks ran: starts and ends in turn, in epoch ms, and the most tasks that surely ran at one time.

    Gaps below `MIN_GAP_MS` are not told apart, nor overlaps below `RESULT_DELAY_MS`.
    """

    spans_ms: list[int]
    peak_tasks: int


def find_busy_time(launches_ms: Sequence[int], durations_ms: Sequence[int]) -> BusyTime:
    """Busy time of tasks that were launched at these moments and took so long, in ms.

    >>> find_busy_time([0, 500, 9000], [3000, 4000, 2000])
    BusyTime(spans_ms=[0, 4500, 9000, 11000], peak_tasks=2)
    """
    if len(launches_ms) > FEW_TASKS:
        return _find_busy_time_of_many(np.asarray(launches_ms), np.asarray(durations_ms))
    spans: list[int] = []
    peak = 0
    freed: list[int] = []
    for launch, duration in sorted(zip(launches_ms, durations_ms, strict=True)):
        launch, duration = _clip_to_60_bits(launch), max(0, _clip_to_60_bits(duration))
        if not spans or launch - spans[-1] >= MIN_GAP_MS:
            spans += [launch, launch + duration]
        elif launch + duration > spans[-1]:
            spans[-1] = launch + duration
        freed = [moment for moment in freed if moment > launch]
        if duration > RESULT_DELAY_MS:
            freed.append(launch + duration - RESULT_DELAY_MS)
            peak = max(peak, len(freed))
    return BusyTime(spans, peak)


def order_tasks(tasks: StageTasks) -> tuple[list[int], list[int], list[int]]:
    """Times in ms, rows read and numbers of executors of the attempts, in the order of launch.

    At most `MAX_LISTED_TASKS`.
    """
    columns = (tasks.durations_ms, tasks.rows_read, tasks.executors)
    if len(tasks.launches_ms) <= FEW_TASKS:
        order = sorted(range(len(tasks.launches_ms)), key=lambda i: (tasks.launches_ms[i], tasks.ids[i]))
        times, rows, executors = ([_clip_to_60_bits(values[i]) for i in order] for values in columns)
        return times, rows, executors
    places = np.lexsort((np.asarray(tasks.ids), np.asarray(tasks.launches_ms)))
    if len(places) > MAX_LISTED_TASKS:
        places = places[np.linspace(0, len(places) - 1, MAX_LISTED_TASKS).round().astype(np.int64)]
    times, rows, executors = (np.asarray(values)[places].clip(-MAX_VALUE, MAX_VALUE).tolist() for values in columns)
    return times, rows, executors


def _clip_to_60_bits(value: int) -> int:
    return max(-MAX_VALUE, min(MAX_VALUE, value))


def _find_busy_time_of_many(launches: Ints, durations: Ints) -> BusyTime:
    launches = launches.clip(-MAX_VALUE, MAX_VALUE)
    durations = durations.clip(0, MAX_VALUE)
    order = np.argsort(launches, kind="stable")
    first = launches[order]
    last = np.maximum.accumulate(first + durations[order])
    cuts = np.flatnonzero(first[1:] - last[:-1] >= MIN_GAP_MS)
    spans = np.empty(2 * len(cuts) + 2, np.int64)
    spans[0], spans[2::2], spans[1:-1:2], spans[-1] = first[0], first[cuts + 1], last[cuts], last[-1]
    freed = np.sort(launches + (durations - RESULT_DELAY_MS).clip(0))
    running = np.arange(1, len(first) + 1) - np.searchsorted(freed, first, side="right")
    return BusyTime(spans.tolist(), int(running.max()))


@dataclass(frozen=True)
class StageFacts:
    """A closed stage attempt: counts and totals, statistics of accumulators, compact values.

    `accumulators` has name (coded), id, is_internal, not_integer, value_at_end where has_end, and the columns of
    `Summaries`.
    """

    tasks: StageTasks  # emptied of raw values
    duration: Summary
    busy: BusyTime
    by_launch: tuple[list[int], list[int], list[int]]  # see `order_tasks`
    accumulators: Slice
    samples: CompactSamples  # of the accumulators of all stages that were summarized together
    first_sample: int

    def sample(self, place: int) -> Ints:
        """The updates of the accumulator at this place."""
        return self.samples.sample(self.first_sample + place)

    def copy(self) -> StageFacts:
        """The stage alone, so that the others that were summarized with it can be released."""
        samples = [self.sample(place).astype(np.int64) for place in range(self.accumulators.count)]
        values = np.concatenate([np.empty(0, np.int64), *samples])
        compact = compact_samples(values, np.array([len(sample) for sample in samples], np.int64))
        return replace(self, accumulators=self.accumulators.copy(), samples=compact, first_sample=0)


def summarize_stages(stages: Sequence[StageTasks]) -> list[StageFacts]:
    """Compute exact statistics of stages, and release their raw values."""
    if not stages:
        return []
    collected = [tasks.collect_samples() for tasks in stages]
    values, sizes = (np.concatenate([samples[part] for samples in collected]) for part in (1, 2))
    accumulators = [(tasks, i) for tasks, (ids, _, _) in zip(stages, collected, strict=True) for i in ids]
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(tasks.names.get(i, ""), len(places)) for tasks, i in accumulators], np.int32)
    if values.size and values.min() < 0:
        of_plans = np.array([i in tasks.of_plans for tasks, i in accumulators], bool)
        values, sizes = _drop_unset(values, sizes, of_plans)
    is_internal = np.array([name.startswith(INTERNAL) for name in places], bool)[codes]
    at_end = [tasks.values_at_end.get(i) for tasks, i in accumulators]
    # Only SQL plans need the values again.
    compact = compact_samples(values[~np.repeat(is_internal, sizes)], np.where(is_internal, 0, sizes))
    rows = Rows(
        {
            "id": np.array([i for _, i in accumulators], np.int64),
            "is_internal": is_internal,
            "not_integer": np.array([tasks.not_integer.get(i, 0) for tasks, i in accumulators], np.int64),
            "value_at_end": np.array([0 if value is None else value for value in at_end], np.int64),
            "has_end": np.array([value is not None for value in at_end], bool),
            **vars(summarize_samples(values, sizes)),
        },
        {"name": Coded(codes, list(places))},
    )
    durations = summarize_samples(
        np.concatenate([np.asarray(tasks.durations_ms) for tasks in stages]),
        np.array([len(tasks.durations_ms) for tasks in stages]),
    )
    facts, first = [], 0
    for tasks, duration, (ids, _, _) in zip(stages, durations.rows(), collected, strict=True):
        busy = find_busy_time(tasks.launches_ms, tasks.durations_ms)
        own = Slice(rows, first, len(ids))
        facts.append(StageFacts(tasks, duration, busy, order_tasks(tasks), own, compact, first))
        tasks.updates, tasks.names, tasks.not_integer, tasks.values_at_end, tasks.task_ids = {}, {}, {}, {}, set()
        tasks.dropped = tasks.ended
        tasks.durations_ms, tasks.launches_ms = array("q"), array("q")
        tasks.ids, tasks.rows_read, tasks.executors = array("q"), array("q"), array("q")
        first += len(ids)
    return facts


def _drop_unset(values: Ints, sizes: Ints, of_plans: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Drop negative values of plan metrics: Spark's sign for a metric that was never set."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    mask = (values >= 0) | ~of_plans[owners]
    return values[mask], np.bincount(owners[mask], minlength=len(sizes))


def compact_samples(values: Ints, sizes: Ints) -> CompactSamples:
    """Copies of samples, given one after the other, in the narrowest types."""
    kinds = np.zeros(len(sizes), np.int8)
    full = np.flatnonzero(sizes)
    if len(full):
        firsts = np.cumsum(sizes[full]) - sizes[full]
        low, high = np.minimum.reduceat(values, firsts), np.maximum.reduceat(values, firsts)
        for narrow in NARROW_TYPES[:-1]:
            limits = np.iinfo(narrow)
            kinds[full] += (low < limits.min) | (high > limits.max)
    stored: list[Ints] = []
    starts = np.zeros(len(sizes), np.int64)
    for kind, narrow in enumerate(NARROW_TYPES):
        is_kind = kinds == kind
        stored.append(values[np.repeat(is_kind, sizes)].astype(narrow))
        starts[is_kind] = np.cumsum(sizes[is_kind]) - sizes[is_kind]
    return CompactSamples(sizes, kinds, starts, stored)


def summarize_samples(values: Ints, sizes: Ints) -> Summaries:
    """n, min, median, 95th percentile, max and total of each sample.

    Samples stand one after the other in `values`; those of the same size are processed together. Median and percentile
    are numpy's (linear between order statistics); a total beyond 64 bits does not fit.
    """
    summaries = Summaries.make_empty(len(sizes))
    starts = np.cumsum(sizes) - sizes
    for size in sorted({*sizes.tolist()} - {0}):
        places = np.flatnonzero(sizes == size)
        summaries.put(places, _summarize_rows(values[starts[places][:, np.newaxis] + np.arange(size)]))
    return summaries


def _summarize_rows(matrix: Ints) -> Summaries:
    matrix.sort(axis=1)
    n_rows, size = matrix.shape
    totals, fits = matrix.sum(axis=1), np.ones(n_rows, bool)
    largest = np.maximum(-matrix[:, 0].astype(np.float64), matrix[:, -1].astype(np.float64)) * size
    for place in np.flatnonzero(largest >= 2.0**62):
        total = sum(matrix[place].tolist())
        fits[place] = abs(total) <= INT64_MAX
        totals[place] = total if fits[place] else 0
    return Summaries(
        np.full(n_rows, size),
        matrix[:, 0],
        _row_quantiles(matrix, 0.5),
        _row_quantiles(matrix, 0.95),
        matrix[:, -1],
        totals,
        fits,
    )


def _row_quantiles(matrix: Ints, q: float) -> Floats:
    """numpy's linear quantile of sorted rows, with the same rounding."""
    size = matrix.shape[1]
    place = (size - 1) * q
    below = int(place)
    above = min(below + 1, size - 1)
    share = place - below
    low, high = matrix[:, below].astype(np.float64), matrix[:, above].astype(np.float64)
    if q == 0.5:
        middle: Floats = low if share == 0 else (low + high) / 2
        return middle
    gap = high - low
    quantiles: Floats = high - gap * (1 - share) if share >= 0.5 else low + gap * share
    return quantiles
