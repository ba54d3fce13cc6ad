"""Result of a sweep, its text and JSON, and live progress in terminal and notebook."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from workbench.charts import renderer
from workbench.console import terminal
from workbench.core.formats import escape_html
from workbench.report.display import CellDisplay, table
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.config import SweepConfig
from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.point_verdicts import MIN_REPEATED_FRACTION
from workbench.sizing.estimation.server_bottleneck import HOST, describe_server_bottleneck, describe_waiting_gpus
from workbench.sizing.estimation.step_points import describe_time_scale
from workbench.sizing.load.agent_traces import describe_agent_tasks
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_step import StepResult, request_runtime_s
from workbench.sizing.tables import SERVER_METRICS

GOOD_VERDICTS = ("valid", "saturated")
MIN_TTFT_FRACTION = 0.9
MIN_CUT_FRACTION = 0.05
MAX_PRINTED_FAILURES = 5
MAX_RECENT_REQUESTS = 500
TERMINAL_STOPPING = "stopping: nothing more is sent, waiting for the requests in flight; Ctrl-C again to abort them"
BREAKING_OFF = "aborting the requests in flight"
NOTEBOOK_STOPPING = "stopping: nothing more is sent; interrupt the kernel again to abort the requests in flight"


class SweepWatcher:
    """Receives the progress of a sweep; this one ignores it."""

    def on_step_start(self, load: StepLoad) -> None:
        """A step starts."""

    def on_progress(self, result: StepResult) -> None:
        """Result so far, a few times per second."""

    def on_step_end(self, result: StepResult) -> None:
        """A step has ended and is written."""

    def on_stop_request(self, times: int) -> None:
        """The user asked to stop, for the first or second time."""


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

    `folder`: Folder of the sweep; None in memory.
    `example`: The first answer, shortened; null when there was none, or it is not known.
    `server_metrics`, `metrics_failures`: The table of that name, and how often the metrics could not be read, by
    reason.
    `prompts`: Source and lengths of the prompts, as the sweep's record has them.
    """

    config: SweepConfig
    requests: pl.DataFrame
    steps: pl.DataFrame
    points: pl.DataFrame
    quantiles: pl.DataFrame
    folder: Path | None
    ended: str
    failures: dict[int, dict[str, int]]
    limit: str | None = None
    example: str | None = None
    server_metrics: pl.DataFrame = field(default_factory=lambda: SERVER_METRICS.frame([]))
    metrics_failures: dict[str, int] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    client_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes for a reader on the points, at their level, and on what was taken for an answer."""
        scale = describe_time_scale(self.steps)
        notes = [*([scale] if scale else []), *self.client_notes, *list_point_notes(self.points)]
        if self.example is not None and self.config.protocol == "http":
            notes.append(_describe_answer(self.config.answer_at, self.example))
        notes += _describe_prompts(self.prompts, self.config, self.requests)
        if self.config.workers and self.steps.height:
            error_ms = 1000 * float(str(self.steps["clock_error_s"].fill_null(0.0).max()))
            counts = "/".join(str(n) for n in dict.fromkeys(self.steps["processes"].to_list()))
            notes.append(f"load from {counts} Dask workers, whose clocks are aligned to {error_ms:.2g} ms")
        if self.config.metrics_url or self.config.gpu_metrics:
            notes += _describe_metrics(self.server_metrics.height, self.metrics_failures)
        return notes

    @property
    def simulated(self) -> bool:
        """Whether a simulator answered."""
        return self.config.simulated or bool(self.steps["simulated"].any())

    @property
    def reasons(self) -> list[str]:
        """Why the sweep is invalid; empty when it is valid."""
        reasons = [] if self.steps.height else ["no level was measured"]
        if self.ended == "interrupted":
            reasons.append("the sweep was interrupted")
        if self.ended == "refused":
            reasons.append(f"the first requests all met the same refusal, so nothing more was sent: {self.limit}")
        elif self.limit is not None:
            reasons.append(f"the sweep ended at its limit, {self.limit}")
        for row in self.points.iter_rows(named=True):
            if row["verdict"] not in GOOD_VERDICTS:
                unit = "/s" if row["load_unit"] == "1/s" else " users"
                reasons.append(f"{row['load']:g}{unit}: {row['verdict']}, {row['reason']}")
        return reasons

    @property
    def answer(self) -> str:
        """Levels that were measured, in one sentence."""
        loads = [float(load) for load in self.points["load"].to_list()]
        if not loads:
            return "nothing was measured"
        simulated = "simulated: " if self.simulated else ""
        count = f"{self.points.height} level{'s' if self.points.height > 1 else ''}"
        return f"{simulated}{count} from {min(loads):g} to {max(loads):g} {self.config.load_means}"


def list_point_notes(points: pl.DataFrame) -> list[str]:
    """List the facts that limit what points show: each at its load, or once where GPUs wait or answers are cut.

    `points`: Table POINTS.
    """
    notes = [note for row in points.iter_rows(named=True) for note in _list_notes_of_point(row)]
    return [*notes, *filter(None, (_describe_cut_answers(points), describe_waiting_gpus(points)))]


def _describe_cut_answers(points: pl.DataFrame) -> str | None:
    """Line on answers that ended at their limit of tokens, at the level where most did; null where few did."""
    cut = points.filter(pl.col("length_share") > MIN_CUT_FRACTION).sort("length_share", descending=True)
    if not cut.height:
        return None
    row = cut.row(0, named=True)
    levels = "" if cut.height == 1 else f", and more than {100 * MIN_CUT_FRACTION:.0f} % at {cut.height} levels"
    return (
        f"{_name_place(row)}: {100 * row['length_share']:.0f} % of the answers ended at their limit of tokens "
        f"(finish reason length), not where the model would end them{levels}"
    )


def _name_place(row: dict[str, Any]) -> str:
    return f"{row['load']:g}{'/s' if row['load_unit'] == '1/s' else ' users'}"


def _list_notes_of_point(row: dict[str, Any]) -> list[str]:
    """List the notes about a row of table POINTS: repeated prompts, missing first tokens, the server's bottleneck."""
    at, notes = _name_place(row), []
    if row["repeated_prompts"] > MIN_REPEATED_FRACTION:
        share = f"{100 * row['repeated_prompts']:.0f} %"
        notes.append(f"{at}: {share} of the prompts were sent before; a cache would answer those faster")
    if row["cached_share"]:
        notes.append(f"{at}: {100 * row['cached_share']:.0f} % of the prompt tokens were in the server's prefix cache")
    if row["ttft_known"] is not None and row["ttft_known"] < MIN_TTFT_FRACTION:
        notes.append(f"{at}: ttft is known for {100 * row['ttft_known']:.0f} % of the answers")
    if row["stream_note"] is not None:
        notes.append(f"{at}: {row['stream_note']}")
    if row["server_binds"] != HOST and (text := describe_server_bottleneck(row)) is not None:
        notes.append(f"{at}: {text}")
    return notes


