"""Two runs of a query, operator by operator: nothing is lost, times add up, and what changed is named."""

from __future__ import annotations

import itertools
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from workbench import charts
from workbench.cli import app
from workbench.core.errors import ConfigError, InputError
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.operator_explanation import explain_operator, read_sessions, read_single_log
from workbench.speedup.calibration.booked_times import Booking
from workbench.speedup.calibration.factors import map_columns_to_terms
from workbench.speedup.calibration.time_split import find_inseparable_columns
from workbench.speedup.comparison.plan_alignment import PlanAlignment, align_plans
from workbench.speedup.comparison.run_comparison import compare_logs
from workbench.speedup.tables import ALIGNED, PLAN_SIDES

LOG = SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"
LOGS = [SAMPLES / "speedup" / "tpch-sf1" / "logs" / f"{side}-s1.zstd" for side in ("spark", "comet")]


@lru_cache(maxsize=1)
def executions() -> list[Execution]:
    return [one for one in read_executions(read_event_logs(LOG)) if one.stages]


def scan(table: str, name: str = "Scan parquet ") -> dict[str, Any]:
    return made.plan(name, f"FileScan parquet [a#1] Location: InMemoryFileIndex[file:/x/{table}], PartitionFilters: []")


def run_of(tmp_path: Path, tree: dict[str, Any]) -> Execution:
    path = tmp_path / "log"
    job = [made.job_start(0, [0], {"spark.sql.execution.id": "0"}), made.stage_submitted(0), made.task_end(0)]
    ends = [made.stage_completed(0), made.job_end(0), made.sql_end(0)]
    path.write_bytes(made.small(made.sql_start(0, tree, "q"), *job, *ends))
    return next(iter(read_executions(read_event_logs(path))))


def changes(found: PlanAlignment) -> dict[tuple[str | None, str | None], str]:
    return {
        (row["baseline_name"], row["candidate_name"]): row["change"]
        for row in found.aligned.iter_rows(named=True)
        if row["change"] != "time"
    }


def test_a_run_beside_itself_is_the_same_in_every_operator() -> None:
    for one in executions()[:8]:
        found = align_plans(one, one).aligned
        assert set(found["change"]) <= {"same", "time"}
        assert (found["baseline_node"].drop_nulls() == found["candidate_node"].drop_nulls()).all()
        assert set(found["ratio"].drop_nulls()) <= {1.0}


def test_every_node_stands_in_one_row_and_times_add_up_to_the_walls() -> None:
    runs = executions()
    for first, second in itertools.pairwise(runs):
        found = align_plans(first, second)
        for side, one in (("baseline", first), ("candidate", second)):
            nodes = found.aligned[f"{side}_node"].drop_nulls().to_list()
            wanted = [key for key, node in one.nodes.items() if node.operator.kind != "none"]
            assert sorted(nodes) == sorted(wanted)
            assert found.aligned[f"{side}_wall_s"].sum() == pytest.approx(one.wall_s, rel=0.01)
        ALIGNED.check(found.aligned)
        PLAN_SIDES.check(found.sides)


def test_tables_whose_path_spark_has_cut_are_told_apart_by_their_columns(tmp_path: Path) -> None:
    def plan(number: int, columns: tuple[str, ...]) -> dict[str, Any]:
        text = "Location: InMemoryFileIndex(1 paths)[file:/x/of..., PartitionFilters: [(k#{} = 1)], ReadSchema: {}"
        return made.plan(
            "Union", children=[made.plan("Scan parquet ", text.format(number, column)) for column in columns]
        )

    found = align_plans(run_of(tmp_path, plan(8, ("a", "b"))), run_of(tmp_path, plan(94, ("b", "a")))).aligned
    pairs = found.filter(found["change"] == "same").select("baseline_node", "candidate_node").rows()
    assert pairs == [(1, 2), (2, 1)]


