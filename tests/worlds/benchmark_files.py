"""Files of benchmark tools whose truth is known: names, medians, units, directions, machines, commits, failed runs.

SIMULATED: no benchmark is run; figures are drawn first, and each file is written as its tool writes it. The product
sees the files only: `indicators import`, then the database.

python -m tests.worlds.benchmark_files 300 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from typer.testing import CliRunner

from tests.worlds.foreign_benchmark_files import FOREIGN, write_foreign
from workbench.core.errors import WorkbenchError
from workbench.core.units import find_unit_factor
from workbench.indicators.command import app
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.store.sql_queries import run_query

EARLIER_TOOLS = ("pytest-benchmark", "pyperf", "asv", "amun")
NEW_TOOLS = ("hyperfine", "google-benchmark", "criterion", "jmh", "go-bench", "codspeed", "csv")
TOOLS = (*EARLIER_TOOLS, *NEW_TOOLS)
# What may befall any file, and what each tool's files can tell.
DAMAGES = ("truncated", "empty", "appended")
FORMS = ("byte order mark", "wrong extension", "gzip", "Windows line ends")
TRAITS: dict[str, tuple[str, ...]] = {
    "pytest-benchmark": ("long names", "several files", "two hosts", "offset", "local changes", "NaN"),
    "pyperf": ("long names", "several files", "two hosts"),
    "asv": ("long names", "several files", "two hosts", "failed", "NaN"),
    "amun": ("several files", "failed"),
    "hyperfine": (
        "long names", "several files", "failed", "JSON lines", "parameters", "memory", "null exit code", "one name",
    ),
    "google-benchmark": (
        "long names", "several files", "two hosts", "failed", "offset", "debug build", "NaN", "aggregates",
        "only aggregates", "other time unit", "counters", "skipped", "one name",
    ),
    "criterion": ("long names", "several files", "JSON lines", "other time unit", "failed"),
    "jmh": ("long names", "several files", "throughput", "histogram", "parameters", "other time unit", "NaN"),
    "go-bench": (
        "long names", "several files", "two hosts", "failed", "packages", "allocations", "custom unit", "told unit",
        "UTF-16", "test2json", "no header", "commit",
    ),
    "codspeed": ("long names", "several files", "other instrument"),
    "csv": ("long names", "two hosts", "offset", "NaN", "higher", "semicolons", "failed", "local time"),
}  # fmt: skip
BOOLEAN_DAMAGE = 0.12
START = datetime(2026, 9, 1, 2, tzinfo=UTC)
LONG = "stage_of_a_long_pipeline_" + "x" * 190
Better = Literal["lower", "higher"]


@dataclass
class Figure:
    """What is true of a benchmark in a session: finite values in a unit, and runs without one."""

    session: int
    name: str
    unit: str
    better: Better | None
    values: list[float]
    failed: int = 0


@dataclass
class World:
    """A tool's files: the figures in them, and what the sessions are of.

    `expected`: `answer`; `refusal` (named by `naming`), or `either` where a damaged file may be read in part, and told.
    """

    seed: int
    tool: str
    traits: frozenset[str]
    figures: list[Figure] = field(default_factory=list)
    times: dict[int, str | None] = field(default_factory=dict)
    revisions: dict[int, str | None] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    expected: Literal["answer", "refusal", "either"] = "answer"
    naming: str = ""
    options: list[str] = field(default_factory=list)

    @property
    def draw(self) -> random.Random:
        """Random numbers of the files, the same in each call."""
        return random.Random(1000 + self.seed)


def draw_world(seed: int, tools: tuple[str, ...] = TOOLS) -> World:
    """Draw tool and traits; the figures are drawn while the files are written."""
    draw = random.Random(seed)
    tool = tools[seed % len(tools)]
    if tools == TOOLS and draw.random() < 0.1:
        name = draw.choice(sorted(FOREIGN))
        return World(seed, f"foreign: {name}", frozenset(), expected="refusal", naming=FOREIGN[name].naming)
    traits = {trait for trait in TRAITS[tool] if draw.random() < 0.25}
    traits |= {trait for trait in FORMS if draw.random() < 0.08}
    if draw.random() < BOOLEAN_DAMAGE:
        traits.add(draw.choice(DAMAGES))
    for one, other in (
        ("only aggregates", "aggregates"), ("test2json", "no header"), ("UTF-16", "byte order mark"),
        ("gzip", "UTF-16"), ("empty", "gzip"), ("no header", "packages"), ("no header", "two hosts"),
    ):  # fmt: skip
        if one in traits:
            traits.discard(other)
    if tool == "amun":
        traits -= {"gzip", "wrong extension"}  # its layout has names of its own
    return World(seed, tool, frozenset(traits))


@dataclass
class _Writer:
    """Draws figures of a world while a file is written."""

    world: World
    folder: Path
    draw: random.Random

    def has(self, trait: str) -> bool:
        """Whether the world has a trait."""
        return trait in self.world.traits

    @property
    def n_files(self) -> int:
        """Number of files."""
        return 3 if self.has("several files") or self.has("two hosts") else 1

    def list_names(self) -> list[str]:
        """Names of benchmarks; two long ones differ in their last characters."""
        names = ["sort", "parse text"] if self.world.tool in ("hyperfine", "criterion", "csv") else ["sort", "parse"]
        return names + ([f"{LONG}_small", f"{LONG}_large"] if self.has("long names") else [])

    def draw_values(self, n: int) -> list[float]:
        """Times in seconds around a level, with enough digits to find them again."""
        level = 10 ** self.draw.uniform(-6, 0.5)
        return [float(f"{level * math.exp(self.draw.gauss(0, 0.05)):.9g}") for _ in range(n)]

    def add(
        self,
        session: int,
        name: str,
        values: list[float],
        *,
        unit: str = "s",
        better: Better | None = "lower",
        failed: int = 0,
    ) -> None:
        """Note what is true."""
        self.world.figures.append(Figure(session, name, unit, better, values, failed))

    def host(self, number: int) -> str:
        """Name of the host of a file."""
        name = "beta" if self.has("two hosts") and number == 1 else "alpha"
        self.world.hosts[number] = name
        return name

    def moment(self, number: int) -> datetime:
        """When a file was measured, in the zone of its host."""
        zone = timezone(timedelta(hours=(9, -8)[number % 2])) if self.has("offset") else UTC
        moment = (START + timedelta(hours=7 * number)).astimezone(zone)
        self.world.times[number] = moment.astimezone(UTC).isoformat()
        return moment

    def revise(self, number: int) -> str:
        """Commit of a file."""
        revision = f"{self.world.seed * 10 + number + 1:040x}"
        self.world.revisions[number] = revision
        return revision

    def save(self, number: int, content: str | dict[str, Any] | list[Any], extension: str, place: str = "") -> Path:
        """Write a file, with what befalls it."""
        text = content if isinstance(content, str) else json.dumps(content, indent=self.draw.choice((None, 2)))
        text = text if text.endswith("\n") else text + "\n"
        first = number == 0
        if self.has("truncated") and first:
            text = text[: max(40, int(len(text) * self.draw.uniform(0.4, 0.95)))]
            self.world.expected = "either"
        if self.has("empty") and first:
            text, self.world.expected = "", "either"
        if self.has("appended") and first:
            text, self.world.expected = text + text, "either"
        raw = text.replace("\n", "\r\n").encode() if self.has("Windows line ends") else text.encode()
        if self.has("UTF-16"):
            raw = raw.decode().encode("utf-16")
        if self.has("byte order mark"):
            raw = b"\xef\xbb\xbf" + raw
        suffix = self.draw.choice((".out", ".log", "")) if self.has("wrong extension") else extension
        path = self.folder / place / f"run{number}{suffix}"
        if self.has("gzip"):
            raw, path = gzip.compress(raw), path.with_name(path.name + ".gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        stamp = (START + timedelta(days=number)).timestamp()
        os.utime(path, (stamp, stamp))
        return path


def _write_pytest(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        benches, dirty = [], writer.has("local changes")
        for name in writer.list_names():
            (value,) = writer.draw_values(1)
            is_lost = writer.has("NaN") and name == "parse"
            writer.add(number, name, [] if is_lost else [value], failed=int(is_lost))
            full = f"tests/test_x.py::{name}"
            stats = {"median": math.nan if is_lost else value, "mean": value * 1.1, "rounds": 7}
            benches.append({"name": name, "fullname": full, "options": {"timer": "perf_counter"}, "stats": stats})
        moment, revision = writer.moment(number), writer.revise(number)
        document = {
            "machine_info": {
                "node": writer.host(number), "python_implementation": "CPython", "python_version": "3.11.7",
                "cpu": {"brand_raw": "Imaginary CPU", "count": 8},
            },
            "commit_info": {"id": revision, "time": START.isoformat(), "dirty": dirty},
            "benchmarks": benches, "datetime": moment.isoformat(), "version": "5.1.0",
        }  # fmt: skip
        writer.world.told += ["local changes"] if dirty else []
        paths.append(writer.save(number, document, ".json"))
    return paths


def _write_pyperf(writer: _Writer) -> list[Path]:
    paths = []
    writer.world.options += ["--stack", "mine"]
    for number in range(writer.n_files):
        moment = writer.moment(number)
        shared = {
            "unit": "second", "loops": 1, "date": moment.strftime("%Y-%m-%d %H:%M:%S.000000"),
            "cpu_model_name": "Imaginary CPU", "cpu_count": 8, "hostname": writer.host(number),
            "python_version": "3.11.7", "python_implementation": "cpython",
        }  # fmt: skip
        benches = []
        for name in writer.list_names():
            values = writer.draw_values(4)
            writer.add(number, name, values)
            benches.append({"metadata": {"name": name}, "runs": [{"values": [value, value]} for value in values]})
        paths.append(writer.save(number, {"version": "1.0", "metadata": shared, "benchmarks": benches}, ".json"))
    return paths


def _write_asv(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        results: dict[str, list[Any]] = {}
        for name in writer.list_names():
            is_failed = writer.has("failed") and name == "parse"
            is_skipped = writer.has("NaN") and name == "parse" and not is_failed
            values = writer.draw_values(3)
            lost = is_failed or is_skipped
            writer.add(number, f"bench.time_{name}", [] if lost else values, failed=int(lost))
            result = None if is_failed else math.nan if is_skipped else statistics.median(values)
            results[f"bench.time_{name}"] = [[result], [], "v1", None if lost else [values]]
        moment = writer.moment(number)
        document = {
            "commit_hash": writer.revise(number), "env_name": "virtualenv-py3.11", "python": "3.11",
            "date": int(moment.timestamp() * 1000), "requirements": {}, "env_vars": {}, "version": 2,
            "params": {"machine": writer.host(number), "cpu": "Imaginary CPU", "num_cpu": "8"},
            "result_columns": ["result", "params", "version", "samples"], "results": results,
        }  # fmt: skip
        paths.append(writer.save(number, document, ".json"))
    return paths


def _write_amun(writer: _Writer) -> list[Path]:
    values = writer.draw_values(3)
    failed = 1 if writer.has("failed") else 0
    writer.add(0, "PiMatmul", [value * 1e3 for value in values], unit="ms", failed=failed)
    parameters = {"dtype": "float32", "device": "cpu", "reps": 50, "matrix_size": 512}
    paths = []
    writer.world.times[0] = START.isoformat()
    for number, value in enumerate([*values, *[None] * failed]):
        stdout = {
            "name": "PiMatmul", "component": "tensorflow", "@parameters": parameters,
            "@result": {"elapsed": (value or 0) * 1e3, "rate": 10.0},
        }  # fmt: skip
        document = {
            "stdout": "" if value is None else stdout, "stderr": "", "exit_code": int(value is None),
            "script_sha256": "a" * 64, "usage": {"ru_utime": 1.5}, "start_datetime": START.isoformat(),
            "hwinfo": {"cpu_info": {"brand_raw": "Imaginary CPU", "count": 8}},
        }  # fmt: skip
        paths.append(writer.save(number, document, ".json"))
    return paths


def _write_hyperfine(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        results = []
        # Names that users give to commands may be alike.
        names = writer.list_names() + (["parse text"] if writer.has("one name") else [])
        for name in names:
            times = writer.draw_values(6)
            codes: list[int | None] = [0] * 6
            if writer.has("failed") and name == "sort":
                codes[1] = 3
                if writer.has("null exit code"):
                    codes[4] = None
            kept = [time for time, code in zip(times, codes, strict=True) if code == 0]
            command = name + (" --threads 4" if writer.has("parameters") else "")
            writer.add(number, command, kept, failed=len(times) - len(kept))
            row = {
                "command": command, "mean": statistics.mean(times), "stddev": 0.01, "median": statistics.median(times),
                "user": 0.3, "system": 0.1, "min": min(times), "max": max(times), "times": times, "exit_codes": codes,
            }  # fmt: skip
            if writer.has("parameters"):
                row["parameters"] = {"threads": "4"}
            if writer.has("memory"):
                sizes = [4096 * (300 + place) for place in range(6)]
                row["memory_usage_byte"] = sizes
                good = [float(size) for size, code in zip(sizes, codes, strict=True) if code == 0]
                writer.add(number, command, good, unit="bytes", failed=6 - len(good))
            results.append(row)
        lines = writer.has("JSON lines")
        text = json.dumps({"results": results}, indent=None if lines else 2)
        paths.append(writer.save(number, text, ".json"))
    return paths


_TIME_UNITS = ("ns", "us", "ms", "s")


def _write_google(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        unit = writer.draw.choice(_TIME_UNITS) if writer.has("other time unit") else "ns"
        factor = find_unit_factor("s", unit) or 1.0
        rows: list[dict[str, Any]] = []
        is_twice = writer.has("one name") and not writer.has("only aggregates")
        for family, name in enumerate(writer.list_names() + (["sort"] if is_twice else [])):
            values = writer.draw_values(3 if writer.has("aggregates") or writer.has("only aggregates") else 1)
            lost = writer.has("failed") and name == "parse"
            skipped = writer.has("skipped") and name == "parse" and not lost
            is_nan = writer.has("NaN") and name == "sort"
            written = _list_google_rows(writer, f"BM_{name}/64", values, unit, factor, lost, skipped, is_nan)
            rows += [row | {"family_index": family, "per_family_instance_index": 0} for row in written]
            kept = [] if lost or skipped or is_nan else values
            if writer.has("only aggregates"):
                kept = [statistics.median(values)] if kept else []
            # Of a benchmark that failed, an aggregate is not written.
            if writer.has("only aggregates") and (lost or skipped):
                continue
            writer.add(
                number, f"BM_{name}/64", kept, failed=0 if kept else 1 if writer.has("only aggregates") else len(values)
            )
        moment = writer.moment(number)
        context = {
            "date": moment.isoformat(), "host_name": writer.host(number), "executable": "./bench", "num_cpus": 8,
            "mhz_per_cpu": 3000, "cpu_scaling_enabled": False, "caches": [], "load_avg": [0.1, 0.2, 0.3],
            "library_build_type": "debug" if writer.has("debug build") else "release",
        }  # fmt: skip
        writer.world.told += ["debug"] if writer.has("debug build") else []
        paths.append(writer.save(number, {"context": context, "benchmarks": rows}, ".json"))
    return paths


def _list_google_rows(
    writer: _Writer, name: str, values: list[float], unit: str, factor: float, lost: bool, skipped: bool, is_nan: bool
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    shared = {"run_name": name, "threads": 1, "time_unit": unit, "repetitions": len(values)}
    if not writer.has("only aggregates"):
        for place, value in enumerate(values):
            row = {"name": name, **shared, "run_type": "iteration", "repetition_index": place, "iterations": 1000}
            if lost:
                row |= {"error_occurred": True, "error_message": "made to fail", "real_time": 0.0, "cpu_time": 0.0}
            elif skipped:
                row |= {"skipped": True, "skip_message": "not here", "real_time": 0.0, "cpu_time": 0.0}
            else:
                row |= {"real_time": math.nan if is_nan else value * factor, "cpu_time": value * factor * 0.9}
            if writer.has("counters"):
                row["items_per_second"] = 1e6
            rows.append(row)
    if len(values) > 1 and not lost and not skipped:
        for kind in ("mean", "median", "stddev", "cv"):
            value = {"mean": statistics.mean(values) * 3, "median": statistics.median(values)}.get(kind, 1e-3)
            value = math.nan if is_nan else value
            about = {"run_type": "aggregate", "aggregate_name": kind, "aggregate_unit": "time", "iterations": 3}
            rows.append({"name": f"{name}_{kind}", **shared, **about, "real_time": value * factor, "cpu_time": 1.0})
        about = {"run_type": "aggregate", "aggregate_name": "BigO", "aggregate_unit": "time", "big_o": "N"}
        rows.append({"name": "BM_BigO", **shared, **about, "cpu_coefficient": 0.2, "real_coefficient": 0.4})
    return rows


def _write_criterion(writer: _Writer) -> list[Path]:
    paths = []
    lines_wanted = writer.has("JSON lines")
    for number in range(writer.n_files):
        unit = writer.draw.choice(_TIME_UNITS) if writer.has("other time unit") and lines_wanted else "ns"
        factor, lines = find_unit_factor("s", unit) or 1.0, []
        for name in writer.list_names():
            (value,) = writer.draw_values(1)
            writer.add(number, f"group/{name}", [value])
            if lines_wanted:
                estimate = {"estimate": value * factor, "lower_bound": 0.0, "upper_bound": 1.0, "unit": unit}
                message = {
                    "reason": "benchmark-complete", "id": f"group/{name}", "report_directory": "reports",
                    "iteration_count": [10, 20], "measured_values": [1.0, 2.0], "unit": unit, "throughput": [],
                    "typical": {**estimate, "estimate": 9.0}, "mean": estimate, "median": estimate,
                    "median_abs_dev": estimate, "slope": None, "change": None,
                }  # fmt: skip
                lines.append(json.dumps(message))
                continue
            folder = writer.folder / f"target{number}" / "criterion" / "group" / name[:60] / name[-20:]
            point = {"point_estimate": value * 1e9, "standard_error": 1.0, "confidence_interval": {}}
            for kind, scale in (("base", 7.0), ("new", 1.0)):
                (folder / kind).mkdir(parents=True)
                median = point | {"point_estimate": value * 1e9 * scale}
                estimates = {"mean": point | {"point_estimate": 1.0}, "median": median, "slope": None, "std_dev": point}
                about = {
                    "group_id": "group", "function_id": name, "value_str": None, "throughput": None,
                    "full_id": f"group/{name}", "directory_name": "x", "title": name,
                }  # fmt: skip
                (folder / kind / "benchmark.json").write_text(json.dumps(about))
                (folder / kind / "estimates.json").write_text(json.dumps(estimates))
                (folder / kind / "sample.json").write_text('{"sampling_mode": "Linear", "iters": [], "times": []}')
            stamp = (START + timedelta(days=number)).timestamp()
            os.utime(folder / "new" / "estimates.json", (stamp, stamp))
        if lines_wanted:
            lines.append(json.dumps({"reason": "group-complete", "group_name": "group", "benchmarks": []}))
            paths.append(writer.save(number, "\n".join(lines), ".json"))
        else:
            paths.append(writer.folder / f"target{number}" / "criterion")
    return paths


def _write_jmh(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        rows = []
        for name in writer.list_names():
            rate = writer.has("throughput") and name == "parse"
            unit = writer.draw.choice(_TIME_UNITS) if writer.has("other time unit") else "us"
            factor = find_unit_factor("s", unit) or 1.0
            forks = [writer.draw_values(1) * 3 for _ in range(2)]
            forks = [[value * (1 + 0.01 * place) for place, value in enumerate(fork)] for fork in forks]
            is_lost = writer.has("NaN") and name == "sort"
            means = [statistics.fmean(fork) for fork in forks]
            if rate:
                raw = [[1 / value / factor for value in fork] for fork in forks]
                means = [statistics.fmean(1 / value for value in fork) for fork in forks]
            else:
                raw = [[value * factor for value in fork] for fork in forks]
            if is_lost:
                raw[0][1] = math.nan
                means = means[1:]
            params = {"n": "100"} if writer.has("parameters") else None
            full = f"org.example.{name}"
            writer.add(
                number, full, means, unit="ops/s" if rate else "s", better="higher" if rate else "lower",
                failed=int(is_lost),
            )  # fmt: skip
            histogram = writer.has("histogram") and not rate
            metric: dict[str, Any] = {
                "score": 1.0, "scoreError": "NaN", "scoreConfidence": ["NaN", "NaN"], "scorePercentiles": {"50.0": 1.0},
                "scoreUnit": f"ops/{unit}" if rate else f"{unit}/op",
            }  # fmt: skip
            if histogram:
                metric["rawDataHistogram"] = [[[[value, 2] for value in fork]] for fork in raw]
            else:
                metric["rawData"] = raw
            row = {
                "jmhVersion": "1.37", "benchmark": full, "mode": "thrpt" if rate else "sample" if histogram else "avgt",
                "threads": 1, "forks": 2, "jvm": "/usr/bin/java", "jdkVersion": "17.0.1", "vmName": "OpenJDK",
                "primaryMetric": metric, "secondaryMetrics": {},
            }  # fmt: skip
            rows.append(row | ({"params": params} if params else {}))
        paths.append(writer.save(number, rows, ".json"))
    return paths


def _write_go(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        lines = [f"commit: {writer.revise(number)}"] if writer.has("commit") else []
        packages = ["example.com/a", "example.com/b"] if writer.has("packages") else ["example.com/a"]
        for package in packages:
            if not writer.has("no header"):
                cpu = "Imaginary CPU" if writer.host(number) == "alpha" else "Other CPU"
                lines += ["goos: linux", "goarch: amd64", f"pkg: {package}", f"cpu: {cpu}"]
            if writer.has("told unit"):
                lines.append("Unit widgets/op better=higher")
            prefix = "" if writer.has("no header") else f"{package}."
            for name in writer.list_names():
                full = f"Benchmark{name.title().replace(' ', '')}/n=10-8"
                values = [float(f"{value * 1e9:.4g}") for value in writer.draw_values(3)]
                for value in values:
                    parts = [full, "1000", f"{value:.4g} ns/op".replace("e+0", "e+0")]
                    if writer.has("custom unit") or writer.has("told unit"):
                        parts.append(f"{value * 2:.4g} widgets/op")
                    if writer.has("allocations"):
                        parts += ["112 B/op", "2 allocs/op"]
                    lines.append("\t".join(parts))
                writer.add(number, prefix + full, [value / 1e9 for value in values])
                if writer.has("allocations"):
                    writer.add(number, prefix + full, [112.0] * 3, unit="B/op")
                    writer.add(number, prefix + full, [2.0] * 3, unit="allocs/op")
                if writer.has("told unit"):
                    told = [float(f"{value * 2:.4g}") for value in values]
                    writer.add(number, prefix + full, told, unit="widgets/op", better="higher")
            if writer.has("failed"):
                lines += ["--- FAIL: BenchmarkBad", "    x_test.go:4: made to fail", "FAIL", "exit status 1"]
                writer.add(number, f"{prefix}BenchmarkBad", [], failed=1)
            if not writer.has("no header"):
                lines.append(f"FAIL\t{package}\t1.2s" if writer.has("failed") else f"PASS\nok  \t{package}\t1.2s")
        if writer.has("custom unit") and not writer.has("told unit"):
            writer.world.told.append("widgets/op")
        text = "\n".join(lines) + "\n"
        if writer.has("test2json"):
            message = {"Time": writer.moment(number).isoformat(), "Action": "output"}
            text = "".join(
                json.dumps(message | {"Package": "p", "Output": line}, separators=(",", ":")) + "\n"
                for line in text.splitlines(keepends=True)
            )
        paths.append(writer.save(number, text, ".txt"))
    return paths


def _write_codspeed(writer: _Writer) -> list[Path]:
    paths = []
    for number in range(writer.n_files):
        rows = []
        for name in writer.list_names():
            (value,) = writer.draw_values(1)
            stats = {"mean_ns": 5.0, "median_ns": value * 1e9, "rounds": 99, "iter_per_round": 7, "total_time": 1.0}
            rows.append({"name": name, "uri": f"tests/test_x.py::{name}", "config": {}, "stats": stats})
            writer.add(number, name, [value])
        instrument: dict[str, Any] = {"type": "walltime", "clock_info": {"implementation": "x", "resolution": 1e-9}}
        if writer.has("other instrument"):
            instrument, rows = {"type": "valgrind"}, [row | {"stats": None} for row in rows]
            writer.world.expected, writer.world.naming = "refusal", "walltime"
        document = {
            "creator": {"name": "pytest-codspeed", "version": "5.0.4", "pid": 7},
            "python": {"sysconfig": {"py_version": "3.11.7"}, "dependencies": {}},
            "instrument": instrument, "benchmarks": rows,
        }  # fmt: skip
        paths.append(writer.save(number, document, ".json"))
    return paths


def _write_csv(writer: _Writer) -> list[Path]:
    mark = ";" if writer.has("semicolons") else ","
    rows = [mark.join(("time", "series", "value", "unit", "direction", "commit", "machine"))]
    number = 0
    for night in range(4):
        zone = timezone(timedelta(hours=(9, -8)[night % 2])) if writer.has("offset") else UTC
        moment = (START + timedelta(days=night)).astimezone(zone)
        for host in ("alpha", "beta") if writer.has("two hosts") else ("alpha",):
            writer.world.hosts[number] = host
            writer.world.times[number] = moment.astimezone(UTC).isoformat()
            revision = writer.revise(number)
            for name in writer.list_names():
                higher = writer.has("higher") and name == "sort"
                (value,) = writer.draw_values(1)
                lost = (writer.has("NaN") or writer.has("failed")) and name == "sort" and night == 2
                better: Better = "higher" if higher else "lower"
                unit = "MB/s" if higher else "ms"
                writer.add(
                    number, name, [] if lost else [value * (1 if higher else 1e3)], unit=unit, better=better,
                    failed=int(lost),
                )  # fmt: skip
                shown = ("" if writer.has("failed") else "NaN") if lost else repr(value * (1 if higher else 1e3))
                when = (
                    moment.strftime("%Y-%m-%d %H:%M:%S")
                    if writer.has("local time") and zone is UTC
                    else moment.isoformat()
                )
                rows.append(mark.join((when, name, shown, unit, better, revision, host)))
            number += 1
    return [writer.save(0, "\n".join(rows), ".csv")]


WRITERS: dict[str, Callable[[_Writer], list[Path]]] = {
    "pytest-benchmark": _write_pytest,
    "pyperf": _write_pyperf,
    "asv": _write_asv,
    "amun": _write_amun,
    "hyperfine": _write_hyperfine,
    "google-benchmark": _write_google,
    "criterion": _write_criterion,
    "jmh": _write_jmh,
    "go-bench": _write_go,
    "codspeed": _write_codspeed,
    "csv": _write_csv,
}


@dataclass(frozen=True)
class Judged:
    """What was said of a world, and what of it is not so."""

    world: World
    state: Literal["right", "refused", "wrong"]
    answer: str = ""
    wrong: list[str] = field(default_factory=list)


def judge_world(seed: int, tools: tuple[str, ...] = TOOLS) -> Judged:
    """Import a world's files and hold what the database says against the truth."""
    world = draw_world(seed, tools)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = folder / "files"
        files.mkdir()
        if world.tool.startswith("foreign: "):
            paths = [write_foreign(world.tool.removeprefix("foreign: "), files, world.draw)]
        else:
            paths = WRITERS[world.tool](_Writer(world, files, world.draw))
        given = [str(path) for path in paths]
        if len(paths) > 1 and world.seed % 2 and world.tool != "criterion":
            given = [str(files)]
        asked = ["import", *given, "--out", str(folder / "sessions"), "--json", *world.options]
        found = CliRunner().invoke(app, asked)
        if isinstance(found.exception, WorkbenchError):
            return _judge_refusal(world, str(found.exception))
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            return Judged(world, "wrong", found.output, [f"crashed: {found.exception!r}"])
        if world.expected == "refusal":
            return Judged(world, "wrong", found.output, ["imported what is no result of a supported tool"])
        if found.exit_code == 1:
            values = sum(len(figure.values) for figure in world.figures)
            return Judged(world, "wrong" if values else "right", found.output, ["no value"] if values else [])
        wrong = _judge_database(world, folder, json.loads(found.stdout))
        return Judged(world, "wrong" if wrong else "right", found.output, wrong)


