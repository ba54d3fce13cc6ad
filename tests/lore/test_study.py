"""The notebook's study on its sample: tagged, dumped, replayed and verified; a dump that is there, whole or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import ROOT
from tests.lore.local_spark import MARKS
from workbench import runs
from workbench.errors import ConfigError
from workbench.lore.bundle import write_bundle
from workbench.lore.notebook_config import NotebookConfig
from workbench.lore.open_query import OpenQuery, files_of
from workbench.lore.outcome import RATIOS
from workbench.lore.picking import TREE
from workbench.lore.study import Study, study, verdict

pytestmark = MARKS
SAMPLE = ROOT / "data" / "samples" / "lore"
CONFS = ["spark.sql.shuffle.partitions=3", "spark.sql.adaptive.coalescePartitions.enabled=false"]


def config(**changed: Any) -> NotebookConfig:
    given: dict[str, Any] = {
        "query_file": str(SAMPLE / "query.sql"),
        "data_folder": str(SAMPLE / "tables"),
        "confs": CONFS,
        "repeat": 2,
        "confs_b": ["spark.sql.codegen.wholeStage=false"],
    }
    return NotebookConfig(**(given | changed))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """The study as somebody sees it who opened the notebook: its session goes on."""
    patch = pytest.MonkeyPatch()
    patch.delenv("WORKBENCH_RUN_DIR", raising=False)
    found = study(config(), runs.start("lore", tmp_path_factory.mktemp("runs")))
    yield found
    if found.query is not None:
        found.query.close()
    patch.undo()


def test_the_join_of_the_sample_is_picked_dumped_and_verified(live: Study) -> None:
    assert (live.result.operator.split()[0], verdict(live), live.reasons) == ("SortMergeJoin", "valid", ())
    assert "PASS, 120,000 rows row for row" in live.answer
    assert live.notes[0].startswith("Chosen: of 4 joins and aggregates that can be dumped")
    assert live.check()["holds"].all()


def test_its_tables_are_in_the_run_folder(live: Study) -> None:
    tree = live.run.read_table(TREE)
    assert tree.filter(operator="SortMergeJoin")["rows_in"].to_list() == [156_400]
    assert "scan (control)" in live.run.read_table(RATIOS)["quantity"].to_list()
    assert {entry["name"] for entry in live.run.record["tables"]} >= {"sides", "timings", "metrics", "partitions"}


def test_another_operator_of_the_open_query_is_replayed_beside_the_first(live: Study) -> None:
    assert live.plan is not None
    wanted = live.plan.filter(pl.col("operator").str.contains("BroadcastHashJoin"))["lore_id"].item()
    said: list[str] = []
    other = live.other(wanted, 1, said.append)
    assert other.reasons == ()
    assert other.partitions.filter(pl.col("input") == "input-0")["partition"].to_list() == [1]
    assert (live.run.folder / "dump").is_dir()
    assert other.place.parent.name == "dump-2"
    assert said[0] == f"dumping loreId {wanted} …"


def test_a_dump_that_is_there_needs_no_query_and_a_bundle_neither(live: Study, tmp_path: Path) -> None:
    bundle = write_bundle(live.result.place, tmp_path / "join.zip").path
    given = config(dump_folder=str(bundle), query_file="", data_folder="", repeat=0, confs_b=[], partition=1)
    found = study(given, runs.start("lore", tmp_path / "runs"))
    assert (verdict(found), found.plan, found.picker()) == ("valid", None, None)
    assert found.check()["holds"].all()
    assert "PASS" in found.answer


def test_a_changed_dump_is_invalid_and_says_which_file(live: Study, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(live.result.place, tmp_path / live.result.place.name))
    batch = next(copied.glob("input-0/partition-*/batch-0.parquet"))
    data = bytearray(batch.read_bytes())
    data[len(data) // 2] ^= 1
    batch.write_bytes(data)
    found = study(config(dump_folder=str(copied)), runs.start("lore", tmp_path / "runs"))
    assert verdict(found) == "invalid"
    assert batch.name in found.reasons[0]
    assert found.answer.endswith("was not replayed: the dump was refused.")
    assert found.check()["holds"].all()


def test_a_query_that_fails_is_replayed_where_it_fails(live: Study, tmp_path: Path) -> None:
    assert live.query is not None
    live.query.close()
    query = tmp_path / "fails.sql"
    query.write_text("SELECT day, 1 / (quantity - 3) AS x FROM sales WHERE product_id = 17 ORDER BY x")
    given = config(query_file=str(query), confs=[*CONFS, "spark.sql.ansi.enabled=true"], repeat=0)
    found = study(given, runs.start("lore", tmp_path / "runs"))
    assert found.plan is None
    assert (verdict(found), "PASS, the same error" in found.answer) == ("valid", True)
    assert "DIVIDE_BY_ZERO" in found.notes[0]
    assert found.query is not None
    found.query.close()


def test_after_its_session_has_ended_nothing_more_can_be_dumped(live: Study, tmp_path: Path) -> None:
    ended = Study(config(), runs.start("lore", tmp_path), live.result, live.plan, "")
    with pytest.raises(ConfigError, match="session has ended"):
        ended.other(1, None)
    assert "rows in" in str(ended.picker())


def test_the_files_of_a_script_and_of_views_are_its_inputs() -> None:
    given = NotebookConfig(query_file="q.py:sales", views=["a=x.csv"])
    assert files_of(given) == ["q.py", "x.csv"]


def test_settings_that_are_none_are_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a setting"):
        study(config(confs=["spark.sql.ansi.enabled"]), runs.start("lore", tmp_path))
    assert OpenQuery._open is None
