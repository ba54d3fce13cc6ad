"""Results of benchmark tools, as these tools wrote them, give the figures that the tools printed."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from workbench.core.errors import ConfigError, InputError
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.command import app
from workbench.indicators.store.import_formats import detect_format

RECORDED = Path(__file__).parent / "recorded"
# Metric, number of runs, and what the tool itself printed: the median, of JMH the score.
PRINTED: dict[str, dict[str, tuple[int, str, str, float]]] = {
    "hyperfine.json": {
        "sleep 0.05": (5, "s", "lower", 0.05339266),
        "sleep 0.01 (n=1)": (4, "s", "lower", 0.01224164),
        "sleep 0.05 [memory]": (5, "bytes", "lower", 3309568),
    },
    "google.json": {
        "BM_Sum/64": (3, "s", "lower", 23.58e-9),
        "BM_Sum/4096": (3, "s", "lower", 1408.5e-9),
        "BM_Slow": (3, "s", "lower", 0.08389e-3),
    },
    "jmh.json": {
        "probe.Sums.rate(n=100) [thrpt]": (2, "ops/s", "higher", 49_979.064e3),
        "probe.Sums.average(n=100) [avgt]": (2, "s", "lower", 22.943e-9),
        "probe.Sums.shot(n=100) [ss]": (2, "s", "lower", 3.378e-6),
    },
    "criterion": {"sum plain": (1, "s", "lower", 1.3508e-6), "sum by size/xor/100": (1, "s", "lower", 13.5366e-9)},
    "criterion.jsonl": {"sum by size/xor/10000": (1, "s", "lower", 1.34259e-6)},
    "go.txt": {
        "example.com/probe/b.BenchmarkSum-2": (3, "s", "lower", 273.2e-9),
        "example.com/probe/b.BenchmarkCopy/n=10000-2": (3, "s", "lower", 5157e-9),
        "example.com/probe/b.BenchmarkCopy/n=100-2 [MB/s]": (3, "MB/s", "higher", 1941.08),
        "example.com/probe/b.BenchmarkCopy/n=100-2 [B/op]": (3, "B/op", "lower", 112),
    },
    "codspeed.json": {"test_x.py::test_sum": (1, "s", "lower", 208.3157e-6)},
}


def call(*arguments: object) -> Result:
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def import_json(out: Path, *arguments: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(call("import", *arguments, "--out", out, "--json").stdout)
    return document


def read_session(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    session: dict[str, Any] = json.loads((Path(document["sessions"][number]["folder"]) / "session.json").read_text())
    return session


@pytest.mark.parametrize("name", PRINTED)
def test_a_recorded_result_has_the_figures_that_its_tool_printed(name: str, tmp_path: Path) -> None:
    (entry,) = import_json(tmp_path, RECORDED / name)["sessions"]
    values = load_observations(Path(entry["folder"])).values
    for metric, (n, unit, better, printed) in PRINTED[name].items():
        rows = values.filter(values["metric"] == metric)
        assert (rows.height, rows["unit"][0], rows["better"][0]) == (n, unit, better)
        figure = statistics.fmean if name == "jmh.json" else statistics.median
        assert math.isclose(figure(rows["value"].to_list()), printed, rel_tol=1e-3)


@pytest.mark.parametrize(
    ("name", "failures", "notices"),
    [
        ("hyperfine.json", {"exit code 3": 5}, ["no machine in the file"]),
        ("google.json", {"failed: made to fail": 3}, ["a debug build", "counters", "0 in every run"]),
        ("jmh.json", {}, ["secondary metrics"]),
        ("go.txt", {"failed: see the output": 1, "a panic": 1}, ["a package several times", "widgets/op: direction"]),
    ],
)
def test_what_failed_and_what_was_left_out_is_told(
    name: str, failures: dict[str, int], notices: list[str], tmp_path: Path
) -> None:
    document = import_json(tmp_path, RECORDED / name)
    told = document["sessions"][0]["failures"]
    for reason, count in failures.items():
        assert count in [number for text, number in told.items() if reason in text]
    for notice in notices:
        assert any(text.startswith(notice) for text in document["notices"]), notice


def test_a_debug_build_is_a_stack_of_its_own_and_cpu_time_stands_beside(tmp_path: Path) -> None:
    document = import_json(tmp_path, RECORDED / "google.json")
    assert [arm["name"] for arm in read_session(document)["arms"]] == ["Google Benchmark, debug build"]
    values = load_observations(Path(document["sessions"][0]["folder"])).values
    assert values.filter(values["metric"] == "BM_Sum/64")["other_value"][0] == pytest.approx(16.07e-9, rel=1e-3)


def test_what_the_tool_does_not_tell_the_user_can(tmp_path: Path) -> None:
    given = ("--revision", "abc123", "--time", "2026-01-02T03:00:00+03:00", "--machine", "ci", "--stack", "sums")
    document = import_json(tmp_path, RECORDED / "hyperfine.json", *given)
    session = read_session(document)
    assert (session["revision"], session["created_at"]) == ("abc123", "2026-01-02T00:00:00+00:00")
    assert (session["hardware"]["cpu_model"], session["arms"][0]["name"]) == ("ci", "sums")
    assert document["notices"] == {}
    with pytest.raises(ConfigError, match="the file already states its time"):
        call("import", RECORDED / "google.json", "--out", tmp_path, "--time", "2026-01-02")
    with pytest.raises(ConfigError, match="not a commit"):
        call("import", RECORDED / "go.txt", "--out", tmp_path, "--revision", "a b")


def test_without_a_time_the_last_change_of_a_file_counts_and_equal_ones_are_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        path = tmp_path / "in" / f"{number}.json"
        path.write_text((RECORDED / "hyperfine.json").read_text().replace("0.04917", f"0.0491{number}"))
        os.utime(path, (1_793_534_400, 1_793_534_400))
    document = import_json(tmp_path / "out", tmp_path / "in")
    assert read_session(document)["created_at"] == "2026-11-01T12:00:00+00:00"
    assert any("changed at the same moment" in text for text in document["notices"])


def test_files_of_two_tools_are_refused_and_of_a_folder_the_others_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="files of several tools"):
        call("import", RECORDED / "go.txt", RECORDED / "jmh.json", "--out", tmp_path / "out")
    for name in ("go.txt", "jmh.json", "README.md"):
        (tmp_path / "in").mkdir(exist_ok=True)
        shutil.copy(RECORDED / name, tmp_path / "in" / name)
    document = import_json(tmp_path / "out", tmp_path / "in")
    problems = {Path(one["path"]).name: one["reason"] for one in document["problems"]}
    assert set(problems) == {"README.md", "jmh.json"}
    assert "of jmh" in problems["jmh.json"]


def test_a_benchmark_stays_one_series_when_its_tool_changes_the_unit(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for night in range(24):
        unit, factor = ("ns", 1e9) if night % 2 else ("ms", 1e3)
        time_s = 2e-3 * (1.5 if night >= 12 else 1.0) * (1 + 0.002 * (night % 3))
        row = {"name": "BM_Sort", "run_type": "iteration", "real_time": time_s * factor, "time_unit": unit}
        context = {"date": f"2026-03-{night + 1:02}T02:00:00+00:00", "host_name": "h", "library_build_type": "release"}
        (tmp_path / "in" / f"{night:02}.json").write_text(json.dumps({"context": context, "benchmarks": [row]}))
    call("import", tmp_path / "in", "--out", tmp_path / "out")
    call("sync", tmp_path / "out", "--database", tmp_path / "a.db")
    found = json.loads(call("history", "--absolute", "--database", tmp_path / "a.db", "--json").stdout)
    (change,) = found["changes"]
    assert change["ratio"] == pytest.approx(1 / 1.5, rel=0.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,series,value,unit\n2026-01-01,a,1,s\n", "missing: direction"),
        ("time,series,value,unit,direction,host\n2026-01-01,a,1,s,lower,h\n", "unknown: host"),
        ("time,series,value,unit,direction\n01/02/2026,a,1,s,lower\n", "line 2"),
        ("time,series,value,unit,direction\n1767225600,a,1,s,lower\n", "not a time"),
        ("time;series;value;unit;direction\n2026-01-01;a;1,5;s;lower\n", "a decimal point"),
        ("time,series,value,unit,direction\n2026-01-01,a,1,s,down\n", "lower or higher"),
        ("time,series,value,unit,direction\n2026-01-01,a,1,s,lower\n2026-01-02,a,1,MB,lower\n", "two units"),
        ("time,series,value,unit,direction\n2026-01-01,a,1,s,lower\n2026-01-02,a,1,s,higher\n", "directions"),
        ("time,series,value,unit,direction\n2026-01-01,a,1,s\n", "4 cells of 5"),
    ],
)
def test_a_csv_that_says_something_else_is_refused_by_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        call("import", tmp_path / "a.csv", "--out", tmp_path / "out")
    assert told in str(caught.value)


def test_rows_of_a_csv_are_points_with_unit_direction_commit_and_machine(tmp_path: Path) -> None:
    rows = ["2026-01-01T00:00:00+02:00,latency,5,ms,lower,aa1,m-1", "2026-01-02,latency,0.006,s,lower,aa2,m-1"]
    text = "\n".join(["time,series,value,unit,direction,commit,machine", *rows, rows[0]]) + "\n"
    (tmp_path / "a.csv").write_text(text)
    document = import_json(tmp_path / "out", tmp_path / "a.csv")
    sessions = [read_session(document, number) for number in range(2)]
    assert [(one["created_at"], one["revision"]) for one in sessions] == [
        ("2025-12-31T22:00:00+00:00", "aa1"),
        ("2026-01-02T00:00:00+00:00", "aa2"),
    ]
    values = [load_observations(Path(one["folder"])).values.row(0, named=True) for one in document["sessions"]]
    assert [(one["metric"], one["value"], one["unit"]) for one in values] == [
        ("latency", 0.005, "s"),
        ("latency", 0.006, "s"),
    ]
    assert "a repeated row: counted once" in document["notices"]


def test_go_tells_the_direction_of_a_unit_and_the_commit_in_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "bench.txt"
    path.write_text("commit: 7cd9055\nUnit hits/op better=higher\nBenchmarkX-8 100 5 ns/op 3 hits/op\n")
    document = import_json(tmp_path / "out", path)
    assert read_session(document)["revision"] == "7cd9055"
    values = load_observations(Path(document["sessions"][0]["folder"])).values
    assert ("BenchmarkX-8 [hits/op]", "higher") in values.select("metric", "better").rows()


def test_old_results_in_a_tree_of_criterion_are_told(tmp_path: Path) -> None:
    tree = tmp_path / "target" / "criterion"
    shutil.copytree(RECORDED / "criterion", tree)
    for number, path in enumerate(sorted(tree.glob("**/estimates.json"))):
        os.utime(path, (1_793_534_400 + 86_400 * number,) * 2)
    assert detect_format(tmp_path) == "criterion"
    document = import_json(tmp_path / "out", tmp_path)
    assert [count for text, count in document["notices"].items() if "hours before the newest" in text] == [2]
    (one,) = import_json(tmp_path / "out", next(tree.glob("sum_plain/new/estimates.json")))["sessions"]
    assert one["runs"] == 1
