from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyperf
import pytest

from tests.indicators.store import making
from workbench.core.errors import InputError
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.store.archive import inspection_id, write_result
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.benchmark_import import import_results
from workbench.indicators.store.import_formats import ImportOptions, detect_format
from workbench.indicators.store.pyperf_suites import export_session
from workbench.indicators.store.session_import import ImportReport
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.store.sql_queries import Filters, run_query

SORTED, SCANNED = making.planned(making.PiSorted), making.planned(making.PiScanned)


def import_suites(paths: list[Path], out: Path, **options: Any) -> ImportReport:
    return import_results("pyperf", paths, out, ImportOptions(**options))


def suite(path: Path, values: dict[str, list[float]], **metadata: Any) -> Path:
    """A suite as pyperf writes it: a calibration, then one process for each value, which it has twice."""
    benchmarks = []
    for name, found in values.items():
        told = {"name": name, "unit": "second", "cpu_model_name": "Model X", "python_version": "3.11.2", **metadata}
        first = pyperf.Run([], warmups=[(1, 0.5)], metadata=told | {"calibrate_loops": 1}, collect_metadata=False)
        runs = [
            pyperf.Run([value, value], warmups=[(1, 9.0)], metadata=told, collect_metadata=False) for value in found
        ]
        benchmarks.append(pyperf.Benchmark([first, *runs]))
    pyperf.BenchmarkSuite(benchmarks).dump(str(path))
    return path


def test_a_suite_for_each_arm_holds_its_metrics_in_pyperfs_units(tmp_path: Path) -> None:
    making.archive(tmp_path / "a", making.session(cases=(SORTED, SCANNED)))

    exported = export_session(tmp_path / "a", tmp_path / "out")

    assert [path.name for path in exported.paths] == ["2.2.6.json", "control.json", "2.4.6.json"]
    assert (exported.benchmarks, exported.runs, exported.notes) == (9, 36, [])
    found = pyperf.BenchmarkSuite.load(str(exported.paths[0]))
    assert {one.get_name(): (one.get_unit(), list(one.get_values())) for one in found} == {
        "PiSorted": ("second", [0.001, 0.001125, 0.00125, 0.001375]),
        "PiScanned.elapsed_s": ("second", [1.0, 1.125, 1.25, 1.375]),
        "PiScanned.peak_mib": ("byte", [2097152, 2359296, 2621440, 2883584]),
    }
    metadata = found.get_benchmark("PiSorted").get_metadata()
    assert metadata["cpu_model_name"] == "Model X"
    assert metadata["python_version"] == "3.11.2"
    assert metadata["load_avg_1min"] == 0.5


def test_one_file_holds_all_arms_and_a_session_without_anything_for_pyperf_is_refused(tmp_path: Path) -> None:
    making.archive(tmp_path / "a")
    assert export_session(tmp_path / "a", tmp_path / "all.json").paths == [tmp_path / "all.json"]
    found = pyperf.BenchmarkSuite.load(str(tmp_path / "all.json"))
    assert found.get_benchmark_names() == ["PiSorted, 2.2.6", "PiSorted, control", "PiSorted, 2.4.6"]
    making.archive(tmp_path / "b", runs=0)
    with pytest.raises(InputError, match="no metric with a unit supported by pyperf"):
        export_session(tmp_path / "b", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_importing_again_gives_the_same_session_and_a_compressed_suite_another_stack(tmp_path: Path) -> None:
    path = suite(tmp_path / "x.json", {"sort": [0.5]}, hostname="a-machine-of-mine")
    first, again = import_suites([path], tmp_path / "out").sessions, import_suites([path], tmp_path / "out").sessions
    assert first[0].session == again[0].session
    texts = [file.read_text() for file in first[0].folder.rglob("*") if file.is_file()]
    assert not any("a-machine-of-mine" in text for text in texts)
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    (one,) = import_suites([path, packed], tmp_path / "out").sessions
    assert [arm.name for arm in one.session.arms] == ["x", "x-1"]


def test_pyperf_itself_compares_two_exported_arms(tmp_path: Path) -> None:
    session = making.archive(tmp_path / "a")
    for number in range(4):
        slow = making.run(session, SORTED, "2.4.6", number, stdout=making.stdout_of(SORTED, 10.0 + number / 8))
        write_result(tmp_path / "a", inspection_id("s-1", "2.4.6", SORTED.label), number, slow)
    export_session(tmp_path / "a", tmp_path / "out")

    command = [sys.executable, "-m", "pyperf", "compare_to", "2.2.6.json", "2.4.6.json"]
    told = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=120, check=True)

    assert "Mean +- std dev: [2.2.6] 1.19 ms" in told.stdout
    assert "[2.4.6] 10.2 ms" in told.stdout
    assert "slower" in told.stdout


