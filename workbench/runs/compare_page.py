"""Comparison of two runs as an HTML page, as text for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import charts
from workbench.console.tables import format_table
from workbench.core import files, formats
from workbench.core.errors import ConfigError, refuse_os_errors
from workbench.core.formats import format_ends, format_number
from workbench.report import display, page
from workbench.runs.compare import VERDICTS, Change, Comparison, Contrast, TableDiff
from workbench.runs.differences import Differences, find_differences, list_undecided
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
# A heading of a page, or a call and what it shows.
PageCell = str | tuple[str, Any]


def format_counts(counts: dict[str, int]) -> str:
    """Verdicts and how often each was given.

    >>> format_counts({"HIGHER": 2, "LOWER": 0, "UNDECIDED": 5, "SAME": 1})
    '2 HIGHER, 5 UNDECIDED, 1 SAME'
    """
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts.get(verdict))


def format_interval(value: Interval) -> str:
    """A figure and its ends.

    >>> format_interval(Interval(2.0, 1.8, 2.25, 0.9, 5, "t")), format_interval(Interval(2.0, None, None, 0.9, 5, "t"))
    ('2 (1.8 to 2.25)', '2')
    """
    ends = f" ({format_ends(value.low, value.high)})" if value.low is not None and value.high is not None else ""
    return format_number(value.estimate) + ends


def format_comparison(comparison: Comparison) -> str:
    """The comparison in lines: answer, causes, key numbers, what moved, and what did not, each in one table."""
    found = find_differences(comparison)
    lines = [found.answer, *_format_sides(comparison)]
    causes = [
        (kind, name, *((formats.NULL if side is None else side) for side in sides))
        for kind, name, *sides in found.causes
    ]
    lines += _format_block(causes, ("what", "differs", "baseline", "candidate"))
    lines += [] if causes else ["", "Settings, inputs, versions and machine are the same."]
    numbers = [(one.label, one.baseline, one.candidate, one.unit) for one in found.key_numbers]
    lines += _format_block(numbers, ("key number", "baseline", "candidate", "unit"), right=("baseline", "candidate"))
    moves = [(*_list_contrast_cells(move.table, move.contrast), move.effect) for move in found.moves[:MAX_LINES]]
    lines += _format_block(moves, (*_HEADERS, "effect"), right=_HEADERS[1:4], rank=_RANK)
    lines += [f"and {len(found.moves) - MAX_LINES} more: --json has all"] if len(found.moves) > MAX_LINES else []
    others = list_undecided(comparison.tables)
    rows = [_list_contrast_cells(table, contrast) for table, contrast in others[:MAX_LINES]]
    lines += _format_block(rows, _HEADERS, right=_HEADERS[1:4], rank=_RANK)
    lines += [f"and {len(others) - MAX_LINES} more: --json has all"] if len(others) > MAX_LINES else []
    lines += ["", *_format_counts_lines(comparison)]
    return "\n".join([*lines, *comparison.notes])


_HEADERS = ("figure", "baseline", "candidate", "ratio", "verdict")
_RANK = ("verdict", "effect", "baseline", "candidate", "ratio")


def _format_sides(comparison: Comparison) -> list[str]:
    sides = (("baseline", comparison.baseline), ("candidate", comparison.candidate))
    return [
        f"{name}: {run.run_id}, {run.verdict or run.state}: {run.record.get('answer') or 'no answer'}"
        for name, run in sides
    ]


def _format_block(
    rows: Sequence[Sequence[object]], headers: Sequence[str], *, right: Sequence[str] = (), rank: Sequence[str] = ()
) -> list[str]:
    """A table below a blank line; nothing without rows."""
    return ["", *format_table(rows, headers, right=right, rank=rank)] if rows else []


def _format_counts_lines(comparison: Comparison) -> list[str]:
    """How many figures came out how, and what is without a verdict, table by table."""
    counts = comparison.counts
    nothing = f"nothing: {comparison.objection}" if comparison.objection else "no figure has an interval in both runs"
    lines = [f"Figures with intervals: {format_counts(counts) or nothing}"]
    for table in comparison.tables:
        if table.note:
            lines.append(f"{table.name}: {table.note}")
            continue
        if unmatched := _format_unmatched_rows(table):
            lines.append(f"{table.name}: {table.rows} row{'' if table.rows == 1 else 's'} in both{unmatched}")
        lines += [f"{table.name}: {note}" for note in table.column_notes]
        if table.changes:
            # Values without an interval that differ: both of a column with one change, else how many rows.
            by_column: dict[str, list[Change]] = {}
            for change in table.changes:
                by_column.setdefault(change.column, []).append(change)
            changes = ", ".join(
                f"{column} {_format_change(found[0])}"
                if len(found) == 1
                else f"{column} in {len(found)} of {table.rows} rows"
                for column, found in by_column.items()
            )
            lines.append(f"{table.name}: without an interval: {changes}")
    return lines


def _format_change(change: Change) -> str:
    sides = [format_number(value) for value in (change.baseline, change.candidate)]
    if sides[0] == sides[1]:
        sides = [str(value) for value in (change.baseline, change.candidate)]
    return " -> ".join(sides)


def _format_unmatched_rows(table: TableDiff) -> str:
    parts = []
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = " …" if len(names) > MAX_NAMES else ""
            parts.append(f", {len(names)} only in the {which} ({'; '.join(names[:MAX_NAMES])}{more})")
    return "".join(parts)


def _list_contrast_cells(table: str, contrast: Contrast) -> list[str]:
    """Cells of a contrast's line: figure, both values, ratio, verdict."""
    before, after = (format_interval(value) for value in (contrast.baseline, contrast.candidate))
    if contrast.baseline_unit != contrast.unit:
        before, after = f"{before} {contrast.baseline_unit}", f"{after} {contrast.unit}"
    ratio = format_interval(contrast.ratio) if contrast.ratio.estimate is not None else formats.NULL
    verdict = contrast.verdict or f"no ratio: {contrast.ratio.reason}"
    return [f"{table}.{contrast.column} {contrast.row}".rstrip(), before, after, ratio, verdict]


