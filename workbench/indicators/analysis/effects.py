"""Effects within rounds: of stacks against the baseline, and of the dimensions of a stack matrix, with verdicts.

Effects of stacks are judged by two clocks. Those of a matrix's dimensions come from an additive model within rounds:
log(time) = round + one effect per dimension and level + what is left of the arm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.indicators.analysis import judgement
from workbench.indicators.analysis.answers import compare_answers
from workbench.indicators.analysis.idle_effects import add_idle_effects
from workbench.indicators.analysis.judgement import MIN_ROUNDS as MIN_ROUNDS
from workbench.indicators.analysis.judgement import build_judgement, detect_drift
from workbench.indicators.analysis.observations import (
    CLOCK_NAMES,
    WHOLE_RUN,
    Clock,
    Observations,
    select_clock,
    summarize_load,
)
from workbench.indicators.analysis.rounded_values import describe_rounding, find_step, measure_rounding, widen_interval
from workbench.indicators.store.archive import Arm, PlannedMetric, Session
from workbench.indicators.tables import DIMENSIONS, EFFECTS
from workbench.stats import Interval, decide_beyond, p_beyond, paired_log_ratio, sequential_log_ratio
from workbench.stats.verdicts import DECIDED, DIFFERENT, SAME, UNDECIDED, Decision

if TYPE_CHECKING:
    import polars as pl

_BY_VARIABLE = {
    **dict.fromkeys(("LANG", "LC_ALL", "LC_CTYPE"), "locale"),
    **dict.fromkeys(("PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHON_GIL"), "interpreter"),
    "PYTHONHASHSEED": "hash seed",
}
Series = Mapping[tuple[str, str], Mapping[int, float]]
Floats = NDArray[np.float64]
MAX_FAILED_SHARE = 0.1
"""Share of failed runs above which the others are no picture of the work."""
MIN_SHARE = 0.8
"""Share of the baseline's rounds in which an arm must have a value to be part of the model."""


def list_unequal_conditions(session: Session, arm: Arm) -> list[str]:
    """Conditions of an arm that differ from the baseline's, in words; empty where all that is known is equal."""
    baseline = session.get_arm(session.baseline)
    base, factors = baseline.conditions, baseline.factors
    # Conditions that the session's matrix varies are what it is measured for.
    varied = {name for name in factors.keys() | arm.factors.keys() if factors.get(name) != arm.factors.get(name)}
    planned = {_BY_VARIABLE[name] for name in varied if name in _BY_VARIABLE}
    planned |= {"threads", "cores"} if "threads" in varied else set()
    return [
        f"{name}: {arm.conditions[name]} (baseline: {base[name]})"
        for name in arm.conditions
        if name in base and name not in planned and arm.conditions[name] != base[name]
    ]


@dataclass(frozen=True)
class Comparison:
    """A session's observations with its `effects`, `drift` and `judgement` (one row).

    `dimensions` are effects by dimension of a stack matrix; null without one.
    """

    observed: Observations
    effects: pl.DataFrame
    drift: pl.DataFrame
    judgement: pl.DataFrame
    dimensions: pl.DataFrame | None = None

    @property
    def valid(self) -> bool:
        """Whether the measurement holds and at least one comparison is decided."""
        return self.judgement["verdict"].to_list() == ["valid"]

    @property
    def sound(self) -> bool:
        """Whether the measurement holds, decided or not."""
        return self.valid or self.judgement["sound"].to_list() == [True]

    @property
    def wrong(self) -> set[tuple[str, str]]:
        """(arm, metric) pairs with a failed check: one of the script, or a comparison with the baseline's value."""
        problems, session = _list_check_problems(self.observed), self.observed.session
        metrics = {case.label: [metric.name for metric in case.metrics] for case in session.cases}
        return {(arm, metric) for (arm, case), failed in problems.items() if failed for metric in metrics[case]}