def _describe_prompts(prompts: dict[str, Any], config: SweepConfig, requests: pl.DataFrame) -> list[str]:
    """Lines on the prompts: their lengths in tokens, tokens that the server adds, the part of a trace that is sent."""
    notes = []
    if "exact" in prompts:
        off = prompts["max_error_tokens"]
        how = f", the others are off by up to {off} tokens" if off else ""
        notes.append(f"prompt lengths by the tokenizer: {prompts['exact']} of {prompts['checked']} exact{how}")
        counted = requests["input_tokens"].drop_nulls()
        if config.turns == 1 and not config.input_cv and config.trace is None and len(counted):
            more = float(str(counted.median())) - config.input_tokens
            notes.append(f"the server counts {more:+g} tokens a prompt (its chat template)" if more else "")
    if "agent_tasks" in prompts:
        notes += describe_agent_tasks(prompts)
    if "trace" in prompts:
        rate = f"{prompts['rate_per_s']:.3g}/s as recorded"
        count = f"{prompts['requests']} requests" + (
            f" in {prompts['sessions']} sessions" if "sessions" in prompts else ""
        )
        notes.append(f"trace of {count}, {rate}; a level sends it from its start, at its own rate")
        notes += prompts.get("notes", [])
    return [text for text in notes if text]


