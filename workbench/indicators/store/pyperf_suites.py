"""Export sessions as pyperf suites, and import pyperf suites as sessions."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.core.files import replace_atomically
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store import archive, session_import
from workbench.indicators.store.archive import Arm, PlannedMetric, Result, Session, parse_time
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import ImportedCase, ImportedRun

if TYPE_CHECKING:
    import pyperf

# pyperf's unit with multiplier and divisor; dividing by 1000 is exact, multiplying by 1e-3 is not.
_UNITS: dict[str, tuple[str, int, int]] = {
    "s": ("second", 1, 1),
    "ms": ("second", 1, 10**3),
    "us": ("second", 1, 10**6),
    "µs": ("second", 1, 10**6),
    "ns": ("second", 1, 10**9),
    "bytes": ("byte", 1, 1),
    "B": ("byte", 1, 1),
    "KiB": ("byte", 2**10, 1),
    "MiB": ("byte", 2**20, 1),
    "GiB": ("byte", 2**30, 1),
}
NOUN = "pyperf suite"
MAX_VALUES = 10_000


@dataclass(frozen=True)
class ExportReport:
    """Result of an export: files, numbers of benchmarks and runs, and omissions."""

    paths: list[Path]
    benchmarks: int
    runs: int
    notes: list[str]


def export_session(folder: Path, out: Path) -> ExportReport:
    """Write a session as pyperf suites.

    `out`: A path ending in .json: one suite of all arms, with benchmarks named "METRIC, ARM". Otherwise a folder with
    one suite per arm and benchmarks named by metric, for `pyperf compare_to`.

    Rounds are not exported: `pyperf compare_to` does not pair runs, so it shows a drift of the machine as a difference.
    For verdicts see `effects`.
    """
    import pyperf

    session = archive.read_session(folder)
    notes: list[str] = []
    # Benchmarks of each arm, in the order of the session.
    results = archive.read_results(folder, session)
    single = out.suffix == ".json"

    cases = {case.label: case for case in session.cases}
    runs: dict[tuple[str, str], list[pyperf.Run]] = {}
    for _, _, run_result in results:
        for metric in cases[run_result.workbench.case].metrics:
            run = _build_pyperf_run(session, run_result, metric, single, notes)
            if run is not None:
                runs.setdefault((run_result.workbench.arm, metric.name), []).append(run)
    by_arm: dict[str, list[pyperf.Benchmark]] = {}
    for (arm, _), listed in runs.items():
        by_arm.setdefault(arm, []).append(pyperf.Benchmark(listed))
    if not by_arm:
        raise InputError("no metric with a unit supported by pyperf", where=folder, found=notes or "no run with values")
    if out.suffix == ".json":
        suites = {out: [benchmark for benchmarks in by_arm.values() for benchmark in benchmarks]}
    else:
        names = dict[str, str]()
        for arm in by_arm:
            # Letters, digits, dots and dashes.
            name = "".join(sign if sign.isalnum() or sign in ".-_" else "-" for sign in arm)[:100].strip(".-") or "arm"
            names[arm] = find_free_name(name, names.values())
        suites = {out / f"{names[arm]}.json": benchmarks for arm, benchmarks in by_arm.items()}
    for path, benchmarks in suites.items():
        try:
            with replace_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                pyperf.BenchmarkSuite(benchmarks).dump(file, compact=False)
        except OSError as error:
            do = "choose another --out"
            raise ConfigError("cannot be written", where=path, found=error.strerror, do=do) from None
    everything = [benchmark for benchmarks in by_arm.values() for benchmark in benchmarks]
    return ExportReport(list(suites), len(everything), sum(benchmark.get_nrun() for benchmark in everything), notes)


def _build_pyperf_run(
    session: Session, result: Result, metric: PlannedMetric, single: bool, notes: list[str]
) -> pyperf.Run | None:
    """Run with one value; null if there is no value or pyperf does not support it."""
    import pyperf

    value = result.metric_value(metric.field)
    if value is None:
        return None
    unit, factor, divisor = _UNITS.get(metric.unit, ("", 1, 1))
    scaled = value * factor / divisor
    left_out = None
    if not unit:
        left_out = f"{metric.name}: pyperf has no unit for {metric.unit or 'a number without one'}"
    elif scaled <= 0 or (unit == "byte" and round(scaled) < 1):
        left_out = f"{metric.name}: pyperf only supports values above 0"
    if left_out is not None:
        if left_out not in notes:
            notes.append(left_out)
        return None
    # Metadata of a run for pyperf; `single` says whether names must tell arms apart.
    details, arm = result.workbench, session.get_arm(result.workbench.arm)
    load = details.before.load_1m
    metadata: dict[str, Any] = {
        "name": f"{metric.name}, {arm.name}" if single else metric.name,
        "unit": unit,
        "loops": 1,
        "cpu_model_name": session.hardware.cpu_model,
        "cpu_count": session.hardware.cores,
        "python_version": arm.python,
        "load_avg_1min": load if load is None or load >= 0 else None,
        "date": result.start_datetime.replace("T", " "),
        "duration": details.duration_s or None,
        "workbench_session": session.session_id,
        "workbench_arm": arm.name,
        "workbench_stack": arm.stack,
        "workbench_round": details.round,
        "workbench_indicator": f"{details.indicator} {details.indicator_version}",
        "workbench_packages": ", ".join(f"{name} {version}" for name, version in sorted(arm.packages.items())),
    }
    # pyperf rejects empty strings and line breaks.
    texts = {name: " ".join(value.split()) if isinstance(value, str) else value for name, value in metadata.items()}
    metadata = {name: value for name, value in texts.items() if value not in (None, "")}
    return pyperf.Run([round(scaled) if unit == "byte" else scaled], metadata=metadata, collect_metadata=False)


class PyperfSeconds(Indicator):
    """pyperf benchmark in seconds per loop: mean over the values of a process."""

    benchmark: str = parameter()
    elapsed_s: float = result(unit="s", better="lower")


class PyperfBytes(Indicator):
    """pyperf benchmark of memory: mean over the values of a process."""

    benchmark: str = parameter()
    size_bytes: float = result(unit="bytes", better="lower")


class PyperfNumber(Indicator):
    """pyperf benchmark of a number without unit. Its direction is unknown, so stacks are not compared by it."""

    benchmark: str = parameter()
    count: float = result(unit="")


_INDICATORS: dict[str, tuple[type[Indicator], str]] = {
    "second": (PyperfSeconds, "elapsed_s"),
    "byte": (PyperfBytes, "size_bytes"),
    "integer": (PyperfNumber, "count"),
}


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """Each file is a stack of its name, and all are one session; with --stack, each is a session of that."""
    import pyperf

    for document in file.read_documents(NOUN, context.notices, do="python -m pyperf … -o FILE"):
        try:
            suite = pyperf.BenchmarkSuite.loads(json.dumps(document))
        # pyperf does not validate documents, so invalid ones raise any of these.
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            allowed = "JSON written by pyperf with -o FILE"
            raise InputError(f"not a {NOUN}", where=file.path, found=str(error)[:200], allowed=allowed) from None
        yield ImportedSet(_convert_runs(suite, _build_arm(file.path, suite, context), context.options.machine))


def _build_arm(path: Path, suite: pyperf.BenchmarkSuite, context: ImportContext) -> Arm:
    """Arm for a file; pyperf records only the Python version of a stack."""
    stack = context.options.stack
    name = stack or path.name.removesuffix(".gz").removesuffix(".json")[:80] or "stack"
    if not stack:
        name = find_free_name(name, context.kept)
        context.kept[name] = path
    metadata = suite.get_metadata()
    python = " ".join(str(metadata.get(key, "")) for key in ("python_implementation", "python_version")).strip()
    return Arm(
        name=name,
        stack=name,
        stack_key=hashlib.sha256(f"pyperf\0{name}\0{python}".encode()).hexdigest(),
        python=str(metadata.get("python_version", ""))[:20],
        notes={"source": "pyperf", "stack": "unknown: pyperf keeps no lock", "python": python[:200]},
    )


def find_free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken, and so may be names with numbers.

    >>> find_free_name("run", ["run", "run-2", "run-3"])
    'run-1'
    """
    numbered = (f"{name}-{number}" for number in itertools.count(1))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def _convert_runs(suite: pyperf.BenchmarkSuite, arm: Arm, machine: str) -> list[ImportedRun]:
    """The runs of all benchmarks of a suite; each benchmark is a case."""
    runs = []
    for benchmark in suite:
        unit = benchmark.get_unit()
        indicator, field = _INDICATORS.get(unit, _INDICATORS["second"])
        thing = ImportedCase(
            indicator.__name__,
            indicator.version(),
            indicator,
            {"benchmark": session_import.shorten_text(str(benchmark.get_name()))},
            label=session_import.shorten_text(str(benchmark.get_name() or "benchmark")),
        )
        for run in benchmark.get_runs():
            values = [float(value) for value in run.values][:MAX_VALUES]
            if values:  # a run without values only calibrated the number of loops
                runs.append(_convert_run(arm, thing, field, values, run.get_metadata(), machine))
    return runs


