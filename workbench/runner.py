"""Notebooks run headless: each in a kernel and a run folder of its own, never written to, always leaving its copy.

Everything is checked before the first kernel starts. A run that fails leaves its notebook and report too, with the
failing cell marked; one that is cancelled leaves no kernel.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench import catalogue, executed, limits, redaction, runs
from workbench.asking import no_more_signals, termination_as_interrupt
from workbench.errors import ConfigError, RunFailedError, WorkbenchError, exit_code_of
from workbench.notebooks import Plan, heading, known_areas, plan

if TYPE_CHECKING:
    from workbench.judging import Gate
    from workbench.kernels import Session

MAX_JOBS = 64
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class RunResult:
    """How one notebook's run ended.

    Attributes
    ----------
    notebook
        The notebook that was run; it is unchanged.
    run
        The run folder and its record.
    advice
        What to do about a failure; null when it succeeded or the failing cell speaks for itself.
    """

    notebook: Path
    run: runs.Run
    advice: str | None = None

    @property
    def exit_code(self) -> int:
        """0 good, 1 invalid or past a threshold, 2 input or threshold that cannot be used, 3 failed, 130 cancelled."""
        if self.run.status == "cancelled":
            return 130
        if self.run.status != "succeeded":
            return exit_code_of((self.run.record["failure"] or {}).get("error_name") or "")
        return max(int(self.run.verdict == "invalid"), limits.exit_code(self.run.record.get("thresholds")))

    def document(self) -> dict[str, Any]:
        """The run as one JSON object."""
        record = self.run.record
        names = ("run_id", "area", "title", "status", "duration_s", "verdict", "reasons", "answer", "failure")
        report = str(self.run.report) if self.run.report.is_file() else None
        placed = {"thresholds": record.get("thresholds"), "folder": str(self.run.folder), "report": report}
        return {name: record[name] for name in names} | placed | {"exit_code": self.exit_code}


class CancelledRuns(KeyboardInterrupt):
    """The runs were interrupted; their kernels are gone. `results` holds those that had begun."""

    def __init__(self, results: list[RunResult]) -> None:
        super().__init__("cancelled")
        self.results = results


class Progress(Protocol):
    """Who wants to know how far the runs are; called from several threads."""

    def started(self, run: runs.Run, cells: int) -> None:
        """A notebook of so many cells begins."""

    def cell(self, run: runs.Run, index: int, label: str) -> None:
        """The cell at this index is next; `label` is the heading above it."""

    def ended(self, result: RunResult) -> None:
        """It is over, for good or bad."""


def run_notebooks(
    notebooks: Sequence[str | Path],
    values: Mapping[str, Any] | None = None,
    *,
    texts: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    timeout_s: int | None = None,
    thresholds: str | Path | None = None,
    progress: Progress | None = None,
) -> list[RunResult]:
    """Run notebooks, `jobs` at a time; one run folder each.

    Parameters
    ----------
    notebooks
        Paths of notebooks; they are only read.
    values
        Typed parameters by name, or "area.name".
    texts
        Parameters as typed on a command line; they win over `values`.
    out
        Where the run folders go; `runs.default_out()` without it.
    jobs
        How many run side by side, 1 to 64.
    timeout_s
        Longest time of one cell in seconds; without it there is no limit.
    thresholds
        A file of limits that the runs must keep; how each stands to them is noted in its record.
    progress
        Told how far each run is.

    Returns
    -------
    list of RunResult
        In the order of `notebooks`; a failed run is a result, not an exception.

    Raises
    ------
    ConfigError, InputError
        Something given cannot be used; nothing was run.
    CancelledRuns
        Ctrl-C or SIGTERM came; all kernels are gone, the runs are recorded as cancelled.
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise ConfigError("cannot run so many side by side", where="--jobs", found=jobs, allowed=f"1 to {MAX_JOBS}")
    if timeout_s is not None and timeout_s < 1:
        raise ConfigError("no time to run", where="--timeout", found=timeout_s, allowed="1 second or more")
    plans = plan(notebooks, values, texts=texts)
    place = Path(out) if out is not None else runs.default_out()
    crew = _Crew(place, timeout_s, progress, _gate(thresholds, plans, place))
    with termination_as_interrupt(), concurrent.futures.ThreadPoolExecutor(jobs, "notebook") as pool:
        futures: list[concurrent.futures.Future[RunResult | None]] = []
        try:
            for item in plans:
                # One by one: those begun before an interrupt must be known.
                futures.append(pool.submit(crew.run, item))
            pending = set(futures)
            while pending:
                # Short waits: on some systems a signal reaches the main thread only between two of them.
                _, pending = concurrent.futures.wait(pending, timeout=0.2)
        except KeyboardInterrupt:
            with no_more_signals():
                crew.cancel()
                pool.shutdown(wait=True, cancel_futures=True)
            raise CancelledRuns(_results(futures)) from None
    if errors := [error for future in futures if (error := future.exception())]:
        raise errors[0]
    return _results(futures)


