"""The frame of importers: files of a tool are read one after another, and their figures become sessions."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import create_model

from workbench.core.errors import ConfigError, InputError
from workbench.core.units import find_unit_factor
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import Better, Indicator, parameter, result
from workbench.indicators.store import session_import
from workbench.indicators.store.archive import COMMIT_TIME, Arm, parse_time
from workbench.indicators.store.result_files import (
    ResultFile,
    add_notice,
    find_format,
    list_result_files,
    read_result_file,
    refuse_foreign,
)
from workbench.indicators.store.session_import import ImportedCase, ImportedRun, ImportReport, shorten_text

MAX_RUNS = 100_000
MAX_TOTAL_RUNS = 1_000_000
MAX_TEXT = 200
NO_TIME = "no time of measurement in the file: the time of its last change was taken; --time gives another"
NO_MACHINE = "no machine in the file: all such files are taken as of one; --machine gives its name"
SAME_TIME = "files without a time that were changed at the same moment: their order is unknown; give --time for each"
TWICE = "a benchmark that is listed several times: taken as further runs of it"
ZERO = "0 in every run: no ratio, so not in a history"
_COMMIT = re.compile(r"[0-9A-Za-z._/-]{1,200}")
_BASES = ("s", "bytes")


@dataclass(frozen=True)
class ImportOptions:
    """What the user says of all files where they do not: stack, machine, commit, time (ISO format, UTC)."""

    stack: str | None = None
    machine: str = ""
    revision: str | None = None
    measured_at: str | None = None
    baseline: str | None = None
    indicators: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedSet:
    """Runs of one measurement, which become a session per machine."""

    runs: list[ImportedRun]
    revision: str | None = None
    created_at: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredRun:
    """A run of a benchmark: a value in the benchmark's unit, or why there is none."""

    value: float | None
    status: Status = "ok"
    reason: str | None = None
    exit_code: int | None = 0
    cpu: float | None = None


@dataclass
class MeasuredBenchmark:
    """A benchmark's runs in one unit; `better`: null where the tool does not tell the direction.

    `quantity`: What is measured where it is not the benchmark's main figure, such as B/op.
    """

    name: str
    unit: str
    better: Better | None
    runs: list[MeasuredRun] = field(default_factory=list)
    quantity: str = ""

    @property
    def label(self) -> str:
        """Name with the quantity, on one line, short and unique."""
        return shorten_text(self.name) + (f" [{shorten_text(self.quantity, 60)}]" if self.quantity else "")


@dataclass
class Measurement:
    """What a file tells of one measurement: its benchmarks, and what they were measured with.

    `stack`: Name of the stack where the user gives none. `model` is the processor, `machine` the host.
    `repeats`: Whether a name that is listed again is a further run of the benchmark, and not another one.
    """

    tool: str
    benchmarks: list[MeasuredBenchmark] = field(default_factory=list)
    stack: str = ""
    build: str = ""
    python: str = ""
    model: str = ""
    cores: int | None = None
    machine: str = ""
    revision: str | None = None
    commit_at: str = ""
    measured_at: str = ""
    notes: tuple[str, ...] = ()
    repeats: bool = True


Reader = Callable[[ResultFile, ImportOptions, dict[str, int]], Iterable[ImportedSet]]