def test_what_pyperf_has_no_unit_for_is_left_out_and_named(tmp_path: Path) -> None:
    rate = SCANNED.metrics[0].model_copy(update={"unit": "GFLOP/s", "name": "rate"})
    case = SCANNED.model_copy(update={"metrics": (rate, SCANNED.metrics[1])})
    making.archive(tmp_path / "a", making.session(cases=(case,)))

    exported = export_session(tmp_path / "a", tmp_path / "out")

    assert exported.notes == ["rate: pyperf has no unit for GFLOP/s"]
    assert exported.benchmarks == 3


def test_failed_runs_and_values_of_zero_are_left_out(tmp_path: Path) -> None:
    session = making.archive(tmp_path / "a", runs=3)
    where = inspection_id("s-1", "control", SORTED.label)
    zero = making.stdout_of(SORTED, 1.0) | {"@result": {"elapsed_ms": 0.0, "rate": None}}
    write_result(tmp_path / "a", where, 1, making.run(session, SORTED, "control", 1, status="timeout", stdout={}))
    write_result(tmp_path / "a", where, 2, making.run(session, SORTED, "control", 2, stdout=zero))

    exported = export_session(tmp_path / "a", tmp_path / "out")

    assert list(pyperf.Benchmark.load(str(tmp_path / "out" / "control.json")).get_values()) == [0.001]
    assert exported.notes == ["PiSorted: pyperf only supports values above 0"]


def test_names_of_arms_are_no_paths(tmp_path: Path) -> None:
    arms = tuple(making.arm(name, "1.0") for name in ("../../x", "..\\..\\x", "a\nb"))
    making.archive(tmp_path / "a", making.session(arms=arms, baseline=arms[0].name))

    exported = export_session(tmp_path / "a", tmp_path / "deep" / "out")

    assert {path.parent for path in exported.paths} == {tmp_path / "deep" / "out"}
    assert len(set(exported.paths)) == 3


def test_each_suite_is_a_stack_and_each_process_a_run(tmp_path: Path) -> None:
    first = suite(tmp_path / "old.json", {"sort": [0.5, 0.25], "join": [2.0]})
    other = suite(tmp_path / "new.json", {"sort": [0.125, 0.25]})

    (one,) = import_suites([first, other], tmp_path / "out").sessions

    session, found = one.session, load_observations(one.folder)
    assert (session.backend, session.design, session.baseline) == ("imported", "blocks", "old")
    assert [arm.name for arm in session.arms] == ["old", "new"]
    assert (one.runs, one.ok) == (5, 5)
    assert found.values.select("metric", "arm", "round", "value", "unit").rows() == [
        ("sort", "old", 0, 0.5, "s"),
        ("sort", "old", 1, 0.25, "s"),
        ("sort", "new", 0, 0.125, "s"),
        ("sort", "new", 1, 0.25, "s"),
        ("join", "old", 0, 2.0, "s"),
    ]
    assert session.cases[1].skipped == {"new": "no run was imported"}


