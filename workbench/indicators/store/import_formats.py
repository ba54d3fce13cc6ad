"""Formats of benchmark tools that can be imported: a line in FORMATS names one, and its module is the rest of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, InputError
from workbench.core.tool_formats import ForeignKind, FormatRegistry, ToolFormat
from workbench.indicators.store.result_files import ResultFile, add_notice, list_result_files, read_result_file
from workbench.indicators.store.session_import import ImportedRun, ImportReport

_DETECTED_FILES = 50
_EXPORT_JSON = "hyperfine --export-json FILE"
_OWN_CSV = "write its figures as a CSV: time, series, value, unit, direction, commit, machine"
_TIME = "workbench indicators time -- COMMAND"
_LOAD = "workbench sizing import --help"
_CANNOT = "a result that cannot be imported: "
Progress = Callable[[int, int], None]


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
class ImportContext:
    """An import that is under way: what the user says, notices with their number, and what a reader keeps for later."""

    options: ImportOptions
    notices: dict[str, int] = field(default_factory=dict)
    kept: dict[Any, Any] = field(default_factory=dict)

    def add_notice(self, text: str, count: int = 1) -> None:
        """Count a notice."""
        add_notice(self.notices, text, count)


@dataclass(frozen=True, kw_only=True)
class ImportFormat(ToolFormat):
    """A format: the tool that writes it, what its files are called, the options that fit, and what reads a file.

    `read`: Reads the measurements of a file.
    `list_files`, `open_file`: The files of a folder (or a file as it is), and the text of one.
    `is_joined`: Whether the runs of all files are one session where the user names no stack of theirs.
    `import_paths`: Imports all paths instead, where runs are not in single files.
    """

    tool: str
    noun: str
    takes: frozenset[str] = frozenset({"stack", "machine", "revision", "time"})
    read: Callable[[ResultFile, ImportContext], Iterable[ImportedSet]] | None = None
    list_files: Callable[[Path, str], list[Path]] = list_result_files
    open_file: Callable[[Path, str], ResultFile] = read_result_file
    is_joined: bool = False
    import_paths: Callable[[list[Path], Path, ImportOptions, Progress | None], ImportReport] | None = None


def _foreign(what: str, do: str, *marks: str) -> ForeignKind:
    return ForeignKind(_CANNOT + what, do, marks)


FORMATS: FormatRegistry[ImportFormat] = FormatRegistry(
    "workbench.indicators",
    {
        "pytest-benchmark": "store.pytest_benchmarks",
        "google-benchmark": "store.google_benchmarks",
        "codspeed": "store.codspeed_results",
        "jmh": "store.jmh_results",
        "hyperfine": "store.hyperfine_results",
        "asv": "store.asv_results",
        "criterion": "store.criterion_estimates",
        "pyperf": "store.pyperf_suites",
        "go-bench": "store.go_benchmarks",
        "csv": "store.csv_histories",
        # Its marks are in files of other tools, too.
        "amun": "compat_thoth.amun_import",
    },
    (
        _foreign("a CSV file of hyperfine, which has no single runs", _EXPORT_JSON, r"\Acommand,mean,stddev,median,"),
        _foreign("a Markdown table of hyperfine, which has no single runs", _EXPORT_JSON, r"\A\| Command \| Mean \["),
        _foreign("the text of hyperfine, which has no single runs", _EXPORT_JSON, r"^Benchmark( #)? ?\d+: ", "mean ±"),
        _foreign(
            "an AsciiDoc table of hyperfine, which has no single runs", _EXPORT_JSON, r"^\| Command\s", r"Mean \["
        ),
        _foreign("JMH's text", "java -jar benchmarks.jar -rf json", r"^Benchmark +(\(.*\) +)*Mode +(Cnt|Samples) "),
        _foreign("JMH's CSV", "java -jar benchmarks.jar -rf json", r'\A"?Benchmark"?[,;]"?Mode"?[,;]"?Threads"?'),
        _foreign("criterion's raw.csv", "its folder target/criterion", r"\Agroup,function,value,throughput_num"),
        _foreign("criterion's text", "its folder target/criterion", r"time: +\[\S+ \S+ \S+ \S+ \S+ \S+\]"),
        _foreign("the text of Rust's own benchmarks", _OWN_CSV, r"^test .* bench: +[\d,.]+ ns/iter"),
        _foreign("divan's text", _OWN_CSV, r"fastest +│ slowest +│ median"),
        _foreign("Google Benchmark's CSV", "--benchmark_out=FILE", r"^\"?name\"?,iterations,real_time,cpu_time"),
        _foreign("Google Benchmark's text", "--benchmark_out=FILE", r"^Benchmark +Time +CPU +Iterations"),
        _foreign(
            "benchstat's, which has no single runs", "go test -bench . > FILE", r"│ +sec/op +│|^name +(old )?time/op"
        ),
        _foreign(
            "pytest-benchmark's CSV or text", "--benchmark-json=FILE", r"^Name \(time in |\Aname,min,max,mean,stddev"
        ),
        _foreign("pyperf's text", "python -m pyperf … -o FILE", r"Mean \+- std dev:"),
        _foreign("BenchmarkDotNet's", _OWN_CSV, "BenchmarkDotNet"),
        _foreign("BenchmarkDotNet's", _OWN_CSV, r"\A\"?Method\"?[,;]\"?Job\"?[,;]"),
        _foreign("k6's, a load test", _LOAD, '"http_req_duration"'),
        _foreign("locust's, a load test", _LOAD, r"\A\"?Type\"?,\"?Name\"?,\"?Request Count"),
        _foreign("vegeta's, a load test", _LOAD, '"latencies"', '"status_codes"'),
        _foreign("wrk's, a load test", _LOAD, r"^Running .* test @ ", "Requests/sec"),
        _foreign("ApacheBench's, a load test", _LOAD, "This is ApacheBench"),
        _foreign(
            "guidellm's, a load test", "workbench sizing import FILE", '"guidellm_version"|"generative_benchmark"'
        ),
        _foreign("vLLM's, a load test", "workbench sizing import FILE", '"request_throughput"', '"num_prompts"'),
        _foreign("perf stat's", _TIME, "Performance counter stats for"),
        _foreign("perf stat's", _TIME, '"counter-value"', '"event"'),
        _foreign("perf stat's", _TIME, r"^[\d.]+[,;]msec[,;](task|cpu)-clock"),
        _foreign("that of `time`", _TIME, r"^real\s+\d+m?[\d.]+s?$", r"^user\s"),
        _foreign("that of `time -v`", _TIME, r"Maximum resident set size"),
        _foreign("sysbench's", _OWN_CSV, r"^sysbench \d"),
        _foreign("fio's", _OWN_CSV, '"fio version"'),
        _foreign("iperf3's", _OWN_CSV, '"intervals"', '"cookie"'),
        _foreign("asv's list of benchmarks, without results", ".asv/results", '"param_names"', '"version"'),
        _foreign("asv's description of a machine", ".asv/results", '"machine"', '"num_cpu"', '"cpu"'),
        _foreign("Catch2's", _OWN_CSV, "<Catch2?TestRun|<BenchmarkResults"),
        _foreign("nanobench's", _OWN_CSV, r'"median\(elapsed\)"'),
        _foreign("nanobench's", _OWN_CSV, r"^\| +(relative \| +)?ns/\S+ \|.*err%"),
        _foreign("vitest's or tinybench's", _OWN_CSV, '"(hz|throughput)"', '"(rme|samples|sampleCount)"'),
    ),
)
"""Formats by name, in the order of detection."""


def find_import_format(paths: list[Path], form: str | None) -> str:
    """The format of all paths: the given one, else by their content; paths of several are refused."""
    if form is not None and form not in FORMATS:
        raise ConfigError("no such format", where="--format", found=form, allowed=list(FORMATS))
    if form is not None:
        return form
    found = {path: detect_format(path) for path in paths}
    if len(set(found.values())) > 1:
        each = [f"{path.name}: {name}" for path, name in list(found.items())[:5]]
        raise ConfigError("files of several tools", found=each, do="import the files of each tool separately")
    return next(iter(found.values()))


def detect_format(path: Path) -> str:
    """Name of the format of a file, or of the first files of a folder, by content alone.

    A folder without a known file is taken for one of Amun's.
    """
    if (owner := FORMATS.find_owner(path)) is not None:
        return owner
    foreign: InputError | None = None
    # A file alone in deeper folders is none of a tool's but Amun's.
    listed = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
    for file in itertools.islice((file for file in listed if file == path or file.is_file()), _DETECTED_FILES):
        try:
            text = read_result_file(file).text
            # Whatever names another tool in a known format is only a name in it.
            if (found := FORMATS.find_format(text)) is not None:
                return found
            FORMATS.refuse_foreign(text, file)
        except InputError as error:
            if file == path:
                raise
            foreign = foreign or (error if error.what.startswith("a result that") else None)
    if foreign is not None:
        raise foreign
    if path.is_dir():
        return "amun"
    do = "name its format with --format, or write a CSV with: time, series, value, unit, direction"
    raise InputError("cannot detect the format from the content", where=path, allowed=list(FORMATS), do=do)


def check_options(form: str, given: Mapping[str, object]) -> None:
    """Refuse an option that says nothing of files in this format; null or empty ones are not given."""
    takes = FORMATS[form].takes
    for name, value in given.items():
        if value and name not in takes:
            allowed = [f"--{one}" for one in sorted(takes)]
            where = f"--{name}"
            found = value if isinstance(value, list) else str(value)[:80]
            raise ConfigError(f"{FORMATS[form].tool} tells this itself", where=where, found=found, allowed=allowed)
