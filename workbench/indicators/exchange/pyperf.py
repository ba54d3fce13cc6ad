"""pyperf's JSON: a session as benchmark suites, and suites as a session.

A benchmark is one metric of one arm; each of its runs is one run, with one value. pyperf knows seconds, bytes and whole
numbers: times and sizes are converted, rates and other units are left out, with a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError
from workbench.files import replacing
from workbench.indicators import archive
from workbench.indicators.archive import PlannedMetric, Result, Session

if TYPE_CHECKING:
    import pyperf

# pyperf's unit, with what a value is multiplied and divided by: 1e-3 is no number of a computer, 1000 is.
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


@dataclass(frozen=True)
class Exported:
    """What an export wrote: files, how many benchmarks and runs are in them, and what was left out."""

    paths: list[Path]
    benchmarks: int
    runs: int
    notes: list[str]


def export(folder: Path, out: Path) -> Exported:
    """Write a session as pyperf suites.

    Parameters
    ----------
    folder
        The session.
    out
        A path that ends in .json: one suite of all arms, each benchmark called "METRIC, ARM". Else a folder: one suite
        an arm, its benchmarks called by their metric, so that `pyperf compare_to` can hold two of them together.

    Raises
    ------
    InputError
        No session there, or none of its metrics has a unit that pyperf knows.
    ConfigError
        The place cannot be written.

    Does not show: rounds. `pyperf compare_to` does not pair runs, and so takes a drift of the machine for a
    difference; verdicts are in `effects`.
    """
    import pyperf

    session = archive.read_session(folder)
    notes: list[str] = []
    found = _benchmarks(session, archive.results(folder, session), single=out.suffix == ".json", notes=notes)
    if not found:
        raise InputError("nothing that pyperf has a unit for", where=folder, found=notes or "no run with values")
    if out.suffix == ".json":
        suites = {out: [benchmark for benchmarks in found.values() for benchmark in benchmarks]}
    else:
        names = _file_names(found)
        suites = {out / f"{names[arm]}.json": benchmarks for arm, benchmarks in found.items()}
    for path, benchmarks in suites.items():
        _dump(pyperf.BenchmarkSuite(benchmarks), path)
    everything = [benchmark for benchmarks in found.values() for benchmark in benchmarks]
    return Exported(list(suites), len(everything), sum(one.get_nrun() for one in everything), notes)


def _dump(suite: pyperf.BenchmarkSuite, path: Path) -> None:
    try:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            suite.dump(file, compact=False)
    except OSError as error:
        raise ConfigError("cannot be written", where=path, found=error.strerror, do="choose another --out") from None


def _benchmarks(
    session: Session, found: Iterable[tuple[str, int, Result]], *, single: bool, notes: list[str]
) -> dict[str, list[pyperf.Benchmark]]:
    """The benchmarks of each arm, in the session's order."""
    import pyperf

    cases = {case.label: case for case in session.cases}
    runs: dict[tuple[str, str], list[pyperf.Run]] = {}
    for _, _, result in found:
        for metric in cases[result.workbench.case].metrics:
            run = _run(session, result, metric, single, notes)
            if run is not None:
                runs.setdefault((result.workbench.arm, metric.name), []).append(run)
    made: dict[str, list[pyperf.Benchmark]] = {}
    for (arm, _), listed in runs.items():
        made.setdefault(arm, []).append(pyperf.Benchmark(listed))
    return made


def _run(session: Session, result: Result, metric: PlannedMetric, single: bool, notes: list[str]) -> pyperf.Run | None:
    """One run with one value; null where there is none, or none that pyperf can hold."""
    import pyperf

    value = result.value(metric.field)
    if value is None:
        return None
    unit, factor, divisor = _UNITS.get(metric.unit, ("", 1, 1))
    scaled = value * factor / divisor
    left_out = None
    if not unit:
        left_out = f"{metric.name}: pyperf has no unit for {metric.unit or 'a number without one'}"
    elif scaled <= 0 or (unit == "byte" and round(scaled) < 1):
        left_out = f"{metric.name}: pyperf takes no value that is not above 0"
    if left_out is not None:
        if left_out not in notes:
            notes.append(left_out)
        return None
    metadata = _metadata(session, result, metric, unit, single)
    return pyperf.Run([round(scaled) if unit == "byte" else scaled], metadata=metadata, collect_metadata=False)


def _metadata(session: Session, result: Result, metric: PlannedMetric, unit: str, single: bool) -> dict[str, Any]:
    told, arm = result.workbench, session.arm(result.workbench.arm)
    load = told.before.load_1m
    metadata: dict[str, Any] = {
        "name": f"{metric.name}, {arm.name}" if single else metric.name,
        "unit": unit,
        "loops": 1,
        "cpu_model_name": session.hardware.cpu_model,
        "cpu_count": session.hardware.cores,
        "python_version": arm.python,
        "load_avg_1min": load if load is None or load >= 0 else None,
        "date": result.start_datetime.replace("T", " "),
        "duration": told.duration_s or None,
        "workbench_session": session.session_id,
        "workbench_arm": arm.name,
        "workbench_stack": arm.stack,
        "workbench_round": told.round,
        "workbench_indicator": f"{told.indicator} {told.indicator_version}",
        "workbench_packages": ", ".join(f"{name} {version}" for name, version in sorted(arm.packages.items())),
    }
    # pyperf refuses empty texts and line breaks.
    texts = {name: " ".join(value.split()) if isinstance(value, str) else value for name, value in metadata.items()}
    return {name: value for name, value in texts.items() if value not in (None, "")}


def _file_names(arms: Iterable[str]) -> dict[str, str]:
    """A file's name for each arm: letters, digits, dots and dashes, each once."""
    names: dict[str, str] = {}
    for arm in arms:
        name = "".join(sign if sign.isalnum() or sign in ".-_" else "-" for sign in arm)[:100].strip(".-") or "arm"
        taken = set(names.values())
        names[arm] = name if name not in taken else f"{name}-{len(taken)}"
    return names
