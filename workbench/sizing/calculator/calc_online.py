"""The calculator online: levels measured one after the other, each on disk as it ends, then the calculation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import ConfigError
from workbench.progress import counter
from workbench.sizing.calculator import calcfile, calcjob, dataset
from workbench.sizing.calculator.calc_options import CONCURRENCIES, Options
from workbench.sizing.calculator.calcfile import ItemMetrics, MetricAlerts, SizingMetrics
from workbench.sizing.calculator.calculate import Calculated, keep
from workbench.sizing.calculator.calculation import calculated
from workbench.sizing.calculator.workflow_local import LocalWorkflow
from workbench.sizing.calculator.workflow_runs import Run, Workflow
from workbench.sizing.calculator.workflow_served import ServedWorkflow, host_of

P95 = 95
GAP_TOLD = 0.1


@dataclass
class Measured:
    """What came of the levels so far: the file's metrics, failures by level, and whether it was stopped."""

    metrics: dict[int, SizingMetrics] = field(default_factory=dict)
    failures: dict[int, dict[str, Any]] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    driven: str = ""
    stopped: bool = False


def run_online(options: Options, report: Callable[[str], None]) -> Calculated:
    """Measure every level, write each as it ends, calculate from all.

    Ctrl-C ends the level that runs, which is dropped; those before are calculated from.

    Raises
    ------
    ConfigError, InputError
        Config, dataset or endpoint cannot be used.
    RunFailedError
        The toolkit's process died; levels that had ended are on disk.
    """
    assert options.config_file is not None
    rows = dataset.read(options.config_file)
    levels = options.concurrencies or CONCURRENCIES
    # Refused before anything runs.
    workflow = _workflow(options)
    for level in levels:
        rows.level(level, num_passes=options.num_passes, seed=options.seed)
    done = Calculated(calculated({}, options.goal, options.rules))
    if options.write and options.output_dir is not None:
        done.folder = calcjob.new_folder(options.output_dir, "online", append=options.append)
    measured = Measured()

    def ended(level: int) -> None:
        report(_told(level, measured))
        done.calculation = calculated(measured.metrics, options.goal, options.rules)
        if done.folder is not None:
            calcfile.write(done.folder / calcfile.NAME, done.calculation.output)

    try:
        _complete(_measure(workflow, rows, levels, options, measured, ended))
    except KeyboardInterrupt:
        measured.stopped = True
    done.notices = [*rows.notices, *_notices(options, levels, measured), *done.calculation.notices]
    done.facts = _facts(options, rows, measured)
    if done.folder is not None:
        keep(done, options, "online")
    return done


def _workflow(options: Options) -> Workflow:
    assert options.config_file is not None
    if options.endpoint is None:
        return LocalWorkflow(options.config_file, options.nat_python)
    from workbench.host import is_loopback

    host = host_of(options.endpoint)
    if not is_loopback(host) and (options.target_confirm or "").lower() != host:
        raise ConfigError(
            "the endpoint is another machine: a load test can take a service down, and may cost money",
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


def _complete(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; in a thread where an event loop runs already, as it does in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


async def _measure(
    workflow: Workflow,
    rows: dataset.Dataset,
    levels: tuple[int, ...],
    options: Options,
    measured: Measured,
    ended: Callable[[int], None],
) -> None:
    async with workflow:
        measured.driven = workflow.name
        for level in levels:
            items = rows.level(level, num_passes=options.num_passes, seed=options.seed)
            with counter(f"concurrency {level}") as told:
                runs = await workflow.level(level, items, told)
            measured.metrics[level] = metrics_of(runs)
            failed = Counter(run.outcome for run in runs if run.outcome != "ok")
            if failed:
                detail = next(run.detail for run in runs if run.outcome != "ok")
                skipped = len(items) - len(runs)
                measured.failures[level] = {**failed, "not_begun": skipped, "first": detail}
            gaps = sorted(run.runtime_s - run.server_s for run in runs if run.runtime_s and run.server_s)
            if gaps:
                measured.gaps[level] = gaps[len(gaps) // 2]
            ended(level)


def metrics_of(runs: list[Run]) -> SizingMetrics:
    """A level as the file has it: p95 over the runs that ended well, and over their LLM calls.

    A failed run has no time, is in no percentile and among no items; it makes the level an interrupted one. The file
    has 0 where there is nothing to take a percentile of.

    Examples
    --------
    >>> level = metrics_of([Run("a", "ok", 2.0, [0.5, 1.0], 0.0, 2.0), Run("b", "failed")])
    >>> level.workflow_runtime_p95, level.alerts.workflow_interrupted, list(level.per_item_metrics)
    (2.0, True, ['a'])
    """
    good = [run for run in runs if run.outcome == "ok" and run.runtime_s is not None]
    spans = [(run.first, run.last) for run in good if run.first is not None and run.last is not None]
    total_s = max(last for _, last in spans) - min(first for first, _ in spans) if spans else 0.0
    return SizingMetrics(
        alerts=MetricAlerts(workflow_interrupted=len(good) < len(runs) or not runs),
        llm_latency_p95=_p95([call for run in good for call in run.llm_s]),
        workflow_runtime_p95=_p95([run.runtime_s for run in good if run.runtime_s is not None]),
        total_runtime=total_s,
        per_item_metrics={
            run.item: ItemMetrics(llm_latency=_p95(run.llm_s), workflow_runtime=run.runtime_s or 0.0) for run in good
        },
    )


def _p95(values: list[float]) -> float:
    import numpy as np

    return float(np.percentile(values, P95)) if values else 0.0


def _told(level: int, measured: Measured) -> str:
    metrics = measured.metrics[level]
    told = f"concurrency {level}: {len(metrics.per_item_metrics)} runs"
    if metrics.per_item_metrics:
        told += f", p95 runtime {metrics.workflow_runtime_p95:.4g} s, LLM {metrics.llm_latency_p95:.4g} s"
    if failed := measured.failures.get(level):
        told += f"; stopped by a failure ({failed['first']}), {failed['not_begun']} not begun"
    return told


def _notices(options: Options, levels: tuple[int, ...], measured: Measured) -> list[str]:
    goal, notices = options.goal, []
    if measured.stopped:
        notices.append(f"stopped: {len(measured.metrics)} of {len(levels)} levels were measured")
    if not (goal.target_llm_latency_s or goal.target_workflow_runtime_s):
        notices.append("no target: measured, not estimated (--target_llm_latency, --target_workflow_runtime)")
    elif not goal.asked:
        missing = [
            name
            for name, value in (("--target_users", goal.target_users), ("--test_gpu_count", goal.test_gpu_count))
            if not value
        ]
        notices.append(f"measured, not estimated: {' and '.join(missing)} not given")
    large = {
        level: gap_s
        for level, gap_s in measured.gaps.items()
        if gap_s > GAP_TOLD * measured.metrics[level].workflow_runtime_p95
    }
    if large:
        level, gap_s = max(large.items(), key=lambda pair: pair[1])
        notices.append(
            f"at concurrency {level} a run takes {gap_s:.3g} s longer than the server's events say (median): it waits "
            "before the server begins, which the toolkit's calculator does not count"
        )
    for level, failed in measured.failures.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items() if kind not in ("not_begun", "first"))
        notices.append(f"concurrency {level} is tagged as interrupted: {kinds}; first: {failed['first']}")
    return notices


def _facts(options: Options, rows: dataset.Dataset, measured: Measured) -> dict[str, Any]:
    return {
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
