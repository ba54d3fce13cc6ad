"""Runs and comparisons as terminal text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import polars as pl

from workbench.console.tables import format_cells, format_table
from workbench.console.terminal import print_block, print_text
from workbench.core.formats import format_ends, format_number, format_seconds
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.variants import ONE_RUN_NOTE, Variants, build_league_table, describe_league
from workbench.stats.verdicts import DIFFERENT

SHOWN_STEPS = (
    "lateness",
    "admission",
    "job creation",
    "queue wait",
    "quota admission",
    "first pod",
    "last pod",
    "podgroup",
    "scheduling",
    "gang completion",
)
TOTAL_STEPS = ("start", "sent to decided", "due to scheduled", "due to running")
_SIGNS = {"client": "", "server": "*", "mixed": "**"}
_CLOCKS = {
    "server": "by the cluster's clock, mostly in whole seconds",
    "mixed": "from our clock to the cluster's, off by the clock offset",
}


def print_run(run: Analysis) -> None:
    """Print why the run is invalid, the answer, the steps at p50, p95 and p99, findings, warnings, the verdict."""
    for line in run.reasons:
        print_text(f"invalid: {line}")
    print_text(run.answer)
    print_text(run.explanation)
    steps = {step: found for step in (*SHOWN_STEPS, *TOTAL_STEPS) if (found := _find_step_quantiles(run, step))}
    if steps:
        # Times of a step, how many there are and how many never completed it, and the sign of its clock.
        rows = [
            [
                step,
                *(format_seconds(values[share]["value_s"]) for share in (0.5, 0.95, 0.99)),
                f"{values[0.5]['n']:,}",
                f"{values[0.5]['missing']:,}" if values[0.5]["missing"] else "",
                _SIGNS[values[0.5]["clock"]],
            ]
            for step, values in steps.items()
        ]
        headers = ("step", "p50", "p95", "p99", "n", "not yet", "clock")
        columns = [(head, cells) for head, *cells in zip(headers, *rows, strict=True) if any(cells)]
        right = [head not in ("step", "clock") for head, _ in columns]
        lines = format_cells([cells for _, cells in columns], [head for head, _ in columns], right=right)
        print_block("\n".join(lines))
        signs = {row[-1] for row in rows}
        if any(row[-2] for row in rows):
            print_text("not yet: not completed by the end of the run; they count as infinitely slow")
        for clock, legend in _CLOCKS.items():
            if _SIGNS[clock] in signs:
                print_text(f"{_SIGNS[clock]} {legend}")
    print_text("")
    for line in (*run.findings, *(f"warning: {line}" for line in run.warnings)):
        print_text(line)
    print_text(f"The run is {'invalid' if run.reasons else 'valid'}.")


def _find_step_quantiles(run: Analysis, step: str) -> dict[float, dict[str, Any]]:
    """Quantiles of a step by the best clock: ours, else the cluster's, else mixed."""
    for clock in _SIGNS:
        rows = run.quantiles.filter((pl.col("step") == step) & (pl.col("clock") == clock))
        if rows.height:
            return {row["quantile"]: row for row in rows.iter_rows(named=True)}
    return {}


