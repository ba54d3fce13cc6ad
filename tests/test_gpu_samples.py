"""What was recorded on a GPU: within what its hardware can do, and read as cut off where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.analysis.observations import load_observations
from workbench.sizing.config import Goal
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load import sweep_journal

SAMPLES = Path(__file__).parents[1] / "data" / "samples" / "gpu"
# Dense peak rates of the SXM5 card by its maker's datasheet, in FLOP/s; its clocks here are at most those.
PEAKS = {"float64": 67e12, "float32": 67e12, "tfloat32": 494.5e12, "float16": 989.5e12, "bfloat16": 989.5e12}
DOCUMENTS = sorted((SAMPLES / "documents").glob("*.stdout"))


def read(path: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    told = json.loads(path.read_text())
    return told["@parameters"]["dtype"], told["@result"], told[f"{told['framework']}_buildinfo"]["gpu"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_no_document_claims_more_than_the_hardware_can_do(path: Path) -> None:
    dtype, result, gpu = read(path)
    rate = 2 * 4096**3 / (1e-3 * result["device_ms"])
    assert 0.3 * PEAKS[dtype] < rate < PEAKS[dtype]
    assert 0.8 < result["device_ms"] / result["elapsed_ms"] < 1.2
    assert gpu["sm_clock_mhz"] <= gpu["max_sm_clock_mhz"]
    assert gpu["power_w"] <= gpu["power_limit_w"]
    assert json.loads(path.read_text())["@checks"]["wrong"] == 0


def test_frameworks_agree_on_a_gpu_and_types_differ_as_their_units_do() -> None:
    times = {path.stem.rsplit("-", 1)[0]: read(path)[1]["device_ms"] for path in DOCUMENTS}
    for dtype in ("float64", "float32", "tfloat32", "float16"):
        assert times[f"cupy-{dtype}"] / times[f"torch-{dtype}"] == pytest.approx(1, abs=0.05)
    assert times["torch-float32"] / times["torch-tfloat32"] > 5
    assert times["torch-tfloat32"] / times["torch-bfloat16"] > 1.5


def test_a_session_that_was_cut_off_claims_nothing() -> None:
    comparison = compare_session(load_observations(SAMPLES / "indicators"))
    (judgement,) = comparison.judgement.to_dicts()
    assert (judgement["verdict"], judgement["decided"], judgement["runs"], judgement["failed"]) == ("invalid", 0, 13, 0)
    effect = comparison.effects.row(by_predicate=pl.col("arm") == "gpu", named=True)
    assert effect["low"] < 31.4 < effect["high"]
    assert comparison.dimensions is not None
    assert comparison.dimensions["verdict"].to_list() == ["UNDECIDED"]


def test_a_sweep_that_was_cut_off_gives_no_count_and_says_that_the_gpu_waited() -> None:
    sweep, _ = sweep_journal.load_sweep_journal(SAMPLES / "sizing")
    found = compute_answer(sweep.requests, sweep.steps, [Goal(limit_s=1.0)], 100, server_metrics=sweep.server_metrics)
    assert found.recommended is None
    assert found.points["server_binds"].to_list() == ["host"] * 7
    assert found.points["gpu_busy"].is_between(0.05, 0.15).all()
    assert found.points["gpu_power_w"].is_between(100, 700).all()
