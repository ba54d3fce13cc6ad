"""`generate`, `validate` and `qualify` by the calibrated method, as a user runs them on real logs."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard

from tests.conftest import SAMPLES
from tests.fakes import planted_logs
from tests.fakes.eventlogs import small
from tests.speedup.applications import application
from workbench.cli import app
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.application_time import read_properties
from workbench.speedup.calibration import factor_model
from workbench.speedup.compat_rapids_tools import seed_factors
from workbench.speedup.recording.recording_plan import load_recording

RECORDING = SAMPLES / "speedup/tpch-sf1"
LOGS = RECORDING / "logs"
PLAIN, FAST = LOGS / "spark-s1.zstd", LOGS / "comet-s1.zstd"
OTHER = SAMPLES / "eventlogs/small/three_queries"
Call = Callable[..., tuple[int, str, str]]


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def speedup(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = _run(*arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def factors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factors") / "factors.json"
    assert _run("generate", RECORDING, "--output", path) == 0
    return path


def test_generate_writes_a_model_that_says_where_it_comes_from(factors: Path) -> None:
    found = factor_model.load_factor_model(factors)
    assert (found.baseline, found.candidate) == ("spark", "comet")
    assert (found.baseline_engine, found.candidate_engine) == ("spark", "comet")
    assert len(found.sources) == 10
    assert all(len(source["sha256"]) == 64 for source in found.sources)
    assert [entry["property"] for entry in found.comparability] == ["driver memory"]


def test_generate_from_two_logs_has_factors_without_intervals(speedup: Call, tmp_path: Path) -> None:
    output = tmp_path / "f.json"
    code, printed, errors = speedup("generate", "--cpu", PLAIN, "--gpu", FAST, "--output", output, "--json")
    document = json.loads(printed)
    assert (code, errors) == (0, "")
    assert document["verdict"] == "valid"
    assert {row["factor_low"] for row in document["factors"]} == {None}
    assert {row["verdict"] for row in document["factors"]} == {"UNDECIDED"}
    assert factor_model.load_factor_model(output).by_log.log_sd is not None


def test_a_query_that_reads_other_columns_on_the_sides_is_left_out_and_named(speedup: Call, tmp_path: Path) -> None:
    logs = planted_logs.write(tmp_path, n_sessions=1)
    for path in map(Path, logs["fast"]):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(
            b"".join(line.replace(b"struct<a:", b"struct<b:") if b'"q7"' in line else line for line in lines)
        )
    arguments = ("--cpu", *logs["plain"], "--gpu", *logs["fast"], "--output", tmp_path / "f.json")
    code, printed, _ = speedup("generate", *arguments, "--out", tmp_path / "run", "--json")
    document = json.loads(printed)
    assert code == 0
    assert [warning for warning in document["warnings"] if warning.startswith("queries: ")] == [
        "queries: 12 queries against 12 queries; excluded, because the sides read different tables or columns: q7"
    ]
    assert "q7" not in {row["query"] for row in document["pairs"]}
    executions = pl.read_parquet(tmp_path / "run/tables/executions.parquet")
    assert set(executions.filter(pl.col("number") == 0)["why_not"]) == {"cold: first run in its session"}


def test_the_exported_file_is_one_that_the_original_tools_read(speedup: Call, factors: Path, tmp_path: Path) -> None:
    output = tmp_path / "f.csv"
    code, printed, _ = speedup("generate", RECORDING, "--output", output)
    assert code == 0
    rows = list(csv.reader(output.read_text().splitlines()))
    assert rows[0] == ["CPUOperator", "Score"]
    scores = seed_factors.read_factor_file(output)
    assert scores["HashAggregateExec"] > 3
    measured = {term.operator: math.exp(term.log_factor) for term in factor_model.load_factor_model(factors).terms}
    assert scores["SortMergeJoinExec"] == pytest.approx(measured["SortMergeJoin"], abs=0.005)
    assert "skipped, unknown to the original tools: " in printed
    assert "idle" in printed


def test_validate_prints_every_predictor_and_query(speedup: Call, tmp_path: Path) -> None:
    code, printed, _ = speedup("validate", RECORDING, "--out", tmp_path / "run")
    assert code == 0
    assert all(word in printed for word in ("calibrated", "constant", "q1 ", "q22", "left-out queries"))
    assert (tmp_path / "run/tables/validation.parquet").is_file()


def test_qualify_ranks_and_says_why_not(speedup: Call, factors: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in (PLAIN, FAST):
        shutil.copy(log, logs)
    shutil.copy(OTHER, logs / "small")
    code, printed, _ = speedup("qualify", logs, "--factors", factors, "--json", "--no-cache")
    document = json.loads(printed)
    assert code == 0
    rows = document["applications"]
    assert rows[0]["app_name"] == "tpch spark s1"
    assert rows[0]["recommendation"] == "recommended"
    assert rows[0]["predicted_low_s"] < rows[0]["predicted_s"] < rows[0]["predicted_high_s"]
    comet = next(row for row in rows if row["app_name"] == "tpch comet s1")
    assert (comet["recommendation"], comet["reason"]) == ("already accelerated", "already accelerated by comet")
    assert comet["predicted_s"] is None


def test_a_log_with_a_hole_is_worth_a_trial_at_most(speedup: Call, factors: Path, tmp_path: Path) -> None:
    lines = zstandard.ZstdDecompressor().stream_reader(PLAIN.read_bytes()).read().splitlines(keepends=True)
    ends = [place for place, line in enumerate(lines) if b"SparkListenerStageCompleted" in line]
    (tmp_path / "log").write_bytes(b"".join(lines[: ends[-1]] + lines[ends[-1] + 1 :]))
    code, printed, _ = speedup("qualify", tmp_path / "log", "--factors", factors, "--json", "--no-cache")
    document = json.loads(printed)
    (row,) = document["applications"]
    assert (code, row["recommendation"]) == (1, "worth a trial")
    assert "the end of 1 stage is not in the log" in row["reason"]
    assert document["details"][-1] == "1 application judged by a log with holes."


def test_columns_of_a_factor_file_that_are_not_used_are_named(speedup: Call, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("CPUOperator,Notes,Score\nFilterExec,measured,2.5\nProjectExec,,2\n")
    code, printed, errors = speedup("qualify", OTHER, "--speedup-factor-file", path)
    assert code == 0
    assert "columns that are not used: Notes" in errors
    assert "--method seed is used" in errors
    assert "task factor" in printed
    assert "estimated" in printed


def test_sides_are_named_by_their_engines_and_a_folder_is_split_by_them(speedup: Call, tmp_path: Path) -> None:
    for log in (PLAIN, FAST):
        shutil.copy(log, tmp_path)
    code, printed, _ = speedup("generate", tmp_path, "--output", tmp_path / "both.json", "--json")
    assert (code, "comet is faster than spark" in json.loads(printed)["answer"]) == (0, True)
    model = factor_model.load_factor_model(tmp_path / "both.json")
    assert (model.baseline, model.candidate) == ("spark", "comet")
    assert speedup("validate", LOGS.parent / "answers")[0] == 2
    (tmp_path / FAST.name).unlink()
    code, _, errors = speedup("validate", tmp_path)
    assert code == 2
    assert "not the logs of plain Spark and one accelerated engine" in errors
    assert "spark: spark-s1.zstd" in errors


def test_qualify_prints_queries_reasons_and_costs_where_they_are_wanted(
    speedup: Call, factors: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("no log")
    shutil.copy(OTHER, tmp_path / "three_queries")
    code, printed, _ = speedup("qualify", tmp_path, "--factors", factors)
    assert code == 1
    assert f"Applications in {tmp_path.parent.name}/{tmp_path.name}, most time saved first" in printed
    assert "\nthree_queries " in printed
    assert "have a reason or a remark: --why prints them" in printed
    assert "Queries of each application" not in printed
    prices = ("--price-cpu", "4.05", "--price-accel", "2", "--currency", "EUR")
    _, printed, _ = speedup("qualify", tmp_path, "--factors", factors, "--why", "--per-sql", *prices)
    assert "\nbroken: " in printed
    assert "saved cost (EUR)" in printed
    listed = printed.partition("Queries of each application")[2].partition("Operators at stake")[0]
    assert listed.count("\nthree_queries ") == 3


@pytest.mark.parametrize("filters", [("--app-name", "nosuch"), ("--min-duration", 999_999), ()])
def test_qualify_without_a_query_to_predict_ends_with_the_table_and_exit_code_1(
    speedup: Call, factors: Path, tmp_path: Path, filters: tuple[object, ...]
) -> None:
    log = tmp_path / "log"
    log.write_bytes(OTHER.read_bytes() if filters else small())
    code, printed, errors = speedup("qualify", log, "--factors", factors, "--json", "--no-cache", *filters)
    document = json.loads(printed)
    assert (code, errors) == (1, "")
    assert document["answer"] == f"None of {'0 applications' if filters else '1 application'} could be judged."
    assert [row["reason"] is None for row in document["applications"]] == [False] * (not filters)
    assert document["predictions"] == document["operators_at_stake"] == []
    code, printed, errors = speedup("qualify", log, "--factors", factors, *filters, "--out", tmp_path / "run")
    assert (code, errors) == (1, "")
    assert "could be judged" in printed


def test_a_missing_folder_is_told(speedup: Call, tmp_path: Path, factors: Path) -> None:
    missing = tmp_path / "none"
    for arguments in (
        ("qualify", missing, "--factors", factors),
        ("generate", missing, "--output", tmp_path / "f.json"),
    ):
        code, printed, errors = speedup(*arguments)
        assert (code, printed) == (2, "")
        assert "none" in errors


@pytest.mark.parametrize(
    ("cpu", "gpu", "told"),
    [
        ("none", FAST, ["none"]),
        ("empty", FAST, ["no SQL execution"]),
        (FAST, PLAIN, ["plain Spark", "swap the logs"]),
        (PLAIN, LOGS / "spark-s2.zstd", ["plain Spark"]),
        (PLAIN, PLAIN, ["both sides"]),
        (OTHER, FAST, ["no query can be compared", "--first-runs use"]),
    ],
)
def test_logs_that_are_no_pair_are_told_and_nothing_is_written(
    speedup: Call, tmp_path: Path, cpu: str | Path, gpu: Path, told: list[str]
) -> None:
    (tmp_path / "empty").write_bytes(application().split(b"\n")[0] + b"\n")
    output = tmp_path / "f.json"
    code, printed, errors = speedup("generate", "--cpu", tmp_path / cpu, "--gpu", gpu, "--output", output)
    assert (code, printed) == (2, "")
    assert all(words in errors for words in told)
    assert not output.exists()


def test_any_two_sides_compare_when_they_are_named(speedup: Call, tmp_path: Path) -> None:
    code, printed, _ = speedup(
        "generate", "--cpu", FAST, "--gpu", PLAIN, "--baseline", "comet", "--candidate", "spark", "--output",
        tmp_path / "f.json",
    )  # fmt: skip
    assert code == 0
    assert printed.startswith("Not decided whether spark is faster than comet: 0.")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not JSON"),
        ("{}", "not a factor model"),
        ("CPUOperator,Score\nFilterExec,2\n", "not JSON"),
        ('{"format_version": 1, "terms": []}', "not a factor model"),
    ],
)
def test_a_file_that_is_no_factor_model_is_told(speedup: Call, tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(content)
    code, printed, errors = speedup("qualify", OTHER, "--factors", path)
    assert (code, printed) == (2, "")
    assert told in errors
    assert "workbench speedup generate" in errors


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN", "1e999"])
def test_a_model_with_a_number_that_is_none_is_told(speedup: Call, factors: Path, tmp_path: Path, value: str) -> None:
    document = json.loads(factors.read_text())
    document["terms"][0]["log_factor"] = "@"
    path = tmp_path / "f.json"
    path.write_text(json.dumps(document).replace('"@"', value.replace("nan", "NaN").replace("inf", "Infinity")))
    code, _, errors = speedup("qualify", OTHER, "--factors", path)
    assert code == 2
    assert "log_factor" in errors


@pytest.mark.parametrize(("text", "told"), [("Exchnge=2", "Exchange"), ("Exchange=fast", "Operator=1.5")])
def test_a_what_if_that_cannot_be_is_told(speedup: Call, factors: Path, text: str, told: str) -> None:
    code, _, errors = speedup("qualify", OTHER, "--factors", factors, "--set", text)
    assert code == 2
    assert told in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["qualify", OTHER, "--platform", "onprem-a100"], "--method seed"),
        (["generate", RECORDING, "--output", "factors.xlsx"], "*.json"),
    ],
)
def test_what_does_not_fit_the_method_is_refused(speedup: Call, arguments: list[object], told: str) -> None:
    code, _, errors = speedup(*arguments)
    assert code == 2
    assert told in errors


@pytest.mark.spark
@pytest.mark.network
@pytest.mark.timeout(900)
def test_sample_runs_queries_on_slices_with_the_memory_that_was_given(
    speedup: Call, factors: Path, tmp_path: Path
) -> None:
    chosen = ["--only", "q1", "--only", "q6", "--scale", "0.1", "--master", "local[2]"]
    options = [*chosen, "--conf", "spark.memory.offHeap.size=2g", "--budget", "95%", "--out", tmp_path / "run"]
    code, out, err = speedup("sample", "--baseline-log", PLAIN, "--factors", factors, *options, "--json")
    assert code == 0, out + err
    found = json.loads(out)
    assert found["reasons"] == []
    assert [row["query"] for row in found["queries"] if row["log_error"] is not None] == ["q1", "q6"]
    recording = load_recording(tmp_path / "run" / "recording")
    sizes = {}
    for label, _, log in recording.iterate_logs():
        facts = read_event_logs(log)
        properties = read_properties(facts, facts.logs["log_id"][0], "spark")
        sizes[label] = properties["spark.memory.offHeap.size"]
    assert sizes == {"spark": "2g", "comet": "2g"}
    code, out, err = speedup("sample", "--baseline-log", PLAIN, "--factors", factors, *options, "--conf", "x=1")
    assert (code, "not a Spark setting" in err) == (2, True)
