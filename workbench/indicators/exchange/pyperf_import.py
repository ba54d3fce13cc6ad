"""pyperf's JSON as a session: one file a stack, one case a benchmark, one run a process of it."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.files import read_bounded
from workbench.indicators.archive import Arm, Hardware
from workbench.indicators.contract import Indicator, parameter, result
from workbench.indicators.exchange import imported, machines, reading
from workbench.indicators.exchange.imported import Imported, Run, Thing
from workbench.indicators.times import moment

if TYPE_CHECKING:
    import pyperf

MOST_BYTES = 256 << 20
MOST_RUNS = 100_000
MOST_VALUES = 10_000


class PyperfSeconds(Indicator):
    """A benchmark of pyperf's, in seconds for one loop: the mean over the values of a process."""

    benchmark: str = parameter()
    elapsed_s: float = result(unit="s", better="lower")


class PyperfBytes(Indicator):
    """A benchmark of pyperf's that measures memory: the mean over the values of a process."""

    benchmark: str = parameter()
    size_bytes: float = result(unit="bytes", better="lower")


class PyperfNumber(Indicator):
    """A benchmark of pyperf's that counts. It does not tell whether more is better: no stack is compared by it."""

    benchmark: str = parameter()
    count: float = result(unit="")


_INDICATORS: dict[str, tuple[type[Indicator], str]] = {
    "second": (PyperfSeconds, "elapsed_s"),
    "byte": (PyperfBytes, "size_bytes"),
    "integer": (PyperfNumber, "count"),
}


def import_suites(
    paths: Iterable[Path],
    out: Path,
    *,
    baseline: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Imported]:
    """Make sessions (one for each machine) of pyperf suites: each file is a stack, named as the file is.

    Raises
    ------
    InputError
        A file is no suite of pyperf, or too large; nothing of it has a value.
    """
    files = [file for path in paths for file in _files(Path(path))]
    runs: list[Run] = []
    arms: dict[str, Arm] = {}
    for done, path in enumerate(files):
        suite = _load(path)
        runs += _runs(suite, _arm(path, suite, arms))
        if len(runs) > MOST_RUNS:
            raise InputError("too many runs", where=path, found=len(runs), allowed=f"at most {MOST_RUNS:,}")
        if progress is not None:
            progress(done + 1, len(files))
    if not runs:
        raise InputError("no benchmark with a value", where=", ".join(map(str, files))[:500])
    return imported.write(runs, out, baseline=baseline)


def is_suite(path: Path) -> bool:
    """Does a file look like one of pyperf's?"""
    if not path.is_file() or path.suffix not in (".json", ".gz"):
        return False
    if path.name.endswith(".json.gz"):
        return True
    try:
        found = json.loads(read_bounded(path, MOST_BYTES))
    except (InputError, OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("benchmarks"), list)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if is_suite(file)]
        if outside := [file for file in found if not reading.inside(file, path.resolve())]:
            raise InputError(reading.OUTSIDE, where=outside[0], do="name the file itself")
        if not found:
            raise InputError("no suites of pyperf there", where=path, allowed="*.json that pyperf wrote with -o")
        return found
    return [path]


def _load(path: Path) -> pyperf.BenchmarkSuite:
    import pyperf

    try:
        return pyperf.BenchmarkSuite.loads(_text(path))
    except OSError as error:  # a file that is not packed at all has no strerror
        raise InputError("cannot be read", where=path, found=error.strerror or str(error)) from None
    # pyperf holds a document to nothing before it reads it: whatever is odd in it comes out as one of these.
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, EOFError, zlib.error) as error:
        raise InputError(
            "not a suite of pyperf", where=path, found=str(error)[:200], allowed="JSON that pyperf wrote with -o FILE"
        ) from None


def _text(path: Path) -> str:
    """A file's text; of a compressed one no more than a plain one may have."""
    raw = read_bounded(path, MOST_BYTES)
    if path.suffix != ".gz":
        return raw.decode("utf-8")
    import gzip
    import io

    with gzip.open(io.BytesIO(raw)) as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise InputError("too large for a suite", where=path, allowed=f"at most {MOST_BYTES >> 20} MiB unpacked")
    return raw.decode("utf-8")


def _arm(path: Path, suite: pyperf.BenchmarkSuite, arms: dict[str, Arm]) -> Arm:
    """The stack of a file; what pyperf tells of it is its Python."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")[:80] or "stack"
    name = stem
    while name in arms:
        name = f"{stem}-{len(arms)}"
    told = suite.get_metadata()
    python = " ".join(str(told.get(key, "")) for key in ("python_implementation", "python_version")).strip()
    arm = Arm(
        name=name,
        stack=name,
        stack_key=imported_key(name, python),
        python=str(told.get("python_version", ""))[:20],
        notes={"source": "pyperf", "stack": "not told: pyperf keeps no lock", "python": python[:200]},
    )
    arms[name] = arm
    return arm


def imported_key(name: str, python: str) -> str:
    """A key for a stack that is only known by its name."""
    import hashlib

    return hashlib.sha256(f"pyperf\0{name}\0{python}".encode()).hexdigest()


def _runs(suite: pyperf.BenchmarkSuite, arm: Arm) -> list[Run]:
    made = []
    for benchmark in suite:
        unit = benchmark.get_unit()
        indicator, field = _INDICATORS.get(unit, _INDICATORS["second"])
        thing = Thing(
            indicator.__name__,
            indicator.version(),
            indicator,
            {"benchmark": str(benchmark.get_name())[:200]},
            label=str(benchmark.get_name() or "benchmark")[:200],
        )
        for one in benchmark.get_runs():
            values = [float(value) for value in one.values][:MOST_VALUES]
            if values:  # a run without values only found out how many loops to make
                made.append(_run(arm, thing, field, values, one.get_metadata()))
    return made


def _run(arm: Arm, thing: Thing, field: str, values: list[float], metadata: Mapping[str, Any]) -> Run:
    told = {name: getattr(one, "value", one) for name, one in metadata.items()}
    mean = math.fsum(values) / len(values)
    finite = all(map(math.isfinite, values))
    document = {
        "name": thing.name,
        "@parameters": dict(thing.parameters),
        "@result": {field: mean},
        "@samples": {field: values},
    }
    start = moment(str(told.get("date", "")))
    result = {
        "stdout": document if finite else "",
        "exit_code": 0,
        "start_datetime": start.isoformat() if start else "",
        "runtime_environment": {"python_version": str(told.get("python_version", ""))[:60]},
    }
    return Run(
        arm=arm,
        thing=thing,
        hardware=_hardware(told),
        status="ok" if finite else "not finite",
        reason=None if finite else "a value that is not finite",
        document=result,
        duration_s=_duration_s(told.get("duration")),
    )


def _duration_s(told: Any) -> float | None:
    """A process's duration, where what was told can be one."""
    known = isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 2**63
    return float(told) if known else None


def _hardware(told: Mapping[str, Any]) -> Hardware:
    count = told.get("cpu_count")
    return machines.made(
        model=str(told.get("cpu_model_name") or "unknown"), cores=count if isinstance(count, int) else None
    )
