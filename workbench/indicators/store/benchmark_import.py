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
from workbench.indicators.store.archive import COMMIT_TIME, Arm, parse_time
from workbench.indicators.store.import_formats import FORMATS, ImportContext, ImportedSet, ImportFormat, ImportOptions
from workbench.indicators.store.session_import import (
    UNKNOWN,
    ImportedCase,
    ImportedRun,
    ImportedSession,
    ImportReport,
    build_hardware,
    shorten_text,
    write_sessions,
)

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
    `indicator`: Class and name of its result, where the class is not made from tool and unit.
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
    indicator: tuple[type[Indicator], str] | None = None


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


def import_results(
    form: str,
    paths: Iterable[Path],
    out: Path,
    options: ImportOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import files and folders of one format; each measurement in them is a session per machine.

    Files of a folder that cannot be read are problems of the report; a file that was named is refused.
    """
    importer, context = FORMATS[form], ImportContext(options or ImportOptions())
    options, noun, named = context.options, importer.noun, [Path(path) for path in paths]
    if importer.import_paths is not None:
        return importer.import_paths(named, out, options, progress)
    files = list({file.resolve(): file for path in named for file in importer.list_files(path, noun)}.values())
    if options.measured_at is not None and len(files) > 1:
        do = "import each file separately"
        raise ConfigError("one time for several files", where="--time", found=f"{len(files)} files", do=do)
    report, total, guessed = ImportReport([], [], context.notices), 0, list[str]()
    together: list[ImportedRun] | None = [] if importer.is_joined and not options.stack else None
    for index, path in enumerate(files):
        try:
            n_before = None if together is None else len(together)
            changed_at, sets = _read_sets(importer, path, context, is_named=path in named, n_before=n_before)
        except InputError as error:
            if path in named:
                raise
            report.problems.append((path, " ".join(str(error).split())))
            continue
        total += sum(len(one.runs) for one in sets)
        if total > MAX_TOTAL_RUNS:
            do = "import the files from this one on with a further call"
            raise InputError("too many runs for one import", where=path, allowed=f"at most {MAX_TOTAL_RUNS:,}", do=do)
        # Later documents in a file are later.
        for place, one in enumerate(sets):
            if together is not None:
                together += one.runs
            elif one.runs:
                report.sessions.extend(
                    _write_set(one, path, out, context, changed_at + timedelta(microseconds=place), guessed)
                )
        if progress is not None:
            progress(index + 1, len(files))
    if together:
        moment = _choose_time(ImportedSet(together), options) if options.measured_at is not None else None
        sessions = write_sessions(
            together, out, baseline=options.baseline, revision=options.revision, created_at=moment
        )
        report.sessions.extend(sessions)
    if len(set(guessed)) < len(guessed):
        context.add_notice(SAME_TIME, len(guessed))
    if not report.sessions:
        raise InputError(f"no {noun} that can be read", found=[reason for _, reason in report.problems[:5]])
    return report


def _read_sets(
    importer: ImportFormat, path: Path, context: ImportContext, *, is_named: bool, n_before: int | None
) -> tuple[datetime, list[ImportedSet]]:
    """When a file was changed, and its measurements; one of another tool is refused.

    `is_named`: Whether it is read although it has the marks of no tool.
    `n_before`: Number of runs in the session that these join; null where each measurement is a session.
    """
    file, noun = importer.open_file(path, importer.noun), importer.noun
    found = FORMATS.find_format(file.text)
    if found is None:
        FORMATS.refuse_foreign(file.text, path, (noun,))
    if found != importer.name and not (found is None and is_named):
        what = "of no known format" if found is None else f"of {found}"
        raise InputError(f"not a {noun}: {what}", where=path)
    assert importer.read is not None
    sets = list(importer.read(file, context))
    n_runs = [len(one.runs) for one in sets]
    if not any(n_runs):
        raise InputError("no benchmark in this file", where=path)
    if (max(n_runs) if n_before is None else n_before + sum(n_runs)) > MAX_RUNS:
        raise InputError("too many runs for a session", where=path, allowed=f"at most {MAX_RUNS:,}")
    for one in sets:
        values: dict[str, list[Any]] = {}
        for run in one.runs:
            if run.status == "ok":
                values.setdefault(run.thing.label, []).extend(run.document["stdout"]["@result"].values())
        if zeros := sum(not any(numbers) for numbers in values.values()):
            context.add_notice(ZERO, zeros)
    return parse_time(file.modified_at) or datetime(1970, 1, 1, tzinfo=UTC), sets


def _write_set(
    one: ImportedSet, path: Path, out: Path, context: ImportContext, changed_at: datetime, guessed: list[str]
) -> list[ImportedSession]:
    """Write a measurement; one without a time has that of its file, which is added to `guessed`."""
    created_at = _choose_time(one, context.options)
    if created_at is None:
        context.add_notice(NO_TIME)
        created_at = changed_at.isoformat()
        guessed.append(created_at)
    given = context.options.revision
    if one.revision is not None and given not in (None, one.revision):
        found = f"{one.revision[:40]} in {path.name[:80]}"
        raise ConfigError("the file already states its commit", where="--revision", found=found)
    revision = given if one.revision is None else one.revision
    return write_sessions(one.runs, out, revision=revision, created_at=created_at, notes=one.notes)


def _choose_time(one: ImportedSet, options: ImportOptions) -> str | None:
    """When a set was measured: as the file or its first run tells, else the user."""
    starts = [str(run.document.get("start_datetime") or "") for run in one.runs]
    told = one.created_at or min(filter(None, starts), default=None)
    if told is not None and options.measured_at is not None:
        raise ConfigError("the file already states its time", where="--time", found=options.measured_at)
    return told or options.measured_at


def build_set(measured: Measurement, context: ImportContext) -> ImportedSet:
    """The runs of a measurement, with its stack and machine; what cannot be compared is counted as a notice."""
    options = context.options
    if not measured.model and not measured.machine and measured.cores is None and not options.machine:
        context.add_notice(NO_MACHINE)
    hardware = build_hardware(
        model=measured.model or UNKNOWN, cores=measured.cores, machine=measured.machine, joined=options.machine
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
    # Benchmarks by name and base unit; one that is listed again has further runs, or a number in its name.
    joined: dict[tuple[str, str], MeasuredBenchmark] = {}
    for one in measured.benchmarks:
        unit, factor = find_base_unit(one.unit)
        name, number = one.name, 1
        while not measured.repeats and (replace(one, name=name).label, unit) in joined:
            number += 1
            name = f"{shorten_text(one.name, MAX_TEXT - 10)} #{number}"
        if number > 1:
            context.add_notice("a name that is listed several times: further ones have a number, such as #2")
        renamed = replace(one, name=name, unit=unit, runs=[])
        first = joined.setdefault((renamed.label, unit), renamed)
        if first.better != one.better:
            raise InputError("one benchmark with two directions", found=one.label)
        if first.runs:
            context.add_notice(TWICE)
        for run in one.runs:
            if factor != 1.0 and run.value is not None:
                cpu = None if run.cpu is None else run.cpu * factor
                run = replace(run, value=run.value * factor, cpu=cpu)
            first.runs.append(run)
    benchmarks = list(joined.values())
    if sum(len(one.runs) for one in benchmarks) > MAX_RUNS:
        raise InputError("too many runs for a session", found=measured.tool, allowed=f"at most {MAX_RUNS:,}")
    runs: list[ImportedRun] = []
    for benchmark in benchmarks:
        indicator, field_name = measured.indicator or build_indicator(measured.tool, benchmark.unit, benchmark.better)
        label = benchmark.label
        case = ImportedCase(indicator.__name__, indicator.version(), indicator, {"benchmark": label}, label=label)
        if benchmark.better is None:
            text = f"{shorten_text(benchmark.unit, 60) or 'no unit'}: direction unknown, so kept but not compared"
            context.add_notice(text)
        for run in benchmark.runs:
            stdout: Any = ""
            if run.status == "ok":
                stdout = {"name": case.name, "@parameters": {"benchmark": label}, "@result": {field_name: run.value}}
                stdout |= {"@cpu": {field_name: run.cpu}} if run.cpu is not None else {}
            document = {"stdout": stdout, "exit_code": run.exit_code, "start_datetime": measured.measured_at}
            runs.append(ImportedRun(arm, case, hardware, run.status, document, run.reason))
    return ImportedSet(runs, measured.revision, measured.measured_at or None, measured.notes)


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


@functools.lru_cache(maxsize=1000)
def build_indicator(tool: str, unit: str, better: Better | None) -> tuple[type[Indicator], str]:
    """Class for a tool's figures in a unit, with the name of its result.

    >>> build_indicator("hyperfine", "s", "lower")[0].__name__, build_indicator("go-bench", "B/op", "lower")[1]
    ('HyperfineSeconds', 'number')
    """
    known = {"s": ("Seconds", "elapsed_s"), "bytes": ("Bytes", "size_bytes")}
    if unit in known:
        ending, field_name = known[unit]
    else:
        words = re.split(r"[^A-Za-z0-9]+", unit.replace("/", " per ").replace("%", " percent "))
        ending, field_name = "".join(word[:1].upper() + word[1:] for word in words)[:40] or "Number", "number"
        if not re.fullmatch(r"[A-Za-z0-9/%]*", unit):
            ending += hashlib.sha256(unit.encode()).hexdigest()[:6]
    head = "".join(word.capitalize() for word in re.split(r"[^A-Za-z0-9]+", tool))
    about = f"{tool}'s figure of a benchmark in {shorten_text(unit, 60) or 'a number without unit'}."
    fields: dict[str, Any] = {
        "benchmark": (str, parameter()),
        field_name: (float, result(unit=shorten_text(unit, 60), better=better)),
    }
    indicator = create_model(f"{head}{ending}", __base__=Indicator, __module__=__name__, __doc__=about, **fields)
    return indicator, field_name


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


def format_time(value: Any, context: ImportContext) -> str:
    """A time of a file in UTC; empty for what is none. One without a zone is taken as UTC, which is told."""
    moment = parse_time(value)
    if moment is None:
        return ""
    if datetime.fromisoformat(value).tzinfo is None:
        context.add_notice("a time without a zone: taken as UTC")
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
