"""Queries run to be tagged, and the ids in Spark's own UI, asked through its REST API."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.lore.local_spark import MARKS, local
from workbench import lore
from workbench.core.errors import ConfigError
from workbench.lore import tables
from workbench.lore.spark_bridge import query_runs
from workbench.lore.spark_bridge.query_runs import build_plan_table
from workbench.lore.spark_bridge.spark_internals import connect_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS

QUERY = "SELECT b.name, count(*) n FROM a JOIN b ON a.k = b.k GROUP BY b.name"
Execution = dict[str, Any]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {"spark__ui__enabled": "true", "spark__ui__port": "0", "spark__sql__adaptive__enabled": "true"}
    with local(**settings) as found:
        yield found


def executions(spark: SparkSession) -> list[Execution]:
    """What the UI knows by now."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/sql?details=true&length=1000"
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: list[Execution] = json.load(answer)
    # Views of the fixture are executions, too.
    return [one for one in found if "TempView" not in one["description"]]


def ended(spark: SparkSession) -> list[Execution]:
    """The same when nothing runs any more: the UI adds up an execution's metrics in a thread of its own at its end."""
    deadline = time.monotonic() + 60
    found = executions(spark)
    while any(one["status"] == "RUNNING" for one in found):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
        found = executions(spark)
    return found


def names(execution: Execution) -> list[str]:
    return [node["nodeName"].strip() for node in execution["nodes"]]


@pytest.fixture(scope="module")
def seen(spark: SparkSession) -> dict[str, Any]:
    """A query tagged; what the UI said after each time that labels were posted, and in the end."""
    spark.sparkContext.setJobDescription("the user's own words")
    frame = spark.sql(QUERY)
    during: list[Execution] = []
    original = query_runs.show_ids_in_ui
    with pytest.MonkeyPatch.context() as patch:

        def watched(*arguments: Any) -> None:
            original(*arguments)
            during.append(executions(spark)[-1])

        patch.setattr(query_runs, "show_ids_in_ui", watched)
        tree = lore.tag(frame)
    spark.sparkContext.setLocalProperty("spark.job.description", None)
    return {"frame": frame, "tree": tree, "during": during, "after": ended(spark)}


def test_while_aqe_may_change_the_plan_ids_are_provisional(seen: dict[str, Any]) -> None:
    first = seen["during"][0]
    assert first["status"] == "RUNNING"
    labelled = [name for name in names(first) if "[loreId=" in name]
    assert labelled
    assert all(name.endswith(" provisional]") for name in labelled)


def test_the_final_ids_are_shown_before_the_execution_ends(seen: dict[str, Any]) -> None:
    last = seen["during"][-1]
    assert last["status"] == "RUNNING"
    shown = names(last)
    for number, node in seen["tree"].nodes.items():
        assert [name for name in shown if name.endswith(f"[loreId={number}]")], (number, node.name, shown)
    assert not [name for name in shown if "provisional" in name]


def test_after_the_end_nothing_changes_any_more(seen: dict[str, Any]) -> None:
    after = seen["after"]
    assert len(after) == 1
    assert after[0]["status"] == "COMPLETED"
    assert after[0]["description"] == "the user's own words"
    assert names(after[0]) == names(seen["during"][-1])
    tree = seen["tree"]
    assert {node.name: node for node in tree.nodes.values()}["SortMergeJoin"].rows == 230
    assert ("230 rows" in tree.render_text(), tree.provisional) == (True, False)


# No value has this hash.
EMPTIED = (
    "SELECT k, count(*) c FROM (SELECT id % 7 k, id FROM range(0, 1000, 1, 2)) WHERE hash(id) = 12345678 GROUP BY k"
)