def test_an_accelerated_twin_is_a_replacement_and_what_was_left_is_named(tmp_path: Path) -> None:
    plain = made.plan("Sort", children=[made.plan("Filter", children=[scan("t")])])
    quick = made.plan("Sort", children=[made.plan("CometFilter", children=[scan("t", "CometScan parquet ")])])
    found = changes(align_plans(run_of(tmp_path, plain), run_of(tmp_path, quick)))
    assert found == {
        ("Sort", "Sort"): "left on CPU",
        ("Filter", "CometFilter"): "replaced",
        ("Scan parquet ", "CometScan parquet "): "replaced",
    }


def test_another_join_replaces_its_like_and_its_sorts_are_removed(tmp_path: Path) -> None:
    merge = made.plan(
        "SortMergeJoin",
        children=[made.plan("Sort", children=[scan("a")]), made.plan("Sort", children=[scan("b")])],
    )
    hashed = made.plan("BroadcastHashJoin", children=[scan("a"), made.plan("BroadcastExchange", children=[scan("b")])])
    found = align_plans(run_of(tmp_path, merge), run_of(tmp_path, hashed))
    assert changes(found)["SortMergeJoin", "BroadcastHashJoin"] == "replaced"
    assert found.aligned["change"].to_list().count("removed") == 2
    assert changes(found)[None, "BroadcastExchange"] == "added"


def test_scans_meet_the_scan_of_the_same_table_whatever_their_order(tmp_path: Path) -> None:
    first = run_of(tmp_path, made.plan("Union", children=[made.plan("Filter", children=[scan("a")]), scan("b")]))
    second = run_of(tmp_path, made.plan("Union", children=[scan("b"), made.plan("Filter", children=[scan("a")])]))
    found = align_plans(first, second).aligned
    for row in found.filter(found["operator"] == "Scan parquet").iter_rows(named=True):
        texts = [one.nodes[row[side]].arguments for one, side in ((first, "baseline_node"), (second, "candidate_node"))]
        assert texts[0] == texts[1]


def test_wrappers_are_looked_through(tmp_path: Path) -> None:
    bare = made.plan("Filter", children=[scan("t")])
    inner = made.plan("WholeStageCodegen (1)", children=[made.plan("Filter", children=[scan("t")])])
    wrapped = made.plan("AdaptiveSparkPlan", children=[inner])
    assert set(changes(align_plans(run_of(tmp_path, bare), run_of(tmp_path, wrapped))).values()) == {"same"}


def test_twins_share_a_row_on_both_trees() -> None:
    one = executions()[0]
    sides = align_plans(one, one).sides
    assert sides.height == 2 * sides["row"].n_unique()


def trees(found: PlanAlignment) -> Any:
    columns = {"side": "side", "node": "node_id", "parent": "parent_id", "pair": "row", "label": "name"}
    return charts.plan_trees(found.sides, title="t", value="wall_s", **columns)


def test_both_trees_listen_to_one_selection() -> None:
    one = executions()[0]
    spec = trees(align_plans(one, one)).to_dict()
    assert [param["name"] for param in spec["params"]] == ["pointed", "kept"]
    assert all(param["views"] == ["tree_0", "tree_1"] for param in spec["params"])
    assert all(param["select"]["fields"] == ["row"] for param in spec["params"])
    assert "nodes" in spec["hconcat"][0]["title"]["text"]


def test_a_tree_that_is_none_is_refused_and_no_nodes_still_make_a_chart() -> None:
    one = executions()[0]
    sides = align_plans(one, one).sides
    with pytest.raises(InputError, match="circle"):
        trees(PlanAlignment(sides, sides.with_columns(parent_id=sides["node_id"]), 1.0, 1.0))
    with pytest.raises(InputError, match="not there"):
        trees(PlanAlignment(sides, sides.with_columns(parent_id=sides["node_id"] + 100_000), 1.0, 1.0))
    assert trees(PlanAlignment(sides, sides.clear(), 1.0, 1.0)).to_dict()["hconcat"]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", "compare", *map(str, arguments)])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.mark.live
