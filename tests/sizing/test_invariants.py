"""Each invariant of the notebook stops it when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from workbench.core.errors import BrokenInvariantError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.step_points import PointLimits
from workbench.sizing.invariants import check_answer
from workbench.sizing.load.measurement_sources import Measurements
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service

GOAL = Goal(limit_s=1.4)


@pytest.fixture(scope="module")
def whole() -> tuple[Measurements, SizingAnswer]:
    config = build_sweep_config(
        protocol="function", simulated=True, users=[1, 2, 4, 6, 8, 12], goals=[GOAL], least_samples=40, most_samples=80
    )
    service = Service(slots=8)
    requests, steps = virtual_time.simulate_sweep(service, config)
    limits = PointLimits(min_samples=40)
    measured = Measurements(requests, steps, [GOAL], "virtual", limits, service=service, config=config)
    found = compute_answer(requests, steps, [GOAL], 20, limits=limits, draws=100)
    assert found.recommended is not None
    return measured, found.with_verification(virtual_time.simulate_verification(service, config, 20, found.recommended))


def test_an_answer_that_follows_from_its_sweep_holds(whole: tuple[Measurements, SizingAnswer]) -> None:
    checks = check_answer(*whole)
    assert checks["holds"].all()
    assert checks.height == 12


def changed(table: str, **columns: Any) -> Callable[[SizingAnswer], SizingAnswer]:
    return lambda found: replace(found, **{table: getattr(found, table).with_columns(**columns)})


BROKEN = {
    "warm-up, kept and tail": changed("points", n_warmup=pl.col("n_warmup") + 1),
    "successes and failures": changed("points", n_cut=pl.lit(1, dtype=pl.Int64)),
    "number in flight": changed("points", in_flight=0.9 * pl.col("in_flight")),
    "fall as q rises": changed("quantiles", value_s=1 - pl.col("q"), low_s=None, high_s=None),
    "quantiles outside": changed("quantiles", high_s=pl.col("value_s") / 2),
    "estimates outside": changed("estimates", gpus=2 * pl.col("gpus_high")),
    "recommended counts": changed("estimates", recommended=pl.lit(1, dtype=pl.Int64)),
    "called held": changed("verification", verdict=pl.lit("held"), limit_s=pl.lit(0.001)),
    "served in time": changed("goodput", within_share=pl.lit(1.5)),
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_figure_that_does_not_follow_stops(whole: tuple[Measurements, SizingAnswer], words: str) -> None:
    measured, found = whole
    with pytest.raises(BrokenInvariantError, match=words):
        check_answer(measured, BROKEN[words](found))


def test_requests_out_of_order_and_latencies_of_failures_stop(whole: tuple[Measurements, SizingAnswer]) -> None:
    measured, found = whole
    early = measured.requests.with_columns(ended_s=pl.col("sent_s") - 1)
    with pytest.raises(BrokenInvariantError, match="before they were sent"):
        check_answer(replace(measured, requests=early), found)
    failed = measured.requests.with_columns(outcome=pl.lit("timeout"))
    with pytest.raises(BrokenInvariantError, match="failed requests with a latency"):
        check_answer(replace(measured, requests=failed), found)


def test_a_simulation_that_does_not_repeat_itself_stops(whole: tuple[Measurements, SizingAnswer]) -> None:
    measured, found = whole
    assert measured.service is not None
    other = replace(measured, service=measured.service.model_copy(update={"seed": 9}))
    with pytest.raises(BrokenInvariantError, match="measured again"):
        check_answer(other, found)
