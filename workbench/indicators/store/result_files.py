"""Files of benchmark tools: bounded reading, their JSON documents, and which tool wrote them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.core.data_files import measure_depth
from workbench.core.errors import InputError
from workbench.core.files import read_unpacked
from workbench.indicators.store.archive import OUTSIDE, is_inside

MAX_BYTES = 256 << 20
MAX_FILES = 10_000
MAX_DEPTH = 100
MAX_DOCUMENTS = 1_000_000
_DETECTED_FILES = 50
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text, re.MULTILINE) for text in texts)


# All patterns of a line are in a file of the format; of several formats that fit, the first one counts.
_FORMATS = (
    ("pytest-benchmark", _patterns('"machine_info"', '"benchmarks"')),
    ("google-benchmark", _patterns('"context"', '"benchmarks"', '"(library_build_type|num_cpus|time_unit)"')),
    ("codspeed", _patterns('"creator"', '"instrument"', '"benchmarks"')),
    ("jmh", _patterns('"primaryMetric"', '"benchmark"')),
    ("hyperfine", _patterns('"results"', '"command"', '"(times|mean)"')),
    ("asv", _patterns('"commit_hash"', '"results"')),
    ("criterion", _patterns('"reason" *: *"(benchmark|group)-complete"')),
    ("criterion", _patterns('"median_abs_dev"', '"point_estimate"')),
    ("pyperf", _patterns('"benchmarks"', '"runs"', '"(metadata|version)"')),
    ("go-bench", _patterns('"Action"', '"Output"', "Benchmark")),
    ("go-bench", _patterns(r"^Benchmark\S*[ \t]+\d+[ \t]+[-+0-9.eE]+[ \t]+\S")),
    ("go-bench", _patterns(r"^(goos|goarch|pkg): \S", r"\A(?![^│]*│)")),
    ("csv", _patterns(r"(?i)\A(?=[^\n]*\bseries\b)(?=[^\n]*\bvalue\b)\"?\w+\"?[,;\t]")),
    ("amun", _patterns('"(@result|@parameters|script_sha256|hwinfo|job_log)"')),
)
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_EXPORT_JSON = "hyperfine --export-json FILE"
_OWN_CSV = "write its figures as a CSV: time, series, value, unit, direction, commit, machine"
_TIME = "workbench indicators time -- COMMAND"
_LOAD = "workbench sizing import --help"
# Results of other kinds: whose they are, and what to give instead.
_FOREIGN = (
    ("a CSV file of hyperfine, which has no single runs", _EXPORT_JSON, _patterns(r"\Acommand,mean,stddev,median,")),
    ("a Markdown table of hyperfine, which has no single runs", _EXPORT_JSON, _patterns(r"\A\| Command \| Mean \[")),
    (
        "the text of hyperfine, which has no single runs",
        _EXPORT_JSON,
        _patterns(r"^Benchmark( #)? ?\d+: ", "mean ±"),
    ),
    ("an AsciiDoc table of hyperfine, which has no single runs", _EXPORT_JSON, _patterns(r"^\| Command\s", r"Mean \[")),
    ("JMH's text", "java -jar benchmarks.jar -rf json", _patterns(r"^Benchmark +(\(.*\) +)*Mode +(Cnt|Samples) ")),
    ("JMH's CSV", "java -jar benchmarks.jar -rf json", _patterns(r'\A"?Benchmark"?[,;]"?Mode"?[,;]"?Threads"?')),
    ("criterion's raw.csv", "its folder target/criterion", _patterns(r"\Agroup,function,value,throughput_num")),
    ("criterion's text", "its folder target/criterion", _patterns(r"time: +\[\S+ \S+ \S+ \S+ \S+ \S+\]")),
    ("the text of Rust's own benchmarks", _OWN_CSV, _patterns(r"^test .* bench: +[\d,.]+ ns/iter")),
    ("divan's text", _OWN_CSV, _patterns(r"fastest +│ slowest +│ median")),
    ("Google Benchmark's CSV", "--benchmark_out=FILE", _patterns(r"^\"?name\"?,iterations,real_time,cpu_time")),
    ("Google Benchmark's text", "--benchmark_out=FILE", _patterns(r"^Benchmark +Time +CPU +Iterations")),
    (
        "benchstat's, which has no single runs",
        "go test -bench . > FILE",
        _patterns(r"│ +sec/op +│|^name +(old )?time/op"),
    ),
    (
        "pytest-benchmark's CSV or text",
        "--benchmark-json=FILE",
        _patterns(r"^Name \(time in |\Aname,min,max,mean,stddev"),
    ),
    ("pyperf's text", "python -m pyperf … -o FILE", _patterns(r"Mean \+- std dev:")),
    ("BenchmarkDotNet's", _OWN_CSV, _patterns("BenchmarkDotNet")),
    ("BenchmarkDotNet's", _OWN_CSV, _patterns(r"\A\"?Method\"?[,;]\"?Job\"?[,;]")),
    ("k6's, a load test", _LOAD, _patterns('"http_req_duration"')),
    ("locust's, a load test", _LOAD, _patterns(r"\A\"?Type\"?,\"?Name\"?,\"?Request Count")),
    ("vegeta's, a load test", _LOAD, _patterns('"latencies"', '"status_codes"')),
    ("wrk's, a load test", _LOAD, _patterns(r"^Running .* test @ ", "Requests/sec")),
    ("ApacheBench's, a load test", _LOAD, _patterns("This is ApacheBench")),
    ("guidellm's, a load test", "workbench sizing import FILE", _patterns('"guidellm_version"|"generative_benchmark"')),
    ("vLLM's, a load test", "workbench sizing import FILE", _patterns('"request_throughput"', '"num_prompts"')),
    ("perf stat's", _TIME, _patterns("Performance counter stats for")),
    ("perf stat's", _TIME, _patterns('"counter-value"', '"event"')),
    ("perf stat's", _TIME, _patterns(r"^[\d.]+[,;]msec[,;](task|cpu)-clock")),
    ("that of `time`", _TIME, _patterns(r"^real\s+\d+m?[\d.]+s?$", r"^user\s")),
    ("that of `time -v`", _TIME, _patterns(r"Maximum resident set size")),
    ("sysbench's", _OWN_CSV, _patterns(r"^sysbench \d")),
    ("fio's", _OWN_CSV, _patterns('"fio version"')),
    ("iperf3's", _OWN_CSV, _patterns('"intervals"', '"cookie"')),
    ("asv's list of benchmarks, without results", ".asv/results", _patterns('"param_names"', '"version"')),
    ("asv's description of a machine", ".asv/results", _patterns('"machine"', '"num_cpu"', '"cpu"')),
    ("Catch2's", _OWN_CSV, _patterns("<Catch2?TestRun|<BenchmarkResults")),
    ("nanobench's", _OWN_CSV, _patterns(r'"median\(elapsed\)"')),
    ("nanobench's", _OWN_CSV, _patterns(r"^\| +(relative \| +)?ns/\S+ \|.*err%")),
    ("vitest's or tinybench's", _OWN_CSV, _patterns('"(hz|throughput)"', '"(rme|samples|sampleCount)"')),
)


@dataclass(frozen=True)
class ResultFile:
    """A file with its text, which has been unpacked and decoded.

    `modified_at`: When it was last changed, in ISO format and UTC.
    """

    path: Path
    text: str
    modified_at: str = ""

    @cached_property
    def _parsed(self) -> tuple[list[Any], int]:
        """JSON values one after another, and where the first that is none begins."""
        decoder, documents, place, text = json.JSONDecoder(), list[Any](), 0, self.text
        has_half_pairs = _HALF_PAIR.search(text) is not None
        while True:
            while place < len(text) and text[place] in " \t\r\n":
                place += 1
            if place == len(text) or len(documents) == MAX_DOCUMENTS:
                return documents, place
            try:
                value, place = decoder.raw_decode(text, place)
            except RecursionError:
                raise InputError("nested too deeply", where=self.path, allowed=f"{MAX_DEPTH} levels") from None
            except ValueError:  # no JSON, or a number of thousands of digits
                return documents, place
            if measure_depth(value, MAX_DEPTH) > MAX_DEPTH:
                raise InputError("nested too deeply", where=self.path, allowed=f"{MAX_DEPTH} levels")
            documents.append(_replace_half_pairs(value) if has_half_pairs else value)

    def read_documents(self, noun: str, notices: dict[str, int], *, do: str | None = None) -> list[Any]:
        """The JSON documents of a file, of which there may be several, one after another.

        What is cut off at the end is counted in `notices`; a file without a whole document is refused.
        """
        documents, end = self._parsed
        if not documents:
            try:
                json.loads(self.text)
            except ValueError as error:
                found = str(error)[:120]
            raise InputError(f"not a {noun}: no whole JSON document", where=self.path, found=found, do=do)
        if end < len(self.text):
            add_notice(notices, "the end of the file is not a complete JSON document and was skipped")
        if len(documents) > 1 and not all(map(is_line_of_stream, documents)):
            add_notice(notices, "several documents in one file: each is a session")
        return documents


def _replace_half_pairs(value: Any) -> Any:
    """A JSON value without halves of pairs of code units in its texts, which no file can hold."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def is_line_of_stream(document: Any) -> bool:
    """Whether a document is a message of a stream, as cargo-criterion and `go test -json` write them."""
    return isinstance(document, dict) and not {"reason", "Action"}.isdisjoint(document)


