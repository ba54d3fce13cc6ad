"""Time per operator by the seed generator's rules, and the scores it makes of it.

The rules are those of the removed `generate_speedup_factors.py`, faults included: wall time of a stage in equal shares,
codegen time in another unit on top, applications of one name overwriting each other. Sums run in the same order as
there, so that even the last digits agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.speedup.builtin import seed_operators
from workbench.speedup.seed.applications import CODEGEN, SeedApplication

# (operator on the CPU, operator on the accelerator, the rows that get their ratio); a later pair wins.
PAIRS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Scan parquet ", "GpuScan parquet ", ("BatchScanExec", "FileSourceScanExec")),
    ("Scan orc ", "GpuScan orc ", ("BatchScanExec", "FileSourceScanExec")),
    ("Expand", "GpuExpand", ("ExpandExec",)),
    ("CartesianProduct", "GpuCartesianProduct", ("CartesianProductExec",)),
    ("Filter", "GpuFilter", ("FilterExec",)),
    ("SortMergeJoin", "GpuShuffledHashJoin", ("SortMergeJoinExec",)),
    ("BroadcastHashJoin", "GpuBroadcastHashJoin", ("BroadcastHashJoinExec",)),
    ("Exchange", "GpuColumnarExchange", ("ShuffleExchangeExec",)),
    ("HashAggregate", "GpuHashAggregate", ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec")),
    ("TakeOrderedAndProject", "GpuTopN", ("TakeOrderedAndProjectExec",)),
    ("BroadcastNestedLoopJoin", "GpuBroadcastNestedLoopJoin", ("BroadcastNestedLoopJoinExec",)),
)
MINIMUM = 1.0
Times = dict[str, float]


@dataclass(frozen=True)
class SeedFactors:
    """What the generator found: times per operator on both sides (ms, with seconds mixed in), and its scores."""

    cpu: Times
    gpu: Times
    cpu_total: float
    gpu_total: float
    overall: float
    scores: dict[str, float]
    warnings: tuple[str, ...]

    def csv(self) -> str:
        """The factor file, all rows, as the original writes it."""
        lines = ["CPUOperator,Score"]
        for operator, fixed in seed_operators():
            lines.append(f"{operator},{fixed or self.scores.get(operator, self.overall)}")
        return "\n".join(lines) + "\n"

    def factors(self) -> dict[str, float]:
        """Operator to factor, all rows of the factor file."""
        return {name: float(fixed or self.scores.get(name, self.overall)) for name, fixed in seed_operators()}

    def verbose(self) -> str:
        """What `--verbose` prints."""
        lines = ["# CPU Operator Metrics", *(f"{name} = {time}" for name, time in self.cpu.items())]
        lines += ["# GPU Operator Metrics", *(f"{name} = {time}" for name, time in self.gpu.items())]
        lines += ["# Summary Metrics", f"CPU Total = {self.cpu_total}", f"GPU Total = {self.gpu_total}"]
        lines += [f"Overall speedup = {self.overall}", "# Speedup Factors "]
        return "\n".join([*lines, *(f"{name} = {score}" for name, score in self.scores.items())]) + "\n"


def generate(
    cpu: Sequence[SeedApplication],
    gpu: Sequence[SeedApplication],
    *,
    pairs: Sequence[tuple[str, str, tuple[str, ...]]] = PAIRS,
) -> SeedFactors:
    """Which factor does each operator get by the seed method?

    Parameters
    ----------
    cpu, gpu
        Applications of the two sides; times of all on a side are added up.
    pairs
        (CPU operator, accelerated operator, rows that get the ratio): the original's by default. Give another table to
        apply the same arithmetic to another engine's names.

    Returns
    -------
    SeedFactors
        Times and scores; scores below 1.0 are raised to it, rows without a pair get the ratio of application times.

    Raises
    ------
    InputError
        A side has no application or no time; an accelerated operator of a pair took no time.

    Notes
    -----
    Does not show what an operator gains: see the list of faults in `docs/guide/speedup-seed-method.md`.
    Source: generate_speedup_factors.py of spark-rapids-tools, last in the commit before 16195abf.
    """
    warnings = _repeated_names(cpu, "CPU") + _repeated_names(gpu, "GPU")
    cpu_times, cpu_total = _summed([_cpu_times(application) for application in _last_of_name(cpu)])
    gpu_times, gpu_total = _summed([_gpu_times(application) for application in _last_of_name(gpu)])
    overall = _overall(cpu, gpu)
    scores: dict[str, float] = {}
    for before, after, rows in pairs:
        if before not in cpu_times or after not in gpu_times:
            continue
        if gpu_times[after] == 0:
            raise InputError("operator took no time: no factor can be made of it", where=after, found="0 ms")
        ratio = max(MINIMUM, round(cpu_times[before] / gpu_times[after], 2))
        scores |= dict.fromkeys(rows, ratio)
    return SeedFactors(cpu_times, gpu_times, cpu_total, gpu_total, overall, scores, tuple(warnings))


def _overall(cpu: Sequence[SeedApplication], gpu: Sequence[SeedApplication]) -> float:
    """Ratio of application times; rounded as numpy does, which the original used here and nowhere else."""
    before, after = (sum(application.duration_ms for application in side) for side in (cpu, gpu))
    for side, total in (("CPU", before), ("GPU", after)):
        if total <= 0:
            raise InputError(f"no application time on the {side} side", found=f"{total} ms", do="give another log")
    return float(max(MINIMUM, round(np.float64(before) / np.float64(after), 2)))


def _repeated_names(applications: Sequence[SeedApplication], side: str) -> list[str]:
    names = [application.name for application in applications]
    return [
        f"{names.count(name)} applications on the {side} side are called {name!r}: their durations are added up, of "
        "their operators only the last one's count (as in the original)"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _last_of_name(applications: Sequence[SeedApplication]) -> list[SeedApplication]:
    """The place of the first application of a name, the content of the last: a dictionary's way."""
    return list({application.name: application for application in applications}.values())


def _cpu_times(application: SeedApplication) -> Times:
    members: dict[str, str] = {}
    for span, operator in application.spans:
        members[span] = f"{members[span]},{operator}" if span in members else operator
    times: Times = {}
    for span, total in application.span_times:
        # A node without members becomes "nan", as missing values print.
        operators = members.get(span, "nan").split(",")
        for operator in operators:
            times[operator] = times.get(operator, 0.0) + total / len(operators) / 1000.0
    for stage in application.stages:
        if stage.duration_ms is None or not stage.nodes:
            continue
        operators = stage.nodes.split(",")
        count = len(operators) - stage.nodes.count(CODEGEN)
        for operator in operators:
            if CODEGEN not in operator and count > 0:
                name = operator.split("(")[0]
                times[name] = times.get(name, 0.0) + stage.duration_ms / count
    return times


def _gpu_times(application: SeedApplication) -> Times:
    times: Times = {}
    for stage in application.stages:
        if stage.duration_ms is None:
            raise InputError(
                "stage without a duration: the seed method cannot add it up",
                where=application.where,
                found=stage.nodes[:200],
                do="record the run again, to its end",
            )
        operators = (stage.nodes or "nan").split(",")
        for operator in operators:
            name = operator.split("(")[0]
            times[name] = times.get(name, 0.0) + stage.duration_ms / len(operators)
    return times


def _summed(each: Sequence[Mapping[str, float]]) -> tuple[Times, float]:
    totals: Times = {}
    total = 0.0
    for times in each:
        for name, time in times.items():
            totals[name] = totals[name] + time if name in totals else time
            total += time
    return totals, total
