"""Factors by the original generator's rules, and the factor file CPUOperator,Score."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.core.errors import InputError
from workbench.core.files import write_text
from workbench.speedup.compat_rapids_tools.profile_tables import CODEGEN_PREFIX, SeedApplication
from workbench.speedup.rapids_facts import list_known_operators, list_seed_operators

# (operator on the CPU, operator on the accelerator, the rows that get their ratio); a later pair wins.
OPERATOR_PAIRS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
MIN_FACTOR = 1.0
Times = dict[str, float]
HEADER = ("CPUOperator", "Score")
# The qualification tool takes a scan as unsupported unless its factor exceeds 1.
SCANS = ("BatchScanExec", "FileSourceScanExec", "HiveTableScanExec")
MIN_SCAN_FACTOR = 1.01
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class SeedFactors:
    """Results of the generator: times per operator on both sides (ms, with seconds mixed in), and its scores."""

    cpu: Times
    gpu: Times
    cpu_total: float
    gpu_total: float
    overall: float
    scores: dict[str, float]
    warnings: tuple[str, ...]

    def format_csv(self) -> str:
        """The factor file, all rows, as the original writes it."""
        lines = ["CPUOperator,Score"]
        for operator, fixed in list_seed_operators():
            lines.append(f"{operator},{fixed or self.scores.get(operator, self.overall)}")
        return "\n".join(lines) + "\n"

    def get_factors(self) -> dict[str, float]:
        """Operator to factor, all rows of the factor file."""
        return {name: float(fixed or self.scores.get(name, self.overall)) for name, fixed in list_seed_operators()}

    def format_details(self) -> str:
        """Format the details that `--verbose` prints."""
        lines = ["# CPU Operator Metrics", *(f"{name} = {time}" for name, time in self.cpu.items())]
        lines += ["# GPU Operator Metrics", *(f"{name} = {time}" for name, time in self.gpu.items())]
        lines += ["# Summary Metrics", f"CPU Total = {self.cpu_total}", f"GPU Total = {self.gpu_total}"]
        lines += [f"Overall speedup = {self.overall}", "# Speedup Factors "]
        return "\n".join([*lines, *(f"{name} = {score}" for name, score in self.scores.items())]) + "\n"


def generate_factors(
    cpu: Sequence[SeedApplication],
    gpu: Sequence[SeedApplication],
    *,
    pairs: Sequence[tuple[str, str, tuple[str, ...]]] = OPERATOR_PAIRS,
) -> SeedFactors:
    """Which factor does each operator get by the seed method?

    `cpu`, `gpu`: Applications of the two sides; times of all on a side are added up.
    `pairs`: (CPU operator, accelerated operator, rows that get the ratio): the original's by default. Give another
    table to apply the same arithmetic to another engine's names.

    Returns: Times and scores; scores below 1.0 are raised to it, rows without a pair get the ratio of application
    times.

    Does not show what an operator gains: see the list of faults in `docs/guide/speedup-seed-method.md`.
    Source: generate_speedup_factors.py of spark-rapids-tools, last in the commit before 16195abf.
    """
    warnings = _warn_of_repeated_names(cpu, "CPU") + _warn_of_repeated_names(gpu, "GPU")
    cpu_times, cpu_total = _sum_times([_sum_cpu_times(application) for application in _select_last_of_name(cpu)])
    gpu_times, gpu_total = _sum_times([_sum_gpu_times(application) for application in _select_last_of_name(gpu)])
    before_ms, after_ms = (sum(application.duration_ms for application in side) for side in (cpu, gpu))
    for side, total in (("CPU", before_ms), ("GPU", after_ms)):
        if total <= 0:
            raise InputError(f"no application time on the {side} side", found=f"{total} ms", do="give another log")
    # Rounded as numpy does, which the original used here and nowhere else.
    overall = float(max(MIN_FACTOR, round(np.float64(before_ms) / np.float64(after_ms), 2)))
    scores: dict[str, float] = {}
    for before, after, rows in pairs:
        if before not in cpu_times or after not in gpu_times:
            continue
        if gpu_times[after] == 0:
            raise InputError("operator took no time: no factor can be made of it", where=after, found="0 ms")
        ratio = max(MIN_FACTOR, round(cpu_times[before] / gpu_times[after], 2))
        scores |= dict.fromkeys(rows, ratio)
    return SeedFactors(cpu_times, gpu_times, cpu_total, gpu_total, overall, scores, tuple(warnings))


def _warn_of_repeated_names(applications: Sequence[SeedApplication], side: str) -> list[str]:
    names = [application.name for application in applications]
    return [
        f"{names.count(name)} applications on the {side} side are called {name!r}: their durations are added up, of "
        "their operators only the last one's count (as in the original)"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _select_last_of_name(applications: Sequence[SeedApplication]) -> list[SeedApplication]:
    """The place of the first application of a name, the content of the last: a dictionary's way."""
    return list({application.name: application for application in applications}.values())


def _sum_cpu_times(application: SeedApplication) -> Times:
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
        count = len(operators) - stage.nodes.count(CODEGEN_PREFIX)
        for operator in operators:
            if CODEGEN_PREFIX not in operator and count > 0:
                name = operator.split("(")[0]
                times[name] = times.get(name, 0.0) + stage.duration_ms / count
    return times


