"""What a scale test says of drawn clusters is true of them, or refused (SIMULATED watch streams)."""

from __future__ import annotations

import pytest

from tests.worlds.cluster_answers import Judgement, is_supported, judge_world

SEEDS = range(55_000, 55_024)
MANY = range(56_000, 57_000)
MAX_REFUSED_SHARE = 0.02


def assert_honest(found: list[Judgement]) -> None:
    """None is wrong in silence, and few of the supported are refused."""
    assert [(one.seed, one.traits, one.wrong) for one in found if one.wrong] == []
    supported = [one for one in found if is_supported(one)]
    refused = [(one.seed, one.refused) for one in supported if one.refused]
    assert len(supported) > len(found) / 4
    assert len(refused) <= max(1, MAX_REFUSED_SHARE * len(supported)), refused


def test_no_answer_is_wrong_in_silence_and_few_are_refused() -> None:
    assert_honest([judge_world(seed) for seed in SEEDS])


@pytest.mark.slow
def test_of_a_thousand_clusters_neither() -> None:
    assert_honest([judge_world(seed) for seed in MANY])
