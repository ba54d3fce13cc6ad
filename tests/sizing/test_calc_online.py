"""The calculator online: a workflow run by a stand-in for the toolkit, and one that is served."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.sizing import fake_nat
from tests.sizing.conftest import Sizing
from workbench.core.errors import ConfigError, RunFailedError
from workbench.sizing.compat_nat import calculator, workflow_runs
from workbench.sizing.compat_nat.calculation import CalcGoal, Options
from workbench.sizing.compat_nat.calculator import CalculationResult, run_calculation
from workbench.sizing.compat_nat.workflow_runs import endpoint_host

SECRET = "s3cret-value"


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(fake_nat.written(tmp_path / "toolkit")))
    monkeypatch.setenv("MODEL_API_KEY", SECRET)


def config(folder: Path, questions: list[str], more: str = "") -> Path:
    (folder / "q.json").write_text(json.dumps([{"id": n, "question": text} for n, text in enumerate(questions)]))
    path = folder / "w.yml"
    path.write_text(f"{more}\neval:\n  general:\n    dataset: {{_type: json, file_path: {folder / 'q.json'}}}\n")
    return path


def options(folder: Path, questions: list[str], **given: Any) -> Options:
    given = {"concurrencies": (1, 2, 4), "goal": CalcGoal(0.0, 4.0, 100, 2), "plots": False, "seed": None, **given}
    return Options(config_file=config(folder, questions), output_dir=folder / "out", **given)


def document(done: CalculationResult) -> Any:
    assert done.folder is not None
    return json.loads((done.folder / "calc_runner_output.json").read_text())


def levels_of(done: CalculationResult) -> list[Any]:
    """What was measured at each level, as it was written."""
    return [level["sizing_metrics"] for level in document(done)["calc_data"].values()]


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_a_workflow_is_run_at_each_level_and_written_as_the_toolkit_writes_it(tmp_path: Path) -> None:
    told: list[str] = []
    done = run_calculation(options(tmp_path, ["a", "b", "c", "d"]), report=told.append)
    assert list(document(done)["calc_data"]) == ["1", "2", "4"]
    items = [level["per_item_metrics"] for level in levels_of(done)]
    assert [len(runs) for runs in items] == [4, 4, 4]
    # What the stand-in takes grows with the runs that are in flight, which are as many as asked for.
    assert [max(run["workflow_runtime"] for run in runs.values()) for runs in items] == [1.5, 2.0, 3.0]
    assert items[2]["0"]["llm_latency"] > 0
    assert done.folder is not None
    assert done.folder.parent == tmp_path / "out" / "online"
    assert [line.split(":")[0] for line in told] == ["concurrency 1", "concurrency 2", "concurrency 4"]
    assert done.facts["driven"] == "local, nvidia-nat unknown"


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_a_failing_run_stops_its_level_and_tags_it_and_has_no_time(tmp_path: Path) -> None:
    done = run_calculation(options(tmp_path, ["a", "fail", "c", "d"], concurrencies=(1, 2), num_passes=4))
    level = levels_of(done)[0]
    assert level["alerts"] == {"workflow_interrupted": True}
    assert list(level["per_item_metrics"]) == ["0"]
    assert level["workflow_runtime_p95"] == 1.5
    assert done.facts["failures"]["1"]["failed"] == 1
    assert done.facts["failures"]["1"]["not_begun"] == 2
    assert "RuntimeError: told to fail" in done.facts["failures"]["1"]["first"]
    assert done.calculation.left_out == {1: "interrupted: a run failed", 2: "interrupted: a run failed"}
    assert done.exit_code == 1
    assert SECRET not in "".join(path.read_text() for path in done.paths)


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_a_workflow_without_events_is_timed_from_outside(tmp_path: Path) -> None:
    done = run_calculation(options(tmp_path, ["silent", "silent"], concurrencies=(1, 2)))
    values = [item["workflow_runtime"] for item in levels_of(done)[0]["per_item_metrics"].values()]
    assert len(values) == 2
    assert all(0 < value < 10 for value in values)


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_calls_side_by_side_are_told_apart(tmp_path: Path) -> None:
    done = run_calculation(options(tmp_path, ["parallel", "parallel"], concurrencies=(1, 2)))
    items = levels_of(done)[0]["per_item_metrics"].values()
    # Calls of 8 s and of 0.25 s: their p95. One slot for both would know the longer one alone.
    assert [item["llm_latency"] for item in items] == [pytest.approx(0.25 + 0.95 * 7.75)] * 2


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_evaluators_are_not_run(tmp_path: Path) -> None:
    """The stand-in has none of what evaluators need, so that a try would fail."""
    asked = options(tmp_path, ["a", "b"], concurrencies=(1, 2))
    path = config(tmp_path, ["a", "b"])
    path.write_text(path.read_text() + "  evaluators:\n    judge: {_type: trajectory, llm_name: judge}\n")
    assert run_calculation(asked).facts["failures"] == {}


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_in_a_running_event_loop_it_runs_as_well(tmp_path: Path) -> None:
    async def cell() -> CalculationResult:
        return run_calculation(options(tmp_path, ["a", "b"], concurrencies=(1, 2)))

    assert list(asyncio.run(cell()).output.calc_data) == [1, 2]


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_a_process_that_dies_leaves_the_levels_before_it(tmp_path: Path) -> None:
    # Level 1 has one run of the first question, level 2 one of each.
    asked = options(tmp_path, ["a", "die"], concurrencies=(1, 2), num_passes=1)
    with pytest.raises(RunFailedError, match="died") as died:
        run_calculation(asked)
    assert "last words" in str(died.value)
    assert SECRET not in str(died.value)
    written = next((tmp_path / "out" / "online").glob("job_*/calc_runner_output.json"))
    assert list(json.loads(written.read_text())["calc_data"]) == ["1"]


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_the_process_ends_in_the_middle_of_a_run_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    order = {"config_file": str(config(tmp_path, [])), "concurrency": 1, "items": [["a", "one"], ["b", "hang"]]}
    with subprocess.Popen(
        [sys.executable, str(workflow_runs.CHILD_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        assert "ready" in json.loads(child.stdout.readline())
        assert json.loads(child.stdout.readline())["item"] == "a"
        child.stdin.close()
        assert child.wait(60) == 0


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_a_config_that_the_toolkit_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    asked = options(tmp_path, ["a"])
    config(tmp_path, ["a"], more="refuse: true")
    with pytest.raises(ConfigError, match="cannot run this workflow") as refused:
        run_calculation(asked)
    assert "unknown type" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.live
def test_without_the_toolkit_the_install_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizing: Sizing
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # This Python without the folders in which the toolkit might be installed.
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    code, out, err = sizing("calc", "--config", config(tmp_path, ["a"]), "--nat-python", bare)
    assert (code, out) == (2, "")
    assert "pip install 'nvidia-nat[profiler]==1.9.0'" in err
    assert "--nat_python" in err


@pytest.mark.live
def test_a_python_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be started"):
        run_calculation(options(tmp_path, ["a"], nat_python=str(tmp_path / "none")))


def stopped_at(level: int, outcome: str = "ok") -> Any:
    """A workflow that somebody ends at this concurrency."""

    async def run_level(concurrency: int, items: list[Any], told: Any) -> list[workflow_runs.WorkflowRun]:
        if concurrency == level:
            raise KeyboardInterrupt
        return [workflow_runs.WorkflowRun(item.id, outcome, 1.0 + concurrency, [0.5], 0.0, 1.0) for item in items]

    workflow = MagicMock(run_level=run_level)
    workflow.name = "stopped"
    workflow.__aenter__.return_value = workflow
    workflow.__aexit__.return_value = None
    return lambda options: workflow


def test_ctrl_c_keeps_the_levels_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculator, "_open_workflow", stopped_at(4))
    done = run_calculation(options(tmp_path, ["a", "b"], concurrencies=(1, 2, 4, 8)))
    assert list(document(done)["calc_data"]) == ["1", "2"]
    assert done.exit_code == 1
    assert "stopped: 2 of 4 levels were measured" in done.notices


@pytest.mark.parametrize(
    ("level", "outcome", "why"),
    [(1, "ok", "was stopped"), (2, "ok", "was stopped"), (99, "failed", "has no usable level")],
)
def test_a_job_of_no_use_replaces_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, outcome: str, why: str
) -> None:
    asked = options(tmp_path, ["a", "b"], concurrencies=(1, 2), remove_older=True)
    monkeypatch.setattr(calculator, "_open_workflow", stopped_at(99))
    good = run_calculation(asked).folder
    monkeypatch.setattr(calculator, "_open_workflow", stopped_at(level, outcome))
    poor = run_calculation(asked)
    assert good is not None
    assert good.is_dir()
    assert f"1 older online job(s) kept, because this one {why}" in poor.notices
    monkeypatch.setattr(calculator, "_open_workflow", stopped_at(99))
    last = run_calculation(asked).folder
    assert list((tmp_path / "out" / "online").iterdir()) == [last]


Answer = Callable[[str], tuple[int, bytes]]


@contextmanager
def served(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server of `POST /generate/full` on the loopback; gives its URL and the questions that it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/generate/full"
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input_message"]
            asked.append(question + self.headers.get("X-Key", ""))
            status, body = answer(question)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join(30)


def events(runtime_s: float) -> bytes:
    payloads = [("LLM_START", 100.0), ("LLM_END", 100.0 + runtime_s)]
    parts = [json.dumps({"event_type": kind, "event_timestamp": at, "UUID": "a"}) for kind, at in payloads]
    lines = [f"intermediate_data: {json.dumps({'payload': part})}" for part in parts]
    return "\n\n".join([*lines, 'data: {"value": "good"}', ""]).encode()


@pytest.mark.live
def test_a_served_workflow_is_timed_by_this_clock_and_its_llm_calls_by_the_servers(tmp_path: Path) -> None:
    # More by the server's events than an answer takes on the busiest machine: nothing waits before it begins.
    with served(lambda question: (200, events(8.0))) as (url, asked):
        done = run_calculation(options(tmp_path, ["a", "b", "c", "d"], endpoint=url))
    assert len(asked) == 12
    levels = levels_of(done)
    assert {level["llm_latency_p95"] for level in levels} == {8.0}
    assert all(0 < level["workflow_runtime_p95"] < 0.0625 * 100 for level in levels)
    assert done.facts["clock"] == "client"
    assert not any("waits before the server starts" in notice for notice in done.notices)


@pytest.mark.live
def test_a_wait_before_the_server_begins_is_told(tmp_path: Path) -> None:
    """Events of a microsecond, in answers that take longer to come."""
    with served(lambda question: (200, events(2**-20))) as (url, _):
        done = run_calculation(options(tmp_path, ["a", "b"], endpoint=url))
    assert any("waits before the server starts" in notice for notice in done.notices)
    assert set(done.facts["clock_gap_s"]) == {"1", "2", "4"}


def test_the_total_is_from_the_first_event_to_the_last() -> None:
    runs = [
        workflow_runs.WorkflowRun("a", "ok", 2.0, [], 10.0, 12.0),
        workflow_runs.WorkflowRun("b", "ok", 4.0, [], 11.0, 15.0),
    ]
    level = calculator.level_metrics([*runs, workflow_runs.WorkflowRun("c", "failed")])
    assert level.total_runtime == 5.0
    assert level.workflow_runtime_p95 == pytest.approx(3.9)


@pytest.mark.live
def test_the_servers_clock_is_taken_when_asked_for(tmp_path: Path) -> None:
    with served(lambda question: (200, events(0.0625))) as (url, _):
        done = run_calculation(options(tmp_path, ["a", "b"], endpoint=url, server_clock=True))
    assert {level["workflow_runtime_p95"] for level in levels_of(done)} == {0.0625}
    assert done.facts["clock"] == "server events"


@pytest.mark.live
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (422, b"no such field", "http_error"),
        (200, b"data: {", "malformed"),
        (200, b"", "cut"),
        (500, b"", "http_error"),
    ],
)
def test_a_failure_of_the_service_is_a_failure_and_never_a_time(
    status: int, body: bytes, kind: str, tmp_path: Path
) -> None:
    with served(lambda question: (status, body) if question == "bad" else (200, events(0.01))) as (url, asked):
        done = run_calculation(options(tmp_path, ["a", "bad", "c"], endpoint=url, concurrencies=(1, 3)))
    level = levels_of(done)[0]
    assert level["alerts"]["workflow_interrupted"]
    assert list(level["per_item_metrics"]) == ["0"]
    assert level["workflow_runtime_p95"] > 0
    assert done.facts["failures"]["1"][kind] == 1
    # The level stopped there, and the next one ran.
    assert asked[:2] == ["a", "bad"]
    assert len(asked) == 5


@pytest.mark.live
def test_a_request_that_times_out_is_a_failure_of_its_level_alone(tmp_path: Path) -> None:
    over = threading.Event()

    def answer(question: str) -> tuple[int, bytes]:
        if question == "slow":
            over.wait(60)
        return 200, events(0.01)

    with served(answer) as (url, _):
        try:
            asked = options(tmp_path, ["a", "slow"], endpoint=url, concurrencies=(1, 2), endpoint_timeout_s=0.5)
            # A pass of one run at level 1 knows nothing of the slow one.
            done = run_calculation(asked.model_copy(update={"num_passes": 1}))
        finally:
            over.set()
    first, second = (data.sizing_metrics for data in done.output.calc_data.values())
    assert (first.alerts.workflow_interrupted, second.alerts.workflow_interrupted) == (False, True)
    assert done.facts["failures"]["2"]["timeout"] == 1
    assert 0 < second.workflow_runtime_p95 < 0.5


@pytest.mark.live
def test_nothing_is_sent_twice(tmp_path: Path) -> None:
    with served(lambda question: (503, b"")) as (url, asked):
        run_calculation(options(tmp_path, ["a"], endpoint=url, concurrencies=(1, 2)))
    assert len(asked) == 3


@pytest.mark.live
def test_a_service_that_is_not_there_gives_levels_without_a_time(tmp_path: Path) -> None:
    done = run_calculation(options(tmp_path, ["a", "b"], endpoint="http://127.0.0.1:9", concurrencies=(1, 2)))
    assert [level["workflow_runtime_p95"] for level in levels_of(done)] == [0.0, 0.0]
    assert done.levels["wf_runtime_p95_s"].to_list() == [None, None]
    assert done.exit_code == 1
    assert done.facts["failures"]["1"]["refused"] == 1


@pytest.mark.live
def test_a_header_has_its_value_from_the_environment_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", SECRET)
    keyed = partial(options, tmp_path, ["a"], concurrencies=(1, 2), header_env={"X-Key": "A_KEY"})
    with served(lambda question: (200, events(0.01))) as (url, asked):
        done = run_calculation(keyed(endpoint=url))
    assert set(asked) == {"a" + SECRET}
    assert SECRET not in "".join(path.read_text() for path in done.paths)
    with served(lambda question: (401, f"not the key {SECRET}".encode())) as (url, _):
        done = run_calculation(keyed(endpoint=url))
    assert "HTTP 401: not the key [redacted]" in done.facts["failures"]["1"]["first"]
    with pytest.raises(ConfigError, match="a header's variable is not set"):
        run_calculation(keyed(endpoint=url, header_env={"X-Key": "NO_KEY"}))


def test_another_machine_must_be_named_twice(tmp_path: Path) -> None:
    asked = {"endpoint": "https://models.example.org/v1", "concurrencies": (1, 2)}
    with pytest.raises(ConfigError, match=r"add --target_confirm models\.example\.org"):
        run_calculation(options(tmp_path, ["a"], **asked))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("url", ["models.example.org", "ftp://a", "http://", "http://a:x", "http://me:word@a"])
def test_an_endpoint_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not a URL") as refused:
        endpoint_host(url)
    assert "word" not in str(refused.value)


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_without_a_goal_it_is_measured_and_not_estimated(tmp_path: Path) -> None:
    done = run_calculation(options(tmp_path, ["a", "b"], goal=CalcGoal()))
    assert (done.exit_code, done.calculation.answers) == (0, [])
    assert any("measured, not estimated" in notice for notice in done.notices)
    part = run_calculation(options(tmp_path, ["a", "b"], goal=CalcGoal(0, 4.0, 0, 0)))
    assert "measured, not estimated: --target_users and --test_gpu_count not given" in part.notices


@pytest.mark.live
@pytest.mark.usefixtures("toolkit")
def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    done = run_calculation(Options(config_file=config(tmp_path, ["a", "b"]), concurrencies=(1, 2)))
    assert (done.folder, done.paths) == (None, [])
    assert len(done.levels) == 2