def check_stage_durations(application: SeedApplication) -> SeedApplication:
    """The accelerated application; refuses one with a stage that did not end."""
    for stage in application.stages:
        if stage.duration_ms is None:
            raise InputError(
                "stage without a duration: the seed method cannot add it up",
                where=application.where,
                found=stage.nodes[:200],
                do="record the run again, to its end",
            )
    return application


def _sum_gpu_times(application: SeedApplication) -> Times:
    times: Times = {}
    for stage in check_stage_durations(application).stages:
        operators = (stage.nodes or "nan").split(",")
        for operator in operators:
            name = operator.split("(")[0]
            times[name] = times.get(name, 0.0) + (stage.duration_ms or 0) / len(operators)
    return times


def _sum_times(each: Sequence[Mapping[str, float]]) -> tuple[Times, float]:
    """Add up times by operator over applications: the sum of each operator, and of all."""
    totals: Times = {}
    total = 0.0
    for times in each:
        for name, time in times.items():
            totals[name] = totals[name] + time if name in totals else time
            total += time
    return totals, total


def read_factor_file(path: str | Path, *, unused: list[str] | None = None) -> dict[str, float]:
    """Which factor has each operator?

    `path`: CSV file with the columns `CPUOperator` and `Score`; others are not used.

    Returns: Operator to factor (accelerated is that many times faster), in the file's order; rows of expressions and
    of machine learning functions are kept.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "factors.csv"
    >>> _ = file.write_text("CPUOperator,Score\\nFilterExec,2.5\\nAbs,4\\n")
    >>> read_factor_file(file)
    {'FilterExec': 2.5, 'Abs': 4.0}
    """
    factors: dict[str, float] = {}
    wrong: list[str] = []
    header, *rows = _read_rows(Path(path))
    if unused is not None:
        unused += [name for name in header if name not in HEADER]
    first, second = map(header.index, HEADER)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            wrong.append(f"line {number}: {len(row)} cells, not {len(header)}")
        elif problem := _find_row_problem(row[first].strip(), row[second].strip(), factors):
            wrong.append(f"line {number}: {problem}")
        else:
            factors[row[first].strip()] = float(row[second])
    if wrong:
        more = [f"and {len(wrong) - 10} more"] if len(wrong) > 10 else []
        raise InputError(
            "factor file cannot be used",
            where=path,
            found="; ".join(wrong[:10] + more),
            allowed="known operators, each once, with finite factors above 0",
            do="correct these rows",
        )
    if not factors:
        raise InputError("factor file has no rows", where=path, do="give one row per operator: FilterExec,2.5")
    return factors


def _read_rows(path: Path) -> list[list[str]]:
    """Read a factor file: its header, checked for the needed columns, and its rows."""
    if not path.is_file():
        do = "workbench speedup generate --method seed --cpu LOG --gpu LOG --output FILE.csv makes one"
        raise InputError("no such factor file", where=path, do=do)
    if path.stat().st_size > MAX_BYTES:
        raise InputError("factor file is too large", where=path, found=f"{path.stat().st_size:,} bytes")
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("factor file cannot be read", where=path, found=str(error)[:200]) from error
    header = [cell.strip() for cell in rows[0]] if rows else []
    if any(header.count(name) != 1 for name in HEADER):
        raise InputError(
            "factor file has another header",
            where=path,
            found=",".join(header)[:200] or "an empty file",
            allowed=",".join(HEADER),
        )
    return [header, *(row for row in rows[1:] if row)]


def _find_row_problem(operator: str, text: str, before: Mapping[str, float]) -> str | None:
    """Fault in a row of a factor file, null if none; `before` are the factors of the rows above."""
    if operator not in list_known_operators():
        nearest = difflib.get_close_matches(operator, list_known_operators(), n=1)
        hint = f", nearest is {nearest[0]}" if nearest else ""
        return f"unknown operator {operator[:80]!r}{hint}"
    if operator in before:
        return f"{operator} comes twice"
    try:
        factor = float(text)
    except ValueError:
        return f"{operator} has {text[:40]!r}, which is no number"
    if not math.isfinite(factor) or factor <= 0:
        return f"{operator} has {text}, which is no finite number above 0"
    return None


def write_factor_file(path: str | Path, factors: Mapping[str, float]) -> list[str]:
    """Write factors so that the qualification tool accepts them; give back a warning for each that had to change.

    A scan's factor of exactly 1.0 is written as 1.01: at 1.0 the tool takes scans as unsupported.

    >>> import tempfile
    >>> write_factor_file(Path(tempfile.mkdtemp()) / "f.csv", {"BatchScanExec": 1.0})
    ['BatchScanExec is written as 1.01: at exactly 1.0 the qualification tool takes scans as unsupported']
    """
    lines, warnings = [",".join(HEADER)], []
    for operator, factor in factors.items():
        if not math.isfinite(factor) or factor <= 0:
            raise InputError("factor is no finite number above 0", where=operator, found=factor)
        written = factor
        if operator in SCANS and factor == 1.0:
            written = MIN_SCAN_FACTOR
            warnings.append(
                f"{operator} is written as {MIN_SCAN_FACTOR}: at exactly 1.0 the qualification tool takes scans as "
                "unsupported"
            )
        lines.append(f"{operator},{float(written)!r}")
    write_text(path, "\n".join(lines) + "\n")
    return warnings
