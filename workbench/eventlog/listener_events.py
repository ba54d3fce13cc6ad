"""Spark listener events that carry facts, as msgspec structures with their decoders.

Field names are those of Spark's JsonProtocol; unused fields are left out, since skipping is cheaper than decoding.
Numbers may be numeric strings (as in SQL metrics), so decoders are lenient there (`strict=False`).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

# Differences of such numbers do not overflow 64 bits. Tasks skip this check for speed; it is made once per stage.
BoundedInt = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
SQL = "org.apache.spark.sql.execution.ui."


class Struct(msgspec.Struct, gc=False, frozen=False):
    """Not tracked by the garbage collector, since there are millions and none forms a cycle (2x faster)."""


# --- tasks: 86 % of a log's bytes, so their shape decides the speed --------------------------------------------


class Update(Struct, rename={"id": "ID", "update": "Update"}):
    """Integer update of an accumulator by a task, the usual case."""

    id: int
    update: int | None = None


class AnyUpdate(Struct, rename={"id": "ID", "update": "Update"}):
    """Update of any type: block statuses are arrays, accumulators of users may be texts."""

    id: int
    update: Any = None


class NamedUpdate(Struct, rename={"id": "ID", "name": "Name", "kind": "Metadata"}):
    """`kind` is "sql" for a metric of a plan."""

    id: int
    name: str | None = None
    kind: str | None = None


class ShuffleRead(
    Struct,
    rename={
        "remote_blocks": "Remote Blocks Fetched",
        "local_blocks": "Local Blocks Fetched",
        "fetch_wait_ms": "Fetch Wait Time",
        "remote_bytes": "Remote Bytes Read",
        "remote_bytes_to_disk": "Remote Bytes Read To Disk",
        "local_bytes": "Local Bytes Read",
        "records": "Total Records Read",
    },
):
    remote_blocks: int = 0
    local_blocks: int = 0
    fetch_wait_ms: int = 0
    remote_bytes: int = 0
    remote_bytes_to_disk: int = 0
    local_bytes: int = 0
    records: int = 0


class ShuffleWrite(
    Struct,
    rename={"bytes": "Shuffle Bytes Written", "time_ns": "Shuffle Write Time", "records": "Shuffle Records Written"},
):
    bytes: int = 0
    time_ns: int = 0
    records: int = 0


class Input(Struct, rename={"bytes": "Bytes Read", "records": "Records Read"}):
    bytes: int = 0
    records: int = 0


class Output(Struct, rename={"bytes": "Bytes Written", "records": "Records Written"}):
    bytes: int = 0
    records: int = 0


class TaskMetrics(
    Struct,
    rename={
        "deserialize_ms": "Executor Deserialize Time",
        "deserialize_cpu_ns": "Executor Deserialize CPU Time",
        "run_ms": "Executor Run Time",
        "cpu_ns": "Executor CPU Time",
        "peak_memory_bytes": "Peak Execution Memory",
        "result_bytes": "Result Size",
        "gc_ms": "JVM GC Time",
        "result_serialization_ms": "Result Serialization Time",
        "memory_spilled_bytes": "Memory Bytes Spilled",
        "disk_spilled_bytes": "Disk Bytes Spilled",
        "shuffle_read": "Shuffle Read Metrics",
        "shuffle_write": "Shuffle Write Metrics",
        "input": "Input Metrics",
        "output": "Output Metrics",
    },
):
    deserialize_ms: int = 0
    deserialize_cpu_ns: int = 0
    run_ms: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0
    result_bytes: int = 0
    gc_ms: int = 0
    result_serialization_ms: int = 0
    memory_spilled_bytes: int = 0
    disk_spilled_bytes: int = 0
    shuffle_read: ShuffleRead | None = None
    shuffle_write: ShuffleWrite | None = None
    input: Input | None = None
    output: Output | None = None


class TaskInfo(
    Struct,
    rename={
        "task_id": "Task ID",
        "executor_id": "Executor ID",
        "launch_ms": "Launch Time",
        "finish_ms": "Finish Time",
        "getting_result_ms": "Getting Result Time",
        "failed": "Failed",
        "killed": "Killed",
        "speculative": "Speculative",
        "updates": "Accumulables",
    },
):
    launch_ms: int
    finish_ms: int
    task_id: int = -1
    executor_id: str = ""
    getting_result_ms: int = 0
    failed: bool = False
    killed: bool = False
    speculative: bool = False
    updates: list[Update] = []


class AnyTaskInfo(TaskInfo, rename={"updates": "Accumulables"}):
    updates: list[AnyUpdate] = []  # type: ignore[assignment]


class EndReason(Struct, rename={"reason": "Reason"}):
    reason: str = ""


class TaskEnd(
    Struct,
    rename={
        "stage_id": "Stage ID",
        "attempt_id": "Stage Attempt ID",
        "info": "Task Info",
        "metrics": "Task Metrics",
        "end": "Task End Reason",
    },
):
    stage_id: int
    info: TaskInfo
    attempt_id: int = 0
    metrics: TaskMetrics | None = None
    end: EndReason | None = None


class AnyTaskEnd(TaskEnd, rename={"info": "Task Info"}):
    info: AnyTaskInfo


class NamedTaskInfo(Struct, rename={"updates": "Accumulables"}):
    updates: list[NamedUpdate] = []


class NamedTaskEnd(Struct, rename={"info": "Task Info"}):
    """Names of a task's accumulators, decoded once per stage for each new accumulator."""

    info: NamedTaskInfo


