"""What steps gave, as the tables `requests` and `steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.sizing.driving.step import Held, runtime_s, ttft_s
from workbench.sizing.tables import REQUESTS, STEPS

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.config import SweepConfig


def requests_frame(held: Held) -> pl.DataFrame:
    """Table `requests` of one step, numbered in the order of intended times."""
    rows = held.requests
    columns: dict[str, list[Any]] = {
        "step": [held.load.step] * len(rows),
        "request": list(range(len(rows))),
        "item": [row.item for row in rows],
        "intended_s": [row.intended_s for row in rows],
        "sent_s": [row.sent_s for row in rows],
        "ended_s": [row.ended_s for row in rows],
        "outcome": [row.outcome for row in rows],
        "status": [row.status for row in rows],
        "retries": [row.retries for row in rows],
        "runtime_s": [runtime_s(row) for row in rows],
        "ttft_s": [ttft_s(row) for row in rows],
        "itl_s": [row.itl_s for row in rows],
        "llm_s": [row.llm_s for row in rows],
        "server_runtime_s": [row.server_runtime_s for row in rows],
        "input_tokens": [row.input_tokens for row in rows],
        "output_tokens": [row.output_tokens for row in rows],
        "tail": [row.tail for row in rows],
    }
    return REQUESTS.frame(columns)


def step_frame(held: Held, config: SweepConfig) -> pl.DataFrame:
    """Table `steps` of one step."""
    load = held.load
    closed = load.loop == "closed"
    row = {
        "step": load.step,
        "loop": load.loop,
        "users": load.users if closed else None,
        "rate_per_s": None if closed else load.rate_per_s,
        "think_s": load.think_s,
        "arrivals": load.arrivals,
        "gpus": config.gpus,
        "clock": "real",
        "simulated": config.simulated or held.simulated,
        "started_at": held.started_at,
        "duration_s": held.duration_s,
        "timeout_s": config.timeout_s,
        "processes": max(1, config.processes),
        "loop_lag_p99_s": held.loop_lag_p99_s,
        "client_cpu_share": held.client_cpu_share,
        "stopped": held.stopped,
    }
    return STEPS.frame([row])
