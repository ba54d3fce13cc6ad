"""Widgets that show results: sortable tables, the results of a run, what-if controls."""

from __future__ import annotations

import functools
import math
import os
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.formats import escape_html, format_column, format_label, format_number
from workbench.report.display import choose_column_class, render_chip, render_conditions, render_details
from workbench.runs import run_folder

if TYPE_CHECKING:
    import polars as pl

STATIC = Path(__file__).parent / "static"
MAX_ROWS = 5_000
MAX_CELLS = 60_000
MAX_REPORT_BYTES = 30_000_000
MAX_TABLES = 60
# Reports have a stricter policy of their own; this one is for a replaced report.html.
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)
ALLOWED_OF_REPORTS = "allow-scripts allow-downloads allow-popups allow-popups-to-escape-sandbox"
# Set by the server's extension (`workbench/live/report_server.py`): a folder of runs, and its address.
SERVED_FOLDER_VARIABLE = "WORKBENCH_SERVED_FOLDER"
SERVED_URL_VARIABLE = "WORKBENCH_SERVED_URL"
# A frame without an address of its own: `#` links stay in it. Before the policy, which forbids a base.
_FRAME_HEAD = f'<base href="about:srcdoc"><meta http-equiv="Content-Security-Policy" content="{REPORT_POLICY}">'


