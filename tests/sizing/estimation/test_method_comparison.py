"""What a simulated service needs, and what the toolkit's own way of measuring makes of it."""

from __future__ import annotations

from tests.sizing.scenarios import SCENARIOS
from workbench.sizing.config import Goal
from workbench.sizing.estimation.method_comparison import estimate_like_toolkit, find_required_gpus
from workbench.sizing.simulation.cluster_model import Service

FIXED = Service(calls=1, input_cv=0, output_cv=0, output_tokens=10, slots=4)


def test_the_need_is_that_of_the_scenarios() -> None:
    one = SCENARIOS["A"]
    found = find_required_gpus(one.at(1), [Goal(limit_s=one.limit_s)], one.users, 6, runs=2)
    assert found.gpus == one.truth
    assert found.tried == {6: True, 5: True, 4: False}


def test_it_is_looked_for_upwards_when_the_first_count_is_too_small() -> None:
    one = SCENARIOS["A"]
    assert find_required_gpus(one.at(1), [Goal(limit_s=one.limit_s)], one.users, 4, runs=1).tried == {4: False, 5: True}


def test_a_need_that_no_count_meets_is_null() -> None:
    found = find_required_gpus(FIXED, [Goal(limit_s=0.001)], 4, 2, runs=1, requests=50)
    assert (found.gpus, found.tried) == (None, {2: False, 3: False, 4: False})


def test_all_goals_must_be_met() -> None:
    goals = [Goal(limit_s=10.0), Goal(metric="ttft", limit_s=0.035)]
    found = find_required_gpus(FIXED, goals, 4, 1, runs=1, requests=50)
    assert found.gpus is not None
    assert found.gpus > 1


def test_a_target_below_the_line_has_no_number() -> None:
    assert estimate_like_toolkit(FIXED, Goal(limit_s=0.001), 10, [2, 4, 8, 16]) is None
    assert estimate_like_toolkit(FIXED, Goal(limit_s=1.0), 10, [4]) is None


def test_two_passes_know_the_burst_exactly() -> None:
    # One slot, fixed lengths: of c at once, twice, every request waits for all before it but its own last one.
    times = {"prefill_tokens_per_s": 1e12, "decode_base_s": 0.1, "decode_per_sequence_s": 0}
    service = FIXED.model_copy(update={"slots": 1, **times})
    # p95 is c seconds: the line has slope 1 and nothing without load, and 5 s carry 5 users.
    gpus = estimate_like_toolkit(service, Goal(limit_s=5.0), 20, [8, 16, 32])
    assert gpus is not None
    assert abs(gpus - 4.0) < 0.05


def test_the_same_seed_gives_the_same_passes() -> None:
    one = SCENARIOS["J"]
    goal = Goal(limit_s=one.limit_s)
    found = [estimate_like_toolkit(one.at(2), goal, one.users, [8, 16, 32, 64], seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
