"""Judgement of a session: may anything be concluded from it, and is anything decided?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.indicators.analysis.observations import Observations, describe_load
from workbench.indicators.tables import DRIFT, JUDGEMENTS
from workbench.stats import MAX_PAIRS, Interval, adjust_holm, count_required_pairs, decide_beyond
from workbench.stats.verdicts import DECIDED, DIFFERENT

if TYPE_CHECKING:
    import polars as pl

MIN_ROUNDS = 5
DRAWS = 10_000
# Values that are simulated at once, so that a long session needs no more memory than a short one.
MAX_SIMULATED = 1_000_000
ALPHA = 0.05
SHORTEST = 2
MIN_DRIFT_ROUNDS = 6
Floats = npt.NDArray[np.float64]


def build_judgement(
    observations: Observations,
    effect_table: pl.DataFrame,
    drift_table: pl.DataFrame,
    notes: Sequence[str] = (),
) -> pl.DataFrame:
    """Judge whether conclusions may be drawn from this session.

    It is valid when every arm has its answer: values of the same work as the baseline's, and a decided time (or another
    metric where it has none), by either clock. It is not even `sound` without a control, with a control that differs
    from the baseline or has fewer than five rounds beside it, when measured in blocks or on several machines, and with
    several thread counts or versions of an indicator.
    Warnings of a valid session are listed as reasons, too.

    `effect_table` and `drift_table` are EFFECTS and DRIFT of the session; `notes` are on answers. Returns: JUDGEMENTS,
    one row.
    """
    import polars as pl

    session, runs = observations.session, observations.runs
    # Why nothing can be concluded, from tables EFFECTS and RUNS; empty where nothing stands against it.
    reasons = []
    if session.design != "rounds":
        reasons.append("measured in blocks, one stack after the other: drift looks like a difference of stacks")
    if session.control is not None:
        reasons += _check_control(effect_table)
    else:
        reasons.append("no control: the measurement error of this session is unknown")
    reasons = reasons + _list_mixed_conditions(runs, planned_threads=any(arm.threads for arm in session.arms))
    sound = not reasons
    others = effect_table.filter(~pl.col("control"))
    decided = others.filter(pl.col("verdict").is_in(DECIDED)).height
    reasons = _list_spoiled_reasons(others) + reasons
    if sound:
        reasons += _list_open_reasons(others)
    verdict = "invalid" if reasons else "valid"
    changed = drift_table.filter(pl.col("changed"))
    for row in changed.iter_rows(named=True):
        change = f"{row['factor']:.2f} times the value from round {row['change_at']} on"
        reasons.append(f"the machine changed: {row['metric']} of the baseline has {change}")
    failed = runs.filter(pl.col("status") != "ok")
    for (arm, case), of_arm in failed.sort("arm", "case").group_by("arm", "case", maintain_order=True):
        total = runs.filter((pl.col("arm") == arm) & (pl.col("case") == case)).height
        sentence = describe_failures(of_arm, total)
        reasons += [] if any(sentence in reason for reason in reasons) else [f"{arm}, {case}: {sentence}"]
    if open_ := runs.filter(pl.col("network") != "isolated").height:
        reasons.append(f"network not isolated in {open_} of {runs.height} run(s)")
    n_rounds = int(runs["round"].n_unique())
    counts = {"compared": others.height, "decided": decided, "sound": sound}
    reasons += [*_list_unequal_reasons(others), *notes]
    row = {
        **counts,
        "rounds": n_rounds,
        "runs": runs.height,
        "failed": failed.height,
        "hosts_changed": changed.height > 0,
    }
    return JUDGEMENTS.frame([{"session_id": session.session_id, "verdict": verdict, "reasons": reasons, **row}])


def describe_failures(failed: pl.DataFrame, total: int) -> str:
    """How many runs of an arm failed, and how most of them did; `failed` is RUNS."""
    (status, reason), count = Counter(failed.select("status", "reason").iter_rows()).most_common(1)[0]
    why = reason if reason and str(reason).startswith(status) else f"{status}: {reason}" if reason else status
    more = f", {count} of them by" if count < failed.height else ":"
    return f"{failed.height} of {total} run(s) without values{more} {why}"


def _list_spoiled_reasons(others: pl.DataFrame) -> list[str]:
    """Comparisons that are not of the same work, a sentence for each arm; `others` are rows without the control."""
    sentences = (
        others.filter(others["spoiled_by"].is_not_null()).select("arm", "spoiled_by").unique(maintain_order=True)
    )
    return [f"{arm}: not compared: {spoiled}" for arm, spoiled in sentences.iter_rows()]


def _list_open_reasons(others: pl.DataFrame) -> list[str]:
    """Arms without an answer: no time of theirs is decided, by either clock; `others` are rows without the control."""
    import polars as pl

    whole = others.filter(pl.col("spoiled_by").is_null())
    open_ = []
    for (arm,), rows in whole.group_by("arm", maintain_order=True):
        timed = rows.filter(pl.col("cpu_part").is_not_null())
        rows = timed if timed.height else rows
        if not rows["decided_by"].count():
            open_.append((str(arm), rows))
    if not open_:
        return []
    if not whole["decided_by"].count() and whole.height == others.height:
        # Say that no comparison is decided, with the first reason; `others` are rows of EFFECTS without the control.
        count, whys = others.height, [reason for reason in others["undecided_because"].to_list() if reason]
        subject = "the comparison is undecided" if count == 1 else f"all {count} comparisons are undecided"
        undecided = f"nothing is known yet: {subject}" + (f": {whys[0]}" if whys else "")
        return [undecided]
    return [
        f"not known yet for {arm}: {rows['metric'][0]} is undecided: {rows['undecided_because'][0]}"
        for arm, rows in open_
    ]


def _list_unequal_reasons(others: pl.DataFrame) -> list[str]:
    """Claims that rest on unequal conditions, a sentence per arm; `others` is EFFECTS without the control."""
    import polars as pl

    unequal = others.filter(pl.col("unequal").list.len() > 0)
    sentences: dict[str, str] = {}
    for arm, conditions in unequal.select("arm", "unequal").iter_rows():
        sentences.setdefault(arm, f"{arm} runs under other conditions than the baseline: {'; '.join(conditions)}")
    return list(sentences.values())


def _check_control(table: pl.DataFrame) -> list[str]:
    """Problems of the control, for metrics with at least one comparison; `table` is EFFECTS."""
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


def _list_mixed_conditions(runs: pl.DataFrame, *, planned_threads: bool) -> list[str]:
    """Conditions that changed within the session, so that its figures cannot be compared; `runs` is RUNS."""
    import polars as pl

    mixed = []
    for column, noun in (("hardware_key", "machines"), ("threads", "thread counts")):
        if column == "threads" and planned_threads:
            continue
        if (values := runs[column].unique().sort().to_list())[1:]:
            mixed.append(f"measured with several {noun}: {', '.join(map(str, values))}")
    versions = runs.group_by("case").agg(pl.col("indicator_version").unique().sort()).sort("case")
    for case, values in versions.iter_rows():
        if values[1:]:
            mixed.append(f"{case} was measured with several versions of its indicator: {', '.join(values)}")
    return mixed


def detect_drift(observations: Observations) -> pl.DataFrame:
    """Find the round at which the baseline's values changed, and by which factor.

    The change is the cut with the largest difference of mean logs before and after, over its standard error. Its p
    value comes from simulated steady noise, adjusted by Holm over the metrics.

    A slow drift is found too, as a change somewhere in its middle. Ratios within rounds are not biased by it; absolute
    values of the session mean little then. Noise is assumed to be normal on logarithms, since a permutation of ten
    rounds cannot be significant among several metrics. With heavier tails (t with 3 degrees of freedom) a steady
    machine is flagged somewhat more often; the tests have both rates. Source: the likelihood-ratio statistic of a
    single change in the mean.
    """
    session = observations.session
    series: dict[str, dict[int, float]] = {}
    for arm, metric, number, value in observations.values.select("arm", "metric", "round", "value").iter_rows():
        if arm == session.baseline and value > 0:
            series.setdefault(metric, {})[number] = value
    names = [metric.name for case in session.cases for metric in case.metrics]
    cuts = [_find_best_cut(series.get(name, {})) for name in names]
    adjusted = adjust_holm([cut["p_value"] for cut in cuts])
    rows = []
    for name, cut, p_value in zip(names, cuts, adjusted, strict=True):
        changed = p_value is not None and p_value <= ALPHA
        identity = {"session_id": session.session_id, "metric": name}
        rows.append({**identity, **cut, "adjusted_p_value": p_value, "changed": changed})
    return DRIFT.frame(rows)


def _find_best_cut(values: dict[int, float]) -> dict[str, Any]:
    """The change of the baseline's level that is most likely in a series, as cells of DRIFT; null with too few rounds.

    `values`: Value by number of the round.
    """
    rounds = sorted(values)
    logs = np.log([values[number] for number in rounds])
    if len(logs) < MIN_DRIFT_ROUNDS:
        return {"n": len(logs), "change_at": None, "factor": None, "p_value": None}
    statistics = _compute_cut_statistics(logs[None, :])[0]
    place = int(np.argmax(statistics))
    at = place + SHORTEST
    as_large = int((_simulate_null_statistics(len(logs)) >= statistics[place]).sum())
    return {
        "n": len(logs),
        "change_at": rounds[at],
        "factor": float(np.exp(logs[at:].mean() - logs[:at].mean())),
        "p_value": (1 + as_large) / (1 + DRAWS),
    }


@lru_cache(maxsize=64)
def _simulate_null_statistics(n: int) -> Floats:
    """Simulate the largest cut statistic of n rounds of steady normal noise, `DRAWS` times; shape (draws,)."""
    random = np.random.default_rng(n)
    at_once = max(1, MAX_SIMULATED // n)
    parts = [min(at_once, DRAWS - begin) for begin in range(0, DRAWS, at_once)]
    return np.concatenate([_compute_cut_statistics(random.standard_normal((part, n))).max(axis=1) for part in parts])


def _compute_cut_statistics(rows: Floats) -> Floats:
    """Difference of the means before and after every possible cut, in standard errors with a common variance.

    `rows`: Series of logs, (series, rounds). Returns: (series, cuts); cut j leaves `SHORTEST` + j rounds before it.
    """
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


def reach_percent(interval: Interval) -> float | None:
    """Largest difference that the interval allows, in percent; null without one.

    >>> round(reach_percent(Interval(1.0, 0.8, 1.1, 0.95, 10, "")), 6)
    25.0
    """
    if interval.low is None or interval.high is None:
        return None
    return 100 * (max(interval.high, 1 / interval.low) - 1)


def is_told_apart(control: Interval | None, margin: float) -> bool:
    """Whether the two copies of the baseline differ beyond the margin."""
    return control is not None and decide_beyond([control], [margin])[0].verdict in DIFFERENT


def find_obstacle(control: Interval | None, margin: float, *, diluted: bool) -> str | None:
    """Find what forbids SAME although the interval lies within the margin; null if nothing does.

    `control` is null where there is none: then the whole session is invalid.
    """
    if diluted:
        return "CPU time is of whole runs, in which a difference of the measured part is diluted"
    if control is None:
        return None
    reach = reach_percent(control)
    if reach is None:
        return "the control has no interval"
    if reach > 100 * margin * (1 + 1e-9):
        return f"the control, the same stack twice, is uncertain to ±{format_percent(reach)}, beyond the margin"
    return None


def count_rounds(limit: Interval, margin: float, family: int, interval: Interval) -> int | None:
    """Rounds after which the interval that limits the verdict would likely decide; null when unknown or too many."""
    needed = count_required_pairs(limit, margin, family)
    return None if needed is None else max(needed, interval.n + 1)


def explain(
    interval: Interval, margin: float, *, obstacle: str | None, load: Mapping[str, Any], rounds: int | None
) -> str:
    """Why a row is undecided: what limits it, what the machine did, and how many rounds would tell."""
    reach = reach_percent(interval)
    if obstacle is not None:
        parts = [obstacle]
    elif reach is None:
        parts = [interval.reason or "no interval"]
    else:
        parts = [f"the interval reaches ±{format_percent(reach)}, the margin is {100 * margin:.2g} %"]
    parts += describe_load(dict(load))
    if rounds is not None:
        parts.append(f"about {rounds} rounds would likely decide")
    elif reach is not None and obstacle is None:
        parts.append(f"more than {MAX_PAIRS:,} rounds would be needed, or the ratio is at the margin")
    return "; ".join(parts)


def format_percent(value: float) -> str:
    """A percentage with one digit below 10, none above.

    >>> format_percent(2.345), format_percent(26.2)
    ('2.3 %', '26 %')
    """
    return f"{value:.{1 if value < 10 else 0}f} %"
