"""An application made by hand, all figures known."""

from __future__ import annotations

from typing import Any

from tests.fakes import eventlogs as made


def tasks(stage_id: int, *durations_ms: int, **more: Any) -> list[dict[str, Any]]:
    return [
        made.task_end(stage_id, 0, number, launch_ms=2000, finish_ms=2000 + duration, **more)
        for number, duration in enumerate(durations_ms)
    ]


def application() -> bytes:
    """8 s, 4 slots. Query 0: stage 0 (tasks of 1, 1, 1, 3 s; 0.5 s each in a codegen span), stage 1 (0.5 s, nothing
    reported); stage 2 outside SQL (1 s). All stages run from second 1 to 5. The driver reports 5 s for a broadcast.
    """
    span = made.plan(
        "WholeStageCodegen (1)", children=[made.plan("Filter")], metrics={10: "duration"}, metric_type="timing"
    )
    broadcast = made.plan("BroadcastExchange", metrics={11: "time to build"}, metric_type="nsTiming")
    tree = made.plan("Project", children=[span, broadcast], metrics={12: "rows"})
    return made.small(
        made.sql_start(0, tree, "first\n  query"),
        made.sql_start(1, made.plan("Range"), ""),
        made.job_start(0, [0, 1], {"spark.sql.execution.id": "0"}),
        made.job_start(1, [2]),
        *[made.stage_submitted(number) for number in range(3)],
        *tasks(0, 1000, 1000, 1000, 3000, updates={10: 500, 12: 9}),
        *tasks(1, 500, updates={12: 1}),
        *tasks(2, 1000),
        *[made.stage_completed(number) for number in range(3)],
        made.driver_updates(0, (11, 5_000_000_000)),
        made.job_end(0),
        made.job_end(1),
        made.sql_end(0),
        made.sql_end(1, "it failed"),
    )
