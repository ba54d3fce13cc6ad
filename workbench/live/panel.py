"""Panel of a notebook: settings, run button, table of runs, results of the chosen run."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from workbench.charts.renderer import SESSION_VARIABLE
from workbench.core.errors import WorkbenchError
from workbench.core.files import default_out
from workbench.core.formats import escape_html, format_duration, format_moment
from workbench.execution import discovery, parameters
from workbench.live import form, result_widgets, run_control
from workbench.live.form import Form, check_values, list_groups
from workbench.live.result_widgets import ResultsView, describe_outcome
from workbench.live.run_control import RunBar
from workbench.runs import run_folder

if TYPE_CHECKING:
    import polars as pl

ANSWER_CHARS = 300
MAX_NAMED_SETTINGS = 3
MAX_SETTING_CHARS = 48
_panels: dict[str, Panel] = {}
_NO_FILE_HTML = (
    '<p class="wb-help">This notebook has no file in the kernel\'s folder: save it there to run it from here.</p>'
)


def build_run_table(runs: Sequence[run_folder.Run]) -> pl.DataFrame:
    """Table of runs, newest first: `when`, `status`, `verdict` (nullable), `took`, `answer` (nullable), `run`."""
    import polars as pl

    names = ("when", "status", "verdict", "took", "answer", "run")
    rows = [
        (
            format_moment(str(run.record["started_at"])),
            run.state + (", by hand" if run.record.get("command") == "live" else ""),
            run.verdict,
            format_duration(_read_duration_s(run)),
            (run.answer or describe_outcome(run).split("\n")[0])[:ANSWER_CHARS] or None,
            run.run_id,
        )
        for run in runs
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")


def _read_duration_s(run: run_folder.Run) -> float | None:
    took = run.record.get("duration_s")
    return took if isinstance(took, int | float) and not isinstance(took, bool) else None


def read_run_settings(run: run_folder.Run, names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Settings of a run whose names are in `names`, and its other names."""
    config = run.record.get("config")
    config = config if isinstance(config, dict) else {}
    return {name: config[name] for name in names if name in config}, sorted({*config} - {*names})