def _judge_refusal(world: World, said: str) -> Judged:
    if world.expected == "refusal":
        is_named = world.naming.lower() in " ".join(said.split()).lower()
        return Judged(world, "right" if is_named else "wrong", said, [] if is_named else [f"{world.naming} not named"])
    return Judged(world, "right" if world.expected == "either" else "refused", said)


def _judge_database(world: World, folder: Path, document: dict[str, Any]) -> list[str]:
    """Hold sessions, series and runs against the truth."""
    with open_database(str(folder / "a.db")) as database:
        sync_sessions([folder / "sessions"], database)
        observations = run_query(database, "observations", max_rows=100_000).frame.to_dicts()
        runs = run_query(database, "runs", max_rows=100_000).frame.to_dicts()
    sessions = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("sessions/*/session.json")}
    told = json.dumps([document["problems"], document["notices"]]).lower()
    stacks = " ".join(f"{row['arm']} {row['stack']}" for row in runs).lower()
    wrong = [f"unknown: {words}" for words in world.told if words.lower() not in told + stacks]
    if world.expected == "either" and (document["problems"] or document["notices"]):
        # What is left of a damaged file must be true all the same.
        return wrong + _judge_rest(world, observations)
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in observations:
        key = (row["session_id"], row["metric"], f"{row['unit']} {row['better']}")
        groups.setdefault(key, []).append(row["value"])
    # Of each figure that has values, one group with its unit, direction, number of runs and median.
    left = dict(groups)
    pairs: dict[int, str] = {}
    for figure in world.figures:
        if not figure.values or figure.better is None:
            continue
        hits = [key for key, values in left.items() if _agrees(figure, key, values)]
        hits = [key for key in hits if pairs.get(figure.session, key[0]) == key[0]] or hits
        if not hits:
            median = statistics.median(figure.values)
            wrong.append(f"not there: {figure.name[-30:]} {median:.4g} {figure.unit} n={len(figure.values)}")
            continue
        pairs.setdefault(figure.session, hits[0][0])
        left.pop(hits[0])
    wrong += [f"not true: {key[1][:40]} {values[:3]} {key[2]}" for key, values in left.items()]
    n_failed = sum(figure.failed for figure in world.figures)
    found_failed = sum(row["status"] != "ok" for row in runs)
    if found_failed != n_failed:
        wrong.append(f"{found_failed} failed runs of {n_failed}")
    return wrong + _judge_sessions(world, sessions, pairs)


