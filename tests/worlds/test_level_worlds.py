"""Drawn histories of runs (SIMULATED): steps, drifts and outliers of a notebook's figures are told as what they are."""

from __future__ import annotations

from tests.worlds import levels

SEEDS = range(50_005, 50_015)


def test_changes_of_level_are_told_where_they_are_and_nothing_else_is() -> None:
    found = [levels.judge_world(seed) for seed in SEEDS]
    assert [(one.seed, one.wrong, one.refused) for one in found if one.state != "right"] == []
    assert {trait for one in found for trait in one.traits} >= {"bad_runs", "other_unit", "narrow_ends", "signed"}
