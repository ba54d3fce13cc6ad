"""Predicted GPU counts against formulas: capacity, interval of the error, choice, anchor."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from tests.fakes.simulated_predictor import SimulatedPredictor
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.prediction.aisimulate import Deployment
from workbench.sizing.prediction.gpu_prediction import GpuPrediction, predict_gpus
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_step, predict_sweep
from workbench.sizing.prediction.time_error import FactorRange, TimeErrors, fit_anchor, load_published_errors
from workbench.sizing.tables import REQUESTS

MODEL = "Qwen/Qwen3-32B-FP8"
EXACT = TimeErrors(FactorRange(), FactorRange(), "a formula")
ONE = Deployment(model=MODEL, gpu="h100_sxm")


def build_config(goal: str = "p95<=6", **changed: Any) -> SweepConfig:
    settings = {"protocol": "openai", "url": "http://predicted", "model": MODEL, "simulated": True}
    settings |= {"goals": [Goal.read(goal)], "input_tokens": 1000, "output_tokens": 101}
    return build_sweep_config(**settings | changed)


def predict(
    predictor: SimulatedPredictor, *gpus: str, errors: TimeErrors = EXACT, load: float = 300, **changed: Any
) -> GpuPrediction:
    deployments = {
        gpu: [Deployment(model=MODEL, gpu=gpu, tensor=tensor) for tensor in changed.pop("tensors", (1,))]
        for gpu in gpus
    }
    prices = changed.pop("prices", None)
    return predict_gpus(
        predictor,  # type: ignore[arg-type]
        deployments,
        build_config(**changed),
        load,
        lambda _: errors,
        prices=prices,
        on_progress=lambda _: None,
    )


def capacity_by_formula(limit_s: float, prefill: float = 1.0, decode: float = 1.0) -> float:
    """Users at which `SimulatedPredictor` takes this long: 2 ms of prefill, 100 tokens of 10 ms."""
    return ((limit_s - 0.002 * prefill) / (1.0 * decode) - 1) / 0.05


def test_the_capacity_of_a_replica_is_that_of_the_formula() -> None:
    found = predict(SimulatedPredictor(), "h100_sxm")
    row = found.table.row(0, named=True)
    assert row["capacity"] == pytest.approx(capacity_by_formula(6.0), rel=0.03)
    assert row["gpus"] == math.ceil(300 / row["capacity"])
    assert (row["verdict"], row["chosen"], found.reasons) == ("predicted", True, [])


def test_the_interval_is_that_of_the_errors_and_its_upper_end_is_planned_with() -> None:
    errors = TimeErrors(FactorRange(1.0, 0.8, 1.25), FactorRange(1.0, 0.8, 1.25), "two factors")
    row = predict(SimulatedPredictor(), "h100_sxm", errors=errors, load=3000).table.row(0, named=True)
    # The goal is on the runtime, nearly all of it decoding: the slow end has its factor.
    assert row["capacity_low"] == pytest.approx(capacity_by_formula(6.0, decode=1.25), rel=0.05)
    assert row["capacity_high"] == pytest.approx(capacity_by_formula(6.0, decode=0.8), rel=0.05)
    assert row["gpus_low"] < row["gpus"] < row["gpus_high"]


def test_the_likeliest_slow_end_follows_what_the_goal_is_on() -> None:
    errors = TimeErrors(FactorRange(1.0, 0.5, 2.0), FactorRange(1.0, 0.9, 1.1), "")
    first, between = errors.at_end(1.0, 1.0), errors.at_end(1.0, 0.0)
    assert (first.prefill, first.decode) == pytest.approx((2.0, 1.0))
    assert (between.prefill, between.decode) == pytest.approx((1.0, 1.1))
    both = errors.at_end(1.0, 0.5)
    assert (math.log(both.prefill) / math.log(2)) ** 2 + (math.log(both.decode) / math.log(1.1)) ** 2 == pytest.approx(
        1
    )


def test_the_fewest_gpus_win_and_prices_turn_it() -> None:
    by_count = predict(SimulatedPredictor(), "h100_sxm", "h200_sxm")
    assert by_count.chosen is not None
    assert by_count.chosen.deployment.gpu == "h200_sxm"
    assert any("not all types have a price" in line for line in by_count.details)
    priced = predict(SimulatedPredictor(), "h100_sxm", "h200_sxm", prices={"h100_sxm": 1.0, "h200_sxm": 3.0})
    assert priced.chosen is not None
    assert priced.chosen.deployment.gpu == "h100_sxm"
    assert priced.table.filter(pl.col("chosen"))["cost_per_hour"].to_list() == [priced.chosen.gpus_high]


def test_a_type_that_cannot_says_why_and_does_not_stand_in_the_way() -> None:
    found = predict(SimulatedPredictor(too_small=("h100_sxm",)), "h100_sxm", "h200_sxm", "l40s")
    verdicts = dict(found.table.select("gpu", "verdict").rows())
    assert verdicts == {"h100_sxm": "not possible", "h200_sxm": "predicted", "l40s": "not within the goal"}
    reasons = dict(found.table.select("gpu", "reason").rows())
    assert "does not fit" in reasons["h100_sxm"]
    assert "at the lowest load" in reasons["l40s"]
    assert found.chosen is not None
    nothing = predict(SimulatedPredictor(), "l40s")
    assert nothing.chosen is None
    assert nothing.sentence.startswith("No predicted GPU count for 300 users")
    assert nothing.reasons


def test_a_replica_that_carries_the_whole_load_is_one() -> None:
    row = predict(SimulatedPredictor(), "h100_sxm", load=5, tensors=(2,)).table.row(0, named=True)
    assert (row["gpus"], row["gpus_high"]) == (2, 2)


def test_a_slow_end_without_any_load_has_no_upper_end() -> None:
    errors = TimeErrors(FactorRange(1.0, 0.5, 2.0), FactorRange(1.0, 0.5, 8.0), "wide")
    found = predict(SimulatedPredictor(), "h100_sxm", errors=errors)
    row = found.table.row(0, named=True)
    assert (row["verdict"], row["gpus_high"]) == ("no upper end", None)
    assert "slow end" in row["reason"]
    assert found.reasons


def test_the_estimate_of_the_chosen_one_is_a_forecast() -> None:
    errors = TimeErrors(FactorRange(1.0, 0.8, 1.25), FactorRange(1.0, 0.8, 1.25), "two factors")
    found = predict(SimulatedPredictor(), "h100_sxm", errors=errors, load=3000)
    row = found.estimates.row(0, named=True)
    assert found.chosen is not None
    assert row["gpus_low"] < row["gpus"] < row["gpus_high"] == row["recommended"] == found.chosen.gpus_high
    assert row["gpus"] > row["test_gpus"]


@pytest.mark.parametrize("changed", [{}, {"turns": 3, "think_time_s": 0.5}, {"arrivals": "poisson"}])
def test_levels_are_raw_tables_as_of_a_measured_sweep(changed: dict[str, Any]) -> None:
    config = build_config(**changed, input_cv=0.5, output_cv=0.5)
    requests, steps = predict_sweep(SimulatedPredictor(), ONE, config, TimeFactors())  # type: ignore[arg-type]
    REQUESTS.check(requests)
    assert set(steps["clock"]) == {"virtual"}
    assert steps["simulated"].all()
    assert (requests["runtime_s"] > requests["ttft_s"]).all()
    turns = requests["turn"].drop_nulls()
    assert turns.is_empty() if "turns" not in changed else (turns.min(), turns.max()) == (1, 3)


def test_what_runs_after_the_first_user_has_ended_does_not_count() -> None:
    requests, _ = predict_step(SimulatedPredictor(), ONE, build_config(output_cv=1.0), 8, TimeFactors())  # type: ignore[arg-type]
    tail = requests.filter("tail")
    assert 0 < tail.height < requests.height / 2
    assert float(str(tail["sent_s"].min())) > float(str(requests.filter(~pl.col("tail"))["sent_s"].max()))


def measure(predictor: SimulatedPredictor, deployment: Deployment, levels: tuple[int, ...] = (2, 8, 24)) -> Any:
    config = build_config(input_cv=0.4, output_cv=0.4)
    pairs = [
        predict_step(predictor, deployment, config, users, TimeFactors(), number=place)  # type: ignore[arg-type]
        for place, users in enumerate(levels)
    ]
    return pl.concat([pair[0] for pair in pairs]), pl.concat([pair[1] for pair in pairs]), config


def test_an_anchor_finds_the_factors_of_a_service() -> None:
    truth = SimulatedPredictor(prefill_s=0.000002 * 1.6, decode_s=0.01 * 0.7)
    anchor = fit_anchor(SimulatedPredictor(), ONE, *measure(truth, ONE))  # type: ignore[arg-type]
    assert anchor.errors.prefill.value == pytest.approx(1.6, rel=0.02)
    assert anchor.errors.decode.value == pytest.approx(0.7, rel=0.02)
    level = anchor.levels.row(0, named=True)
    assert level["corrected_itl_s"] == pytest.approx(level["measured_itl_s"], rel=0.02)
    assert level["predicted_itl_s"] == pytest.approx(level["measured_itl_s"] / 0.7, rel=0.02)


def test_an_anchor_on_another_type_is_surer_than_none_and_less_sure_than_on_its_own() -> None:
    anchor = fit_anchor(SimulatedPredictor(), ONE, *measure(SimulatedPredictor(), ONE))  # type: ignore[arg-type]
    published = load_published_errors("vllm")
    widths = [
        errors.decode.high / errors.decode.low
        for errors in (anchor.carry_to("h100_sxm", 9), anchor.carry_to("h200_sxm", 9), published)
    ]
    assert widths[0] < widths[1] < widths[2]
    assert "same architecture" in anchor.carry_to("h200_sxm", 9).basis
    assert "another architecture" in anchor.carry_to("l40s", 8).basis


def test_several_replicas_of_an_anchor_share_its_load() -> None:
    requests, steps, config = measure(SimulatedPredictor(), ONE, (4, 16))
    steps = steps.with_columns(gpus=pl.lit(2, dtype=pl.Int64), users=pl.col("users") * 2)
    doubled = requests.with_columns(request=pl.col("request") + requests.height)
    anchor = fit_anchor(SimulatedPredictor(), ONE, pl.concat([requests, doubled]), steps, config)  # type: ignore[arg-type]
    assert anchor.errors.decode.value == pytest.approx(1.0, rel=0.03)


def test_an_anchor_without_streams_is_refused() -> None:
    requests, steps, config = measure(SimulatedPredictor(), ONE)
    blind = requests.with_columns(ttft_s=pl.lit(None, dtype=pl.Float64))
    with pytest.raises(InputError, match=r"does not tell(?s:.)*ttft_s"):
        fit_anchor(SimulatedPredictor(), ONE, blind, steps, config)  # type: ignore[arg-type]
    first = [table.filter(pl.col("step") == 0) for table in (requests, steps)]
    with pytest.raises(InputError, match="too few levels"):
        fit_anchor(SimulatedPredictor(), ONE, *first, config)  # type: ignore[arg-type]


def test_an_anchor_that_something_else_holds_back_is_no_answer() -> None:
    slow = SimulatedPredictor(decode_s=0.01 * 60)
    anchor = fit_anchor(SimulatedPredictor(), ONE, *measure(slow, ONE))  # type: ignore[arg-type]
    assert len(anchor.objections) == 1
    assert "decode takes 60 times the predicted time" in anchor.objections[0]
    usual = fit_anchor(SimulatedPredictor(), ONE, *measure(SimulatedPredictor(decode_s=0.012), ONE))  # type: ignore[arg-type]
    assert usual.objections == []


def test_published_errors_are_of_services_that_were_measured() -> None:
    for backend in ("vllm", "sglang", "trtllm"):
        errors = load_published_errors(backend)
        for factor in (errors.prefill, errors.decode):
            assert 0.1 < factor.low < factor.value < factor.high < 20
        assert errors.around_one().prefill.value == 1.0


def test_a_deployment_names_itself() -> None:
    with pytest.raises(ValueError, match="pattern"):
        Deployment(model=MODEL, gpu="H100 SXM")
    with pytest.raises(ConfigError):
        SimulatedPredictor().check_deployment(Deployment(model=MODEL, gpu="h999"))
