from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.eventlog import tables as log_tables
from workbench.eventlog.reader import read_event_logs
from workbench.speedup import engines
from workbench.speedup.attribution.executions import Execution, Node, Stage, fingerprint_inputs, read_executions
from workbench.speedup.attribution.time_pieces import (
    DRIVER,
    IDLE,
    OVERHEAD,
    REMAINDER,
    SPAN,
    UNKNOWN,
    WAITING,
    split_wall_by_stage,
    split_wall_time,
)

Metrics = dict[int, dict[str, float]]


def node(
    node_id: int, name: str, parents: tuple[int, ...] = (), metrics: Metrics | None = None, arguments: str = ""
) -> Node:
    return Node(node_id, name, engines.classify_operator(name), parents, arguments, metrics or {})


def stage(stage_id: int, start_s: float, end_s: float, task_s: float, run_s: float | None = None) -> Stage:
    ran_s = task_s if run_s is None else run_s
    return Stage(stage_id, 0, start_s, end_s, task_s, ran_s, 2, 0, start_s, end_s, [(start_s, end_s)])


def execution(nodes: list[Node], stages: list[Stage], end_s: float = 10.0) -> Execution:
    by_id = {one.node_id: one for one in nodes}
    return Execution(0, 0, "q", 1, "succeeded", 0.0, end_s, by_id, tuple(stages))


def by_operator(one: Execution) -> dict[str, float]:
    found: dict[str, float] = {}
    for piece in split_wall_time(one):
        name = piece.term or "+".join(sorted(one.nodes[i].name for i in piece.node_ids))
        found[name] = found.get(name, 0.0) + piece.wall_s
    return found


def test_stages_that_overlap_share_an_instant_by_the_slots_they_took() -> None:
    one, two = stage(0, 0, 4, task_s=6), stage(1, 2, 6, task_s=2)
    walls, quiet = split_wall_by_stage(execution([], [one, two]))
    # Between 2 and 4 both run, with 1.5 and 0.5 tasks at a time.
    assert walls[one] == pytest.approx(2 + 2 * 0.75)
    assert walls[two] == pytest.approx(2 * 0.25 + 2)
    assert quiet == {IDLE: 0, WAITING: 0, DRIVER: pytest.approx(4)}


def test_stages_side_by_side_count_once_and_tasks_outside_the_execution_are_cut_off() -> None:
    stages = [stage(i, 0, 12.1, task_s=12.1) for i in range(5)]
    walls, quiet = split_wall_by_stage(execution([], stages, end_s=12.1))
    assert (sum(walls.values()), sum(quiet.values())) == (pytest.approx(12.1), pytest.approx(0))
    walls, quiet = split_wall_by_stage(execution([], [stage(0, -5, 20, task_s=25)]))
    assert (sum(walls.values()), sum(quiet.values())) == (pytest.approx(10), 0)


def test_metrics_of_tasks_that_succeeded_stand_for_those_that_did_not() -> None:
    nodes = [
        node(0, "ArrowEvalPython", (), {0: {"time to run Python workers": 6.0}}),
        node(1, "Project", (0,), {0: {}}),
    ]
    once, with_failures = stage(0, 0, 10, task_s=10), stage(0, 0, 15, task_s=15)
    alone = by_operator(execution(nodes, [once]))
    repeated = by_operator(execution(nodes, [replace(with_failures, failed_s=5.0)], end_s=15.0))
    python = [name for name in alone if "Python" in name]
    assert sum(alone[name] for name in python) / 10 == pytest.approx(sum(repeated[name] for name in python) / 15)


def test_a_span_gives_its_own_part_without_scan_and_inner_span() -> None:
    nodes = [
        node(0, "HashAggregate", (), {0: {"time in aggregation build": 6.0}}),
        node(1, "HashAggregate", (0,), {0: {"time in aggregation build": 5.0}}),
        node(2, "Filter", (1,), {0: {"number of output rows": 10}}),
        node(3, "Scan parquet ", (2,), {0: {"scan time": 2.0}}),
    ]
    found = split_wall_time(execution(nodes, [stage(0, 0, 10, task_s=10, run_s=8)]))
    spans = {piece.node_ids: piece.task_s for piece in found if piece.basis == SPAN}
    assert spans == {(1, 2): pytest.approx(3.0 * 8 / 6), (0,): pytest.approx(1.0 * 8 / 6)}
    assert {piece.term for piece in found if piece.term} == {IDLE, OVERHEAD}
    # 8 s ran, 6 s are told: what nothing tells is spread over what is.
    assert sum(piece.task_s for piece in found) == pytest.approx(10)
    assert sum(piece.wall_s for piece in found) == pytest.approx(10)


def test_the_remainder_is_shared_by_fused_operators_and_the_exchange_that_writes() -> None:
    nodes = [
        node(0, "Exchange", (), {0: {"shuffle write time": 1.0, "shuffle records written": 5}}),
        node(1, "WholeStageCodegen (1)", (), {0: {"duration": 9.0}}),
        node(2, "Project", (0,)),
        node(3, "Filter", (2,), {0: {"number of output rows": 5}}),
        node(4, "Scan parquet ", (3,), {0: {"scan time": 2.0}}),
    ]
    found = split_wall_time(execution(nodes, [stage(0, 0, 10, task_s=10)]))
    rest = [piece for piece in found if piece.basis == REMAINDER]
    assert [set(piece.node_ids) for piece in rest] == [{0, 2, 3}]
    assert rest[0].task_s == pytest.approx(7)


