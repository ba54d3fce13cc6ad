"""Histories of known truth, as files of three tools, are told as they are (SIMULATED figures)."""

from __future__ import annotations

from tests.worlds.histories import judge_world

SEEDS = range(5_000, 5_021)


def test_no_history_is_wrong_in_silence() -> None:
    found = [judge_world(seed) for seed in SEEDS]
    assert [(one.world.seed, one.wrong) for one in found if one.wrong] == []
    assert [(one.world.seed, one.answer) for one in found if one.state == "refused"] == []