def _agrees(figure: Figure, key: tuple[str, str, str], values: list[float]) -> bool:
    unit, better = key[2].rsplit(" ", 1)
    factor = find_unit_factor(figure.unit, unit)
    if factor is None or better != figure.better or len(values) != len(figure.values):
        return False
    expected, found = statistics.median(figure.values) * factor, statistics.median(values)
    return math.isclose(found, expected, rel_tol=1e-6) and figure.name[:20] in key[1]


def _judge_rest(world: World, observations: list[dict[str, Any]]) -> list[str]:
    """Each value that was read of a damaged file is one of the truth, in its unit."""
    wrong = []
    for row in observations:
        same = [
            value * factor
            for figure in world.figures
            if (factor := find_unit_factor(figure.unit, row["unit"])) is not None and figure.name[:20] in row["metric"]
            for value in figure.values
        ]
        if not any(math.isclose(row["value"], value, rel_tol=1e-6) for value in same):
            wrong.append(f"of a damaged file: {row['metric'][:40]} {row['value']:.6g} {row['unit']}")
    return wrong


def _judge_sessions(world: World, sessions: dict[str, Any], pairs: dict[int, str]) -> list[str]:
    """Times, commits and machines of the sessions."""
    wrong = []
    if len(set(pairs.values())) != len(pairs):
        wrong.append(f"{len(set(pairs.values()))} sessions of {len(pairs)}")
    machines: dict[str, set[str]] = {}
    for number, session_id in pairs.items():
        row = sessions[session_id]
        time, revision = world.times.get(number), world.revisions.get(number)
        if time is not None and row["created_at"][:19] != time[:19]:
            wrong.append(f"measured at {row['created_at']}, not {time}")
        if time is None and not row["created_at"]:
            wrong.append("no time, so no place in a history")
        if revision is not None and row["revision"] != revision:
            wrong.append(f"commit {row['revision']}, not {revision}")
        if number in world.hosts:
            machines.setdefault(world.hosts[number], set()).add(row["hardware"]["key"])
    if len(machines) == 2 and set.intersection(*machines.values()):
        wrong.append("two hosts are one machine")
    wrong += [f"{host} is {len(keys)} machines" for host, keys in machines.items() if len(keys) > 1]
    return wrong