def test_metrics_beyond_the_run_time_are_scaled_to_it() -> None:
    nodes = [
        node(0, "CometSort", (), {0: {"total time (in ms) spent in this operator": 9.0}}),
        node(1, "CometSortMergeJoin", (0,), {0: {"Total time for joining": 27.0}}),
    ]
    found = by_operator(execution(nodes, [stage(0, 0, 10, task_s=12)]))
    assert found["CometSort"] == pytest.approx(2.5)
    assert found["CometSortMergeJoin"] == pytest.approx(7.5)


def test_an_exchange_writes_in_one_stage_and_is_read_in_another() -> None:
    written = {"shuffle write time": 1.0, "shuffle records written": 4}
    nodes = [
        node(0, "HashAggregate", (), {1: {"number of output rows": 1}}),
        node(1, "Exchange", (0,), {0: written, 1: {"fetch wait time": 2.0, "records read": 4}}),
        node(2, "Scan parquet ", (1,), {0: {"scan time": 3.0}}),
    ]
    found = split_wall_time(execution(nodes, [stage(0, 0, 4, task_s=4), stage(1, 5, 9, task_s=4)]))
    told = {(piece.stage_id, piece.node_ids): piece.task_s for piece in found if piece.term is None}
    assert told[1, (1,)] == pytest.approx(2.0)
    assert told[1, (0,)] == pytest.approx(2.0)
    assert told[0, (2,)] == pytest.approx(3.0)


def test_a_stage_that_no_operator_tells_of_is_unattributed_and_not_lost() -> None:
    found = by_operator(execution([], [stage(0, 0, 6, task_s=6, run_s=3)]))
    quiet = {IDLE: 0, DRIVER: pytest.approx(4)}
    assert found == quiet | {UNKNOWN: pytest.approx(3), OVERHEAD: pytest.approx(3)}


def test_a_stage_whose_tasks_took_nothing_is_overhead() -> None:
    found = by_operator(execution([], [stage(0, 0, 2, task_s=0)]))
    assert sum(found.values()) == pytest.approx(10)


def test_the_fingerprint_is_that_of_tables_and_columns_whatever_the_engine_and_the_folder() -> None:
    text = "FileScan parquet [a#{}] Format: X, Location: InMemoryFileIndex(1 paths)[file:{}/t.parquet], ReadSchema: {}"
    plain = execution([node(0, "Scan parquet ", (), {}, text.format(1, "/x", "struct<a:int>"))], [])
    comet = execution([node(7, "CometScan parquet ", (), {}, text.format(9, "/y/z", "struct<a:int>"))], [])
    other = execution([node(0, "Scan parquet ", (), {}, text.format(1, "/x", "struct<b:int>"))], [])
    assert fingerprint_inputs(plain) == fingerprint_inputs(comet) != fingerprint_inputs(other)
    assert fingerprint_inputs(execution([], [])) is None


def test_a_path_that_spark_has_cut_leaves_the_columns_and_no_numbers_of_the_run() -> None:
    cut = (
        "FileScan parquet [a#1] Location: InMemoryFileIndex(1 paths)[file:{}/of_so..., PartitionFilters: "
        "[isnotnull(k#{}), (k#{} = 1)], PushedFilters: [], ReadSchema: struct<a:int> RuntimeFilters: [k#{}]"
    )
    first, second = (
        execution([node(0, "Scan parquet ", (), {}, cut.format(folder, number, number, number))], [])
        for folder, number in (("/x", 8), ("/y", 94))
    )
    assert fingerprint_inputs(first) == fingerprint_inputs(second)


def test_a_plan_that_adaptive_execution_replaced_by_an_empty_one_is_the_one_that_ran() -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    before = {one.sql_id: one for one in read_executions(facts)}
    last = facts.plan_nodes.filter("is_final").group_by("log_id", "sql_id").agg(pl.col("plan_version").first())
    columns = {"plan_version": pl.col("plan_version") + 1, "is_final": True, "node_id": 0, "depth": 0}
    names = {"node_name": "LocalTableScan", "simple_string": "LocalTableScan <empty>", "metadata": None}
    lists = {"parent_ids": [], "accumulator_ids": [-1]}
    empty = last.with_columns(
        **{name: value if isinstance(value, pl.Expr) else pl.lit(value) for name, value in (columns | names).items()},
        **{name: pl.lit(value, pl.List(pl.Int64)) for name, value in lists.items()},
        codegen_id=pl.lit(None, pl.Int64),
    )
    ended = log_tables.PLAN_NODES.check(empty.cast(log_tables.PLAN_NODES.schema()))
    plans = pl.concat([facts.plan_nodes.with_columns(is_final=pl.lit(False)), ended])
    after = {one.sql_id: one for one in read_executions(replace(facts, plan_nodes=plans))}
    assert len(after) == len(before) > 0
    for sql_id, one in before.items():
        assert sorted(after[sql_id].nodes) == sorted(one.nodes)
        assert by_operator(after[sql_id]) == pytest.approx(by_operator(one))
