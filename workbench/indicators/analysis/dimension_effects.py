"""Effects of the dimensions of a stack matrix: what a Python, a version or a thread count is worth, whatever the rest.

Additive model within rounds: log(time) = round + one effect per dimension and level + what is left of the arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.indicators.analysis import judgement
from workbench.indicators.analysis.judgement import MIN_ROUNDS
from workbench.indicators.store.archive import Arm, PlannedMetric, Session
from workbench.indicators.tables import DIMENSIONS
from workbench.stats import Interval, decide_beyond, paired_log_ratio, sequential_log_ratio
from workbench.stats.verdicts import DIFFERENT, SAME, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

    from workbench.indicators.analysis.observations import Observations

Floats = NDArray[np.float64]
MIN_SHARE = 0.8
"""Share of the baseline's rounds in which an arm must have a value to be part of the model."""


@dataclass(frozen=True)
class _Level:
    """One level of a dimension against its base level, by one metric."""

    metric: PlannedMetric
    dimension: str
    level: str
    base: str
    interval: Interval | None
    n_arms: int
    worst: tuple[str, Interval] | None
    reason: str | None


def estimate_dimension_effects(observations: Observations) -> pl.DataFrame:
    """Estimate how many times better each level of a dimension is than the baseline's level, whatever the others.

    Returns: DIMENSIONS: one row per metric, dimension and level other than the baseline's; empty without a matrix.
    `interaction` is the largest deviation of an arm of this level from the additive model; where it is told apart
    from 0 beyond the margin, `is_additive` is false, and the effect is only a mean over the measured combinations.

    In each round that has a value of every arm, the effects are the least-squares solution of the additive model; their
    intervals are over rounds, of the session's method, so that they hold at every number of rounds in a sequence. Arms
    with a value in fewer than 80 % of the baseline's rounds are left out. A level that cannot be told from another
    dimension (it only occurs together with its level) has no estimate. Verdicts are by Holm over all levels and
    metrics, from five rounds on; SAME needs the control within the margin, as for arms. The control itself is no part
    of the model.
    Source: two-way layout without interaction (Scheffé, The Analysis of Variance, 1959).
    """
    session = observations.session
    arms = [arm for arm in session.arms if arm.factors and not arm.copy_number]
    base = session.get_arm(session.baseline)
    arms = [arm for arm in arms if arm.factors.keys() == base.factors.keys()]
    if not base.factors or len(arms) < 2:
        return DIMENSIONS.frame([])
    rows = [row for metric in _list_metrics(session) for row in _estimate_metric(observations, metric, arms, base)]
    return DIMENSIONS.frame(list(_build_rows(rows, observations)))


def _list_metrics(session: Session) -> list[PlannedMetric]:
    return [metric for case in session.cases for metric in case.metrics]


def _read_series(observations: Observations, metric: str) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    values = observations.values.filter(observations.values["metric"] == metric)
    for arm, number, value in values.select("arm", "round", "value").iter_rows():
        if value is not None and value > 0:
            series.setdefault(arm, {})[number] = math.log(value)
    return series


def _estimate_metric(
    observations: Observations, metric: PlannedMetric, arms: Sequence[Arm], base: Arm
) -> Iterator[_Level]:
    series = _read_series(observations, metric.name)
    base_values = series.get(base.name, {})
    used = [
        arm
        for arm in arms
        if len(series.get(arm.name, {}).keys() & base_values.keys()) >= MIN_SHARE * max(1, len(base_values))
    ]
    rounds = sorted(set.intersection(*(set(series[arm.name]) for arm in used))) if base_values else []
    sign = 1 if metric.better == "lower" else -1
    logs = np.array([[-sign * series[arm.name][number] for arm in used] for number in rounds])
    columns = [
        (name, level)
        for name in base.factors
        for level in dict.fromkeys(arm.factors[name] for arm in arms)
        if level != base.factors[name]
    ]
    design = _build_design(used, columns)
    fitted = _fit_rounds(design, logs) if len(rounds) and len(used) > 1 else None
    for place, (name, level) in enumerate(columns):
        count = sum(arm.factors[name] == level for arm in used)
        reason = _explain_missing(design, place, columns, count, fitted is not None)
        interval = worst = None
        if reason is None and fitted is not None:
            interval = _estimate(fitted[0][:, place], observations.session)
            worst = _find_worst_arm(fitted[1], used, (name, level), observations.session)
        yield _Level(metric, name, level, base.factors[name], interval, count, worst, reason)


def _build_design(arms: Sequence[Arm], columns: Sequence[tuple[str, str]]) -> Floats:
    """One row an arm: 1 where it has the level of a column."""
    return np.array([[float(arm.factors[name] == level) for name, level in columns] for arm in arms]).reshape(
        len(arms), len(columns)
    )


