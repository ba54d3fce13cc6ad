"""Key numbers and next steps of a scale-test study."""

from __future__ import annotations

from typing import Any

import polars as pl

from workbench.core.formats import format_number, format_seconds
from workbench.report.display import MAX_KEY_NUMBERS, KeyNumber
from workbench.scaletest.analysis.bottlenecks import CLIENT_LIMIT, NO_ROOM
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.variants import Variants, choose_schedulers, join_names
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

_OWN_CLUSTER = (
    "To test your own cluster: `workbench scaletest plan --example` prints a scenario, and `workbench scaletest plan"
    " scenario.yaml` shows what it would do."
)


def build_key_numbers(variants: Variants, comparison: pl.DataFrame, league: pl.DataFrame) -> list[KeyNumber]:
    """The ratio of medians, each variant's sustained rate, client limits, complete gangs, p95; as many as fit.

    A kind of figure is given for all variants that have it, or for none. Of three variants and more, what the league
    table compares comes first: complete gangs, or each one's ratio of medians to the first.
    """
    limits = [row for _, run in variants.everything for row in run.limits.to_dicts() if row["kind"] == CLIENT_LIMIT]
    clients = sorted({row["client"] for row in limits})
    gangs: list[KeyNumber] = [
        (f"{name}: complete gangs", *_count_complete_gangs(variants.runs[name]))
        for name in variants.names
        if any(run.gangs.height for run in variants.runs[name])
    ]
    several = league.height > 2
    if several and league.height <= MAX_KEY_NUMBERS:
        chosen, _ = choose_schedulers(league)
        rows = sorted(league.to_dicts(), key=lambda row: row["side"] not in chosen)
        return [_scheduler_number(row, variants.runs[row["side"]][0]) for row in rows]
    groups: list[list[KeyNumber]] = [
        (gangs or _league_ratios(league)) if several else _comparison_numbers(variants, comparison),
        [number for name in variants.names for number in _rate_numbers(variants, name)],
        [("slowed by their client limit", len(clients), "clients", ", ".join(clients))] if clients else [],
        [] if several else gangs,
        _tail_numbers(variants),
    ]
    numbers: list[KeyNumber] = []
    for group in groups:
        numbers += group if len(numbers) + len(group) <= MAX_KEY_NUMBERS else []
    return numbers


def _find_median_row(variants: Variants, comparison: pl.DataFrame) -> dict[str, Any] | None:
    """Row of the comparison for the total's median; null if it has no ratio.

    `comparison`: Table COMPARISON.
    """
    rows = comparison.filter((pl.col("step") == variants.total[0]) & (pl.col("quantile") == 0.5)).to_dicts()
    return rows[0] if rows and rows[0]["ratio"] is not None else None


def _comparison_numbers(variants: Variants, comparison: pl.DataFrame) -> list[KeyNumber]:
    """Key numbers of the comparison: how many times longer one median is than the other, with interval and verdict.

    `comparison`: Table COMPARISON.
    """
    row = _find_median_row(variants, comparison)
    if row is None:
        return []
    a, b = variants.names[:2]
    longer, shorter = (a, b) if row["ratio"] >= 1 else (b, a)
    ratio, *ends = (
        value if value is None or longer == a else 1 / value for value in (row["ratio"], row["low"], row["high"])
    )
    interval = f"[{', '.join(format_number(end) for end in sorted(ends))}]" if row["low"] is not None else "no interval"
    verdict = {
        FASTER: f"{b} is faster",
        SLOWER: f"{b} is slower",
        SAME: "equivalent within 5 %",
        UNDECIDED: "not decided",
    }[row["verdict"]]
    return [(f"median, {longer} over {shorter}", ratio, "", f"{interval}, {verdict}")]


def _scheduler_number(row: dict[str, Any], first: Analysis) -> KeyNumber:
    """Key number of a scheduler: its sustained rate, its gangs and the tail of its waits; `row` is of table LEAGUE."""
    rate = first.sustainable
    upper = "" if rate.high_per_s is None else f" to {format_number(rate.high_per_s)}"
    gangs = f"{row['complete']} of {row['gangs']} gangs" if row["gangs"] else ""
    tail = "p95 wait not reached" if row["p95_s"] is None else f"p95 wait {format_seconds(row['p95_s'])}"
    more = "" if rate.low_per_s is None or upper else "or more"
    value = None if rate.low_per_s is None else f"{format_number(rate.low_per_s)}{upper}"
    return (row["side"], value, "pods/s", ", ".join(filter(None, [more, gangs, tail])))


def _league_ratios(league: pl.DataFrame) -> list[KeyNumber]:
    """Key numbers of the league: the first variant's median wait over that of each other.

    `league`: Table LEAGUE.
    """
    first, *others = league.to_dicts()
    return [
        (
            f"median, {first['side']} over {row['side']}",
            row["ratio"],
            "",
            f"[{format_number(row['low'])}, {format_number(row['high'])}], {row['verdict']}"
            if row["low"] is not None
            else str(row["reason"]),
        )
        for row in others
        if row["ratio"] is not None
    ]


def _rate_numbers(variants: Variants, name: str) -> list[KeyNumber]:
    rate = variants.runs[name][0].sustainable
    if rate.low_per_s is None:
        return []
    high = "or more" if rate.high_per_s is None else f"to {format_number(rate.high_per_s)}"
    several = any(len(runs) > 1 for runs in variants.runs.values())
    return [(f"{name}: sustained rate", rate.low_per_s, "pods/s", f"{high}, in its first run" if several else high)]


