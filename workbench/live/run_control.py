"""Run control of the panel: start `workbench run` as a process, follow it, cancel it."""

from __future__ import annotations

import contextlib
import functools
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import InputError, WorkbenchError
from workbench.core.formats import escape_html, format_duration
from workbench.core.locks import find_holder
from workbench.live.result_widgets import find_report_url, render_report_link
from workbench.report.page import read_template
from workbench.runs import run_folder
from workbench.runs.run_folder import read_start_time

_STATIC = Path(__file__).parent / "static"
_MAX_TEXT_CHARS = 120
FOLDER_PREFIX = "wb-panel-"
"""Prefix of the folder with a run's settings; identifies processes that a panel started."""
MAX_RUNS = 50
_TAIL_CHARS = 4_000
_MAX_PROGRESS_BYTES = 10_000
POLL_EVERY_S = 0.5


@functools.cache
def _create_widget_class() -> Any:
    """The widget class, created on first use, so that anywidget is not imported headless."""
    import anywidget
    import traitlets

    class RunToolbar(anywidget.AnyWidget):  # type: ignore[misc]
        # With the reports' own tables, for those of the notebook's cells.
        _esm = read_template("tables.js") + "\n" + (_STATIC / "toolbar.js").read_text(encoding="utf-8")
        can_run = traitlets.Bool(True).tag(sync=True)
        can_cancel = traitlets.Bool(False).tag(sync=True)
        is_running = traitlets.Bool(False).tag(sync=True)
        cell = traitlets.Int(0).tag(sync=True)
        cells = traitlets.Int(1).tag(sync=True)
        text = traitlets.Unicode("").tag(sync=True)
        report = traitlets.Unicode("").tag(sync=True)
        outdated = traitlets.Dict().tag(sync=True)

    return RunToolbar


def create_run_toolbar(run: Any, cancel: Any, progress: Any, sentence: Any) -> Any:
    """Widget that puts a run bar's controls into the toolbar of the notebook that shows it.

    It has no extension to install: its script finds the toolbar around its cell, and leaves it when the cell's output
    goes. Where there is none (another front end) nothing is shown; the run bar itself stays.
    """
    import traitlets

    toolbar = _create_widget_class()()
    traitlets.dlink((run, "disabled"), (toolbar, "can_run"), lambda off: not off)
    traitlets.dlink((cancel, "disabled"), (toolbar, "can_cancel"), lambda off: not off)
    traitlets.dlink((progress, "value"), (toolbar, "cell"))
    traitlets.dlink((progress, "max"), (toolbar, "cells"))
    traitlets.dlink((progress.layout, "display"), (toolbar, "is_running"), lambda display: display != "none")
    traitlets.dlink((sentence, "value"), (toolbar, "text"), extract_text)
    buttons = {"run": run, "cancel": cancel}
    toolbar.on_msg(lambda _, content, __: _click(buttons.get(str(content.get("do")))))
    return toolbar


def _click(button: Any) -> None:
    """Click a button, unless it is disabled or there is none."""
    if button is not None and not button.disabled:
        button.click()


def extract_text(markup: str) -> str:
    """The first line of the text of escaped HTML, cut to what a toolbar has room for.

    >>> extract_text('<span role="status">Done &amp; kept</span>')
    'Done & kept'
    """
    text = html.unescape(re.sub(r"<[^>]*>", " ", markup)).strip()
    return text.split("\n")[0].strip()[:_MAX_TEXT_CHARS]


