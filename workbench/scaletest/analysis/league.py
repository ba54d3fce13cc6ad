"""League table: any number of schedulers on one plan, side by side, with the run as the unit.

Each is held against the first: gangs that were complete, gangs that held GPUs for nothing, GPUs that were stranded, the
queues' shares, waiting times with their verdict.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from workbench import stats
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.variants import (
    CONFIDENCE_LEVEL,
    EQUIVALENCE_MARGIN,
    ONE_RUN_NOTE,
    Variants,
    explain_open_verdict,
)
from workbench.scaletest.tables import LEAGUE
from workbench.stats.verdicts import UNDECIDED

_BASE = "the others are held against it"


def build_league_table(variants: Variants) -> pl.DataFrame:
    """How do the schedulers differ on one plan?

    Returns: Table LEAGUE, one row per variant in the order of the session. Counts are sums over the runs; times are
    medians of the runs' own quantiles, null where a run never reached one; verdicts (FASTER, SLOWER, SAME, UNDECIDED)
    are of the median from due to scheduled against the first variant, in pairs by turn, corrected over all other
    variants (Holm), with how many more runs would tell.

    A gang is deadlocked if it held GPUs at the end and was never complete, while another gang was in the same state:
    one alone may wait for room. Does not show other plans, rates or clusters.
    """
    rows = [_build_row(name, variants.runs[name]) for name in variants.names]
    verdicts = _compare_with_first(variants)
    return LEAGUE.frame([row | verdicts[row["side"]] for row in rows])


def _build_row(name: str, runs: tuple[Analysis, ...]) -> dict[str, Any]:
    gangs = pl.concat([run.gangs.with_columns(run=pl.lit(place)) for place, run in enumerate(runs)])
    partial_gangs = gangs.filter(~pl.col("complete") & (pl.col("running_end") > 0))
    stuck = partial_gangs.filter(pl.len().over("run") > 1)
    return {
        "side": name,
        "runs": len(runs),
        "invalid": sum(bool(run.reasons) for run in runs),
        "gangs": gangs.height,
        "complete": int(gangs["complete"].sum()),
        "deadlocked": stuck.height,
        "held_gpu_s": float(gangs.filter(~pl.col("complete"))["held_gpu_s"].sum()),
        "stranded_gpus": _median_of_all([_mean_stranded(run) for run in runs]),
        "evicted": sum(int(run.pods["evicted"].sum()) for run in runs),
        "p50_s": _median_of_all([run.quantile("due to scheduled", 0.5) for run in runs]),
        "p95_s": _median_of_all([run.quantile("due to scheduled", 0.95) for run in runs]),
        "gang_p50_s": _median_of_all([run.quantile("gang completion", 0.5) for run in runs]),
        "gang_p95_s": _median_of_all([run.quantile("gang completion", 0.95) for run in runs]),
        "queue_p50_s": _median_of_all([run.quantile("queue wait", 0.5) for run in runs]),
        "queue_p95_s": _median_of_all([run.quantile("queue wait", 0.95) for run in runs]),
        "unfairness": _median_of_all([None if run.queues is None else run.queues.unfairness for run in runs]),
        "rate_per_s": _median_of_all([run.sustainable.low_per_s for run in runs]),
    }


def _median_of_all(values: list[float | None]) -> float | None:
    """Of all runs; null where one has none: the rest would be a selection."""
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers and len(numbers) == len(values) else None


def _mean_stranded(run: Analysis) -> float | None:
    waiting = run.gpus.filter(pl.col("waiting") > 0)
    return float(waiting["stranded"].mean()) if waiting.height else None  # type: ignore[arg-type]


def _compare_with_first(variants: Variants) -> dict[str, dict[str, Any]]:
    """Ratio, interval, verdict and reason of each variant's median from due to scheduled."""
    first, *others = variants.names
    nothing: dict[str, Any] = {"ratio": None, "low": None, "high": None, "verdict": None, "reason": _BASE}
    pairs = {name: _list_medians(variants, name) for name in others}
    both_medians = {name: [(a, b) for a, b in values if a and b] for name, values in pairs.items()}
    complete_pairs = {
        name: values for name, values in both_medians.items() if values and len(values) == len(pairs[name])
    }
    intervals = {
        name: stats.paired_log_ratio([a for a, _ in values], [b for _, b in values], level=CONFIDENCE_LEVEL)
        for name, values in complete_pairs.items()
    }
    decisions = stats.decide_beyond(list(intervals.values()), [EQUIVALENCE_MARGIN] * len(intervals))
    verdicts = {first: nothing}
    for name in others:
        if name not in intervals:
            lost = "no turn has a run of both" if not pairs[name] else _explain_lost(pairs[name], first, name)
            verdicts[name] = nothing | {"verdict": UNDECIDED, "reason": lost}
            continue
        interval, decision = intervals[name], decisions[list(intervals).index(name)]
        reason: str | None = None
        if decision.verdict == UNDECIDED:
            many = explain_open_verdict(interval, EQUIVALENCE_MARGIN, len(intervals))
            reason = ONE_RUN_NOTE if interval.low is None else many
        ends = {"ratio": interval.estimate, "low": interval.low, "high": interval.high}
        verdicts[name] = ends | {"verdict": decision.verdict, "reason": reason}
    return verdicts


