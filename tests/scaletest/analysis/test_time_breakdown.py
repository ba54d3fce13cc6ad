"""Which workloads a step counts, and by which clock, when a watch was away in a run whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.time_breakdown import build_step_table, count_impossible_steps
from workbench.scaletest.tables import MILESTONES


def steps(found: Analysis, step: str, clock: str = "client") -> pl.DataFrame:
    return found.steps.filter((pl.col("step") == step) & (pl.col("clock") == clock))


@pytest.fixture
def away(tmp_path: Path) -> Analysis:
    """Ten workloads a second for 20 s, each pod bound after half a second; no watch for 8 s of it."""
    return analysis(Plan(np.arange(200) / 10, scheduled_per_s=2.0, away_s=(4.0, 12.0)), tmp_path)


def test_what_was_found_together_after_a_gap_makes_no_step_fast(away: Analysis) -> None:
    found = steps(away, "scheduling")
    # Those that were made in the gap and bound in it, too, would take no time at all.
    assert min(found["duration_s"].to_list()) >= 0.4
    inside = away.pods.filter(pl.col("created_gap"))
    assert inside.height == 80
    assert found.height == 200 - 80
    assert set(found["index"]).isdisjoint(inside["index"].to_list())


def test_an_end_that_was_found_after_a_gap_is_an_upper_bound(away: Analysis) -> None:
    found = steps(away, "scheduling").filter(pl.col("gap"))
    assert found.height == 16  # made before the gap, bound in it: two a second
    assert (found["begin_s"] + found["duration_s"]).to_list() == pytest.approx([12.0] * 16)
    told = away.quantiles.filter((pl.col("step") == "scheduling") & (pl.col("clock") == "client"))
    assert set(told["gaps"]) == {16}


def test_totals_begin_before_any_watch_and_count_all(away: Analysis) -> None:
    found = steps(away, "due to scheduled")
    assert found.height == 200
    assert found["duration_s"].null_count() == 0


def test_the_servers_own_times_know_of_no_gap(away: Analysis) -> None:
    found = steps(away, "scheduling", "server")
    assert found.height == 200
    assert not found["gap"].any()


def test_a_run_that_was_blind_all_the_time_has_no_step_between_arrivals(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10, away_s=(0.0, 60.0)), tmp_path)
    assert set(found.steps.filter(pl.col("clock") == "client")["step"]) == {
        "lateness",
        "admission",
        "due to scheduled",
        "due to running",
    }


def test_imported_steps_that_end_before_they_begin_are_left_out_and_counted(tmp_path: Path) -> None:
    # By one clock of whole seconds: the first pod of the first workload is older than the workload.
    times = {0: {"created": 10.0, "first pod": 5.0}, 1: {"created": 10.0, "first pod": 12.0}}
    same = {"client_s": None, "resolution_s": 1.0, "gap": False}
    rows = [
        {"index": index, "milestone": name, "server_s": at} | same
        for index, own in times.items()
        for name, at in own.items()
    ]
    milestones = MILESTONES.frame(rows)
    submissions = analysis(Plan(np.arange(2) / 10), tmp_path).submissions
    found = build_step_table(milestones, submissions, imported=True).filter(pl.col("step") == "first pod")
    assert found.select("index", "duration_s").rows() == [(1, 2.0)]
    assert count_impossible_steps(milestones, submissions) == (1, 2)
