"""Weeks with and without a planted change: found, named right, and few quiet nights are called slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.spark_weeks import CAUSES, write_week
from workbench.speedup.config import WatchConfig
from workbench.speedup.nightly.night_change import SLOWER
from workbench.speedup.nightly.watch import Watch, watch_job

# Seeds that nothing was chosen on; the thresholds were looked at with 0 to 59.
FIRST_SEED = 100


def watch_week(seed: int, folder: Path, change: str = "") -> Watch:
    write_week(seed, folder, change)
    return watch_job(WatchConfig(logs=str(folder)))


def test_planted_changes_of_ten_weeks_are_found_and_named(tmp_path: Path) -> None:
    weeks = [(FIRST_SEED + number, change) for number, change in enumerate(CAUSES)]
    found = {change: watch_week(seed, tmp_path / str(seed), change) for seed, change in weeks}
    assert sum(result.finding == SLOWER for result in found.values()) >= 8
    assert sum(result.causes["cause"][0] == CAUSES[change] for change, result in found.items()) >= 8


@pytest.mark.slow
def test_sixty_weeks_with_thirty_changes(tmp_path: Path) -> None:
    names = list(CAUSES)
    n_found = n_named = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 60):
        change = names[seed // 2 % len(names)] if seed % 2 else ""
        result = watch_week(seed, tmp_path / str(seed), change)
        if change:
            n_found += result.finding == SLOWER
            n_named += result.causes["cause"][0] == CAUSES[change]
    assert n_found >= 27
    assert n_named >= 24


@pytest.mark.slow
def test_at_most_one_quiet_night_in_a_hundred_is_an_alarm(tmp_path: Path) -> None:
    alarms = [seed for seed in range(2000, 2300) if watch_week(seed, tmp_path / str(seed)).is_alarm]
    assert len(alarms) <= 3, alarms