@dataclass(frozen=True)
class _EffectRow:
    """A metric of an arm, compared with the baseline by both clocks; `other` is null without values of the other.

    `rounding`: What rounded values may hide, in words; null where that is less than the margin.
    """

    case: str
    metric: PlannedMetric
    arm: Arm
    interval: Interval
    rounding: str | None
    other: Interval | None
    cpu_part: str | None
    logs: tuple[float, ...]
    failed: int
    problems: tuple[str, ...]
    spoils: tuple[str, ...]


def compare_session(observations: Observations) -> Comparison:
    """Compute effects, drift and the judgement of a session, by its clock."""
    observations = select_clock(observations, observations.session.clock)
    table = add_idle_effects(estimate_effects(observations), observations)
    changes = detect_drift(observations)
    judgement = build_judgement(observations, table, changes, compare_answers(observations).notes)
    dimensions = estimate_dimension_effects(observations)
    return Comparison(observations, table, changes, judgement, dimensions if dimensions.height else None)


def compare_by_clock(comparison: Comparison, clock: Clock | None) -> Comparison:
    """Compare the same session by another clock; unchanged for null or its own clock."""
    if clock is None or clock == comparison.observed.session.clock:
        return comparison
    return compare_session(select_clock(comparison.observed, clock))


def estimate_effects(observations: Observations, *, rounds: int | None = None) -> pl.DataFrame:
    """Estimate how many times better than the baseline each stack is, by each metric.

    The estimate is the mean log ratio over the rounds in which both have a value. There are three outcomes:

    - FASTER and SLOWER: the whole interval lies beyond the metric's margin, also after Holm's correction over all
      planned stacks and metrics, by both clocks.
    - SAME: it lies within the margin, and so does the control's: otherwise the session cannot resolve the margin.
      Never by CPU time of whole runs, in which a difference of the measured part is diluted.
    - UNDECIDED: everything else, with the reason, and the number of rounds that would likely decide. Also whatever the
      figures are, where they do not compare the same work (`spoiled_by`): processes that were left running, outputs or
      answers that differ from the baseline's, and more than one failed run in ten.

    Intervals of a `sequence` session hold at every number of rounds, so that it may stop when it is decided and go on
    later. Those of older sessions hold at the looks they had planned, which share `alpha`.

    Returns: EFFECTS: one row per arm (all but the baseline) and metric. Rows of the control are a family of their
    own. `ratio`, `low`, `high` are null without enough rounds in which both have a value. Columns of an idle machine
    are null: `add_idle_effects` fills them once the session is measured.

    Does not apply to other machines, thread counts, sizes or versions of the indicator.
    Source: confidence sequences (`workbench.stats.verdicts`), or the paired t interval on logarithms with alpha split
    evenly over looks (Bonferroni); Holm (1979).
    """
    session = observations.session
    rows = list(_iterate_effect_rows(observations, rounds))
    control = {row.metric.name: row for row in rows if row.arm.is_control}
    loads: dict[tuple[str, str], dict[str, Any]] = {}
    table: list[dict[str, Any]] = []
    for of_control in (False, True):
        family = [row for row in rows if row.arm.is_control == of_control]
        for row, (decision, other) in zip(family, _decide_rows(family, session), strict=True):
            beside = None if of_control else control.get(row.metric.name)
            load = loads.setdefault(
                (row.case, row.arm.name),
                summarize_load(observations.runs, row.case, (session.baseline, row.arm.name)),
            )
            table.append(
                {
                    **_build_effect_cells(session, row),
                    **_build_verdict_cells(session, row, beside, decision, other, load, len(family)),
                    "unequal": list_unequal_conditions(session, row.arm),
                    **load,
                }
            )
    return EFFECTS.frame(table)


