"""Every operator of the matrix of queries is dumped, and gives the same when another process replays it.

One process dumps and one replays for each configuration; both loop over the operators, and the tests read what they
wrote. On Spark 4, which lies beside the installed one, the marker is `network`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.lore import queries
from tests.lore.configuration import Outcome, run
from workbench.lore.dumps.dump_folder import Sidecar

pytestmark = pytest.mark.timeout(1500)

# Why an operator is not dumped, by its class; whatever else is not dumped is a failure.
REFUSED = {
    "FileSourceScanExec": "it is a leaf",
    "InMemoryTableScanExec": "it is a leaf",
    "LocalTableScanExec": "it is a leaf",
    "RDDScanExec": "it is a leaf",
    "RangeExec": "it is a leaf",
    "EmptyRelationExec": "it is a leaf",
    "CommandResultExec": "it is a leaf",
    "AQEShuffleReadExec": "it only regroups shuffle partitions",
    "BroadcastExchangeExec": "it builds the table of a join",
    "SubqueryExec": "it only carries a subquery's result",
    "SubqueryBroadcastExec": "it only carries a subquery's result",
    "ReusedSubqueryExec": "it only points to another subquery",
    "DataWritingCommandExec": "it writes data",
    "WriteFilesExec": "it writes data",
    "DeserializeToObjectExec": "it passes JVM objects of a typed Dataset",
    "MapPartitionsExec": "it passes JVM objects of a typed Dataset",
    "SerializeFromObjectExec": "it passes JVM objects of a typed Dataset",
}
# The same by query, where a value is the reason.
REFUSED_VALUES = {
    "calendar_intervals": "is a calendar interval",
    "no_type": "has no type but null",
    "alike_in_a_struct": "has fields of one name",
}
# Dumped at least once in each configuration.
DUMPED = """
AggregateInPandas ArrowEvalPython ArrowEvalPythonUDTF BatchEvalPython BatchEvalPythonUDTF BroadcastHashJoin
BroadcastNestedLoopJoin CartesianProduct Coalesce CollectLimit ColumnarToRow Expand Filter FlatMapCoGroupsInPandas
FlatMapGroupsInPandas Generate GlobalLimit HashAggregate LocalLimit MapInArrow MapInPandas ObjectHashAggregate Project
Sample ShuffleExchange ShuffledHashJoin Sort SortAggregate SortMergeJoin TakeOrderedAndProject Union Window
WindowGroupLimit WindowInPandas
"""
LARGEST_PLAN_BYTES = 64 * 1024
Configuration = tuple[Literal["3.5", "4"], Literal["on", "off"]]
# Each query meets both lines and both modes, and our code asks for the line (`bridge`) or for the mode (is the plan
# final?), never for both at once.
CONFIGURATIONS: list[Any] = [
    pytest.param(("3.5", "on"), id="spark 3.5, adaptive on", marks=pytest.mark.spark),
    pytest.param(("4", "off"), id="spark 4, adaptive off", marks=pytest.mark.network),
]


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Configuration, Future[Outcome]]]:
    """Both configurations at once: while one plans its small jobs, a core would be idle."""
    chosen = {item.callspec.params["outcome"] for item in request.session.items if item.path == request.path}
    with ThreadPoolExecutor(2) as pool:
        yield {
            (line, adaptive): pool.submit(run, tmp_path_factory.mktemp("matrix"), line=line, adaptive=adaptive)
            for line, adaptive in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def outcome(request: pytest.FixtureRequest, running: dict[Configuration, Future[Outcome]]) -> Outcome:
    return running[request.param].result()


def test_the_matrix_is_whole_and_each_query_has_every_class_that_it_is_there_for(outcome: Outcome) -> None:
    line = tuple(int(part) for part in outcome.spark.split(".")[:2])
    wanted = {one.name: one.shows for one in queries.of_line((line[0], line[1]))}
    assert outcome.queries == list(wanted)
    met = {name: {one.kind for one in outcome.operators if one.query == name} for name in wanted}
    assert {name: sorted(shows - met[name]) for name, shows in wanted.items() if not shows <= met[name]} == {}
    assert len(outcome.queries) >= 53
    dumped = [one.kind for one in outcome.operators if one.dumped]
    assert len(dumped) >= 175
    assert sorted({f"{name}Exec" for name in DUMPED.split()} - set(dumped)) == []
    assert len(outcome.answers) >= 46


def test_every_operator_is_dumped_but_those_that_are_refused_by_design(outcome: Outcome) -> None:
    assert [f"{one.query} {one.lore_id} {one.kind}: {one.error}" for one in outcome.operators if one.error] == []
    unexpected = []
    for one in outcome.operators:
        reasons = [REFUSED.get(one.kind), REFUSED_VALUES.get(one.query)]
        if one.refused and not any(reason and reason in one.refused for reason in reasons):
            unexpected.append(f"{one.query} {one.lore_id} {one.kind}: {one.refused}")
    assert unexpected == []
    assert {one.kind for one in outcome.operators if one.dumped} & set(REFUSED) == set()
    reached = {one.query for one in outcome.operators if REFUSED_VALUES.get(one.query, "?") in (one.refused or "")}
    assert reached == set(REFUSED_VALUES)


def test_inputs_of_every_kind_are_dumped_and_such_without_columns_or_with_one_name_twice(outcome: Outcome) -> None:
    sidecars = [Sidecar.model_validate_json((Path(folder) / "plan.json").read_bytes()) for folder in outcome.folders]
    inputs = [entry for sidecar in sidecars for entry in sidecar.inputs]
    assert {entry.kind for entry in inputs} == {"rows", "columnar", "broadcast", "subquery"}
    assert {entry.kind for entry in inputs if entry.zero_columns and entry.n_rows} == {"rows", "broadcast"}
    names = [[column.name for column in entry.columns] for entry in inputs]
    assert any(len(set(one)) < len(one) for one in names)


def test_every_replay_gives_the_rows_of_the_original(outcome: Outcome) -> None:
    assert [str(one) for one in outcome.replays if not one.passed] == []
    assert {(one.query, one.lore_id) for one in outcome.replays} == {
        (one.query, one.lore_id) for one in outcome.operators if one.dumped
    }


def test_nearly_every_replay_keeps_the_order_and_only_blocks_of_a_shuffle_come_in_another(outcome: Outcome) -> None:
    moved = [str(one) for one in outcome.replays if not one.row_for_row]
    assert len(moved) <= 0.01 * len(outcome.replays), moved
    kinds = {(one.query, one.lore_id): one.kind for one in outcome.operators}
    # In which order a shuffle's blocks are fetched is nobody's promise.
    assert {kinds[one.query, one.lore_id] for one in outcome.replays if not one.row_for_row} <= {"ShuffleExchangeExec"}


def test_replays_of_the_topmost_operators_give_the_answers_of_the_queries(outcome: Outcome) -> None:
    assert len(outcome.answers) >= 0.8 * len(outcome.queries)
    different = {
        name: (given, outcome.original[name])
        for name, given in outcome.answers.items()
        if given != outcome.original[name]
    }
    assert different == {}


def test_ids_and_trees_are_the_same_in_two_processes(outcome: Outcome) -> None:
    assert sorted(outcome.trees) == sorted(outcome.trees_again) == sorted(outcome.queries)
    changed = [
        f"{name}\n{tree}\n{outcome.trees_again[name]}"
        for name, tree in outcome.trees.items()
        if tree != outcome.trees_again[name]
    ]
    assert changed == []


def test_plans_are_small(outcome: Outcome) -> None:
    sizes = {
        str(path.relative_to(outcome.folder)): path.stat().st_size
        for path in outcome.folder.glob("*/loreId-*/plan.meta")
    }
    assert len(sizes) == sum(one.dumped for one in outcome.operators)
    assert {name: size for name, size in sizes.items() if size >= LARGEST_PLAN_BYTES} == {}


def test_no_file_of_a_dump_holds_a_secret_or_says_where_it_came_from(outcome: Outcome) -> None:
    assert len(outcome.secrets) >= 8
    found = Counter(
        f"{path.name} of {kind}: {name}"
        for folder, kind in outcome.folders.items()
        for path in Path(folder).rglob("*")
        if path.is_file()
        for name, secret in outcome.secrets.items()
        if secret in path.read_bytes()
    )
    assert dict(found) == {}
