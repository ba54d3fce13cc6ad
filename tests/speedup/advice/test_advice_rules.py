"""Advice names the setting with its value, what it can save at most, and when not to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.worlds.spark import draw_world
from tests.worlds.spark_run import World
from tests.worlds.spark_weeks import draw_night
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.advice.advice_rules import build_advice
from workbench.speedup.advice.repeated_results import measure_repeated_results
from workbench.speedup.attribution.application_profile import build_profile
from workbench.speedup.config import ProfileConfig
from workbench.speedup.scenarios.estimate import Replayer
from workbench.speedup.scenarios.task_graph import build_task_graph
from workbench.speedup.study import study_profile

WITH_PICKLED_ROWS = 0


def advise(world: World, folder: Path, **properties: str) -> dict[str, dict[str, Any]]:
    """Rows by setting, or by change where there is none; `wall_s` with them. `properties`: Added, _ for a dot."""
    log = world.write(folder)
    added = "".join(f'"{name.replace("_", ".")}":"{value}",' for name, value in properties.items())
    log.write_text(
        log.read_text(encoding="utf-8").replace('"Spark Properties":{', '"Spark Properties":{' + added), "utf-8"
    )
    facts = read_event_logs(log)
    profile = build_profile(facts)
    rows = build_advice(facts, profile, Replayer(build_task_graph(facts))).to_dicts()
    return {row["setting"] or row["change"]: row | {"wall_s": profile.overview["wall_time_s"][0]} for row in rows}


def test_stragglers_are_bounded_by_the_run_without_them(tmp_path: Path) -> None:
    found = advise(draw_night(1, 0, 0.0, "stragglers"), tmp_path)["spark.speculation"]
    spared_s = found["wall_s"] - draw_night(1, 0, 0.0).truth.wall_s
    assert found["at_most_s"] == pytest.approx(spared_s, rel=0.15)
    assert (found["value"], found["now"]) == ("true", "false")
    assert "spark.speculation" not in advise(draw_night(1, 0, 0.0), tmp_path / "calm")


def test_twice_the_executors_is_bounded_by_the_run_with_them_and_says_what_it_costs(tmp_path: Path) -> None:
    found = advise(draw_night(2, 0, 0.0, executors=2), tmp_path)["spark.executor.instances"]
    spared_s = found["wall_s"] - draw_night(2, 0, 0.0, executors=4).truth.wall_s
    assert spared_s <= found["at_most_s"] <= 1.4 * spared_s
    assert (found["value"], found["now"]) == ("4", "2")
    assert found["not_when"].startswith("Executor hours count")


def test_executors_that_do_not_help_are_told_with_the_hours_that_they_cost(tmp_path: Path) -> None:
    found = advise(draw_night(2, 0, 0.0, executors=32), tmp_path)["spark.executor.instances"]
    assert found["change"].startswith("Half the executors")
    assert found["value"] == "16"
    half = draw_night(2, 0, 0.0, executors=16)
    before_h = 32 * found["wall_s"] / 3600
    assert found["saved_executor_h"] == pytest.approx(before_h - 16 * half.truth.wall_s / 3600, rel=0.1)


def test_python_functions_get_columns_and_built_in_functions_in_their_place(tmp_path: Path) -> None:
    world = draw_world(WITH_PICKLED_ROWS, ["python_metric"], spark="4.1.1", layout="plain")
    assert any("BatchEvalPython" in plan for plan in world.plans)
    found = advise(world, tmp_path)
    columns = found["spark.sql.execution.pythonUDF.arrow.enabled"]
    assert columns["at_most_s"] == found["Replace Python functions by built-in ones"]["at_most_s"]
    assert columns["at_most_s"] <= world.truth.running_s


def test_a_switch_that_is_off_is_told_with_the_operators_that_it_slows(tmp_path: Path) -> None:
    off = {"spark_sql_parquet_enableVectorizedReader": "false", "spark_sql_codegen_wholeStage": "FALSE"}
    found = advise(draw_night(3, 0, 0.0), tmp_path, **off)
    reader, compiled = (found[name.replace("_", ".")] for name in off)
    assert 0 < reader["at_most_s"] <= compiled["at_most_s"] <= reader["wall_s"]
    assert (compiled["value"], compiled["now"]) == ("true", "FALSE")


def test_a_small_side_of_the_sample_is_to_be_broadcast(tmp_path: Path) -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    study = study_profile(facts, ProfileConfig(event_log="x"))
    row = study.advice.row(0, named=True)
    assert (row["setting"], row["now"]) == ("spark.sql.autoBroadcastJoinThreshold", "600k")
    assert int(row["value"]) > 600 << 10
    joins = study.profile.sum_operators().filter(operator="SortMergeJoin")["wall_time_s"].sum()
    assert row["at_most_s"] >= joins
    assert (study.advice["at_most_share"] <= 1).all()


def test_chosen_queries_and_broken_logs_get_no_advice(tmp_path: Path) -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    sql_id = int(facts.sql_executions["sql_id"][20])
    assert study_profile(facts, ProfileConfig(event_log="x", sql_ids=[sql_id])).advice.height == 0
    cut = read_event_logs(draw_world(4, ["cut_tail"]).write(tmp_path))
    study = study_profile(cut, ProfileConfig(event_log="x"))
    assert (study.advice.height, study.scenarios.height) == (0, 0)


def test_what_queries_compute_alike_is_to_be_cached_and_a_second_pass_is_not() -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    # Queries of TPC-H that run three times each; none computes what another does.
    assert measure_repeated_results(facts) is None
    # As if the second run of q3 asked for more rows of the same result.
    again = facts.sql_executions.filter(description="q3 pass 1")
    is_last = (pl.col("sql_id") == again["sql_id"][0]) & pl.col("simple_string").str.contains("TakeOrdered")
    text = pl.when(is_last).then(pl.col("simple_string").str.replace("limit=10", "limit=20"))
    changed = facts.plan_nodes.with_columns(simple_string=text.otherwise(pl.col("simple_string")))
    found = measure_repeated_results(replace(facts, plan_nodes=changed))
    assert found is not None
    assert found.n_queries == 1
    assert 0.3 * again["duration_ms"][0] / 1e3 < found.wall_s < again["duration_ms"][0] / 1e3