def is_decided(effect_table: pl.DataFrame) -> bool:
    """Whether every effect but the control's is decided, so that more rounds would not help.

    `effect_table` is EFFECTS (`control`, `verdict`, `ratio`, `spoiled_by`); effects without a ratio, and spoiled ones,
    cannot be decided and do not count.
    """
    import polars as pl

    is_open = (pl.col("verdict") == UNDECIDED) & pl.col("ratio").is_not_null() & pl.col("spoiled_by").is_null()
    open_ = effect_table.filter(~pl.col("control") & is_open)
    return open_.height == 0


def _decide_rows(family: Sequence[_EffectRow], session: Session) -> list[tuple[Decision, Decision | None]]:
    """Verdicts by both clocks. In a sequence both are one family of a size that is known from the start."""
    margins = [row.metric.tolerance for row in family]
    intervals = [row.interval for row in family]
    timed = [place for place, row in enumerate(family) if row.other is not None]
    others = [row.other for row in family if row.other is not None]
    other_margins = [margins[place] for place in timed]
    if session.method == "sequence":
        size = len(family) * (2 if timed else 1)
        both = decide_beyond([*intervals, *others], [*margins, *other_margins], size=size)
        first, second = both[: len(family)], both[len(family) :]
    else:
        first, second = decide_beyond(intervals, margins), decide_beyond(others, other_margins)
    by_place = dict(zip(timed, second, strict=True))
    return [(decision, by_place.get(place)) for place, decision in enumerate(first)]


def _build_verdict_cells(
    session: Session,
    row: _EffectRow,
    control: _EffectRow | None,
    decision: Decision,
    other: Decision | None,
    load: dict[str, Any],
    family: int,
) -> dict[str, Any]:
    """Verdicts by both clocks with what withholds them, and why a row is undecided."""
    by_cpu = session.clock == "cpu" and row.cpu_part is not None
    margin = row.metric.tolerance
    verdict, reason = decision.verdict, None
    if verdict == SAME:
        reason = judgement.find_obstacle(
            None if control is None else control.interval, margin, diluted=_is_diluted(row, "cpu" if by_cpu else "wall")
        )
        verdict = UNDECIDED if reason else verdict
    other_verdict = None if other is None else other.verdict
    if other_verdict == SAME and judgement.find_obstacle(
        None if control is None else control.other, margin, diluted=_is_diluted(row, "wall" if by_cpu else "cpu")
    ):
        other_verdict = UNDECIDED
    if other_verdict in DIFFERENT and control is not None and judgement.is_told_apart(control.other, margin):
        other_verdict = UNDECIDED
    spoiled = "; ".join(row.spoils)
    if spoiled:
        verdict, other_verdict = UNDECIDED, None if other is None else UNDECIDED
    needed = None
    clock, second = ("cpu", "wall") if by_cpu else ("wall", "cpu")
    if spoiled:
        reason = spoiled
    elif verdict == UNDECIDED and reason is None and row.rounding:
        reason = row.rounding
    elif verdict == UNDECIDED:
        limit = row.interval if reason is None or control is None else control.interval
        needed = judgement.count_rounds(limit, margin, 1 if reason else family, row.interval)
        reason = judgement.explain(row.interval, margin, obstacle=reason, load=load, rounds=needed)
        reason += _format_other_side(row, second, other_verdict)
    decider = clock if verdict in DECIDED else second if other_verdict in DECIDED else None
    decided_by = f"{decider}, {WHOLE_RUN}" if decider and _is_diluted(row, decider) else decider
    return {
        "verdict": verdict,
        "adjusted_p_value": decision.adjusted_p_value,
        "rounds_needed": needed,
        "undecided_because": reason,
        "clock": clock,
        "decided_by": decided_by,
        "other_verdict": other_verdict,
        "spoiled_by": spoiled or None,
    }


