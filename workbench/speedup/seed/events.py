"""Events as the seed method needs them: with task ids, accumulators' values and where a stage was called."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from workbench.eventlog.chunks import CHUNK_BYTES, Cutter
from workbench.eventlog.events import DECODERS, Int, Struct, TaskMetrics
from workbench.eventlog.fold import MAX_LINE_BYTES
from workbench.eventlog.sources import LogSource


class Accumulable(Struct, rename={"id": "ID", "name": "Name", "update": "Update", "value": "Value"}):
    """An accumulator in a task or a stage; numbers may come as texts, and anything else may come, too."""

    id: Int
    name: str | None = None
    update: Any = None
    value: Any = None


class TaskInfo(
    Struct,
    rename={
        "task_id": "Task ID",
        "launch_ms": "Launch Time",
        "finish_ms": "Finish Time",
        "accumulables": "Accumulables",
    },
):
    task_id: Int
    launch_ms: Int
    finish_ms: Int
    accumulables: list[Accumulable] = msgspec.field(default_factory=list)


class TaskEnd(
    Struct,
    rename={"stage_id": "Stage ID", "attempt_id": "Stage Attempt ID", "info": "Task Info", "metrics": "Task Metrics"},
):
    stage_id: Int
    info: TaskInfo
    attempt_id: Int = 0
    metrics: TaskMetrics | None = None


class Stage(
    Struct,
    rename={
        "stage_id": "Stage ID",
        "attempt_id": "Stage Attempt ID",
        "submitted_ms": "Submission Time",
        "completed_ms": "Completion Time",
        "failure": "Failure Reason",
        "details": "Details",
        "accumulables": "Accumulables",
    },
):
    stage_id: Int
    attempt_id: Int = 0
    submitted_ms: Int | None = None
    completed_ms: Int | None = None
    failure: str | None = None
    details: str = ""
    accumulables: list[Accumulable] = msgspec.field(default_factory=list)

    @property
    def duration_ms(self) -> int | None:
        if self.submitted_ms is None or self.completed_ms is None:
            return None
        return self.completed_ms - self.submitted_ms


class StageSubmitted(Struct, rename={"info": "Stage Info"}):
    info: Stage


class StageCompleted(Struct, rename={"info": "Stage Info"}):
    info: Stage


class StageOfJob(Struct, rename={"stage_id": "Stage ID"}):
    stage_id: Int


class JobStart(
    Struct,
    rename={
        "job_id": "Job ID",
        "time_ms": "Submission Time",
        "stage_ids": "Stage IDs",
        "stages": "Stage Infos",
        "properties": "Properties",
    },
):
    job_id: Int
    time_ms: Int
    stage_ids: list[Int] = msgspec.field(default_factory=list)
    stages: list[StageOfJob] | None = None
    properties: dict[str, Any] | None = None


class Streaming(Struct):
    """A structured streaming query started or ended."""


_OWN: dict[str, type[Struct]] = {
    "SparkListenerTaskEnd": TaskEnd,
    "SparkListenerStageSubmitted": StageSubmitted,
    "SparkListenerStageCompleted": StageCompleted,
    "SparkListenerJobStart": JobStart,
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent": Streaming,
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryTerminatedEvent": Streaming,
}
_DECODERS: dict[bytes, msgspec.json.Decoder[Any]] = DECODERS | {
    name.encode(): msgspec.json.Decoder(kind, strict=False) for name, kind in _OWN.items()
}
_HEAD = b'{"Event":"'


class Events:
    """The events of one log in their order; `n_lines`, `n_bad`, `n_cut` and `faults` tell afterwards what it lacks."""

    def __init__(self, source: LogSource) -> None:
        self.cutter = Cutter(0, source, CHUNK_BYTES)
        self.n_lines = self.n_bad = self.n_cut = 0

    @property
    def faults(self) -> list[str]:
        return self.cutter.faults

    def __iter__(self) -> Iterator[Any]:
        for chunk in self.cutter.chunks():
            file, offset = chunk.open()
            with file:
                for line in iter(partial(file.readline, MAX_LINE_BYTES), b""):
                    if offset >= chunk.stop:
                        break
                    offset += len(line)
                    self.n_lines += 1
                    if (event := self._event(line)) is not None:
                        yield event

    def _event(self, line: bytes) -> Any:
        line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            name = self._name(line)
            decoder = _DECODERS.get(name) if name else None
            if decoder is not None:
                return decoder.decode(line)
            if line.strip() and not line.rstrip().endswith(b"}"):
                raise ValueError("cut off")
        except (msgspec.DecodeError, ValueError, RecursionError):
            # The last line of a log that is still written, or whose writer died, is no damage.
            if line.endswith(b"\n"):
                self.n_bad += 1
            else:
                self.n_cut += 1
        return None

    @staticmethod
    def _name(line: bytes) -> bytes:
        if line.startswith(_HEAD):
            return line[10 : line.index(b'"', 10)]
        if not line.strip():
            return b""
        event = msgspec.json.decode(line)
        name = event.get("Event") if isinstance(event, dict) else None
        if not isinstance(name, str):
            raise ValueError("no event")
        return name.encode()