def _gate(path: str | Path | None, plans: Sequence[Plan], place: Path) -> Gate | None:
    if path is None:
        return None
    from workbench import judging

    areas = [item.area for item in plans]
    return judging.prepare(path, areas, known_areas(areas), place)


def _results(futures: list[concurrent.futures.Future[RunResult | None]]) -> list[RunResult]:
    ended = [future.result() for future in futures if not future.cancelled() and not future.exception()]
    return [result for result in ended if result is not None]


@dataclass
class _Crew:
    """Runs plans from several threads, and knows the sessions to stop."""

    out: Path
    timeout_s: int | None
    progress: Progress | None
    gate: Gate | None = None
    sessions: list[Session] = field(default_factory=list)
    cancelled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        with self.lock:
            self.cancelled = True
            sessions = list(self.sessions)
        for session in sessions:
            session.cancel()

    def run(self, item: Plan) -> RunResult | None:
        """Run one plan to its end; null when it was cancelled before it began."""
        if self.cancelled:
            return None
        config, name = item.resolved.config, item.path.name
        run = runs.start(item.area, self.out, title=item.title, notebook=name, config=config, command=item.command)
        session = self._session(item, run)
        try:
            failure, advice = _execute(item, session)
            result = RunResult(item.path, _finish(item, run, session, failure, self.gate), advice)
        except (OSError, RunFailedError) as error:
            session.kill()
            result = _unwritten(item, run, error)
        except BaseException:
            session.kill()
            run.end("failed", {"cell_number": None, "source": None, "error_name": "Unexpected", "error": "see the log"})
            raise
        if self.progress:
            self.progress.ended(result)
        return result

    def _session(self, item: Plan, run: runs.Run) -> Session:
        from workbench.kernels import Session

        env = {
            runs.RUN_DIR_VARIABLE: str(run.folder),
            redaction.NAMES_VARIABLE: ",".join(item.resolved.secret_variables),
        }
        session = Session(env=env, folder=item.path.parent, timeout_s=self.timeout_s)
        labels = _labels(item)
        if self.progress:
            self.progress.started(run, len(labels))

        def on_cell(index: int) -> None:
            label = labels[min(index, len(labels) - 1)]
            run.note_progress(index, len(labels), label)
            if self.progress:
                self.progress.cell(run, index, label)

        session.on_cell = on_cell
        with self.lock:
            self.sessions.append(session)
            session.cancelled = self.cancelled
        return session


def _labels(item: Plan) -> list[str]:
    """The heading above each cell, for the progress."""
    labels: list[str] = []
    for cell in item.notebook.cells:
        labels.append(heading(cell) or (labels[-1] if labels else ""))
    # Given parameters are one more cell.
    return [*labels[:1], *labels] if item.resolved.given or not labels else labels