def _format_other_side(row: _EffectRow, clock: str, verdict: str | None) -> str:
    """Format the other clock's view of an undecided row: its verdict, or that it knows the ratio much better."""
    if row.other is None:
        return ""
    name = f"{CLOCK_NAMES[clock]} of whole runs" if _is_diluted(row, clock) else CLOCK_NAMES[clock]
    if verdict in DECIDED:
        return f"; by {name}: {verdict} {format_ratio(row.other)}"
    reach, other = judgement.reach_percent(row.interval), judgement.reach_percent(row.other)
    if reach is not None and other is not None and 2 * other < reach:
        return f"; {name} is known to ±{judgement.format_percent(other)} (--clock {clock})"
    return ""


def _is_diluted(row: _EffectRow, clock: str) -> bool:
    """Whether the values by this clock hold the start of Python and of the libraries, too."""
    return clock == "cpu" and row.cpu_part == WHOLE_RUN


def format_ratio(interval: Interval) -> str:
    """A ratio with its interval, as text."""
    if interval.estimate is None or interval.low is None or interval.high is None:
        return "without an interval"
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _iterate_effect_rows(observations: Observations, rounds: int | None) -> Iterator[_EffectRow]:
    """Every metric of every arm but the baseline, of the first `rounds` rounds (null: all)."""
    session, problems = observations.session, _list_check_problems(observations)
    spoils = _list_spoils(observations, rounds)
    series, others = _build_series(observations, "value", rounds), _build_series(observations, "other_value", rounds)
    parts = dict(observations.values.select("metric", "cpu_part").unique(keep="any").iter_rows())
    tried = Counter(
        (arm, case)
        for arm, case, number in observations.runs.select("arm", "case", "round").iter_rows()
        if rounds is None or number < rounds
    )
    for case in session.cases:
        for metric in case.metrics:
            for arm in session.arms:
                if arm.name == session.baseline or arm.name in case.skipped:
                    continue
                logs = _build_log_ratios(series, metric, session.baseline, arm.name)
                arm_values = series.get((arm.name, metric.name), {})
                interval, rounding = _estimate_ratio(series, logs, metric, session, arm)
                yield _EffectRow(
                    case.label,
                    metric,
                    arm,
                    interval,
                    rounding,
                    _estimate_other(others, metric, session, arm),
                    parts.get(metric.name),
                    tuple(logs),
                    tried[arm.name, case.label] - len(arm_values),
                    problems.get((arm.name, case.label), ()),
                    () if arm.is_control else _combine_spoils(spoils, case.label, arm.name, session.baseline),
                )


def _build_series(observations: Observations, column: str, rounds: int | None) -> Series:
    """The value of each round by arm and metric; values of zero and below have no logarithm and are left out."""
    series: dict[tuple[str, str], dict[int, float]] = {}
    for arm, metric, number, value in observations.values.select("arm", "metric", "round", column).iter_rows():
        if value is not None and value > 0 and (rounds is None or number < rounds):
            series.setdefault((arm, metric), {})[number] = value
    return series


def _build_log_ratios(series: Series, metric: PlannedMetric, baseline: str, arm: str) -> list[float]:
    """Log ratios of the rounds in which both arms have a value; above 0 the arm is better."""
    base, arm_values = series.get((baseline, metric.name), {}), series.get((arm, metric.name), {})
    sign = 1 if metric.better == "lower" else -1
    return [
        sign * (math.log(base[number]) - math.log(arm_values[number]))
        for number in sorted(base.keys() & arm_values.keys())
    ]


def _estimate_interval(logs: Sequence[float] | Floats, session: Session, level: float | None = None) -> Interval:
    """Ratio with its interval from one log ratio a round; null `level` means the session's."""
    estimate = sequential_log_ratio if session.method == "sequence" else paired_log_ratio
    # Half on each side: no log of two values of a table is beyond what a number can hold then.
    sides = [math.exp(log / 2) for log in logs], [math.exp(-log / 2) for log in logs]
    return estimate(*sides, level=session.level if level is None else level)


def _estimate_other(others: Series, metric: PlannedMetric, session: Session, arm: Arm) -> Interval | None:
    """The ratio by the other clock; null where it has no values of the arm or the baseline."""
    if (session.baseline, metric.name) not in others or (arm.name, metric.name) not in others:
        return None
    logs = _build_log_ratios(others, metric, session.baseline, arm.name)
    return _estimate_ratio(others, logs, metric, session, arm)[0]


