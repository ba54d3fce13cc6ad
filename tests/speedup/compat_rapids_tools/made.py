"""A query on both engines, made by hand: all figures known."""

from __future__ import annotations

from typing import Any

from tests.fakes import eventlogs as fake

PLUGIN = {"spark.plugins": "com.nvidia.spark.SQLPlugin"}
SQL = {"spark.sql.execution.id": "0"}


def plan() -> dict[str, Any]:
    """WholeStageCodegen (1): Project (no metrics), Filter; below it a scan."""
    scan = fake.plan(
        "Scan parquet ", "FileScan parquet [a#1] Format: Parquet, ReadSchema: struct<a:int>", metrics={3: "rows"}
    )
    adapter = fake.plan("InputAdapter", children=[scan])
    work = fake.plan("Filter", "Filter isnotnull(a#1)", [adapter], metrics={2: "rows"})
    project = fake.plan("Project", "Project [a#1]", [work])
    return fake.plan("WholeStageCodegen (1)", children=[project], metrics={1: "duration"}, metric_type="timing")


def gpu_plan() -> dict[str, Any]:
    scan = fake.plan("GpuScan parquet ", "GpuFileScan parquet [a#1]", metrics={3: "rows"})
    return fake.plan("GpuFilter", "GpuFilter isnotnull(a#1)", [scan], metrics={2: "rows"})


def log(
    tree: dict[str, Any],
    *,
    properties: dict[str, str] | None = None,
    name: str = "made",
    end_ms: int = 9000,
    app_id: str = "app-1",
) -> bytes:
    """One query, one job, one stage of 4 s (2000 to 6000), two tasks of 0.1 s that report 1: 2000, 2: 5, 3: 5."""
    start = fake.application_start(name=name) | {"App ID": app_id}
    return fake.dump(
        fake.log_start(),
        fake.environment(properties),
        start,
        fake.sql_start(0, tree),
        fake.job_start(0, [0], SQL),
        fake.stage_submitted(0, tasks=2),
        fake.task_end(0, task_id=0, updates={1: 2000, 2: 5, 3: 5}),
        fake.task_end(0, task_id=1, updates={1: 2000, 2: 5, 3: 5}),
        fake.stage_completed(0, tasks=2, values={1: 4000, 2: 10, 3: 10}),
        fake.job_end(0),
        fake.sql_end(0),
        fake.application_end(end_ms),
    )


def cpu(**more: Any) -> bytes:
    """8 s. Filter and scan share 4000 ms; codegen adds 2 to the filter and to the project."""
    return log(plan(), **more)


def gpu(**more: Any) -> bytes:
    """4 s: twice as fast as a whole, its two operators share 4000 ms."""
    return log(gpu_plan(), properties=PLUGIN, **({"end_ms": 5000} | more))
