"""Drawn runs (SIMULATED): diff, history, thresholds and the questions of assistants say what is true of them."""

from __future__ import annotations

from tests.worlds import runs

SEEDS = range(50_000, 50_020)


def test_no_verdict_rests_on_bad_runs_or_mixed_units_and_nothing_known_is_refused() -> None:
    found = [runs.judge_world(seed) for seed in SEEDS]
    assert [(one.seed, one.wrong, one.refused) for one in found if one.state != "right"] == []
    assert {trait for one in found for trait in one.traits} == set(runs.TRAITS)