def _convert_run(
    arm: Arm, thing: ImportedCase, field: str, values: list[float], metadata: Mapping[str, Any], machine: str
) -> ImportedRun:
    """One run: its value is the mean of its samples, in the benchmark's unit."""
    facts = {name: getattr(entry, "value", entry) for name, entry in metadata.items()}
    mean = math.fsum(values) / len(values)
    finite = all(map(math.isfinite, values))
    document = {
        "name": thing.name,
        "@parameters": dict(thing.parameters),
        "@result": {field: mean},
        "@samples": {field: values},
    }
    start = parse_time(str(facts.get("date", "")))
    cores, duration_s = facts.get("cpu_count"), facts.get("duration")
    if not isinstance(duration_s, int | float) or isinstance(duration_s, bool) or not 0 <= duration_s < 2**63:
        duration_s = None
    result = {
        "stdout": document if finite else "",
        "exit_code": 0,
        "start_datetime": start.isoformat() if start else "",
        "runtime_environment": {"python_version": str(facts.get("python_version", ""))[:60]},
    }
    return ImportedRun(
        arm=arm,
        thing=thing,
        hardware=session_import.build_hardware(
            model=str(facts.get("cpu_model_name") or "unknown"),
            cores=cores if isinstance(cores, int) else None,
            machine=str(facts.get("hostname") or ""),
            joined=machine,
        ),
        status="ok" if finite else "not finite",
        reason=None if finite else "a value that is not finite",
        document=result,
        duration_s=None if duration_s is None else float(duration_s),
    )


FORMAT = ImportFormat(
    name="pyperf",
    tool="pyperf",
    noun=NOUN,
    marks=(('"benchmarks"', '"runs"', '"(metadata|version)"'),),
    takes=frozenset({"stack", "machine", "revision", "time", "baseline"}),
    read=_read_file,
    is_joined=True,
)
