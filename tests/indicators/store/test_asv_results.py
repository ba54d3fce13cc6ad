from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from workbench.core.errors import ConfigError, InputError
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.command import app
from workbench.indicators.store import asv_results, benchmark_import
from workbench.indicators.store.asv_results import FAILED, SKIPPED
from workbench.indicators.store.import_formats import ImportOptions, detect_format
from workbench.indicators.store.session_import import ImportedSession, ImportReport

RECORDED = Path(__file__).parents[3] / "data" / "samples" / "indicators" / "asv" / "results"
COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]


def import_results(paths: list[Path], out: Path, machine: str = "") -> ImportReport:
    return benchmark_import.import_results("asv", paths, out, ImportOptions(machine=machine))


def load_recorded() -> dict[str, Any]:
    """The recorded result files by commit."""
    found = [json.loads(file.read_text()) for file in sorted(RECORDED.glob("sample/*-*.json"))]
    return {one["commit_hash"]: one for one in sorted(found, key=lambda one: one["date"])}


def row(result: Any, params: Any = (), version: str = "1", samples: Any = None) -> list[Any]:
    return [result, list(params), version, 1_793_534_400_500, 1.5, samples]


def write_results(folder: Path, results: dict[str, Any] | None = None, /, name: str = "a", **more: Any) -> Path:
    """A result file as asv lays it out, of a machine in a folder of results; `name` is that of the file."""
    document = {
        "commit_hash": "a" * 40,
        "env_name": "virtualenv-py3.12-numpy2.2",
        "date": 1_793_534_400_000,
        "params": {"machine": "m-1", "cpu": "Model X", "num_cpu": "4"},
        "python": "3.12",
        "requirements": {"numpy": "2.2"},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": results if results is not None else {"suite.time_sort": row([0.5])},
        "durations": {},
        "version": 2,
        **more,
    }
    path = folder / "m" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_benchmarks(folder: Path, **units: tuple[str, str]) -> None:
    found = {name.replace("__", "."): {"unit": unit, "version": version} for name, (unit, version) in units.items()}
    (folder / "benchmarks.json").write_text(json.dumps({**found, "version": 2}))


def import_one(path: Path, out: Path) -> ImportedSession:
    (one,) = import_results([path], out).sessions
    return one


def read_runs(one: ImportedSession) -> pl.DataFrame:
    return load_observations(one.folder).runs


def read_texts(report: ImportReport) -> str:
    files = [file for one in report.sessions for file in one.folder.rglob("*") if file.is_file()]
    return "".join(file.read_text() for file in files)


def test_recorded_files_are_sessions_of_their_commits(tmp_path: Path) -> None:
    expected = load_recorded()

    report = import_results([RECORDED], tmp_path / "out")

    by_commit = {one.session.revision: one.session for one in report.sessions}
    assert (report.problems, len(by_commit), set(by_commit)) == ([], 3, set(expected))
    assert sorted(one.created_at for one in by_commit.values()) == [f"2026-11-0{n}T12:00:00+00:00" for n in (1, 2, 3)]
    for session in by_commit.values():
        (arm,) = session.arms
        assert (session.backend, session.design, session.method) == ("imported", "blocks", "looks")
        assert (arm.name, arm.python, arm.packages) == (
            "virtualenv-py3.11-six1.16.0-TINY_MODEon", "3.11", {"six": "1.16.0"},
        )  # fmt: skip
    assert len({session.hardware.key for session in by_commit.values()}) == 1
    assert len({session.arms[0].stack_key for session in by_commit.values()}) == 1


