"""The panel's run button: it starts a run, follows it from its folder, and ends it when asked."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.errors import WorkbenchError
from workbench.formats import duration, escape
from workbench.live import process
from workbench.live.process import Started

EVERY_S = 0.5


class RunBar:
    """Run and Cancel, a bar and a sentence, for one notebook's runs.

    Parameters
    ----------
    notebook
        The notebook's file.
    areas, out
        Its runs lie in `out/<area>`.
    ended
        Called with the run when it is over.
    """

    def __init__(self, notebook: Path, areas: Sequence[str], out: Path, ended: Callable[[runs.Run], None]) -> None:
        import ipywidgets

        self.notebook, self.areas, self.out = notebook, tuple(areas), out
        self._ended = ended
        auto = ipywidgets.Layout(width="auto")
        self.run = ipywidgets.Button(
            description="Run to a report",
            tooltip="The notebook as it was last saved, with these settings, in a process of its own",
            button_style="primary",
            icon="play",
            layout=auto,
        )
        self.cancel = ipywidgets.Button(description="Cancel", icon="stop", disabled=True, layout=auto)
        self.bar = ipywidgets.IntProgress(min=0, max=1, layout=ipywidgets.Layout(width="180px", display="none"))
        self.sentence = ipywidgets.HTML()
        self.started: Started | None = None
        self.current: runs.Run | None = None
        self.good = True
        self._leftover: Path | None = None
        # Taken by the follower, too; a form that changes meanwhile asks from within.
        self._lock = threading.RLock()
        self._following = False
        self._follower: threading.Thread | None = None
        self.cancel.on_click(lambda _: self.stop())

    def box(self) -> Any:
        """All of it in one line."""
        import ipywidgets

        layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 8px")
        return ipywidgets.HBox([self.run, self.cancel, self.bar, self.sentence], layout=layout)

    @property
    def busy(self) -> bool:
        """Is a run followed now?"""
        return self._following

    def start(self, values: Mapping[str, Any]) -> None:
        """Start a run with these parameters and follow it."""
        with self._lock:
            if self.busy:
                return
            self.started = process.start(self.notebook, values, self.out)
            self.current = None
            self._say("Starting")
            self._follow()

    def find(self) -> bool:
        """Follow a run that goes on already, as after a restart of the kernel; tells whether there is one."""
        with self._lock:
            if self.busy:
                return True
            going = (run for run in process.recent(self.out, self.areas) if process.is_running(run))
            self.current = next(going, None)
            if self.current is not None:
                pid = process.cancellable(self.current)
                self._leftover = process.private_folder(pid) if pid else None
                self._follow()
        return self.current is not None

    def stop(self) -> None:
        """End the run that is followed, if a panel started it."""
        pid = process.cancellable(self.current) if self.current else None
        if pid is None and self.current is None and self.started and not self.started.ended:
            pid = self.started.process.pid
        if pid is not None:
            self.cancel.disabled = True
            self._say("Cancelling")
            process.cancel(pid)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until what is followed is over; tells whether it is."""
        if self._follower is not None:
            self._follower.join(timeout_s)
        return not self.busy

    def allow(self, good: bool) -> None:
        """May a run be started with the present settings?"""
        with self._lock:
            self.good = good
            self.run.disabled = self.busy or not good

    def _follow(self) -> None:
        self._following = True
        self.run.disabled, self.cancel.disabled = True, False
        self.bar.value, self.bar.layout.display = 0, ""
        self._follower = threading.Thread(target=self._until_over, name="workbench run", daemon=True)
        self._follower.start()

    def _until_over(self) -> None:
        pause = threading.Event()
        try:
            while not self._look():
                pause.wait(EVERY_S)
            if self.current is not None:
                self._ended(self.current)
        except (WorkbenchError, OSError) as error:
            # Somebody deleted the folder, say; a process that goes on all the same can still be cancelled.
            self.current = None
            self._tell_problem("The run can no longer be followed.", str(error))
            if self.started is not None:
                self.started.process.wait()
            self._tidy()
        finally:
            # Last, and under the lock: whoever sees the button ready can press it.
            with self._lock:
                self._following = False
                self.bar.layout.display = "none"
                self.cancel.disabled = True
                self.run.disabled = not self.good

    def _look(self) -> bool:
        """Show how far it is; true when it is over."""
        over = self.started is not None and self.started.ended
        if self.current is None and self.started is not None:
            self.current = self._begun(self.started.process.pid)
        if self.current is None:
            if over:
                self._say_failure()
            return over
        run = self.current = runs.load(self.current.folder)
        # The page is written before the process goes, and the record says so before that.
        if over or (self.started is None and not process.is_running(run)):
            self._say_end(run)
            return True
        self._say_progress(run)
        return False

    def _begun(self, pid: int) -> runs.Run | None:
        found = process.recent(self.out, self.areas, most=5)
        return next((run for run in found if runs.holder(run.folder) == pid), None) or self._ended_at_once(found)

    def _ended_at_once(self, found: list[runs.Run]) -> runs.Run | None:
        """A run that began and ended between two looks."""
        if self.started is None or not self.started.ended:
            return None
        names = self.started.words
        return next((run for run in found if str(run.folder) in names), None)

    def _say_progress(self, run: runs.Run) -> None:
        took = duration((datetime.now(UTC) - runs.began(run.record)).total_seconds())
        if (far := process.progress(run)) is None:
            self._say(f"Running, {took}")
            return
        self.bar.max, self.bar.value = max(1, far.cells), far.cell
        whose = "" if process.cancellable(run) else " · started elsewhere, to be ended there"
        self.cancel.disabled = bool(whose)
        self._say(f"{far.label or 'Running'} · cell {far.cell + 1} of {far.cells} · {took}{whose}")

    def _say_end(self, run: runs.Run) -> None:
        self._tidy()
        words = {"succeeded": "Done", "cancelled": "Cancelled", "failed": "Failed"}.get(run.state, "Died")
        self._say(f"{words} after {duration(run.record.get('duration_s'))}")

    def _say_failure(self) -> None:
        words = self.started.words if self.started else ""
        self._tidy()
        self._tell_problem("No run began.", words)

    def _tell_problem(self, what: str, words: str) -> None:
        self.sentence.value = f'<div class="wb-problem" role="alert">{escape(what)}<pre>{escape(words)}</pre></div>'

    def _tidy(self) -> None:
        if self.started is not None:
            self.started.tidy()
            self.started = None
        if self._leftover is not None:
            # Its maker, a kernel that was restarted, could not.
            shutil.rmtree(self._leftover, ignore_errors=True)
            self._leftover = None

    def _say(self, text: str) -> None:
        self.sentence.value = f'<span role="status">{escape(text)}</span>'