def add_notice(notices: dict[str, int], text: str, count: int = 1) -> None:
    """Count a notice."""
    notices[text] = notices.get(text, 0) + count


def read_result_file(path: Path, *, noun: str = "result of a benchmark tool", max_bytes: int = MAX_BYTES) -> ResultFile:
    """Read a text file, plain or gzip, in UTF-8 or, as PowerShell writes it, UTF-16; empty ones are refused."""
    try:
        raw = read_unpacked(path, max_bytes)
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror or str(error)) from None
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if raw.startswith(mark)), "utf-8")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"not a {noun}: no text", where=path, found=f"byte {error.start} is not {encoding}") from None
    if not text.strip():
        raise InputError(f"not a {noun}: an empty file", where=path)
    return ResultFile(path, text.replace("\r\n", "\n"), format_modified(path))


def format_modified(path: Path) -> str:
    """When a file was last changed, in ISO format and UTC; empty where it is not known."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    except (OSError, ValueError, OverflowError):
        return ""


def list_result_files(path: Path, noun: str, *, skip: Iterable[str] = ()) -> list[Path]:
    """Files of a folder and of the folders in it, without hidden ones; a path that is no folder as it is."""
    if not path.is_dir():
        return [path]
    skipped = set(skip)
    listed = itertools.chain(path.glob("*"), path.glob("*/*"))
    seen = (file for file in listed if not file.name.startswith(".") and file.name not in skipped and not file.is_dir())
    paths = sorted(itertools.islice(seen, MAX_FILES + 1))
    if outside := [file for file in paths if not is_inside(file, path.resolve())]:
        raise InputError(OUTSIDE, where=outside[0], do="name the file itself")
    if not paths:
        raise InputError(f"no {noun} in this folder", where=path)
    if len(paths) > MAX_FILES:
        raise InputError("too many result files", where=path, allowed=f"at most {MAX_FILES:,}", do="name some of them")
    return paths


def find_format(text: str) -> str | None:
    """Name of the format of a text; null for none that is known.

    >>> find_format('{"results": [{"command": "sleep 1", "times": [1.0]}]}'), find_format("hello")
    ('hyperfine', None)
    """
    text = text.lstrip()
    return next((name for name, patterns in _FORMATS if all(one.search(text) for one in patterns)), None)


def refuse_foreign(file: ResultFile, allowed: Iterable[str]) -> None:
    """Refuse a result of a kind that cannot be imported, by its name."""
    text = file.text.lstrip()
    for name, do, patterns in _FOREIGN:
        if all(one.search(text) for one in patterns):
            raise InputError(f"a result that cannot be imported: {name}", where=file.path, allowed=allowed, do=do)


def detect_format(path: Path, formats: Iterable[str]) -> str:
    """Name of the format of a file, or of the first files of a folder, by content alone.

    A folder without a known file is taken for one of Amun's.
    """
    if path.is_dir():
        if any(path.glob("**/new/estimates.json")):
            return "criterion"
        if any(path.glob("**/measurement_*.cbor")):
            do = "cargo criterion --message-format=json > FILE"
            raise InputError("data of cargo-criterion's own, which cannot be imported", where=path, do=do)
        # A session of this project's own is refused there.
        marks = ("results/*/result", "build/specification", "session.json", "inspections")
        if any(next(path.glob(mark), None) is not None for mark in marks):
            return "amun"
        return _detect_in_folder(path, formats)
    if path.suffix == ".stdout" or not path.exists():
        return "amun"
    file = read_result_file(path)
    found = find_format(file.text)
    # Whatever names another tool in a known format is only a name in it.
    if found is None:
        refuse_foreign(file, formats)
        do = "name its format with --format, or write a CSV with: time, series, value, unit, direction"
        raise InputError("cannot detect the format from the content", where=path, allowed=formats, do=do)
    return found


def _detect_in_folder(path: Path, formats: Iterable[str]) -> str:
    foreign: InputError | None = None
    # A file alone in deeper folders is none of a tool's but Amun's.
    files = (file for file in sorted([*path.glob("*"), *path.glob("*/*")]) if file.is_file())
    for file in itertools.islice(files, _DETECTED_FILES):
        try:
            read = read_result_file(file)
            if (found := find_format(read.text)) is not None:
                return found
            refuse_foreign(read, formats)
        except InputError as error:
            foreign = foreign or (error if error.what.startswith("a result that") else None)
    if foreign is not None:
        raise foreign
    return "amun"
