"""How two runs differ, as a page in the style of the reports: the counts first, then a chart and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import charts, files, report
from workbench.diff_words import counted, with_ends
from workbench.diffing import VERDICTS, Diff, TableDiff
from workbench.errors import ConfigError

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from workbench.catalogue import Kept
    from workbench.display import Shown

MOST_DRAWN = 40
MOST_SHOWN = 60


def write_page(found: Diff, path: str | Path) -> Path:
    """Write the comparison as one page that needs no network, whole or not at all.

    Raises
    ------
    ConfigError
        The page cannot be written there.
    """
    text = report.page_html(_notebook(found), _record(found))
    try:
        return files.write_text(path, text)
    except OSError as error:
        raise ConfigError("cannot write the page", where=path, found=error.strerror) from error


def contrasts_frame(table: TableDiff) -> pl.DataFrame:
    """The contrasts of a table, what was told apart first.

    Columns: row, column, unit, baseline, candidate (the figures with their ends, as text), ratio, ratio_low,
    ratio_high (null without an interval), verdict ("no verdict" without one), told_apart.
    """
    import polars as pl

    ordered = sorted(table.contrasts, key=lambda one: VERDICTS.index(one.verdict) if one.verdict else len(VERDICTS))
    rows = [
        {
            "row": one.row,
            "column": one.column,
            "unit": one.unit,
            "baseline": with_ends(one.baseline),
            "candidate": with_ends(one.candidate),
            "ratio": one.ratio.estimate,
            "ratio_low": one.ratio.low,
            "ratio_high": one.ratio.high,
            "verdict": one.verdict or "no verdict",
            "told_apart": one.verdict in ("HIGHER", "LOWER"),
        }
        for one in ordered
    ]
    text, figure = pl.String(), pl.Float64()
    schema: dict[str, Any] = dict.fromkeys(("row", "column", "unit", "baseline", "candidate"), text)
    schema |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), figure) | {
        "verdict": text,
        "told_apart": pl.Boolean(),
    }
    return pl.DataFrame(rows, schema=schema)


def chart_contrasts(table: TableDiff) -> alt.Chart | None:
    """By how much do the figures of a table differ? Ratios with intervals, 40 at most; null when there is none."""
    import polars as pl

    frame = contrasts_frame(table).filter(pl.col("ratio").is_not_null())
    if not frame.height:
        return None
    several = frame["column"].n_unique() > 1
    label = pl.concat_str([pl.col("row"), pl.col("column")], separator=": ") if several else pl.col("row")
    frame = frame.with_columns(label.alias("figure")).unique("figure", keep="first", maintain_order=True)
    left = frame.height - MOST_DRAWN
    column = frame["column"][0]
    return charts.forest(
        frame.head(MOST_DRAWN),
        title=f"{table.name}: candidate / baseline" + ("" if several else f", {column}"),
        label="figure",
        estimate="ratio",
        low="ratio_low",
        high="ratio_high",
        told_apart="told_apart",
        category="verdict",
        details=("baseline", "candidate"),
        subtitle="90 % intervals, Holm over all comparisons"
        + (f"; {left} more in the table below" if left > 0 else ""),
    )


def changes_frame(table: TableDiff) -> pl.DataFrame:
    """The values without interval that differ: row, column, unit, baseline, candidate (as text), difference."""
    import polars as pl

    from workbench.formats import number

    rows = [
        (one.row, one.column, one.unit, number(one.baseline), number(one.candidate), one.difference)
        for one in table.changes
    ]
    names = ["row", "column", "unit", "baseline", "candidate"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()) | {"difference": pl.Float64()}, orient="row")


def _record(found: Diff) -> dict[str, Any]:
    """What the page's provenance shows: the two runs, by their names."""
    sides = {"baseline": found.baseline, "candidate": found.candidate}
    given = {f"{name} {what}": value for name, run in sides.items() for what, value in _told(run).items()}
    return {
        "area": found.candidate.area,
        "title": "How do two runs differ?",
        "status": "succeeded",
        "verdict": None,
        "reasons": [],
        "command": f"workbench runs diff {found.baseline.run_id} {found.candidate.run_id}",
        "config": given,
        "ended_at": found.candidate.record.get("ended_at"),
    }


def _told(run: Kept) -> dict[str, Any]:
    record = run.record
    names = ("run_id", "started_at", "command", "package_version", "git_commit")
    return {"place": run.place, "state": run.state} | {name: record.get(name) for name in names}


