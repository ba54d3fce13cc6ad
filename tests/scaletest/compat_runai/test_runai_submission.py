"""What the commands refuse, without any cluster; and submitted.json while a submission goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.test_client import written
from tests.scaletest.conftest import Scaletest
from tests.scaletest.safety.facts_of_clusters import cluster
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest.compat_runai import runai_submission
from workbench.scaletest.compat_runai.runai_submission import SavingWatcher, SubmitFlags, build_scenario
from workbench.scaletest.observation import run_records
from workbench.scaletest.safety.cluster_facts import ClusterFacts
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan, read_plan
from workbench.scaletest.submission.plan_submission import SubmissionStatus
from workbench.scaletest.test_run.run_lifecycle import RunContext
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

NS = 1_000_000_000


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["submit", "-n", "3"], "training, distributed, interactive"),
        (["submit", "-t", "general", "-n", "3"], "training, distributed, interactive"),
        (["submit", "-t", "training"], "1 to 1000000"),
        (["sample", "-t", "general"], "training, distributed, interactive"),
        (["report", "--plot", "both"], "general, detailed"),
        (["submit", "-t", "training", "-n", "1", "--command", "runai submit 'x"], "not a valid command line"),
    ],
)
def test_a_missing_or_wrong_flag_is_wrong_use(
    words: list[str], allowed: str, scaletest: Scaletest, tmp_path: Path
) -> None:
    """The old tool dies of these with a traceback, or of a file general.yaml that is not there."""
    code, _, err = scaletest(*words, "-o", tmp_path)
    assert (code, allowed in err, "Traceback" in err) == (2, True, False)


def test_a_cluster_is_never_guessed(scaletest: Scaletest, tmp_path: Path) -> None:
    config = written(tmp_path, "a", "b", current="a")
    code, _, err = scaletest("submit", "-t", "training", "-n", "1", "--kubeconfig", config, "-o", tmp_path / "o")
    assert (code, "which cluster?" in err) == (2, True)
    assert not (tmp_path / "o").exists()


def plan() -> Plan:
    return draw_plan(build_scenario(SubmitFlags(workload_type="training", num_workloads=3, project="my-runai-tests")))


def test_only_what_was_accepted_is_in_submitted_json(tmp_path: Path) -> None:
    """The old tool does not tell which submissions it lost; ours are in the journal, as failed."""
    made = plan()
    lines = [
        run_records.Begun(made.run, NS, NS),
        *(run_records.Intent(index, NS) for index in range(3)),
        run_records.Acked(2, 1_767_261_600 * NS + 331_000_999, 2 * NS, 201),
        run_records.Failed(1, NS, 2 * NS, "no end within 60 s"),
    ]
    (tmp_path / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, lines)))
    assert runai_submission.write_submitted_file(tmp_path, made) == 1
    assert json.loads((tmp_path / "submitted.json").read_text()) == [
        {
            "jobName": f"{made.run}-0000002",
            "projectName": "my-runai-tests",
            "jobNamespace": "runai-my-runai-tests",
            "submitTimestamp": "2026-01-01T10:00:00.331000+00:00",
        }
    ]


def test_submitted_json_is_kept_fresh_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = plan(), list[str]()
    monkeypatch.setattr(runai_submission, "_SAVE_EVERY_S", 0.0)
    saving = SavingWatcher(tmp_path, made, told.append)
    (tmp_path / run_records.JOURNAL).write_bytes(run_records.encode_line(run_records.Acked(0, NS, 2 * NS, 201)))
    saving.show_status(SubmissionStatus(3, 1, 0, 1, 0, 64, 1.0, None, None))
    assert len(json.loads((tmp_path / "submitted.json").read_text())) == 1
    assert told == ["1 of 3 submitted, 0 failed, 1.0 a second"]


@pytest.mark.parametrize(
    ("way", "command", "what"),
    [
        ("runai", (), "no such way"),
        ("command", (), "a command is for"),
        ("api", ("runai", "{name}"), "a command is for"),
    ],
)
def test_a_way_that_cannot_be_is_refused(way: str, command: tuple[str, ...], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        runai_submission.build_run_options(way, None, command, closed=False)


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no submission to resume"):
        runai_submission._load_or_draw_plan(SubmitFlags(), tmp_path, resume=True)


def begun(folder: Path, found: ClusterFacts, **changed: Any) -> SubmitFlags:
    """A submission's folder, as it is before the first request."""
    flags = SubmitFlags(workload_type="training", num_workloads=changed.pop("num_workloads", 3), **changed)
    made = draw_plan(build_scenario(flags))
    context = RunContext(ClusterAccess(None, "lab"), build_options(closed=True))
    runai_submission._create_run_folder(folder, made, found, context, runai_submission.build_pace(flags))
    return flags


def test_delay_and_rate_are_those_that_it_was_begun_with(tmp_path: Path) -> None:
    flags = begun(tmp_path, cluster(), delay=4.0, max_rate=7.0, num_processes=5)
    kept = runai_submission.read_pace(tmp_path)
    assert kept == runai_submission.build_pace(flags)
    assert (kept.get_burst_size(read_plan(tmp_path)), kept.delay) == (5, 4.0)


def test_the_limits_are_the_plans(tmp_path: Path) -> None:
    """Those of the flags of a resumption, where there are none, would end it at 1000 objects and never in time."""
    begun(tmp_path, cluster(), num_workloads=1500, num_processes=100, max_rate=200.0)
    found = runai_submission.read_pace(tmp_path).build_limits(read_plan(tmp_path))
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
    with pytest.raises(ConfigError, match="not the cluster on which the submission began"):
        runai_submission.check_same_cluster(tmp_path, cluster(fingerprint="bbbbbbbbbb"))


@pytest.mark.parametrize("config", [{}, {"pace": None}, {"pace": {"delay": 1}}, {"pace": {"speed": 1}}])
def test_a_folder_of_something_else_is_not_gone_on_with(tmp_path: Path, config: dict[str, Any]) -> None:
    run_folder.start_run("scaletest", folder=tmp_path, title="Is it one?", config=config)
    with pytest.raises(InputError, match="not a submission that can be resumed"):
        runai_submission.read_pace(tmp_path)