def print_comparison(variants: Variants, comparison: pl.DataFrame, *, all_steps: bool) -> None:
    """Print the rows with a difference (or all rows), and how many are hidden.

    `comparison`: Table COMPARISON.
    """
    a, b = variants.names[:2]
    runs = len(variants.pairs)
    level = 100 * comparison["level"][0] if comparison.height else 95
    print_text(f"{b} against {a}: {runs} run(s) each, of one plan. Above 1, {b} is faster; intervals of {level:g} %.")
    if len(variants.names) > 2 or any(run.gangs.height for _, run in variants.everything):
        _print_league(build_league_table(variants))
    never = (pl.col("a_never") > 0) | (pl.col("b_never") > 0)
    is_shown = pl.col("verdict").is_in(DIFFERENT) | never
    shown = comparison if all_steps or runs == 1 else comparison.filter(is_shown)
    if shown.height:
        rows = [
            [
                row["step"],
                f"p{100 * row['quantile']:g}",
                format_seconds(row["a_s"]),
                format_seconds(row["b_s"]),
                "" if row["ratio"] is None else format_number(row["ratio"]),
                "" if row["low"] is None else format_ends(row["low"], row["high"]),
                row["verdict"],
                (row["reason"] or "") if runs > 1 or row["ratio"] is None else "",
            ]
            for row in shown.iter_rows(named=True)
        ]
        headers = ("step", "at", a, b, "ratio", "interval", "verdict", "why")
        lines = format_table(
            rows, headers, right=(a, b, "ratio", "interval"), rank=("", "verdict", "ratio", "interval")
        )
        print_block("\n".join(lines))
    # Print how many rows are hidden, and what limits the comparison.
    hidden = comparison.height - shown.height
    print_text("")
    if not comparison.height:
        print_text(
            "There is no step to compare: " + ("no turn has a run of both." if not variants.pairs else "nothing began.")
        )
    if hidden:
        print_text(
            f"{hidden} {'more ' if hidden < comparison.height else ''}rows show no significant difference (see --all)."
        )
    if len(variants.pairs) == 1 and comparison.height:
        print_text(f"No verdict: {ONE_RUN_NOTE}. Use `run --repeat 5`.")
    if variants.imported:
        print_text("warning: imported files do not show whether these runs had the same plan.")
    for line in variants.reasons:
        print_text(f"invalid: {line}")


def _print_league(league: pl.DataFrame) -> None:
    """Print all schedulers side by side; the rows below are of the first two.

    `league`: Table LEAGUE.
    """
    print_text(describe_league(league))
    heads = ("side", "gangs", "stuck", "held GPU s", "p50", "p95", "ratio", "verdict", "why")
    rows = [
        [
            row["side"],
            f"{row['complete']}/{row['gangs']}",
            f"{row['deadlocked']}",
            format_number(row["held_gpu_s"]),
            format_seconds(row["p50_s"]),
            format_seconds(row["p95_s"]),
            "" if row["ratio"] is None else format_number(row["ratio"]),
            row["verdict"] or "",
            row["reason"] or "",
        ]
        for row in league.iter_rows(named=True)
    ]
    print_block("\n".join(format_table(rows, heads, right=heads[1:-2], rank=("verdict",))))


def format_comparison_json(variants: Variants, comparison: pl.DataFrame) -> str:
    """JSON: variants, runs, comparison, reasons."""
    document: dict[str, Any] = {
        "sides": list(variants.names),
        "runs": {name: [str(run.folder) for run in variants.runs[name]] for name in variants.names},
        "comparison": comparison.to_dicts(),
        "league": build_league_table(variants).to_dicts(),
        "answers": {name: [run.answer for run in variants.runs[name]] for name in variants.names},
        "reasons": list(variants.reasons),
    }
    return json.dumps(document)


def format_run_json(run: Analysis) -> str:
    """JSON: answer, verdict, sustainable rate, quantiles and limits."""
    rate = run.sustainable
    document: dict[str, Any] = {
        "folder": str(run.folder),
        "run": run.conditions.run,
        "answer": run.answer,
        "explanation": run.explanation,
        "verdict": "invalid" if run.reasons else "valid",
        "reasons": list(run.reasons),
        "warnings": list(run.warnings),
        "sustainable_pods_per_s": {"low": rate.low_per_s, "high": rate.high_per_s, "reason": rate.reason},
        "quantiles": run.quantiles.to_dicts(),
        "limits": run.limits.to_dicts(),
        "findings": run.findings,
        "replay": None if run.replay is None else dataclasses.asdict(run.replay),
        "queue": None if run.queue is None else dataclasses.asdict(run.queue),
        "obstacles": run.obstacles.to_dicts(),
        "api_calls": run.calls.head(20).to_dicts(),
        "pod_startup": run.startup.to_dicts(),
    }
    return json.dumps(document)
