"""Compares the answer with the slope-based calculator and a simulated service's true need."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench.sizing.compat_nat import calculation
from workbench.sizing.config import Goal
from workbench.sizing.estimation import metrics
from workbench.sizing.load.agent_tasks import AgentTask
from workbench.sizing.simulation.cluster_model import Marks, Service
from workbench.sizing.simulation.virtual_time import VirtualDriver
from workbench.sizing.tables import COMPARISON

if TYPE_CHECKING:
    from workbench.sizing.estimation.sizing_answer import SizingAnswer

REQUESTS_PER_RUN = 1500
# Seeds far from those of sweeps: the truth must not see the same random numbers.
FIRST_SEED = 10_000
PASSES_PER_LEVEL = 2
OURS_LABEL = "this workbench"
SAME_POINTS_LABEL = "line, same points"
TOOLKIT_RUNS_LABEL = "line, toolkit's runs"
TRUE_NEED_LABEL = "true need"


@dataclass(frozen=True)
class TrueRequirement:
    """The least count that meets all goals; null when none of those tried does."""

    gpus: int | None
    tried: dict[int, bool]
    runs: int


def find_required_gpus(
    service: Service,
    goals: Sequence[Goal],
    users: int,
    start_gpus: int,
    *,
    runs: int = 3,
    requests: int = REQUESTS_PER_RUN,
    turns: int = 1,
    think_s: float = 0.0,
    tasks: Sequence[AgentTask] = (),
    tool_factor: float = 1.0,
) -> TrueRequirement:
    """How many GPUs does this number of users really need?

    `start_gpus`: The count that is tried first; from there down while the goals are met, else up to twice as many.
    `runs`, `requests`: Independent runs of each count; requests that count in each, first sessions of all users and
    half as many more left out before.
    `turns`, `think_s`: Turns of a user's session, and mean think time after each. `tasks`, `tool_factor`: What users do
    if they are agents.

    With few runs a count at the very edge may come out one too large or too small.
    """
    tried: dict[int, bool] = {}

    def meets_goals(gpus: int) -> bool:
        quantiles: dict[Goal, list[float]] = {goal: [] for goal in goals}
        served = service.model_copy(update={"gpus": gpus})
        for run in range(runs):
            marks, seed = _choose_marks(goals), FIRST_SEED + run
            drive = VirtualDriver(served, seed=seed, marks=marks, tasks=tasks, tool_factor=tool_factor)
            columns = _run_long(drive, users, requests, goals, turns, think_s)
            for goal in goals:
                quantiles[goal].append(float(np.nanquantile(metrics.metric_values(columns, goal.metric), goal.q)))
        tried[gpus] = all(statistics.fmean(values) <= goal.limit_s for goal, values in quantiles.items())
        return tried[gpus]

    count, max_count = max(1, start_gpus), 2 * max(1, start_gpus)
    if meets_goals(count):
        while count > 1 and meets_goals(count - 1):
            count -= 1
        return TrueRequirement(count, tried, runs)
    while count < max_count:
        count += 1
        if meets_goals(count):
            return TrueRequirement(count, tried, runs)
    return TrueRequirement(None, tried, runs)


def _run_long(
    drive: VirtualDriver, users: int, requests: int, goals: Sequence[Goal], turns: int, think_s: float
) -> dict[str, list[object]]:
    """Simulate `users` in a closed loop.

    Returns columns of the requests after warm-up, one and a half sessions for each user.
    """
    warm = users * turns + users * turns // 2
    drive.run_closed_loop(
        users,
        lambda ended: "enough" if len(ended["runtime_s"]) >= requests + warm else None,
        max_requests=10**9,
        think_s=think_s,
        turns=turns,
    )
    columns = drive.request_columns(("request", "tail", *metrics.list_columns(goal.metric for goal in goals)))
    keep = [place >= warm and not tail for place, tail in zip(columns["request"], columns["tail"], strict=True)]
    return {
        name: [value for value, is_counted in zip(values, keep, strict=True) if is_counted]
        for name, values in columns.items()
    }


def _choose_marks(goals: Sequence[Goal]) -> Marks:
    return "first" if metrics.needs_first_token(goal.metric for goal in goals) else "end"


def estimate_like_toolkit(
    service: Service, goal: Goal, users: float, levels: Sequence[float], *, seed: int = 0
) -> float | None:
    """GPUs by the slope-based calculator on levels that are measured as the toolkit does: two passes in one burst.

    `levels`: Concurrencies; each runs twice as many requests, the first ones all at once, none left out.
    """
    loads = sorted({int(level) for level in levels})
    values = [_measure_burst_quantile(service, goal, load, seed + load) for load in loads]
    line = calculation.fit_line(loads, values).line if len(loads) >= calculation.MIN_POINTS else None
    if line is None:
        return None
    return calculation.gpus_by_slope(line, target_s=goal.limit_s, users=users, test_gpus=service.gpus).gpus


def _measure_burst_quantile(service: Service, goal: Goal, concurrency: int, seed: int) -> float:
    """Quantile of the latency when `users` requests start at once and each is followed by the next, in two passes."""
    drive = VirtualDriver(service, seed=seed, marks=_choose_marks([goal]))

    def send(_: object = None) -> None:
        if len(drive.sent) < PASSES_PER_LEVEL * concurrency:
            drive.sent.append(drive.cluster.start_workflow(send))

    for _ in range(concurrency):
        send()
    drive.cluster.run_while(lambda: any(flow.ended_s is None for flow in drive.sent))
    columns = drive.request_columns(metrics.list_columns([goal.metric]))
    return float(np.nanquantile(metrics.metric_values(columns, goal.metric), goal.q))


def compare_methods(
    answer: SizingAnswer, *, burst_gpus: float | None = None, truth: TrueRequirement | None = None
) -> pl.DataFrame:
    """How far off is the answer of each method?

    `burst_gpus`: What the slope-based calculator says when it measures itself; a row of it only beside a truth.
    """
    row = answer.binding or (answer.estimates.row(0, named=True) if answer.estimates.height else {})
    points = f"{row.get('n_levels', 0)} levels, {row.get('n_samples', 0):,} samples"
    ends = {"gpus_low": row.get("gpus_low"), "gpus_high": row.get("gpus_high")}
    rows: list[dict[str, Any]] = [
        {"answer": OURS_LABEL, "gpus": row.get("gpus"), **ends, "deployed": answer.recommended, "basis": points},
        _build_method_row(SAME_POINTS_LABEL, row.get("slope_gpus"), points),
    ]
    if truth is not None:
        rows.append(_build_method_row(TOOLKIT_RUNS_LABEL, burst_gpus, "two passes a level, a burst"))
        runs = f"{len(truth.tried)} counts tried, {truth.runs} runs each"
        rows.append(_build_method_row(TRUE_NEED_LABEL, None if truth.gpus is None else float(truth.gpus), runs))
    need = truth.gpus if truth is not None else None
    for entry in rows:
        is_comparable = need is not None and entry["deployed"] is not None
        entry["off"] = entry["deployed"] - need if is_comparable and need is not None else None
    return COMPARISON.frame(rows)


def _build_method_row(name: str, gpus: float | None, basis: str) -> dict[str, Any]:
    deployed = None if gpus is None else math.ceil(gpus - 1e-9)
    return {"answer": name, "gpus": gpus, "gpus_low": None, "gpus_high": None, "deployed": deployed, "basis": basis}
