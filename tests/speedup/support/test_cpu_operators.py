"""What stays on the CPU is told by operator with its reason, from plans whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from workbench.core.errors import ConfigError
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.application_profile import build_profile
from workbench.speedup.command import app
from workbench.speedup.support.cpu_operators import CpuReport, list_cpu_operators
from workbench.speedup.support.engine_support import list_engines, load_support

SCHEMA = "Location: InMemoryFileIndex(1 paths)[file:/d/t], ReadSchema: struct<a:int,b:string"
SCAN = ("Scan parquet ", f"FileScan parquet [a#1,b#2] Format: Parquet, {SCHEMA}>")
EXCHANGE = "Exchange hashpartitioning(a#1, 8), ENSURE_REQUIREMENTS"


def chain(*nodes: tuple[str, str]) -> dict[str, Any]:
    """A plan of nodes with one input each, from the root down."""
    tree: dict[str, Any] | None = None
    for name, text in reversed(nodes):
        tree = made.plan(name, text, [tree] if tree else [])
    assert tree is not None
    return tree


def report(tmp_path: Path, tree: dict[str, Any], engine: str) -> CpuReport:
    log = tmp_path / "log"
    log.write_bytes(
        made.small(
            made.sql_start(0, tree, "q"),
            made.job_start(0, [0], {"spark.sql.execution.id": "0"}),
            made.stage_submitted(0),
            made.task_end(0, 0, 0),
            made.stage_completed(0),
            made.job_end(0),
            made.sql_end(0),
        )
    )
    facts = read_event_logs(log)
    return list_cpu_operators(facts, build_profile(facts), load_support(engine))


def reasons(found: CpuReport) -> list[tuple[str, str, str]]:
    return sorted(found.operators.select("operator", "kind", "what").iter_rows())


def test_a_function_that_the_engine_lacks_keeps_its_operator_and_what_is_fed_by_it(tmp_path: Path) -> None:
    tree = chain(
        ("HashAggregate", "HashAggregate(keys=[a#1], functions=[count(1)])"),
        ("Exchange", EXCHANGE),
        ("HashAggregate", "HashAggregate(keys=[a#1], functions=[partial_count(1)])"),
        ("Filter", "Filter (levenshtein(b#2, x, None) > 3)"),
        SCAN,
    )
    left = ("Filter", "function", "levenshtein")
    merged = ("HashAggregate", "input on the CPU", "")
    assert reasons(report(tmp_path, tree, "comet@0.12")) == [left, merged, merged]
    assert reasons(report(tmp_path, tree, "comet@1.2")) == []
    # RAPIDS turns rows around where it must.
    assert reasons(report(tmp_path, tree, "rapids")) == [left]


def test_code_of_a_user_operators_and_formats_are_told(tmp_path: Path) -> None:
    tree = chain(
        ("Project", "Project [score(a#1) AS s#3]"),
        ("CartesianProduct", "CartesianProduct (a#1 > b#2)"),
        (
            "Scan JDBCRelation(t) [numPartitions=1] ",
            "Scan JDBCRelation(t) [numPartitions=1] [a#1] ReadSchema: struct<a:int>",
        ),
    )
    found = reasons(report(tmp_path, tree, "comet@1.2"))
    assert ("Project", "code of a user", "Project") in found
    assert ("CartesianProduct", "operator", "CartesianProduct") in found
    assert any(kind == "operator" and "JDBC" in what for _, kind, what in found)
    on_gpu = reasons(report(tmp_path, tree, "rapids"))
    assert ("CartesianProduct", "operator", "CartesianProduct") not in on_gpu
    orc = ("Scan orc ", f"FileScan orc [a#1] Format: ORC, {SCHEMA}>")
    assert reasons(report(tmp_path, chain(orc), "comet@1.2")) == [("Scan orc", "format", "orc")]
    assert reasons(report(tmp_path, chain(orc), "rapids")) == []


def test_a_type_that_the_scan_does_not_read_is_told(tmp_path: Path) -> None:
    text = f"FileScan json [a#1] Format: JSON, {SCHEMA},m:map<string,int>,d:date>"
    assert reasons(report(tmp_path, chain(("Scan json ", text)), "rapids")) == [("Scan json", "type", "map in json")]


def test_types_casts_and_commands_are_no_reasons(tmp_path: Path) -> None:
    tree = chain(
        (
            "Execute InsertIntoHadoopFsRelationCommand",
            "Execute InsertIntoHadoopFsRelationCommand file:/o, false, Parquet",
        ),
        ("Project", "Project [cast(a#1 as decimal(12,2)) AS d#4]"),
        SCAN,
    )
    assert reasons(report(tmp_path, tree, "rapids")) == []
    assert reasons(report(tmp_path, chain(("Execute CreateViewCommand", "Execute CreateViewCommand")), "rapids")) == []


def test_the_sample_stays_where_window_functions_are() -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    profile = build_profile(facts)
    old, new = (list_cpu_operators(facts, profile, load_support(name)) for name in ("comet@0.12", "comet"))
    assert ("function", "rank") in old.by_reason.select("kind", "what").rows()
    assert old.n_left > 0 == new.n_left
    assert new.answer == f"comet@1.2 runs all {new.n_operators:,} operators, by its tables."
    # Each second once, and none beyond the time of the queries.
    assert 0 < old.left_s <= profile.exclusive_times["wall_time_s"].sum()


def test_engines_are_named_and_others_are_refused() -> None:
    assert list_engines() == ("rapids", "comet@1.2", "comet@0.12")
    assert load_support("comet").name == "comet@1.2"
    with pytest.raises(ConfigError, match="no tables of this engine"):
        load_support("gluten")


def test_the_command_writes_its_tables(tmp_path: Path) -> None:
    log, out = str(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"), tmp_path / "run"
    done = CliRunner().invoke(app, ["support", log, "--engine", "comet@0.12", "--json", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["answer"].startswith("comet@0.12 leaves ")
    assert {path.stem for path in (out / "tables").iterdir()} == {"cpu_operators", "cpu_reasons"}
