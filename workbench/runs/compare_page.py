"""Comparison of two runs as an HTML page, as text for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import charts
from workbench.core import files
from workbench.core.errors import ConfigError
from workbench.core.formats import format_ends, format_number
from workbench.report import display, page
from workbench.runs.compare import VERDICTS, Comparison, Contrast, TableDiff
from workbench.stats import Interval

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from workbench.report.display import CellDisplay
    from workbench.runs.catalogue import StoredRun

MAX_LINES = 12
MAX_NAMES = 5
MAX_CHARTED = 40
MAX_TABLE_ROWS = 60
_RANK_NO_DIFFERENCE = 4


def format_counts(counts: dict[str, int]) -> str:
    """Verdicts and how often each was given.

    >>> format_counts({"HIGHER": 2, "LOWER": 0, "UNDECIDED": 5, "SAME": 1})
    '2 HIGHER, 5 UNDECIDED, 1 SAME'
    """
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def format_interval(value: Interval) -> str:
    """A figure and its ends.

    >>> format_interval(Interval(2.0, 1.8, 2.25, 0.9, 5, "t")), format_interval(Interval(2.0, None, None, 0.9, 5, "t"))
    ('2 (1.8 to 2.25)', '2')
    """
    ends = f" ({format_ends(value.low, value.high)})" if value.low is not None and value.high is not None else ""
    return format_number(value.estimate) + ends


def format_comparison(comparison: Comparison) -> str:
    """The comparison in lines: what differs around the figures, then table by table what was told apart first."""
    lines = [
        f"{comparison.candidate.area}: candidate / baseline",
        f"  baseline   {_format_run_end(comparison.baseline)}",
        f"  candidate  {_format_run_end(comparison.candidate)}",
    ]
    lines += [
        f"  {kind} {name}: {_format_side(base)} -> {_format_side(other)}"
        for kind, name, base, other in comparison.facts
    ]
    if not comparison.facts:
        lines.append("  settings, inputs, versions and machine are the same")
    for table in comparison.tables:
        lines += _format_table_diff(table)
    nothing = f"nothing: {comparison.objection}" if comparison.objection else "no figure has an interval in both runs"
    lines.append(f"told apart: {format_counts(comparison.counts) or nothing}")
    return "\n".join([*lines, *(f"  {note}" for note in comparison.notes)])


def _format_run_end(run: StoredRun) -> str:
    return f"{run.run_id}  {run.state}, {run.verdict or 'no verdict'}"


def _format_side(value: str | None) -> str:
    return "-" if value is None else value if len(value) <= 60 else value[:59] + "…"


def _format_table_diff(table: TableDiff) -> Iterator[str]:
    if table.note:
        yield f"{table.name}: not compared: {table.note}"
        return
    by = f" by {', '.join(table.key)}" if table.key else ""
    yield f"{table.name}: {table.rows} rows in both{by}{_format_unmatched_rows(table)}"
    yield from (f"    {note}" for note in table.column_notes)
    contrasts = sorted(table.contrasts, key=_contrast_sort_key)
    yield from _align_rows([_format_contrast_cells(contrast) for contrast in contrasts[:MAX_LINES]])
    if len(contrasts) > MAX_LINES:
        yield f"    and {len(contrasts) - MAX_LINES} more ({format_counts(table.counts)} in all)"
    if table.changes:
        rows = Counter(change.column for change in table.changes)
        told_columns = ", ".join(f"{column} ({count} of {table.rows} rows)" for column, count in rows.items())
        yield f"    without interval: {told_columns}"


def _format_unmatched_rows(table: TableDiff) -> str:
    parts = []
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = " …" if len(names) > MAX_NAMES else ""
            parts.append(f", {len(names)} only in the {which} ({'; '.join(names[:MAX_NAMES])}{more})")
    return "".join(parts)


def _contrast_sort_key(contrast: Contrast) -> tuple[int, float]:
    place = VERDICTS.index(contrast.verdict) if contrast.verdict else len(VERDICTS)
    return place, contrast.adjusted_p_value if contrast.adjusted_p_value is not None else 2.0


def _format_contrast_cells(contrast: Contrast) -> list[str]:
    """Cells of a contrast's line in the terminal: row, column, both figures, ratio, verdict."""
    ratio = (
        f"x {format_interval(contrast.ratio)}"
        if contrast.ratio.estimate is not None
        else f"no ratio: {contrast.ratio.reason}"
    )
    before, after = (format_interval(value) for value in (contrast.baseline, contrast.candidate))
    if contrast.baseline_unit != contrast.unit:
        before, after = f"{before} {contrast.baseline_unit}", f"{after} {contrast.unit}"
    return [contrast.row, contrast.column, before, "->", after, ratio, contrast.verdict or "no verdict"]