def describe_findings(found: list[Judged], show: int) -> list[str]:
    """Counts by state, tool and trait, and the first that are wrong or refused."""
    states = Counter(one.state for one in found)
    lines = [f"{len(found)} worlds: {dict(states)}"]
    for state in ("wrong", "refused"):
        ones = [one for one in found if one.state == state]
        if not ones:
            continue
        lines.append(f"{state} by tool: {dict(Counter(one.world.tool for one in ones).most_common())}")
        lines.append(f"{state} by trait: {dict(Counter(t for one in ones for t in one.world.traits).most_common())}")
        for one in ones[:show]:
            lines.append(f"  {one.world.seed} {one.world.tool} {sorted(one.world.traits)}")
            lines += [f"      {text}" for text in one.wrong[:3]]
            lines += [f"      {' '.join(one.answer.split())[:300]}"] if state == "refused" else []
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--earlier", action="store_true", help="only the four formats of the first importers")
    parser.add_argument("--show", type=int, default=10, help="wrong and refused worlds to print")
    chosen = parser.parse_args()
    tools = EARLIER_TOOLS if chosen.earlier else TOOLS
    seeds = range(chosen.first, chosen.first + chosen.n)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        found = list(pool.map(judge_world, seeds, [tools] * len(seeds), chunksize=5))
    sys.stdout.write("\n".join(describe_findings(found, chosen.show)) + "\n")


if __name__ == "__main__":
    main()
