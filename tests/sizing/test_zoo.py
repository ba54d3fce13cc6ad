"""Services that misbehave: no number with exit code 0 that is too small or far too large; refusals are right.

The whole path of `workbench sizing run --verify` in virtual time, on every animal of `tests/fakes/zoo_animals.py`.
Faults of the protocol itself, over loopback: `tests/sizing/load/test_misbehaving_servers.py`.
"""

from __future__ import annotations

import pytest

from tests.fakes.zoo import ask, need
from tests.fakes.zoo_animals import ANIMALS, CORE


@pytest.mark.parametrize("name", CORE)
def test_a_misbehaving_service_gets_no_wrong_number(name: str) -> None:
    told = ask(ANIMALS[name])
    assert not told.is_wrong, (told.answer.sentence, told.need)
    assert told.answer.recommended is not None or told.answer.reasons


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ANIMALS)
def test_no_animal_gets_a_wrong_number(name: str, seed: int) -> None:
    told = ask(ANIMALS[name], seed)
    assert not told.is_wrong, (told.answer.sentence, told.need)


def test_shed_load_is_sized_and_named_with_its_level() -> None:
    told = ask(ANIMALS["429"])
    assert (told.answer.recommended, told.exit_code) == (25, 0)
    assert "admission limit at 9 users" in told.answer.details[0]
    assert told.answer.estimates["bound"][0].startswith("admission limit at 9 users: ")


def test_overload_bounds_the_capacity_by_what_ended() -> None:
    told = ask(ANIMALS["overload"], verify=False)
    points = told.answer.points.sort("load")
    assert points["verdict"].to_list() == ["valid", "valid", "not sustained", "not sustained"]
    over = points.filter(points["verdict"] == "not sustained")
    assert (over["ended_high_per_s"] < over["offered_per_s"]).all()
    assert (over["backlog_last"] > over["backlog_first"]).all()
    row = told.answer.estimates.row(0, named=True)
    assert row["capacity"] <= row["capacity_high"] <= over["ended_high_per_s"].max()
    assert told.answer.sentence.endswith("not verified.")


def test_what_is_known_only_from_above_is_refused() -> None:
    told = ask(ANIMALS["overload alone"])
    assert (told.answer.recommended, told.exit_code) == (None, 1)
    assert "measure lower loads" in told.answer.reasons[0]


def test_the_lie_of_the_server_clock_does_not_move_the_answer() -> None:
    assert ask(ANIMALS["clock slow"]).answer.recommended == ask(ANIMALS["silent queue"]).answer.recommended


def test_two_groups_of_latencies_ask_for_requests_and_not_for_lower_loads() -> None:
    reason = ask(ANIMALS["bimodal at the quantile"]).answer.reasons[0]
    assert "two groups" in reason
    assert "measure more requests" in reason
    assert "lower loads do not help" in reason


@pytest.mark.slow
def test_the_needs_of_the_zoo_are_those_of_its_services() -> None:
    assert need(ANIMALS["silent queue"]) == 15
    assert need(ANIMALS["429"]) == 25
