"""Runs and comparisons in words and small tables, for a terminal."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from workbench.formats import number, seconds
from workbench.scaletest.analysing import Analysis
from workbench.scaletest.comparing import ONE_RUN
from workbench.scaletest.sides import Sides
from workbench.terminal import say

SHOWN = ("lateness", "admission", "job creation", "first pod", "last pod", "podgroup", "scheduling", "gang completion")
TOTALS = ("start", "sent to decided", "due to scheduled", "due to running")
_SIGNS = {"client": "", "server": "*", "mixed": "**"}
_CLOCKS = {
    "server": "by the cluster's clock: most of its times are whole seconds",
    "mixed": "from our clock to the cluster's: off by their distance",
}


def say_run(found: Analysis) -> None:
    """The answer, the steps at p50, p95 and p99, what held it up, and what a reader must know."""
    say(found.answer)
    lines = [_step(step, values) for step in (*SHOWN, *TOTALS) if (values := _values(found, step))]
    if lines:
        say(f"\n  {'step':<18}{'p50':>10}{'p95':>10}{'p99':>10}{'n':>9}{'not yet':>9}")
        say("\n".join(line for line, _, _ in lines))
        _say_legend({clock for _, clock, _ in lines}, missing=any(missing for _, _, missing in lines))
    say("")
    for line in (*found.limits["sentence"].to_list(), *(f"note: {one}" for one in found.warnings)):
        say(line)
    for line in found.reasons:
        say(f"invalid: {line}")


def _step(step: str, values: dict[float, dict[str, Any]]) -> tuple[str, str, bool]:
    """A step's line, its clock, and whether somebody did not get there."""
    times = "".join(f"{seconds(values[share]['value_s']):>10}" for share in (0.5, 0.95, 0.99))
    missing, clock = values[0.5]["missing"], values[0.5]["clock"]
    counts = f"{values[0.5]['n']:>9,}{f'{missing:,}' if missing else '':>9}"
    return f"  {step:<18}{times}{counts} {_SIGNS[clock]}".rstrip(), clock, missing > 0


def _say_legend(clocks: set[str], *, missing: bool) -> None:
    if missing:
        say("  not yet: not by the end of the run; they count as infinitely slow, so a quantile may have no value (–)")
    for clock, told in _CLOCKS.items():
        if clock in clocks and _SIGNS[clock]:
            say(f"  {_SIGNS[clock]} {told}")


def _values(found: Analysis, step: str) -> dict[float, dict[str, Any]]:
    """Quantiles of a step by the best clock that it has: ours, else the cluster's, else one of each."""
    for clock in _SIGNS:
        own = found.quantiles.filter((pl.col("step") == step) & (pl.col("clock") == clock))
        if own.height:
            return {row["quantile"]: row for row in own.iter_rows(named=True)}
    return {}


def say_comparison(found: Sides, comparison: pl.DataFrame, *, all_steps: bool) -> None:
    """The rows that are told apart (or all), with the ratio the way people say it, and why the others are not."""
    a, b = found.names[:2]
    runs = len(found.pairs)
    level = 100 * comparison["level"][0] if comparison.height else 95
    say(f"{b} against {a}: {runs} run(s) each, of one plan. Above 1, {b} is faster; intervals of {level:g} %.")
    for name in found.names[2:]:
        say(f"{name} was measured, too, and is not compared here.")
    never = (pl.col("a_never") > 0) | (pl.col("b_never") > 0)
    told = pl.col("verdict").is_in(["FASTER", "SLOWER"]) | never
    shown = comparison if all_steps or runs == 1 else comparison.filter(told)
    if shown.height:
        say(f"\n  {'step':<18}{'':<5}{a[-19:]:>20}{b[-19:]:>20}{'ratio':>10}  {'interval':<23}verdict")
        say("\n".join(_comparison_row(row, told_why=runs > 1) for row in shown.iter_rows(named=True)))
    _say_rest(found, comparison, comparison.height - shown.height)


def _comparison_row(row: dict[str, Any], *, told_why: bool) -> str:
    ends = "" if row["low"] is None else f"[{number(row['low'])}, {number(row['high'])}]"
    ratio = "" if row["ratio"] is None else number(row["ratio"])
    sides = f"{seconds(row['a_s']):>20}{seconds(row['b_s']):>20}"
    why = f": {row['reason']}" if row["reason"] and (told_why or row["ratio"] is None) else ""
    step = f"{row['step']:<18}{'p' + format(100 * row['quantile'], 'g'):<5}"
    return f"  {step}{sides}{ratio:>10}  {ends:<23}{row['verdict']}{why}"


def _say_rest(found: Sides, comparison: pl.DataFrame, hidden: int) -> None:
    """What is not in the table, and what to know of it."""
    say("")
    if not comparison.height:
        say("There is no step to compare: " + ("no turn has a run of both." if not found.pairs else "nothing began."))
    if hidden:
        say(f"{hidden} {'more ' if hidden < comparison.height else ''}rows are not told apart (--all shows them).")
    if len(found.pairs) == 1 and comparison.height:
        say(f"Nothing is claimed: {ONE_RUN}. `run --repeat 5` would tell.")
    if found.imported:
        say("note: nobody knows whether these runs had one plan: imported files do not tell.")
    for line in found.reasons:
        say(f"invalid: {line}")


def comparison_json(found: Sides, comparison: pl.DataFrame) -> str:
    """One document: sides, runs, rows, reasons."""
    told: dict[str, Any] = {
        "sides": list(found.names),
        "runs": {name: [str(one.folder) for one in found.runs[name]] for name in found.names},
        "comparison": comparison.to_dicts(),
        "reasons": list(found.reasons),
    }
    return json.dumps(told)


def run_json(found: Analysis) -> str:
    """One document: the answer, the verdict, the sustainable rate, quantiles and limits."""
    rate = found.sustainable
    told: dict[str, Any] = {
        "folder": str(found.folder),
        "run": found.test.run,
        "answer": found.answer,
        "verdict": "invalid" if found.reasons else "valid",
        "reasons": list(found.reasons),
        "warnings": list(found.warnings),
        "sustainable_pods_per_s": {"low": rate.low_per_s, "high": rate.high_per_s, "reason": rate.reason},
        "quantiles": found.quantiles.to_dicts(),
        "limits": found.limits.to_dicts(),
    }
    return json.dumps(told)