def judge_value(value: Any, *, scale: float = 1.0, cpu: Any = None) -> MeasuredRun:
    """A run of a number that a file holds; what is no finite number is a run without a value."""
    if value is None or value == "":
        return MeasuredRun(None, "empty", "no value in the file", None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MeasuredRun(None, "invalid document", f"not a number: {str(value)[:60]}", None)
    try:
        number = float(value) * scale
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return MeasuredRun(None, "not finite", f"{str(value)[:60]} is not finite", None)
    if number < 0:
        return MeasuredRun(None, "invalid document", f"{number:.6g} is below 0", None)
    is_cpu = isinstance(cpu, int | float) and not isinstance(cpu, bool) and 0 < cpu * scale < math.inf
    return MeasuredRun(number, cpu=cpu * scale if is_cpu else None)


def import_files(
    paths: Iterable[Path],
    out: Path,
    read: Reader,
    *,
    form: str,
    noun: str,
    options: ImportOptions,
    list_files: Callable[[Path], list[Path]] | None = None,
    open_file: Callable[[Path], ResultFile] | None = None,
    write_together: Callable[[ImportReport], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import files of one format; each measurement in them is a session per machine.

    `read`: Reads the measurements of a file.
    `list_files`, `open_file`: The files of a folder (or a file as it is), and the text of one.
    `write_together`: Writes the runs of all files into the report, instead of a session for each.

    Files of a folder that cannot be read are problems of the report; a file that was named is refused.
    """
    named = [Path(path) for path in paths]
    list_files = list_files or functools.partial(list_result_files, noun=noun)
    open_file = open_file or functools.partial(read_result_file, noun=noun)
    files = list({file.resolve(): file for path in named for file in list_files(path)}.values())
    if options.measured_at is not None and len(files) > 1:
        do = "import each file separately"
        raise ConfigError("one time for several files", where="--time", found=f"{len(files)} files", do=do)
    report, total, guessed = ImportReport([], [], {}), 0, list[str]()
    for index, path in enumerate(files):
        try:
            file = open_file(path)
            _check_format(file, form, noun, is_named=path in named)
            sets = list(read(file, options, report.notices))
            if not any(one.runs for one in sets):
                raise InputError("no benchmark in this file", where=path)
        except InputError as error:
            if path in named:
                raise
            report.problems.append((path, " ".join(str(error).split())))
            continue
        total += sum(len(one.runs) for one in sets)
        if total > MAX_TOTAL_RUNS:
            do = "import the files from this one on with a further call"
            raise InputError("too many runs for one import", where=path, allowed=f"at most {MAX_TOTAL_RUNS:,}", do=do)
        _count_oddities(sets, report.notices)
        for place, one in enumerate(sets):
            if one.runs and write_together is None:
                created_at = choose_time(one, options) or _guess_time(file, place, report, guessed)
                revision = _choose_revision(one, options, path)
                written = session_import.write_sessions(
                    one.runs, out, revision=revision, created_at=created_at, notes=one.notes
                )
                report.sessions.extend(written)
        if progress is not None:
            progress(index + 1, len(files))
    if write_together is not None and total:
        write_together(report)
    if len(set(guessed)) < len(guessed):
        add_notice(report.notices, SAME_TIME, len(guessed))
    if not report.sessions:
        raise InputError(f"no {noun} that can be read", found=[reason for _, reason in report.problems[:5]])
    return report


def _check_format(file: ResultFile, form: str, noun: str, *, is_named: bool) -> None:
    """Refuse a file of another tool; a file that was named and fits no format is left to its reader."""
    found = find_format(file.text)
    if found == form:
        return
    if found is None:
        refuse_foreign(file, (noun,))
        if is_named:
            return
    what = "of no known format" if found is None else f"of {found}"
    raise InputError(f"not a {noun}: {what}", where=file.path)


def _count_oddities(sets: list[ImportedSet], notices: dict[str, int]) -> None:
    """Count the benchmarks that are 0 in every run."""
    for one in sets:
        values: dict[str, list[Any]] = {}
        for run in one.runs:
            if run.status == "ok":
                values.setdefault(run.thing.label, []).extend(run.document["stdout"]["@result"].values())
        zeros = sum(not any(numbers) for numbers in values.values())
        if zeros:
            add_notice(notices, ZERO, zeros)


def choose_time(one: ImportedSet, options: ImportOptions) -> str | None:
    """When a set was measured: as the file or its first run tells, else the user."""
    starts = [str(run.document.get("start_datetime") or "") for run in one.runs]
    told = one.created_at or min(filter(None, starts), default=None)
    if told is not None and options.measured_at is not None:
        raise ConfigError("the file already states its time", where="--time", found=options.measured_at)
    return told or options.measured_at


def _guess_time(file: ResultFile, place: int, report: ImportReport, guessed: list[str]) -> str:
    """When a file was changed; later documents in it are later."""
    add_notice(report.notices, NO_TIME)
    moment = parse_time(file.modified_at) or datetime(1970, 1, 1, tzinfo=UTC)
    guessed.append((moment + timedelta(microseconds=place)).isoformat())
    return guessed[-1]


def _choose_revision(one: ImportedSet, options: ImportOptions, path: Path) -> str | None:
    """The commit that the file tells, else the user's."""
    if one.revision is not None and options.revision not in (None, one.revision):
        found = f"{one.revision[:40]} in {path.name[:80]}"
        raise ConfigError("the file already states its commit", where="--revision", found=found)
    return one.revision if one.revision is not None else options.revision


def build_set(measured: Measurement, options: ImportOptions, notices: dict[str, int]) -> ImportedSet:
    """The runs of a measurement, with its stack and machine; what cannot be compared is counted in `notices`."""
    if not measured.model and not measured.machine and measured.cores is None and not options.machine:
        add_notice(notices, NO_MACHINE)
    hardware = session_import.build_hardware(
        model=shorten_text(measured.model) or session_import.UNKNOWN,
        cores=measured.cores,
        machine=measured.machine,
        joined=options.machine,
    )
    name = shorten_text(options.stack or measured.stack or measured.tool)
    name += f", {measured.build}" if measured.build else ""
    arm = Arm(
        name=name,
        stack=name,
        stack_key=hashlib.sha256(f"{measured.tool}\0{name}\0{measured.python}".encode()).hexdigest(),
        python=measured.python[:20],
        notes={"source": measured.tool, "stack": f"unknown: {measured.tool} keeps no lock"}
        | ({COMMIT_TIME: measured.commit_at} if measured.commit_at else {}),
    )
    runs: list[ImportedRun] = []
    for benchmark in _join_benchmarks(measured, notices):
        runs += _convert_benchmark(measured, benchmark, arm, hardware, notices)
        if len(runs) > MAX_RUNS:
            raise InputError("too many runs for a session", found=measured.tool, allowed=f"at most {MAX_RUNS:,}")
    return ImportedSet(runs, measured.revision, measured.measured_at or None, measured.notes)


def _join_benchmarks(measured: Measurement, notices: dict[str, int]) -> list[MeasuredBenchmark]:
    """Benchmarks by name and unit; one that is listed again has further runs, or a number in its name."""
    joined: dict[tuple[str, str], MeasuredBenchmark] = {}
    for one in measured.benchmarks:
        unit, factor = find_base_unit(one.unit)
        name, number = one.name, 1
        while not measured.repeats and (replace(one, name=name).label, unit) in joined:
            number += 1
            name = f"{shorten_text(one.name, MAX_TEXT - 10)} #{number}"
        if number > 1:
            add_notice(notices, "a name that is listed several times: further ones have a number, such as #2")
        renamed = replace(one, name=name, unit=unit, runs=[])
        first = joined.setdefault((renamed.label, unit), renamed)
        if first.better != one.better:
            raise InputError("one benchmark with two directions", found=one.label)
        if first.runs:
            add_notice(notices, TWICE)
        first.runs += [_scale_run(run, factor) for run in one.runs]
    return list(joined.values())


def _scale_run(run: MeasuredRun, factor: float) -> MeasuredRun:
    if factor == 1.0 or run.value is None:
        return run
    cpu = None if run.cpu is None else run.cpu * factor
    return MeasuredRun(run.value * factor, run.status, run.reason, run.exit_code, cpu)


def find_base_unit(unit: str) -> tuple[str, float]:
    """The unit in which figures are kept, so that a tool's choice of ms or s makes no other series, and the factor.

    >>> find_base_unit("ns/op"), find_base_unit("MiB"), find_base_unit("ops/ms"), find_base_unit("widgets")
    (('s', 1e-09), ('bytes', 1048576.0), ('ops/s', 1000.0), ('widgets', 1.0))
    """
    plain = unit.strip().removesuffix("/op") if unit.strip() not in ("B/op", "allocs/op") else unit.strip()
    for base in _BASES:
        if (factor := find_unit_factor(plain, base)) is not None:
            return base, factor
    above, slash, below = unit.strip().rpartition("/")
    if slash and (factor := find_unit_factor(f"{above}/{below}", f"{above}/s")) is not None:
        return f"{above}/s", factor
    return unit.strip(), 1.0


def _convert_benchmark(
    measured: Measurement, benchmark: MeasuredBenchmark, arm: Arm, hardware: Any, notices: dict[str, int]
) -> list[ImportedRun]:
    """The runs of a benchmark, whose unit is a base unit."""
    indicator, field_name = build_indicator(measured.tool, benchmark.unit, benchmark.better)
    label = benchmark.label
    case = ImportedCase(indicator.__name__, indicator.version(), indicator, {"benchmark": label}, label=label)
    if benchmark.better is None:
        text = f"{shorten_text(benchmark.unit, 60) or 'no unit'}: direction unknown, so kept but not compared"
        add_notice(notices, text)
    runs = []
    for run in benchmark.runs:
        stdout: Any = ""
        if run.status == "ok":
            stdout = {"name": case.name, "@parameters": {"benchmark": label}, "@result": {field_name: run.value}}
            stdout |= {"@cpu": {field_name: run.cpu}} if run.cpu is not None else {}
        document = {"stdout": stdout, "exit_code": run.exit_code, "start_datetime": measured.measured_at}
        runs.append(ImportedRun(arm, case, hardware, run.status, document, run.reason))
    return runs


@functools.lru_cache(maxsize=1000)
def build_indicator(tool: str, unit: str, better: Better | None) -> tuple[type[Indicator], str]:
    """Class for a tool's figures in a unit, with the name of its result.

    >>> build_indicator("hyperfine", "s", "lower")[0].__name__, build_indicator("go-bench", "B/op", "lower")[1]
    ('HyperfineSeconds', 'number')
    """
    names = {"s": ("Seconds", "elapsed_s"), "bytes": ("Bytes", "size_bytes")}
    ending, field_name = names.get(unit, (_name_unit(unit), "number"))
    head = "".join(word.capitalize() for word in re.split(r"[^A-Za-z0-9]+", tool))
    about = f"{tool}'s figure of a benchmark in {shorten_text(unit, 60) or 'a number without unit'}."
    fields: dict[str, Any] = {
        "benchmark": (str, parameter()),
        field_name: (float, result(unit=shorten_text(unit, 60), better=better)),
    }
    indicator = create_model(f"{head}{ending}", __base__=Indicator, __module__=__name__, __doc__=about, **fields)
    return indicator, field_name


def _name_unit(unit: str) -> str:
    """Name for a unit, as a part of a class's name."""
    words = re.split(r"[^A-Za-z0-9]+", unit.replace("/", " per ").replace("%", " percent "))
    name = "".join(word[:1].upper() + word[1:] for word in words)[:40]
    plain = re.fullmatch(r"[A-Za-z0-9/%]*", unit)
    return (name or "Number") + ("" if plain else hashlib.sha256(unit.encode()).hexdigest()[:6])


def check_revision(text: str | None) -> str | None:
    """A commit that the user names."""
    if text is not None and not _COMMIT.fullmatch(text):
        raise ConfigError("not a commit", where="--revision", found=text[:80], allowed="letters, digits, . _ / -")
    return text


def check_time(text: str | None) -> str | None:
    """A time that the user gives, in UTC."""
    moment = parse_time(text)
    if text is not None and moment is None:
        raise ConfigError("not a time", where="--time", found=text[:60], allowed="2026-01-31T12:00:00+00:00")
    return None if moment is None else moment.astimezone(UTC).isoformat()


def format_time(value: Any, notices: dict[str, int]) -> str:
    """A time of a file in UTC; empty for what is none. One without a zone is taken as UTC, which is told."""
    moment = parse_time(value)
    if moment is None:
        return ""
    if datetime.fromisoformat(value).tzinfo is None:
        add_notice(notices, "a time without a zone: taken as UTC")
    return moment.astimezone(UTC).isoformat()


def require_mapping(value: Any, what: str, where: object) -> Mapping[str, Any]:
    """A JSON object; anything else is refused."""
    if not isinstance(value, Mapping):
        raise InputError(f"not an object: {what}", where=where, found=type(value).__name__)
    return value


def require_rows(document: Any, key: str, noun: str, where: object) -> list[Mapping[str, Any]]:
    """The objects in a list of a document; anything else is refused."""
    rows = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"not a {noun}", where=where, found=f"no list {key} of objects")
    return list(itertools.islice(rows, MAX_RUNS))
