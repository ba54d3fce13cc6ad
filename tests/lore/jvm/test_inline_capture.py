"""mode=inline: what the hooks write while a query runs is what that run had, and a replay gives what that run gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lore.local_spark import run_python
from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import ORIGINAL_RUN, RECOMPUTED
from workbench.lore.jvm import inline_capture

pytestmark = pytest.mark.timeout(900)
Facts = dict[str, Any]


class Outcome:
    """What the capturing and the verifying process wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.captured: Facts = json.loads((folder / "capture.json").read_text())
        self.verified: Facts = json.loads((folder / "verify.json").read_text())

    def sidecar(self, name: str, operator: str) -> Facts:
        found = [json.loads(path.read_text()) for path in (self.folder / name).glob("loreId-*/plan.json")]
        return next(one for one in found if one["operator"] == operator)

    def stored(self, name: str, operator: str, column: str) -> list[Any]:
        """The values of a column of the operator's first input, partition by partition."""
        import polars as pl

        sidecar = self.sidecar(name, operator)
        folder = self.folder / name / f"loreId-{sidecar['lore_id']}" / "input-0"
        entry = sidecar["inputs"][0]
        return [
            value
            for partition, count in entry["batches"].items()
            for batch in range(count)
            for value in pl.read_parquet(folder / f"partition-{partition}" / f"batch-{batch}.parquet")[column]
        ]


