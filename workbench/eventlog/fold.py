"""Fold one chunk of a log: add up tasks by stage, decode other events, locate bad lines.

It runs in parallel worker processes, so the module imports only what it needs.
"""

from __future__ import annotations

import io
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import IO, Any

import msgspec

from workbench.eventlog.codecs import Codec, CodecFaultError, decode_blocks
from workbench.eventlog.listener_events import (
    ANY_TASK_END,
    DECODERS,
    FAILED_TASK_END,
    NAMED_TASK_END,
    SQL,
    STAGE_COMPLETED,
    STAGE_SUBMITTED,
    TASK_END,
    CompletedStage,
    SqlStart,
    SqlUpdate,
    StageInfo,
    TaskEnd,
)
from workbench.eventlog.log_redaction import format_bad_line
from workbench.eventlog.plan_columns import PlanCollector, PlanColumns
from workbench.eventlog.stage_statistics import (
    MAX_FAILURES_PER_STAGE,
    StageFacts,
    StageKey,
    StageTasks,
    summarize_stages,
)

TASK_END_HEAD = b'{"Event":"SparkListenerTaskEnd"'
CUT_OFF = "cut off at the end of the file"
TASK_START_HEAD = b'{"Event":"SparkListenerTaskStart","Stage ID":'
EVENT_HEAD = b'{"Event":"'
STAGE_AND_ATTEMPT = re.compile(rb'(\d{1,18})(?:,"Stage Attempt ID":(\d{1,18}))?')
INTEGER = re.compile(r"[+-]?\d{1,19}")
# Longer lines are damage or an attack; they are read in pieces, as bad lines.
MAX_LINE_BYTES = 512 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_ID = 2**62
CLOCK = re.compile(r"(\d{1,6}):(\d\d):(\d\d)\.(\d{3})")
BUFFER_BYTES = 256 << 10
# Reason of a second end of a task that had succeeded: its output was lost, and another attempt makes it again.
RESUBMITTED = "Resubmitted"
# Events that a log holds once each, with the numbers that they name.
NUMBERED = frozenset(
    name.encode()
    for name in (
        "SparkListenerStageSubmitted",
        "SparkListenerStageCompleted",
        "SparkListenerJobStart",
        "SparkListenerJobEnd",
        "SparkListenerExecutorAdded",
        "SparkListenerExecutorRemoved",
        *(f"{SQL}SparkListener{kind}" for kind in ("SQLExecutionStart", "SQLExecutionEnd", "DriverAccumUpdates")),
    )
)
SQL_METRIC = "sql"  # Spark's own mark of the metrics of plans
HASHED_BYTES = 256
MAX_ODD_FIELDS = 20  # of one event
MAX_DEPTH = 200_000
DEEP_STACK_BYTES = 512 << 20
MAX_BAD_LINES = 1000  # kept per log; all are counted
MESSAGE_CHARS = 2000


