"""What was recorded on a GPU: within what its hardware can do, and answers that follow from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.analysis.observations import load_observations
from workbench.report import display
from workbench.sizing.config import Goal
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load import sweep_journal
from workbench.sizing.summary import build_key_numbers

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


def test_the_session_is_valid_and_its_answer_follows_from_the_recorded_runs() -> None:
    comparison = compare_session(load_observations(SAMPLES / "indicators"))
    (judgement,) = comparison.judgement.to_dicts()
    assert (judgement["verdict"], judgement["decided"], judgement["runs"], judgement["failed"]) == ("valid", 1, 15, 0)
    effect = comparison.effects.row(by_predicate=pl.col("arm") == "gpu", named=True)
    assert (effect["verdict"], effect["n"]) == ("FASTER", 5)
    assert [effect[name] for name in ("low", "ratio", "high")] == pytest.approx([24.334, 32.879, 44.425], abs=1e-3)


def test_the_sweep_gives_a_count_and_says_that_the_gpu_waited() -> None:
    sweep, _ = sweep_journal.load_sweep_journal(SAMPLES / "sizing")
    answer = compute_answer(sweep.requests, sweep.steps, [Goal(limit_s=2.5)], 500, server_metrics=sweep.server_metrics)
    assert answer.recommended == 9
    assert answer.points["server_binds"].to_list() == ["host"] * 6
    assert answer.points["gpu_busy"].is_between(0.1, 0.45).all()
    assert answer.points["gpu_power_w"].is_between(100, 700).all()
    assert answer.goodput["joules_per_token"].is_between(0.3, 0.5).all()


def test_a_headline_has_room_for_costs_and_energy() -> None:
    sweep, _ = sweep_journal.load_sweep_journal(SAMPLES / "sizing")
    tables = (sweep.requests, sweep.steps, [Goal(limit_s=2.5)], 500)
    for price, named in (
        (2.5, ["cost", "cost of a million tokens"]),
        (None, ["energy of a token", "straight-line method"]),
    ):
        answer = compute_answer(*tables, server_metrics=sweep.server_metrics, gpu_price_per_hour=price)
        numbers = build_key_numbers(answer)
        assert [label for label, *_ in numbers[4:]] == named
        display.headline(answer="tried", verdict="valid", key_numbers=numbers)