def _describe_metrics(n_samples: int, failures: dict[str, int]) -> list[str]:
    """Line on how often the server's metrics could not be read; empty if always."""
    n_failed = sum(failures.values())
    if not n_failed:
        return []
    kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(failures.items(), key=lambda pair: -pair[1])[:3])
    finding = f"{n_failed} samples are missing" if n_samples else "there is no sample"
    return [f"of the server's metrics {finding}: {kinds}; the sweep does not need them"]


def _describe_answer(answer_at: str | None, example: str) -> str:
    """Describe what was taken for an answer, with an example, and the failures that this does not see."""
    if answer_at is not None:
        return f"an answer is the value at {answer_at}, such as: {example}"
    return (
        f"an answer is any JSON that is not empty and reports no error, such as: {example}; not seen: failures under "
        "another name, apologies at every load; name the answer with --answer-at"
    )


def format_sweep(sweep: SweepResult) -> str:
    """Text of a sweep for the terminal."""
    lines = [f"{'simulated; ' if sweep.simulated else ''}a level is {sweep.config.load_means}"]
    if sweep.points.height:
        # Table of the steps that the terminal shows: load, counts, quantiles of the run time in seconds, verdict.
        runtime = sweep.quantiles.filter(metric=metrics.DEFAULT_METRIC)
        p50 = runtime.filter(pl.col("q") == 0.5).select("step", p50_s="value_s")
        p95 = runtime.filter(pl.col("q") == 0.95).select("step", p95_s="value_s", low_s="low_s", high_s="high_s")
        frame = sweep.points.join(p50, on="step", how="left").join(p95, on="step", how="left")
        stopped = sweep.steps.select("step", "stopped")
        shown_points = frame.join(stopped, on="step", how="left").select(
            "step",
            "load",
            kept="n_kept",
            failed=pl.col("n_kept") - pl.col("n_ok"),
            p50_s="p50_s",
            p95_s="p95_s",
            low_s="low_s",
            high_s="high_s",
            rate_per_s="rate_per_s",
            in_flight="in_flight",
            stopped="stopped",
            verdict="verdict",
        )
        lines.append(table(shown_points, caption="Points", limit=40).text)
    for step, kinds in sweep.failures.items():
        listed = sorted(kinds.items(), key=lambda pair: -pair[1])
        lines += [f"step {step}: {count} x {failure}" for failure, count in listed[:MAX_PRINTED_FAILURES]]
        if len(listed) > MAX_PRINTED_FAILURES:
            lines.append(f"step {step}: and {len(listed) - MAX_PRINTED_FAILURES} more kinds, see sweep.json")
    lines += [f"note: {note}" for note in sweep.notes]
    lines += [f"invalid: {reason}" for reason in sweep.reasons]
    if sweep.folder is not None:
        lines.append(f"written: {sweep.folder}")
        if (sweep.folder / calc_file.SWEEP_FILE_PATH).exists():
            lines.append(f"for the toolkit's calculator: --offline_mode --calc_output_dir {sweep.folder}")
        if sweep.ended != "finished":
            lines.append(f"resume: workbench sizing run --resume {sweep.folder}")
        elif len(sweep.points) > 1:
            unit = "rate R" if sweep.config.is_open else "users N"
            goal = "" if sweep.config.goals else ' --goal "p95<=S"'
            lines.append(f"next: workbench sizing estimate {sweep.folder} --target-{unit}{goal}")
    return "\n".join(lines)


