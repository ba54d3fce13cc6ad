"""Six queries of the matrix in the quick tier: dumped in one process, replayed in another, on the installed Spark.

They start a Spark and carry no marker all the same: a change of the dump's format must not pass the quick tier. Where
the whole matrix runs (`make test`) they are left out.
"""

from __future__ import annotations

import pytest

from tests.lore.configuration import Outcome, run

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("quick"), line="3.5", options=("--quick",))


def test_six_queries_are_dumped_and_replayed_row_for_row(outcome: Outcome) -> None:
    assert len(outcome.queries) == 6
    dumped = {(one.query, one.lore_id) for one in outcome.operators if one.dumped}
    assert len(dumped) >= 40
    assert {(one.query, one.lore_id) for one in outcome.replays} == dumped
    assert [str(one) for one in outcome.replays if not one.passed or not one.row_for_row] == []


def test_what_their_topmost_operators_give_is_what_the_queries_give(outcome: Outcome) -> None:
    assert len(outcome.answers) == 6
    assert outcome.answers == outcome.original


def test_their_ids_are_the_same_in_both_processes(outcome: Outcome) -> None:
    assert outcome.trees == outcome.trees_again
