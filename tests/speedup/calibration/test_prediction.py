"""A query's steps lead from the baseline's time to the prediction, and invariants notice when they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from tests.conftest import SAMPLES
from tests.fakes.planted import BASELINE, CANDIDATE, Design, planted
from workbench.core.errors import BrokenInvariantError, InputError
from workbench.report.display import MAX_STEPS
from workbench.runs import run_folder
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration import prediction as module
from workbench.speedup.calibration.pair_calibration import (
    CalibrationResult,
    CrossValidation,
    calibrate_pair,
    cross_validate,
)
from workbench.speedup.calibration.prediction import build_steps, select_counted_runs
from workbench.speedup.config import NotebookConfig
from workbench.speedup.invariants import check_pair
from workbench.speedup.study import FACTORS_FILE, build_study

LOG = SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"
RECORDING = SAMPLES / "speedup" / "tpch-sf1"
Pair = tuple[Measured, CalibrationResult, CrossValidation]


@pytest.fixture(scope="module")
def pair() -> Pair:
    measured = planted(Design(n_queries=6, n_sessions=3), seed=2)
    calibrated = calibrate_pair(measured, BASELINE, CANDIDATE)
    return measured, calibrated, cross_validate(calibrated)


@pytest.fixture(scope="module")
def table(pair: Pair) -> pl.DataFrame:
    measured, calibrated, _ = pair
    return build_steps(calibrated.model, select_counted_runs(measured, BASELINE), calibrated.pairs)


def test_each_query_starts_at_its_measured_time_and_ends_at_the_candidates(pair: Pair, table: pl.DataFrame) -> None:
    pairs = pair[1].pairs
    for kind, column in (("baseline", "baseline_s"), ("measured", "candidate_s")):
        found = table.filter(pl.col("kind") == kind).select("query", "time_s").sort("query")
        assert found["time_s"].to_list() == pytest.approx(pairs.sort("query")[column].to_list())


def test_every_bar_ends_where_the_next_step_begins(table: pl.DataFrame) -> None:
    for (_,), rows in table.group_by("query"):
        walked = rows.filter(~pl.col("total") | (pl.col("kind") == "baseline")).sort("step")
        assert walked["time_s"].cum_sum().to_list() == pytest.approx(walked["end_s"].to_list())
        assert walked["end_s"][-1] == pytest.approx(rows.filter(pl.col("kind") == "predicted")["end_s"].item())


def test_small_steps_are_added_up_under_one_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, calibrated, _ = pair
    monkeypatch.setattr(module, "MAX_STEPS", 3)
    few = build_steps(calibrated.model, select_counted_runs(measured, BASELINE), calibrated.pairs)
    moved = few.filter(~pl.col("total"))
    assert moved.group_by("query").len()["len"].max() == 3
    assert moved.filter(pl.col("what").str.ends_with("smaller operators"))["factor"].null_count() == 6


def test_the_prediction_lies_in_its_interval_and_only_it_has_one(table: pl.DataFrame) -> None:
    predicted = pl.col("kind") == "predicted"
    assert table.filter(predicted).select((pl.col("end_s").is_between("low_s", "high_s")).all()).item()
    assert table.filter(~predicted)["low_s"].null_count() == table.filter(~predicted).height


def test_invariants_hold_on_a_sound_pair(pair: Pair, table: pl.DataFrame) -> None:
    measured, calibrated, left_out = pair
    checks = check_pair(measured, calibrated, table, left_out.validation)
    assert checks["holds"].all()
    assert checks.height == check_pair(measured, calibrated, table).height + 1


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("factors that are not finite", {"factor": float("nan")}),
        ("factors that are not finite", {"factor": float("inf")}),
        ("shares of the baseline's time", {"baseline_share": 0.5}),
        ("factors outside their own interval", {"factor_low": 1e6, "factor_high": 2e6}),
    ],
)
def test_a_broken_factor_table_stops_the_notebook(
    pair: Pair, table: pl.DataFrame, what: str, change: dict[str, float]
) -> None:
    measured, calibrated, _ = pair
    broken = calibrated.factors.with_columns(**{name: pl.lit(value) for name, value in change.items()})
    with pytest.raises(BrokenInvariantError) as caught:
        check_pair(measured, replace(calibrated, factors=broken), table)
    assert what in str(caught.value)


def test_parts_that_miss_more_than_a_hundredth_of_a_wall_time_and_steps_that_lead_elsewhere_stop_the_notebook(
    pair: Pair, table: pl.DataFrame
) -> None:
    measured, calibrated, _ = pair
    short = Measured(measured.executions, measured.pieces.with_columns(wall_s=pl.col("wall_s") * 0.98))
    with pytest.raises(BrokenInvariantError, match="wall time that its pieces miss"):
        check_pair(short, calibrated, table)
    with pytest.raises(BrokenInvariantError, match="distance of their sum from its prediction"):
        check_pair(measured, calibrated, table.filter(pl.col("step") != 1))


CONFIG: dict[str, Any] = {"recording_folder": str(RECORDING)}


def test_the_input_says_the_mode_where_none_is_named() -> None:
    assert NotebookConfig(**CONFIG).mode == "pair"
    assert NotebookConfig(**CONFIG, mode="pair", event_log="x").mode == "profile"
    assert NotebookConfig(**CONFIG, mode="pair", logs=["x"]).mode == "fleet"
    assert NotebookConfig(**CONFIG, mode="fleet", logs=["x"], event_log="y").mode == "fleet"


@pytest.mark.parametrize("wrong", [{"mode": "fleet"}, {"mode": "profile"}, {"mode": "both"}, {"level": 1.0}, {"x": 1}])
def test_settings_that_lack_their_input_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NotebookConfig(**CONFIG, **wrong)


def test_a_study_of_one_log_writes_its_tables(tmp_path: Path) -> None:
    run = run_folder.start_run("speedup", tmp_path)
    found = build_study(NotebookConfig(**CONFIG, event_log=str(LOG)), run)
    assert found.verdict == "valid"
    assert {path.stem for path in run.tables_folder.iterdir()} >= {"overview", "queries", "operator_times"}
    advice, setting, accelerator = found.next_steps()
    assert advice.startswith("Repeated queries: If the data did not change")
    assert setting.startswith("Try `spark.sql.autoBroadcastJoinThreshold=")
    assert "workbench speedup qualify LOG" in accelerator
    assert found.check()["holds"].all()


def test_a_study_of_a_pair_and_of_a_fleet_by_its_factors(tmp_path: Path) -> None:
    run = run_folder.start_run("speedup", tmp_path)
    found = build_study(NotebookConfig(**CONFIG, set_factors=["Exchange=3"]), run)
    written = {path.stem for path in run.tables_folder.iterdir()}
    assert written >= {"factors", "pairs", "comparability", "steps", "validation", "scores"}
    assert found.check()["holds"].all()
    assert len(found.key_numbers()) == 5
    rank, look, own = found.next_steps()
    assert rank.startswith("Rank your own applications by their predicted savings on comet")
    assert look.startswith("Look at Scan parquet first (26 % of the time on comet, factor 1.14)")
    assert own.endswith("record your own: `workbench speedup record`.")
    fleet_run = run_folder.start_run("speedup", tmp_path)
    factors = str(run.folder / FACTORS_FILE)
    fleet = build_study(NotebookConfig(**CONFIG, factors_file=factors, logs=[str(LOG)]), fleet_run)
    written = {path.stem for path in fleet_run.tables_folder.iterdir()}
    assert written == {"applications", "books", "operators_at_stake", "predictions"}
    assert fleet.check()["holds"].all()
    numbers = {label: value for label, value, *_ in fleet.key_numbers()}
    assert numbers["applications"] == 1
    assert "tpch-derived sf0.1 first: saves " in fleet.answer
    assert 1 <= len(fleet.next_steps()) <= MAX_STEPS
    assert "tpch" in fleet.next_steps()[0]
    assert [entry["path"] for entry in fleet_run.record["inputs"]][-1].endswith("tpch_sf0.1.zstd")


def test_a_misspelt_operator_is_told_before_logs_are_read(pair: Pair, tmp_path: Path) -> None:
    factors = pair[1].model.write(tmp_path / "factors.json")
    config = NotebookConfig(**CONFIG, factors_file=str(factors), logs=["nowhere"], set_factors=["Exchagne=3"])
    with pytest.raises(InputError, match="no such operator") as caught:
        build_study(config, run_folder.start_run("speedup", tmp_path))
    assert "Exchange" in str(caught.value)
