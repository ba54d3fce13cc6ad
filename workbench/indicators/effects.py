"""How stacks differ from the baseline, within rounds, and whether that may be believed.

Machines drift: the same stack is 14 % slower an hour later. Within a round all arms are run next to each other, in
random order, so what is common to the round cancels. Nothing else is ever compared: no sums over sessions, no other
machine, thread count or version of an indicator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.indicators.archive import Arm, PlannedMetric, Session
from workbench.indicators.drift import drift
from workbench.indicators.observations import Observed
from workbench.indicators.tables import EFFECTS, JUDGEMENTS
from workbench.stats import Interval, decide_beyond, p_beyond, paired_log_ratio, pairs_needed

if TYPE_CHECKING:
    import polars as pl

FEWEST_ROUNDS = 5
Series = Mapping[tuple[str, str], Mapping[int, float]]


@dataclass(frozen=True)
class Compared:
    """A session with what follows from it: `effects`, `drift`, `judgement` (one row)."""

    observed: Observed
    effects: pl.DataFrame
    drift: pl.DataFrame
    judgement: pl.DataFrame

    @property
    def valid(self) -> bool:
        """May anything be concluded?"""
        return self.judgement["verdict"].to_list() == ["valid"]

    @property
    def wrong(self) -> set[tuple[str, str]]:
        """(arm, metric) of which a check did not pass: the script's own, or one held against the baseline."""
        problems, session = _problems(self.observed), self.observed.session
        metrics = {case.label: [metric.name for metric in case.metrics] for case in session.cases}
        return {(arm, metric) for (arm, case), told in problems.items() if told for metric in metrics[case]}


@dataclass(frozen=True)
class _Row:
    """A metric of an arm, beside the baseline."""

    case: str
    metric: PlannedMetric
    arm: Arm
    interval: Interval
    logs: tuple[float, ...]
    failed: int
    problems: tuple[str, ...]


def compared(found: Observed) -> Compared:
    """Effects, drift and the judgement of a session."""
    table, changes = effects(found), drift(found)
    return Compared(found, table, changes, judgement(found, table, changes))


def effects(found: Observed, *, rounds: int | None = None) -> pl.DataFrame:
    """How many times better than the baseline is each stack, by each metric?

    The mean log ratio of the rounds in which both have a value, with its t interval. FASTER and SLOWER: the whole
    interval lies beyond the metric's margin, still so by Holm over all stacks and metrics; SAME: it lies within;
    else UNDECIDED, with the rounds that would likely decide it. Levels share `alpha` among the looks that were
    planned, so stopping at the first look that decides does not add false claims.

    Parameters
    ----------
    found
        A session's tables.
    rounds
        Only the first so many.

    Returns
    -------
    DataFrame
        EFFECTS: one row per arm (all but the baseline) and metric, the control's among them, which are a family of
        their own. `ratio`, `low`, `high` are null without enough rounds in which both have a value.

    Notes
    -----
    Does not show what a stack does on another machine, with other threads, sizes or versions of the indicator.
    Source: the paired t interval on logarithms; Holm (1979); alpha split evenly over looks (Bonferroni).
    """
    session = found.session
    level = session.level
    rows = list(_rows(found, level, rounds))
    table: list[dict[str, Any]] = []
    for of_control in (False, True):
        family = [row for row in rows if bool(row.arm.copy_number) == of_control]
        decisions = decide_beyond([row.interval for row in family], [row.metric.tolerance for row in family])
        for row, decision in zip(family, decisions, strict=True):
            needed = (
                pairs_needed(row.interval, row.metric.tolerance, len(family))
                if decision.verdict == "UNDECIDED"
                else None
            )
            judged = {"verdict": decision.verdict, "adjusted_p_value": decision.adjusted_p_value}
            table.append({**_cells(session, row), **judged, "rounds_needed": needed})
    return EFFECTS.frame(table)


def decided(table: pl.DataFrame) -> bool:
    """Is there nothing left that more rounds could decide? The control is no question."""
    import polars as pl

    open_ = table.filter(~pl.col("control") & (pl.col("verdict") == "UNDECIDED") & pl.col("ratio").is_not_null())
    return open_.height == 0


