"""The history of a notebook's runs as an HTML page, as text for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import charts
from workbench.console.tables import format_table
from workbench.core.formats import format_moment, format_number
from workbench.report import display
from workbench.runs.compare_page import (
    PageCell,
    build_interval_document,
    build_run_document,
    format_interval,
    write_run_page,
)
from workbench.runs.history import FigureHistory, RunHistory
from workbench.runs.levels import Fact, FigureLevels, LevelChange
from workbench.runs.threshold_gate import format_threshold_summary
from workbench.stats.change_points import MIN_POINTS, MIN_SEGMENT

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from workbench.runs.catalogue import StoredRun

MAX_LINES = 20
# Figures that are told of a history in which none moved.
MAX_FLAT = 3
MAX_CHARTS = 8
MAX_TABLE_ROWS = 200
MAX_FACTS = 4
MAX_FACT_CHARS = 60


def format_history(history: RunHistory) -> str:
    """The history in lines, in the order of its page: answer, changes of level, figures that moved, runs."""
    lines = [history.answer]
    if history.levels.n_searched:
        lines += ["", *format_levels(history)]
    moved = [figure for figure in history.figures if figure.n_told_apart]
    shown = (moved or list(history.figures[:MAX_FLAT]))[:MAX_LINES]
    for figure in shown:
        # The values of one figure by run, with its verdicts.
        rows = [
            (
                run.run_id,
                format_interval(value),
                f"not compared: {describe_state(run)}" if run.objection else verdict or "",
            )
            for run, value, verdict in zip(history.runs, figure.values, figure.verdicts, strict=True)
            if value is not None
        ]
        lines += [
            "",
            f"{figure.name}{f' ({figure.unit})' if figure.unit else ''}",
            *[f"    {line}" for line in format_table(rows)],
        ]
    if len(history.figures) > len(shown):
        n_flat = len(history.figures) - len(moved)
        lines += ["", f"{n_flat} of {len(history.figures)} figures did not move: --figure TEXT chooses, --json has all"]
    for place, run in enumerate(history.runs):
        lines += ["", f"{run.run_id}  {run.state}, {run.verdict or 'no verdict'}{_format_gate(run)}"]
        lines += [f"    not compared: {run.objection}"] if run.objection else []
        lines += [f"    {describe_fact(fact)}" for fact in history.facts[place][:MAX_FACTS]]
        if len(history.facts[place]) > MAX_FACTS:
            lines.append(f"    and {len(history.facts[place]) - MAX_FACTS} more changes")
    return "\n".join(lines)


def format_levels(history: RunHistory) -> list[str]:
    """Changes of level in lines, with what else changed there; the newest first."""
    levels = history.levels
    counted = f"{levels.n_searched} figures in {MIN_POINTS} valid runs or more"
    told = [(figure, change) for figure in levels.figures for change in reversed(figure.changes)]
    if not told:
        return [f"No change of level is shown ({counted})."]
    lines = [f"Changes of level ({counted}):"]
    for figure, change in told[:MAX_LINES]:
        lines.append(f"    {describe_level_change(history, figure, change)}")
        lines += [f"        there: {describe_fact(fact)}" for fact in change.facts[:MAX_FACTS]]
        if len(change.facts) > MAX_FACTS:
            lines.append(f"        there: {len(change.facts) - MAX_FACTS} more changes")
        if change.shape in ("step", "outlier") and not change.facts:
            lines.append("        there: nothing else that the records know")
    if len(told) > MAX_LINES:
        lines.append(f"    and {len(told) - MAX_LINES} more changes: --figure TEXT chooses, --json has all")
    if levels.n_left_out:
        lines.append(f"    {levels.n_left_out} figures are not searched: --figure TEXT chooses")
    return lines


def describe_level_change(history: RunHistory, figure: FigureLevels, change: LevelChange) -> str:
    """A change of level as a sentence without a full stop: what it was, what it is, since when, and by how much."""
    first, last = (history.runs[place].run_id for place in (change.first, change.last))
    unit = f" {figure.unit}" if figure.unit else ""
    before, after = f"{format_number(change.before)}{unit}", f"{format_number(change.after)}{unit}"
    since = first if first == last else f"a run from {first} to {last}"
    shown = format_interval(change.change)
    size = f"{shown} times" if change.is_ratio else f"a difference of {shown}{unit}"
    size += f", {effect}" if (effect := find_effect(figure, change)) else ""
    if change.shape == "outlier":
        where = f"run {last}" if first == last else f"the runs from {first} to {last}"
        text = f"{figure.name} is {after} in {where}, and its level {before} ({size})"
        return f"{text}: an outlier, until {MIN_SEGMENT} runs show a level"
    if change.shape == "step":
        return f"{figure.name} is {after} since {since}, and was {before} before ({size})"
    how = "drifted" if change.shape == "drift" else "went, by a step or a drift,"
    return f"{figure.name} {how} from {before} to {after} from run {first} to run {last} ({size})"


def find_effect(figure: FigureLevels, change: LevelChange) -> str:
    """better or worse; empty where the table does not say which direction is good."""
    good = {"lower": "LOWER", "higher": "HIGHER"}.get(figure.better)
    return "" if good is None else "better" if good == change.verdict else "worse"


def describe_state(run: StoredRun) -> str:
    """invalid, no verdict, or how the run ended."""
    return run.verdict or "no verdict" if run.state == "succeeded" else run.state


def describe_fact(fact: Fact) -> str:
    """A change beside the figures, in one line.

    >>> describe_fact(("version", "polars", "1.0", "2.0"))
    'version polars: 1.0 -> 2.0'
    """
    kind, name, before, after = fact
    if kind == "column":
        return f"table {name}: {after}"
    sides = ("-" if text is None else text[:MAX_FACT_CHARS] for text in (before, after))
    return f"{kind} {name}: {' -> '.join(sides)}"


def _format_gate(run: StoredRun) -> str:
    gate = run.record.get("thresholds")
    return f", thresholds: {format_threshold_summary(gate)}" if isinstance(gate, Mapping) else ""


def build_history_document(history: RunHistory) -> dict[str, Any]:
    """The history as JSON: runs with their changes, figures with values and verdicts by run."""
    return {
        "answer": history.answer,
        "n_left_out": history.n_left_out,
        "runs": [
            build_run_document(run) | {"thresholds": run.record.get("thresholds")} | {"changes": _build_facts(facts)}
            for run, facts in zip(history.runs, history.facts, strict=True)
        ],
        "figures": [
            {
                "table": figure.table,
                "row": figure.row,
                "column": figure.column,
                "unit": figure.unit,
                "values": [None if value is None else build_interval_document(value) for value in figure.values],
                "verdicts": list(figure.verdicts),
            }
            for figure in history.figures
        ],
        "levels": {
            "n_figures": history.levels.n_searched,
            "n_left_out": history.levels.n_left_out,
            "figures": [_build_level_document(history, figure) for figure in history.levels.figures],
        },
    }


def _build_level_document(history: RunHistory, figure: FigureLevels) -> dict[str, Any]:
    names = ("table", "row", "column", "unit", "better")
    changes = [
        {
            "shape": change.shape,
            "verdict": change.verdict,
            "effect": find_effect(figure, change) or None,
            "first_run": history.runs[change.first].run_id,
            "last_run": history.runs[change.last].run_id,
            "before": change.before,
            "after": change.after,
            "ratio" if change.is_ratio else "difference": build_interval_document(change.change),
            "changes": _build_facts(change.facts),
        }
        for change in figure.changes
    ]
    return {name: getattr(figure, name) for name in names} | {"n_runs": len(figure.places), "changes": changes}


def _build_facts(facts: Sequence[Fact]) -> list[dict[str, str | None]]:
    return [dict(zip(("kind", "name", "before", "after"), fact, strict=True)) for fact in facts]


def write_history_page(history: RunHistory, path: str | Path) -> Path:
    """Write the history as one page that needs no network, whole or not at all."""
    from workbench.charts.renderer import build_mime_bundle

    cells: list[PageCell] = ["# How did the figures go over the runs?"]
    invalid = sum(bool(run.objection) for run in history.runs)
    moved = sum(bool(figure.n_told_apart) for figure in history.figures)
    numbers: list[Any] = [("runs", len(history.runs)), ("not valid", invalid)]
    numbers += [("figures that moved", moved, "", f"of {len(history.figures)}")]
    cells += [("history.build_history(runs)", display.headline(answer=history.answer, key_numbers=numbers))]
    if history.levels.n_searched:
        lines = display.bullets([line.strip() for line in format_levels(history)])
        cells += ["## Changes of level", ("format_levels(found)", lines)]
    if history.figures:
        cells += ["## Figures over time"]
        for place, figure in enumerate(history.figures[:MAX_CHARTS]):
            chart = build_mime_bundle(chart_figure(history, figure).to_dict())
            cells += [(f"chart_figure(found, found.figures[{place}])", chart)]
        shown = display.table(build_figure_frame(history), caption="All figures", limit=MAX_TABLE_ROWS)
        cells += [("build_figure_frame(found)", shown)]
    oldest, newest = history.runs[0], history.runs[-1]
    runs = display.table(build_run_frame(history), caption=str(newest.record["title"]), limit=MAX_TABLE_ROWS)
    cells += ["## Runs, and what changed from one to the next", ("build_run_frame(found)", runs)]
    cells += ["## What this does not show", ("notes", display.bullets(_list_notes(history)))]
    facts = {"runs": len(history.runs), "oldest": oldest.run_id, "newest": newest.run_id}
    return write_run_page(cells, path, run=newest, command=f"workbench runs history {newest.area}", config=facts)


def build_run_frame(history: RunHistory) -> pl.DataFrame:
    """One row per run, newest first: started, run, status, verdict, thresholds, answer, what changed."""
    import polars as pl

    rows = []
    for run, facts in zip(reversed(history.runs), reversed(history.facts), strict=True):
        gate = run.record.get("thresholds")
        more = f"; and {len(facts) - MAX_FACTS} more" if len(facts) > MAX_FACTS else ""
        rows.append(
            {
                "started": format_moment(run.record.get("started_at")),
                "run": run.run_id,
                "status": run.state,
                "verdict": run.verdict,
                "thresholds": format_threshold_summary(gate) if isinstance(gate, Mapping) else None,
                "answer": run.record.get("answer"),
                "changed": "; ".join(map(describe_fact, facts[:MAX_FACTS])) + more or None,
            }
        )
    names = ("started", "run", "status", "verdict", "thresholds", "answer", "changed")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()))


def chart_figure(history: RunHistory, figure: FigureHistory) -> alt.Chart:
    """How did one figure go over the runs? Dots with intervals, filled where it differs from the run before."""
    import polars as pl

    # The axis says what is drawn; a name that a chart's formulas could not read is called a value.
    column = figure.column if figure.column.isidentifier() and figure.column not in _CHARTED else "value"
    rows = [
        {
            "run": f"{run.began:%d %b %H:%M}{_name_twin(history, run)}",
            column: value.estimate,
            "low": value.low,
            "high": value.high,
            "verdict": f"not compared: {describe_state(run)}" if run.objection else verdict or "no verdict",
            "told_apart": verdict in ("HIGHER", "LOWER"),
        }
        for run, value, verdict in zip(history.runs, figure.values, figure.verdicts, strict=True)
        if value is not None
    ]
    number = pl.Float64()
    schema: dict[str, Any] = {"run": pl.String(), column: number, "low": number, "high": number}
    frame = pl.DataFrame(rows, schema=schema | {"verdict": pl.String(), "told_apart": pl.Boolean()})
    return charts.course(
        frame,
        title=f"{figure.column}: {figure.row}" if figure.row else figure.column,
        run="run",
        value=column,
        low="low",
        high="high",
        told_apart="told_apart",
        details=("verdict",),
        subtitle=f"table {figure.table}{f', {figure.unit}' if figure.unit else ''}, 90 % intervals",
    )


_CHARTED = ("run", "low", "high", "verdict", "told_apart")


def _name_twin(history: RunHistory, run: StoredRun) -> str:
    """What tells a run from another one of the same minute; empty without one."""
    alike = sum(f"{other.began:%Y%m%d%H%M}" == f"{run.began:%Y%m%d%H%M}" for other in history.runs)
    return f" {run.run_id[-4:]}" if alike > 1 else ""


def build_figure_frame(history: RunHistory) -> pl.DataFrame:
    """One row per figure: table, row, column, unit, runs, first and last value with ends as text, steps told apart."""
    import polars as pl

    rows = []
    for figure in history.figures:
        values = [value for value in figure.values if value is not None]
        ends = (format_interval(value) for value in (values[0], values[-1]))
        names = (figure.table, figure.row, figure.column, figure.unit)
        rows.append((*names, len(values), *ends, figure.n_told_apart))
    text, count = pl.String(), pl.Int64()
    schema = dict.fromkeys(("table", "row", "column", "unit"), text)
    return pl.DataFrame(
        rows, schema={**schema, "n_runs": count, "first": text, "last": text, "n_told_apart": count}, orient="row"
    )


def _list_notes(history: RunHistory) -> list[str]:
    notes = [
        "Verdicts hold for all steps of all figures together (Holm, 90 %, margin 2 %); runs are taken as independent.",
        "Changes of level need 12 valid runs of a figure and hold together (99 %, margin 2 %), without a cause.",
        "Runs that did not succeed have no figures here; runs that are not valid are shown and compared with nothing.",
    ]
    if history.n_left_out:
        notes.append(f"{history.n_left_out} older runs are not shown.")
    if len(history.figures) > MAX_CHARTS:
        notes.append(f"{MAX_CHARTS} of {len(history.figures)} figures are drawn, those that moved first.")
    return notes
