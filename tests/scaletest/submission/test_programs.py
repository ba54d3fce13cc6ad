"""Submission by kubectl and by commands: simulated programs, whose every word the test wrote."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.scaletest.making_scenarios import lines_of
from tests.scaletest.submission.scripted import object_of, plan, scripted_api
from workbench.core.errors import ConfigError, MissingToolError
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario.scenario_file import ScenarioLimits
from workbench.scaletest.submission import object_creation, plan_submission
from workbench.scaletest.submission.object_creation import CommandSubmitter, KubectlSubmitter
from workbench.scaletest.submission.plan_submission import PlanSubmission, SubmissionOutcome
from workbench.scaletest.submission.submission_journal import SubmissionJournal

RUN = "st-00c0ffee"
LIMITS = ScenarioLimits(objects=1000, rate_per_s=10_000, in_flight=4)


def simulated(folder: Path, body: str) -> Path:
    """A program that does what the test says, with `words` (its arguments) and `given` (its input)."""
    path = folder / "simulated-program"
    head = f"#!{sys.executable} -S\nimport json, os, sys, time\nwords, here = sys.argv[1:], {str(folder)!r}\n"
    path.write_text(head + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def submitted(
    way: KubectlSubmitter | CommandSubmitter, folder: Path, count: int = 6, limits: ScenarioLimits = LIMITS
) -> SubmissionOutcome:
    async def body() -> SubmissionOutcome:
        async with scripted_api() as (_, api):
            return await PlanSubmission(api, folder, RUN, limits, submitter=way).submit(plan(RUN, count))

    return asyncio.run(body())


def failures(folder: Path) -> list[tuple[int | None, str]]:
    return [(one.status, one.reason) for one in lines_of(folder, run_records.Failed)]


KUBECTL = """
made = json.load(sys.stdin)
made["metadata"] |= {"uid": "u-" + made["metadata"]["name"], "creationTimestamp": "2026-11-22T03:00:00Z"}
json.dump(words, open(f"{here}/words-{made['metadata']['name']}.json", "w"))
print(json.dumps(made))
"""


def test_kubectl_applies_each_object_from_its_input(tmp_path: Path) -> None:
    way = KubectlSubmitter(tmp_path / "kubeconfig", "a-context", simulated(tmp_path, KUBECTL))
    found = submitted(way, tmp_path)
    assert (found.reason, found.acked, found.failed) == ("finished", 6, 0)
    words = json.loads((tmp_path / "words-st-00c0ffee-0000005.json").read_text())
    assert words[:4] == ["--kubeconfig", str(tmp_path / "kubeconfig"), "--context", "a-context"]
    assert words[4:] == ["apply", "-f", "-", "-o", "json", "--request-timeout=60s"]
    assert [one.mode for one in lines_of(tmp_path, run_records.Begun)] == ["kubectl"]
    acks = lines_of(tmp_path, run_records.Acked)
    assert {(one.status, one.uid) for one in acks} == {(200, f"u-st-00c0ffee-000000{n}") for n in range(6)}


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ('Error from server (Forbidden): pods "a" is forbidden', (403, "Forbidden: ")),
        ('The Pod "a" is invalid: spec: Required value', (422, "Invalid: ")),
        ("error: no objects passed to apply", (None, "")),
    ],
)
def test_what_kubectl_is_refused_is_told_once_in_the_servers_words(
    told: str, kept: tuple[int | None, str], tmp_path: Path
) -> None:
    way = KubectlSubmitter(None, None, simulated(tmp_path, f"sys.stderr.write({told!r}); sys.exit(1)"))
    assert submitted(way, tmp_path, count=1).failed == 1
    assert failures(tmp_path) == [(kept[0], kept[1] + told)]


@pytest.mark.parametrize("told", ["Unable to connect to the server: EOF", "Error from server (ServiceUnavailable): no"])
def test_kubectl_without_a_server_is_run_again(told: str, tmp_path: Path) -> None:
    first = f"""
seen = here + "/" + json.loads(sys.stdin.read())["metadata"]["name"]
if not os.path.exists(seen):
    open(seen, "w").close()
    sys.stderr.write({told!r})
    sys.exit(1)
