"""The panel of a notebook: its settings as a form, a run button, its runs, and what one of them found.

It keeps nothing of its own: runs, their settings and their progress are read from run folders, so that a kernel that is
restarted shows the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import notebooks, parameters, runs
from workbench.errors import WorkbenchError
from workbench.formats import escape, moment
from workbench.live import fields, grid, past, process
from workbench.live.checking import examined
from workbench.live.form import Form
from workbench.live.results import Results
from workbench.live.running import RunBar

if TYPE_CHECKING:
    from pydantic import BaseModel

_panels: dict[str, Panel] = {}
_NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"


def panel_of(area: str, model: type[BaseModel], values: Mapping[str, Any]) -> Panel:
    """This kernel's panel of an area; a new one when the parameters cell, or the model, is no longer what it was."""
    panel = _panels.get(area)
    if panel is None or panel.model is not model or panel.cell != dict(values):
        panel = _panels[area] = Panel(area, model, values, notebook=notebook_of(area))
    return panel


def notebook_of(area: str, folder: Path | None = None) -> Path | None:
    """The file of the notebook that this kernel belongs to: the one that Jupyter names, else the area's in its folder.

    Null when there is none: then nothing can be run from the panel.
    """
    folder = folder or Path.cwd()
    if named := os.environ.get(_NOTEBOOK_VARIABLE):
        path = folder / Path(named).name
        if path.suffix == ".ipynb" and path.is_file():
            return path
    found = sorted(path for path in folder.glob("*.ipynb") if notebooks.area_of(path).lstrip("_") == area)
    return found[0] if found else None