@dataclass
class StartedRun:
    """A process started by the panel, with the private folder of its settings and output."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    @property
    def words(self) -> str:
        """The end of its output."""
        with contextlib.suppress(OSError):
            return (self.folder / "words").read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARS:]
        return ""

    def remove_folder(self) -> None:
        """Remove the private folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def start_run(notebook: Path, values: Mapping[str, Any], out: Path) -> StartedRun:
    """Start `workbench run` on the saved notebook with these parameters.

    In a new session, since restarting a kernel kills its process group.
    """
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    try:
        import yaml

        settings = folder / "settings.yaml"
        # YAML would read JSON's 1e-05 as text, and escapes beyond 16 bits as surrogates. The round trip through JSON
        # removes shared objects, which would become aliases.
        text = yaml.safe_dump(json.loads(json.dumps(dict(values))), allow_unicode=True, sort_keys=False)
        settings.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "workbench", "run", str(notebook), "-f", str(settings), "--out", str(out)]
        env = {name: value for name, value in os.environ.items() if name != run_folder.RUN_DIR_VARIABLE}
        with open(folder / "words", "wb") as words:
            process = subprocess.Popen(  # noqa: S603
                command,
                cwd=notebook.parent,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return StartedRun(process, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def list_recent_runs(out: Path, areas: Iterable[str], max_runs: int = MAX_RUNS) -> list[run_folder.Run]:
    """The newest runs of the areas, newest first; unreadable records are skipped."""
    folders: list[Path] = []
    for area in areas:
        with contextlib.suppress(OSError), os.scandir(out / area) as entries:
            folders += [Path(entry.path) for entry in entries if entry.is_dir()]
    runs: list[run_folder.Run] = []
    # Run ids begin with their UTC start.
    for folder in sorted(folders, key=lambda path: path.name, reverse=True):
        if len(runs) == max_runs:
            break
        with contextlib.suppress(InputError):
            runs.append(run_folder.load_run(folder))
    return runs


def is_running(run: run_folder.Run) -> bool:
    """Whether a process other than a live kernel is running it."""
    return run.status == "running" and run.record.get("command") != "live" and find_holder(run.folder) is not None


def find_cancellable_pid(run: run_folder.Run) -> int | None:
    """Process id of the run when a panel started it, and may end it; else null."""
    pid = find_holder(run.folder)
    return pid if pid is not None and find_private_folder(pid) is not None else None


def find_private_folder(pid: int) -> Path | None:
    """The private folder of a process that a panel started; else null."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    folders = (Path(word).parent for word in words)
    return next(
        (
            folder
            for folder in folders
            if folder.name.startswith(FOLDER_PREFIX) and folder.parent == Path(tempfile.gettempdir())
        ),
        None,
    )


def cancel_run(pid: int) -> None:
    """Cancel a run by SIGTERM; children of kernels ignore SIGINT."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)


@dataclass(frozen=True)
class RunProgress:
    """Index of the next cell, number of cells, and heading above the cell."""

    cell: int
    cells: int
    label: str


def read_progress(run: run_folder.Run) -> RunProgress | None:
    """Progress of a run; null when unknown."""
    try:
        with open(run.folder / run_folder.PROGRESS_FILE, "rb") as file:
            document = json.loads(file.read(_MAX_PROGRESS_BYTES))
        cell, cells, label = document["cell"], document["cells"], str(document["label"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_valid = (
        all(isinstance(number, int) and not isinstance(number, bool) for number in (cell, cells)) and 0 <= cell <= cells
    )
    return RunProgress(cell, cells, label[:200]) if is_valid else None


class RunBar:
    """Buttons Run and Cancel, progress bar and status text for the runs of a notebook."""

    def __init__(
        self, notebook: Path, areas: Sequence[str], out: Path, on_end: Callable[[run_folder.Run], None]
    ) -> None:
        import ipywidgets

        self.notebook, self.areas, self.out = notebook, tuple(areas), out
        self._ended = on_end
        auto = ipywidgets.Layout(width="auto")
        self.run = ipywidgets.Button(
            description="Run and make report",
            tooltip="Runs the saved notebook with these settings in a separate process",
            button_style="primary",
            icon="play",
            layout=auto,
        )
        self.cancel = ipywidgets.Button(description="Cancel", icon="stop", disabled=True, layout=auto)
        self.bar = ipywidgets.IntProgress(min=0, max=1, layout=ipywidgets.Layout(width="180px", display="none"))
        self.sentence = ipywidgets.HTML()
        self.report = ipywidgets.HTML()
        # The same controls, in the notebook's toolbar.
        self.toolbar = create_run_toolbar(self.run, self.cancel, self.bar, self.sentence)
        self.started: StartedRun | None = None
        self.current: run_folder.Run | None = None
        self.good = True
        self._leftover: Path | None = None
        self._is_cancelled = False
        # Reentrant: a change of the form calls back while the lock is held.
        self._lock = threading.RLock()
        self._following = False
        self._follower: threading.Thread | None = None
        self.cancel.on_click(lambda _: self.stop_run())

    def box(self) -> Any:
        """The controls in a row."""
        import ipywidgets

        layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 8px")
        return ipywidgets.HBox([self.run, self.cancel, self.bar, self.sentence, self.report], layout=layout)

    @property
    def busy(self) -> bool:
        """Whether a run is being followed."""
        return self._following

    def start_run(self, values: Mapping[str, Any]) -> None:
        """Start a run with these parameters, and follow it."""
        with self._lock:
            if self.busy:
                return
            self.started = start_run(self.notebook, values, self.out)
            self.current, self._is_cancelled = None, False
            self._link_report(None)
            self._show_text("Starting")
            self._follow_run()

    def resume_run(self) -> bool:
        """Follow a run in progress, as after a restart of the kernel; returns whether there is one."""
        with self._lock:
            if self.busy:
                return True
            going = (run for run in list_recent_runs(self.out, self.areas) if is_running(run))
            self.current = next(going, None)
            if self.current is not None:
                pid = find_cancellable_pid(self.current)
                self._leftover = find_private_folder(pid) if pid else None
                self._follow_run()
        return self.current is not None

    def stop_run(self) -> None:
        """Cancel the followed run, if a panel started it."""
        pid = find_cancellable_pid(self.current) if self.current else None
        if pid is None and self.current is None and self.started and not self.started.ended:
            pid = self.started.process.pid
        if pid is not None:
            self.cancel.disabled = self._is_cancelled = True
            self._show_text("Cancelling")
            cancel_run(pid)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the followed run; returns whether it has ended."""
        if self._follower is not None:
            self._follower.join(timeout_s)
        return not self.busy

    def enable_start(self, enabled: bool) -> None:
        """Enable or disable starting a run."""
        with self._lock:
            self.good = enabled
            self.run.disabled = self.busy or not enabled

    def _follow_run(self) -> None:
        self._following = True
        self.run.disabled, self.cancel.disabled = True, False
        self.bar.value, self.bar.layout.display = 0, ""
        self._follower = threading.Thread(target=self._poll_until_end, name="workbench run", daemon=True)
        self._follower.start()

    def _poll_until_end(self) -> None:
        pause = threading.Event()
        try:
            while not self._update_state():
                pause.wait(POLL_EVERY_S)
            if self.current is not None:
                self._ended(self.current)
        except (WorkbenchError, OSError) as error:
            # For example a deleted run folder; the process may still be running.
            self.current = None
            self._show_problem("The run can no longer be followed.", str(error))
            if self.started is not None:
                self.started.process.wait()
            self._remove_leftovers()
        finally:
            # Last, and under the lock, so that an enabled button works.
            with self._lock:
                self._following = False
                self.bar.layout.display = "none"
                self.cancel.disabled = True
                self.run.disabled = not self.good

    def _update_state(self) -> bool:
        """Show the progress; returns True when the run has ended."""
        over = self.started is not None and self.started.ended
        if self.current is None and self.started is not None:
            self.current = self._find_started_run(self.started)
        if self.current is None:
            if over:
                self._show_failure()
            return over
        run = self.current = run_folder.load_run(self.current.folder)
        # The record and the page are written before the process ends.
        if over or (self.started is None and not is_running(run)):
            self._show_end(run)
            return True
        self._show_progress(run)
        return False

    def _find_started_run(self, started: StartedRun) -> run_folder.Run | None:
        runs = list_recent_runs(self.out, self.areas, max_runs=5)
        pid = started.process.pid
        # One that started and ended between two polls is held by nobody; the output names it.
        words = started.words if started.ended else ""
        held = (run for run in runs if find_holder(run.folder) == pid)
        named = (run for run in runs if str(run.folder) in words)
        return next(held, None) or next(named, None)

    def _show_progress(self, run: run_folder.Run) -> None:
        took = format_duration((datetime.now(UTC) - read_start_time(run.record)).total_seconds())
        if (far := read_progress(run)) is None:
            self._show_text(f"Running, {took}")
            return
        self.bar.max, self.bar.value = max(1, far.cells), far.cell
        whose = "" if find_cancellable_pid(run) else " · started elsewhere, to be ended there"
        self.cancel.disabled = bool(whose)
        self._show_text(f"{far.label or 'Running'} · cell {far.cell + 1} of {far.cells} · {took}{whose}")

    def _show_end(self, run: run_folder.Run) -> None:
        self._remove_leftovers()
        words = {"succeeded": "Done", "cancelled": "Cancelled", "failed": "Failed"}.get(run.state, "Died")
        self._show_text(f"{words} after {format_duration(run.record.get('duration_s'))}")
        self._link_report(run)

    def _link_report(self, run: run_folder.Run | None) -> None:
        self.report.value = render_report_link(run) if run else ""
        self.toolbar.report = find_report_url(run) if run else ""

    def _show_failure(self) -> None:
        words = self.started.words if self.started else ""
        self._remove_leftovers()
        if self._is_cancelled:
            self._show_text("Cancelled before it began")
        else:
            self._show_problem("The run did not start.", words)

    def _show_problem(self, message: str, words: str) -> None:
        self.sentence.value = (
            f'<div class="wb-problem" role="alert">{escape_html(message)}<pre>{escape_html(words)}</pre></div>'
        )

    def _remove_leftovers(self) -> None:
        if self.started is not None:
            self.started.remove_folder()
            self.started = None
        if self._leftover is not None:
            # Left by a kernel that was restarted.
            shutil.rmtree(self._leftover, ignore_errors=True)
            self._leftover = None

    def _show_text(self, text: str) -> None:
        self.sentence.value = f'<span role="status">{escape_html(text)}</span>'
