"""Formats of other tools whose measurements can be imported: one entry is a format, its options and its importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError
from workbench.indicators.store.benchmark_import import ImportOptions, import_files
from workbench.indicators.store.result_files import detect_format
from workbench.indicators.store.session_import import ImportReport

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportFormat:
    """A format: the tool that writes it, the options that fit, and the function that imports its files."""

    tool: str
    takes: frozenset[str]
    import_paths: Callable[[list[Path], Path, ImportOptions, Progress], ImportReport]


def _import_amun(paths: list[Path], out: Path, options: ImportOptions, progress: Progress) -> ImportReport:
    from workbench.indicators.compat_thoth import amun_import
    from workbench.indicators.shipped.indicator_classes import load_indicator

    classes = [load_indicator(name) for name in options.indicators]
    return amun_import.import_documents(paths, out, indicators=classes, baseline=options.baseline, progress=progress)


def _import_pyperf(paths: list[Path], out: Path, options: ImportOptions, progress: Progress) -> ImportReport:
    from workbench.indicators.store.pyperf_suites import import_suites

    if options.baseline is not None and options.stack:
        raise ConfigError("each session has one stack", where="--baseline", found=options.baseline[:80])
    return import_suites(
        paths,
        out,
        baseline=options.baseline,
        stack=options.stack,
        machine=options.machine,
        revision=options.revision,
        measured_at=options.measured_at,
        progress=progress,
    )


def _import_pytest(paths: list[Path], out: Path, options: ImportOptions, progress: Progress) -> ImportReport:
    from workbench.indicators.store.pytest_benchmarks import import_benchmarks

    return import_benchmarks(
        paths,
        out,
        stack=options.stack,
        machine=options.machine,
        revision=options.revision,
        measured_at=options.measured_at,
        progress=progress,
    )


def _import_asv(paths: list[Path], out: Path, options: ImportOptions, progress: Progress) -> ImportReport:
    from workbench.indicators.store.asv_results import import_results

    return import_results(paths, out, machine=options.machine, progress=progress)


def _import_simple(form: str, paths: list[Path], out: Path, options: ImportOptions, progress: Progress) -> ImportReport:
    from workbench.indicators.store import (
        codspeed_results,
        criterion_estimates,
        csv_histories,
        go_benchmarks,
        google_benchmarks,
        hyperfine_results,
        jmh_results,
    )

    readers = {
        "hyperfine": (hyperfine_results.read_hyperfine, hyperfine_results.NOUN),
        "google-benchmark": (google_benchmarks.read_google, google_benchmarks.NOUN),
        "criterion": (criterion_estimates.read_criterion, criterion_estimates.NOUN),
        "jmh": (jmh_results.read_jmh, jmh_results.NOUN),
        "go-bench": (go_benchmarks.read_go, go_benchmarks.NOUN),
        "codspeed": (codspeed_results.read_codspeed, codspeed_results.NOUN),
        "csv": (csv_histories.read_csv, csv_histories.NOUN),
    }
    read, noun = readers[form]
    places: dict[str, Any] = {}
    if form == "criterion":
        places = {
            "list_files": criterion_estimates.list_criterion_trees,
            "open_file": criterion_estimates.open_criterion,
        }
    return import_files(paths, out, read, form=form, noun=noun, options=options, **places, progress=progress)


_ALL = frozenset({"stack", "machine", "revision", "time"})
FORMATS: Mapping[str, ImportFormat] = {
    "amun": ImportFormat("Amun", frozenset({"indicator", "baseline"}), _import_amun),
    "pyperf": ImportFormat("pyperf", _ALL | {"baseline"}, _import_pyperf),
    "asv": ImportFormat("asv", frozenset({"machine"}), _import_asv),
    "pytest-benchmark": ImportFormat("pytest-benchmark", frozenset({"stack", "machine", "revision"}), _import_pytest),
    **{
        form: ImportFormat(tool, takes, partial(_import_simple, form))
        for form, tool, takes in (
            ("hyperfine", "hyperfine", _ALL),
            ("google-benchmark", "Google Benchmark", _ALL),
            ("criterion", "criterion", _ALL),
            ("jmh", "JMH", _ALL),
            ("go-bench", "go test -bench", _ALL),
            ("codspeed", "CodSpeed", _ALL),
            ("csv", "a CSV", _ALL - {"time"}),
        )
    },
}
"""Formats by name."""


def find_import_format(paths: list[Path], form: str | None) -> str:
    """The format of all paths: the given one, else by their content; paths of several are refused."""
    if form is not None and form not in FORMATS:
        raise ConfigError("no such format", where="--format", found=form, allowed=list(FORMATS))
    if form is not None:
        return form
    found = {path: detect_format(path, FORMATS) for path in paths}
    if len(set(found.values())) > 1:
        each = [f"{path.name}: {name}" for path, name in list(found.items())[:5]]
        raise ConfigError("files of several tools", found=each, do="import the files of each tool separately")
    return next(iter(found.values()))


def check_options(form: str, given: Mapping[str, object]) -> None:
    """Refuse an option that says nothing of files in this format; null or empty ones are not given."""
    takes = FORMATS[form].takes
    for name, value in given.items():
        if value and name not in takes:
            allowed = [f"--{one}" for one in sorted(takes)]
            where = f"--{name}"
            found = value if isinstance(value, list) else str(value)[:80]
            raise ConfigError(f"{FORMATS[form].tool} tells this itself", where=where, found=found, allowed=allowed)