def _execute(item: Plan, session: Session) -> tuple[dict[str, Any] | None, str | None]:
    """Execute in a kernel; gives what failed and what to do about it, nulls when all went well."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    from workbench import kernels

    kernels.register()
    try:
        papermill.execute_notebook(
            item.notebook,
            None,
            parameters=item.resolved.given or None,
            engine_name=kernels.ENGINE,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            session=session,
        )
    except papermill.PapermillExecutionError as error:
        return _failure(session, error.ename, error.evalue), None
    except CellTimeoutError:
        took = f"the cell took longer than {session.timeout_s} s"
        return _failure(session, "Timeout", took), "give cells more time with --timeout SECONDS"
    except DeadKernelError:
        return _failure(session, "DeadKernel", f"the kernel died\n{session.last_words}".strip()), (
            "look for a crash in the cell, or for too little memory: workbench doctor"
        )
    except (RuntimeError, OSError) as error:
        return _failure(session, "KernelStart", f"{error}\n{session.last_words}".strip()), (
            "see whether kernels can start: workbench doctor --deep"
        )
    return None, None


def _failure(session: Session, name: str, message: str) -> dict[str, Any]:
    number, source = _failed_cell(session)
    return {"cell_number": number, "source": source, "error_name": name, "error": _ANSI.sub("", message)[:10_000]}


def _failed_cell(session: Session) -> tuple[int | None, str | None]:
    """The cell that was executed last: its number as JupyterLab counts it, and its source."""
    if session.notebook is None or session.cell_index is None:
        return None, None
    cells = [cell for cell in session.notebook.cells if executed.FAILURE_TAG not in cell.metadata.get("tags", [])]
    counted = [cell for cell in cells[: session.cell_index + 1] if cell.cell_type == "code" and cell.source.strip()]
    return len(counted), cells[session.cell_index].source


def _finish(item: Plan, run: runs.Run, session: Session, failure: dict[str, Any] | None, gate: Gate | None) -> runs.Run:
    """Write the executed copy, close the record and make the page, whatever happened."""
    secrets = redaction.values(item.resolved.secret_variables)
    failure = redaction.clean(failure, secrets)
    executed.write_copy(item, run, session, failure, secrets)
    for leftover in run.folder.rglob("*.part"):
        # A kernel that was killed while it wrote.
        leftover.unlink(missing_ok=True)
    # The kernel has noted tables, inputs and verdict meanwhile; a record that it spoilt is written anew.
    with contextlib.suppress(WorkbenchError):
        run = runs.load(run.folder)
    status: runs.Status = "cancelled" if session.cancelled else "failed" if failure else "succeeded"
    run.settle(status, None if session.cancelled else failure)
    if gate and not session.cancelled:
        run.record["thresholds"] = gate.judge(catalogue.of(run))
    if not session.cancelled:
        # Before run.json says how it ended: whoever reads "succeeded" finds a report.
        _write_page(run)
    run.close()
    return run


def _unwritten(item: Plan, run: runs.Run, error: OSError | RunFailedError) -> RunResult:
    """A run whose folder cannot be written, as on a full disk: failed, whether its record can still say so or not."""
    said = error.strerror if isinstance(error, OSError) else error.facts["found"]
    what = f"cannot write the run folder: {said or error}"
    with contextlib.suppress(WorkbenchError):
        # Tables that the kernel has noted meanwhile stay noted.
        run = runs.load(run.folder)
    run.settle("failed", {"cell_number": None, "source": None, "error_name": type(error).__name__, "error": what})
    with contextlib.suppress(RunFailedError):
        run.close()
    return RunResult(item.path, run, "make room there, or choose another folder with --out DIR")


def _write_page(run: runs.Run) -> None:
    """Make report.html; a page that cannot be made fails its run, and no other."""
    from workbench import report

    try:
        report.write_report(run.folder, run.record)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - any notebook's outputs come here, and the copy is already written
        reason = {"cell_number": None, "source": None, "error_name": type(error).__name__, "error": f"no page: {error}"}
        run.settle("failed", run.record["failure"] or reason)
