"""The notebook's study on its sample: tagged, dumped, replayed and verified; a dump that is there, whole or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from IPython.utils.capture import capture_output

from tests.conftest import ROOT
from tests.lore import outcomes
from tests.lore.local_spark import MARKS
from workbench.charts import theme
from workbench.core.errors import ConfigError
from workbench.lore.config import NotebookConfig
from workbench.lore.dumps.bundles import write_bundle
from workbench.lore.replays.replay_outcome import ReplayOutcome
from workbench.lore.spark_bridge.query_sources import OpenQuery, list_query_files
from workbench.lore.study import (
    MAX_OPERATORS,
    OperatorControls,
    Study,
    build_study,
    chart_outcome_ratios,
    render_operators,
)
from workbench.lore.tables import PLAN_TREE, RATIOS
from workbench.runs import run_folder

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
    found = build_study(config(), run_folder.start_run("lore", tmp_path_factory.mktemp("runs")))
    yield found
    found.close()
    patch.undo()


def test_the_join_of_the_sample_is_picked_dumped_and_verified(live: Study) -> None:
    assert (live.result.operator.split()[0], live.verdict, live.reasons) == ("SortMergeJoin", "valid", ())
    assert "the same 120,000 rows, row for row" in live.details[0]
    assert live.notes[0].startswith("Chosen: of 4 joins and aggregates that can be dumped")
    assert live.check()["holds"].all()


def test_its_tables_are_in_the_run_folder(live: Study) -> None:
    assert live.run.read_table(PLAN_TREE).filter(operator="SortMergeJoin")["rows_in"].to_list() == [156_400]
    assert "scan (control)" in live.run.read_table(RATIOS)["quantity"].to_list()
    assert {entry["name"] for entry in live.run.record["tables"]} >= {"sides", "timings", "metrics", "partitions"}


def test_another_operator_of_the_open_query_is_replayed_beside_the_first(live: Study) -> None:
    assert live.plan is not None
    wanted = live.plan.filter(pl.col("operator").str.contains("BroadcastHashJoin"))["lore_id"].item()
    said: list[str] = []
    other = live.replay_operator(wanted, 1, said.append)
    assert other.reasons == ()
    assert other.partitions.filter(pl.col("input") == "input-0")["partition"].to_list() == [1]
    assert (live.run.folder / "dump").is_dir()
    assert other.place.parent.name == "dump-2"
    assert said[0] == f"dumping loreId {wanted} …"


def test_a_dump_that_is_there_needs_no_query_and_a_bundle_neither(live: Study, tmp_path: Path) -> None:
    bundle = write_bundle(live.result.place, tmp_path / "join.zip").path
    given = config(dump_folder=str(bundle), query_file="", data_folder="", repeat=0, confs_b=[], partition=1)
    found = build_study(given, run_folder.start_run("lore", tmp_path / "runs"))
    assert (found.verdict, found.plan, found.build_picker()) == ("valid", None, None)
    assert found.check()["holds"].all()
    assert found.details[0].startswith("PASS (recomputed): SortMergeJoin")


def test_a_changed_dump_is_invalid_and_says_which_file(live: Study, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(live.result.place, tmp_path / live.result.place.name))
    batch = next(copied.glob("input-0/partition-*/batch-0.parquet"))
    data = bytearray(batch.read_bytes())
    data[len(data) // 2] ^= 1
    batch.write_bytes(data)
    found = build_study(config(dump_folder=str(copied)), run_folder.start_run("lore", tmp_path / "runs"))
    assert found.verdict == found.verdict == "invalid"
    assert batch.name in found.reasons[0]
    assert found.answer.endswith("was not replayed: the dump was refused.")
    assert found.check()["holds"].all()


def test_a_query_that_fails_is_replayed_where_it_fails(live: Study, tmp_path: Path) -> None:
    assert live.query is not None
    live.query.close()
    query = tmp_path / "fails.sql"
    query.write_text("SELECT day, 1 / (quantity - 3) AS x FROM sales WHERE product_id = 17 ORDER BY x")
    given = config(query_file=str(query), confs=[*CONFS, "spark.sql.ansi.enabled=true"], repeat=0)
    found = build_study(given, run_folder.start_run("lore", tmp_path / "runs"))
    assert found.plan is None
    assert (found.verdict, "the same error" in found.details[0]) == ("valid", True)
    assert "DIVIDE_BY_ZERO" in found.notes[0]
    found.close()


def test_after_its_session_has_ended_nothing_more_can_be_dumped(live: Study, tmp_path: Path) -> None:
    ended = Study(config(), run_folder.start_run("lore", tmp_path), live.result, live.plan, "")
    with pytest.raises(ConfigError, match="session has ended"):
        ended.replay_operator(1, None)
    assert "rows in" in str(ended.build_picker())


def test_settings_that_are_none_are_refused_before_spark_starts(tmp_path: Path) -> None:
    assert list_query_files(NotebookConfig(query_file="q.py:sales", views=["a=x.csv"])) == ["q.py", "x.csv"]
    with pytest.raises(ConfigError, match="not a setting"):
        build_study(config(confs=["spark.sql.ansi.enabled"]), run_folder.start_run("lore", tmp_path))
    assert OpenQuery._open is None


class StandIn:
    """A study whose other operators are replayed at once."""

    def __init__(self, plan: Any = outcomes.CHAIN, error: Exception | None = None) -> None:
        self.plan, self.error = plan, error
        self.result = outcomes.outcome()
        self.asked: list[tuple[int, int | None]] = []

    def replay_operator(self, lore_id: int, partition: int | None, say: Any) -> ReplayOutcome:
        say(f"dumping loreId {lore_id} …")
        self.asked.append((lore_id, partition))
        if self.error is not None:
            raise self.error
        return outcomes.outcome(outcomes.replayed({"replay": (1.0, 2.0, 3.0)}))


def made(**changed: Any) -> tuple[OperatorControls, Any]:
    study: Any = StandIn(**changed)
    return OperatorControls(study), study


def test_operators_are_buttons_by_their_depth_the_replayed_one_marked_and_a_refused_one_greyed() -> None:
    controls, _ = made()
    margins = [int(line.children[0].layout.margin.rpartition(" ")[2].removesuffix("px")) for line in controls.lines]
    assert margins == sorted(set(margins))
    button, words = controls.lines[-1].children
    assert button.disabled
    assert button.tooltip == "it is a leaf: its only input is its source"
    assert "it is a leaf" in words.value
    assert sorted(controls.buttons) == [1, 2, 3, 4]
    assert [number for number, button in controls.buttons.items() if button.button_style] == [3]


def test_a_press_dumps_the_picked_operator_and_partition() -> None:
    controls, study = made()
    controls.buttons[2].click()
    controls.partition.value = " 1 "
    controls.go.click()
    assert study.asked == [(2, 1)]
    assert controls.result.sides["side"].to_list() == ["replay"]
    assert not controls.go.disabled
    controls.partition.value = "first"
    controls.go.click()
    assert study.asked == [(2, 1)]
    assert "whole number" in controls.sentence.value


def test_an_error_is_said_harmlessly_and_the_last_result_stays() -> None:
    controls, study = made(error=ConfigError("no such partition", found="<b>9</b>"))
    controls.go.click()
    assert controls.result is study.result
    assert "no such partition" in controls.sentence.value
    assert "<b>9</b>" not in controls.sentence.value
    assert not controls.go.disabled


def test_texts_of_a_plan_are_harmless() -> None:
    plan = outcomes.plan(("Filter", 3, 1, 1, "<img src=x onerror=alert(1)>"))
    controls, _ = made(plan=plan)
    assert "<img" not in controls.lines[0].children[1].value
    assert "<img" not in render_operators(plan).html


def test_a_huge_plan_shows_the_first_operators_and_counts_the_others() -> None:
    controls, _ = made(plan=outcomes.plan(*[("Filter", 300 - place, 1, 1, None) for place in range(300)]))
    assert len(controls.lines) == MAX_OPERATORS
    assert "150 more operators" in controls.build_box().children[0].children[-1].value


class Canvas:
    """In place of what a page shows."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def update(self, view: Any) -> None:
        self.views.append(view)


def test_shown_live_it_draws_what_the_last_press_found() -> None:
    theme.enable_theme()
    controls, _ = made()
    with capture_output():
        controls._ipython_display_()
    canvases = [Canvas() for _ in controls._shown]
    assert len(canvases) == 4
    controls._shown = canvases
    controls.go.click()
    answer, times, ratios, partitions = (canvas.views[-1] for canvas in canvases)
    assert "the same 7 rows, row for row, in 2 s" in str(answer)
    assert "Time of the operator" in str(times.to_dict())
    assert str(ratios) == ""
    assert "Rows by partition" in str(partitions.to_dict())


def test_two_sides_are_drawn_with_their_settings_and_without_two_there_is_no_comparison() -> None:
    assert "A: key=A" in str(chart_outcome_ratios(outcomes.outcome()).to_dict())
    for sides in ({"replay": (1.0,)}, {}):
        assert chart_outcome_ratios(outcomes.outcome(outcomes.replayed(sides))) is None