def judgement(found: Observed, table: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """May anything be concluded from this session?

    Invalid: without a control, with one that is told apart from the baseline it duplicates or has fewer than five
    rounds beside it, measured in blocks, on several machines, or with several thread counts or versions of an
    indicator. What else should be borne in mind stands among the reasons.
    """
    import polars as pl

    session, runs = found.session, found.runs
    reasons = _invalid(session, table, runs)
    verdict = "invalid" if reasons else "valid"
    changed = changes.filter(pl.col("changed"))
    for row in changed.iter_rows(named=True):
        told = f"{row['factor']:.2f} times the value from round {row['change_at']} on"
        reasons.append(f"the machine changed: {row['metric']} of the baseline has {told}")
    failed = runs.filter(pl.col("status") != "ok")
    for (arm, case, status), count in sorted(Counter(failed.select("arm", "case", "status").iter_rows()).items()):
        reasons.append(f"{arm}, {case}: {count} run(s) without values: {status}")
    if open_ := runs.filter(pl.col("network") != "isolated").height:
        reasons.append(f"network not isolated in {open_} of {runs.height} run(s)")
    done = int(runs["round"].n_unique())
    row = {"rounds": done, "runs": runs.height, "failed": failed.height, "hosts_changed": changed.height > 0}
    return JUDGEMENTS.frame([{"session_id": session.session_id, "verdict": verdict, "reasons": reasons, **row}])


def _invalid(session: Session, table: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    reasons = []
    if session.design != "rounds":
        reasons.append("measured in blocks, one stack after the other: the machine's drift cannot be told from them")
    if any(arm.copy_number for arm in session.arms):
        reasons += _of_control(table)
    else:
        reasons.append("no control: nobody knows how different two copies of one stack look here")
    return reasons + _mixed(runs)


def _of_control(table: pl.DataFrame) -> list[str]:
    """Why the control does not vouch for the figures; by metrics that anything is said about."""
    import polars as pl

    reasons = []
    others = table.filter(~pl.col("control"))
    # Of one stack alone nothing is claimed, but its values are measured as in any session.
    told = set(others.filter(pl.col("n") > 0)["metric"]) if others.height else set(table["metric"])
    for row in table.filter(pl.col("control")).iter_rows(named=True):
        if row["verdict"] in ("FASTER", "SLOWER"):
            figures = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            what = "the control is told apart from the baseline that it duplicates"
            reasons.append(f"{what}: {row['metric']} {figures}")
        elif row["metric"] in told and (row["n"] < FEWEST_ROUNDS or row["low"] is None):
            reasons.append(f"{row['metric']}: {row['n']} round(s) of the control, at least {FEWEST_ROUNDS} are needed")
    if not told:
        reasons.append("nothing was measured on two stacks in one round")
    return reasons


def _mixed(runs: pl.DataFrame) -> list[str]:
    """Why figures of one session may still not be compared with each other."""
    import polars as pl

    told = []
    for column, what in (("hardware_key", "machines"), ("threads", "thread counts")):
        if (found := runs[column].unique().sort().to_list())[1:]:
            told.append(f"measured with several {what}: {', '.join(map(str, found))}")
    versions = runs.group_by("case").agg(pl.col("indicator_version").unique().sort()).sort("case")
    for case, found in versions.iter_rows():
        if found[1:]:
            told.append(f"{case} was measured with several versions of its indicator: {', '.join(found)}")
    return told


def _rows(found: Observed, level: float, rounds: int | None) -> Any:
    session, series, problems = found.session, _series(found, rounds), _problems(found)
    tried = Counter(
        (arm, case)
        for arm, case, number in found.runs.select("arm", "case", "round").iter_rows()
        if rounds is None or number < rounds
    )
    for case in session.cases:
        for metric in case.metrics:
            base = series.get((session.baseline, metric.name), {})
            for arm in session.arms:
                if arm.name == session.baseline or arm.name in case.skipped:
                    continue
                own = series.get((arm.name, metric.name), {})
                both = sorted(base.keys() & own.keys())
                interval = _interval(metric, [base[n] for n in both], [own[n] for n in both], level)
                sign = 1 if metric.better == "lower" else -1
                logs = tuple(sign * (math.log(base[n]) - math.log(own[n])) for n in both)
                failed = tried[arm.name, case.label] - len(own)
                yield _Row(case.label, metric, arm, interval, logs, failed, problems.get((arm.name, case.label), ()))


def _series(found: Observed, rounds: int | None) -> Series:
    """By arm and metric: the value of each round. Zero and below have no logarithm: such a value is none."""
    series: dict[tuple[str, str], dict[int, float]] = {}
    for arm, metric, number, value in found.values.select("arm", "metric", "round", "value").iter_rows():
        if value > 0 and (rounds is None or number < rounds):
            series.setdefault((arm, metric), {})[number] = value
    return series


def _interval(metric: PlannedMetric, base: list[float], own: list[float], level: float) -> Interval:
    if metric.better == "higher":
        base, own = own, base
    return paired_log_ratio(base, own, level=level)


def _problems(found: Observed) -> dict[tuple[str, str], tuple[str, ...]]:
    """By arm and case: the checks that did not pass, in words; its own ones and those held against the baseline."""
    problems: dict[tuple[str, str], list[str]] = {}
    for arm, case, sentences in found.runs.select("arm", "case", "failed_checks").iter_rows():
        problems.setdefault((arm, case), []).extend(sentences or [])
    expected: dict[tuple[str, str], set[str | None]] = {}
    compared_checks = found.checks.filter(found.checks["compared"]).select("arm", "case", "field", "value")
    for arm, case, field, value in compared_checks.iter_rows():
        if arm == found.session.baseline:
            expected.setdefault((case, field), set()).add(value)
    for arm, case, field, value in compared_checks.iter_rows():
        if value not in expected.get((case, field), {value}):
            problems.setdefault((arm, case), []).append(f"{field} differs from the baseline's")
    return {key: tuple(dict.fromkeys(sentences)) for key, sentences in problems.items()}


def _cells(session: Session, row: _Row) -> dict[str, Any]:
    interval = row.interval
    reason = "; ".join(row.problems)[:1000] or (interval.reason if interval.low is None else None)
    return {
        "session_id": session.session_id,
        "metric": row.metric.name,
        "arm": row.arm.name,
        "stack": row.arm.stack,
        "baseline": session.baseline,
        "control": bool(row.arm.copy_number),
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "level": interval.level,
        "median_ratio": math.exp(float(np.median(row.logs))) if row.logs else None,
        "n": interval.n,
        "failed": row.failed,
        "spread": float(np.std(row.logs, ddof=1)) if len(row.logs) > 1 else None,
        "margin": row.metric.tolerance,
        "p_value": p_beyond(interval, row.metric.tolerance),
        "passed": not row.problems,
        "reason": reason,
    }
