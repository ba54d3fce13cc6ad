"""SYNTHETIC recordings whose true factors are known: for tests of the estimators only, never shown as a result.

Settings were fixed before any estimate was looked at. A query has work for some operators; an operator's time is work
times price, with 10 % noise in every run and 1 % in every session. Where codegen would fuse operators the baseline
tells one time for all of them; the candidate tells each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from workbench.speedup.attribution.time_pieces import EXECUTIONS, PIECES, Measured

BASELINE, CANDIDATE = "plain", "fast"
# Seconds per million rows on the baseline.
PRICES: Mapping[str, float] = {
    "Scan parquet": 0.05,
    "Filter": 0.05,
    "Project": 0.02,
    "HashAggregate": 0.09,
    "BroadcastHashJoin": 0.04,
    "SortMergeJoin": 0.08,
    "Sort": 0.06,
    "Exchange": 0.05,
}
FACTORS: Mapping[str, float] = {
    "Scan parquet": 1.4,
    "Filter": 3.0,
    "Project": 2.5,
    "HashAggregate": 5.0,
    "BroadcastHashJoin": 2.0,
    "SortMergeJoin": 0.6,
    "Sort": 1.2,
    "Exchange": 2.2,
    "idle": 1.0,
    "task overhead": 1.0,
}
# What tells its own time on the baseline; the others share one time per stage.
OWN = frozenset({"Scan parquet", "Sort"})
STAGES = (
    ("Scan parquet", "Filter", "Project", "Exchange"),
    ("Sort", "SortMergeJoin", "HashAggregate", "Exchange"),
    ("Scan parquet", "BroadcastHashJoin", "Project", "HashAggregate"),
)
RARE = "Expand"


@dataclass(frozen=True)
class Design:
    """What is planted. `rare_share` adds an operator to one query, with that share of the query's time."""

    factors: Mapping[str, float] = field(default_factory=lambda: dict(FACTORS))
    n_queries: int = 22
    n_sessions: int = 5
    n_passes: int = 2
    run_noise: float = 0.10
    session_noise: float = 0.01
    rare_share: float = 0.0
    rare_factor: float = 4.0


RICH = Design()
POOR = Design(rare_share=0.008)
SAME = Design(factors=dict.fromkeys([*FACTORS, RARE], 1.0))


def planted(design: Design, seed: int) -> Measured:
    """Both sides of one synthetic recording: the work is the same for every seed, the noise is not."""
    plans = _plans(design)
    rng = np.random.default_rng(seed)
    executions: list[dict[str, object]] = []
    pieces: list[dict[str, object]] = []
    for label in (BASELINE, CANDIDATE):
        for session in range(design.n_sessions):
            slow = float(np.exp(rng.normal(0, design.session_noise)))
            for query, plan in enumerate(plans):
                for run in range(design.n_passes):
                    key = {"label": label, "session": f"{label}-{session}", "sql_id": query * design.n_passes + run}
                    cut = _run(design, plan, label, slow, rng)
                    pieces += [key | {"piece": i} | piece for i, piece in enumerate(cut)]
                    executions.append(key | _execution(query, run + 1, sum(float(p["wall_s"]) for p in cut)))
    # By columns: polars takes rows with lists in them one list at a time, which was half of a test's time.
    return Measured(EXECUTIONS.frame(_columns(executions)), PIECES.frame(_columns(pieces)))


def _columns(rows: list[dict[str, object]]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def truth(design: Design) -> dict[str, float]:
    """Planted factor by operator."""
    rare = {RARE: design.rare_factor} if design.rare_share else {}
    return dict(design.factors) | rare


Plan = list[tuple[tuple[str, float], ...]]


def _plans(design: Design) -> list[Plan]:
    """The work of each query by stage: fixed, so that seeds differ in noise alone."""
    rng = np.random.default_rng(20261121)
    plans: list[Plan] = []
    for query in range(design.n_queries):
        stages = [STAGES[i] for i in rng.permutation(3)[: int(rng.integers(2, 4))]]
        plan = [tuple((name, float(np.exp(rng.normal(1.0, 0.7)))) for name in stage) for stage in stages]
        if design.rare_share and query == 0:
            total = sum(PRICES[name] * work for stage in plan for name, work in stage)
            plan.append(((RARE, design.rare_share * total / PRICES["Project"]),))
        plans.append(plan)
    return plans


def _run(design: Design, plan: Plan, label: str, slow: float, rng: np.random.Generator) -> list[dict[str, object]]:
    def took(name: str, seconds: float) -> float:
        factor = truth(design).get(name, 1.0) if label == CANDIDATE else 1.0
        return seconds / factor * slow * float(np.exp(rng.normal(0, design.run_noise)))

    cut = [_term("idle", None, took("idle", 0.08))]
    for number, stage in enumerate(plan):
        times = {name: took(name, PRICES.get(name, PRICES["Project"]) * work) for name, work in stage}
        work_of = dict(stage)
        shared = [name for name in times if name not in OWN and label == BASELINE]
        for name in times:
            if name not in shared:
                cut.append(_piece(number, [name], [work_of[name]], times[name], fast=label == CANDIDATE))
        if shared:
            total = sum(times[name] for name in shared)
            cut.append(_piece(number, shared, [work_of[name] for name in shared], total, fast=False))
        cut.append(_term("task overhead", number, took("task overhead", 0.02)))
    return cut


def _term(term: str, stage: int | None, seconds: float) -> dict[str, object]:
    return {
        "stage_id": stage,
        "term": term,
        "basis": "around the tasks",
        "operators": [],
        "node_ids": [],
        "accelerated": [],
        "opaque": [],
        "work": [],
        "task_s": seconds,
        "wall_s": seconds,
    }


def _piece(stage: int, names: list[str], work: list[float], seconds: float, *, fast: bool) -> dict[str, object]:
    return {
        "stage_id": stage,
        "term": None,
        "basis": "own metric" if len(names) == 1 else "remainder",
        "operators": names,
        "node_ids": list(range(len(names))),
        "accelerated": [fast] * len(names),
        "opaque": [False] * len(names),
        "work": work,
        "task_s": seconds,
        "wall_s": seconds,
    }


def _execution(query: int, number: int, wall_s: float) -> dict[str, object]:
    return {
        "query": f"q{query + 1}",
        "number": number,
        "fingerprint": f"{query:012d}",
        "wall_s": wall_s,
        "task_s": wall_s,
        "n_stages": 3,
        "n_failed_tasks": 0,
        "cold": False,
        "why_not": None,
        "planned_operators": None,
        "planned_counts": None,
        **dict.fromkeys(("description", "plan", "engine", "read_rows", "file_bytes", "expressions", "started")),
    }


def shares(measured: Measured) -> pl.DataFrame:
    """Share of the candidate's time by operator: the design demands 3 % at least for all but the rare one."""
    fast = measured.pieces.filter(pl.col("label") == CANDIDATE)
    name = pl.coalesce(pl.col("term"), pl.col("operators").list.first())
    return fast.group_by(name.alias("operator")).agg(share=pl.col("wall_s").sum() / fast["wall_s"].sum())
