"""Schedulers side by side: gangs that deadlock are counted, and verdicts are held against the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.variants import Variants, build_league_table, describe_league
from workbench.scaletest.summary import recommend_scheduler

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
    assert "Median wait against first: quick faster, slow slower" in describe_league(found)


def test_one_run_each_has_a_ratio_and_no_verdict(tmp_path: Path) -> None:
    found = build_league_table(sides(tmp_path, {"a": 30, "b": 60}, 1)).to_dicts()[1]
    assert (found["verdict"], found["low"]) == ("UNDECIDED", None)
    assert found["reason"] == variants.ONE_RUN_NOTE


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(15, 30, None), (0, 35, "UNDECIDED"), (0, 35, "SLOWER")], "Prefer b for a load like this one (a deadlocks"),
        ([(15, 30, None), (0, 35, "SLOWER"), (0, 34, "UNDECIDED")], "Prefer b for a load like this one (a deadlocks"),
        ([(0, 35, None), (0, 35, "FASTER"), (0, 35, "SLOWER")], "Prefer b for a load like this one (c is slower)."),
        ([(0, 0, None), (0, 0, "SLOWER"), (0, 0, "UNDECIDED")], "Choose among a and c by other criteria, or run"),
        ([(0, 30, None), (2, 35, "FASTER"), (2, 35, "SAME")], "Choose by what matters: no scheduler has both"),
    ],
)
def test_of_several_the_one_whose_gangs_fare_best_is_recommended(rows: list[tuple[int, int, Any]], told: str) -> None:
    names = ("deadlocked", "complete", "verdict")
    table = pl.DataFrame(
        [dict(zip(names, row, strict=True)) | {"side": "abc"[at], "gangs": 45} for at, row in enumerate(rows)]
    )
    assert recommend_scheduler(table)[0].startswith(told)


def test_the_samples_deadlocks_are_those_of_the_default_scheduler() -> None:
    rows = {row["side"]: row for row in build_league_table(variants.read_variants(SAMPLE)).to_dicts()}
    assert rows["default-scheduler"]["deadlocked"] == pytest.approx(20)
    assert (rows["kai-scheduler"]["deadlocked"], rows["kai-scheduler"]["held_gpu_s"]) == (0, 0.0)
    assert rows["kai-scheduler"]["verdict"] == "SLOWER"


def test_of_four_recorded_schedulers_only_the_default_one_deadlocks() -> None:
    rows = build_league_table(variants.read_variants(SAMPLE.parent / "league")).to_dicts()
    found = {row["side"]: (row["complete"], row["gangs"], row["deadlocked"]) for row in rows}
    assert found.pop("default-scheduler") == (30, 45, 15)
    assert set(found) == {"gang-scheduling", "kai-scheduler", "kueue"}
    assert set(found.values()) == {(35, 45, 0)}
