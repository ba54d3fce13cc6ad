"""A submission is gone on with as it was begun: as fast, as far, on the same cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.safety.facts_of_clusters import cluster
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest import scenario
from workbench.scaletest.compat_runai import runai_submission
from workbench.scaletest.compat_runai.submit_flags import SubmitFlags, build_scenario
from workbench.scaletest.safety import ClusterFacts


def begun(folder: Path, found: ClusterFacts, **changed: Any) -> SubmitFlags:
    """A submission's folder, as it is before the first request."""
    flags = SubmitFlags(workload_type="training", num_workloads=changed.pop("num_workloads", 3), **changed)
    made = scenario.draw_plan(build_scenario(flags))
    runai_submission._create_run_folder(folder, made, found, "api", runai_submission.build_pace(flags), closed=True)
    return flags


def test_delay_and_rate_are_those_that_it_was_begun_with(tmp_path: Path) -> None:
    flags = begun(tmp_path, cluster(), delay=4.0, max_rate=7.0, num_processes=5)
    kept = runai_submission.read_pace(tmp_path)
    assert kept == runai_submission.build_pace(flags)
    bursts = kept.build_bursts(scenario.read_plan(tmp_path))
    assert (bursts.size, bursts.delay_s) == (5, 4.0)


def test_the_limits_are_the_plans(tmp_path: Path) -> None:
    """Those of the flags of a resumption, where there are none, would end it at 1000 objects and never in time."""
    begun(tmp_path, cluster(), num_workloads=1500, num_processes=100, max_rate=200.0)
    found = runai_submission.read_pace(tmp_path).build_limits(scenario.read_plan(tmp_path))
    assert (found.objects, found.rate_per_s, found.in_flight) == (1500, 200.0, 100)
    assert found.wall_clock_s == 1800.0


@pytest.mark.parametrize(
    ("flags", "longest_s"),
    [
        (SubmitFlags(workload_type="training", num_workloads=10), 1800.0),
        (SubmitFlags(workload_type="training", num_workloads=800, delay=30.0), 100 * 90.0),
        (SubmitFlags(workload_type="training", num_workloads=1_000_000, delay=30.0), 7 * 86_400.0),
    ],
)
def test_a_submission_has_time_for_all_its_bursts_and_no_more(flags: SubmitFlags, longest_s: float) -> None:
    assert build_scenario(flags).limits.wall_clock_s == longest_s


def test_it_is_not_gone_on_with_on_another_cluster(tmp_path: Path) -> None:
    begun(tmp_path, cluster(fingerprint="aaaaaaaaaa"))
    runai_submission.check_same_cluster(tmp_path, cluster(fingerprint="aaaaaaaaaa", context="renamed"))
    with pytest.raises(ConfigError, match="another cluster than the one that the submission began on"):
        runai_submission.check_same_cluster(tmp_path, cluster(fingerprint="bbbbbbbbbb"))


@pytest.mark.parametrize("config", [{}, {"pace": None}, {"pace": {"delay": 1}}, {"pace": {"speed": 1}}])
def test_a_folder_of_something_else_is_not_gone_on_with(tmp_path: Path, config: dict[str, Any]) -> None:
    run_folder.start_run("scaletest", folder=tmp_path, title="Is it one?", config=config)
    with pytest.raises(InputError, match="not a submission that can be resumed"):
        runai_submission.read_pace(tmp_path)
