"""Runs a calculation: over recorded jobs, levels in memory, or an online measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench.console.terminal import show_progress_count
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_items
from workbench.sizing.compat_nat import calc_file, calc_outputs, eval_dataset
from workbench.sizing.compat_nat.calc_file import ItemMetrics, MetricAlerts, SizingMetrics, percentile_95
from workbench.sizing.compat_nat.calculation import (
    CONCURRENCIES,
    MAX_SHOWN,
    RULES,
    CalcGoal,
    Calculation,
    FitRules,
    Options,
    calculate_gpus,
    check_options,
)

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from workbench.sizing.compat_nat.workflow_runs import CalcWorkflow, WorkflowRun

MIN_REPORTED_GAP = 0.1


@dataclass
class CalculationResult:
    """Result of a calculation: the toolkit's document, tables, charts, and the job folder."""

    calculation: Calculation
    folder: Path | None = None
    paths: list[Path] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> calc_file.CalcOutput:
        """Content of `calc_runner_output.json`."""
        return self.calculation.output

    @property
    def exit_code(self) -> int:
        """0: all targets have an answer; 1: no line, or the run was stopped; 2: the line gives no answer."""
        return max(self.calculation.exit_code, int(bool(self.facts.get("stopped"))))

    @cached_property
    def levels(self) -> pl.DataFrame:
        """Measured levels: table `calc_levels`."""
        return calc_outputs.levels_frame(self.calculation)

    @cached_property
    def fits(self) -> pl.DataFrame:
        """Fitted lines, or the reasons why there are none: table `calc_fits`."""
        return calc_outputs.fits_frame(self.calculation)

    @cached_property
    def estimates(self) -> pl.DataFrame:
        """GPUs per target, or the reasons why there are none: table `calc_estimates`."""
        return calc_outputs.estimates_frame(self.calculation)

    @cached_property
    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Altair charts by the file names of the pictures."""
        from workbench.sizing.compat_nat import calc_charts

        return {
            name: calc_charts.chart_from_spec(spec)
            for name, spec in calc_charts.build_chart_specs(self.calculation).items()
        }

    def __repr__(self) -> str:
        return "\n".join(calc_outputs.format_calculation(self.calculation))

    def to_document(self) -> dict[str, Any]:
        """Result as plain values, for `--json` and the notes."""
        result = self.calculation
        return {
            "goal": vars(result.goal),
            "answers": [vars(answer) for answer in result.answers],
            "left_out": {str(number): reason for number, reason in result.left_out.items()},
            "no_line": {metric: fit.reason for metric, fit in result.fits.items() if fit.reason},
            "notices": self.notices,
            **self.facts,
        }


def run_calculation(options: Options, *, report: Callable[[str], None] | None = None) -> CalculationResult:
    """Run a calculation; `report` is called with progress messages of an online run."""
    check_options(options)
    if not options.offline:
        return run_online(options, report or (lambda _: None))
    assert options.output_dir is not None
    levels = calc_file.read_recorded_levels(options.output_dir)
    result = CalculationResult(
        calculate_gpus(levels.metrics, options.goal, options.rules), notices=list(levels.notices)
    )
    if len(jobs := list(dict.fromkeys(levels.source.values()))) > 1:
        numbers = {job: [number for number, source in levels.source.items() if source == job] for job in jobs}
        parts = [f"{format_items(listed, MAX_SHOWN)} of {job}" for job, listed in numbers.items()]
        about = f"the line uses levels of {len(jobs)} jobs, each level from its newest job"
        result.notices.append(f"{about}: {'; '.join(parts)}")
    result.notices += result.calculation.notices
    result.facts = {"mode": "offline", "source": {str(number): job for number, job in levels.source.items()}}
    if options.write:
        result.folder = calc_outputs.create_job_folder(options.output_dir, "offline")
        write_calculation_job(result, options, "offline")
    return result


def write_calculation_job(result: CalculationResult, options: Options, mode: calc_outputs.Mode) -> None:
    """Write the job folder, and report or remove older jobs; a job without usable levels replaces none."""
    from workbench import __version__

    assert result.folder is not None
    assert options.output_dir is not None
    older = [job for job in calc_file.list_job_folders(options.output_dir / mode) if job != result.folder]
    poor = "" if result.calculation.levels_in_fit else "has no usable level"
    poor = "was stopped" if result.facts.get("stopped") else poor
    if older and options.remove_older and poor:
        result.notices.append(f"{len(older)} older {mode} job(s) kept, because this one {poor}")
    if older and not options.remove_older:
        result.notices.append(
            f"{len(older)} older {mode} job(s) kept (--remove_older_jobs removes them, as the toolkit does)"
        )
    written_at = datetime.now(UTC).isoformat(timespec="seconds")
    notes = {"workbench": __version__, "written_at": written_at, **result.to_document()}
    result.paths = calc_outputs.write_job(result.folder, result.calculation, notes=notes, plots=options.plots)
    if options.remove_older and not poor and (removed := calc_outputs.remove_older_jobs(result.folder, older)):
        result.notices.append(f"removed {len(removed)} older {mode} job(s), as asked")


def calculate_from_levels(
    levels: Mapping[int, SizingMetrics | Mapping[str, Any]], goal: CalcGoal, rules: FitRules = RULES
) -> CalculationResult:
    """Calculate from levels in memory, without reading or writing files."""
    try:
        metrics = {int(number): SizingMetrics.model_validate(level) for number, level in levels.items()}
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError("field of a level has the wrong type", where=where, allowed=first["msg"]) from error
    if beyond := [number for number in metrics if abs(number) > calc_file.MAX_LOAD]:
        allowed = f"at most {calc_file.MAX_LOAD:,}"
        raise InputError("load is too large", where="levels", found=format_items(beyond, MAX_SHOWN), allowed=allowed)
    result = calculate_gpus(metrics, goal, rules)
    return CalculationResult(result, notices=list(result.notices), facts={"mode": "memory"})


@dataclass
class OnlineMeasurement:
    """Measured levels so far: metrics, failures by level, and whether the run was stopped."""

    metrics: dict[int, SizingMetrics] = field(default_factory=dict)
    failures: dict[int, dict[str, Any]] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    driven: str = ""
    stopped: bool = False


def run_online(options: Options, report: Callable[[str], None]) -> CalculationResult:
    """Measure all levels, writing each when it ends, and calculate from them.

    Ctrl-C drops the running level; the calculation uses the levels before it.
    """
    assert options.config_file is not None
    rows = eval_dataset.read_dataset(options.config_file)
    levels = options.concurrencies or CONCURRENCIES
    # Checked before the run starts.
    workflow = _open_workflow(options)
    for level in levels:
        rows.items_for_level(level, num_passes=options.num_passes, seed=options.seed)
    result = CalculationResult(calculate_gpus({}, options.goal, options.rules))
    if options.write and options.output_dir is not None:
        result.folder = calc_outputs.create_job_folder(options.output_dir, "online", append=options.append)
    measured = OnlineMeasurement()

    def save_level(level: int) -> None:
        metrics = measured.metrics[level]
        text = f"concurrency {level}: {len(metrics.per_item_metrics)} runs"
        if metrics.per_item_metrics:
            text += f", p95 runtime {metrics.workflow_runtime_p95:.4g} s, LLM {metrics.llm_latency_p95:.4g} s"
        if failed := measured.failures.get(level):
            text += f"; stopped by a failure ({failed['first']}), {failed['not_begun']} not begun"
        report(text)
        result.calculation = calculate_gpus(measured.metrics, options.goal, options.rules)
        if result.folder is not None:
            calc_file.write_calc_file(result.folder / calc_file.CALC_FILE_NAME, result.calculation.output)

    try:
        _run_in_new_loop(_measure_levels(workflow, rows, levels, options, measured, save_level))
    except KeyboardInterrupt:
        measured.stopped = True
    result.notices = [*rows.notices, *_build_notices(options, levels, measured), *result.calculation.notices]
    # Keys of nested mappings are levels of concurrency.
    result.facts = {
        "mode": "online",
        "driven": measured.driven,
        "clock": "server events" if options.endpoint is None or options.server_clock else "client",
        "dataset_rows": len(rows.rows),
        "num_passes": options.num_passes,
        "seed": options.seed,
        "failures": {str(level): failed for level, failed in measured.failures.items()},
        "clock_gap_s": {str(level): gap_s for level, gap_s in measured.gaps.items()},
        "stopped": measured.stopped,
    }
    if result.folder is not None:
        write_calculation_job(result, options, "online")
    return result


def _open_workflow(options: Options) -> CalcWorkflow:
    # Only a measurement needs the event loop and the client.
    from workbench.sizing.compat_nat.workflow_runs import LocalWorkflow, ServedWorkflow, endpoint_host

    assert options.config_file is not None
    if options.endpoint is None:
        return LocalWorkflow(options.config_file, options.nat_python)
    from workbench.core.host import is_loopback

    host = endpoint_host(options.endpoint)
    if not is_loopback(host) and (options.target_confirm or "").lower() != host:
        raise ConfigError(
            "the endpoint is another machine: a load test can take a service down and may cost money",
            where="--endpoint",
            found=host,
            do=f"add --target_confirm {host} if you may load it",
        )
    return ServedWorkflow(
        options.endpoint,
        timeout_s=options.endpoint_timeout_s,
        header_env=options.header_env,
        server_clock=options.server_clock,
    )


def _run_in_new_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; in a thread if an event loop is already running, as in a notebook."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


async def _measure_levels(
    workflow: CalcWorkflow,
    rows: eval_dataset.Dataset,
    levels: tuple[int, ...],
    options: Options,
    measured: OnlineMeasurement,
    ended: Callable[[int], None],
) -> None:
    async with workflow:
        measured.driven = workflow.name
        for level in levels:
            items = rows.items_for_level(level, num_passes=options.num_passes, seed=options.seed)
            with show_progress_count(f"concurrency {level}") as progress:
                runs = await workflow.run_level(level, items, progress)
            measured.metrics[level] = level_metrics(runs)
            failed = Counter(run.outcome for run in runs if run.outcome != "ok")
            if failed:
                detail = next(run.detail for run in runs if run.outcome != "ok")
                skipped = len(items) - len(runs)
                measured.failures[level] = {**failed, "not_begun": skipped, "first": detail}
            gaps = sorted(run.runtime_s - run.server_s for run in runs if run.runtime_s and run.server_s)
            if gaps:
                measured.gaps[level] = gaps[len(gaps) // 2]
            ended(level)


def level_metrics(runs: list[WorkflowRun]) -> SizingMetrics:
    """Metrics of a level for the file: p95 over the successful runs and over their LLM calls.

    A failed run is not part of percentiles and items, and marks the level as interrupted. Percentiles without values
    are 0, as in the toolkit.

    >>> from workbench.sizing.compat_nat.workflow_runs import WorkflowRun
    >>> level = level_metrics([WorkflowRun("a", "ok", 2.0, [0.5, 1.0], 0.0, 2.0), WorkflowRun("b", "failed")])
    >>> level.workflow_runtime_p95, level.alerts.workflow_interrupted, list(level.per_item_metrics)
    (2.0, True, ['a'])
    """
    successes = [run for run in runs if run.outcome == "ok" and run.runtime_s is not None]
    spans = [(run.first, run.last) for run in successes if run.first is not None and run.last is not None]
    total_s = max(last for _, last in spans) - min(first for first, _ in spans) if spans else 0.0
    return SizingMetrics(
        alerts=MetricAlerts(workflow_interrupted=len(successes) < len(runs) or not runs),
        llm_latency_p95=percentile_95([call for run in successes for call in run.llm_s]),
        workflow_runtime_p95=percentile_95([run.runtime_s for run in successes if run.runtime_s is not None]),
        total_runtime=total_s,
        per_item_metrics={
            run.item: ItemMetrics(llm_latency=percentile_95(run.llm_s), workflow_runtime=run.runtime_s or 0.0)
            for run in successes
        },
    )


def _build_notices(options: Options, levels: tuple[int, ...], measured: OnlineMeasurement) -> list[str]:
    """Notices about an online measurement: missing levels and targets, waits before the server, failures."""
    goal, notices = options.goal, []
    if measured.stopped:
        notices.append(f"stopped: {len(measured.metrics)} of {len(levels)} levels were measured")
    if not (goal.target_llm_latency_s or goal.target_workflow_runtime_s):
        notices.append("no target: measured, not estimated (--target_llm_latency, --target_workflow_runtime)")
    elif not goal.targeted_metrics:
        missing = [
            name
            for name, value in (("--target_users", goal.target_users), ("--test_gpu_count", goal.test_gpu_count))
            if not value
        ]
        notices.append(f"measured, not estimated: {' and '.join(missing)} not given")
    large = {
        level: gap_s
        for level, gap_s in measured.gaps.items()
        if gap_s > MIN_REPORTED_GAP * measured.metrics[level].workflow_runtime_p95
    }
    if large:
        level, gap_s = max(large.items(), key=lambda pair: pair[1])
        notices.append(
            f"at concurrency {level} a run takes {gap_s:.3g} s longer (median) than by the server's events: it waits "
            "before the server starts, which the toolkit's calculator does not count"
        )
    for level, failed in measured.failures.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items() if kind not in ("not_begun", "first"))
        notices.append(f"concurrency {level} is tagged as interrupted: {kinds}; first: {failed['first']}")
    return notices
