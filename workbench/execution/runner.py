"""Run notebooks headless, each in its own kernel and run folder, and write the executed copy."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import html
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

from workbench.core import files, redaction
from workbench.core.errors import ConfigError, ExitCode, RunFailedError, WorkbenchError, exit_code_for_error
from workbench.core.files import cache_folder, default_place
from workbench.core.signals import ignore_signals, interrupt_on_termination
from workbench.execution.discovery import RunPlan, find_heading, find_work, list_known_areas, plan_runs
from workbench.report.display import HEADLINE_MIME
from workbench.runs import catalogue, run_folder
from workbench.runs.catalogue import SAFE_NAME
from workbench.runs.run_folder import build_failure
from workbench.runs.run_stores import check_writable, is_url
from workbench.runs.threshold_gate import ThresholdGate, load_gate, threshold_exit_code

if TYPE_CHECKING:
    from workbench.execution.kernels import Session

# Papermill's tag and anchor, so that its tools recognise and remove the cells.
FAILURE_TAG = "papermill-error-cell-tag"
FAILURE_ANCHOR = "papermill-error-cell"
MAX_JOBS = 64
STOP_LIMIT_S = 8
"""Time that runs have to record how they ended after they were stopped."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def write_executed_copy(
    item: RunPlan, run: run_folder.Run, session: Session, failure: dict[str, Any] | None, secrets: tuple[str, ...]
) -> None:
    """Write report.ipynb: the executed notebook without secrets, with the failing cell marked."""
    import nbformat

    notebook = session.notebook if session.notebook is not None else item.notebook
    notebook = redaction.redact_value(notebook, secrets)
    notebook.cells = _list_own_cells(notebook)
    # Papermill stores its input, here the whole notebook; the file name is enough.
    notebook.metadata.setdefault("papermill", {})
    notebook.metadata["papermill"] |= {"input_path": item.path.name, "output_path": "report.ipynb"}
    if failure and not session.cancelled:
        # Add a link to the failing cell at the top, and its target before that cell.
        from nbformat.v4 import new_markdown_cell

        message = html.escape(f"{failure['error_name']}: {failure['error']}".split("\n")[0][:300])
        number = failure["cell_number"]
        place = (
            "before the first cell"
            if session.cell_index is None
            else f'in <a href="#{FAILURE_ANCHOR}">cell [{number}]</a>'
        )
        top = new_markdown_cell(f"<p><strong>This run stopped {place}.</strong> {message}</p>")
        anchor = new_markdown_cell(f'<p id="{FAILURE_ANCHOR}"><strong>The run stopped at the next cell.</strong></p>')
        for cell in (top, anchor):
            cell.metadata["tags"] = [FAILURE_TAG]
        if session.cell_index is not None:
            notebook.cells.insert(session.cell_index, anchor)
        notebook.cells.insert(0, top)
    files.write_text(run.folder / "report.ipynb", nbformat.writes(notebook) + "\n")


@dataclass(frozen=True)
class RunResult:
    """Result of one notebook's run.

    `advice`: The next step after a failure; null when the run succeeded or the cell's error is enough.
    `copy`: The run at the URL that `out` is, where its folder is gone; null without one.
    """

    notebook: Path
    run: run_folder.Run
    advice: str | None = None
    copy: str | None = None
    copy_error: WorkbenchError | None = None

    @property
    def place(self) -> str:
        """The run's folder, or its URL."""
        return self.copy or str(self.run.folder)

    @property
    def report(self) -> str | None:
        """Path or URL of the report; null without one."""
        return f"{self.place}/{self.run.report.name}" if self.copy or self.run.report.is_file() else None

    @property
    def exit_code(self) -> int:
        """The exit code; see `ExitCode`."""
        if self.run.status == "cancelled":
            return ExitCode.CANCELLED
        if self.copy_error is not None:
            return self.copy_error.exit_code
        if self.run.status != "succeeded":
            return exit_code_for_error((self.run.record["failure"] or {}).get("error_name") or "")
        return max(int(self.run.verdict == "invalid"), threshold_exit_code(self.run.record.get("thresholds")))

    def build_document(self) -> dict[str, Any]:
        """The run as one JSON object."""
        record = self.run.record
        names = ("run_id", "area", "title", "status", "duration_s", "verdict", "reasons", "answer", "failure")
        placed = {"thresholds": record.get("thresholds"), "folder": self.place, "report": self.report}
        if self.copy_error is not None:
            placed["copy_error"] = str(self.copy_error)
        return {name: record[name] for name in names} | placed | {"exit_code": self.exit_code}


class CancelledRuns(KeyboardInterrupt):
    """The runs were interrupted; `results` holds those that had started."""

    def __init__(self, results: list[RunResult]) -> None:
        super().__init__("cancelled")
        self.results = results


