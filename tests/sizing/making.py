"""Raw tables made by hand, for tests of what follows from them."""

from __future__ import annotations

from typing import Any

import polars as pl

from workbench.core.tables import Table
from workbench.sizing.tables import REQUESTS, STEPS


def row_of(table: Table, **given: Any) -> dict[str, Any]:
    """A row with these values; the others are null, or some value where they may not be."""
    some = {"int": 1, "float": 1.0, "str": "held", "bool": True}
    return {column.name: None if column.nullable else some[column.dtype] for column in table.columns} | given


QUIET = {"loop": "closed", "users": 1, "think_s": 0.0, "arrivals": "users", "clock": "real", "simulated": False}
CLIENT = {"timeout_s": 30.0, "loop_lag_p99_s": 0.0001, "client_cpu_share": 0.1, "stopped": "tight"}
STEP = row_of(STEPS, **QUIET, **CLIENT)
DONE = {"intended_s": 0.0, "sent_s": 0.0, "outcome": "ok", "status": 200, "retries": 0, "runtime_s": 1.0, "tail": False}
REQUEST = row_of(REQUESTS, **DONE)


def steps(*rows: dict[str, Any]) -> pl.DataFrame:
    """The table `steps`; what a row does not say is a quiet closed loop."""
    return STEPS.frame([STEP | {"step": place} | row for place, row in enumerate(rows)])


def requests(rows: list[dict[str, Any]], step: int = 0) -> pl.DataFrame:
    """The table `requests`; what a row does not say is a success of one second."""
    return REQUESTS.frame(
        [REQUEST | {"step": step, "request": place, "item": place} | row for place, row in enumerate(rows)]
    )


def closed(users: int, runtimes: list[float], *, server: float | None = None, step: int = 0) -> pl.DataFrame:
    """So many users, each sending its next request when the last one ended; the server's clock sees a share."""
    free = [0.0] * users
    rows = []
    for runtime in runtimes:
        user = free.index(min(free))
        begin = free[user]
        free[user] = begin + runtime
        shown = None if server is None else server * runtime
        times = {"intended_s": begin, "sent_s": begin, "ended_s": free[user]}
        rows.append(times | {"runtime_s": runtime, "server_runtime_s": shown})
    return requests(rows, step)