def _list_medians(variants: Variants, name: str) -> list[tuple[float | None, float | None]]:
    """The medians of the first variant and of this one, by turn."""
    step, clock = variants.total
    pairs = Variants(variants.folder, (variants.names[0], name), variants.runs, variants.turns).pairs
    return [(a.quantile(step, 0.5, clock), b.quantile(step, 0.5, clock)) for a, b in pairs]


def _explain_lost(pairs: list[tuple[float | None, float | None]], first: str, name: str) -> str:
    lost = [(side, sum(pair[place] is None for pair in pairs)) for place, side in enumerate((first, name))]
    counts_text = " and ".join(f"in {count} of {len(pairs)} runs of {side}" for side, count in lost if count)
    return f"more than half of the workloads were never scheduled {counts_text}"


def _list_verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Verdicts with the sides that have them, and what would decide an open one."""
    sides: dict[str, list[str]] = {}
    for row in rows:
        reason = f" ({row['reason']})" if row["verdict"] == UNDECIDED and row["reason"] else ""
        sides.setdefault(f"{row['verdict']}{reason}", []).append(row["side"])
    return [f"{join_names(names)} {verdict}" for verdict, names in sides.items()]


def _list_gang_counts(rows: list[dict[str, Any]]) -> list[str]:
    """Complete gangs with the sides that have as many."""
    sides: dict[str, list[str]] = {}
    for row in rows:
        sides.setdefault(f"{row['complete']} of {row['gangs']}", []).append(row["side"])
    return [f"{count} with {join_names(names)}" for count, names in sides.items()]


def join_names(names: list[str]) -> str:
    """Names as a sentence has them.

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def describe_league(league: pl.DataFrame) -> str:
    """One sentence: complete gangs and deadlocks, or the median waits, and the verdicts against the first."""
    rows = league.to_dicts()
    if league["gangs"].sum():
        stuck = [f"{row['deadlocked']} with {row['side']}" for row in rows if row["deadlocked"]]
        locked = f"; deadlocked: {', '.join(stuck)}" if stuck else "; none was deadlocked"
        gangs = f"Complete gangs: {', '.join(_list_gang_counts(rows))}{locked}. "
    else:
        gangs = ""
    unfair = [f"{100 * row['unfairness']:.3g} % with {row['side']}" for row in rows if row["unfairness"] is not None]
    if unfair:
        gangs += f"While all queues waited, other queues than the quotas say held of the GPUs: {', '.join(unfair)}. "
    verdicts = _list_verdicts([row for row in rows if row["verdict"]])
    return f"{gangs}Median wait against {rows[0]['side']}: {', '.join(verdicts)}." if verdicts else gangs.strip()
