"""Read-only answers about runs below one place, for programs that ask: runs, tables, figures with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import find_unit
from workbench.report.gallery import read_headline_and_chart
from workbench.runs import catalogue, compare
from workbench.runs.history import build_history
from workbench.runs.history_page import build_history_document

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.catalogue import StoredRun

MAX_RUNS_TOLD = 200
MAX_ROWS_TOLD = 500
MAX_TEXT_CHARS = 2_000
MAX_CONTRASTS = 100
Document = dict[str, Any]


@dataclass(frozen=True)
class RunQuestions:
    """Questions about the runs below a folder or URL; nothing outside of it is read, and nothing is written.

    Runs are named by their id, the start of one, or an area for its newest run. Missing values are null.
    """

    place: str | Path

    def list_runs(
        self, area: str | None = None, status: str | None = None, verdict: str | None = None, limit: int = 50
    ) -> Document:
        """List runs, newest first: id, area, question, start, status, verdict, answer.

        `status`: succeeded, failed, cancelled, died, running, unfinished. `verdict`: valid or invalid.
        """
        runs = catalogue.filter_runs(catalogue.list_runs(self.place), area=area, status=status, verdict=verdict)
        told = runs[: max(0, min(limit, MAX_RUNS_TOLD))]
        return {"n_runs": len(runs), "runs": [_describe_run(run) for run in told]}

    def show_run(self, run: str) -> Document:
        """Show one run: answer, verdict with reasons, key numbers, settings, inputs, machine, versions, tables."""
        stored = self._find_run(run)
        record = stored.record
        headline, _ = read_headline_and_chart(stored)
        names = ("command", "package_version", "git_commit", "duration_s", "config", "inputs", "host", "versions")
        return (
            _describe_run(stored)
            | {name: _to_plain(record.get(name)) for name in names}
            | {"key_numbers": headline.get("key_numbers") or [], "thresholds": record.get("thresholds")}
            | {
                "tables": [
                    {"name": name, "rows": stored.table_entry(name).get("rows")} for name in stored.list_table_names()
                ]
            }
        )

    def describe_table(self, run: str, table: str) -> Document:
        """Describe a table of a run: rows, key, and for each column its type, unit, and columns of its interval."""
        stored = self._find_run(run)
        read = compare.load_run_table(stored, table)
        units = stored.table_entry(table).get("units") or {}
        columns = [
            {"name": name, "type": str(dtype), "unit": units.get(name) or find_unit(name)}
            | ({"interval": list(read.intervals[name])} if name in read.intervals else {})
            for name, dtype in read.frame.schema.items()
        ]
        return {"run": stored.run_id, "table": table, "rows": read.frame.height, "key": read.key, "columns": columns}

    def read_rows(
        self,
        run: str,
        table: str,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        sort_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
    ) -> Document:
        """Read rows of a table: those whose columns equal `where`, sorted, at most 500.

        `columns`: Columns to give, all without it.
        """
        stored = self._find_run(run)
        frame = _select_rows(stored.read_table(table), where or {})
        _check_columns(frame, [*(columns or ()), *([sort_by] if sort_by else [])])
        if sort_by:
            frame = frame.sort(sort_by, descending=descending, nulls_last=True)
        told = frame.select(columns or frame.columns).head(max(0, min(limit, MAX_ROWS_TOLD)))
        return {
            "run": stored.run_id,
            "table": table,
            "n_rows": frame.height,
            "rows": [_to_plain(row) for row in told.iter_rows(named=True)],
        } | _describe_verdict(stored)

    def read_figure(self, run: str, table: str, column: str, where: Mapping[str, Any] | None = None) -> Document:
        """Read one figure with its interval, and whether its run is valid.

        `where`: Values of key columns that choose one row, such as {"operator": "Sort"}; none for a table of one row.
        """
        stored = self._find_run(run)
        read = compare.load_run_table(stored, table)
        _check_columns(read.frame, [column])
        rows = _select_rows(read.frame, where or {})
        if rows.height != 1:
            names = ", ".join(read.key or rows.columns)
            raise InputError(
                "not one row", where=f"table {table}", found=f"{rows.height} rows", do=f"choose by where: {names}"
            )
        row = rows.row(0, named=True)
        low, high = read.intervals.get(column, (None, None))
        units = stored.table_entry(table).get("units") or {}
        return {
            "run": stored.run_id,
            "table": table,
            "column": column,
            "value": _to_plain(row[column]),
            "unit": units.get(column) or find_unit(column),
            "low": _to_plain(row[low]) if low else None,
            "high": _to_plain(row[high]) if high else None,
            "row": _to_plain({name: row[name] for name in read.key or ()}),
        } | _describe_verdict(stored)

    def compare_runs(self, baseline: str, candidate: str) -> Document:
        """Compare two runs of one area: settings, inputs, machine, and figures with intervals, what differs first.

        Verdicts are of candidate / baseline: HIGHER, LOWER, SAME within 2 %, or UNDECIDED, together at 90 %.
        """
        from workbench.runs.compare_page import build_comparison_document

        found = compare.compare_runs(self._find_run(baseline), self._find_run(candidate))
        document = build_comparison_document(found)
        contrasts = [{"table": table["name"]} | row for table in document.pop("tables") for row in table["contrasts"]]
        ranks = {verdict: rank for rank, verdict in enumerate(compare.VERDICTS)}
        contrasts.sort(key=lambda row: ranks.get(row["verdict"], len(ranks)))
        return _to_document(document | {"n_figures": len(contrasts), "figures": contrasts[:MAX_CONTRASTS]})

    def show_history(self, area: str, figures: Sequence[str] = ()) -> Document:
        """Show the runs of an area over time: figures with intervals, those that moved first, and what changed beside.

        `figures`: Only those with one of these texts in their name: `table.column row`.
        """
        runs = catalogue.filter_runs(catalogue.list_runs(self.place), area=area)
        document = build_history_document(build_history(runs, figures=figures))
        document["figures"] = document["figures"][:MAX_CONTRASTS]
        return _to_document(document)

    def _find_run(self, name: str) -> StoredRun:
        """The run of a name below the place; a path or a URL is no name here."""
        if not name or "/" in name or "\\" in name or ":" in name:
            raise ConfigError("not the name of a run", found=name[:100], allowed="a run id, or an area")
        return catalogue.find_run_below(name, self.place)


def _describe_run(run: StoredRun) -> Document:
    record = run.record
    names = ("run_id", "area", "title", "started_at", "answer")
    return {name: _to_plain(record.get(name)) for name in names} | _describe_verdict(run)


def _describe_verdict(run: StoredRun) -> Document:
    """Status and verdict of a run, with the reasons why it is not valid: no figure is told without."""
    return {"status": run.state, "verdict": run.record["verdict"], "reasons": _to_plain(run.record["reasons"])}


def _check_columns(frame: pl.DataFrame, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in frame.columns]:
        raise InputError("no such column", found=missing, allowed=frame.columns)


def _select_rows(frame: pl.DataFrame, where: Mapping[str, Any]) -> pl.DataFrame:
    """Rows whose columns have these values; null selects nulls."""
    import polars as pl

    _check_columns(frame, list(where))
    for name, value in where.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and is_number != frame.schema[name].is_numeric():
            raise InputError(
                "value of another type", where=name, found=repr(value)[:100], allowed=str(frame.schema[name])
            )
        frame = frame.filter(pl.col(name).is_null() if value is None else pl.col(name) == pl.lit(value))
    return frame


def _to_document(content: Mapping[str, Any]) -> Document:
    return {str(name): _to_plain(entry) for name, entry in content.items()}


def _to_plain(value: Any) -> Any:
    """Data that JSON can hold: null for NaN and infinite numbers, text for times, long texts cut."""
    if isinstance(value, Mapping):
        return _to_document(value)
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return value[: MAX_TEXT_CHARS - 1] + "…"
    return value
