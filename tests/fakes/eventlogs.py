"""Hand-made events of a Spark log, laid out as Spark's JsonProtocol writes them."""

from __future__ import annotations

import json
from typing import Any

SQL = "org.apache.spark.sql.execution.ui."


def dump(*events: dict[str, Any] | bytes) -> bytes:
    """The events as a plain log; bytes are put in as they are."""
    return b"".join(
        (event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()) + b"\n"
        for event in events
    )


def log_start() -> dict[str, Any]:
    return {"Event": "SparkListenerLogStart", "Spark Version": "3.5.9"}


def application_start(user: str = "ann", name: str = "made", time_ms: int = 1000) -> dict[str, Any]:
    return {
        "Event": "SparkListenerApplicationStart",
        "App Name": name,
        "App ID": "app-1",
        "Timestamp": time_ms,
        "User": user,
    }


def application_end(time_ms: int = 9000) -> dict[str, Any]:
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": time_ms}


def environment(properties: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "Event": "SparkListenerEnvironmentUpdate",
        "JVM Information": {"Java Version": "17.0.9 (Eclipse Adoptium)"},
        "Spark Properties": properties or {},
        "System Properties": {},
    }


def executor_added(executor_id: str = "1", host: str = "worker-1", cores: int = 4) -> dict[str, Any]:
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": 1100,
        "Executor ID": executor_id,
        "Executor Info": {"Host": host, "Total Cores": cores, "Resource Profile Id": 0},
    }


def executor_removed(executor_id: str = "1", reason: str = "idle") -> dict[str, Any]:
    return {
        "Event": "SparkListenerExecutorRemoved",
        "Timestamp": 8000,
        "Executor ID": executor_id,
        "Removed Reason": reason,
    }


def job_start(
    job_id: int = 0, stage_ids: list[int] | None = None, properties: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": job_id,
        "Submission Time": 1500,
        "Stage Infos": [],
        "Stage IDs": stage_ids if stage_ids is not None else [0],
        "Properties": properties or {},
    }


def job_end(job_id: int = 0, failure: str | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"Result": "JobSucceeded"}
    if failure is not None:
        result = {"Result": "JobFailed", "Exception": {"Message": failure, "Stack Trace": []}}
    return {"Event": "SparkListenerJobEnd", "Job ID": job_id, "Completion Time": 7000, "Job Result": result}


def _stage_info(stage_id: int, attempt: int, tasks: int, name: str) -> dict[str, Any]:
    return {
        "Stage ID": stage_id,
        "Stage Attempt ID": attempt,
        "Stage Name": name,
        "Number of Tasks": tasks,
        "RDD Info": [],
        "Parent IDs": [],
        "Submission Time": 2000,
        "Accumulables": [],
    }


def stage_submitted(
    stage_id: int = 0,
    attempt: int = 0,
    tasks: int = 1,
    name: str = "count at Main.scala:5",
    properties: dict[str, str] | None = None,
) -> dict[str, Any]:
    info = _stage_info(stage_id, attempt, tasks, name)
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": properties or {}}


def stage_completed(
    stage_id: int = 0,
    attempt: int = 0,
    tasks: int = 1,
    *,
    name: str = "count at Main.scala:5",
    failure: str | None = None,
    values: dict[int, Any] | None = None,
    scopes: tuple[str, ...] = (),
) -> dict[str, Any]:
    info = _stage_info(stage_id, attempt, tasks, name) | {"Completion Time": 6000}
    info["Accumulables"] = [{"ID": key, "Name": f"acc {key}", "Value": value} for key, value in (values or {}).items()]
    info["RDD Info"] = [{"RDD ID": 0, "Scope": json.dumps({"id": "0", "name": scope})} for scope in scopes]
    if failure is not None:
        info["Failure Reason"] = failure
    return {"Event": "SparkListenerStageCompleted", "Stage Info": info}


def task_start(stage_id: int = 0, attempt: int = 0, task_id: int = 0) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskStart",
        "Stage ID": stage_id,
        "Stage Attempt ID": attempt,
        "Task Info": {"Task ID": task_id, "Launch Time": 2100},
    }