class RunListener(Protocol):
    """Listener to the progress of runs; called from several threads."""

    def on_run_start(self, run: run_folder.Run, cells: int) -> None:
        """A run starts; `cells` is the number of cells."""

    def on_cell(self, run: run_folder.Run, index: int, label: str) -> None:
        """The cell at this index is next; `label` names its work."""

    def on_run_end(self, result: RunResult) -> None:
        """A run has ended."""


def run_notebooks(
    notebooks: Sequence[str | Path],
    values: Mapping[str, Any] | None = None,
    *,
    texts: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    timeout_s: int | None = None,
    thresholds: str | Path | None = None,
    progress: RunListener | None = None,
) -> list[RunResult]:
    """Run notebooks, `jobs` in parallel, each into its run folder.

    `values`, `texts`: Typed parameters, and text from a command line, by "name" or "area.name"; `texts` win.
    `out`: Folder for the run folders, or a URL such as s3://bucket/runs; by default `default_place()`. Runs for a URL
    are made in `outgoing_folder()`, copied when they end, and deleted here once they are there whole.
    `jobs`: Number of runs in parallel, 1 to 64. Several begin with the longest (`RunPlan.expected_s`), so that none
    of it is left over at the end.
    `thresholds`: File of thresholds; their outcome is written to the record of each run.

    Returns: In the order of `notebooks`; a failed run is a result, not an exception.
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise ConfigError(
            "cannot run so many notebooks in parallel", where="--jobs", found=jobs, allowed=f"1 to {MAX_JOBS}"
        )
    if timeout_s is not None and timeout_s < 1:
        raise ConfigError("no time to run", where="--timeout", found=timeout_s, allowed="1 second or more")
    plans = plan_runs(notebooks, values, texts=texts)
    place = out if out is not None else default_place()
    areas = [item.area for item in plans]
    gate = None if thresholds is None else load_gate(thresholds, areas, list_known_areas(areas), place)
    if not is_url(place):
        return _execute_plans(plans, jobs, _RunPool(Path(place), timeout_s, progress, gate))
    if bad := [item for item in plans if not SAFE_NAME.fullmatch(item.area)]:
        do = "rename the notebook, or run it into a folder"
        raise ConfigError("a notebook whose runs cannot be copied", where=bad[0].path, found=bad[0].area[:100], do=do)
    check_writable(place)
    return _execute_plans(plans, jobs, _RunPool(outgoing_folder(), timeout_s, progress, gate, copy_to=str(place)))


def outgoing_folder() -> Path:
    """Return the folder where runs for a URL are made; runs left there could not be copied."""
    return cache_folder() / "outgoing"


def _execute_plans(plans: Sequence[RunPlan], jobs: int, run_pool: _RunPool) -> list[RunResult]:
    order = sorted(range(len(plans)), key=lambda place: -plans[place].expected_s if jobs > 1 else 0)
    futures: dict[int, concurrent.futures.Future[RunResult | None]] = {
        place: concurrent.futures.Future() for place in order
    }
    waiting = collections.deque(order)

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                place = waiting.popleft()
                try:
                    futures[place].set_result(run_pool.run_plan(plans[place]))
                except BaseException as error:  # noqa: BLE001 - raised again by the main thread
                    futures[place].set_exception(error)

    # Daemons: a stop waits for their end, and not longer than it may.
    threads = [threading.Thread(target=work, name=f"notebook-{number}", daemon=True) for number in range(jobs)]
    with interrupt_on_termination():
        try:
            for thread in threads:
                thread.start()
            pending = set(futures.values())
            while pending:
                # Short waits: on some systems signals are handled only between two of them.
                _, pending = concurrent.futures.wait(pending, timeout=0.2)
        except KeyboardInterrupt:
            with ignore_signals():
                unstarted = [futures[place] for place in waiting]
                waiting.clear()
                run_pool.cancel_all()
                started = set(futures.values()) - set(unstarted)
                concurrent.futures.wait(started, timeout=STOP_LIMIT_S)
            raise CancelledRuns(_collect_results(futures)) from None
    if errors := [error for future in futures.values() if (error := future.exception())]:
        raise errors[0]
    return _collect_results(futures)


def _collect_results(futures: Mapping[int, concurrent.futures.Future[RunResult | None]]) -> list[RunResult]:
    in_order = [future for _, future in sorted(futures.items())]
    ended = [future.result() for future in in_order if future.done() and not future.exception()]
    return [result for result in ended if result is not None]


@dataclass
class _RunPool:
    """Runs plans from several threads, and keeps their sessions for cancelling."""

    out: Path
    timeout_s: int | None
    progress: RunListener | None
    gate: ThresholdGate | None = None
    copy_to: str | None = None
    sessions: list[Session] = field(default_factory=list)
    cancelled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel_all(self) -> None:
        with self.lock:
            self.cancelled = True
            sessions = list(self.sessions)
        for session in sessions:
            session.cancel()

    def run_plan(self, item: RunPlan) -> RunResult | None:
        """Run one plan; null when it was cancelled before it started."""
        if self.cancelled:
            return None
        config, name = item.resolved.config, item.path.name
        run = run_folder.start_run(
            item.area, self.out, title=item.title, notebook=name, config=config, command=item.command
        )
        session = self._create_session(item, run)
        try:
            failure, advice = _execute_notebook(item, session)
            result = RunResult(item.path, _finish_run(item, run, session, failure, self.gate), advice)
        except (OSError, RunFailedError) as error:
            session.kill()
            result = _record_unwritable_run(item, run, error)
        except BaseException:
            session.kill()
            run.end("failed", build_failure("Unexpected", "see the log"))
            raise
        if self.copy_to is not None:
            result = _move_run(result, self.copy_to)
        if self.progress:
            self.progress.on_run_end(result)
        return result

    def _name_place(self, folder: Path) -> str:
        """The run folder for commands in its report: nobody else's paths, and none that the run moves away from."""
        here, there = Path.cwd().resolve(), folder.resolve()
        return str(there.relative_to(here)) if self.copy_to is None and there.is_relative_to(here) else ""

    def _create_session(self, item: RunPlan, run: run_folder.Run) -> Session:
        from workbench.execution.kernels import Session

        env = {
            run_folder.RUN_DIR_VARIABLE: str(run.folder),
            run_folder.RUN_PLACE_VARIABLE: self._name_place(run.folder),
            redaction.SECRET_NAMES_VARIABLE: ",".join(item.resolved.secret_variables),
        }
        session = Session(env=env, folder=item.path.parent, timeout_s=self.timeout_s)
        labels = _list_cell_labels(item)
        if self.progress:
            self.progress.on_run_start(run, len(labels))

        def notify_cell(index: int) -> None:
            label = labels[min(index, len(labels) - 1)]
            run.note_progress(index, len(labels), label)
            if self.progress:
                self.progress.on_cell(run, index, label)

        session.on_cell = notify_cell
        with self.lock:
            self.sessions.append(session)
            session.cancelled = self.cancelled
        return session