def test_every_recorded_sample_is_a_run_in_its_order(tmp_path: Path) -> None:
    expected = load_recorded()

    for one in import_results([RECORDED], tmp_path / "out").sessions:
        stored = expected[str(one.session.revision)]
        names = stored["result_columns"]
        columns = {name: dict(zip(names, cells, strict=False)) for name, cells in stored["results"].items()}
        values = load_observations(one.folder).values.sort("round")
        found = {metric[0]: rows["value"].to_list() for metric, rows in values.group_by("metric", maintain_order=True)}
        sums = columns["suite.Sums.time_total"]
        for text, samples in zip(itertools.product(*sums["params"]), sums["samples"], strict=True):
            assert found.pop(f"suite.Sums.time_total({text[0]}, {text[1]})", None) == samples
        assert found.pop("suite.time_changed") == columns["suite.time_changed"]["samples"][0]
        assert found == {"suite.mem_list": columns["suite.mem_list"]["result"]}
        assert set(values["unit"]) == {"s", "bytes"}
        assert set(values["better"]) == {"lower"}


def test_failed_and_skipped_benchmarks_are_runs_with_a_reason(tmp_path: Path) -> None:
    for one in import_results([RECORDED], tmp_path / "out").sessions:
        lacking = read_runs(one).filter(pl.col("status") != "ok")
        assert sorted(lacking.select("case", "status", "reason").rows()) == [
            ("suite.Sums.time_total(1000, 'plain')", "not finite", SKIPPED),
            ("suite.time_broken", "empty", FAILED),
        ]
        assert one.runs - one.ok == 2
        # A number in a unit of its own is kept, and not compared.
        (case,) = [case for case in one.session.cases if case.label == "suite.track_ratio"]
        assert (case.indicator, case.metrics, case.parameters["unit"]) == ("AsvNumber", (), "ratio")
        assert read_runs(one).filter(pl.col("case") == "suite.track_ratio")["status"].to_list() == ["ok"]


def test_a_changed_benchmark_has_another_version_and_the_others_have_not(tmp_path: Path) -> None:
    sessions = [one.session for one in import_results([RECORDED], tmp_path / "out").sessions]
    sessions.sort(key=lambda session: session.created_at)

    versions = [{case.label: case.indicator_version for case in session.cases} for session in sessions]

    assert versions[0] == versions[1]
    assert {label for label in versions[0] if versions[0][label] != versions[2][label]} == {"suite.time_changed"}


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    first = import_results([RECORDED], tmp_path / "out")
    files = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}

    again = import_results([RECORDED, RECORDED / "sample", *RECORDED.glob("sample/9*.json")], tmp_path / "out")

    assert sorted(one.session.session_id for one in again.sessions) == sorted(
        one.session.session_id for one in first.sessions
    )
    assert {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()} == files


def test_a_folder_of_a_machine_and_a_single_file_know_their_units(tmp_path: Path) -> None:
    write_benchmarks(tmp_path, suite__track_size=("bytes", "1"))
    path = write_results(tmp_path, {"suite.track_size": row([7])})

    by_file, by_folder = import_one(path, tmp_path / "out"), import_one(tmp_path / "m", tmp_path / "out")

    assert by_file.session == by_folder.session
    assert by_file.session.cases[0].indicator == "AsvBytes"


def test_without_a_list_of_benchmarks_names_tell_the_unit(tmp_path: Path) -> None:
    names = ["time_x", "timeraw_x", "TimeX", "mem_x", "peakmem_x", "track_x", "timeline", "time_x.track_y"]
    path = write_results(tmp_path, {f"a.{name}": row([1.0]) for name in names})

    kinds = [case.indicator for case in import_one(path, tmp_path / "out").session.cases]

    assert kinds == ["AsvSeconds"] * 3 + ["AsvBytes"] * 2 + ["AsvNumber"] * 3
    # The unit of another version is not taken.
    write_benchmarks(tmp_path, a__track_x=("seconds", "2"), a__track_y=("seconds", "2"), a__time_z=("seconds", "2"))
    results = {"a.track_x": row([1.0]), "a.track_y": row([1.0], version="2"), "a.time_z": row([1.0])}
    cases = import_one(write_results(tmp_path, results), tmp_path / "other").session.cases
    assert [case.indicator for case in cases] == ["AsvNumber", "AsvSeconds", "AsvSeconds"]


