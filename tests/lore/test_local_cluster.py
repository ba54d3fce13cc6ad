"""Dumps and replays where executors are processes of their own: nothing may count on the driver's memory or folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lore.configuration import Outcome, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

QUERIES = (
    "hash_aggregate",
    "merge_inner",
    "broadcast_inner",
    "scalar_subqueries",
    "reused_exchange",
    "chained_udfs",
    "nested",
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("cluster")
    options = ("--master", "local-cluster[2,1,1024]")
    extra = {"SPARK_HOME": str(_spark_home(folder / "spark"))}
    return run(folder, line="3.5", only=QUERIES, options=options, extra=extra)


def _spark_home(folder: Path) -> Path:
    """The installed Spark under another name: workers write into the folder `work` of their Spark."""
    import pyspark

    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def test_executors_of_their_own_took_part(outcome: Outcome) -> None:
    assert len(list(outcome.folder.parent.glob("spark/work/app-*/*/stderr"))) >= 4, "two for each process"


def test_every_operator_is_replayed_with_the_rows_of_the_original(outcome: Outcome) -> None:
    assert sorted(outcome.queries) == sorted(QUERIES)
    assert [one for one in outcome.operators if one.error] == []
    dumped = {(one.query, one.lore_id) for one in outcome.operators if one.dumped}
    assert len(dumped) >= 30
    assert {(one.query, one.lore_id) for one in outcome.replays} == dumped
    assert [str(one) for one in outcome.replays if not one.passed] == []


def test_the_answers_are_those_of_the_queries(outcome: Outcome) -> None:
    # Here blocks of a shuffle arrive in any order: sums of doubles, and rand, may differ from run to run.
    exact = set(QUERIES) - {"hash_aggregate", "nested"}
    assert {name: outcome.answers[name] for name in exact} == {name: outcome.original[name] for name in exact}