class Panel:
    """Form, run button, runs and results of one notebook.

    Parameters
    ----------
    area
        Name of its runs.
    model
        What may be set.
    values
        What the parameters cell holds.
    notebook
        Its file; null where it is not known.
    out
        Where runs lie; `runs.default_out()` without it.
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
        self.out = out or runs.default_out()
        # `workbench run` files a run under the name of the notebook's file, which a copy has changed.
        self.areas = tuple(dict.fromkeys([area, *([notebooks.area_of(notebook)] if notebook else [])]))
        declared = _declared(notebook)
        self.defaults = {item.name: item.default for item in declared}
        self.form = Form(fields.fields(model, declared), values, notebook.parent if notebook else Path.cwd())
        self.bar = RunBar(notebook or Path(), self.areas, self.out, self._ended)
        self.results = Results()
        self.found: list[runs.Run] = []
        self.grid = grid.grid(past.table([]), caption="", selectable=True)
        self.command = grid.copied("")
        self.reading = ipywidgets.HTML()
        auto = ipywidgets.Layout(width="auto")
        self.back = ipywidgets.Button(description="Back to the cell's values", layout=auto)
        self.last = ipywidgets.Button(description="Last run's settings: use", layout=auto)
        self.refresh = ipywidgets.Button(description="Look again", tooltip="Read the runs anew", layout=auto)
        self._used: dict[str, Any] | None = None
        self._wire()
        self.look()
        self._changed()

    def values(self) -> dict[str, Any]:
        """What the form holds now."""
        return self.form.values()

    def show(self) -> None:
        """Show the panel below the cell that runs now; a run that goes on is followed."""
        from IPython.display import display

        self._used = self.values()
        self.look()
        self._changed()
        if self.notebook is not None:
            self.bar.find()
        display(self.box())  # type: ignore[no-untyped-call]

    def box(self) -> Any:
        """All of it."""
        import ipywidgets

        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        title = ipywidgets.HTML('<div class="wb-title">Settings</div>')
        settings = [title, self.form.box(), self.reading, ipywidgets.HBox([self.back, self.last], layout=row)]
        run = [self.bar.box(), self.command] if self.notebook else [ipywidgets.HTML(_NO_FILE)]
        heading = ipywidgets.HTML('<div class="wb-title">Runs</div>')
        past_runs = [ipywidgets.HBox([heading, self.refresh], layout=row), self.grid, self.results.box]
        panel = ipywidgets.VBox([ipywidgets.HTML(grid.style()), *settings, *run, *past_runs])
        panel.add_class("wb-panel")
        return panel

    def look(self) -> None:
        """Read the runs anew; the chosen one stays chosen."""
        chosen = self.results.run.run_id if self.results.run else None
        self.found = process.recent(self.out, self.areas)
        ids = [run.run_id for run in self.found]
        with self.grid.hold_sync():
            self.grid.table = grid.content(
                past.table(self.found), caption="Of this notebook, newest first; the chosen one's settings stand above"
            )
            self.grid.selected = ids.index(chosen) if chosen in ids else None
        last = past.last_finished(self.found)
        self.last.layout.display = "none" if last is None else ""
        if last is not None:
            self.last.tooltip = f"{moment(str(last.record['started_at']))}: {last.answer or 'no answer'}"[:300]

    def choose(self, run: runs.Run) -> None:
        """Put a run's settings into the form, and show what it found."""
        known, unknown = past.settings(run, list(self.form.plan))
        refused = self.form.set(known)
        self.results.show(run)
        notes = []
        if unknown:
            notes.append(f"This run also had {', '.join(unknown)[:200]}, which the notebook does not know now.")
        if refused:
            told = ", ".join(f"{name} = {known[name]!r}"[:80] for name in refused)
            notes.append(f"This run had {told[:300]}, which cannot be set now.")
        if notes:
            self._say(notes)

    def _wire(self) -> None:
        self.form.on_change(self._changed)
        self.back.on_click(lambda _: self.form.set(self.cell))
        self.last.on_click(lambda _: self._use_last())
        self.refresh.on_click(lambda _: self.look())
        self.bar.run.on_click(lambda _: self._run())
        self.grid.observe(lambda change: self._chosen(change["new"]), "selected")

    def _run(self) -> None:
        config, problems = examined(self.model, self.values())
        self.form.say(problems)
        if config is not None:
            self.bar.start(past.changed(self.defaults, self.values()))

    def _ended(self, run: runs.Run) -> None:
        self.results.show(run)
        self.look()

    def _chosen(self, index: int | None) -> None:
        if index is None or not 0 <= index < len(self.found):
            return
        run = self.found[index]
        # `look` marks the run that is shown already.
        if self.results.run is None or run.run_id != self.results.run.run_id:
            self.choose(run)

    def _use_last(self) -> None:
        if (last := past.last_finished(self.found)) is not None:
            self.form.set(past.settings(last, list(self.form.plan))[0])

    def _changed(self) -> None:
        values = self.values()
        config, problems = examined(self.model, values)
        self.form.say(problems)
        self.bar.allow(config is not None)
        notes = []
        if config is not None:
            if self.notebook is not None:
                self.command.text = past.command(self.notebook, self.defaults, values)
            read = {name: value for name, value in config.model_dump().items() if values.get(name, value) != value}
            notes += [f"Understood as {name} = {value}." for name, value in read.items()]
        if self._used is not None and values != self._used:
            changed = ", ".join(past.changed(self._used, values))
            notes.append(f"Changed since this cell ran: {changed}. Run it and the cells below again to see them there.")
        self.back.disabled = values == self.cell
        self._say(notes)

    def _say(self, notes: list[str]) -> None:
        self.reading.value = "".join(f'<div class="wb-help" role="status">{escape(note)}</div>' for note in notes)


_NO_FILE = (
    '<p class="wb-help">This notebook has no file in the kernel\'s folder: save it there to run it from here.</p>'
)


def _declared(notebook: Path | None) -> tuple[parameters.Parameter, ...]:
    """The parameters of the notebook's file; none where it cannot be read."""
    if notebook is None:
        return ()
    with contextlib.suppress(WorkbenchError):
        return parameters.read(notebooks.read(notebook), notebook.name)
    return ()
