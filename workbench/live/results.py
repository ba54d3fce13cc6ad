"""What a run found, in the panel: its answer, its report as it is, its tables to sort and filter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench import files, runs
from workbench.display import chip_html
from workbench.errors import InputError
from workbench.formats import escape
from workbench.live import grid

MOST_REPORT_BYTES = 30_000_000
MOST_TABLES = 60


class Results:
    """Shows one run; nothing until one is given."""

    def __init__(self) -> None:
        import ipywidgets

        self.said = ipywidgets.HTML()
        self.report = ipywidgets.HTML()
        self.choice = ipywidgets.Dropdown(
            description="Table", layout=ipywidgets.Layout(width="auto", max_width="520px")
        )
        self.place = ipywidgets.VBox([])
        tables = ipywidgets.VBox([self.choice, self.place])
        self.tabs = ipywidgets.Tab([self.report, tables], titles=("Report", "Tables"))
        self.box = ipywidgets.VBox([])
        self.run: runs.Run | None = None
        self.choice.observe(lambda _: self._table(), "value")

    def show(self, run: runs.Run) -> None:
        """Show this run."""
        self.run = run
        self.said.value = headline(run)
        self.report.value = frame_of(run)
        found = tables_of(run)
        # Options without a value would keep the old one's rows.
        self.choice.options = [(_named(name, rows), name) for name, rows in found]
        self.choice.value = found[0][0] if found else None
        self._table()
        self.box.children = (self.said, self.tabs)

    def _table(self) -> None:
        if self.run is None or self.choice.value is None:
            self.place.children = ()
            return
        self.place.children = (table_widget(self.run.tables_folder / f"{self.choice.value}.parquet"),)


def _named(table: str, rows: int | None) -> str:
    return table if rows is None else f"{table} ({rows:,} row{'' if rows == 1 else 's'})"


def headline(run: runs.Run) -> str:
    """The answer, verdict with reasons, and where the report lies; everything that the run said is escaped."""
    reasons = "; ".join(map(str, run.record.get("reasons") or []))
    failure = run.record.get("failure")
    words = run.answer or (f"{failure.get('error_name')}: {failure.get('error')}" if isinstance(failure, dict) else "")
    label, place = ("Report", run.report) if run.report.is_file() else ("Folder", run.folder)
    return (
        f'<p style="font-size:1.15em;line-height:1.4;margin:8px 0 4px">{escape(words[:1000] or "no answer")}</p>'
        f"<p>{chip_html(run.verdict, run.state)} {escape(reasons[:2000])}</p>"
        f'<p class="wb-help">{label}: <code>{escape(place)}</code></p>'
    )


def frame_of(run: runs.Run) -> str:
    """The report in a frame without rights: its own scripts run, and reach neither this page, the server nor a network.

    Our reports carry a stricter policy of their own; a page that somebody put in their place gets this one.
    """
    try:
        page = files.read_bounded(run.report, MOST_REPORT_BYTES).decode("utf-8", "replace")
    except InputError as error:
        return f'<p class="wb-help">The report is {escape(error.what)}: open it in a browser.</p>'
    except OSError:
        return '<p class="wb-help">This run has no report: its cells were run by hand, or it did not get so far.</p>'
    title = escape(f"Report of run {run.run_id}")
    return f'<iframe sandbox="allow-scripts" title="{title}" srcdoc="{escape(_POLICY + page)}"></iframe>'


_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'\">"
)


def tables_of(run: runs.Run) -> list[tuple[str, int | None]]:
    """The names of the run's tables that are there, with their rows where the record says so."""
    try:
        with os.scandir(run.tables_folder) as found:
            names = sorted(Path(one.name).stem for one in found if one.name.endswith(".parquet") and one.is_file())
    except OSError:
        return []
    listed = run.record.get("tables")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    rows = {one.get("name"): one.get("rows") for one in entries if isinstance(one.get("rows"), int)}
    return [(name, rows.get(name)) for name in names[:MOST_TABLES]]


def table_widget(path: Path) -> Any:
    """A result table to sort and filter; words instead where it cannot be read."""
    import ipywidgets
    import polars as pl

    try:
        whole = pl.scan_parquet(path, glob=False)
        kept = whole.head(grid.MOST_ROWS).collect()
        n_rows = int(whole.select(pl.len()).collect().item())
    # A broken file makes polars panic, which is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        return ipywidgets.HTML(f'<div class="wb-problem">{escape(path.name)}: {escape(str(error)[:200])}</div>')
    made = grid.grid(kept)
    made.table = grid.content(kept, caption=path.stem.replace("_", " "), n_rows=n_rows)
    return made
