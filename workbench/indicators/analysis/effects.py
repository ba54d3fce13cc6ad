"""Effects of stacks against the baseline within rounds: ratios with intervals, and verdicts by two clocks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.indicators.analysis import judgement
from workbench.indicators.analysis.dimension_effects import estimate_dimension_effects
from workbench.indicators.analysis.judgement import MIN_ROUNDS as MIN_ROUNDS
from workbench.indicators.analysis.judgement import build_judgement, detect_drift
from workbench.indicators.analysis.machine_load import summarize_load
from workbench.indicators.analysis.observations import CLOCK_NAMES, WHOLE_RUN, Clock, Observations, select_clock
from workbench.indicators.store.archive import Arm, PlannedMetric, Session
from workbench.indicators.tables import EFFECTS
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
    """A metric of an arm, compared with the baseline by both clocks; `other` is null without values of the other."""

    case: str
    metric: PlannedMetric
    arm: Arm
    interval: Interval
    other: Interval | None
    cpu_part: str | None
    logs: tuple[float, ...]
    failed: int
    problems: tuple[str, ...]


def compare_session(observations: Observations) -> Comparison:
    """Compute effects, drift and the judgement of a session, by its clock."""
    observations = select_clock(observations, observations.session.clock)
    table, changes = estimate_effects(observations), detect_drift(observations)
    judgement = build_judgement(observations, table, changes)
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
    - UNDECIDED: everything else, with the reason, and the number of rounds that would likely decide.

    Intervals of a `sequence` session hold at every number of rounds, so that it may stop when it is decided and go on
    later. Those of older sessions hold at the looks they had planned, which share `alpha`.

    Returns: EFFECTS: one row per arm (all but the baseline) and metric. Rows of the control are a family of their
    own. `ratio`, `low`, `high` are null without enough rounds in which both have a value.

    Does not apply to other machines, thread counts, sizes or versions of the indicator.
    Source: confidence sequences (`workbench.stats.verdicts`), or the paired t interval on logarithms with alpha split
    evenly over looks (Bonferroni); Holm (1979).
    """
    session = observations.session
    rows = list(_iterate_effect_rows(observations, rounds))
    control = {row.metric.name: row for row in rows if row.arm.copy_number}
    loads: dict[tuple[str, str], dict[str, Any]] = {}
    table: list[dict[str, Any]] = []
    for of_control in (False, True):
        family = [row for row in rows if bool(row.arm.copy_number) == of_control]
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
    """Whether every effect but the control's is decided, so that more rounds would not help."""
    import polars as pl

    open_ = effect_table.filter(~pl.col("control") & (pl.col("verdict") == UNDECIDED) & pl.col("ratio").is_not_null())
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
    needed = None
    clock, second = ("cpu", "wall") if by_cpu else ("wall", "cpu")
    if verdict == UNDECIDED:
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
    session, problems = observations.session, _list_check_problems(observations)
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
                yield _EffectRow(
                    case.label,
                    metric,
                    arm,
                    _estimate_interval(logs, session),
                    _estimate_other(others, metric, session, arm),
                    parts.get(metric.name),
                    tuple(logs),
                    tried[arm.name, case.label] - len(arm_values),
                    problems.get((arm.name, case.label), ()),
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


def _estimate_interval(logs: Sequence[float], session: Session) -> Interval:
    estimate = sequential_log_ratio if session.method == "sequence" else paired_log_ratio
    # Half on each side: no log of two values of a table is beyond what a number can hold then.
    sides = [math.exp(log / 2) for log in logs], [math.exp(-log / 2) for log in logs]
    return estimate(*sides, level=session.level)


def _estimate_other(others: Series, metric: PlannedMetric, session: Session, arm: Arm) -> Interval | None:
    if (session.baseline, metric.name) not in others or (arm.name, metric.name) not in others:
        return None
    return _estimate_interval(_build_log_ratios(others, metric, session.baseline, arm.name), session)


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
    interval, other = row.interval, row.other
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
        "other_ratio": None if other is None else other.estimate,
        "other_low": None if other is None else other.low,
        "other_high": None if other is None else other.high,
        "cpu_part": row.cpu_part,
    }