def _list_cell_labels(item: RunPlan) -> list[str]:
    """The work of each cell, for the progress: the comment behind its code, else the heading above it."""
    labels: list[str] = []
    heading = ""
    for cell in item.notebook.cells:
        heading = find_heading(cell) or heading
        labels.append(find_work(cell) or heading)
    # Papermill adds a cell for given parameters.
    return [*labels[:1], *labels] if item.resolved.given or not labels else labels


def _execute_notebook(item: RunPlan, session: Session) -> tuple[dict[str, Any] | None, str | None]:
    """Execute in a kernel; returns the failure and the advice, nulls after success."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    from workbench.execution import kernels

    kernels.register_engine()
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
    except papermill.PapermillExecutionError:
        # Papermill raises for any error in the outputs, also of a cell that is tagged to raise.
        return _find_raised_error(session), None
    except CellTimeoutError:
        if session.timeout_s is None:
            took = f"the outputs of the cell did not all come within {kernels.OUTPUT_TIMEOUT_S} s"
            return _build_cell_failure(session, "Timeout", took), "print less, or write to a file"
        took = f"the cell took longer than {session.timeout_s} s"
        return _build_cell_failure(session, "Timeout", took), "give cells more time with --timeout SECONDS"
    except DeadKernelError:
        words, advice = "the kernel died", "look for a crash in the cell, or for too little memory: workbench doctor"
        return _build_cell_failure(session, "DeadKernel", f"{words}\n{session.last_words}".strip()), advice
    except (RuntimeError, OSError) as error:
        advice = "check whether kernels start: workbench doctor --deep"
        return _build_cell_failure(session, "KernelStart", f"{error}\n{session.last_words}".strip()), advice
    return None, None


def _find_raised_error(session: Session) -> dict[str, Any] | None:
    """The failure of the cell at which the run stopped; null where only cells raised that are tagged so."""
    for index, cell in enumerate(_list_own_cells(session.notebook)):
        if cell.metadata.get("papermill", {}).get("exception") is True:
            session.cell_index = index
            errors = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
            error = errors[-1] if errors else {"ename": "CellExecutionError", "evalue": "the cell failed"}
            return _build_cell_failure(session, error["ename"], error["evalue"])
    return None


def _build_cell_failure(session: Session, name: str, message: str) -> dict[str, Any]:
    """The failure at the last executed cell, with its number as in JupyterLab."""
    failure = build_failure(name, _ANSI.sub("", message)[:10_000])
    if session.notebook is None or session.cell_index is None:
        return failure
    cells = _list_own_cells(session.notebook)
    counted = [cell for cell in cells[: session.cell_index + 1] if cell.cell_type == "code" and cell.source.strip()]
    return failure | {"cell_number": len(counted), "source": cells[session.cell_index].source}


def _list_own_cells(notebook: Any) -> list[Any]:
    """Cells of an executed notebook, none where there is none, without papermill's, which say where it failed."""
    cells = notebook.cells if notebook is not None else []
    return [cell for cell in cells if FAILURE_TAG not in cell.metadata.get("tags", [])]


