"""Files of benchmark tools of known truth are imported as they are, or refused by their name (SIMULATED figures)."""

from __future__ import annotations

from tests.worlds.benchmark_files import judge_world

SEEDS = range(5_000, 5_044)


def test_no_file_is_imported_wrongly_in_silence() -> None:
    found = [judge_world(seed) for seed in SEEDS]
    assert [(one.world.seed, one.wrong) for one in found if one.wrong] == []
    assert [(one.world.seed, one.answer) for one in found if one.state == "refused"] == []