class FailedTaskInfo(
    Struct, rename={"task_id": "Task ID", "finish_ms": "Finish Time", "executor_id": "Executor ID", "killed": "Killed"}
):
    task_id: BoundedInt
    finish_ms: BoundedInt
    executor_id: str | None = None
    killed: bool = False


class FailedTaskEnd(Struct, rename={"info": "Task Info", "end": "Task End Reason"}):
    """Reason of a failed task; decoded for failed tasks only."""

    info: FailedTaskInfo
    end: dict[str, Any] = {}


# --- stages and jobs -------------------------------------------------------------------------------------------


class Rdd(Struct, rename={"scope": "Scope"}):
    scope: str | None = None


class StageValue(Struct, rename={"id": "ID", "value": "Value"}):
    """Value of an accumulator at the end of a stage, over all stages so far that share it."""

    id: BoundedInt
    value: Any = None


class StageInfo(
    Struct,
    rename={
        "stage_id": "Stage ID",
        "attempt_id": "Stage Attempt ID",
        "name": "Stage Name",
        "tasks": "Number of Tasks",
        "parent_ids": "Parent IDs",
        "submitted_ms": "Submission Time",
        "completed_ms": "Completion Time",
        "failure": "Failure Reason",
        "profile_id": "Resource Profile Id",
    },
):
    stage_id: BoundedInt
    attempt_id: BoundedInt = 0
    name: str = ""
    tasks: BoundedInt | None = None
    parent_ids: list[BoundedInt] = []
    submitted_ms: BoundedInt | None = None
    completed_ms: BoundedInt | None = None
    failure: str | None = None
    profile_id: BoundedInt | None = None


class CompletedStage(StageInfo, rename={"rdds": "RDD Info", "values": "Accumulables"}):
    rdds: list[Rdd] = []
    values: list[StageValue] = []


class JobProperties(
    Struct,
    rename={
        "sql_id": "spark.sql.execution.id",
        "group": "spark.jobGroup.id",
        "description": "spark.job.description",
    },
):
    """The properties that matter of the hundreds that every job and stage repeats."""

    sql_id: Any = None
    group: Any = None
    description: Any = None


class StageSubmittedEvent(Struct, rename={"info": "Stage Info", "properties": "Properties"}):
    info: StageInfo
    properties: JobProperties | None = None


class StageCompletedEvent(Struct, rename={"info": "Stage Info"}):
    info: CompletedStage


class JobStart(
    Struct,
    rename={"job_id": "Job ID", "time_ms": "Submission Time", "stage_ids": "Stage IDs", "properties": "Properties"},
):
    job_id: BoundedInt
    time_ms: BoundedInt | None = None
    stage_ids: list[BoundedInt] = []
    properties: JobProperties | None = None


class JobEnd(Struct, rename={"job_id": "Job ID", "time_ms": "Completion Time", "result": "Job Result"}):
    job_id: BoundedInt
    time_ms: BoundedInt | None = None
    result: dict[str, Any] = {}


# --- SQL -------------------------------------------------------------------------------------------------------


class Metric(Struct, rename={"accumulator_id": "accumulatorId", "type": "metricType"}):
    name: str
    accumulator_id: BoundedInt
    type: str = ""


class Plan(Struct, rename={"name": "nodeName", "text": "simpleString"}):
    name: str
    text: str = ""
    children: list[Plan] = []
    metrics: list[Metric] = []
    metadata: dict[str, Any] = {}


class SqlStart(
    Struct,
    rename={
        "sql_id": "executionId",
        "root_id": "rootExecutionId",
        "plan": "sparkPlanInfo",
        "time_ms": "time",
        "configs": "modifiedConfigs",
        "tags": "jobTags",
    },
):
    """Start of an execution; folding replaces `plan` by its place among the plans of the chunk."""

    sql_id: BoundedInt
    root_id: BoundedInt | None = None
    description: str = ""
    plan: Plan | None = None
    time_ms: BoundedInt | None = None
    configs: Any = None
    tags: list[str] = []
    plan_place: int | None = None


