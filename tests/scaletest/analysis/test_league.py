"""Schedulers side by side: gangs that deadlock are counted, and verdicts are held against the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.league import build_league_table, describe_league
from workbench.scaletest.analysis.variants import Variants

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "scaletest" / "default-and-kai"


def sides(folder: Path, rates: dict[str, float], runs: int) -> Variants:
    """Runs of each side, whose scheduler places so many pods a second, give or take two percent."""
    made = {
        name: tuple(
            analysis(
                Plan(np.arange(120) / 60, scheduled_per_s=rate * (1 + 0.02 * (run % 3 - 1)), seed=run, nodes=40),
                folder / f"{name}-{run}",
            )
            for run in range(runs)
        )
        for name, rate in rates.items()
    }
    return Variants(folder, tuple(rates), made)


def test_three_schedulers_are_held_against_the_first(tmp_path: Path) -> None:
    found = build_league_table(sides(tmp_path, {"first": 30, "quick": 60, "slow": 10}, 4))
    verdicts = dict(found.select("side", "verdict").iter_rows())
    assert verdicts == {"first": None, "quick": "FASTER", "slow": "SLOWER"}
    assert found["ratio"][1] > 1 > found["ratio"][2]
    assert "Median wait against first: quick FASTER, slow SLOWER" in describe_league(found)


def test_one_run_each_has_a_ratio_and_no_verdict(tmp_path: Path) -> None:
    found = build_league_table(sides(tmp_path, {"a": 30, "b": 60}, 1)).to_dicts()[1]
    assert (found["verdict"], found["low"]) == ("UNDECIDED", None)
    assert found["reason"] == variants.ONE_RUN_NOTE


def test_the_samples_deadlocks_are_those_of_the_default_scheduler() -> None:
    rows = {row["side"]: row for row in build_league_table(variants.read_variants(SAMPLE)).to_dicts()}
    assert rows["default-scheduler"]["deadlocked"] == pytest.approx(24)
    assert (rows["kai-scheduler"]["deadlocked"], rows["kai-scheduler"]["held_gpu_s"]) == (0, 0.0)
    assert rows["kai-scheduler"]["verdict"] == "SLOWER"
