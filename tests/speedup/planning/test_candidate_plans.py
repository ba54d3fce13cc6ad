"""What is said of planned queries, and of those that also ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.speedup.planning.test_planned_operators import EXPLAINED, MIXED, Tree, adaptive, join, node, plan, scan
from workbench.core.errors import ConfigError
from workbench.speedup.config import PlanConfig
from workbench.speedup.planning import candidate_plans
from workbench.speedup.planning.candidate_plans import CandidatePlans, build_candidate_plans
from workbench.speedup.planning.planned_operators import RunJoin

NATIVE = adaptive(join("CometSortMergeJoin", ("a#1", "b#2"), scan(), scan()))


def row(query: str, tree: Tree | None, **more: Any) -> dict[str, Any]:
    base = {
        "query": query,
        "status": "ok",
        "error": None,
        "duration_s": 0.1,
        "explanation": None,
        "baseline_plan": None,
    }
    return base | {"plan": json.dumps(tree)} | more


def build(*rows: dict[str, Any], baseline: Any = None, check: Any = None) -> CandidatePlans:
    return build_candidate_plans("comet", "4.1.4", rows, baseline or {}, check or {})


def test_the_answer_counts_operators_and_names_queries_that_leave_some_to_spark() -> None:
    plans = build(row("q1", MIXED, explanation=EXPLAINED), row("q2", NATIVE))
    assert plans.answer == ("comet runs 5 of 9 operators in 2 planned queries; 1 query leaves some to Spark: q1.")
    first = plans.queries.row(0, named=True)
    assert first["left_to_spark"] == "Exchange, 2 HashAggregate, SortMergeJoin"
    assert first["n_transitions"] == 2
    assert "Unsupported join type" in first["reasons"]
    assert not plans.reasons
    assert build(row("q2", NATIVE)).answer.endswith("leaves none to Spark.")


def test_a_query_that_cannot_be_planned_is_a_reason_and_no_zero() -> None:
    failed = {"query": "q9", "status": "failed", "error": "no such table", "duration_s": 0.2}
    plans = build(row("q2", NATIVE), failed)
    assert plans.reasons == ("q9 cannot be planned: no such table",)
    bad = plans.queries.filter(pl.col("query") == "q9").row(0, named=True)
    assert (bad["n_operators"], bad["accelerated_share"]) == (None, None)
    assert build(failed).answer == "No query could be planned."


def test_a_run_of_the_baseline_decides_the_joins_that_are_expected() -> None:
    run = [RunJoin("[a], [b]", "SortMergeJoin", "BroadcastHashJoin")]
    rows = build(row("q2", NATIVE), row("q3", NATIVE), baseline={"q2": run}).queries
    assert rows["joins"].to_list() == ["SortMergeJoin"] * 2
    assert rows["run_joins"].to_list() == ["BroadcastHashJoin", "SortMergeJoin"]
    assert rows["joins_from"].to_list() == ["log", "plan"]


@pytest.mark.parametrize(
    ("final", "left_equal", "joins_equal"),
    [
        (NATIVE, True, True),
        (adaptive(join("CometBroadcastHashJoin", ("a#1", "b#2"), scan(), scan())), True, False),
        (adaptive(join("SortMergeJoin", ("a#1", "b#2"), scan(), scan())), False, True),
        (adaptive(node("CometEmptyRelation")), True, False),
    ],
)
def test_a_run_on_the_candidate_is_held_to_the_plan(final: Tree, left_equal: bool, joins_equal: bool) -> None:
    plans = build(row("q2", NATIVE), check={"q2": (plan(NATIVE), plan(final))})
    assert plans.checks.select("left_equal", "joins_equal").row(0) == (left_equal, joins_equal)
    assert plans.check_answer is not None
    assert f"{int(left_equal)} ({100 * int(left_equal)} %) leave the expected operators" in plans.check_answer
    assert build(row("q2", NATIVE)).check_answer is None


def test_a_join_that_did_not_run_is_not_expected_to_be_left_to_spark() -> None:
    tree = adaptive(join("SortMergeJoin", ("a#1", "b#2"), scan(), scan()))
    final = adaptive(node("CometEmptyRelation"))
    gone = [RunJoin("[a], [b]", "SortMergeJoin", candidate_plans.NOT_RUN)]
    plans = build(row("q", tree), baseline={"q": gone}, check={"q": (plan(tree), plan(final))})
    assert plans.checks.select("left_equal", "joins_equal").row(0) == (True, True)


def test_a_recording_is_not_one_log(tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text("{}")
    with pytest.raises(ConfigError, match="several logs"):
        candidate_plans.plan_queries(PlanConfig(baseline_log=str(tmp_path)), say=print)


@pytest.mark.spark
@pytest.mark.network
def test_plans_are_those_of_a_run_that_no_query_of_which_is_run(tmp_path: Path) -> None:
    log = "data/samples/speedup/tpch-sf1/logs/comet-s1.zstd"
    config = PlanConfig(queries="tpch", scale=0.01, only=["q1", "q6", "q18"], engine="comet", check=log)
    plans = candidate_plans.plan_queries(config, say=lambda _: None)
    assert plans.spark_version.startswith("3.5")
    assert plans.queries["status"].to_list() == ["planned"] * 3
    assert plans.checks["left_equal"].all()
    assert plans.queries["joins"].to_list() == [None, None, "4 BroadcastHashJoin"]
    assert plans.queries["baseline_joins"].to_list() == plans.queries["joins"].to_list()


@pytest.mark.spark
@pytest.mark.network
def test_planning_a_command_leaves_it_undone(tmp_path: Path) -> None:
    queries = tmp_path / "commands.sql"
    queries.write_text(
        "-- name: made\nCREATE TABLE made USING parquet AS SELECT * FROM nation;\n-- name: bad\nSELECT nope;"
    )
    config = PlanConfig(queries=str(queries), data=str(_tables()), engine="spark")
    plans = candidate_plans.plan_queries(config, say=lambda _: None)
    assert plans.queries["status"].to_list() == ["planned", "failed"]
    assert not list(tmp_path.rglob("*.parquet"))


def _tables() -> Path:
    from workbench.speedup.recording.benchmark_data import BENCHMARKS

    return Path(BENCHMARKS["tpch"].get_data(0.01, lambda _: None).place)