def _fit_rounds(design: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Effects (rounds x columns) and what is left of each arm (rounds x arms), after each round's own level."""
    full = np.hstack([np.ones((len(design), 1)), design])
    solved = logs @ np.linalg.pinv(full).T
    return solved[:, 1:], logs - solved @ full.T


def _is_estimable(design: Floats, place: int) -> bool:
    """Whether the arms tell this column's effect from the others and from the round's level."""
    full = np.hstack([np.ones((len(design), 1)), design])
    wanted = np.zeros(full.shape[1])
    wanted[place + 1] = 1
    projection = np.linalg.pinv(full) @ full
    return bool(np.allclose(projection @ wanted, wanted, atol=1e-8))


def _explain_missing(
    design: Floats, place: int, columns: Sequence[tuple[str, str]], count: int, fitted: bool
) -> str | None:
    if not count:
        return "no arm of this level has values"
    if not fitted:
        return "no round has values of all arms"
    if _is_estimable(design, place):
        return None
    others = [
        f"{name} {level}"
        for other, (name, level) in enumerate(columns)
        if other != place and not _is_estimable(design, other)
    ]
    return "not told from " + " and ".join(others or ["the baseline's level"]) + ": they only occur together"


def _estimate(logs: Floats, session: Session, level: float | None = None) -> Interval:
    estimate = sequential_log_ratio if session.method == "sequence" else paired_log_ratio
    return estimate(np.exp(logs / 2), np.exp(-logs / 2), level=session.level if level is None else level)


def _find_worst_arm(
    residuals: Floats, arms: Sequence[Arm], column: tuple[str, str], session: Session
) -> tuple[str, Interval] | None:
    """The arm of a level that deviates most from the model, with the interval of its deviation.

    Its level is shared by all arms of the column, so that one that stands out by chance seldom has this interval.
    """
    places = [place for place, arm in enumerate(arms) if arm.factors[column[0]] == column[1]]
    # An arm that the model fits by construction (alone in its cell) leaves nothing.
    places = [place for place in places if np.abs(residuals[:, place]).max() > 1e-9]
    if not places:
        return None
    worst = max(places, key=lambda place: abs(float(residuals[:, place].mean())))
    level = 1 - (1 - session.level) / len(places)
    return arms[worst].name, _estimate(residuals[:, worst], session, level)


def _build_rows(levels: Sequence[_Level], observations: Observations) -> Iterator[dict[str, Any]]:
    session = observations.session
    estimates = [entry for entry in levels if entry.interval is not None]
    decisions = decide_beyond(
        [entry.interval for entry in estimates if entry.interval is not None],
        [entry.metric.tolerance for entry in estimates],
        **({"size": len(levels)} if session.method == "sequence" else {}),
    )
    decided = {id(entry): decision for entry, decision in zip(estimates, decisions, strict=True)}
    controls = {metric.name: _estimate_control(observations, metric) for metric in _list_metrics(session)}
    for level in levels:
        decision = decided.get(id(level))
        verdict = UNDECIDED if decision is None else decision.verdict
        margin, reason = level.metric.tolerance, level.reason
        if verdict == SAME and (reason := judgement.find_obstacle(controls[level.metric.name], margin, diluted=False)):
            verdict = UNDECIDED
        if level.interval is not None and level.interval.n < MIN_ROUNDS:
            verdict, reason = UNDECIDED, f"{level.interval.n} rounds, at least {MIN_ROUNDS} are needed"
        if verdict == UNDECIDED and reason is None and level.interval is not None:
            reach = judgement.reach_percent(level.interval)
            width = "none" if reach is None else f"±{judgement.format_percent(reach)}"
            reason = f"the interval reaches {width}, the margin is {100 * margin:.2g} %"
        yield {
            "session_id": session.session_id,
            "metric": level.metric.name,
            "dimension": level.dimension,
            "level": level.level,
            "base_level": level.base,
            **_describe_interval(level.interval),
            "n_arms": level.n_arms,
            "margin": margin,
            "adjusted_p_value": None if decision is None else decision.adjusted_p_value,
            "verdict": verdict,
            "undecided_because": reason if verdict == UNDECIDED else None,
            **_describe_interaction(level.worst, margin),
        }


def _describe_interval(interval: Interval | None) -> Mapping[str, Any]:
    if interval is None:
        return {"ratio": None, "low": None, "high": None, "n": 0}
    return {"ratio": interval.estimate, "low": interval.low, "high": interval.high, "n": interval.n}


def _describe_interaction(worst: tuple[str, Interval] | None, margin: float) -> Mapping[str, Any]:
    if worst is None:
        return {"interaction_arm": None, "interaction": None, "interaction_low": None, "interaction_high": None,
                "is_additive": None}  # fmt: skip
    name, interval = worst
    odd = interval.low is not None and decide_beyond([interval], [margin])[0].verdict in DIFFERENT
    return {
        "interaction_arm": name,
        "interaction": interval.estimate,
        "interaction_low": interval.low,
        "interaction_high": interval.high,
        "is_additive": None if interval.low is None else not odd,
    }


def _estimate_control(observations: Observations, metric: PlannedMetric) -> Interval | None:
    session, series = observations.session, _read_series(observations, metric.name)
    control = next((arm.name for arm in session.arms if arm.copy_number), None)
    if control is None:
        return None
    control_values, base = series.get(control, {}), series.get(session.baseline, {})
    shared = sorted(control_values.keys() & base.keys())
    return _estimate(np.array([base[number] - control_values[number] for number in shared]), session)


def format_dimension_effects(table: pl.DataFrame) -> list[str]:
    """Sentences: what each level is worth, whatever the other dimensions, or only on average."""
    lines = []
    for row in table.iter_rows(named=True):
        head = f"{row['metric']}: {row['dimension']} {row['level']} against {row['base_level']}"
        if row["ratio"] is None or row["low"] is None:
            lines.append(f"{head}: {row['undecided_because'] or 'no interval yet'}")
            continue
        percent = [f"{100 * (row[name] - 1):+.1f}" for name in ("ratio", "low", "high")]
        figure = f"{percent[0]} % [{percent[1]}, {percent[2]}] {row['verdict']}"
        others = [
            dimension for dimension in dict.fromkeys(table["dimension"].to_list()) if dimension != row["dimension"]
        ]
        scope = f", whatever {', '.join(others)}" if others else ""
        if row["is_additive"] is False:
            off = f"{100 * (row['interaction'] - 1):+.1f} %"
            scope = f", on average only: {row['interaction_arm']} deviates by {off}"
        elif row["is_additive"] is None and others:
            scope = ", on average over the measured combinations"
        lines.append(f"{head}: {figure}{scope}")
    return lines