def build_grid_content(frame: pl.DataFrame, *, caption: str = "", n_rows: int | None = None) -> dict[str, Any]:
    """Content of a grid: headers with units, cell texts, sort keys."""
    max_rows = max(1, min(MAX_ROWS, MAX_CELLS // max(1, frame.width)))
    total, head = frame.height if n_rows is None else n_rows, frame.head(max_rows)
    values = [head.get_column(name).to_list() for name in head.columns]
    texts = [format_column(column) for column in values]
    columns = [
        {
            "label": format_label(name),
            "meaning": name,
            "kind": choose_column_class(head.schema[name].is_numeric(), column),
        }
        for name, column in zip(head.columns, texts, strict=True)
    ]
    notice = f"the first {head.height:,} of {total:,}" if head.height < total else ""
    keys = [[_sort_key(value) for value in column] for column in values]
    return {
        "caption": caption,
        "notice": notice,
        "columns": columns,
        "texts": [list(row) for row in zip(*texts, strict=True)],
        "keys": [list(row) for row in zip(*keys, strict=True)],
    }


def _sort_key(value: Any) -> str | float | None:
    """Sort key of a value; null when missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float):
        # JSON has no infinity.
        return float(value) if math.isfinite(value) else math.copysign(1.7e308, value)
    return format_number(value)


@functools.cache
def _create_widget_classes() -> tuple[Any, Any]:
    """The two widget classes, created on first use, so that anywidget is not imported headless."""
    import anywidget
    import traitlets

    class Grid(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = (STATIC / "grid.js").read_text(encoding="utf-8")
        table = traitlets.Dict().tag(sync=True)
        selectable = traitlets.Bool(False).tag(sync=True)
        selected = traitlets.Int(None, allow_none=True).tag(sync=True)

    class Copied(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = (STATIC / "copy.js").read_text(encoding="utf-8")
        text = traitlets.Unicode("").tag(sync=True)

    return Grid, Copied


def create_grid(frame: pl.DataFrame, *, caption: str = "", selectable: bool = False) -> Any:
    """Widget of a table; with `selectable`, `selected` is the index of the selected row."""
    return _create_widget_classes()[0](table=build_grid_content(frame, caption=caption), selectable=selectable)


def create_copy_widget(text: str) -> Any:
    """Widget of a command line with a copy button."""
    return _create_widget_classes()[1](text=text)


@functools.cache
def read_style() -> str:
    """The style sheet as a style element."""
    return f"<style>{(STATIC / 'live.css').read_text(encoding='utf-8')}</style>"


class ResultsView:
    """Widgets with the results of one run."""

    def __init__(self) -> None:
        import ipywidgets

        self.heading = ipywidgets.HTML()
        self.report = ipywidgets.HTML()
        self.choice = ipywidgets.Dropdown(
            description="Table", layout=ipywidgets.Layout(width="auto", max_width="520px")
        )
        self.place = ipywidgets.VBox([])
        tables = ipywidgets.VBox([self.choice, self.place])
        self.tabs = ipywidgets.Tab([self.report, tables], titles=("Report", "Tables"))
        self.box = ipywidgets.VBox([])
        self.box.add_class("wb-results")
        self.run: run_folder.Run | None = None
        self.choice.observe(lambda _: self._show_table(), "value")

    def show(self, run: run_folder.Run) -> None:
        """Show a run."""
        self.run = run
        self.heading.value = render_run_headline(run)
        self.report.value = render_report_frame(run)
        tables = list_run_tables(run)
        # Setting only the options would keep the rows of the previous table.
        self.choice.options = [(_format_table_name(name, rows), name) for name, rows in tables]
        self.choice.value = tables[0][0] if tables else None
        self._show_table()
        if not run.report.is_file():
            self.tabs.selected_index = 1
        self.box.children = (self.heading, self.tabs)

    def hide(self) -> None:
        """Show no run."""
        self.run = None
        self.box.children = ()

    def _show_table(self) -> None:
        if self.run is None or self.choice.value is None:
            self.place.children = ()
            return
        self.place.children = (create_table_widget(self.run.tables_folder / f"{self.choice.value}.parquet"),)


def _format_table_name(table: str, rows: int | None) -> str:
    return table if rows is None else f"{table} ({rows:,} row{'' if rows == 1 else 's'})"


def render_run_headline(run: run_folder.Run) -> str:
    """Answer, verdict with reasons, and the link or path of the report, as escaped HTML."""
    reasons = "; ".join(map(str, run.record.get("reasons") or []))
    chips = render_chip(run.verdict, run.state) + render_conditions(run.record.get("conditions"))
    return (
        f'<p class="wb-run-answer">{escape_html(describe_outcome(run)[:1000] or "no answer")}</p>'
        f"<p>{chips} {escape_html(reasons[:2000])}</p>"
        f"{render_details(run.record.get('details'))}"
        f'<p class="wb-help">{render_report_link(run) or _render_place(run)}</p>'
    )


def describe_outcome(run: run_folder.Run) -> str:
    """The answer of a run, or its failure; empty for neither."""
    failure = run.record.get("failure")
    return run.answer or (f"{failure.get('error_name')}: {failure.get('error')}" if isinstance(failure, dict) else "")


def _render_place(run: run_folder.Run) -> str:
    label, place = ("Report", run.report) if run.report.is_file() else ("Folder", run.folder)
    return f"{label}: <code>{escape_html(place)}</code>"


def find_report_url(run: run_folder.Run) -> str:
    """Address of the report in this Jupyter session; empty without a report, or where the server does not serve it."""
    folder, url = os.environ.get(SERVED_FOLDER_VARIABLE), os.environ.get(SERVED_URL_VARIABLE)
    if not folder or not url or not run.report.is_file() or not run.report.is_relative_to(folder):
        return ""
    return f"{url}/{urllib.parse.quote(run.report.relative_to(folder).as_posix())}"


def render_report_link(run: run_folder.Run) -> str:
    """A link that opens the report in a tab of its own; empty where the server does not serve it."""
    url = find_report_url(run)
    return f'<a class="wb-open" href="{escape_html(url)}" target="_blank" rel="noopener">Open report</a>' if url else ""


def render_report_frame(run: run_folder.Run) -> str:
    """The report in a sandboxed frame: its scripts run without access to this page, the server or a network.

    As text, not by its address: a frame of another origin has no cookies, so that its links would ask for a login.
    Contents and downloads work; what lies beside the report is opened from its own tab.
    """
    try:
        page = files.read_up_to(run.report, MAX_REPORT_BYTES).decode("utf-8", "replace")
    except InputError as error:
        return f'<p class="wb-help">The report is {escape_html(error.what)}: open it in a browser.</p>'
    except OSError:
        return '<p class="wb-help">This run has no report: its cells were run by hand, or it ended earlier.</p>'
    title = escape_html(f"Report of run {run.run_id}")
    frame = f'<iframe sandbox="{ALLOWED_OF_REPORTS}" allow="clipboard-write *" title="{title}"'
    return f'{frame} srcdoc="{escape_html(_FRAME_HEAD + page)}"></iframe>'


def list_run_tables(run: run_folder.Run) -> list[tuple[str, int | None]]:
    """Names of the run's table files, with their number of rows where recorded."""
    try:
        with os.scandir(run.tables_folder) as members:
            names = sorted(
                Path(member.name).stem for member in members if member.name.endswith(".parquet") and member.is_file()
            )
    except OSError:
        return []
    listed = run.record.get("tables")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    rows = {entry.get("name"): entry.get("rows") for entry in entries if isinstance(entry.get("rows"), int)}
    return [(name, rows.get(name)) for name in names[:MAX_TABLES]]


def create_table_widget(path: Path) -> Any:
    """Grid of a result table; an error text when it cannot be read."""
    import ipywidgets
    import polars as pl

    try:
        scan = pl.scan_parquet(path, glob=False)
        frame = scan.head(MAX_ROWS).collect()
        n_rows = int(scan.select(pl.len()).collect().item())
    # Polars panics on some damaged files; a panic is not an `Exception`.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        return ipywidgets.HTML(
            f'<div class="wb-problem">{escape_html(path.name)}: {escape_html(str(error)[:200])}</div>'
        )
    grid = create_grid(frame)
    grid.table = build_grid_content(frame, caption=path.stem.replace("_", " "), n_rows=n_rows)
    return grid


class WhatIfControls:
    """Base of the areas' what-if controls: subclasses give the answer, the chart and the widgets.

    Works without a front end.
    """

    def __init__(self) -> None:
        import ipywidgets

        self.sentence = ipywidgets.HTML()
        self._chart: Any = None

    def format_answer(self) -> str:
        """Answer for the current settings."""
        raise NotImplementedError

    def build_chart(self) -> Any:
        """Chart for the current settings."""
        raise NotImplementedError

    def list_controls(self) -> list[Any]:
        """Widgets, from top to bottom."""
        raise NotImplementedError

    def box(self) -> Any:
        """The answer and the controls as one widget."""
        import ipywidgets

        return ipywidgets.VBox([self.sentence, *self.list_controls()])

    def show(self) -> None:
        """Show the controls and the chart."""
        from IPython.display import display

        display(self.box())  # type: ignore[no-untyped-call]
        self._chart = display(self.build_chart(), display_id=True)  # type: ignore[no-untyped-call]

    def redraw(self) -> None:
        """Update answer and chart."""
        self.update_answer()
        if self._chart is not None:
            self._chart.update(self.build_chart())

    def update_answer(self) -> None:
        """Update the answer only."""
        self.sentence.value = f'<p role="status">{escape_html(self.format_answer())}</p>'


def slider_options(label_px: int, width_px: int, readout: str) -> dict[str, Any]:
    """Options of all sliders."""
    import ipywidgets

    return {
        # Redraws would pile up while a slider is dragged.
        "continuous_update": False,
        "style": {"description_width": f"{label_px}px"},
        "layout": ipywidgets.Layout(width=f"{width_px}px", max_width="100%"),
        "readout_format": readout,
    }