@pytest.mark.parametrize(
    ("value", "samples", "status"),
    [
        (None, None, "empty"), (float("nan"), None, "not finite"), (float("inf"), None, "not finite"),
        (10**400, None, "not finite"), ("0.5", None, "invalid document"), (True, None, "invalid document"),
        ([0.5], None, "invalid document"), (0.5, [0.25, None], "empty"), (None, [0.25], "empty"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_a_run_without_a_value(tmp_path: Path, value: Any, samples: Any, status: str) -> None:
    path = write_results(tmp_path, {"a.time_x": row([value], samples=None if samples is None else [samples])})

    one = import_one(path, tmp_path / "out")

    statuses = read_runs(one)["status"].to_list()
    assert statuses == (["ok", status] if value == 0.5 else [status])
    assert one.ok == statuses.count("ok")


def test_all_combinations_of_a_failed_benchmark_are_counted(tmp_path: Path) -> None:
    results = {"a.time_x": row(None, [["1", "2"], ["'a'", "'b'", "'c'"]]), "a.time_none": row([], [[], ["1"]])}

    one = import_one(write_results(tmp_path, {**results, "a.time_y": [[1.5]]}), tmp_path / "out")

    assert (one.runs, one.ok) == (7, 1)
    labels = [case.label for case in one.session.cases]
    assert labels[:2] == ["a.time_x(1, 'a')", "a.time_x(1, 'b')"]
    assert labels[-1] == "a.time_y"


def test_long_arguments_are_cut_and_stay_different(tmp_path: Path) -> None:
    params = [["x" * 500 + end for end in "ab"], ["one\nline \ud800"]]
    path = write_results(tmp_path, {"a.time_x": row([1.0, 2.0], params, version="\ud800")}, env_name="\ud800")

    one = import_one(path, tmp_path / "out")

    labels = [case.label for case in one.session.cases]
    assert len(set(labels)) == 2
    assert all(len(label) < 300 and "\n" not in label for label in labels)
    assert sorted(load_observations(one.folder).values["value"]) == [1.0, 2.0]


def test_machines_and_commits_with_equal_values_stay_apart(tmp_path: Path) -> None:
    for number, machine in enumerate(("ann-laptop", "bob-laptop")):
        write_results(tmp_path / machine, name=f"{number}-x", params={"machine": machine, "cpu": "Model X"})
    other = write_results(tmp_path / "ann-laptop", name="2-x", commit_hash="b" * 40, params={"machine": "ann-laptop"})
    (other.parent / "machine.json").write_text(json.dumps({"machine": "old", "cpu": "Model X", "version": 1}))

    report = import_results([tmp_path / "ann-laptop", tmp_path / "bob-laptop"], tmp_path / "out")

    first, second, third = (one.session for one in report.sessions)
    assert len({session.session_id for session in (first, second, third)}) == 3
    assert (first.hardware, first.hardware.cpu_model) == (second.hardware, "Model X")
    assert third.hardware.key != first.hardware.key
    assert "laptop" not in read_texts(report)


def test_an_environment_tells_no_path_and_no_secret(tmp_path: Path) -> None:
    python = "/opt/xylo/bin/python"
    write_results(tmp_path, name="1", env_name="existing-py_opt_xylo_bin_python", python=python, requirements={})
    told = {"env_name": "uv-py3.12-x-API_TOKENs3cret", "env_vars": {"API_TOKEN": "s3cret"}}
    write_results(tmp_path, name="2", requirements={"pip+six": "", "pip+git+https://u:s3cret@x.example/y": "1"}, **told)

    report = import_results([tmp_path], tmp_path / "out")

    arms = [one.session.arms[0] for one in report.sessions]
    assert [arm.name.split()[0] for arm in arms] == ["existing", "uv"]
    assert [(arm.python, arm.packages) for arm in arms] == [("", {}), ("3.12", {"six": ""})]
    texts = read_texts(report)
    assert [text for text in ("xylo", "s3cret") if text in texts] == []


def test_without_a_date_of_the_commit_the_start_of_its_runs_counts(tmp_path: Path) -> None:
    for date in (None, "yesterday", True, -1, 10**300, float("nan")):
        path = write_results(tmp_path, date=date)
        assert import_one(path, tmp_path / "out").session.created_at == "2026-11-01T12:00:00.500000+00:00"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 1}, "asv update"), ({"version": 3}, "in another format"), ({"version": None}, "in another format"),
        ({"result_columns": None}, "result_columns"), ({"commit_hash": "../x"}, "commit_hash"),
        ({"commit_hash": 7}, "commit_hash"), ({"results": []}, "results"), ({"results": {"a": 1.0}}, "results.a"),
        ({"results": {}}, "no benchmark in this file"), ({"requirements": []}, "requirements"),
        ({"results": {"a.time_x": row([1.0, 2.0])}}, "not one entry per combination"),
        ({"results": {"a.time_x": row(0.5)}}, "not one entry per combination"),
        ({"results": {"a.time_x": row([1.0], samples=[[1.0], [1.0]])}}, "not one entry per combination"),
        ({"results": {"a.time_x": row([1.0], ["abc"])}}, "not lists of parameters"),
        ({"results": {"a.time_x": row([1.0, 1.0], [["1", "1"]])}}, "a combination of parameters twice"),
        ({"results": {"a.time_x": row(None, [[str(n) for n in range(200)]] * 9)}}, "too many parameters"),
        ({"results": {"a.time_x": row([1.0], [["1"]] * 60)}}, "too many parameters"),
    ],
)  # fmt: skip
def test_what_is_no_result_of_this_asv_is_refused_when_it_is_named(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = write_results(tmp_path, **{"name": "a", **change})

    with pytest.raises(InputError) as caught:
        import_results([path], tmp_path / "out")

    assert told in str(caught.value)
    assert str(path) in str(caught.value.facts["where"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 50, "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"])
def test_a_damaged_file_of_a_folder_is_left_out_and_named(tmp_path: Path, text: str) -> None:
    write_results(tmp_path)
    damaged = tmp_path / "m" / "b.json"
    damaged.write_text(text, encoding="latin-1")

    report = import_results([tmp_path], tmp_path / "out")

    assert (len(report.sessions), [path for path, _ in report.problems]) == (1, [damaged])
    with pytest.raises(InputError):
        import_results([damaged], tmp_path / "out")
    (tmp_path / "m" / "a.json").unlink()
    with pytest.raises(InputError, match="no result file of asv that can be read"):
        import_results([tmp_path], tmp_path / "out")
    if text in ("{", "[]", "[" * 50):
        write_results(tmp_path)
        (tmp_path / "benchmarks.json").write_text(text)
        with pytest.raises(InputError, match="list of asv's benchmarks"):
            import_results([tmp_path], tmp_path / "out")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    theirs = write_results(tmp_path / "theirs")
    ours = write_results(tmp_path / "ours")
    for link in (ours.parent / "x.json", ours.parent / "machine.json", tmp_path / "ours" / "benchmarks.json"):
        link.symlink_to(theirs)
        with pytest.raises(InputError, match="link to a target outside"):
            import_results([tmp_path / "ours" if link.name != "machine.json" else ours], tmp_path / "out")
        link.unlink()
    (tmp_path / "ours" / "n").symlink_to(theirs.parent)
    with pytest.raises(InputError, match="link to a target outside"):
        import_results([tmp_path / "ours"], tmp_path / "out")


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_results(tmp_path, {f"a.time_{name}": row([1.0], samples=[[1.0, 2.0]]) for name in "xyz"})
    write_results(tmp_path, name="b")

    for name, limit, given in (
        ("asv_results.MAX_CASES", 2, path), ("asv_results.MAX_RUNS", 5, path), ("result_files.MAX_FILES", 1, tmp_path),
        ("benchmark_import.MAX_TOTAL_RUNS", 6, tmp_path),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(f"workbench.indicators.store.{name}", limit)
            with pytest.raises(InputError, match="too "):
                import_results([given], tmp_path / name)
    assert import_one(path, tmp_path / "out").ok == 6
    # Of a case the first ten thousand samples are read.
    monkeypatch.setattr(asv_results, "MAX_SAMPLES", 3)
    path = write_results(tmp_path, {"a.time_x": row([2.5], samples=[[1.0, 2.0, 3.0, 4.0]])}, name="c")
    assert load_observations(import_one(path, tmp_path / "o").folder).values["value"].to_list() == [1.0, 2.0, 3.0]


def test_results_of_asv_are_told_from_other_files(tmp_path: Path) -> None:
    path = write_results(tmp_path / "results")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.json").write_text(json.dumps({"name": "PiMatmul"}))

    found = [detect_format(one) for one in (path, path.parent, tmp_path / "results", RECORDED)]
    assert found == ["asv"] * 4
    assert [detect_format(one) for one in (tmp_path / "other", tmp_path / "none")] == ["amun"] * 2


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path / "default"))
    shutil.copytree(RECORDED, tmp_path / "results")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_imported_results_can_be_synchronised_with_their_revisions(call: Callable[..., Result]) -> None:
    told = call("import", "results", "--out", "out", "--json")
    document = json.loads(told.stdout)
    first, again = call("sync", "out", "--database", "x.db"), call("sync", "out", "--database", "x.db", "--json")
    rows = json.loads(call("show", "sessions", "--database", "x.db", "--json").stdout)["rows"]
    query = "SELECT DISTINCT value, unit FROM observation WHERE metric = 'suite.mem_list'"
    values = call("show", "--sql", query, "--database", "x.db", "--json")

    runs = sum(one["runs"] for one in document["sessions"])
    assert (told.exit_code, first.exit_code, document["format"], document["problems"]) == (0, 0, "asv", [])
    counts = json.loads(again.stdout)
    assert (counts["synced"], counts["skipped"], counts["failed"]) == (0, runs, 0)
    assert {row["revision"] for row in rows} == set(load_recorded())
    assert [row["failed"] for row in rows] == [2, 2, 2]
    assert json.loads(values.stdout)["rows"] == [{"value": 2096.0, "unit": "bytes"}]


