"""One piece of a log, folded: its tasks added up by stage, its other events decoded, its bad lines located.

This is the work that runs side by side in processes of its own, so the module imports only what it needs.
"""

from __future__ import annotations

import io
import re
from array import array
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import IO, Any

import msgspec

from workbench.eventlog.events import (
    ANY_TASK_END,
    DECODERS,
    FAILED_TASK_END,
    NAMED_TASK_END,
    STAGE_EVENT,
    TASK_END,
    SqlStart,
    SqlUpdate,
    StageInfo,
    TaskEnd,
)
from workbench.eventlog.plans import graph, pack
from workbench.eventlog.scrub import scrub_line
from workbench.eventlog.stages import MAX_FAILURES_PER_STAGE, StageFacts, StageKey, StageTasks, close

TASK_END_HEAD = b'{"Event":"SparkListenerTaskEnd"'
TASK_START_HEAD = b'{"Event":"SparkListenerTaskStart","Stage ID":'
EVENT_HEAD = b'{"Event":"'
STAGE_AND_ATTEMPT = re.compile(rb'(\d{1,18})(?:,"Stage Attempt ID":(\d{1,18}))?')
INTEGER = re.compile(r"[+-]?\d{1,19}")
# A longer line is no event but damage (or an attack); it is read in pieces, which are bad lines.
MAX_LINE_BYTES = 512 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_ID = 2**62
CLOCK = re.compile(r"(\d{1,6}):(\d\d):(\d\d)\.(\d{3})")
BUFFER_BYTES = 256 << 10
MAX_BAD_LINES = 1000  # kept per log; all are counted
MESSAGE_CHARS = 2000