class SqlEnd(Struct, rename={"sql_id": "executionId", "error": "errorMessage", "time_ms": "time"}):
    sql_id: BoundedInt
    time_ms: BoundedInt | None = None
    error: str | None = None


class SqlUpdate(Struct, rename={"sql_id": "executionId", "plan": "sparkPlanInfo"}):
    sql_id: BoundedInt
    plan: Plan | None = None
    plan_place: int | None = None


class SqlMetrics(Struct, rename={"sql_id": "executionId", "metrics": "sqlPlanMetrics"}):
    sql_id: BoundedInt
    metrics: list[Metric] = []


class DriverUpdates(Struct, rename={"sql_id": "executionId", "updates": "accumUpdates"}):
    sql_id: BoundedInt
    updates: list[list[Any]] = []


# --- application -----------------------------------------------------------------------------------------------


class LogStart(Struct, rename={"version": "Spark Version"}):
    version: str = ""


class PartStart(
    Struct, rename={"version": "Spark Version", "number": "Rollover Number", "context_id": "SparkContext Id"}
):
    """First line of each part of a Databricks log."""

    version: str = ""
    number: BoundedInt | None = None
    context_id: Any = None


class ApplicationStart(
    Struct,
    rename={"name": "App Name", "id": "App ID", "attempt_id": "App Attempt ID", "time_ms": "Timestamp", "user": "User"},
):
    name: str = ""
    id: str | None = None
    attempt_id: str | None = None
    time_ms: BoundedInt | None = None
    user: str | None = None


class ApplicationEnd(Struct, rename={"time_ms": "Timestamp"}):
    time_ms: BoundedInt | None = None


class Environment(Struct, rename={"spark": "Spark Properties", "jvm": "JVM Information"}):
    spark: Any = None
    jvm: Any = None


class ExecutorInfo(Struct, rename={"host": "Host", "cores": "Total Cores", "profile_id": "Resource Profile Id"}):
    host: str = ""
    cores: BoundedInt | None = None
    profile_id: BoundedInt | None = None


class ExecutorAdded(Struct, rename={"id": "Executor ID", "time_ms": "Timestamp", "info": "Executor Info"}):
    id: str
    time_ms: BoundedInt | None = None
    info: ExecutorInfo | None = None


class ExecutorRemoved(Struct, rename={"id": "Executor ID", "time_ms": "Timestamp", "reason": "Removed Reason"}):
    id: str
    time_ms: BoundedInt | None = None
    reason: str | None = None


class ResourceAmount(Struct, rename={"amount": "Amount"}):
    amount: float = 0.0


class ResourceProfile(
    Struct,
    rename={"id": "Resource Profile Id", "executor": "Executor Resource Requests", "task": "Task Resource Requests"},
):
    """What executors of a profile have, and what one of its tasks takes, by resource."""

    id: BoundedInt
    executor: dict[str, ResourceAmount] = {}
    task: dict[str, ResourceAmount] = {}


# A new kind gets its handler in `assemble`; the seed method's log passes over kinds that it has no use for.
KINDS: dict[str, type[Struct]] = {
    "SparkListenerLogStart": LogStart,
    "DBCEventLoggingListenerMetadata": PartStart,
    "SparkListenerApplicationStart": ApplicationStart,
    "SparkListenerApplicationEnd": ApplicationEnd,
    "SparkListenerEnvironmentUpdate": Environment,
    "SparkListenerExecutorAdded": ExecutorAdded,
    "SparkListenerExecutorRemoved": ExecutorRemoved,
    "SparkListenerResourceProfileAdded": ResourceProfile,
    "SparkListenerJobStart": JobStart,
    "SparkListenerJobEnd": JobEnd,
    SQL + "SparkListenerSQLExecutionStart": SqlStart,
    SQL + "SparkListenerSQLExecutionEnd": SqlEnd,
    SQL + "SparkListenerSQLAdaptiveExecutionUpdate": SqlUpdate,
    SQL + "SparkListenerSQLAdaptiveSQLMetricUpdates": SqlMetrics,
    SQL + "SparkListenerDriverAccumUpdates": DriverUpdates,
}

DECODERS: dict[bytes, msgspec.json.Decoder[Any]] = {
    name.encode(): msgspec.json.Decoder(kind, strict=False) for name, kind in KINDS.items()
}
TASK_END = msgspec.json.Decoder(TaskEnd, strict=False)
ANY_TASK_END = msgspec.json.Decoder(AnyTaskEnd, strict=False)
NAMED_TASK_END = msgspec.json.Decoder(NamedTaskEnd, strict=False)
FAILED_TASK_END = msgspec.json.Decoder(FailedTaskEnd, strict=False)
STAGE_SUBMITTED = msgspec.json.Decoder(StageSubmittedEvent, strict=False)
STAGE_COMPLETED = msgspec.json.Decoder(StageCompletedEvent, strict=False)