def _finish_run(
    item: RunPlan, run: run_folder.Run, session: Session, failure: dict[str, Any] | None, gate: ThresholdGate | None
) -> run_folder.Run:
    """Write the executed copy, the page and the final record."""
    secrets = redaction.read_secrets(item.resolved.secret_variables)
    failure = redaction.redact_value(failure, secrets)
    write_executed_copy(item, run, session, failure, secrets)
    for leftover in run.folder.rglob("*.part"):
        # Left by a kernel that was killed while it wrote.
        leftover.unlink(missing_ok=True)
    # The kernel has written tables, inputs and verdict; a damaged record is replaced.
    with contextlib.suppress(WorkbenchError):
        run = run_folder.load_run(run.folder)
    if failure is None and not session.cancelled:
        failure = _settle_verdict(run, session.notebook)
    status: run_folder.Status = "cancelled" if session.cancelled else "failed" if failure else "succeeded"
    run.settle(status, None if session.cancelled else failure)
    if gate and not session.cancelled:
        run.record["thresholds"] = gate.check_run(catalogue.build_stored_run(run))
    if not session.cancelled:
        # Before the final run.json, so that a succeeded run has its report.
        # Write report.html; an error fails this run only.
        from workbench.report import page

        try:
            page.write_report(run.folder, run.record)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - outputs of any notebook; the executed copy is already written
            reason = build_failure(type(error).__name__, f"no page: {error}")
            run.settle("failed", run.record["failure"] or reason)
    run.close()
    return run


def _settle_verdict(run: run_folder.Run, notebook: Any) -> dict[str, Any] | None:
    """Give the record the verdict of the headlines where it has none; the failure where they disagree, else null.

    The page shows the first headline; gallery, terminal, exit code and gates go by the record.
    """
    shown = [
        output["data"][HEADLINE_MIME]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if isinstance(output.get("data", {}).get(HEADLINE_MIME), dict)
    ]
    headlines = [headline for headline in shown if headline.get("verdict") in get_args(run_folder.Verdict)]
    if not headlines:
        return None
    first, record = headlines[0], run.record
    if record["verdict"] is None:
        record |= {name: first[name] for name in ("verdict", "reasons", "answer")}
        record |= {name: first.get(name) or [] for name in ("details", "conditions")}
    verdicts = sorted({headline["verdict"] for headline in headlines} | {record["verdict"]})
    answers = list(dict.fromkeys([first["answer"], record["answer"]]))
    if len(verdicts) == len(answers) == 1:
        return None
    found = ", ".join(verdicts) if len(verdicts) > 1 else " / ".join(str(text)[:120] for text in answers)
    error = f"the headlines and the record of this run disagree\n  found: {found}\n  do: show and conclude one study"
    return build_failure("BrokenInvariantError", error)


def _record_unwritable_run(item: RunPlan, run: run_folder.Run, error: OSError | RunFailedError) -> RunResult:
    """Fail a run whose folder cannot be written, as on a full disk."""
    reason = error.strerror if isinstance(error, OSError) else error.facts["found"]
    message = f"cannot write the run folder: {reason or error}"
    with contextlib.suppress(WorkbenchError):
        # Keeps the tables that the kernel has recorded.
        run = run_folder.load_run(run.folder)
    run.settle("failed", build_failure(type(error).__name__, message))
    with contextlib.suppress(RunFailedError):
        run.close()
    return RunResult(item.path, run, "make room there, or choose another folder with --out DIR")


def _move_run(result: RunResult, place: str) -> RunResult:
    """Copy the run of a result to a URL, and delete its folder once all of it is there."""
    try:
        copy = catalogue.copy_run(catalogue.open_run(result.run.folder), place)
    except WorkbenchError as error:
        return replace(result, copy_error=error)
    shutil.rmtree(result.run.folder, ignore_errors=True)
    return replace(result, copy=copy)