def build_comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON: runs, facts, tables with contrasts and changes, counts, notes."""
    return {
        "baseline": build_run_document(comparison.baseline),
        "candidate": build_run_document(comparison.candidate),
        "answer": (found := find_differences(comparison)).answer,
        "key_numbers": [dataclasses.asdict(number) for number in found.key_numbers],
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
    """Write the comparison as one page that needs no network; tables with most differences come first."""
    found = find_differences(comparison)
    cells: list[PageCell] = ["# How do two runs differ?"]
    cells += [("found = diffing.diff(baseline, candidate)", _build_headline(found))]
    cells += ["## What differs around the figures", ("found.facts", _build_fact_table(found))]
    if found.moves:
        shown = display.table(build_move_frame(found), caption="Figures that moved", limit=MAX_TABLE_ROWS)
        cells += ["## What moved", ("build_move_frame(found)", shown)]
    alike = []
    for place, table in sorted(enumerate(comparison.tables), key=lambda placed: _rank_table(placed[1])):
        if _rank_table(table) == _RANK_NO_DIFFERENCE:
            alike.append(table.name)
        else:
            cells += _build_table_cells(place, table)
    if alike:
        cells += ["## Tables without a difference", ("found.tables", display.bullets([", ".join(alike)]))]
    cells += ["## What this does not show", ("found.notes", display.bullets(comparison.notes))]
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    facts: dict[str, Any] = {}
    for name, run in sides.items():
        facts |= {f"{name} place": run.place, f"{name} state": run.state}
        keys = ("run_id", "started_at", "command", "package_version", "git_commit")
        facts |= {f"{name} {key}": run.record.get(key) for key in keys}
    command = f"workbench runs diff {comparison.baseline.run_id} {comparison.candidate.run_id}"
    return write_run_page(cells, path, run=comparison.candidate, command=command, config=facts)


def write_run_page(
    cells: Sequence[PageCell], path: str | Path, *, run: StoredRun, command: str, config: dict[str, Any]
) -> Path:
    """Write a page that is made of runs. `run`: The newest of them."""
    return write_page(cells, path, area=run.area, ended_at=run.record.get("ended_at"), command=command, config=config)


def write_page(
    cells: Sequence[PageCell],
    path: str | Path,
    *,
    area: str,
    ended_at: str | None,
    command: str,
    config: dict[str, Any],
) -> Path:
    """Write a page that is not of a notebook that ran, whole or not at all.

    `cells`: Its title, headings, and results, each with the call that gives it. `config`: What its provenance shows.
    """
    from nbformat import v4

    made = [v4.new_markdown_cell(cell) if isinstance(cell, str) else build_result_cell(*cell) for cell in cells]
    record: dict[str, Any] = {
        "area": area,
        "title": str(cells[0]).removeprefix("# "),
        "status": "succeeded",
        "verdict": None,
        "reasons": [],
        "command": command,
        "config": config,
        "ended_at": ended_at,
    }
    text = page.render_page(v4.new_notebook(cells=made), record)
    with refuse_os_errors("cannot write the page", path, error_type=ConfigError):
        return files.write_text(path, text)


def build_contrast_frame(table: TableDiff) -> pl.DataFrame:
    """The contrasts of a table that are not equal in both runs, what was told apart first.

    Columns: row, column, unit, baseline, candidate (the figures with their ends, as text), ratio, ratio_low,
    ratio_high (null without an interval), verdict ("no verdict" without one), told_apart.
    """
    import polars as pl

    ordered = sorted(
        (contrast for contrast in table.contrasts if contrast.verdict != "EQUAL"),
        key=lambda contrast: VERDICTS.index(contrast.verdict) if contrast.verdict else len(VERDICTS),
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
    schema: dict[str, Any] = dict.fromkeys(("row", "column", "unit", "baseline", "candidate"), pl.String())
    schema |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), pl.Float64())
    return pl.DataFrame(rows, schema=schema | {"verdict": pl.String(), "told_apart": pl.Boolean()})


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

    rows = [
        (one.row, one.column, one.unit, *map(format_number, (one.baseline, one.candidate)), one.difference)
        for one in table.changes
    ]
    names = ["row", "column", "unit", "baseline", "candidate"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()) | {"difference": pl.Float64()}, orient="row")


def _rank_table(table: TableDiff) -> int:
    """Rank a table: those with figures that were told apart come first, those without a difference last."""
    if table.counts["HIGHER"] + table.counts["LOWER"]:
        return 0
    if len(table.contrasts) > table.counts["EQUAL"]:
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


def _build_headline(found: Differences) -> CellDisplay:
    counts = found.comparison.counts
    changed = [(one.label, one.candidate, one.unit, f"baseline {one.baseline}") for one in found.key_numbers]
    numbers: list[Any] = changed[: display.MAX_KEY_NUMBERS - 1]
    numbers.append(("figures", sum(counts.values()), "", format_counts(counts) or "none with an interval in both"))
    return display.headline(answer=found.answer, key_numbers=numbers)


def build_move_frame(found: Differences) -> pl.DataFrame:
    """The figures that moved, the surest first, with better or worse where the table says which is good."""
    import polars as pl

    rows = [(*_list_contrast_cells(move.table, move.contrast), move.effect) for move in found.moves]
    return pl.DataFrame(rows, schema=dict.fromkeys((*_HEADERS, "effect"), pl.String()), orient="row")


def _build_fact_table(found: Differences) -> CellDisplay:
    import polars as pl

    if not found.causes:
        return display.bullets(["Settings, inputs, versions and machine are the same."])
    names = ["kind", "name", "baseline", "candidate"]
    frame = pl.DataFrame(found.causes, schema=dict.fromkeys(names, pl.String()), orient="row")
    return display.table(frame, caption="What differs", limit=MAX_TABLE_ROWS)


def _build_table_cells(place: int, table: TableDiff) -> list[PageCell]:
    """Cells of the page for one compared table, which is `found.tables[place]`."""
    from workbench.charts.renderer import build_mime_bundle

    source = f"found.tables[{place}]"
    lines = [f"Not compared: {table.note}"] if table.note else _describe_matching(table)
    cells: list[PageCell] = [f"## Table `{table.name}`", (source, display.bullets(lines))]
    if (chart := chart_contrasts(table)) is not None:
        cells.append((f"diff_page.chart_contrasts({source})", build_mime_bundle(chart.to_dict())))
    contrasts = build_contrast_frame(table).drop("told_apart")
    if contrasts.height:
        shown = display.table(contrasts, caption="Figures with intervals", limit=MAX_TABLE_ROWS)
        cells.append((f"diff_page.contrasts_frame({source})", shown))
    if table.changes:
        shown = display.table(build_change_frame(table), caption="Other values that differ", limit=MAX_TABLE_ROWS)
        cells.append((f"diff_page.changes_frame({source})", shown))
    return cells


def _describe_matching(table: TableDiff) -> list[str]:
    """Lines on how the rows of a table were matched, and which are in one run only."""
    by = f", matched by {', '.join(table.key)}" if table.key else ""
    lines = [f"{table.rows} rows in both runs{by}"]
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            lines.append(f"only in the {which}: {'; '.join(names[:20])}{more}")
    lines += [f"{table.counts['EQUAL']} figures are equal to the last digit"] if table.counts["EQUAL"] else []
    lines += table.column_notes
    if not table.contrasts and not table.changes:
        lines.append("no value that is compared differs" if table.column_notes else "no value differs")
    return lines


def check_page_path(path: Path) -> Path:
    """Refuse a page's path before anything is compared."""
    if path.is_dir():
        raise ConfigError("a folder, not a page", where="--html", found=path, allowed="a file such as diff.html")
    return path