def _estimate_ratio(
    series: Series, logs: Sequence[float], metric: PlannedMetric, session: Session, arm: Arm
) -> tuple[Interval, str | None]:
    """The ratio with an interval that allows for rounded values, and what they may hide, in words."""
    sides = [list(series.get((name, metric.name), {}).values()) for name in (session.baseline, arm.name)]
    interval = _estimate_interval(logs, session)
    if interval.low is None:
        return interval, None
    reach = measure_rounding(sides, metric.unit)
    return widen_interval(interval, reach), describe_rounding(reach, metric.tolerance)


def _list_check_problems(observations: Observations) -> dict[tuple[str, str], tuple[str, ...]]:
    """Problems by arm and case, as text: failed checks of the script, faults, and other answers than the baseline's."""
    problems: dict[tuple[str, str], list[str]] = {}
    for arm, case, checks, faults in observations.runs.select("arm", "case", "failed_checks", "faults").iter_rows():
        problems.setdefault((arm, case), []).extend([*(checks or []), *(faults or [])])
    for key, sentences in compare_answers(observations).differences.items():
        problems.setdefault(key, []).extend(sentences)
    return {key: tuple(dict.fromkeys(sentences)) for key, sentences in problems.items()}


def _list_spoils(observations: Observations, rounds: int | None) -> dict[tuple[str, str], list[str]]:
    """Why figures are not those of the same work, by arm and case; the control's stand with the baseline's."""
    import polars as pl

    session, runs = observations.session, observations.runs
    if rounds is not None:
        runs = runs.filter(pl.col("round") < rounds)
    spoils: dict[tuple[str, str], list[str]] = {}
    for (arm, case), of_arm in runs.group_by("arm", "case", maintain_order=True):
        group = session.baseline if session.get_arm(str(arm)).is_control else str(arm)
        sentences = spoils.setdefault((group, str(case)), [])
        failed = of_arm.filter(pl.col("status") != "ok")
        if failed.height > MAX_FAILED_SHARE * of_arm.height:
            sentences.append(judgement.describe_failures(failed, of_arm.height))
        faults = Counter(fault for listed in of_arm["faults"].to_list() for fault in set(listed or []))
        sentences += [f"{fault} (in {count} of {of_arm.height} runs)" for fault, count in faults.most_common(2)]
    for key, sentences in compare_answers(observations).differences.items():
        spoils.setdefault(key, []).extend(sentences)
    return spoils


def _combine_spoils(spoils: Mapping[tuple[str, str], list[str]], case: str, arm: str, baseline: str) -> tuple[str, ...]:
    """The spoils of an arm's comparison: its own and the baseline's."""
    of_baseline = [f"the baseline: {sentence}" for sentence in spoils.get((baseline, case), [])]
    return tuple(dict.fromkeys([*spoils.get((arm, case), []), *of_baseline]))


def _build_effect_cells(session: Session, row: _EffectRow) -> dict[str, Any]:
    """Cells of EFFECTS about the ratio by both clocks; those about verdicts come on top."""
    interval, other = row.interval, row.other
    reason = "; ".join(row.problems)[:1000] or (interval.reason if interval.low is None else None)
    return {
        "session_id": session.session_id,
        "metric": row.metric.name,
        "arm": row.arm.name,
        "stack": row.arm.stack,
        "baseline": session.baseline,
        "control": row.arm.is_control,
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
        "other_ratio": None if other is None else other.estimate,
        "other_low": None if other is None else other.low,
        "other_high": None if other is None else other.high,
        "cpu_part": row.cpu_part,
    }


