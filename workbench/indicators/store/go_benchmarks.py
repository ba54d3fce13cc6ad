"""Reads the output of `go test -bench`, plain or with -json: each line of a benchmark is a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import Better
from workbench.indicators.store.archive import parse_time
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    MeasuredRun,
    Measurement,
    build_set,
    judge_value,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import shorten_text

NOUN = "output of go test -bench"
CUT_OFF = "the last line is cut off and was skipped"
NO_END = "no closing line of go test for a package: the file may be incomplete"
TWICE = "a package several times in one file: its lines are further runs"
_HEADER = re.compile(r"(goos|goarch|pkg|cpu|commit|commit-time): (.*)")
_LINE = re.compile(r"(Benchmark\S*)[ \t]+(\d+)[ \t]+(\S.*)")
_UNIT = re.compile(r"Unit[ \t]+(\S+)[ \t]+(.*)")
_FAILED = re.compile(r"\s*--- (FAIL|SKIP): (Benchmark\S*)")
_END = re.compile(r"(ok|FAIL)[ \t]+(\S+).*")
_DIRECTIONS: dict[str, Better] = {
    "ns/op": "lower", "sec/op": "lower", "B/op": "lower", "allocs/op": "lower", "MB/s": "higher", "B/s": "higher",
}  # fmt: skip
_TIMES = ("ns/op", "sec/op")
_REASONS = {
    "FAIL": "failed: see the output of go test",
    "SKIP": "skipped",
    "LINE": "no figures on its line: a panic, or other output among them",
}


@dataclass
class _Output:
    """What was read so far; `failed` waits for the package, which Go names after its failed benchmarks, too."""

    facts: dict[str, str] = field(default_factory=dict)
    is_open: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    better: dict[str, Better] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    measured: dict[tuple[str, ...], Measurement] = field(default_factory=dict)
    lines: list[tuple[Measurement, str, str]] = field(default_factory=list)
    lost: list[tuple[Measurement, str, str]] = field(default_factory=list)

    def find_measurement(self) -> Measurement:
        """The measurement of this system, processor and commit."""
        names = ("goos", "goarch", "cpu", "commit", "commit-time")
        system, architecture, model, commit, moment = facts = tuple(self.facts.get(name, "") for name in names)
        stack = f"Go {system}/{architecture}" if system else "Go"
        committed = parse_time(moment)
        one = Measurement("go-bench", stack=stack, model=shorten_text(model), revision=commit or None)
        one.commit_at = committed.astimezone(UTC).isoformat() if committed else ""
        return self.measured.setdefault(facts, one)

    def close(self, package: str) -> None:
        """The end of a package: benchmarks that failed are its own."""
        for kind, name in self.failed:
            self.lost.append((self.find_measurement(), f"{package}.{name}" if package else name, kind))
        self.failed, self.is_open = [], False


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The benchmarks of a file, a set for each system, processor and commit."""
    output = _Output()
    # The output of each package from the messages of -json; of plain output the text itself.
    if not file.text.lstrip().startswith("{"):
        outputs = [file.text]
    else:
        texts: dict[str, list[str]] = {}
        for message in file.read_documents(NOUN, context.notices, do="go test -bench . > FILE"):
            if isinstance(message, dict) and message.get("Action") == "output":
                texts.setdefault(str(message.get("Package", "")), []).append(str(message.get("Output", "")))
        outputs = ["".join(parts) for parts in texts.values()]
    for text in outputs:
        _read_output(text, output, context)
    if max(output.seen.values(), default=0) > 1:
        context.add_notice(TWICE)
    benchmarks: dict[tuple[int, str, str], MeasuredBenchmark] = {}
    for measured, name, rest in output.lines:
        for value, unit in _parse_pairs(rest, file, name):
            key = (id(measured), name, unit)
            if key not in benchmarks:
                # Go and benchstat know the direction of these; of others a line "Unit" tells it.
                better = output.better.get(unit, _DIRECTIONS.get(unit))
                one = MeasuredBenchmark(name, unit, better, quantity="" if unit in _TIMES else unit)
                benchmarks[key] = one
                measured.benchmarks.append(one)
            benchmarks[key].runs.append(value)
    for measured, name, kind in output.lost:
        reason = _REASONS[kind]
        measured.benchmarks.append(
            MeasuredBenchmark(name, "ns/op", "lower", [MeasuredRun(None, "empty", reason, None)])
        )
    # The first message of -json tells the time; plain output has none.
    match = re.match(r'\s*\{"Time":"([^"]+)"', file.text)
    moment = parse_time(re.sub(r"(\.\d{6})\d*", r"\1", match[1])) if match else None
    for measured in output.measured.values():
        measured.measured_at = moment.astimezone(UTC).isoformat() if moment else ""
        yield build_set(measured, context)


def _read_output(text: str, output: _Output, context: ImportContext) -> None:
    """Read the lines of an output in their order."""
    lines = text.split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r \t")
        if header := _HEADER.fullmatch(line):
            _read_header(header[1], header[2].strip(), output, context)
        elif unit := _UNIT.fullmatch(line):
            told = re.search(r"better=(higher|lower)", unit[2])
            if told:
                output.better[unit[1]] = "higher" if told[1] == "higher" else "lower"
        elif match := _LINE.fullmatch(line):
            if number == len(lines):
                context.add_notice(CUT_OFF)
                continue
            package = output.facts.get("pkg", "")
            name = f"{package}.{match[1]}" if package else match[1]
            output.lines.append((output.find_measurement(), name, match[3]))
        elif failed := _FAILED.match(line):
            # The parent of a failed part fails, too, before or after it.
            output.failed = [one for one in output.failed if not failed[2].startswith(f"{one[1]}/")]
            if not any(name.startswith(f"{failed[2]}/") for _, name in output.failed):
                output.failed.append((failed[1], failed[2]))
        elif end := _END.fullmatch(line):
            if end[1] == "FAIL":
                context.add_notice(f"go test failed in package {end[2][:80]}")
            output.close(end[2])
        elif line.startswith("Benchmark") and len(line.split()) > 1:
            if number == len(lines):
                context.add_notice(CUT_OFF)
            else:
                output.failed.append(("LINE", line.split()[0]))
    if output.is_open:
        context.add_notice(NO_END)
    output.close(output.facts.get("pkg", ""))


def _read_header(key: str, value: str, output: _Output, context: ImportContext) -> None:
    if key == "goos":
        output.facts.pop("cpu", None)  # not told of every processor
    if key == "pkg":
        if output.is_open:
            context.add_notice(NO_END)
        output.is_open = True
        output.seen[value] += 1
    output.facts[key] = value


def _parse_pairs(rest: str, file: ResultFile, name: str) -> Iterator[tuple[MeasuredRun, str]]:
    """Values with their units."""
    words = rest.split()
    if len(words) % 2:
        raise InputError("a value without a unit", where=f"{file.path}, {name[:80]}", found=rest[:120])
    for text, unit in zip(words[::2], words[1::2], strict=True):
        try:
            value: float | str = float(text)
        except ValueError:
            value = text
        yield judge_value(value), unit


FORMAT = ImportFormat(
    name="go-bench",
    tool="go test -bench",
    noun=NOUN,
    marks=(
        ('"Action"', '"Output"', "Benchmark"),
        (r"^Benchmark\S*[ \t]+\d+[ \t]+[-+0-9.eE]+[ \t]+\S",),
        (r"^(goos|goarch|pkg): \S", r"\A(?![^│]*│)"),
    ),
    read=_read_file,
)
