"""Which workloads a step counts, and by which clock, when a watch was away in a run whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.scaletest.analysis.run_analysis import Analysis


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