def _notebook(found: Diff) -> Any:
    from nbformat import v4

    cells = [
        v4.new_markdown_cell("# How do two runs differ?"),
        _cell("found = diffing.diff(baseline, candidate)", _head(found)),
    ]
    cells += [v4.new_markdown_cell("## What went in, and where it ran")]
    cells += [_cell("found.facts", _facts(found))]
    places = sorted(range(len(found.tables)), key=lambda place: _weight(found.tables[place]))
    for place in places:
        if _weight(found.tables[place]) < _NOTHING:
            cells += _table_cells(place, found.tables[place])
    if alike := [found.tables[place].name for place in places if _weight(found.tables[place]) == _NOTHING]:
        cells += [v4.new_markdown_cell("## Tables without a difference")]
        cells += [_cell("found.tables", report.bullets([", ".join(alike)]))]
    cells += [v4.new_markdown_cell("## What this does not show")]
    cells += [_cell("found.notes", report.bullets(found.notes))]
    return v4.new_notebook(cells=cells)


_NOTHING = 4


def _weight(table: TableDiff) -> int:
    """Where a table stands: what was told apart comes first, what is alike last."""
    if table.counts["HIGHER"] + table.counts["LOWER"]:
        return 0
    if table.contrasts:
        return 1
    if table.changes or table.only_baseline or table.only_candidate:
        return 2
    return 3 if table.note else _NOTHING


def _cell(source: str, *shown: Any) -> Any:
    from nbformat import v4

    outputs = [
        v4.new_output("display_data", one if isinstance(one, dict) else one._repr_mimebundle_()) for one in shown
    ]
    return v4.new_code_cell(source, outputs=outputs)


def _head(found: Diff) -> Shown:
    counts = found.counts
    total = sum(counts.values())
    apart = counts["HIGHER"] + counts["LOWER"]
    if not total:
        answer = "No figure has an interval in both runs: there are differences, and no verdicts."
    elif not apart:
        answer = f"None of {total} figures is told apart between the two runs ({counted(counts)})."
    else:
        answer = f"{apart} of {total} figures are told apart between the two runs: {counted(counts)}."
    numbers: list[Any] = [(verdict.lower(), counts[verdict]) for verdict in VERDICTS] if total else []
    rows = sum(table.rows for table in found.tables)
    return report.headline(answer=answer, key_numbers=[*numbers, ("rows in both", rows)])


def _facts(found: Diff) -> Shown:
    import polars as pl

    if not found.facts:
        return report.bullets(["Settings, inputs, versions and machine are the same."])
    names = ["kind", "name", "baseline", "candidate"]
    frame = pl.DataFrame(found.facts, schema=dict.fromkeys(names, pl.String()), orient="row")
    return report.table(frame, caption="What differs", limit=MOST_SHOWN)


def _table_cells(place: int, table: TableDiff) -> list[Any]:
    from nbformat import v4

    from workbench.renderer import mime_bundle

    name = table.name
    lines = [f"Not compared: {table.note}"] if table.note else _matched(table)
    cells = [v4.new_markdown_cell(f"## Table `{name}`"), _cell(f"found.tables[{place}]", report.bullets(lines))]
    if (chart := chart_contrasts(table)) is not None:
        cells.append(_cell(f"diff_page.chart_contrasts(found.tables[{place}])", mime_bundle(chart.to_dict())))
    if table.contrasts:
        shown = report.table(
            contrasts_frame(table).drop("told_apart"), caption="Figures with intervals", limit=MOST_SHOWN
        )
        cells.append(_cell(f"diff_page.contrasts_frame(found.tables[{place}])", shown))
    if table.changes:
        shown = report.table(changes_frame(table), caption="Other values that differ", limit=MOST_SHOWN)
        cells.append(_cell(f"diff_page.changes_frame(found.tables[{place}])", shown))
    return cells


def _matched(table: TableDiff) -> list[str]:
    by = f", matched by {', '.join(table.key)}" if table.key else ""
    lines = [f"{table.rows} rows in both runs{by}"]
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            lines.append(f"only in the {which}: {'; '.join(names[:20])}{more}")
    if not table.contrasts and not table.changes:
        lines.append("no value differs")
    return lines


def check_path(path: Path) -> Path:
    """Refuse a page's path before anything is compared.

    Raises
    ------
    ConfigError
        It is a folder.
    """
    if path.is_dir():
        raise ConfigError("a folder, not a page", where="--html", found=path, allowed="a file such as diff.html")
    return path