def test_operators_that_gave_no_rows_are_told_with_0_rows(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        frame = spark.sql(EMPTIED)
        fresh = lore.tag(frame, run=False)
        assert [node.rows for node in fresh.nodes.values()] == [None] * len(fresh.nodes)
        plan = build_plan_table(lore.tag(frame))
        again = lore.tag(frame)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    rows = [(row["operator"], row["rows_in"], row["n_rows"]) for row in plan.iter_rows(named=True)]
    assert [row for row in rows if row[0] in ("HashAggregate", "Filter", "Range")] == [
        ("HashAggregate", 0, 0),
        ("HashAggregate", 0, 0),
        ("Filter", 1000, 0),
        ("Range", None, 1000),
    ]
    assert [node.rows for node in again.nodes.values()] == plan.sort("lore_id")["n_rows"].to_list()
    # A plan that ran and counted nothing.
    tree = lore.tag(spark.sql("SELECT rand() > 2 AS x FROM VALUES (1) AS t(y) WHERE false"), labels=False)
    assert [node.rows for node in tree.nodes.values()] == [0]


def test_a_sample_that_is_interpreted_is_not_said_to_give_no_rows(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        tree = lore.tag(spark.table("a").sample(0.5, seed=3), labels=False)
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", "true")
    assert next(node.rows for node in tree.nodes.values() if node.name == "Sample") is None


def test_a_second_tag_runs_nothing_and_gives_the_same(spark: SparkSession, seen: dict[str, Any]) -> None:
    before = len(executions(spark))
    assert lore.tag(seen["frame"]).plan_shape() == seen["tree"].plan_shape()
    assert lore.tag(spark.sql(QUERY), run=False).provisional, "it is not run"
    assert len(executions(spark)) == before


def test_without_labels_spark_s_own_names_stand(spark: SparkSession) -> None:
    lore.tag(spark.sql("SELECT k + 1 AS x FROM a"), labels=False)
    last = executions(spark)[-1]
    assert last["status"] == "COMPLETED"
    assert not [name for name in names(last) if "loreId" in name]


def test_a_query_that_fails_is_shown_as_failed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT sum(k), raise_error('stop here') FROM a GROUP BY v")
    with pytest.raises(Exception, match="stop here"):
        lore.tag(frame)
    assert executions(spark)[-1]["status"] == "FAILED"


def test_a_streaming_query_is_refused_with_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"streaming query(.|\n)*spark\.read instead"):
        lore.tag(spark.readStream.format("rate").load())
    with pytest.raises(ConfigError, match="streaming query"):
        lore.dump(spark.readStream.format("rate").load(), "1[*]", "nowhere")


class _Connected:
    """What stands for a session of Spark Connect: it has no JVM in this process."""

    __module__ = "pyspark.sql.connect.session"
    version = "3.5.9"

    class _Conf:
        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return default

    conf = _Conf()


# A DataFrame of it.
CONNECTED = SimpleNamespace(sparkSession=_Connected(), isStreaming=False)


@pytest.mark.parametrize("work", [lore.tag, lambda frame: lore.dump(frame, "1[*]", "nowhere")], ids=["tag", "dump"])
def test_a_session_of_spark_connect_is_refused_with_what_to_do(work: Any) -> None:
    with pytest.raises(ConfigError, match=r"Spark Connect session(.|\n)*SparkSession\.builder"):
        work(CONNECTED)


def test_a_line_of_spark_that_is_not_known_is_refused() -> None:
    class Session:
        version = "3.4.1"

    with pytest.raises(ConfigError, match=r"3\.4\.1(.|\n)*3\.5, 4\.x"):
        connect_bridge(Session())


def test_the_table_has_a_row_for_each_operator_and_says_why_some_cannot_be_dumped(seen: dict[str, Any]) -> None:
    table = query_runs.tree_table(seen["tree"])
    tables.TREE.check(table)
    assert table["lore_id"].drop_nulls().sort().to_list() == sorted(seen["tree"].nodes)
    assert table["parent"][0] is None
    assert table["parent"][1:].null_count() == 0
    by_name = {row["operator"]: row["refused"] for row in table.to_dicts()}
    assert by_name["SortMergeJoin"] is None
    assert "leaf" in by_name["Range"]
    assert seen["tree"].render_text().count("[no dump: it is a leaf]") == list(table["operator"]).count("Range")


def test_the_kept_plan_has_what_a_later_run_is_held_against(seen: dict[str, Any]) -> None:
    kept = query_runs.build_plan_document(seen["tree"])
    assert kept["plan_hash"] == seen["tree"].plan_hash
    assert kept["shape"] == seen["tree"].plan_shape()
    assert json.loads(json.dumps(kept)) == kept


def test_rows_below_a_range_partitioning_are_counted_once(spark: SparkSession) -> None:
    tree = lore.tag(spark.sql("SELECT k, v FROM (SELECT * FROM a WHERE k < 30) ORDER BY v"))
    assert "rangepartitioning" in tree.render_text()
    (filtered,) = [node for node in tree.nodes.values() if node.name == "Filter"]
    assert filtered.rows == spark.sql("SELECT * FROM a WHERE k < 30").count()
    assert filtered.runs == 2
    assert "ran 2 times" in tree.render_text()
