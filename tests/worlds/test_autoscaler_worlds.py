"""Autoscalers over drawn days (SIMULATED): a verdict holds on days that it was not made of."""

from __future__ import annotations

import pytest

from tests.worlds import autoscalers

QUICK_SEEDS, SEEDS = range(3_002, 3_003), range(3_004, 3_060)


def assert_honest(seeds: range) -> list[autoscalers.Judged]:
    found = [autoscalers.judge_world(seed) for seed in seeds]
    assert [(one.seed, one.notes) for one in found if one.state == "wrong"] == []
    return found


def test_no_autoscaler_is_said_to_hold_that_does_not() -> None:
    assert any(one.state == "right" for one in assert_honest(QUICK_SEEDS))


@pytest.mark.slow
def test_few_of_many_worlds_are_refused() -> None:
    found = assert_honest(SEEDS)
    assert {one.shape for one in found} == set(autoscalers.SHAPES)
    known = [one for one in found if "few replicas" not in one.traits]
    assert sum(one.state == "refused" for one in known) <= 0.1 * len(known)
