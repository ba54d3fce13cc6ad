"""Effects of stacks against the baseline within rounds, drift of the baseline, and whether they are valid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.indicators.analysis.observations import Observations
from workbench.indicators.store.archive import Arm, PlannedMetric, Session
from workbench.indicators.tables import DRIFT, EFFECTS, JUDGEMENTS
from workbench.stats import Interval, adjust_holm, count_required_pairs, decide_beyond, p_beyond, paired_log_ratio
from workbench.stats.verdicts import DIFFERENT, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

DRAWS = 10_000
ALPHA = 0.05
SHORTEST = 2
MIN_DRIFT_ROUNDS = 6
Floats = npt.NDArray[np.float64]


def detect_drift(observations: Observations) -> pl.DataFrame:
    """Find the round at which the baseline's values changed, and by which factor.

    The change is the cut with the largest difference of mean logs before and after, over its standard error. Its p
    value comes from simulated steady noise, adjusted by Holm over the metrics.

    Returns
    -------
    DataFrame
        DRIFT: one row per metric; nulls for fewer than six rounds.

    Notes
    -----
    A slow drift is found too, as a change somewhere in its middle. Ratios within rounds are not biased by it; absolute
    values of the session mean little then. Noise is assumed to be normal on logarithms, since a permutation of ten
    rounds cannot be significant among several metrics. With heavier tails (t with 3 degrees of freedom) a steady
    machine is flagged somewhat more often; the tests have both rates. Source: the likelihood-ratio statistic of a
    single change in the mean.
    """
    session, series = observations.session, _collect_baseline_values(observations)
    names = [metric.name for case in session.cases for metric in case.metrics]
    cuts = [_find_best_cut(series.get(name, {})) for name in names]
    adjusted = adjust_holm([cut["p_value"] for cut in cuts])
    rows = []
    for name, cut, value in zip(names, cuts, adjusted, strict=True):
        changed = value is not None and value <= ALPHA
        identity = {"session_id": session.session_id, "metric": name}
        rows.append({**identity, **cut, "adjusted_p_value": value, "changed": changed})
    return DRIFT.frame(rows)


def _collect_baseline_values(observations: Observations) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for arm, metric, number, value in observations.values.select("arm", "metric", "round", "value").iter_rows():
        if arm == observations.session.baseline and value > 0:
            series.setdefault(metric, {})[number] = value
    return series


def _find_best_cut(values: dict[int, float]) -> dict[str, Any]:
    rounds = sorted(values)
    logs = np.log([values[number] for number in rounds])
    if len(logs) < MIN_DRIFT_ROUNDS:
        return {"n": len(logs), "change_at": None, "factor": None, "p_value": None}
    own = _compute_cut_statistics(logs[None, :])[0]
    place = int(np.argmax(own))
    at = place + SHORTEST
    as_large = int((_simulate_null_statistics(len(logs)) >= own[place]).sum())
    return {
        "n": len(logs),
        "change_at": rounds[at],
        "factor": float(np.exp(logs[at:].mean() - logs[:at].mean())),
        "p_value": (1 + as_large) / (1 + DRAWS),
    }


@lru_cache(maxsize=64)
def _simulate_null_statistics(n: int) -> Floats:
    """Simulate the statistic for steady normal noise of n rounds, `DRAWS` times."""
    return np.asarray(_compute_cut_statistics(np.random.default_rng(n).standard_normal((DRAWS, n))).max(axis=1))


def _compute_cut_statistics(rows: Floats) -> Floats:
    """For each row and cut, the difference of the means in standard errors (with a common variance)."""
    n = rows.shape[1]
    before = np.arange(SHORTEST, n - SHORTEST + 1)
    sums = np.cumsum(rows, axis=1)
    totals = sums[:, -1:]
    low = sums[:, before - 1] / before
    high = (totals - sums[:, before - 1]) / (n - before)
    squares = (rows**2).sum(axis=1, keepdims=True)
    within = squares - before * low**2 - (n - before) * high**2
    errors = np.sqrt(np.maximum(within, 1e-18) / (n - 2) * (1 / before + 1 / (n - before)))
    return np.asarray(np.abs(high - low) / errors)


MIN_ROUNDS = 5
Series = Mapping[tuple[str, str], Mapping[int, float]]


@dataclass(frozen=True)
class Comparison:
    """A session's observations with its `effects`, `drift` and `judgement` (one row)."""

    observed: Observations
    effects: pl.DataFrame
    drift: pl.DataFrame
    judgement: pl.DataFrame

    @property
    def valid(self) -> bool:
        """Whether conclusions may be drawn from the session."""
        return self.judgement["verdict"].to_list() == ["valid"]

    @property
    def wrong(self) -> set[tuple[str, str]]:
        """(arm, metric) pairs with a failed check: one of the script, or a comparison with the baseline's value."""
        problems, session = _list_check_problems(self.observed), self.observed.session
        metrics = {case.label: [metric.name for metric in case.metrics] for case in session.cases}
        return {(arm, metric) for (arm, case), failed in problems.items() if failed for metric in metrics[case]}