def test_what_was_exported_comes_back_with_the_same_values(tmp_path: Path) -> None:
    making.archive(tmp_path / "a", making.session(cases=(SCANNED,)))
    export_session(tmp_path / "a", tmp_path / "suites")

    (one,) = import_suites([tmp_path / "suites"], tmp_path / "out", baseline="2.2.6").sessions

    before, after = (
        load_observations(folder).values.select("metric", "arm", "round", "value").rows()
        for folder in (tmp_path / "a", one.folder)
    )
    assert sorted(after) == sorted((*row, value * (2**20 if row[0].endswith("mib") else 1)) for *row, value in before)
    assert (one.session.baseline, one.session.hardware.cpu_model) == ("2.2.6", "Model X")
    with open_database(tmp_path / "x.db") as database:
        assert sync_sessions([one.folder], database).failed == 0
        typed = run_query(database, "values", Filters(indicator="PyperfSeconds")).frame
        assert typed.select("benchmark", "elapsed_s").row(0) == ("PiScanned.elapsed_s", 1.0)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"benchmarks": []}', '{"version": "1.0", "benchmarks": [{"runs": [{"values": ["x"]}]}]}',
     '{"version": "99", "benchmarks": [{}]}', '{"version": "1.0", "benchmarks": 7}',
     '{"version": "1.0", "benchmarks": [{"runs": [{"values": [-1.0]}]}]}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(InputError, match=r"not a pyperf suite|nested too deeply"):
        import_suites([path], tmp_path / "out")


def test_what_is_not_there_or_damaged_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(suite(tmp_path / "whole", {"sort": [0.5]}).read_bytes()))
    packed[12:40] = bytes(28)
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json.gz").write_bytes(b"no gzip")
    (tmp_path / "damaged.json.gz").write_bytes(packed)
    os.mkfifo(tmp_path / "fifo.json")
    for name, told in (
        ("none.json", "cannot be read"),
        ("empty", "no pyperf suite"),
        ("x.json.gz", "not a pyperf suite"),
        ("damaged.json.gz", "a damaged gzip file"),
        ("fifo.json", "not a regular file"),
    ):
        with pytest.raises(InputError, match=told):
            import_suites([tmp_path / name], tmp_path / "out")
    (tmp_path / "empty" / "x.json").symlink_to(tmp_path / "whole")
    with pytest.raises(InputError, match="link to a target outside"):
        import_suites([tmp_path / "empty"], tmp_path / "out")


@pytest.mark.parametrize("duration", ["Infinity", "true", "1" + 400 * "0"])
def test_a_duration_that_is_none_is_null(tmp_path: Path, duration: str) -> None:
    path = suite(tmp_path / "x.json", {"sort": [0.5]}, duration=12.25)
    path.write_text(path.read_text().replace("12.25", duration))

    (one,) = import_suites([path], tmp_path / "out").sessions

    assert load_observations(one.folder).runs["duration_s"].to_list() == [None]


def test_the_same_figures_from_two_machines_are_two_sessions(tmp_path: Path) -> None:
    found = []
    for name in "XY":
        path = suite(tmp_path / "suite", {"sort": [0.5]}, cpu_model_name=f"Model {name}").rename(tmp_path / "x.json")
        found += import_suites([path], tmp_path / "out").sessions
    assert [one.session.hardware.cpu_model for one in found] == ["Model X", "Model Y"]
    assert found[0].folder != found[1].folder


def test_a_suite_is_told_from_other_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"name": "PiMatmul", "@result": {}}))

    assert detect_format(suite(tmp_path / "s.json", {"sort": [0.5]})) == "pyperf"
    assert detect_format(tmp_path / "x.json") == "amun"


@pytest.mark.timeout(60)
def test_names_that_are_taken_get_the_next_free_number(tmp_path: Path) -> None:
    for folder, name in (("x", "run"), ("x", "run-1"), ("x", "run-2"), ("y", "run"), ("z", "run")):
        (tmp_path / folder).mkdir(exist_ok=True)
        suite(tmp_path / folder / f"{name}.json", {"sort": [0.5 + len(folder)]})
    paths = [tmp_path / place for place in ("x/run.json", "x/run-1.json", "x/run-2.json", "y/run.json", "z/run.json")]
    (one,) = import_suites(paths, tmp_path / "out").sessions
    assert [arm.name for arm in one.session.arms] == ["run", "run-1", "run-2", "run-3", "run-4"]

    arms = tuple(making.arm(name, "1.0") for name in ("a/b", "a-b-1", "a:b", "a b"))
    making.archive(tmp_path / "s", making.session(arms=arms, baseline=arms[0].name))
    exported = export_session(tmp_path / "s", tmp_path / "suites")
    assert [path.name for path in exported.paths] == ["a-b.json", "a-b-1.json", "a-b-2.json", "a-b-3.json"]