@dataclass(frozen=True)
class Chunk:
    """A piece of one file's decoded content: either its bytes (whole lines) or a range of a local plain file.

    Of a range, the lines that begin in [start, stop) belong to the chunk.
    """

    log: int
    file: int
    start: int
    stop: int
    data: bytes | None = None
    path: str | None = None

    def open(self) -> tuple[IO[bytes], int]:
        """The file object at the chunk's first line, and that line's offset in the decoded file."""
        if self.data is not None:
            return io.BytesIO(self.data), self.start
        assert self.path is not None
        # A buffer that stays in the processor's cache: reading the whole chunk at once took 1.7 times as long.
        file = open(self.path, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115 - the caller closes it
        if not self.start:
            return file, 0
        file.seek(self.start - 1)
        return file, self.start - 1 + len(file.readline(MAX_LINE_BYTES))


@dataclass(frozen=True)
class BadLine:
    line: int  # within the chunk, from 0
    offset: int  # within the decoded file
    reason: str
    text: str


@dataclass
class ChunkFacts:
    """What one chunk says. `events` are in the order of the log; `open` holds the stages not known to be finished."""

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
    late_task_ends: int = 0


@dataclass(frozen=True)
class StageSubmitted:
    info: StageInfo


@dataclass(frozen=True)
class StageCompleted:
    info: StageInfo
    scopes: tuple[str, ...]


class _Folder:
    """The state while a chunk is read."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.facts = ChunkFacts(chunk.log, chunk.file)
        self.open = self.facts.open
        self.starts: dict[bytes, int] = {}
        self.closed: set[StageKey] = set()

    def run(self) -> ChunkFacts:
        facts, starts, other = self.facts, self.starts, self.other
        task_end, decode, fold = TASK_END_HEAD, TASK_END.decode, self.task
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
                    # Only counted: how many tasks are running tells when a stage is really over.
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
                if not self.again(line, error):
                    self.bad(number, offset, line, error)
            number += 1
            offset += len(line)
        file.close()
        self.count_starts()
        facts.lines, facts.bytes = number, offset - first
        return facts

    def stage(self, key: StageKey) -> StageTasks:
        tasks = self.open.get(key)
        if tasks is None:
            if max(map(abs, key)) > MAX_ID:
                raise ValueError("a number too large for a stage")
            tasks = self.open[key] = StageTasks(key)
        return tasks

    def task(self, task: TaskEnd, line: bytes) -> None:
        key = (task.stage_id, task.attempt_id)
        tasks = self.open.get(key)
        if tasks is None:
            if key in self.closed:
                self.facts.late_task_ends += 1
                return
            tasks = self.stage(key)
        self.facts.decoded += 1
        values = tasks.values
        for update in task.info.updates:
            value = update.update
            try:
                values[update.id].append(value)  # type: ignore[arg-type]
            except KeyError:
                self.meet(tasks, line)
                if value is not None:
                    values[update.id].append(value)
            except OverflowError:
                tasks.not_integer[update.id] = tasks.not_integer.get(update.id, 0) + 1
            except TypeError:  # no update given
                pass
        tasks.add(task)
        if task.info.failed or task.info.killed:
            self.failure(tasks, line)
        if tasks.completed:
            self.close_if_finished(tasks)

    def meet(self, tasks: StageTasks, line: bytes) -> None:
        """A task brings an accumulator that this stage has not met: take the names of all that it brings."""
        for update in NAMED_TASK_END.decode(line).info.updates:
            if abs(update.id) > MAX_ID:
                raise ValueError("a number too large for an accumulator")
            tasks.names.setdefault(update.id, update.name or "")
            tasks.values.setdefault(update.id, array("q"))

    def failure(self, tasks: StageTasks, line: bytes) -> None:
        if len(tasks.failures) >= MAX_FAILURES_PER_STAGE:
            return
        try:
            event = FAILED_TASK_END.decode(line)
        except msgspec.DecodeError:
            return  # the task is counted; only why it failed cannot be read
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

    def again(self, line: bytes, error: Exception) -> bool:
        """A task whose updates are not all integers is rare and decoded in a second, slower way."""
        if not isinstance(error, msgspec.ValidationError) or b"SparkListenerTaskEnd" not in line:
            return False
        try:
            self.any_task(line)
        except (msgspec.DecodeError, ValueError, OverflowError):
            return False
        return True

    def any_task(self, line: bytes) -> None:
        task = ANY_TASK_END.decode(line)
        tasks = self.stage((task.stage_id, task.attempt_id))
        self.meet(tasks, line)
        integers = []
        for update in task.info.updates:
            value = as_integer(update.update)
            if value is not None:
                integers.append(type(update)(update.id, value))
            elif update.update is not None:
                tasks.not_integer[update.id] = tasks.not_integer.get(update.id, 0) + 1
        task.info.updates = integers
        self.task(task, line)

    def other(self, line: bytes) -> None:
        line = line.removeprefix(BYTE_ORDER_MARK)
        head = line
        if not head.startswith(EVENT_HEAD):
            head = _normal_head(line)
            if not head:
                return
        name = head[10 : head.index(b'"', 10)]
        if name == b"SparkListenerStageSubmitted":
            self.submitted(STAGE_EVENT.decode(line).info)
        elif name == b"SparkListenerStageCompleted":
            self.completed(STAGE_EVENT.decode(line).info)
        elif name == b"SparkListenerTaskEnd":
            self.task(TASK_END.decode(line), line)
            return
        elif (decoder := DECODERS.get(name)) is not None:
            event = decoder.decode(line)
            if isinstance(event, SqlStart | SqlUpdate) and event.plan is not None:
                # The graph is made here, side by side, and packed: plans are large and slow to hand on as objects.
                event.nodes, event.plan = pack(graph(event.plan)), None
            self.facts.events.append(event)
        elif not line.rstrip().endswith(b"}"):
            raise ValueError("the line ends in the middle of an event")
        else:
            return
        self.facts.decoded += 1

    def submitted(self, info: StageInfo) -> None:
        tasks = self.stage((info.stage_id, info.attempt_id))
        tasks.submitted, tasks.planned_tasks = True, info.tasks
        info.rdds, info.values = [], []
        self.facts.events.append(StageSubmitted(info))

    def completed(self, info: StageInfo) -> None:
        tasks = self.stage((info.stage_id, info.attempt_id))
        tasks.completed, tasks.stage_failed = True, info.failure is not None
        if tasks.planned_tasks is None:
            tasks.planned_tasks = info.tasks
        scopes = tuple(sorted({name for rdd in info.rdds if (name := scope_name(rdd.scope))}))
        tasks.values_at_end = {
            found.id: value for found in info.values if (value := as_integer(found.value)) is not None
        }
        info.rdds, info.values = [], []
        self.facts.events.append(StageCompleted(info, scopes))
        self.close_if_finished(tasks)

    def close_if_finished(self, tasks: StageTasks) -> None:
        # Only a stage that began in this chunk is known whole; the others are closed by who has all chunks.
        if tasks.submitted:
            self.count_starts()
            if tasks.finished and tasks.ended == tasks.started:
                self.closed.add(tasks.key)
                self.facts.closed.append(close(self.open.pop(tasks.key)))

    def count_starts(self) -> None:
        for head, count in self.starts.items():
            match = STAGE_AND_ATTEMPT.fullmatch(head)
            assert match is not None, "checked when it was counted"
            key = (int(match[1]), int(match[2] or 0))
            if key not in self.closed:
                self.stage(key).started += count
        self.starts.clear()

    def bad(self, number: int, offset: int, line: bytes, error: Exception) -> None:
        self.facts.n_bad += 1
        if len(self.facts.bad) < MAX_BAD_LINES:
            cut = not line.endswith(b"\n")
            reason = "cut off at the end of the file" if cut else str(error)[:200]
            self.facts.bad.append(BadLine(number, offset, reason, scrub_line(line)))


def fold(chunk: Chunk) -> ChunkFacts:
    """Fold one chunk; never raises for what the log holds."""
    return _Folder(chunk).run()


def as_integer(value: object) -> int | None:
    """The integer that an update is, or None: for arrays, texts, fractions, and what 64 bits cannot hold.

    RAPIDS writes the times of its GPU task metrics as HH:MM:SS.mmm; those become milliseconds.

    Examples
    --------
    >>> as_integer("17"), as_integer("00:01:02.345"), as_integer("1.5"), as_integer([1])
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
def scope_name(scope: str | None) -> str | None:
    """The operator that an RDD was made for: Spark writes its scope as JSON inside the JSON."""
    if not scope:
        return None
    try:
        name = msgspec.json.decode(scope).get("name")
    except (msgspec.DecodeError, AttributeError):
        return None
    return name if isinstance(name, str) else None


def _normal_head(line: bytes) -> bytes:
    """The head of a line that is not laid out as Spark does it (blanks, another first key); empty for a blank line."""
    if not line.strip():
        return b""
    event = msgspec.json.decode(line)
    name = event.get("Event") if isinstance(event, dict) else None
    if not isinstance(name, str):
        raise ValueError('JSON, but no event: it has no "Event"')
    return EVENT_HEAD + name.encode() + b'"'