@dataclass(frozen=True)
class _EffectRow:
    """A metric of an arm, compared with the baseline."""

    case: str
    metric: PlannedMetric
    arm: Arm
    interval: Interval
    logs: tuple[float, ...]
    failed: int
    problems: tuple[str, ...]


def compare_session(observations: Observations) -> Comparison:
    """Compute effects, drift and the judgement of a session."""
    table, changes = estimate_effects(observations), detect_drift(observations)
    return Comparison(observations, table, changes, build_judgement(observations, table, changes))


def estimate_effects(observations: Observations, *, rounds: int | None = None) -> pl.DataFrame:
    """Estimate how many times better than the baseline each stack is, by each metric.

    The estimate is the mean log ratio over the rounds in which both have a value, with its t interval. FASTER and
    SLOWER: the whole interval lies beyond the metric's margin, also after Holm's correction over all stacks and
    metrics. SAME: it lies within the margin. Otherwise UNDECIDED, with the number of rounds that would likely decide.
    The planned looks share `alpha`, so stopping at the first look that decides adds no false claims.

    Parameters
    ----------
    observations
        A session's tables.
    rounds
        Use only the first so many rounds.

    Returns
    -------
    DataFrame
        EFFECTS: one row per arm (all but the baseline) and metric. Rows of the control are a family of their own.
        `ratio`, `low`, `high` are null without enough rounds in which both have a value.

    Notes
    -----
    Does not apply to other machines, thread counts, sizes or versions of the indicator.
    Source: the paired t interval on logarithms; Holm (1979); alpha split evenly over looks (Bonferroni).
    """
    session = observations.session
    level = session.level
    rows = list(_iterate_effect_rows(observations, level, rounds))
    table: list[dict[str, Any]] = []
    for of_control in (False, True):
        family = [row for row in rows if bool(row.arm.copy_number) == of_control]
        decisions = decide_beyond([row.interval for row in family], [row.metric.tolerance for row in family])
        for row, decision in zip(family, decisions, strict=True):
            needed = (
                count_required_pairs(row.interval, row.metric.tolerance, len(family))
                if decision.verdict == UNDECIDED
                else None
            )
            verdict = {"verdict": decision.verdict, "adjusted_p_value": decision.adjusted_p_value}
            table.append({**_build_effect_cells(session, row), **verdict, "rounds_needed": needed})
    return EFFECTS.frame(table)


def is_decided(effect_table: pl.DataFrame) -> bool:
    """Whether every effect but the control's is decided, so that more rounds would not help."""
    import polars as pl

    open_ = effect_table.filter(~pl.col("control") & (pl.col("verdict") == UNDECIDED) & pl.col("ratio").is_not_null())
    return open_.height == 0


def build_judgement(observations: Observations, effect_table: pl.DataFrame, drift_table: pl.DataFrame) -> pl.DataFrame:
    """Judge whether conclusions may be drawn from this session.

    It is invalid without a control, with a control that differs from the baseline or has fewer than five rounds
    beside it, when measured in blocks or on several machines, and with several thread counts or versions of an
    indicator. Warnings of a valid session are listed as reasons, too.
    """
    import polars as pl

    session, runs = observations.session, observations.runs
    reasons = _list_invalid_reasons(session, effect_table, runs)
    verdict = "invalid" if reasons else "valid"
    changed = drift_table.filter(pl.col("changed"))
    for row in changed.iter_rows(named=True):
        change = f"{row['factor']:.2f} times the value from round {row['change_at']} on"
        reasons.append(f"the machine changed: {row['metric']} of the baseline has {change}")
    failed = runs.filter(pl.col("status") != "ok")
    for (arm, case, status), count in sorted(Counter(failed.select("arm", "case", "status").iter_rows()).items()):
        reasons.append(f"{arm}, {case}: {count} run(s) without values: {status}")
    if open_ := runs.filter(pl.col("network") != "isolated").height:
        reasons.append(f"network not isolated in {open_} of {runs.height} run(s)")
    done = int(runs["round"].n_unique())
    row = {"rounds": done, "runs": runs.height, "failed": failed.height, "hosts_changed": changed.height > 0}
    return JUDGEMENTS.frame([{"session_id": session.session_id, "verdict": verdict, "reasons": reasons, **row}])


