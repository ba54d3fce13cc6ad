"""Planted differences of settings, by the command: each is compared, planned anew or refused, and none is silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lore.local_spark import MARKS, dumped, local, lore_session

pytestmark = MARKS

JOIN = "SELECT a.k, a.v, b.name FROM a JOIN b ON a.k = b.k"
# Operator, settings of side B, flags, and what comes of it: a text of the answer or notes, or of the refusal.
PLANTED = [
    # Planning-time, planned anew.
    ("join", "spark.sql.autoBroadcastJoinThreshold=1g", "--replan", "A is SortMergeJoin, B is BroadcastHashJoin"),
    ("join", "spark.sql.adaptive.enabled=true", "--replan", "A is SortMergeJoin, B is SortMergeJoin"),
    ("outer", "spark.sql.autoBroadcastJoinThreshold=1g", "--replan", "A is SortMergeJoin, B is BroadcastHashJoin"),
    ("broadcast", "spark.sql.autoBroadcastJoinThreshold=1g", "--replan", "A is SortMergeJoin, B is BroadcastHashJoin"),
    (
        "nested",
        "spark.sql.autoBroadcastJoinThreshold=1g",
        "--replan",
        "A is CartesianProduct, B is BroadcastNestedLoop",
    ),
    # Planning-time, without an effect on this plan.
    ("join", "spark.sql.adaptive.skewJoin.enabled=false", "--replan", "refused: the same with and without it"),
    ("join", "spark.sql.ansi.enabled=true", "--replan", "refused: when the query is analysed"),
    ("filter", "spark.sql.adaptive.enabled=true", "--replan", "refused: only joins are planned anew"),
    # The same without planning anew; what else is refused has `test_setting_check`.
    ("join", "spark.sql.autoBroadcastJoinThreshold=1g", "", "refused: add --replan"),
    # Read while the operator runs.
    ("join", "spark.sql.codegen.wholeStage=false", "", "A and B gave the same rows"),
    ("map", "spark.sql.mapKeyDedupPolicy=EXCEPTION", "", "A and B differ"),
]
QUERIES = {
    "join": (JOIN, "SortMergeJoin"),
    "outer": ("SELECT a.k, b.name FROM a LEFT JOIN b ON a.k = b.k AND a.v > 20", "SortMergeJoin"),
    "broadcast": (JOIN.replace("SELECT", "SELECT /*+ BROADCAST(b) */"), "BroadcastHashJoin"),
    "nested": ("SELECT /*+ BROADCAST(b) */ a.v, b.name FROM a JOIN b ON a.v > b.k + 130", "BroadcastNestedLoopJoin"),
    "filter": ("SELECT * FROM a WHERE CAST(s AS TIMESTAMP) IS NULL", "Filter"),
    "map": ("SELECT IF(k = 7, map(k, 1, k, 2), map(k, 1)) m FROM (SELECT /*+ REPARTITION(2) */ * FROM a)", "root"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All replays are those of one session."""
    home = tmp_path_factory.mktemp("planted")
    with local(spark__sql__mapKeyDedupPolicy="LAST_WIN") as spark:
        folders: dict[str, Path] = {
            name: dumped(spark.sql(sql), operator, home / name) for name, (sql, operator) in QUERIES.items()
        }
    lines = [
        ["replay", folders[name], "--b", setting, "--repeat", "0", *flags.split()]
        for name, setting, flags, _ in PLANTED
    ]
    return lore_session(lines)


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=lambda number: f"{PLANTED[number][0]} {PLANTED[number][1]}")
def test_each_planted_setting_is_compared_planned_anew_or_refused(number: int, answers: list[dict[str, Any]]) -> None:
    _, setting, flags, outcome = PLANTED[number]
    found = answers[number]
    if outcome.startswith("refused: "):
        assert found["exit_code"] == 2, found
        assert outcome.removeprefix("refused: ") in found["message"]
        assert setting.partition("=")[0] in found["message"] or "no join" in found["message"]
        return
    document = found["document"]
    assert document is not None, found["message"]
    assert document["verification"]["passed"]
    assert outcome in " ".join([document["answer"], *document["notes"]])
    assert document["passed"] == ("differ" not in outcome)
    if flags:
        assert document["plans"]["A"] != document["plans"]["B"]