@dataclass(frozen=True)
class Chunk:
    """A part of the decoded content of a file: its bytes (whole lines), or a range of a local file.

    Lines that begin in [start, stop) of a plain file's range belong to the chunk; a range of a zstd file is of whole
    frames.
    """

    log: int
    file: int
    start: int
    stop: int
    data: bytes | None = None
    path: str | None = None
    codec: Codec = "plain"

    def open(self) -> tuple[IO[bytes], int]:
        """File object at the first line of the chunk, and the offset of that line in the decoded file."""
        if self.data is not None:
            return io.BytesIO(self.data), self.start
        assert self.path is not None
        # A buffer that fits the CPU cache: reading the whole chunk took 1.7 times as long.
        file = open(self.path, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115 - the caller closes it
        if not self.start:
            return file, 0
        file.seek(self.start - 1)
        return file, self.start - 1 + len(file.readline(MAX_LINE_BYTES))


@dataclass(frozen=True)
class BadLine:
    line: int  # within the chunk, from 0
    offset: int  # within the chunk's lines
    reason: str
    text: str


@dataclass
class ChunkFacts:
    """Facts of one chunk: `events` in the order of the log, `open` stages that may not be finished."""

    log: int
    file: int
    lines: int = 0
    bytes: int = 0
    decoded: int = 0
    bad: list[BadLine] = field(default_factory=list)
    n_bad: int = 0
    events: list[Any] = field(default_factory=list)
    open: dict[StageKey, StageTasks] = field(default_factory=dict)
    closed: list[StageFacts] = field(default_factory=list)
    plans: PlanColumns = field(default_factory=lambda: PlanCollector().list_columns())
    late_task_ends: int = 0
    repeated_lines: int = 0
    odd_fields: Counter[str] = field(default_factory=Counter)  # by path: of another type than Spark's, and dropped
    task_ends: int = 0
    max_task_id: int = -1
    executors: set[str] = field(default_factory=set)  # on which tasks ended
    reread_from: int | None = None  # frames from here on are to be decoded in one stream


@dataclass(frozen=True)
class StageSubmitted:
    """Start of a stage attempt, with the execution that it names."""

    info: StageInfo
    sql_id: int | None = None


@dataclass(frozen=True)
class StageCompleted:
    info: StageInfo
    scopes: tuple[str, ...]


class _ChunkFolder:
    """State of folding one chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.facts = ChunkFacts(chunk.log, chunk.file)
        self.open = self.facts.open
        self.starts: dict[bytes, int] = {}
        self.closed: dict[StageKey, set[int]] = {}  # with the tasks that ended
        self.seen: set[int] = set()  # hashes of the lines that are not of tasks
        self.finished: list[StageTasks] = []
        self.plans = PlanCollector()

    def fold_lines(self) -> ChunkFacts:
        facts, starts, other = self.facts, self.starts, self.add_event
        task_end, decode, fold = TASK_END_HEAD, TASK_END.decode, self.add_task
        task_start, cut = TASK_START_HEAD, len(TASK_START_HEAD)
        file, first = self.chunk.open()
        number, offset, stop = 0, first, self.chunk.stop
        for line in iter(partial(file.readline, MAX_LINE_BYTES), b""):
            if offset >= stop:
                break
            try:
                if line.startswith(task_end):
                    fold(decode(line), line)
                elif line.startswith(task_start):
                    # Only counted: the number of running tasks tells when a stage is over.
                    key = line[cut : line.index(b',"Task', cut)]
                    if key in starts:
                        starts[key] += 1
                    elif STAGE_AND_ATTEMPT.fullmatch(key):
                        starts[key] = 1
                    else:
                        raise ValueError("a task start without its stage")
                else:
                    other(line)
            except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
                if not self.retry_task(line, error):
                    self.add_bad_line(number, offset - first, line, error)
            number += 1
            offset += len(line)
        file.close()
        self.count_starts()
        facts.closed, facts.plans = summarize_stages(self.finished), self.plans.list_columns()
        facts.lines, facts.bytes = number, offset - first
        return facts

    def open_stage(self, key: StageKey) -> StageTasks:
        tasks = self.open.get(key)
        if tasks is None:
            if max(map(abs, key)) > MAX_ID:
                raise ValueError("a number too large for a stage")
            tasks = self.open[key] = StageTasks(key)
        return tasks

    def add_task(self, task: TaskEnd, line: bytes) -> None:
        key = (task.stage_id, task.attempt_id)
        tasks, info, facts = self.open.get(key), task.info, self.facts
        facts.decoded += 1
        if task.end is not None and task.end.reason == RESUBMITTED:
            if tasks is not None:
                tasks.resubmitted += 1
            return
        task_id = info.task_id
        if task_id in (self.closed.get(key, ()) if tasks is None else tasks.task_ids) and task_id >= 0:
            facts.repeated_lines += 1
            return
        facts.task_ends += 1
        if task_id > facts.max_task_id:
            facts.max_task_id = task_id
        facts.executors.add(info.executor_id)
        if tasks is None:
            if key in self.closed:
                facts.late_task_ends += 1
                return
            tasks = self.open_stage(key)
        if updates := info.updates:
            ids = tuple([update.id for update in updates])
            if ids not in tasks.updates and not tasks.names.keys() >= set(ids):
                self.learn_accumulators(tasks, line)
            if info.failed or info.killed:
                # As in Spark's UI: metrics of plans count tasks that succeeded.
                updates = [update for update in updates if update.id not in tasks.of_plans]
                ids = tuple([update.id for update in updates])
            if ids:
                tasks.add_updates(ids, updates)
        tasks.add_task(task)
        tasks.task_ids.add(task_id)
        if info.failed or info.killed:
            self.add_failure(tasks, line)
        if tasks.completed:
            self.close_stage_if_over(tasks)

    def learn_accumulators(self, tasks: StageTasks, line: bytes) -> None:
        """Learn the names of all accumulators of a task, when one is new to its stage."""
        for update in NAMED_TASK_END.decode(line).info.updates:
            if abs(update.id) > MAX_ID:
                raise ValueError("a number too large for an accumulator")
            tasks.names.setdefault(update.id, update.name or "")
            if update.kind == SQL_METRIC:
                tasks.of_plans.add(update.id)

    def add_failure(self, tasks: StageTasks, line: bytes) -> None:
        if len(tasks.failures) >= MAX_FAILURES_PER_STAGE:
            return
        try:
            event = FAILED_TASK_END.decode(line)
        except msgspec.DecodeError:
            return  # the task is counted, only its reason is unreadable
        reason = str(event.end.get("Reason", "unknown"))
        parts = [
            str(event.end[name])
            for name in ("Class Name", "Description", "Loss Reason", "Kill Reason", "Message")
            if event.end.get(name)
        ]
        tasks.failures.append(
            (
                event.info.task_id,
                event.info.finish_ms,
                event.info.executor_id,
                reason,
                ": ".join(parts)[: 8 * MESSAGE_CHARS],
            )
        )

    def retry_task(self, line: bytes, error: Exception) -> bool:
        """Decode a task with non-integer updates, which are rare, in a slower way."""
        if not isinstance(error, msgspec.ValidationError) or b"SparkListenerTaskEnd" not in line:
            return False
        try:
            self.add_any_task(line)
        except (msgspec.DecodeError, ValueError, OverflowError):
            return False
        return True

    def add_any_task(self, line: bytes) -> None:
        task = decode_event(ANY_TASK_END, line, self.facts.odd_fields)
        tasks = self.open_stage((task.stage_id, task.attempt_id))
        self.learn_accumulators(tasks, line)
        integers = []
        for update in task.info.updates:
            value = parse_integer(update.update)
            if value is not None:
                integers.append(type(update)(update.id, value))
            elif update.update is not None:
                tasks.not_integer[update.id] = tasks.not_integer.get(update.id, 0) + 1
        task.info.updates = integers
        self.add_task(task, line)

    def add_event(self, line: bytes) -> None:
        line = line.removeprefix(BYTE_ORDER_MARK)
        head = line
        if not head.startswith(EVENT_HEAD):
            head = _normalize_line_head(line)
            if not head:
                return
        name = head[10 : head.index(b'"', 10)]
        if name in NUMBERED:
            # Kind and number lead a line, times and results end it; hashing whole plans would take as long as reading.
            if (content := hash((len(line), line[:HASHED_BYTES], line[-HASHED_BYTES:]))) in self.seen:
                self.facts.repeated_lines += 1
                return
            self.seen.add(content)
        if name == b"SparkListenerStageSubmitted":
            event = decode_event(STAGE_SUBMITTED, line, self.facts.odd_fields)
            self.submit_stage(event.info, parse_integer(event.properties.sql_id) if event.properties else None)
        elif name == b"SparkListenerStageCompleted":
            self.complete_stage(decode_event(STAGE_COMPLETED, line, self.facts.odd_fields).info)
        elif name == b"SparkListenerTaskEnd":
            self.add_task(TASK_END.decode(line), line)
            return
        elif (decoder := DECODERS.get(name)) is not None:
            event = decode_event(decoder, line, self.facts.odd_fields)
            if isinstance(event, SqlStart | SqlUpdate) and event.plan is not None:
                # The graph is built here in parallel, since plans are slow to pickle as objects.
                event.plan_place, event.plan = self.plans.add_plan(event.sql_id, event.plan), None
            self.facts.events.append(event)
        elif not line.rstrip().endswith(b"}"):
            raise ValueError("the line ends in the middle of an event")
        else:
            return
        self.facts.decoded += 1

    def submit_stage(self, info: StageInfo, sql_id: int | None) -> None:
        tasks = self.open_stage((info.stage_id, info.attempt_id))
        tasks.submitted, tasks.planned_tasks = True, info.tasks
        self.facts.events.append(StageSubmitted(info, sql_id))

    def complete_stage(self, info: CompletedStage) -> None:
        tasks = self.open_stage((info.stage_id, info.attempt_id))
        tasks.completed, tasks.stage_failed = True, info.failure is not None
        if info.completed_ms is not None:
            tasks.compare_end(info.completed_ms)
        if tasks.planned_tasks is None:
            tasks.planned_tasks = info.tasks
        scopes = tuple(sorted({name for rdd in info.rdds if (name := parse_scope_name(rdd.scope))}))
        tasks.values_at_end = {
            accumulator.id: value
            for accumulator in info.values
            if (value := accumulator.value if type(accumulator.value) is int else parse_integer(accumulator.value))
            is not None
        }
        values = tasks.values_at_end.values()
        if values and (min(values) < -(2**63) or max(values) >= 2**63):
            tasks.values_at_end = {i: value for i, value in tasks.values_at_end.items() if -(2**63) <= value < 2**63}
        info.rdds, info.values = [], []
        self.facts.events.append(StageCompleted(info, scopes))
        self.close_stage_if_over(tasks)

    def close_stage_if_over(self, tasks: StageTasks) -> None:
        """Move a stage from the open ones to the finished ones, once its end and those of all its tasks were seen."""
        # Only stages that began in this chunk are complete; the assembler closes the others.
        if tasks.submitted:
            # Starts are counted by line first; `started` is behind until they are added.
            self.count_starts()
            # Stricter than `finished`: a stage whose starts are missing is left to the assembler, too.
            if tasks.finished and tasks.ended == tasks.started:
                self.closed[tasks.key] = tasks.task_ids
                self.finished.append(self.open.pop(tasks.key))

    def count_starts(self) -> None:
        for head, count in self.starts.items():
            match = STAGE_AND_ATTEMPT.fullmatch(head)
            assert match is not None, "checked when it was counted"
            key = (int(match[1]), int(match[2] or 0))
            if key not in self.closed:
                self.open_stage(key).started += count
        self.starts.clear()

    def add_bad_line(self, number: int, offset: int, line: bytes, error: Exception) -> None:
        self.facts.n_bad += 1
        if len(self.facts.bad) < MAX_BAD_LINES:
            cut = not line.endswith(b"\n")
            reason = CUT_OFF if cut else str(error)[:200]
            self.facts.bad.append(BadLine(number, offset, reason, format_bad_line(line)))


def fold_chunk(chunk: Chunk) -> ChunkFacts:
    """Fold one chunk; never raises for damaged logs."""
    if chunk.codec != "plain":
        data = _decode_whole_lines(chunk)
        if data is None:
            return ChunkFacts(chunk.log, chunk.file, reread_from=chunk.start)
        chunk = Chunk(chunk.log, chunk.file, 0, len(data), data=data)
    return _ChunkFolder(chunk).fold_lines()


def _decode_whole_lines(chunk: Chunk) -> bytes | None:
    """Content of a range of frames; None where it is damaged, or ends within a line."""
    assert chunk.path is not None
    try:
        with open(chunk.path, "rb") as file:
            file.seek(chunk.start)
            frames = io.BytesIO(file.read(chunk.stop - chunk.start))
        data = b"".join(decode_blocks(frames, chunk.codec))
    except (CodecFaultError, OSError):
        return None
    return data if data.endswith(b"\n") else None


def decode_event(decoder: msgspec.json.Decoder[Any], line: bytes, odd_fields: Counter[str]) -> Any:
    """Decode an event; a field of another type than Spark's is as if it were not there, unless the event needs it.

    Such fields are counted in `odd_fields`.
    """
    try:
        return decoder.decode(line)
    except RecursionError:
        return _decode_deep(decoder, line)
    except msgspec.ValidationError as error:
        content, last = msgspec.json.decode(line), error
    for _ in range(MAX_ODD_FIELDS):
        if (name := _drop_field(content, str(last))) is None:
            break
        odd_fields[name] += 1
        try:
            return msgspec.convert(content, decoder.type, strict=False)
        except msgspec.ValidationError as error:
            last = error
    raise last


def _decode_deep(decoder: msgspec.json.Decoder[Any], line: bytes) -> Any:
    """Decode a plan of thousands of levels, in a thread whose stack holds them."""
    results: list[Any] = []

    def decode() -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(MAX_DEPTH)
        try:
            results.append(decoder.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            results.append(error)
        finally:
            sys.setrecursionlimit(limit)

    size = threading.stack_size(DEEP_STACK_BYTES)
    thread = threading.Thread(target=decode)
    thread.start()
    threading.stack_size(size)
    thread.join()
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _drop_field(content: Any, message: str) -> str | None:
    """Drop the field that a message of msgspec names, and return its path; null where it names none.

    >>> event = {"Stage Info": {"Stage ID": 1, "Parent IDs": None}}
    >>> _drop_field(event, "Expected `array`, got `null` - at `$.Stage Info.Parent IDs`"), event
    ('Stage Info.Parent IDs', {'Stage Info': {'Stage ID': 1}})
    """
    whole = path = message.rpartition(" - at `$.")[2].removesuffix("`")
    place = content
    while isinstance(place, dict):
        # Names of fields may hold dots.
        name = max((key for key in place if f"{path}.".startswith((f"{key}.", f"{key}["))), key=len, default=None)
        if name is None:
            return None
        rest = path[len(name) :].removeprefix(".")
        if not rest or rest.startswith("["):
            del place[name]
            return whole
        place, path = place[name], rest
    return None


def parse_integer(value: object) -> int | None:
    """The integer of an update; None for arrays, texts, fractions and values beyond 64 bits.

    RAPIDS writes the times of its GPU task metrics as HH:MM:SS.mmm; those become milliseconds.

    >>> parse_integer("17"), parse_integer("00:01:02.345"), parse_integer("1.5"), parse_integer([1])
    (17, 62345, None, None)
    """
    if isinstance(value, str):
        if INTEGER.fullmatch(value):
            value = int(value)
        elif clock := CLOCK.fullmatch(value):
            hours, minutes, seconds, milliseconds = map(int, clock.groups())
            value = ((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    return None


@lru_cache(maxsize=4096)
def parse_scope_name(scope: str | None) -> str | None:
    """Operator of an RDD, from its scope, which is JSON inside the JSON."""
    if not scope:
        return None
    try:
        name = msgspec.json.decode(scope).get("name")
    except (msgspec.DecodeError, AttributeError):
        return None
    return name if isinstance(name, str) else None


def _normalize_line_head(line: bytes) -> bytes:
    """Normalized head of a line in another layout than Spark's (blanks, another first key); empty for a blank line."""
    if not line.strip():
        return b""
    event = msgspec.json.decode(line)
    name = event.get("Event") if isinstance(event, dict) else None
    if not isinstance(name, str):
        raise ValueError('JSON, but no event: it has no "Event"')
    return EVENT_HEAD + name.encode() + b'"'