def _align_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [min(44, max(len(row[place]) for row in rows)) for place in range(len(rows[0]))]
    for row in rows:
        yield ("    " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()


def build_comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON: runs, facts, tables with contrasts and changes, counts, notes."""
    return {
        "baseline": build_run_document(comparison.baseline),
        "candidate": build_run_document(comparison.candidate),
        "facts": [dict(zip(("kind", "name", "baseline", "candidate"), fact, strict=True)) for fact in comparison.facts],
        "tables": [_build_table_document(table) for table in comparison.tables],
        "counts": comparison.counts,
        "notes": list(comparison.notes),
    }


def build_run_document(run: StoredRun) -> dict[str, Any]:
    """What `--json` says of a run beside another."""
    names = ("run_id", "area", "title", "started_at", "reasons", "answer")
    known = {"status": run.state, "verdict": run.verdict, "objection": run.objection or None, "folder": run.place}
    return {name: run.record.get(name) for name in names} | known


def _build_table_document(table: TableDiff) -> dict[str, Any]:
    plain = ("name", "rows", "note")
    listed = ("key", "own", "only_baseline", "only_candidate", "column_notes")
    return {
        **{name: getattr(table, name) for name in plain},
        **{name: list(getattr(table, name)) for name in listed},
        "counts": table.counts,
        "contrasts": [_build_contrast_document(contrast) for contrast in table.contrasts],
        "changes": [dataclasses.asdict(change) for change in table.changes],
    }


def _build_contrast_document(contrast: Contrast) -> dict[str, Any]:
    names = ("row", "column", "unit", "baseline_unit", "verdict", "adjusted_p_value")
    plain = {name: getattr(contrast, name) for name in names}
    sides = {name: build_interval_document(getattr(contrast, name)) for name in ("baseline", "candidate", "ratio")}
    return plain | sides | {"reason": contrast.ratio.reason}


def build_interval_document(value: Interval) -> dict[str, Any]:
    """A figure with its interval for `--json`."""
    return {"estimate": value.estimate, "low": value.low, "high": value.high, "level": value.level}


def write_comparison_page(comparison: Comparison, path: str | Path) -> Path:
    """Write the comparison as one page that needs no network, whole or not at all."""
    return write_made_page(_build_notebook(comparison), _build_page_record(comparison), path)


def write_made_page(notebook: Any, record: dict[str, Any], path: str | Path) -> Path:
    """Write the page of a notebook that was made of runs, not run itself."""
    text = page.render_page(notebook, record)
    try:
        return files.write_text(path, text)
    except OSError as error:
        raise ConfigError("cannot write the page", where=path, found=error.strerror) from error


def build_contrast_frame(table: TableDiff) -> pl.DataFrame:
    """The contrasts of a table, what was told apart first.

    Columns: row, column, unit, baseline, candidate (the figures with their ends, as text), ratio, ratio_low,
    ratio_high (null without an interval), verdict ("no verdict" without one), told_apart.
    """
    import polars as pl

    ordered = sorted(
        table.contrasts, key=lambda contrast: VERDICTS.index(contrast.verdict) if contrast.verdict else len(VERDICTS)
    )
    rows = [
        {
            "row": contrast.row,
            "column": contrast.column,
            "unit": contrast.unit,
            "baseline": format_interval(contrast.baseline)
            + (f" {contrast.baseline_unit}" if contrast.baseline_unit != contrast.unit else ""),
            "candidate": format_interval(contrast.candidate),
            "ratio": contrast.ratio.estimate,
            "ratio_low": contrast.ratio.low,
            "ratio_high": contrast.ratio.high,
            "verdict": contrast.verdict or "no verdict",
            "told_apart": contrast.verdict in ("HIGHER", "LOWER"),
        }
        for contrast in ordered
    ]
    text, figure = pl.String(), pl.Float64()
    schema: dict[str, Any] = dict.fromkeys(("row", "column", "unit", "baseline", "candidate"), text)
    schema |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), figure) | {
        "verdict": text,
        "told_apart": pl.Boolean(),
    }
    return pl.DataFrame(rows, schema=schema)


def chart_contrasts(table: TableDiff) -> alt.Chart | None:
    """By how much do the figures of a table differ? At most 40 ratios with intervals; null when there are none."""
    import polars as pl

    frame = build_contrast_frame(table).filter(pl.col("ratio").is_not_null())
    if not frame.height:
        return None
    several = frame["column"].n_unique() > 1
    label = pl.concat_str([pl.col("row"), pl.col("column")], separator=": ") if several else pl.col("row")
    frame = frame.with_columns(label.alias("figure")).unique("figure", keep="first", maintain_order=True)
    n_uncharted = frame.height - MAX_CHARTED
    column = frame["column"][0]
    return charts.forest(
        frame.head(MAX_CHARTED),
        title=f"{table.name}: candidate / baseline" + ("" if several else f", {column}"),
        label="figure",
        estimate="ratio",
        low="ratio_low",
        high="ratio_high",
        told_apart="told_apart",
        category="verdict",
        details=("baseline", "candidate"),
        subtitle="90 % intervals, Holm over all comparisons"
        + (f"; {n_uncharted} more in the table below" if n_uncharted > 0 else ""),
    )


def build_change_frame(table: TableDiff) -> pl.DataFrame:
    """The values without interval that differ: row, column, unit, baseline, candidate (as text), difference."""
    import polars as pl

    from workbench.core.formats import format_number

    rows = [
        (
            change.row,
            change.column,
            change.unit,
            format_number(change.baseline),
            format_number(change.candidate),
            change.difference,
        )
        for change in table.changes
    ]
    names = ["row", "column", "unit", "baseline", "candidate"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()) | {"difference": pl.Float64()}, orient="row")


def _build_page_record(comparison: Comparison) -> dict[str, Any]:
    """Build the record that the page's provenance shows: the two runs, by their names."""
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    facts = {f"{name} {key}": value for name, run in sides.items() for key, value in _describe_run(run).items()}
    return {
        "area": comparison.candidate.area,
        "title": "How do two runs differ?",
        "status": "succeeded",
        "verdict": None,
        "reasons": [],
        "command": f"workbench runs diff {comparison.baseline.run_id} {comparison.candidate.run_id}",
        "config": facts,
        "ended_at": comparison.candidate.record.get("ended_at"),
    }


def _describe_run(run: StoredRun) -> dict[str, Any]:
    record = run.record
    names = ("run_id", "started_at", "command", "package_version", "git_commit")
    return {"place": run.place, "state": run.state} | {name: record.get(name) for name in names}


def _build_notebook(comparison: Comparison) -> Any:
    """Build a notebook of the comparison whose cells show results only; tables with most differences come first."""
    from nbformat import v4

    cells = [
        v4.new_markdown_cell("# How do two runs differ?"),
        build_result_cell("found = diffing.diff(baseline, candidate)", _build_headline(comparison)),
    ]
    cells += [v4.new_markdown_cell("## What went in, and where it ran")]
    cells += [build_result_cell("found.facts", _build_fact_table(comparison))]
    places = sorted(range(len(comparison.tables)), key=lambda place: _rank_table(comparison.tables[place]))
    for place in places:
        if _rank_table(comparison.tables[place]) < _RANK_NO_DIFFERENCE:
            cells += _build_table_cells(place, comparison.tables[place])
    if alike := [
        comparison.tables[place].name
        for place in places
        if _rank_table(comparison.tables[place]) == _RANK_NO_DIFFERENCE
    ]:
        cells += [v4.new_markdown_cell("## Tables without a difference")]
        cells += [build_result_cell("found.tables", display.bullets([", ".join(alike)]))]
    cells += [v4.new_markdown_cell("## What this does not show")]
    cells += [build_result_cell("found.notes", display.bullets(comparison.notes))]
    return v4.new_notebook(cells=cells)


def _rank_table(table: TableDiff) -> int:
    """Rank a table: those with figures that were told apart come first, those without a difference last."""
    if table.counts["HIGHER"] + table.counts["LOWER"]:
        return 0
    if table.contrasts:
        return 1
    if table.changes or table.only_baseline or table.only_candidate or table.column_notes:
        return 2
    return 3 if table.note else _RANK_NO_DIFFERENCE


def build_result_cell(source: str, *shown: Any) -> Any:
    """A code cell of a page's notebook with its outputs."""
    from nbformat import v4

    outputs = [
        v4.new_output("display_data", output if isinstance(output, dict) else output._repr_mimebundle_())
        for output in shown
    ]
    return v4.new_code_cell(source, outputs=outputs)


def _build_headline(comparison: Comparison) -> CellDisplay:
    counts = comparison.counts
    total = sum(counts.values())
    apart = counts["HIGHER"] + counts["LOWER"]
    if comparison.objection:
        answer = f"No verdicts: {comparison.objection}."
    elif not total:
        answer = "No figure has an interval in both runs: there are differences, and no verdicts."
    elif not apart:
        answer = f"None of {total} figures is told apart between the two runs ({format_counts(counts)})."
    else:
        answer = f"{apart} of {total} figures are told apart between the two runs: {format_counts(counts)}."
    numbers: list[Any] = [(verdict.lower(), counts[verdict]) for verdict in VERDICTS] if total else []
    rows = sum(table.rows for table in comparison.tables)
    return display.headline(answer=answer, key_numbers=[*numbers, ("rows in both", rows)])


def _build_fact_table(comparison: Comparison) -> CellDisplay:
    import polars as pl

    if not comparison.facts:
        return display.bullets(["Settings, inputs, versions and machine are the same."])
    names = ["kind", "name", "baseline", "candidate"]
    frame = pl.DataFrame(comparison.facts, schema=dict.fromkeys(names, pl.String()), orient="row")
    return display.table(frame, caption="What differs", limit=MAX_TABLE_ROWS)


def _build_table_cells(place: int, table: TableDiff) -> list[Any]:
    """Cells of the notebook for one compared table, which is `found.tables[place]`."""
    from nbformat import v4

    from workbench.charts.renderer import build_mime_bundle

    name = table.name
    lines = [f"Not compared: {table.note}"] if table.note else _describe_matching(table)
    cells = [
        v4.new_markdown_cell(f"## Table `{name}`"),
        build_result_cell(f"found.tables[{place}]", display.bullets(lines)),
    ]
    if (chart := chart_contrasts(table)) is not None:
        cells.append(
            build_result_cell(f"diff_page.chart_contrasts(found.tables[{place}])", build_mime_bundle(chart.to_dict()))
        )
    if table.contrasts:
        shown = display.table(
            build_contrast_frame(table).drop("told_apart"), caption="Figures with intervals", limit=MAX_TABLE_ROWS
        )
        cells.append(build_result_cell(f"diff_page.contrasts_frame(found.tables[{place}])", shown))
    if table.changes:
        shown = display.table(build_change_frame(table), caption="Other values that differ", limit=MAX_TABLE_ROWS)
        cells.append(build_result_cell(f"diff_page.changes_frame(found.tables[{place}])", shown))
    return cells


def _describe_matching(table: TableDiff) -> list[str]:
    """Lines on how the rows of a table were matched, and which are in one run only."""
    by = f", matched by {', '.join(table.key)}" if table.key else ""
    lines = [f"{table.rows} rows in both runs{by}"]
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            lines.append(f"only in the {which}: {'; '.join(names[:20])}{more}")
    lines += table.column_notes
    if not table.contrasts and not table.changes:
        lines.append("no value that is compared differs" if table.column_notes else "no value differs")
    return lines


def check_page_path(path: Path) -> Path:
    """Refuse a page's path before anything is compared."""
    if path.is_dir():
        raise ConfigError("a folder, not a page", where="--html", found=path, allowed="a file such as diff.html")
    return path
