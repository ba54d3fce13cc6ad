"""`workbench scaletest run`: what it passes on, what it refuses, what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from workbench.core.errors import ConfigError, MissingToolError
from workbench.kubernetes.client import Target
from workbench.scaletest.command import app
from workbench.scaletest.scenario.scenario_file import parse_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.submission.plan_submission import SubmissionOutcome, SubmissionStatus
from workbench.scaletest.test_run.run_console import format_status
from workbench.scaletest.test_run.run_lifecycle import RunContext
from workbench.scaletest.test_run.run_options import (
    ClusterAccess,
    RunOptions,
    RunResult,
    _format_aftermath,
    _format_submission,
    build_limits,
    build_options,
    find_cluster_access,
)

SCENARIO = """
name: a
arrival: {process: constant, rate_per_s: 10, n: 20}
limits: {rate_per_s: 60, in_flight: 48, pending_pods: 7, wall_clock_s: 90, objects: 500}
abort: {no_create_s: 11, api_p99_s: null, others_pending_growth: 3}
workloads:
- {kind: Pod, gpus: 1}
- {kind: Gang, name: gang, pods: 4, gpus: 1}
"""
OUTCOME = SubmissionOutcome("finished", 1, 1, 2, 20, 20, 0, 0, 0, 50, 9, 3, 1.5, 0.001, 0.004, 9.9)


def result(**given: Any) -> RunResult:
    told: dict[str, Any] = {
        "folder": Path("a/folder"),
        "run": "st-00c0ffee",
        "scheduler": "default-scheduler",
        "outcome": OUTCOME,
        "drained": "all are done",
        "verdict": "valid",
        "reasons": (),
        "warnings": (),
        "answer": "It sustains.",
        "figures": {},
        "pods_seen": 50,
    }
    return RunResult(**(told | given))


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command passes on to the library."""
    told: dict[str, Any] = {}

    def run(given: Any, context: RunContext, **rest: Any) -> RunResult:
        told.update(rest, given=given, on=context.place, confirmed=context.confirmed, options=context.options)
        return result(verdict=told.get("verdict", "valid"))

    monkeypatch.setattr("workbench.scaletest.test_run.run_lifecycle.run_test", run)
    monkeypatch.setattr(
        "workbench.scaletest.test_run.run_options.find_cluster_access",
        lambda **where: ClusterAccess(None, str(where["context"])),
    )
    return told


def scenario_file(folder: Path) -> str:
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_options_reach_the_library_and_json_is_all_that_is_printed(passed: dict[str, Any], tmp_path: Path) -> None:
    words = ["run", scenario_file(tmp_path), "--context", "c", "--confirm", "0123456789", "--scheduler", "kai"]
    words += ["--submit-with", "command", "--submit-command", "cli 'a b' {name}", "--closed", "--processes", "4"]
    words += ["--delay", "0.5", "--settle", "3", "--no-cleanup", "--out", str(tmp_path), "--json"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["run"] == "st-00c0ffee"
    assert (passed["confirmed"], passed["scheduler"], passed["out"]) == ("0123456789", "kai-scheduler", tmp_path)
    assert passed["options"] == RunOptions(
        submit_with="command",
        submit_command=("cli", "a b", "{name}"),
        closed=True,
        processes=4,
        delay_s=0.5,
        settle_s=3.0,
        cleanup=False,
    )


def test_an_invalid_run_has_exit_code_1(passed: dict[str, Any], tmp_path: Path) -> None:
    passed["verdict"] = "invalid"
    words = ["run", scenario_file(tmp_path), "--context", "c", "--json"]
    assert CliRunner().invoke(app, words).exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "where: SCENARIO"),
        (["--resume", "x", "--settle", "3"], "found: --settle"),
        (["--resume", "x", "--out", "y"], "found: --out"),
        (["--resume", "x", "--submit-with", "kubectl"], "found: --submit-with"),
        (["FILE", "--repeat", "3"], "where: --repeat"),
        (["FILE", "--scheduler", "default,kai", "--no-cleanup"], "emptied cluster"),
        (["FILE", "--submit-command", "a 'b"], "not a valid command line"),
        (["FILE", "--submit-with", "telepathy"], "where: --submit-with"),
        (["FILE", "--processes", "0"], "where: --processes"),
        (["FILE"], "which cluster?"),
        (["FILE", "--cluster", "a", "--context", "b"], "where: --cluster"),
    ],
)
def test_wrong_use_is_told_before_anything_is_looked_at(words: list[str], message: str, tmp_path: Path) -> None:
    file = scenario_file(tmp_path)
    found = CliRunner().invoke(app, ["run", *(file if word == "FILE" else word for word in words)])
    assert isinstance(found.exception, ConfigError)
    assert message in str(found.exception)


def test_no_cluster_is_ever_guessed() -> None:
    with pytest.raises(ConfigError, match="which cluster"):
        find_cluster_access()


def test_the_scenarios_limits_are_the_submitters_its_rate_in_workloads() -> None:
    drawn = draw_plan(parse_scenario(SCENARIO))
    found = build_limits(drawn, RunOptions())
    assert (found.objects, found.in_flight, found.pending_pods, found.wall_clock_s) == (500, 48, 7, 90.0)
    # Ten pods and ten gangs of four: 50 objects of 20 workloads.
    assert found.rate_per_s == pytest.approx(60 * 20 / 50)
    assert build_limits(drawn, RunOptions(submit_with="kubectl")).in_flight == 8
    assert build_limits(drawn, RunOptions(closed=True, processes=100)).in_flight == 48


def test_a_way_that_cannot_be_is_told_before_anything_is_sent() -> None:
    from workbench.scaletest.cluster_api.connection import Connection

    api = Connection(Target("http://127.0.0.1:1", "c", None, dict))
    with pytest.raises(ConfigError, match="which command"):
        RunOptions(submit_with="command").build_submitter(api, ClusterAccess(None, "c"))
    with pytest.raises(MissingToolError, match="no kubectl"):
        build_options(submit_with="kubectl", kubectl="no/such/kubectl").build_submitter(api, ClusterAccess(None, "c"))


def test_the_line_of_progress_names_what_goes_wrong_only_when_it_does() -> None:
    live = SubmissionStatus(100, 50, 0, 4, 0, 64, 9.96, 0.0123, 1.5, 7)
    assert format_status(live) == "50 of 100 accepted, 10.0/s, p50 12.3 ms, p95 1.5 s, 4 in flight, 7 pods wait"
    worse = SubmissionStatus(100, 50, 2, 4, 31, 8, 9.96, None, None)
    assert format_status(worse) == "50 of 100 accepted, 10.0/s, 4 in flight, 31 times 429, window 8, 2 failed"


def test_the_end_tells_what_was_sent_and_what_is_left() -> None:
    told = "\n".join([*_format_submission(result()), *_format_aftermath(result())])
    assert "20 of 20 accepted, 0 failed, 0 unsent" in told
    assert "9.9/s, sent 4 ms late at p99" in told
    assert "3 times 429, 1.5 s waited in all" in told
    assert "workbench scaletest cleanup st-00c0ffee" in told
    assert "--resume" not in told


def test_what_was_interrupted_can_be_gone_on_with() -> None:
    outcome = SubmissionOutcome("interrupted", 1, 1, 2, 20, 12, 0, 0, 8, 12, 9, 0, 0.0, None, None, None)
    found = result(outcome=outcome, interrupted=True)
    assert "--resume a/folder" in "\n".join(_format_aftermath(found))
    assert found.exit_code == 130
