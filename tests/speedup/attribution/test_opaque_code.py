"""Code of users that no engine can read: where it is seen, and that predictions leave its time as it is."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.worlds.spark import draw_world
from workbench.eventlog.reader import read_event_logs
from workbench.speedup import engines
from workbench.speedup.attribution.executions import Node
from workbench.speedup.attribution.time_pieces import IS_FIXED, MAY_BE_OPAQUE, measure_log_times


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
        ("Project", "Project [upper(v#2) AS s#9]", False),
        ("HashAggregate", "HashAggregate(keys=[k#1L], functions=[sum(v#2)])", False),
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
