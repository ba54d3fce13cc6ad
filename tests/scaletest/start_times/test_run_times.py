"""Run times: known distributions are found again, whatever was cut off, and draws respect the age."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.scaletest.start_times.making_states import make_state, make_workload
from workbench.core.errors import ConfigError
from workbench.scaletest.start_times.cluster_state import ClusterState
from workbench.scaletest.start_times.run_times import GivenRunTime, RunTimes, parse_run_times

HOUR_S = 3600.0


def record(draw: np.random.Generator, n: int, span_h: float, median_h: float, spread: float) -> ClusterState:
    """What a record of some hours shows of runs that began at any time before."""
    workloads = []
    for number in range(n):
        begin_s = -float(draw.uniform(0, 4 * span_h)) * HOUR_S
        end_s = begin_s + median_h * HOUR_S * math.exp(spread * draw.standard_normal())
        # What ended before the record is not in it.
        if end_s > -span_h * HOUR_S:
            ended_s = end_s if end_s < 0 else None
            workloads.append(make_workload(f"run-{number}", created_s=begin_s, node="n0", ended_s=ended_s))
    return make_state(*workloads, span_s=span_h * HOUR_S)


@pytest.mark.parametrize("n", [60, 600])
def test_cut_off_runs_bias_nothing(n: int) -> None:
    misses, medians_h = 0, []
    for seed in range(20):
        draw = np.random.default_rng([seed, n])
        state = record(draw, n, 6.0, 3.0, 0.8)
        job = make_workload("run-9999")
        times = RunTimes(state, {})
        drawn = [times.draw_future(draw).draw_rest(job) for _ in range(200)]
        low, high = np.quantile(drawn, [0.1, 0.9])
        truth = 3.0 * HOUR_S * np.exp(0.8 * draw.standard_normal(400))
        covered = float(((truth >= low) & (truth <= high)).mean())
        misses += not 0.6 <= covered <= 0.95
        medians_h.append(float(np.median(drawn)) / HOUR_S)
    assert misses <= 3
    assert 2.5 <= float(np.median(medians_h)) <= 3.5


def test_an_old_run_lasts_longer_than_its_age() -> None:
    state = record(np.random.default_rng(1), 800, 12.0, 2.0, 0.6)
    random = np.random.default_rng(2)
    future = RunTimes(state, {}).draw_future(random)
    job = make_workload("run-9999")
    truth = 2.0 * HOUR_S * np.exp(0.6 * random.standard_normal(200_000))
    rest = truth[truth > 4 * HOUR_S] - 4 * HOUR_S
    drawn = [future.draw_rest(job, 4 * HOUR_S) for _ in range(2000)]
    assert np.quantile(drawn, 0.5) == pytest.approx(np.quantile(rest, 0.5), rel=0.3)


def test_a_family_without_runs_takes_those_of_its_namespace_and_size() -> None:
    short = [make_workload(f"short-{n}", 1, created_s=-900, node="n0", ended_s=-900 + 60.0 + n) for n in range(6)]
    long = [make_workload(f"long-{n}", 4, created_s=-9000, node="n0", ended_s=-9000 + 4000.0 + n) for n in range(6)]
    times = RunTimes(make_state(*short, *long), {})
    assert times.find_source(make_workload("short-9")) == "team/short"
    assert times.find_source(make_workload("other-1", 4)) == "team, 4 GPUs"
    assert times.find_source(make_workload("other-1", 2)) == "all"
    assert RunTimes(make_state(*short[:3]), {}).find_source(make_workload("short-9")) is None


def test_what_is_given_counts_where_nothing_is_known() -> None:
    given = {"all": GivenRunTime(600.0, 600.0)}
    future = RunTimes(make_state(), given).draw_future(np.random.default_rng(0))
    assert future.draw_rest(make_workload("x")) == pytest.approx(600.0, rel=0.01)
    assert future.draw_rest(make_workload("x", limit_s=60.0)) == 60.0
    assert math.isinf(future.draw_rest(make_workload("x", is_endless=True)))


@pytest.mark.parametrize(
    "text", ["", "all", "all=", "all=8h..2h", "all=x", "=2h", "all=1h..2h..3h", "all=-1h", "all=nan", "all=1h..inf"]
)
def test_wrong_run_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a run time"):
        parse_run_times([text])
