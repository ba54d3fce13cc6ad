"""Six queries of the matrix and four of other kinds in the gate: dumped in one process, replayed in another."""

from __future__ import annotations

import pytest

from tests.lore.configuration import Outcome, run
from tests.lore.queries_of_kinds import UNREPEATABLE

pytestmark = [pytest.mark.smoke, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("quick"), line="3.5", options=("--quick",))


def test_ten_queries_are_dumped_and_replayed_row_for_row(outcome: Outcome) -> None:
    assert len(outcome.queries) == 10
    dumped = {(one.query, one.lore_id) for one in outcome.operators if one.dumped}
    assert len(dumped) >= 60
    assert {(one.query, one.lore_id) for one in outcome.replays} == dumped
    assert [str(one) for one in outcome.replays if not one.passed or not one.row_for_row] == []


def test_what_their_topmost_operators_give_is_what_the_queries_give(outcome: Outcome) -> None:
    assert len(outcome.answers) == 10
    same = set(outcome.answers) - UNREPEATABLE
    assert {name: outcome.answers[name] for name in same} == {name: outcome.original[name] for name in same}


def test_their_ids_are_the_same_in_both_processes(outcome: Outcome) -> None:
    assert outcome.trees == outcome.trees_again