def sweep_json(sweep: SweepResult) -> str:
    """The sweep as one JSON document."""
    document: dict[str, Any] = {
        "folder": None if sweep.folder is None else str(sweep.folder),
        "ended": sweep.ended,
        "limit": sweep.limit,
        "load_means": sweep.config.load_means,
        "simulated": sweep.simulated,
        "reasons": sweep.reasons,
        "notes": sweep.notes,
        "points": sweep.points.to_dicts(),
        "quantiles": sweep.quantiles.to_dicts(),
        "failures": {str(step): kinds for step, kinds in sweep.failures.items()},
    }
    return json.dumps(document, indent=1)


def format_load(load: StepLoad) -> str:
    """Load of a step in a few words."""
    if load.loop == "open":
        return f"{load.rate_per_s:g}/s {load.arrivals}"
    return f"{load.users} user{'s' if load.users != 1 else ''}"


def format_live_figures(result: StepResult) -> str:
    """Finished requests, median and p95 of the last ones, their rate, and failures."""
    ended = len(result.requests)
    failed = sum(1 for row in result.requests if row.outcome != "ok")
    last = result.requests[-MAX_RECENT_REQUESTS:]
    parts = [f"{ended} ended"]
    times = sorted(time_s for row in last if (time_s := request_runtime_s(row)) is not None)
    if times:
        p95_s = times[min(len(times) - 1, int(0.95 * len(times)))]
        parts.append(f"p50 {times[len(times) // 2]:.3g} s, p95 {p95_s:.3g} s")
    ends = [row.ended_s for row in last]
    if ends and max(ends) > min(ends):
        parts.append(f"{(len(ends) - 1) / (max(ends) - min(ends)):.3g}/s")
    parts.append(f"{failed} failed")
    return ", ".join(parts)


class SweepProgress(SweepWatcher):
    """Progress of a sweep on the terminal: when a step starts and ends, and its state in between."""

    def __init__(self, status: terminal.StatusLines, stopping: str = TERMINAL_STOPPING) -> None:
        self._status = status
        self._stopping = stopping
        self._name = ""

    def on_step_start(self, load: StepLoad) -> None:
        """A step starts."""
        self._name = f"step {load.step}, {format_load(load)}"
        self._status.delay()

    def on_progress(self, result: StepResult) -> None:
        """Result so far."""
        figures = f"{format_live_figures(result)}, {result.in_flight} in flight, {result.duration_s:.0f} s"
        self._status.show_when_due(f"{self._name}: {figures}")

    def on_step_end(self, result: StepResult) -> None:
        """A step has ended."""
        self._status.say(f"{self._name}: {format_live_figures(result)}, {result.duration_s:.1f} s ({result.stopped})")

    def on_stop_request(self, times: int) -> None:
        """The user asked to stop."""
        self._status.say(self._stopping if times == 1 else BREAKING_OFF)


@contextlib.contextmanager
def terminal_watcher() -> Iterator[SweepWatcher]:
    """Watcher that shows progress on stderr."""
    with terminal.open_status() as status:
        yield SweepProgress(status)


class CellLines(terminal.StatusLines):
    """Lines below a cell: those that stay, and the status below them."""

    every_s = terminal.DRAW_EVERY_S

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self._handle = handle
        self._lines: list[str] = []

    def say(self, line: str) -> None:
        """A line that stays."""
        self._lines.append(line)
        self._draw(self._lines)

    def show(self, line: str) -> None:
        """Show a new status now."""
        self.delay()
        self._draw([*self._lines, line])

    def _draw(self, lines: list[str]) -> None:
        html = "<br>".join(escape_html(line) for line in lines)
        self._handle.update(CellDisplay(f"<p>{html}</p>", "\n".join(lines)))


@contextlib.contextmanager
def notebook_watcher() -> Iterator[SweepWatcher]:
    """Watcher that shows progress below the cell and clears it at the end; silent in a batch run."""
    if renderer.is_headless():
        yield SweepWatcher()
        return
    from IPython.display import display

    handle = display(CellDisplay("", ""), display_id=True)  # type: ignore[no-untyped-call]
    if handle is None:
        yield SweepWatcher()
        return
    try:
        yield SweepProgress(CellLines(handle), NOTEBOOK_STOPPING)
    finally:
        handle.update(CellDisplay("", ""))