def test_the_command_compares_two_executions_of_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = executions()[0].sql_id, executions()[1].sql_id
    code, printed, errors = call(capsys, LOG, "--sql-ids", f"{first},{second}", "--out", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert ": baseline " in printed
    assert json.loads((tmp_path / "out" / "charts" / "000.vl.json").read_text())["hconcat"]
    assert (tmp_path / "out" / "tables" / "compared.parquet").is_file()


def test_logs_that_cannot_be_compared_are_said_to_be_so_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.zstd"
    copy.write_bytes(LOG.read_bytes())
    code, printed, _ = call(capsys, LOG, copy)
    assert code == 1
    assert printed.startswith("Not comparable: the candidate runs")
    assert "the same application is on both sides" in printed


def test_the_settings_that_differ_stand_beside_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = call(capsys, *LOGS, "--query", "q6")
    assert code == 0
    assert "What else differs" in printed
    assert "driver memory" in printed


def test_queries_of_two_logs_meet_by_their_description(tmp_path: Path) -> None:
    copy = tmp_path / "copy.zstd"
    copy.write_bytes(LOG.read_bytes())
    found = compare_logs(str(LOG), str(copy)).alignments
    assert len(found) > 3
    assert all(set(one.aligned["change"]) <= {"same", "time"} for one in found.values())
    name = next(iter(found))
    assert list(compare_logs(str(LOG), str(copy), queries=[name]).alignments) == [name]


def explained_s(log: Path, query: str, sql_id: int) -> dict[str, float]:
    """Wall time by term of one execution, as `explain` books it on the same log."""
    sessions, measured = read_sessions(str(log))
    booking = Booking(measured)
    names = map_columns_to_terms(booking.all_pieces.columns, find_inseparable_columns(booking.all_pieces))
    found = {}
    for term in set(names.values()):
        try:
            parts = explain_operator(sessions, measured, query, term).parts.filter(pl.col("sql_id") == sql_id)
        except InputError:
            continue
        found[term] = float((parts["part_s"] / parts["run_weight"]).sum())
    return found


@pytest.mark.parametrize(
    "query", ["q13", *(pytest.param(f"q{n}", marks=pytest.mark.slow) for n in range(1, 23) if n != 13)]
)
def test_compare_books_on_every_operator_what_explain_books(query: str) -> None:
    one = compare_logs(*map(str, LOGS), queries=[query]).alignments[query]
    for log, times in zip(LOGS, one.by_operator, strict=True):
        last = [each.sql_id for each in read_executions(read_single_log(str(log))) if each.query == query][-1]
        for term, seconds in explained_s(log, query, last).items():
            assert sum(times.get(name, 0.0) for name in term.split(" + ")) == pytest.approx(seconds, abs=1e-6)
        assert sum(times.values()) == pytest.approx(one.baseline_s if log == LOGS[0] else one.candidate_s, rel=1e-6)


def test_the_whole_has_a_verdict_and_small_operators_no_ratio() -> None:
    found = compare_logs(*map(str, LOGS))
    assert found.answer.startswith("FASTER: the candidate runs 22 queries 1.7")
    whole = float(found.sums["candidate_wall_s"].sum())
    assert whole == pytest.approx(sum(one.candidate_s for one in found.alignments.values()))
    small = found.sums.filter(pl.col("candidate_wall_s") < 0.01 * whole)
    assert small.height > 0
    assert small["ratio"].null_count() == small.height


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sql_ids": "1"}, ConfigError),
        ({"sql_ids": "a,b"}, ConfigError),
        ({"sql_ids": "99999,1"}, InputError),
        ({"sql_ids": "1,2", "queries": ["q"]}, ConfigError),
        ({}, ConfigError),
    ],
)
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        compare_logs(str(LOG), str(LOG), **options)