@dataclass(frozen=True)
class _Level:
    """One level of a dimension against its base level, by one metric."""

    metric: PlannedMetric
    dimension: str
    level: str
    base: str
    interval: Interval | None
    rounding: str | None
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
    arms = [arm for arm in session.arms if arm.factors and not arm.is_control]
    base = session.get_arm(session.baseline)
    arms = [arm for arm in arms if arm.factors.keys() == base.factors.keys()]
    if not base.factors or len(arms) < 2:
        return DIMENSIONS.frame([])
    series = _build_series(observations, "value", None)
    metrics = [metric for case in session.cases for metric in case.metrics]
    levels = [level for metric in metrics for level in _estimate_levels(session, series, metric, arms)]
    return DIMENSIONS.frame(list(_build_dimension_rows(session, series, levels)))


def _estimate_levels(session: Session, series: Series, metric: PlannedMetric, arms: Sequence[Arm]) -> Iterator[_Level]:
    """Each level of each dimension but the baseline's, by one metric."""
    base = session.get_arm(session.baseline)
    base_rounds = series.get((base.name, metric.name), {}).keys()
    used = [
        arm
        for arm in arms
        if len(series.get((arm.name, metric.name), {}).keys() & base_rounds) >= MIN_SHARE * max(1, len(base_rounds))
    ]
    rounds = sorted(set.intersection(*(set(series[arm.name, metric.name]) for arm in used))) if base_rounds else []
    sign = 1 if metric.better == "lower" else -1
    logs = np.array([[-sign * math.log(series[arm.name, metric.name][number]) for arm in used] for number in rounds])
    columns = [
        (name, level)
        for name in base.factors
        for level in dict.fromkeys(arm.factors[name] for arm in arms)
        if level != base.factors[name]
    ]
    # Design matrix of the dimensions, (arms, columns): 1 where the arm has the level of a column, else 0.
    design = np.array([[float(arm.factors[name] == level) for name, level in columns] for arm in used]).reshape(
        len(used), len(columns)
    )
    fitted = _fit_rounds(design, logs) if len(rounds) and len(used) > 1 else None
    values = [list(series[arm.name, metric.name].values()) for arm in used]
    step = find_step([value for of_arm in values for value in of_arm])
    reaches = np.array([measure_rounding([of_arm], metric.unit, step) for of_arm in values])
    for place, (name, level) in enumerate(columns):
        count = sum(arm.factors[name] == level for arm in used)
        reason = _explain_missing(design, place, columns, count, fitted is not None)
        interval = worst = rounding = None
        if reason is None and fitted is not None:
            reach = float(np.abs(fitted.weights[place]) @ reaches)
            interval = widen_interval(_estimate_interval(fitted.effects[:, place], session), reach)
            rounding = describe_rounding(reach, metric.tolerance)
            worst = _find_worst_arm(fitted, used, (name, level), session, reaches)
        yield _Level(metric, name, level, base.factors[name], interval, rounding, count, worst, reason)


@dataclass(frozen=True)
class _FittedRounds:
    """The additive model in each round.

    `effects`: Log ratios to the baseline's levels, (rounds, columns); `left`: what the model leaves of each arm,
    (rounds, arms). Both are sums over the arms' logarithms, with `weights`, (columns, arms), and `left_weights`, (arms,
    arms).
    """

    effects: Floats
    left: Floats
    weights: Floats
    left_weights: Floats


def _fit_rounds(design: Floats, logs: Floats) -> _FittedRounds:
    """Fit the additive model to each round by least squares.

    `design`: (arms, columns). `logs`: Log of how good each value is, (rounds, arms).
    """
    full = np.hstack([np.ones((len(design), 1)), design])
    weights = np.linalg.pinv(full)
    left_weights = np.eye(len(design)) - full @ weights
    return _FittedRounds(logs @ weights[1:].T, logs @ left_weights.T, weights[1:], left_weights)


