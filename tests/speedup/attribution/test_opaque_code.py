"""Code of users that no engine can read: where it is seen, and that predictions leave its time as it is."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from tests.worlds.spark import draw_world
from tests.worlds.spark_answers import load_model
from workbench.eventlog.reader import read_event_logs
from workbench.speedup import engines
from workbench.speedup.attribution.executions import Node
from workbench.speedup.attribution.time_pieces import (
    DRIVER,
    IS_FIXED,
    MAY_BE_OPAQUE,
    WAITING,
    build_application_row,
    measure_log_times,
)
from workbench.speedup.calibration.prediction import predict_queries
from workbench.speedup.fleet.qualification import qualify_applications
from workbench.speedup.tables import APPLICATIONS_MEASURED


def test_the_names_that_spark_knows_are_those_that_the_file_names() -> None:
    content = json.loads((files("workbench.speedup") / "spark_functions.json").read_text())
    assert hashlib.sha256("\n".join(content["names"]).encode()).hexdigest() == content["sha256"]
    assert {"abs", "knownfloatingpointnormalized", "bloom_filter_agg", "decimal"} <= set(content["names"])


@pytest.mark.parametrize(
    ("name", "text", "opaque"),
    [
        ("ArrowEvalPython", "ArrowEvalPython [f(v#2)#9], [pythonUDF0#10], 200", True),
        ("MapInArrow", "MapInArrow f(k#1L)", True),
        ("FlatMapGroupsInPandas", "FlatMapGroupsInPandas [k#1L], f(k#1L)", True),
        ("GpuArrowEvalPython", "GpuArrowEvalPython [f(v#2)#9]", True),
        ("Project", "Project [UDF(v#2) AS s#9]", True),
        ("Project", "Project [HiveSimpleUDF#com.f(v#2) AS s#9]", True),
        ("MapElements", "MapElements Main$$Lambda$1", True),
        ("BatchEvalPython", "BatchEvalPython [f(v#2)#9], [pythonUDF0#10]", True),
        ("ArrowEvalPythonUDTF", "ArrowEvalPythonUDTF f(v#2)", True),
        ("PythonMapInArrow", "PythonMapInArrow f(k#1L)", True),
        ("FlatMapCoGroupsInPandas", "FlatMapCoGroupsInPandas [k#1L], [k#2L], f(k#1L)", True),
        ("WindowInPandas", "WindowInPandas [f(v#2)]", True),
        ("AggregateInPandas", "AggregateInPandas [k#1L], [f(v#2)]", True),
        ("MapPartitions", "MapPartitions Main$$Lambda$1", True),
        ("ScriptTransformation", "ScriptTransformation [k#1L], cat", True),
        ("Filter", "Filter UDF(v#2)", True),
        ("ObjectHashAggregate", "ObjectHashAggregate(keys=[], functions=[HiveUDAFFunction#com.f(v#2)])", True),
        ("Generate", "Generate HiveGenericUDTF#com.f(v#2), [k#1L], false, [x#3]", True),
        ("Generate", "Generate explode(v#2), [k#1L], false, [x#3]", False),
        ("Window", "Window [rank(v#2) windowspecdefinition(k#1L)]", False),
        ("Filter", "Filter (MY_UDF_COLUMN#2 > 1)", False),
        ("Project", "Project [upper(v#2) AS s#9]", False),
        ("HashAggregate", "HashAggregate(keys=[k#1L], functions=[sum(v#2)])", False),
        ("Project", "Project [k#1L, score(abs(v#2), 3) AS s#9]", True),
        ("HashAggregate", "HashAggregate(keys=[k#1L], functions=[partial_my_median(v#2)])", True),
        ("Filter", "Filter (isnotnull(v#2) AND (com.acme.risk(v#2) > 1))", True),
        ("HashAggregate", "HashAggregate(keys=[score(abs(v))#9], functions=[merge_count(distinct k#1L)])", False),
        ("SortMergeJoin(skew=true)", "SortMergeJoin(skew=true) [k#1L], [k#2L], ExistenceJoin(exists#7)", False),
        ("Filter", "Filter might_contain(Subquery subquery#9, [id=#7], xxhash64(k#1L, 42))", False),
        ("GpuProject", "GpuProject [gpuscore(v#2) AS s#9]", False),
    ],
)
def test_operators_and_texts_that_run_code_of_users(name: str, text: str, opaque: bool) -> None:
    assert Node(0, name, engines.classify_operator(name), (), text).is_opaque is opaque


@pytest.mark.parametrize(("trait", "told"), [("python_metric", True), ("python_blind", False), ("scala_udf", False)])
def test_its_own_time_is_fixed_and_else_all_shared_time_of_its_stage_may_be_its(
    tmp_path: Path, trait: str, told: bool
) -> None:
    world = draw_world(3, [trait], layout="plain")
    pieces = measure_log_times(read_event_logs(world.write(tmp_path)), "log", "log").pieces
    true_s = sum(query.untouchable_s for query in world.truth.queries)
    fixed_s, possible_s = (pieces.filter(one)["wall_s"].sum() for one in (IS_FIXED, MAY_BE_OPAQUE))
    assert true_s > 0
    if told:
        assert fixed_s == pytest.approx(true_s, rel=0.02)
    else:
        assert fixed_s == 0
        assert possible_s >= true_s * 0.98


def test_nothing_is_booked_below_a_cache_that_was_filled_before(tmp_path: Path) -> None:
    world = draw_world(5, ["cache"], layout="plain")
    measured = measure_log_times(read_event_logs(world.write(tmp_path)), "log", "log")
    first, second = sorted(measured.executions["sql_id"])[-2:]
    operators = {
        sql_id: set(measured.pieces.filter(pl.col("sql_id") == sql_id).explode("operators")["operators"])
        for sql_id in (first, second)
    }
    assert "Scan parquet" in operators[first]
    assert "Scan parquet" not in operators[second]
    assert "InMemoryTableScan" in operators[second]


UNTOUCHED = ("queue_wait", "driver_time", "commit", "client_fetch", "python_metric")


@pytest.mark.parametrize("trait", UNTOUCHED)
def test_predictions_leave_waits_driver_time_and_python_as_they_are_and_are_never_below_them(
    tmp_path: Path, trait: str
) -> None:
    world = draw_world(7, [trait], layout="plain")
    measured = measure_log_times(read_event_logs(world.write(tmp_path)), "log", "log")
    fixed = measured.pieces.filter(IS_FIXED)
    assert fixed.height > 0
    model = load_model()
    for factor in (4.0, 1e6):
        quick = {term.operator: factor for term in model.terms}
        rows = predict_queries(model, measured, overrides=quick)
        assert rows["fixed_s"].sum() == pytest.approx(fixed["wall_s"].sum())
        assert rows["baseline_s"].sum() == pytest.approx(measured.executions["wall_s"].sum())
        for name in ("predicted_s", "predicted_low_s", "predicted_high_s"):
            assert (rows[name] >= rows["fixed_s"] - 1e-9).all(), name
        assert (rows["ratio_high"] <= rows["baseline_s"] / rows["fixed_s"]).all()


@pytest.mark.parametrize("seed", range(3))
def test_waits_and_driver_time_are_those_of_the_world(tmp_path: Path, seed: int) -> None:
    world = draw_world(seed, ["queue_wait", "driver_time"], layout="plain")
    pieces = measure_log_times(read_event_logs(world.write(tmp_path)), "log", "log").pieces
    times = dict(pieces.group_by("term").agg(pl.col("wall_s").sum()).iter_rows())
    # Of an application whose executors come while the driver plans, nothing waits.
    assert times.get(WAITING, 0.0) == pytest.approx(world.truth.waiting_s, abs=0.5)
    # Before the first stage is submitted; less than a second behind the last one is idle time.
    driver_s = sum(query.before + 20 for query in world.queries) / 1e3
    assert times[DRIVER] == pytest.approx(driver_s, abs=0.5)


@pytest.mark.parametrize("trait", ["python_blind", "scala_udf"])
def test_the_upper_end_of_a_prediction_has_all_that_may_be_code_of_users(tmp_path: Path, trait: str) -> None:
    world = draw_world(3, [trait], layout="plain")
    measured = measure_log_times(read_event_logs(world.write(tmp_path)), "log", "log")
    model = load_model()
    rows = predict_queries(model, measured, overrides={term.operator: 1e6 for term in model.terms})
    true_s = sum(query.untouchable_s for query in world.truth.queries)
    assert true_s > 0
    assert rows["opaque_s"].sum() >= 0.98 * true_s
    assert rows["predicted_s"].sum() < true_s
    assert rows["predicted_high_s"].sum() >= 0.98 * true_s


def test_an_application_is_never_predicted_below_the_time_in_which_no_task_ran(tmp_path: Path) -> None:
    world = draw_world(11, ["queue_wait", "driver_time", "gaps_between"], layout="plain")
    facts = read_event_logs(world.write(tmp_path))
    model = load_model()
    row = APPLICATIONS_MEASURED.frame([build_application_row(facts, "log", None)])
    quick = {term.operator: 1e6 for term in model.terms}
    found = qualify_applications(model, row, measure_log_times(facts, "log", "log"), overrides=quick)
    app = found.applications.row(0, named=True)
    least_s = world.truth.wall_s - world.truth.running_s
    assert app["predicted_low_s"] >= least_s - 1.0
    assert app["saved_high_s"] <= world.truth.running_s + 1.0