def _tail_numbers(variants: Variants) -> list[KeyNumber]:
    """p95 of each variant; the median where none reached p95."""
    tails = {name: _quantile_over_runs(variants, name, 0.95) for name in variants.names}
    medians = {name: _quantile_over_runs(variants, name, 0.5) for name in variants.names}
    label, shown = ("p95", tails) if any(values[0] is not None for values in tails.values()) else ("median", medians)
    return [(f"{name}: {label}", *figures) for name, figures in shown.items()]


def _quantile_over_runs(variants: Variants, name: str, share: float) -> tuple[float | None, str, str]:
    """Median over a variant's runs of one quantile of the total wait: value (null if a run lacks it), unit, note."""
    step, clock = variants.total
    values = [run.quantile(step, share, clock) for run in variants.runs[name]]
    sorted_values = sorted(value for value in values if value is not None)
    runs = len(values)
    if len(sorted_values) < runs:
        lost = f"more than {100 * (1 - share):g} % of its workloads were never scheduled"
        return None, "s", lost if runs == 1 else f"{lost} in {runs - len(sorted_values)} of {runs} runs"
    spread = (
        ""
        if runs == 1
        else f"; median of {runs} runs, {format_seconds(sorted_values[0])} to {format_seconds(sorted_values[-1])}"
    )
    return sorted_values[len(sorted_values) // 2], "s", f"{step}{spread}"


def _count_complete_gangs(runs: tuple[Analysis, ...]) -> tuple[float, str, str]:
    """Key number of the gangs that were complete in these runs: value, unit, note."""
    complete = sum(int(run.gangs["complete"].sum()) for run in runs)
    partial = sum(run.gangs.filter(~pl.col("complete") & (pl.col("scheduled") > 0)).height for run in runs)
    return complete, f"of {sum(run.gangs.height for run in runs)}", f"{partial} held GPUs but never became complete"


def list_next_steps(variants: Variants, comparison: pl.DataFrame, league: pl.DataFrame) -> list[str]:
    """Which variant to choose, which rate to plan with or which limit to raise, and how to test one's own cluster.

    `comparison` and `league` are the tables of these variants. Each of the three kinds is one step at most.
    """
    if variants.reasons:
        return ["Correct the reasons above and run again: these runs are not valid.", _OWN_CLUSTER]
    advice = _recommend_limits(variants) or _recommend_rate(variants)
    choice = recommend_scheduler(league) if league.height > 2 else _recommend_variant(variants, comparison)
    return [*choice, *advice, _OWN_CLUSTER]


def recommend_scheduler(league: pl.DataFrame) -> list[str]:
    """Recommend, of three or more schedulers, those with the best gangs, and of these the ones not found slower.

    `league`: Table LEAGUE. Verdicts are against its first row, so that others are not told apart from each other.
    """
    chosen, dropped = choose_schedulers(league)
    if not chosen:
        return ["Choose by what matters: no scheduler has both the most complete gangs and the fewest deadlocked."]
    reasons = f" ({'; '.join(dropped)})" if dropped else ""
    if len(chosen) == 1:
        return [f"Prefer {chosen[0]} for a load like this one{reasons}."]
    return [f"Choose among {join_names(chosen)} by other criteria, or run more turns to distinguish them{reasons}."]


def _recommend_variant(variants: Variants, comparison: pl.DataFrame) -> list[str]:
    """Recommend the faster of the two variants, or how to decide; empty with fewer than two.

    `comparison`: Table COMPARISON.
    """
    row = _find_median_row(variants, comparison)
    if len(variants.names) < 2 or row is None:
        return []
    a, b = variants.names[:2]
    if row["verdict"] == UNDECIDED:
        return [f"Run more turns to decide between {a} and {b}: `workbench scaletest run --repeat 5`."]
    if row["verdict"] == SAME:
        return [f"Choose between {a} and {b} by other criteria: their medians are equivalent."]
    faster, slower = (b, a) if row["verdict"] == FASTER else (a, b)
    complete = {name: _complete_gang_fraction(variants, name) for name in (faster, slower)}
    if complete[slower] > complete[faster]:
        gangs = (
            f"{slower} if complete gangs matter ({100 * complete[slower]:.0f} % against {100 * complete[faster]:.0f} %)"
        )
        return [f"Choose by workload: {faster} if waiting time matters, {gangs}."]
    return [f"Prefer {faster} for a load like this one: its workloads wait less."]


def _complete_gang_fraction(variants: Variants, name: str) -> float:
    gangs = pl.concat([run.gangs for run in variants.runs[name]])
    return int(gangs["complete"].sum()) / gangs.height if gangs.height else 0.0


def _recommend_limits(variants: Variants) -> list[str]:
    """The first client limit that slowed a first run: a setting can raise it."""
    for name in variants.names:
        for row in variants.runs[name][0].limits.filter(pl.col("kind") == CLIENT_LIMIT).iter_rows(named=True):
            limit = f"the client limit of {row['client'] or 'the client'} ({format_number(row['configured_per_s'])}/s)"
            return [f"Raise {limit} before you judge the scheduler: it slowed {row['step']} in the runs of {name}."]
    return []


def _recommend_rate(variants: Variants) -> list[str]:
    """Recommend the rate that each variant sustained in its first run, or how to find one."""
    rates = {name: variants.runs[name][0].sustainable.low_per_s for name in variants.names}
    texts = [f"{format_number(rate)} pods/s with {name}" for name, rate in rates.items() if rate is not None]
    if texts:
        return [
            f"Do not plan above the proven rates, {', '.join(texts)}: `workbench run capacity_plan -p scaletest=RUN` "
            "(RUN: this report's folder)."
        ]
    is_full = any((variants.runs[name][0].limits["kind"] == NO_ROOM).any() for name in variants.names)
    fix = "more GPUs or a smaller load, because pods waited for room" if is_full else "a scenario with a ramp of rates"
    return [f"To find the sustainable rate, use {fix}."]
