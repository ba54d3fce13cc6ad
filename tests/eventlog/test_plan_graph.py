"""Plans are numbered as Spark's own UI does: cases worked by hand, and Spark's own class on real queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.eventlog.conftest import local_spark
from tests.fakes import eventlogs as made
from tests.fakes.eventlogs import plan
from workbench.eventlog.column_slices import Rows, join_slices
from workbench.eventlog.listener_events import Plan
from workbench.eventlog.plan_columns import PlanCollector, PlanColumns
from workbench.eventlog.plan_graph import MAX_NODES, PlanNode, build_graph
from workbench.eventlog.reader import read_event_logs


def nodes(tree: dict[str, Any]) -> list[PlanNode]:
    return build_graph(msgspec.convert(tree, Plan))


def shape(tree: dict[str, Any]) -> str:
    """Numbers and names, with parents behind `<` and the span that a node is in."""
    words = []
    for node in nodes(tree):
        span = "" if node.codegen_id is None else f" in {node.codegen_id}"
        words.append(f"{node.node_id} {node.name}" + "".join(f" <{parent}" for parent in node.parent_ids) + span)
    return ", ".join(words)


def test_numbers_run_in_pre_order() -> None:
    tree = plan("Union", children=[plan("Filter", children=[plan("Scan a")]), plan("Scan b")])
    assert shape(tree) == "0 Union, 1 Filter <0, 2 Scan a <1, 3 Scan b <0"
    assert [node.depth for node in nodes(tree)] == [0, 1, 2, 1]


def test_a_codegen_span_is_a_node_around_its_operators_and_ends_at_an_input_adapter() -> None:
    inner = plan("InputAdapter", children=[plan("Exchange", children=[plan("Scan")])])
    span = plan("WholeStageCodegen (2)", children=[plan("Project", children=[plan("Filter", children=[inner])])])
    found = shape(plan("Sort", children=[span]))
    assert found == "0 Sort, 1 WholeStageCodegen (2), 2 Project <0 in 1, 3 Filter <2 in 1, 4 Exchange <3, 5 Scan <4"


def test_query_stages_are_looked_through() -> None:
    tree = plan("AdaptiveSparkPlan", children=[plan("ShuffleQueryStage", children=[plan("Exchange")])])
    assert shape(tree) == "0 AdaptiveSparkPlan, 1 Exchange <0"


def test_a_reused_exchange_is_one_node_with_two_parents() -> None:
    exchange = plan("Exchange", "Exchange hashpartitioning(a#1, 5)", [plan("Scan")])
    again = plan("Sort", "right", [plan("ReusedExchange", children=[exchange])])
    join = plan("SortMergeJoin", children=[plan("Sort", "left", [exchange]), again])
    assert shape(join) == "0 SortMergeJoin, 1 Sort <0, 2 Exchange <1 <4, 3 Scan <2, 4 Sort <0"


def test_exchanges_that_differ_below_are_not_the_same() -> None:
    def exchange(table: str) -> dict[str, Any]:
        return plan("Exchange", "Exchange x", [plan("Scan", table)])

    tree = plan("Join", children=[exchange("a"), plan("ReusedExchange", children=[exchange("b")])])
    found = [node.name for node in nodes(tree)]
    assert found == ["Join", "Exchange", "Scan", "ReusedExchange", "Exchange", "Scan"]


def test_a_reused_subquery_points_to_the_first_one() -> None:
    subquery = plan("Subquery", "Subquery scalar-subquery#7", [plan("Scan")])
    again = plan("Filter", "b", [plan("ReusedSubquery", children=[subquery])])
    tree = plan("Union", children=[plan("Filter", "a", [subquery]), again])
    assert shape(tree) == "0 Union, 1 Filter <0, 2 Subquery <1 <4, 3 Scan <2, 4 Filter <0"


def test_a_subquery_inside_a_codegen_span_stands_outside_it() -> None:
    subquery = plan("Subquery", "Subquery x", [plan("WholeStageCodegen (2)", children=[plan("Range")])])
    tree = plan("WholeStageCodegen (1)", children=[plan("Filter", children=[subquery, plan("Scan")])])
    inside = "3 WholeStageCodegen (2), 4 Range <2 in 3, 5 Scan <1 in 0"
    assert shape(tree) == f"0 WholeStageCodegen (1), 1 Filter in 0, 2 Subquery <1, {inside}"


def test_a_node_that_lacks_what_its_name_promises_is_a_plain_node() -> None:
    for name in ("WholeStageCodegen (1)", "InputAdapter", "ShuffleQueryStage", "ReusedExchange", "ReusedSubquery"):
        assert shape(plan(name)) == f"0 {name}"


def test_a_plan_of_10000_levels_needs_no_recursion() -> None:
    deep = Plan("Scan")
    for level in range(10_000):
        deep = Plan("Exchange" if level % 7 == 0 else "Filter", children=[deep])
    found = build_graph(deep)
    assert len(found) == 10_001
    assert found[-1].depth == 10_000


def test_a_plan_beyond_all_measure_is_cut() -> None:
    assert len(build_graph(Plan("Union", children=[Plan("Scan")] * (MAX_NODES + 5)))) == MAX_NODES


def test_a_plan_too_deep_to_decode_costs_its_own_line_only(tmp_path: Path) -> None:
    deep = made.sql_start(1)
    text = json.dumps(deep).replace(
        '"children": []', '"children": ' + '[{"nodeName":"a","children":' * 10_000 + "[]" + "}]" * 10_000
    )
    path = tmp_path / "log"
    path.write_bytes(made.small(made.sql_start(0), text.encode(), made.sql_end(1), made.sql_end(0)))
    facts = read_event_logs(path)
    assert facts.logs["n_bad_lines"].to_list() == [1]
    assert facts.sql_executions["sql_id"].to_list() == [0, 1]
    assert facts.sql_executions["n_plan_versions"].to_list() == [1, 0]


def collect(*plans: tuple[int, dict[str, Any]]) -> PlanColumns:
    collector = PlanCollector()
    assert [collector.add_plan(sql_id, msgspec.convert(tree, Plan)) for sql_id, tree in plans] == list(
        range(len(plans))
    )
    return collector.list_columns()


def values(rows: Rows, name: str) -> list[Any]:
    column = rows.coded[name]
    return [column.values[code] for code in column.codes]


def test_a_plan_comes_back_whole_from_among_others() -> None:
    tree = plan("Filter", children=[plan("Scan", metrics={7: "rows"}, metadata={"Format": "Parquet"})])
    columns = collect((1, plan("Sort")), (1, tree))
    for found in (columns.list_plans()[1], columns.list_plans()[1].copy()):
        rows = join_slices([found.nodes])
        assert values(rows, "name") == ["Filter", "Scan"]
        assert rows.numbers["depth"].tolist() == [0, 1]
        assert (values(rows, "parents"), values(rows, "accumulators")) == ([(), (0,)], [(), (7,)])
        assert values(rows, "metadata") == [None, {"Format": "Parquet"}]
        metrics = join_slices([found.metrics])
        assert (metrics.numbers["id"].tolist(), [name for name, _ in values(metrics, "kind")]) == ([7], ["rows"])
    assert columns.list_plans()[1].copy().nodes.rows.coded["name"].values == ["Filter", "Scan"], "Sort is left out"


def test_a_text_is_kept_once_a_query_and_never_shared_by_two() -> None:
    columns = collect((1, plan("Filter", "a > 1")), (1, plan("Filter", "a > 1")), (2, plan("Filter", "a > 1")))
    assert columns.nodes.coded["text"].codes.tolist() == [0, 0, 1]
    assert columns.nodes.coded["name"].codes.tolist() == [0, 0, 0]


def test_a_metric_is_described_by_the_first_version_of_its_plan() -> None:
    first, second = plan("Scan", metrics={7: "rows"}), plan("Scan", metrics={7: "rows", 8: "files"})
    assert collect((1, first), (1, second)).metrics.numbers["id"].tolist() == [7, 8]
    assert collect((1, first), (1, second)).n_metrics == [1, 1]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("warehouse"), "plans") as session:
        session.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as s").createOrReplaceTempView("t")
        yield session


QUERIES = {
    "project": "select id + 1 as x from t where k = 3",
    "aggregate": "select k, count(*), sum(id) from t group by k",
    "join": "select /*+ merge(b) */ a.id from t a join t b on a.id = b.id where b.k > 1",
    "broadcast": "select /*+ broadcast(b) */ a.id from t a join t b on a.id = b.k",
    "reused exchange": "with g as (select k, sum(id) x from t group by k) select * from g a join g b on a.x = b.x",
    "subquery": "select id, (select max(k) from t) from t where id > (select avg(id) from t)",
    "reused subquery": "select (select max(k) from t) + id from t where id > (select max(k) from t)",
    "union and window": "select k, row_number() over (partition by k order by id) from t union all select 1, 2",
}


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # py4j's sockets are closed by the gateway's end
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_numbers_and_names_equal_those_of_sparks_own_graph(spark: Any, adaptive: str) -> None:
    ui = spark._jvm.org.apache.spark.sql.execution.ui
    converter = spark._jvm.org.apache.spark.sql.execution.SparkPlanInfo
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    for name, text in QUERIES.items():
        frame = spark.sql(text)
        for executed in (False, True):
            if executed:
                frame.collect()
            info = converter.fromSparkPlan(frame._jdf.queryExecution().executedPlan())
            theirs = _flat(ui.SparkPlanGraph.apply(info).allNodes())
            ours = {node.node_id: node.name for node in build_graph(_plan(info))}
            assert ours == theirs, (name, adaptive, executed)


def _flat(nodes: Any) -> dict[int, str]:
    return {nodes.apply(i).id(): nodes.apply(i).name() for i in range(nodes.size())}


def _plan(info: Any) -> Plan:
    children = info.children()
    below = [_plan(children.apply(i)) for i in range(children.size())]
    return Plan(info.nodeName(), info.simpleString(), below)