def build_run_command(notebook: Path, defaults: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The command line that runs the notebook with these values.

    >>> build_run_command(Path("notebooks/01_speedup.ipynb"), {"top": 12, "mode": "pair"}, {"top": 5, "mode": "pair"})
    'workbench run 01_speedup -p top=5'
    """
    changes = select_changes(defaults, values)
    return discovery.RunPlan(notebook, None, parameters.ResolvedValues(dict(values), changes)).command


def select_changes(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that differ from the defaults."""
    return {name: value for name, value in values.items() if name not in defaults or defaults[name] != value}


def find_last_finished_run(runs: Sequence[run_folder.Run]) -> run_folder.Run | None:
    """The newest run that succeeded."""
    return next((run for run in runs if run.status == "succeeded"), None)


def get_panel(area: str, model: type[BaseModel], values: Mapping[str, Any]) -> Panel:
    """The panel of an area in this kernel; a new one after a change of the parameters cell or of the model."""
    panel = _panels.get(area)
    if panel is None or panel.model is not model or panel.cell != dict(values):
        panel = _panels[area] = Panel(area, model, values, notebook=find_notebook(area))
    return panel


def find_notebook(area: str, folder: Path | None = None) -> Path | None:
    """File of this kernel's notebook: by Jupyter's session name, else the area's notebook in the folder.

    Null when there is none; the panel then cannot start runs.
    """
    folder = folder or Path.cwd()
    if named := os.environ.get(SESSION_VARIABLE):
        path = folder / Path(named).name
        if path.suffix == ".ipynb" and path.is_file():
            return path
    paths = sorted(path for path in folder.glob("*.ipynb") if discovery.area_from_path(path).lstrip("_") == area)
    return paths[0] if paths else None


class Panel:
    """Form, run button, runs and results of one notebook.

    `notebook`: File of the notebook; null when unknown.
    """

    def __init__(
        self,
        area: str,
        model: type[BaseModel],
        values: Mapping[str, Any],
        *,
        notebook: Path | None,
        out: Path | None = None,
    ) -> None:
        import ipywidgets

        self.model, self.cell, self.notebook = model, dict(values), notebook
        self.out = out or default_out()
        # `workbench run` uses the file name as area, which differs for a copy of the notebook.
        self.areas = tuple(dict.fromkeys([area, *([discovery.area_from_path(notebook)] if notebook else [])]))
        declared = _read_declared_parameters(notebook)
        self.defaults = {item.name: item.default for item in declared}
        self.base = notebook.parent if notebook else Path.cwd()
        self.form = Form(form.list_fields(model, declared), values, self.base, list_groups(model))
        self.bar = RunBar(notebook or Path(), self.areas, self.out, self._on_run_end)
        self.results = ResultsView()
        self.found: list[run_folder.Run] = []
        self.grid = result_widgets.create_grid(build_run_table([]), caption="", selectable=True)
        self.command = result_widgets.create_copy_widget("")
        self.reading = ipywidgets.HTML()
        auto = ipywidgets.Layout(width="auto")
        self.back = ipywidgets.Button(description="Reset", layout=auto)
        self.last = ipywidgets.Button(description="Use last run's settings", layout=auto)
        self.refresh = ipywidgets.Button(description="Refresh", tooltip="Read the runs again", layout=auto)
        self._used: dict[str, Any] | None = None
        # Settings of the answer that the cells below show, and the run that they made.
        self._answered: dict[str, Any] | None = None
        self._live_state: tuple[str, str] | None = None
        self._connect_widgets()
        self.refresh_runs()
        self._on_form_change()

    def read_values(self) -> dict[str, Any]:
        """Current values of the form."""
        return self.form.read_values()

    def show(self) -> None:
        """Show the panel below the current cell, and follow a run in progress."""
        from IPython.display import display

        self._used = self.read_values()
        self.refresh_runs()
        self._on_form_change()
        if self.notebook is not None:
            self.bar.resume_run()
        _watch_cells()
        display(self.box())  # type: ignore[no-untyped-call]

    def box(self) -> Any:
        """The panel as one widget: run control first, so that it is at hand however long the form is."""
        import ipywidgets

        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        title = ipywidgets.HTML('<div class="wb-title">Settings</div>')
        settings = [title, self.form.box(), self.reading, ipywidgets.HBox([self.back, self.last], layout=row)]
        run = [self.bar.box(), self.command, self.bar.toolbar] if self.notebook else [ipywidgets.HTML(_NO_FILE_HTML)]
        heading = ipywidgets.HTML('<div class="wb-title">Runs</div>')
        past_runs = [ipywidgets.HBox([heading, self.refresh], layout=row), self.grid, self.results.box]
        panel = ipywidgets.VBox([ipywidgets.HTML(result_widgets.read_style()), *run, *settings, *past_runs])
        panel.add_class("wb-panel")
        return panel

    def refresh_runs(self) -> None:
        """Read the runs again; keeps the selection."""
        chosen = self.results.run.run_id if self.results.run else None
        self.found = run_control.list_recent_runs(self.out, self.areas)
        ids = [run.run_id for run in self.found]
        with self.grid.hold_sync():
            self.grid.table = result_widgets.build_grid_content(
                build_run_table(self.found),
                caption="Runs of this notebook, newest first; select one to load its settings",
            )
            self.grid.selected = ids.index(chosen) if chosen in ids else None
        last = find_last_finished_run(self.found)
        self.last.layout.display = "none" if last is None else ""
        if last is not None:
            self.last.tooltip = f"{format_moment(str(last.record['started_at']))}: {last.answer or 'no answer'}"[:300]

    def notice_live_run(self) -> None:
        """After a cell has run: list the run that the cells make; once it has ended, they show its answer."""
        live = run_folder.find_live_run(self.areas[0])
        state = None if live is None else (live.run_id, live.status)
        if live is None or state == self._live_state:
            return
        self._live_state = state
        has_ended = live.status != "running"
        # While cells run, what they show belongs to no settings yet.
        self._answered = self._used if has_ended else None
        if has_ended:
            self.results.hide()
        self.refresh_runs()
        self.mark_outdated()

    def mark_outdated(self) -> None:
        """Tell above the notebook's answer when it is not that of the chosen run, or of the form's settings."""
        self.bar.toolbar.outdated = {} if self._answered is None else self._describe_outdated(self._answered)

    def _describe_outdated(self, answered: Mapping[str, Any]) -> dict[str, str]:
        run = self.results.run
        other = read_run_settings(run, list(self.form.plan))[0] if run else self.read_values()
        changes = {
            name: value for name, value in other.items() if not _is_same_setting(answered.get(name), value, self.base)
        }
        if not changes:
            return {}
        before = _format_settings({name: answered.get(name) for name in changes})
        below = f"Below: the cells as they last ran, with {before}."
        if run is None:
            return {"title": f"The form now has {_format_settings(changes)}.", "answer": "", "note": below}
        title = f"Run of {format_moment(str(run.record['started_at']))} with {_format_settings(changes)}"
        return {"title": title, "answer": describe_outcome(run)[:ANSWER_CHARS] or "no answer", "note": below}

    def choose_run(self, run: run_folder.Run) -> None:
        """Load the settings of a run into the form, and show its results."""
        settings, unknown = read_run_settings(run, list(self.form.plan))
        refused = self.form.set_values(settings)
        self.results.show(run)
        self.mark_outdated()
        notes = []
        if unknown:
            notes.append(f"Settings of this run that the notebook no longer has: {', '.join(unknown)[:200]}.")
        if refused:
            values = ", ".join(f"{name} = {settings[name]!r}"[:80] for name in refused)
            notes.append(f"Settings of this run that are no longer possible: {values[:300]}.")
        if notes:
            self._show_notes(notes)

    def _connect_widgets(self) -> None:
        self.form.on_change(self._on_form_change)
        self.back.on_click(lambda _: self.form.set_values(self.cell))
        self.last.on_click(lambda _: self._use_last_settings())
        self.refresh.on_click(lambda _: self.refresh_runs())
        self.bar.run.on_click(lambda _: self._start_run())
        self.grid.observe(lambda change: self._on_row_choice(change["new"]), "selected")

    def _start_run(self) -> None:
        config, problems = check_values(self.model, self.read_values())
        self.form.show_problems(problems)
        if config is not None:
            self.bar.start_run(select_changes(self.defaults, self.read_values()))

    def _on_run_end(self, run: run_folder.Run) -> None:
        self.results.show(run)
        self.refresh_runs()
        self.mark_outdated()
        self.bar.toolbar.send({"do": "show results"})

    def _on_row_choice(self, index: int | None) -> None:
        if index is None or not 0 <= index < len(self.found):
            return
        run = self.found[index]
        # `refresh_runs` selects the run that is already shown.
        if self.results.run is None or run.run_id != self.results.run.run_id:
            self.choose_run(run)

    def _use_last_settings(self) -> None:
        if (last := find_last_finished_run(self.found)) is not None:
            self.form.set_values(read_run_settings(last, list(self.form.plan))[0])

    def _on_form_change(self) -> None:
        values = self.read_values()
        config, problems = check_values(self.model, values)
        self.form.show_problems(problems)
        self.bar.enable_start(config is not None)
        notes = []
        if config is not None:
            if self.notebook is not None:
                self.command.text = build_run_command(self.notebook, self.defaults, values)
            read = {name: value for name, value in config.model_dump().items() if values.get(name, value) != value}
            notes += [f"Read as {name} = {value}." for name, value in read.items()]
        if self._used is not None and values != self._used:
            changed = ", ".join(select_changes(self._used, values))
            notes.append(f"Changed since this cell ran: {changed}. Run it and the cells below again.")
        self.back.disabled = values == self.cell
        self._show_notes(notes)
        self.mark_outdated()

    def _show_notes(self, notes: list[str]) -> None:
        self.reading.value = "".join(f'<div class="wb-help" role="status">{escape_html(note)}</div>' for note in notes)


def _format_settings(settings: Mapping[str, Any]) -> str:
    """Settings as words, the first few of many.

    >>> _format_settings({"users": 400, "goal": "p95<=6"})
    'users = 400, goal = p95<=6'
    """
    texts = [f"{name} = {_shorten(str(value))}" for name, value in settings.items()]
    more = f" and {len(texts) - MAX_NAMED_SETTINGS} more" if len(texts) > MAX_NAMED_SETTINGS else ""
    return ", ".join(texts[:MAX_NAMED_SETTINGS]) + more


def _shorten(text: str) -> str:
    """The end of a long text, where the name of a path is."""
    return text if len(text) <= MAX_SETTING_CHARS else f"…{text[1 - MAX_SETTING_CHARS :]}"


def _is_same_setting(one: Any, other: Any, base: Path) -> bool:
    """Whether two values mean the same: a run keeps some paths as they are from the root.

    >>> _is_same_setting("../data/log", "/project/data/log", Path("/project/notebooks"))
    True
    """
    if one == other or not (isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    return "/" in one and "/" in other and os.path.normpath(base / one) == os.path.normpath(base / other)


@functools.cache
def _watch_cells() -> None:
    """Let the panels of this kernel see, after each cell, the run that the cells make."""
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        shell.events.register("post_run_cell", _notice_live_runs)


def _notice_live_runs(*_: object) -> None:
    for panel in _panels.values():
        panel.notice_live_run()


def _read_declared_parameters(notebook: Path | None) -> tuple[parameters.Parameter, ...]:
    """Parameters of the notebook's file; empty when it cannot be read."""
    if notebook is None:
        return ()
    with contextlib.suppress(WorkbenchError):
        return parameters.read_parameters(discovery.read_notebook(notebook), notebook.name)
    return ()
