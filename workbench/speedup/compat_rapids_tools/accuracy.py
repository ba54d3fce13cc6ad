"""Accuracy of the seed method: the original's validation report, and estimates of left-out queries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.core.errors import InputError
from workbench.speedup.calibration.factors import RECORDING_MARK
from workbench.speedup.comparison.pair import Pair
from workbench.speedup.compat_rapids_tools.estimates import ApplicationEstimate, estimate_application
from workbench.speedup.compat_rapids_tools.jvm_semantics import truncate_decimals
from workbench.speedup.compat_rapids_tools.log_records import Query
from workbench.speedup.compat_rapids_tools.profile_tables import SeedApplication, build_seed_application
from workbench.speedup.compat_rapids_tools.seed_factors import OPERATOR_PAIRS, generate_factors
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog, keep_usable, read_seed_logs

RULE = "=" * 50
HEADS = (
    "",
    "App Name",
    "App Duration",
    "Estimated GPU Duration",
    "Estimated GPU Speedup",
    "GPU Duration",
    "Duration Error (sec)",
    "Duration Error (pct)",
    "GPU Speedup",
    "Speedup Error (abs)",
    "Speedup Error (pct)",
)

# Labels as the original has them, one parenthesis missing and one blank too many included.
ERROR_LINES = """
Average duration error (seconds)  =
Median duration error (seconds)   =
Min duration error (seconds)      =
Max duration error (seconds)      =
Average duration error (diff pct) =
Median duration error (diff pct)  =
Max duration error (diff pct)     =
Average duration error (diff sec) =
Median duration error (diff sec)  =
Max duration error (diff sec)     =
Average duration error (abs pct)  =
Median duration error (abs pct)   =
Max duration error (abs pct)      =
Average speedup error (diff)      =
Median speedup error (diff)       =
Min speedup error (diff)          =
Max speedup error (diff)          =
Average speedup error (diff pct)  =
Median speedup error (diff pct    =
Max speedup error (diff pct)      =
Average speedup error (abs diff)  =
Median speedup error (abs diff)   =
Max speedup error (abs diff)      =
Average speedup error (abs pct)   =
Median speedup error (abs pct)    =
Max speedup error (abs pct)         =
""".strip().splitlines()
# Comet's names for what the original's table pairs; it has no counterpart for the others.
COMET_PAIRS = (
    *(
        ("Scan parquet ", f"CometScan [{kind}] parquet ", ("BatchScanExec", "FileSourceScanExec"))
        for kind in ("native_iceberg_compat", "native_datafusion", "native_comet")
    ),
    ("Expand", "CometExpand", ("ExpandExec",)),
    ("Filter", "CometFilter", ("FilterExec",)),
    ("SortMergeJoin", "CometSortMergeJoin", ("SortMergeJoinExec",)),
    ("BroadcastHashJoin", "CometBroadcastHashJoin", ("BroadcastHashJoinExec",)),
    ("Exchange", "CometExchange", ("ShuffleExchangeExec",)),
    ("HashAggregate", "CometHashAggregate", ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec")),
    ("TakeOrderedAndProject", "CometTakeOrderedAndProject", ("TakeOrderedAndProjectExec",)),
)


@dataclass(frozen=True)
class EstimateComparison:
    """One application, estimated and measured; percentages are of the estimate."""

    name: str
    duration_ms: int
    estimated_ms: float
    estimated_speedup_ratio: float
    measured_ms: int
    duration_error_s: float
    duration_error_percent: float
    measured_speedup_ratio: float
    speedup_error_ratio: float
    speedup_error_percent: float


def compare_estimates(
    estimates: Sequence[ApplicationEstimate],
    measured: Sequence[SeedApplication],
    *,
    unusable: dict[str, str] | None = None,
) -> list[EstimateComparison]:
    """Set every estimate beside the accelerated run of the same application name.

    `unusable`: Gets the reason of each name that cannot be compared; where none can, or without it, that is an error.
    """
    names = [app.log.app_name for app in estimates]
    times = {application.name: application.duration_ms for application in measured}
    common = [name for name in dict.fromkeys(names) if name in times]
    if not common:
        raise InputError(
            "no application is on both sides: the seed method pairs them by name",
            where="App Name",
            found=f"CPU side {sorted(names)}, accelerated side {sorted(times)}",
            do="give both runs the same spark.app.name",
        )
    by_name = {app.log.app_name: app for app in estimates}

    def compare(name: str) -> EstimateComparison:
        for side, side_names in (("CPU", names), ("accelerated", [application.name for application in measured])):
            if (count := side_names.count(name)) > 1:
                raise InputError(
                    f"application names are not unique on the {side} side",
                    where="App Name",
                    found=f"{count} are called {name!r}",
                    do="give one log per application name",
                )
        app, measured_ms = by_name[name], times[name]
        # Two decimals, cut off: the original reads them from the qualification tool's file.
        estimated, speedup = truncate_decimals(app.estimate.estimated_ms), truncate_decimals(app.estimate.speedup_ratio)
        if measured_ms <= 0 or estimated <= 0 or speedup <= 0:
            found = f"{estimated} ms, {measured_ms} ms"
            raise InputError("a duration is not above 0", where=app.log.where, found=found)
        ratio = round(app.estimate.duration_ms / measured_ms, 2)
        return EstimateComparison(
            app.log.app_name,
            app.estimate.duration_ms,
            estimated,
            speedup,
            measured_ms,
            (estimated - measured_ms) / 1000.0,
            round(100.0 * (estimated - measured_ms) / estimated, 2),
            ratio,
            speedup - ratio,
            round(100.0 * (speedup - ratio) / speedup, 2),
        )

    rows = keep_usable(common, compare, lambda name: f"application {name!r}", unusable)
    if unusable is not None:
        for side, side_names in (("CPU", names), ("accelerated", list(times))):
            alone = dict.fromkeys(f"application {name!r}" for name in side_names if name not in common)
            unusable.update(dict.fromkeys(alone, f"only on the {side} side: applications are paired by name"))
    return rows


def format_validation_report(rows: Sequence[EstimateComparison]) -> str:
    """The table and the 26 lines of errors, as the original prints them."""
    from tabulate import tabulate

    cells = [[number, *vars(row).values()] for number, row in enumerate(rows)]
    lines = [
        RULE,
        "              Application Details",
        RULE,
        *str(tabulate(cells, HEADS, tablefmt="psql")).splitlines(),
    ]
    duration = _format_error_lines(
        ERROR_LINES[:13], [row.duration_error_s for row in rows], [row.duration_error_percent for row in rows]
    )
    lines += [RULE, "            Duration Error Metrics ", RULE, *duration]
    speedup = _format_error_lines(
        ERROR_LINES[13:], [row.speedup_error_ratio for row in rows], [row.speedup_error_percent for row in rows]
    )
    lines += [RULE, "            Speedup Error Metrics ", RULE, *speedup]
    return "\n".join(lines) + "\n"


def _format_error_lines(labels: Sequence[str], errors: list[float], percents: list[float]) -> list[str]:
    """Format the statistics of signed and absolute errors and percentages, one line for each label."""
    # The mean and the median are numpy's numbers, which round unlike Python's: the original did so here.
    central: list[Callable[[list[float]], float]] = [lambda values: np.float64(sum(values) / len(values)), np.median]
    unsigned: list[Callable[[list[float]], float]] = [*central, max]
    signed: list[Callable[[list[float]], float]] = [*central, min, max]
    figures = [get(errors) for get in signed] + [get(percents) for get in unsigned]
    figures += [get([abs(value) for value in values]) for values in (errors, percents) for get in unsigned]
    return [f"{label} {float(round(figure, 2))}" for label, figure in zip(labels, figures, strict=True)]


def estimate_seed_ratios(pair: Pair, queries: Sequence[str]) -> dict[str, float] | None:
    """The seed method's estimates of left-out queries, from logs of plain Spark and an accelerator; otherwise null.

    Null for joined recordings, whose queries are not named as in the logs.
    """
    if any(RECORDING_MARK in query for query in queries):
        return None
    if pair.engines[0] != "spark" or pair.engines[1] == "spark" or not all(pair.logs):
        return None
    return estimate_left_out_ratios(*pair.logs, queries, first_runs=pair.first_runs)


def estimate_left_out_ratios(
    baseline_logs: Iterable[str], candidate_logs: Iterable[str], queries: Sequence[str], *, first_runs: bool = False
) -> dict[str, float]:
    """Estimated speedup of each query, by the seed method with factors from all the others.

    `queries`: Descriptions; of each, executions but the first in a log are taken.

    Returns: Geometric mean over executions of duration over estimated duration, by query; queries that the method
    gives no estimate for are missing.
    """
    plain = [log for path in baseline_logs for log in read_seed_logs(path)]
    fast = [log for path in candidate_logs for log in read_seed_logs(path)]
    pairs = (*OPERATOR_PAIRS, *COMET_PAIRS)
    # Applications that each hold one run of a query alone, by query.
    sides = [
        [
            {
                query: [
                    replace(build_seed_application(_restrict_log(log, [run])), duration_ms=run.duration_ms or 0)
                    for run in _list_runs(log, query, first_runs)
                ]
                for query in queries
            }
            for log in side
        ]
        for side in (plain, fast)
    ]
    mean_ratios = {}
    for query in queries:
        cpu, gpu = (
            [
                _sum_applications(
                    log, [application for name in queries if name != query for application in parts.get(name, [])]
                )
                for log, parts in side
            ]
            for side in (zip(plain, sides[0], strict=True), zip(fast, sides[1], strict=True))
        )
        factors = generate_factors(cpu, gpu, pairs=pairs).get_factors()
        parts = [_restrict_log(log, _list_runs(log, query, first_runs)) for log in plain]
        estimates = [one.estimate for part in parts for one in estimate_application(part, factors).queries]
        ratios = [estimate.speedup_ratio for estimate in estimates if estimate.speedup_ratio > 0]
        if ratios:
            mean_ratios[query] = float(np.exp(np.mean(np.log(ratios))))
    return mean_ratios


def _list_runs(log: SeedLog, query: str, first_runs: bool) -> list[Query]:
    runs = [run for run in log.queries.values() if run.description == query and run.duration_ms]
    return runs[:1] if first_runs else runs[1:]


def _restrict_log(log: SeedLog, chosen: Sequence[Query]) -> SeedLog:
    """The log as if these were its only queries."""
    ids = {query.sql_id for query in chosen}
    part = copy.copy(log)
    part.queries = {query.sql_id: query for query in chosen}
    part.jobs = {job_id: job for job_id, job in log.jobs.items() if job.sql_id in ids}
    return part


def _sum_applications(log: SeedLog, parts: Sequence[SeedApplication]) -> SeedApplication:
    return SeedApplication(
        where=log.where,
        # The original keeps one application of a name.
        name=f"{log.app_name} {log.where}",
        duration_ms=sum(part.duration_ms for part in parts),
        accelerated=log.accelerated,
        spans=tuple(row for part in parts for row in part.spans),
        span_times=tuple(row for part in parts for row in part.span_times),
        stages=tuple(row for part in parts for row in part.stages),
    )