def _list_invalid_reasons(session: Session, table: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    reasons = []
    if session.design != "rounds":
        reasons.append("measured in blocks, one stack after the other: drift looks like a difference of stacks")
    if any(arm.copy_number for arm in session.arms):
        reasons += _check_control(table)
    else:
        reasons.append("no control: the measurement error of this session is unknown")
    return reasons + _list_mixed_conditions(runs)


def _check_control(table: pl.DataFrame) -> list[str]:
    """Problems of the control, for metrics with at least one comparison."""
    import polars as pl

    reasons = []
    others = table.filter(~pl.col("control"))
    # A session of one stack claims nothing, but its control must hold like any other.
    compared = set(others.filter(pl.col("n") > 0)["metric"]) if others.height else set(table["metric"])
    for row in table.filter(pl.col("control")).iter_rows(named=True):
        if row["verdict"] in DIFFERENT:
            figures = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            reasons.append(f"the control differs from the baseline that it duplicates: {row['metric']} {figures}")
        elif row["metric"] in compared and (row["n"] < MIN_ROUNDS or row["low"] is None):
            reasons.append(f"{row['metric']}: {row['n']} round(s) of the control, at least {MIN_ROUNDS} are needed")
    if not compared:
        reasons.append("no round has values of two stacks")
    return reasons


def _list_mixed_conditions(runs: pl.DataFrame) -> list[str]:
    """Conditions that changed within the session, so that its figures cannot be compared."""
    import polars as pl

    mixed = []
    for column, what in (("hardware_key", "machines"), ("threads", "thread counts")):
        if (found := runs[column].unique().sort().to_list())[1:]:
            mixed.append(f"measured with several {what}: {', '.join(map(str, found))}")
    versions = runs.group_by("case").agg(pl.col("indicator_version").unique().sort()).sort("case")
    for case, found in versions.iter_rows():
        if found[1:]:
            mixed.append(f"{case} was measured with several versions of its indicator: {', '.join(found)}")
    return mixed


def _iterate_effect_rows(observations: Observations, level: float, rounds: int | None) -> Any:
    session, series, problems = (
        observations.session,
        _build_series(observations, rounds),
        _list_check_problems(observations),
    )
    tried = Counter(
        (arm, case)
        for arm, case, number in observations.runs.select("arm", "case", "round").iter_rows()
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
                interval = _estimate_interval(metric, [base[n] for n in both], [own[n] for n in both], level)
                sign = 1 if metric.better == "lower" else -1
                logs = tuple(sign * (math.log(base[n]) - math.log(own[n])) for n in both)
                failed = tried[arm.name, case.label] - len(own)
                yield _EffectRow(
                    case.label, metric, arm, interval, logs, failed, problems.get((arm.name, case.label), ())
                )


def _build_series(observations: Observations, rounds: int | None) -> Series:
    """The value of each round by arm and metric; values of zero and below have no logarithm and are left out."""
    series: dict[tuple[str, str], dict[int, float]] = {}
    for arm, metric, number, value in observations.values.select("arm", "metric", "round", "value").iter_rows():
        if value > 0 and (rounds is None or number < rounds):
            series.setdefault((arm, metric), {})[number] = value
    return series


def _estimate_interval(metric: PlannedMetric, base: list[float], own: list[float], level: float) -> Interval:
    if metric.better == "higher":
        base, own = own, base
    return paired_log_ratio(base, own, level=level)


def _list_check_problems(observations: Observations) -> dict[tuple[str, str], tuple[str, ...]]:
    """Failed checks by arm and case, as text: the script's own, and comparisons with the baseline's value."""
    problems: dict[tuple[str, str], list[str]] = {}
    for arm, case, sentences in observations.runs.select("arm", "case", "failed_checks").iter_rows():
        problems.setdefault((arm, case), []).extend(sentences or [])
    expected: dict[tuple[str, str], set[str | None]] = {}
    compared_checks = observations.checks.filter(observations.checks["compared"]).select(
        "arm", "case", "field", "value"
    )
    for arm, case, field, value in compared_checks.iter_rows():
        if arm == observations.session.baseline:
            expected.setdefault((case, field), set()).add(value)
    for arm, case, field, value in compared_checks.iter_rows():
        if value not in expected.get((case, field), {value}):
            problems.setdefault((arm, case), []).append(f"{field} differs from the baseline's")
    return {key: tuple(dict.fromkeys(sentences)) for key, sentences in problems.items()}


def _build_effect_cells(session: Session, row: _EffectRow) -> dict[str, Any]:
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