"""
    found = submitted(KubectlSubmitter(None, None, simulated(tmp_path, first)), tmp_path, count=3)
    assert (found.acked, found.failed) == (3, 0)


def test_no_kubectl_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="no kubectl"):
        KubectlSubmitter(None, None, tmp_path / "not-there")


def test_a_command_gets_its_places_filled_in_and_no_shell_sees_them(tmp_path: Path) -> None:
    tool = simulated(
        tmp_path,
        "json.dump([words[:-1], json.load(open(words[-1])), os.stat(words[-1]).st_mode & 0o777, words[-1]],"
        ' open(f"{here}/{words[1]}.seen", "w"))',
    )
    way = CommandSubmitter(
        [str(tool), "submit", "{name}", "--project={namespace}", "-g", "{gpus}", "$(id);`id`", "{file}"]
    )
    found = submitted(way, tmp_path, count=2)
    assert (found.acked, found.reason) == (2, "finished")
    words, body, mode, file = json.loads((tmp_path / "st-00c0ffee-0000001.seen").read_text())
    name = "st-00c0ffee-0000001"
    assert words == ["submit", name, "--project=workbench-scripted", "-g", "0", "$(id);`id`"]
    assert body["metadata"]["name"] == name
    assert mode == 0o600
    assert not Path(file).exists()


def test_a_command_that_says_no_is_believed_and_its_words_are_kept_short(tmp_path: Path) -> None:
    tool = simulated(tmp_path, 'sys.stderr.write("no such project\\n" + "x" * 3_000_000); sys.exit(7)')
    assert submitted(CommandSubmitter([str(tool), "{name}"]), tmp_path, count=1).failed == 1
    [(status, reason)] = failures(tmp_path)
    assert status is None
    assert reason.startswith("exit code 7: no such project xxx")
    assert len(reason) <= 300


def test_a_command_that_does_not_end_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shell, which starts its child at once on any machine.
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\nsleep 600 &\n: > "{tmp_path}/$!.child"\nwait\n')
    tool.chmod(0o755)
    monkeypatch.setattr(plan_submission, "REQUEST_TIMEOUT_S", 1.0)
    monkeypatch.setattr(plan_submission, "RETRY_FOR_S", 0.0)
    assert submitted(CommandSubmitter([str(tool), "{name}"]), tmp_path, count=1).failed == 1
    assert failures(tmp_path) == [(None, "no end within 1 s")]
    children = [int(path.stem) for path in tmp_path.glob("*.child")]
    assert children
    assert not [pid for pid in children if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_program_ends_when_we_are_killed(tmp_path: Path) -> None:
    tool = simulated(tmp_path, 'open(f"{here}/{os.getpid()}.pid", "w").close(); time.sleep(600)')
    source = (
        "import asyncio; from workbench.scaletest.submission import object_creation; "
        f"asyncio.run(object_creation.run_program([{str(tool)!r}], stdin=None, timeout_s=600))"
    )
    parent = subprocess.Popen([sys.executable, "-c", source])
    deadline = time.monotonic() + 60
    while not (found := list(tmp_path.glob("*.pid"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    pid = int(found[0].stem)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


async def test_after_a_crash_a_command_is_not_run_for_what_is_there(tmp_path: Path) -> None:
    tool = simulated(tmp_path, 'open(f"{here}/{words[0]}.ran", "w").close()')
    async with scripted_api() as (server, api):
        journal = SubmissionJournal(tmp_path)
        intents = [run_records.Intent(number, 1) for number in range(2)]
        await journal.write_durably([run_records.Begun(RUN, 1, 1, mode="command"), *intents])
        journal.close()
        # Made by a CLI: without our labels.
        made = object_of(RUN, "st-00c0ffee-0000000")
        server.objects[f"{made.path}/{made.name}"] = {"metadata": {"name": made.name, "uid": "u-1"}}
        way = CommandSubmitter([str(tool), "{name}"])
        found = await PlanSubmission(api, tmp_path, RUN, LIMITS, submitter=way).submit(plan(RUN, 3))
    assert (found.acked, found.known) == (3, 1)
    assert sorted(path.stem for path in tmp_path.glob("*.ran")) == ["st-00c0ffee-0000001", "st-00c0ffee-0000002"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cli", "{nmae}"], "no such place"),
        (["cli", "submit"], "neither {name} nor {file}"),
        (["no-such-program-anywhere", "{name}"], "no such program"),
    ],
)
def test_a_command_that_cannot_work_is_refused_before_anything_is_sent(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CommandSubmitter(words)


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="cannot start"):
        asyncio.run(object_creation.run_program([str(tmp_path / "empty")], stdin=None, timeout_s=5))