def task_end(
    stage_id: int = 0,
    attempt: int = 0,
    task_id: int = 0,
    *,
    updates: dict[int, Any] | None = None,
    launch_ms: int = 2100,
    finish_ms: int = 2200,
    failed: bool = False,
    killed: bool = False,
    speculative: bool = False,
    end: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    executor_id: str = "1",
    name: str = "acc",
) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage_id,
        "Stage Attempt ID": attempt,
        "Task Type": "ResultTask",
        "Task End Reason": end or {"Reason": "Success"},
        "Task Info": {
            "Task ID": task_id,
            "Launch Time": launch_ms,
            "Executor ID": executor_id,
            "Host": "worker-1",
            "Speculative": speculative,
            "Getting Result Time": 0,
            "Finish Time": finish_ms,
            "Failed": failed,
            "Killed": killed,
            "Accumulables": [
                {"ID": key, "Name": f"{name} {key}", "Update": value} for key, value in (updates or {}).items()
            ],
        },
        "Task Metrics": metrics or {"Executor Run Time": finish_ms - launch_ms},
    }


def plan(
    name: str,
    text: str = "",
    children: list[dict[str, Any]] | None = None,
    metrics: dict[int, str] | None = None,
    metadata: dict[str, str] | None = None,
    metric_type: str = "sum",
) -> dict[str, Any]:
    listed = [
        {"name": label, "accumulatorId": key, "metricType": metric_type} for key, label in (metrics or {}).items()
    ]
    return {
        "nodeName": name,
        "simpleString": text or name,
        "children": children or [],
        "metadata": metadata or {},
        "metrics": listed,
    }


def sql_start(
    sql_id: int = 0, tree: dict[str, Any] | None = None, description: str = "count at Main.scala:5"
) -> dict[str, Any]:
    return {
        "Event": SQL + "SparkListenerSQLExecutionStart",
        "executionId": sql_id,
        "rootExecutionId": sql_id,
        "description": description,
        "details": "",
        "physicalPlanDescription": "",
        "sparkPlanInfo": tree or plan("Range"),
        "time": 1400,
        "modifiedConfigs": {},
        "jobTags": [],
    }


def sql_end(sql_id: int = 0, error: str | None = "") -> dict[str, Any]:
    """The end of an execution; an `error` of None is how Spark before 3.4 writes it: without that field."""
    end = {"Event": SQL + "SparkListenerSQLExecutionEnd", "executionId": sql_id, "time": 7100}
    return end if error is None else end | {"errorMessage": error}


def adaptive_update(sql_id: int, tree: dict[str, Any]) -> dict[str, Any]:
    return {
        "Event": SQL + "SparkListenerSQLAdaptiveExecutionUpdate",
        "executionId": sql_id,
        "physicalPlanDescription": "",
        "sparkPlanInfo": tree,
    }


def small(*middle: dict[str, Any] | bytes) -> bytes:
    """A whole application around the given events."""
    return dump(log_start(), executor_added(), environment(), application_start(), *middle, application_end())


def driver_updates(sql_id: int, *updates: tuple[int, int]) -> dict[str, Any]:
    listed = [list(update) for update in updates]
    return {"Event": SQL + "SparkListenerDriverAccumUpdates", "executionId": sql_id, "accumUpdates": listed}


def shift_times(events: list[dict[str, Any]], by_ms: int, *, of: str = "") -> list[dict[str, Any]]:
    """The events with their time stamps moved, all of them or those of one kind."""
    names = {"Timestamp", "time", "Submission Time", "Completion Time", "Launch Time", "Finish Time"}

    def move(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v + by_ms if k in names and isinstance(v, int) else move(v) for k, v in value.items()}
        return [move(item) for item in value] if isinstance(value, list) else value

    return [move(event) if event["Event"].endswith(of) else event for event in events]


def at(time_ms: int, event: dict[str, Any]) -> dict[str, Any]:
    """The event with this time as the one at which the driver wrote it."""
    kind = event["Event"].rpartition(".")[2].removeprefix("SparkListener")
    if kind in ("StageSubmitted", "StageCompleted"):
        name = "Submission Time" if kind == "StageSubmitted" else "Completion Time"
        return event | {"Stage Info": event["Stage Info"] | {name: time_ms}}
    names = {"JobStart": "Submission Time", "JobEnd": "Completion Time"}
    return event | {names.get(kind, "time" if kind.startswith("SQL") else "Timestamp"): time_ms}