def _is_estimable(design: Floats, place: int) -> bool:
    """Whether the arms tell the effect of a column of `design` (arms, columns) from all others."""
    full = np.hstack([np.ones((len(design), 1)), design])
    wanted = np.zeros(full.shape[1])
    wanted[place + 1] = 1
    projection = np.linalg.pinv(full) @ full
    return bool(np.allclose(projection @ wanted, wanted, atol=1e-8))


def _explain_missing(
    design: Floats, place: int, columns: Sequence[tuple[str, str]], count: int, fitted: bool
) -> str | None:
    """Why the level of a column has no estimate; null if it has one.

    `count` is the number of arms with values that have the level, `fitted` whether any round was fitted.
    """
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


def _find_worst_arm(
    fitted: _FittedRounds, arms: Sequence[Arm], column: tuple[str, str], session: Session, reaches: Floats
) -> tuple[str, Interval] | None:
    """The arm of a level that deviates most from the model, with the ratio by which it does; null if none deviates.

    `column`: Dimension and level. `reaches`: How far the logarithm of each arm's values may be off for rounding.
    The confidence is raised for the number of arms of the level: one that stands out by chance seldom has this
    interval.
    """
    places = [place for place, arm in enumerate(arms) if arm.factors[column[0]] == column[1]]
    # An arm that the model fits by construction (alone in its cell) leaves nothing.
    places = [place for place in places if np.abs(fitted.left[:, place]).max() > 1e-9]
    if not places:
        return None
    worst = max(places, key=lambda place: abs(float(fitted.left[:, place].mean())))
    level = 1 - (1 - session.level) / len(places)
    interval = _estimate_interval(fitted.left[:, worst], session, level)
    return arms[worst].name, widen_interval(interval, float(np.abs(fitted.left_weights[worst]) @ reaches))


def _build_dimension_rows(session: Session, series: Series, levels: Sequence[_Level]) -> Iterator[dict[str, Any]]:
    """Rows of DIMENSIONS: each level with its verdict, by Holm over all levels and metrics."""
    control = session.control
    estimates = [entry for entry in levels if entry.interval is not None]
    decisions = decide_beyond(
        [entry.interval for entry in estimates if entry.interval is not None],
        [entry.metric.tolerance for entry in estimates],
        **({"size": len(levels)} if session.method == "sequence" else {}),
    )
    decided = {id(entry): decision for entry, decision in zip(estimates, decisions, strict=True)}
    for level in levels:
        decision = decided.get(id(level))
        verdict = UNDECIDED if decision is None else decision.verdict
        margin, reason = level.metric.tolerance, level.reason
        if verdict == SAME:
            control_logs = (
                [] if control is None else _build_log_ratios(series, level.metric, session.baseline, control.name)
            )
            beside = None if control is None else _estimate_ratio(series, control_logs, level.metric, session, control)
            reason = judgement.find_obstacle(None if beside is None else beside[0], margin, diluted=False)
            verdict = UNDECIDED if reason else SAME
        if level.interval is not None and level.interval.n < MIN_ROUNDS:
            verdict, reason = UNDECIDED, f"{level.interval.n} rounds, at least {MIN_ROUNDS} are needed"
        if verdict == UNDECIDED and reason is None and level.interval is not None:
            reach = judgement.reach_percent(level.interval)
            width = "none" if reach is None else f"±{judgement.format_percent(reach)}"
            reason = level.rounding or f"the interval reaches {width}, the margin is {100 * margin:.2g} %"
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
    """Cells of DIMENSIONS about a level's effect."""
    if interval is None:
        return {"ratio": None, "low": None, "high": None, "n": 0}
    return {"ratio": interval.estimate, "low": interval.low, "high": interval.high, "n": interval.n}


def _describe_interaction(worst: tuple[str, Interval] | None, margin: float) -> Mapping[str, Any]:
    """Cells of DIMENSIONS about the arm that deviates most from the model."""
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


def format_dimension_effects(table: pl.DataFrame) -> list[str]:
    """Sentences on table DIMENSIONS: what each level is worth, whatever the other dimensions, or only on average."""
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