# Without AQE in test-all alone: each takes half a minute.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param("on", marks=pytest.mark.spark),
        pytest.param("off", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    from workbench.spark.jvm import build_spark_environment

    folder = tmp_path_factory.mktemp("inline")
    for work in (["capture", str(folder), "--adaptive", request.param], ["verify", str(folder)]):
        done = run_python("-m", "tests.lore.inline_scenarios", *work, **build_spark_environment())
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Outcome(folder)


def test_everything_that_was_captured_is_verified_in_another_process(outcome: Outcome) -> None:
    told = {
        f"{name} {operator}": one["said"]
        for name, found in outcome.verified.items()
        for operator, one in found.items()
        if not one["passed"]
    }
    assert told == {}
    assert sum(map(len, outcome.verified.values())) >= 10
    # No folder of the executors is left.
    assert list(outcome.folder.glob("*/.*")) + list(outcome.folder.rglob("*.crc")) == []


def test_hooks_are_nodes_of_the_plan_while_armed_and_only_then(outcome: Outcome) -> None:
    plan = outcome.captured["join"]["plan"]
    lore_id = outcome.sidecar("join", "SortMergeJoin")["lore_id"]
    assert f"LoreDump [loreId={lore_id}] input-0" in plan
    assert f"LoreDump [loreId={lore_id}] input-1" in plan
    assert f"LoreFingerprint [loreId={lore_id}] output" in plan
    # They take part in code generation: a star stands before what is fused.
    assert f") LoreFingerprint [loreId={lore_id}]" in plan
    assert "Lore" not in outcome.captured["nothing_armed"]["plan"]
    assert outcome.captured["nothing_armed"]["n_rows"] == 2000


def test_a_join_is_compared_with_the_original_run_row_for_row(outcome: Outcome) -> None:
    found = outcome.verified["join"]["SortMergeJoin"]
    assert found["compared_with"] == ORIGINAL_RUN
    assert found["row_for_row"]
    # Each of 2000 rows on the left has one key in 0..99, which the right has once.
    assert found["n_found"] == 2000
    entry = outcome.sidecar("join", "SortMergeJoin")["inputs"][0]
    assert entry["n_rows"] == 2000
    assert max(entry["batches"].values()) > 1


def test_only_chosen_partitions_are_written_and_an_exchange_is_compared_with_itself_recomputed(
    outcome: Outcome,
) -> None:
    assert outcome.verified["join"]["ShuffleExchange"]["compared_with"] == RECOMPUTED
    assert any("recomputed over the captured inputs" in text for text in outcome.captured["join"]["warnings"])
    sidecar = outcome.sidecar("join", "HashAggregate")
    assert sidecar["inputs"][0]["partitions"] == [0, 2]
    assert sorted(sidecar["output"]["fingerprint"]) == ["0", "2"]
    assert sidecar["output"]["compared_with"] == ORIGINAL_RUN


def test_a_noisy_upstream_is_captured_as_this_run_had_it(outcome: Outcome) -> None:
    facts = outcome.captured["noisy_upstream"]
    assert sorted(facts["rows"]) != sorted(facts["another_run"]), "the upstream is not noisy"
    assert sorted(outcome.stored("noisy_upstream", "Sort", "x")) == sorted(row[2] for row in facts["rows"])
    assert outcome.verified["noisy_upstream"]["Sort"]["compared_with"] == ORIGINAL_RUN


def test_of_a_child_computed_twice_the_rows_that_went_on_are_captured(outcome: Outcome) -> None:
    rows = sorted(row[1] for row in outcome.captured["computed_twice"]["rows"])
    assert sorted(outcome.stored("computed_twice", "Sort", "x")) == rows
    below = [value for value in outcome.stored("computed_twice", "Filter", "pythonUDF0") if value > 5]
    assert sorted(below) == rows, "the filter's input is of the sampling, not of the shuffle"
    assert outcome.verified["computed_twice"]["Filter"]["compared_with"] == ORIGINAL_RUN


def test_under_a_limit_what_was_read_is_dumped_and_the_rest_is_told(outcome: Outcome) -> None:
    facts = outcome.captured["limit_above"]
    assert len(facts["rows"]) == 3
    assert outcome.sidecar("limit_above", "Filter")["inputs"][0]["partitions"] == [0]
    assert outcome.verified["limit_above"]["Filter"]["compared_with"] == RECOMPUTED
    assert any("not computed: partitions 1, 2, 3" in text for text in facts["warnings"])


def test_broadcasts_and_subqueries_are_whole_whatever_partitions_are_chosen(outcome: Outcome) -> None:
    join = outcome.sidecar("broadcast_and_subquery", "BroadcastHashJoin")
    assert {entry["kind"] for entry in join["inputs"]} >= {"broadcast"}
    filters = outcome.sidecar("broadcast_and_subquery", "Filter")
    assert {entry["kind"] for entry in filters["inputs"]} >= {"subquery"}
    entries = [
        entry for one in (join, filters) for entry in one["inputs"] if entry["kind"] in ("broadcast", "subquery")
    ]
    for entry in entries:
        assert len(entry["partitions"]) == entry["n_partitions"]
    assert next(entry for entry in entries if entry["kind"] == "broadcast")["n_rows"] > 0


def test_masked_values_are_never_written(outcome: Outcome) -> None:
    sidecar = outcome.sidecar("masked", "HashAggregate")
    assert sidecar["masked"] is not None
    assert sidecar["output"]["compared_with"] == RECOMPUTED
    assert not set(outcome.stored("masked", "HashAggregate", "s")) & {str(number) for number in range(2000)}


def test_the_key_of_masks_is_in_no_plan_that_spark_logs(outcome: Outcome) -> None:
    logged = b"".join(path.read_bytes() for path in (outcome.folder / "events").rglob("*") if path.is_file())
    assert b"LoreDump [loreId=" in logged
    key = outcome.captured["masked"]["key"]
    assert len(key) == 32
    assert key.encode() not in logged


REFUSED = [
    ("too_large", ["could not be written", "1000 bytes"]),
    ("partition_not_computed", ["did not compute all chosen partitions", "not computed: 3"]),
    ("another_query", ["did not reach this operator"]),
]


@pytest.mark.parametrize(("name", "told"), REFUSED)
def test_what_cannot_be_captured_is_refused_and_leaves_nothing(name: str, told: list[str], outcome: Outcome) -> None:
    facts = outcome.captured[name]
    assert [words for words in told if words not in facts["refused"]] == []
    assert facts["left"] == []
    if name == "too_large":
        assert len(facts["rows"]) == 2000, "the cap ends the capture and not the query"


def test_a_query_that_fails_is_dumped_with_the_error_that_a_replay_gives(outcome: Outcome) -> None:
    assert outcome.captured["failing"]["failure"] == "ValueError"
    error = outcome.sidecar("failing", "BatchEvalPython")["output"]["error"]
    assert (error["error_class"], error["message"]) == ("ValueError", "not 77")
    assert outcome.verified["failing"]["BatchEvalPython"]["compared_with"] == ORIGINAL_RUN
    assert 77 in outcome.stored("failing", "BatchEvalPython", "id")


def test_the_users_own_jars_and_extensions_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    jar = tmp_path / "lore.jar"
    monkeypatch.setattr("workbench.lore.jvm.inline_hooks.find_jar", lambda version, say: jar)
    given = {"spark.jars": "mine.jar", "spark.sql.extensions": "org.example.Mine", "spark.app.name": "x"}
    found = inline_capture.enable_inline(given, say=print)
    assert found["spark.jars"] == f"mine.jar,{jar}"
    assert found["spark.sql.extensions"] == f"org.example.Mine,{inline_capture.EXTENSION_CLASS}"
    assert found["spark.driver.extraClassPath"] == str(jar)
    assert found["spark.app.name"] == "x"
    again = inline_capture.enable_inline(found, say=print)
    assert again["spark.sql.extensions"] == found["spark.sql.extensions"]


def test_a_session_without_hooks_is_told_how_to_get_them() -> None:
    class Conf:
        def get(self, key: str, default: str) -> str:
            return default

    class Session:
        conf = Conf()

    with pytest.raises(ConfigError, match="no inline hooks") as caught:
        inline_capture._check_inline_extension(Session())  # type: ignore[arg-type]
    assert "inline_capture.enable_inline()" in str(caught.value)
