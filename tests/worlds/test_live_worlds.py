"""The product's own client against services of known law, in virtual time (SIMULATED): never wrong in silence."""

from __future__ import annotations

import pytest

from tests.worlds import live_answers, live_streams
from tests.worlds.live_services import ERRS, Law, draw_world, simulate_load

SERVICE_SEEDS = range(50_000, 50_012)
STREAM_SEEDS = range(50_000, 50_060)


@pytest.mark.parametrize("seed", SERVICE_SEEDS)
def test_no_number_of_gpus_is_wrong_in_silence(seed: int) -> None:
    found = live_answers.judge_world(seed)
    assert found.state != "wrong", (found.traits, found.notes)


def test_no_number_is_said_for_a_service_that_is_wrong_when_busy() -> None:
    seeds = [seed for seed in range(50_012, 50_200) if ERRS in draw_world(seed).traits][:6]
    found = [live_answers.judge_world(seed) for seed in seeds]
    assert [(one.seed, one.notes) for one in found if one.state == "wrong"] == []
    assert len([one for one in found if one.state == "right"]) >= 3


def test_no_figure_of_a_stream_is_wrong_and_plain_ones_are_all_known() -> None:
    found = [live_streams.judge_world(seed) for seed in STREAM_SEEDS]
    assert [(one.world.seed, one.notes) for one in found if one.state == "wrong"] == []
    clear = [one for one in found if one.world.is_clear]
    assert {one.world.door for one in clear} == set(live_streams.DOORS)
    assert [one.notes for one in clear if one.state != "right"] == []


def test_the_truth_of_a_load_follows_from_its_law() -> None:
    law = Law(slots=2, prefill_s=0.2, itl_s=0.1, tokens=9, cv=0.0)
    alone, busy = (simulate_load(law, 1, 400, users, seed=1) for users in (2, 6))
    assert alone["runtime"].max() == pytest.approx(1.0)
    assert busy["runtime"][-100:].mean() == pytest.approx(3.0, rel=0.05)
    assert busy["per_s"] == pytest.approx(2.0, rel=0.05)
