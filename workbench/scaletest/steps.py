"""Steps: from one milestone to another, each by every clock that has both ends; and how they are spread.

A workload that began a step and never ended it counts as infinitely slow, so that a scheduler does not look fast by
losing work. One whose begin is not known is not counted: neither one that has none, nor one whose begin was found
after a watch had been away, which would make the step too short. An end that was found then is an upper bound, and
counted as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench import quantiles
from workbench.scaletest.result_tables import QUANTILES, STEPS

LEVEL = 0.95
SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Step:
    """A step's name, its ends among `milestones.ORDER`, and who is at work meanwhile.

    `expected`: every workload that begins it should end it, so one that does not is infinitely slow. Evictions and
    volumes are not expected: only those that happened are counted.
    """

    name: str
    begin: str
    end: str
    who: str
    expected: bool = True


# Ours. Those `expected` count a missing end as infinitely slow.
STEPS_OF_A_WORKLOAD = (
    Step("lateness", "due", "sent", "the submitter"),
    Step("admission", "sent", "acked", "the API server"),
    Step("job creation", "created", "job", "the workload's controller", expected=False),
    Step("first pod", "created", "first pod", "the job's controller"),
    Step("last pod", "first pod", "last pod", "the job's controller"),
    Step("podgroup", "first pod", "podgroup", "the pod grouper", expected=False),
    Step("decision", "first pod", "decided", "the scheduler"),
    Step("first binding", "first pod", "first scheduled", "the scheduler"),
    Step("scheduling", "last pod", "all scheduled", "the scheduler"),
    Step("gang completion", "first scheduled", "all scheduled", "the scheduler"),
    Step("start", "all scheduled", "all running", "the kubelet (simulated on simulated nodes)"),
    Step("eviction", "podgroup", "evicted", "the scheduler", expected=False),
    Step("volume request", "podgroup", "pvc requested", "the scheduler", expected=False),
    Step("volume", "pvc requested", "pvc bound", "the provisioner", expected=False),
    Step("backend", "podgroup", "backend", "the backend", expected=False),
    Step("due to scheduled", "due", "all scheduled", "all of it"),
    Step("due to running", "due", "all running", "all of it"),
)
# The old tool's total, for its runs alone: "unschedulable" ends it, too.
OF_IMPORTED = Step("sent to decided", "sent", "decided", "all of it", expected=False)
_CLOCKS = (("client", "client_s", "client_s"), ("server", "server_s", "server_s"), ("mixed", "client_s", "server_s"))
NAMES = tuple(step.name for step in (*STEPS_OF_A_WORKLOAD, OF_IMPORTED))


def steps(milestones: pl.DataFrame, submissions: pl.DataFrame, *, imported: bool = False) -> pl.DataFrame:
    """Every step of every workload, by each clock that has both ends.

    Parameters
    ----------
    milestones, submissions
        Tables MILESTONES and SUBMISSIONS.
    imported
        Milestones that are not there are not known, instead of never reached.

    Returns
    -------
    DataFrame
        Table STEPS. Clock `mixed` (begin by ours, end by the cluster's) is given only where neither of the others is:
        it is off by the clocks' distance, which table `skew` bounds. The resolution of a server's duration is the
        larger of its ends'. A step with `expected` has a row with a null duration where its end was not reached; a
        workload that never came to the server has none beyond sending. One whose begin by our clock is an upper bound
        (a watch was away) has none by our clock.
    """
    wide = _wide(milestones)
    accepted = submissions.select("index", pl.col("status").is_in(["created", "known"]).alias("accepted"), "status")
    wide = wide.join(accepted, on="index", how="left")
    asked = (*STEPS_OF_A_WORKLOAD, OF_IMPORTED) if imported else STEPS_OF_A_WORKLOAD
    parts = [part for step in asked for part in _of_step(wide, step)]
    found = pl.concat(parts) if parts else pl.DataFrame(schema=STEPS.schema())
    if imported:
        found = found.filter(pl.col("duration_s").is_not_null())
    order = pl.Enum(NAMES)
    return STEPS.check(
        found.with_columns(pl.col("step").cast(order))
        .sort("index", "step", "clock")
        .with_columns(pl.col("step").cast(pl.String))
    )


def _wide(milestones: pl.DataFrame) -> pl.DataFrame:
    """One row per workload, four columns per milestone."""
    values = ["client_s", "server_s", "resolution_s", "gap"]
    indexes = milestones.select("index").unique(maintain_order=True)
    for name in sorted(set(milestones["milestone"])):
        rows = milestones.filter(pl.col("milestone") == name)
        renamed = rows.select("index", *(pl.col(value).alias(f"{name}|{value}") for value in values))
        indexes = indexes.join(renamed, on="index", how="left")
    return indexes


def _of_step(wide: pl.DataFrame, step: Step) -> list[pl.DataFrame]:
    if f"{step.begin}|client_s" not in wide.columns:
        return []
    wide = _with(wide, step.end)
    # Of a workload that a resumed run found nobody knows when it was accepted.
    counted = pl.col("accepted") & ((pl.col("status") != "known") | pl.lit(step.name != "admission"))
    if step.name in ("lateness", "admission"):
        counted = counted | (pl.col("status") == "failed")
    rows = wide.filter(counted)
    parts: list[pl.DataFrame] = []
    for clock, first, last in _CLOCKS:
        begin, end = pl.col(f"{step.begin}|{first}"), pl.col(f"{step.end}|{last}")
        own = _begun(rows, step, begin, clock)
        if (clock != "mixed" or not parts) and _any(own, end.is_not_null()):
            parts.append(_rows(own, step, clock, begin, end))
    begin = pl.col(f"{step.begin}|client_s")
    begun = _begun(rows, step, begin, "client")
    if not parts and step.expected and begun.height:
        # Nobody got there: that is an answer, too.
        parts.append(_rows(begun, step, "client", begin, pl.lit(None, dtype=pl.Float64)))
    return parts


def _begun(rows: pl.DataFrame, step: Step, begin: pl.Expr, clock: str) -> pl.DataFrame:
    """Those that began, of which this clock knows when."""
    late = pl.col(f"{step.begin}|gap").fill_null(value=False) & pl.lit(clock != "server")
    return rows.filter(begin.is_not_null() & ~late)


def _with(wide: pl.DataFrame, milestone: str) -> pl.DataFrame:
    if f"{milestone}|client_s" in wide.columns:
        return wide
    none = pl.lit(None, dtype=pl.Float64)
    names = [f"{milestone}|{value}" for value in ("client_s", "server_s", "resolution_s")]
    return wide.with_columns(*(none.alias(name) for name in names), pl.lit(False).alias(f"{milestone}|gap"))


def _any(rows: pl.DataFrame, condition: pl.Expr) -> bool:
    return bool(rows.select(condition.any()).item()) if rows.height else False


def _rows(rows: pl.DataFrame, step: Step, clock: str, begin: pl.Expr, end: pl.Expr) -> pl.DataFrame:
    gap = pl.col(f"{step.end}|gap").fill_null(value=False) & pl.lit(clock == "client")
    ends = [f"{name}|resolution_s" for name in (step.begin, step.end)]
    resolution = pl.lit(0.0) if clock == "client" else pl.max_horizontal(ends).fill_null(0.0)
    found = rows.select(
        "index",
        pl.lit(step.name).alias("step"),
        pl.lit(clock).alias("clock"),
        begin.alias("begin_s"),
        (end - begin).alias("duration_s"),
        resolution.alias("resolution_s"),
        gap.alias("gap"),
    )
    return found if step.expected else found.filter(pl.col("duration_s").is_not_null())


def step_quantiles(steps: pl.DataFrame) -> pl.DataFrame:
    """How long does each step take: p50, p90, p95 and p99, with 95 % intervals within this run.

    Parameters
    ----------
    steps
        Table STEPS.

    Returns
    -------
    DataFrame
        Table QUANTILES. A workload that never ended the step is infinitely slow. Workloads that follow one another
        resemble each other (they wait in the same queue): the interval counts only as many as are independent.

    Notes
    -----
    Does not show how another run would differ; for that repeat the run (`compare`). Source: see `workbench.quantiles`.
    """
    found = []
    for (step, clock), rows in steps.group_by(["step", "clock"], maintain_order=True):
        ordered = rows.sort("begin_s", "index")
        durations = ordered["duration_s"]
        values = np.where(durations.is_null().to_numpy(), np.inf, durations.fill_null(0.0).to_numpy())
        ended = durations.drop_nulls()
        common = {
            "step": step,
            "clock": clock,
            "level": LEVEL,
            "n": rows.height,
            "missing": rows.height - len(ended),
            "gaps": int(ordered["gap"].sum()),
            "mean_s": ended.mean() if len(ended) else None,
            "longest_s": ended.max() if len(ended) else None,
            "resolution_s": ordered["resolution_s"].max(),
        }
        for share in SHARES:
            one = quantiles.quantile(values[:, None], share, level=LEVEL)
            ends = {"value_s": one.value, "low_s": one.low, "high_s": one.high}
            found.append(common | {"quantile": share} | {name: _finite(value) for name, value in ends.items()})
    order = pl.Enum(NAMES)
    frame = QUANTILES.frame(found).with_columns(pl.col("step").cast(order)).sort("step", "clock", "quantile")
    return QUANTILES.check(frame.with_columns(pl.col("step").cast(pl.String)))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
