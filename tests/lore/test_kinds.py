"""Queries that the matrix does not have: each operator is dumped, and replayed by another process.

What is not PASS is refused with a true reason, or undecided since it gives other rows in each run.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.lore import queries_of_kinds
from tests.lore.configuration import Outcome, run
from tests.lore.test_matrix import REFUSED

pytestmark = pytest.mark.timeout(1800)
# Leaves and nodes without rows of their own have the reasons of the matrix; these are of a value or a class.
REFUSED_HERE = {
    "BatchScanExec": "it is a leaf",
    "ExternalRDDScanExec": "it is a leaf",
    # A Scala function that Spark makes of a dictionary.
    ("sample_by_value", "FilterExec"): "contains classes that a replay does not load",
}
# Their operator itself gives other rows in each run over the same inputs.
UNDECIDED = {("udf_that_is_declared_nondeterministic", "BatchEvalPythonExec")}


LINES: list[Any] = [
    pytest.param("3.5", id="spark 3.5", marks=pytest.mark.spark),
    pytest.param("4", id="spark 4", marks=pytest.mark.network),
]


@pytest.fixture(scope="module", params=LINES)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("kinds"), line=request.param, options=("--kinds",))


def test_every_query_is_there(outcome: Outcome) -> None:
    major, minor = (int(part) for part in outcome.spark.split(".")[:2])
    wanted = [one.name for one in queries_of_kinds.of_line((major, minor))]
    assert sorted(outcome.queries) == sorted(wanted)
    assert len(outcome.queries) >= 15
    assert all(any(one.dumped for one in outcome.operators if one.query == name) for name in outcome.queries)


def test_what_is_not_dumped_is_refused_with_a_true_reason(outcome: Outcome) -> None:
    assert [f"{one.query} {one.lore_id} {one.kind}: {one.error}" for one in outcome.operators if one.error] == []
    known: dict[Any, str] = {**REFUSED, **REFUSED_HERE}
    unexpected = [
        f"{one.query} {one.lore_id} {one.kind}: {one.refused}"
        for one in outcome.operators
        if one.refused
        and not any(
            reason and reason in one.refused for reason in (known.get(one.kind), known.get((one.query, one.kind)))
        )
    ]
    assert unexpected == []


def test_every_replay_gives_the_rows_of_the_dump(outcome: Outcome) -> None:
    kinds = {(one.query, one.lore_id): one.kind for one in outcome.operators}
    assert {(one.query, one.lore_id) for one in outcome.replays} == {
        (one.query, one.lore_id) for one in outcome.operators if one.dumped
    }
    wrong = []
    for one in outcome.replays:
        is_undecided = (one.query, kinds[one.query, one.lore_id]) in UNDECIDED
        if not one.passed and not (is_undecided and one.said.startswith("UNDECIDED")):
            wrong.append(str(one))
    assert wrong == []


def test_replays_of_the_topmost_operators_give_the_answers_of_the_queries(outcome: Outcome) -> None:
    assert len(outcome.answers) >= 0.8 * len(outcome.queries)
    # Where the topmost operator itself was refused, the one below it says nothing of the query's answer.
    refused = {one.query for one in outcome.operators if one.refused}
    assert outcome.answers.keys() - outcome.original.keys() <= refused
    different = {
        name: (outcome.answers[name], outcome.original[name])
        for name in outcome.answers.keys() & outcome.original.keys() - queries_of_kinds.UNREPEATABLE
        if outcome.answers[name] != outcome.original[name]
    }
    assert different == {}