def test_synchronised_results_are_points_of_a_history(call: Callable[..., Result]) -> None:
    call("import", "results", "--out", "out")
    call("sync", "out", "--database", "x.db")

    call("history", "--absolute", "--database", "x.db", "--out", "history")

    points = pl.read_parquet("history/history_points.parquet")
    counts = points.group_by("metric").agg(pl.col("series").n_unique(), pl.col("revision").n_unique()).sort("metric")
    assert counts.rows() == [
        ("suite.Sums.time_total(100, 'plain')", 1, 3),
        ("suite.Sums.time_total(100, 'quick')", 1, 3),
        ("suite.Sums.time_total(1000, 'quick')", 1, 3),
        ("suite.mem_list", 1, 3),
        ("suite.time_changed", 2, 3),
    ]


def test_the_command_says_what_it_left_out_by_its_exit_code(call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "results" / "sample" / "x.json").write_text("{")
    failed = write_results(tmp_path / "failed", {"a.time_x": row(None)})

    found, strict = call("import", "results"), call("import", "results", "--strict", "--format", "asv")

    assert (found.exit_code, strict.exit_code, "left out: results/sample/x.json" in found.stdout) == (0, 1, True)
    assert call("import", str(failed)).exit_code == 1
    for options in (("--baseline", "x"), ("--indicator", "x:Y")):
        assert isinstance(call("import", "results", *options).exception, ConfigError)
    refused = call("import", "results/sample/x.json", "--format", "asv").exception
    assert isinstance(refused, InputError)
    assert refused.exit_code == 2
