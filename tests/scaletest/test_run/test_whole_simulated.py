"""What a whole test does when something comes between: sampler, submission, cleanup and analysis are simulated."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.core.errors import ConfigError, RunFailedError
from workbench.kubernetes.client import Target
from workbench.runs import run_folder
from workbench.scaletest.analysis import raw_tables, run_analysis, run_figures
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.observation import run_records
from workbench.scaletest.safety.cluster_facts import ClusterFacts
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.scenario.scenario_file import parse_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.submission.abort_criteria import StopRequest
from workbench.scaletest.submission.plan_submission import SubmissionOutcome
from workbench.scaletest.submission.submission_journal import lock_test_folder
from workbench.scaletest.test_run import run_lifecycle
from workbench.scaletest.test_run.run_console import SilentRunWatcher, run_in_thread
from workbench.scaletest.test_run.run_lifecycle import RunContext, resume_test
from workbench.scaletest.test_run.run_options import ClusterAccess, RunResult, build_options

GIVEN = parse_scenario(
    "{name: a, namespace: tests, arrival: {process: constant, rate_per_s: 1, n: 2}, abort: {keep_sampling_s: 0.2},"
    " workloads: [{kind: Job, gpus: 1}]}"
)
HANG_S = 60.0


class SimulatedSampler:
    """Says what the test tells it to say."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {"away_s": 0.0}
        self.is_running, self.is_ready, self.stopped_within_s = True, True, list[float]()
        self.comes_up = True
        self._ended = threading.Event()

    def wait_until_ready(self) -> None:
        if not self.comes_up:
            assert self._ended.wait(HANG_S)
            raise RunFailedError("the simulated sampler was ended")

    def stop(self, timeout_s: float = 60.0) -> None:
        self.stopped_within_s.append(timeout_s)
        self._ended.set()

    def lag_s(self) -> float:
        return 0.01

    def state(self) -> dict[str, Any]:
        return self.told


class Simulated:
    """All that a whole test does, but for its own order of things."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sampler, self.asked = SimulatedSampler(), StopRequest()
        self.asked_at_submission = self.emptied = 0
        self.ask_in_cleanup = False
        self.accepted: tuple[int, ...] = ()  # workloads of which no pod is ever seen
        self.plan = draw_plan(GIVEN)
        self.record = run_folder.start_run("scaletest", folder=folder)
        self.folder = folder
        monkeypatch.setattr(run_lifecycle, "write_run_record", self._recorded)
        monkeypatch.setattr(run_lifecycle.sampler_process, "start_sampler", lambda *given, **more: self.sampler)
        monkeypatch.setattr(run_lifecycle, "PlanSubmission", self._prepare_submission)
        monkeypatch.setattr(run_lifecycle, "empty_run", self._empty)
        monkeypatch.setattr(raw_tables, "write_raw_tables", lambda folder: None)
        monkeypatch.setattr(run_analysis, "conclude_run", self._conclude)

    def run(self) -> RunResult:
        api = Connection(Target("http://127.0.0.1:1", "c", None, dict))

        async def body() -> RunResult:
            context = RunContext(ClusterAccess(None, "c"), build_options(settle_s=0.1), asked=self.asked)
            test = run_lifecycle.RunLifecycle(api, self.plan, self.record, context, others=False)
            return await asyncio.wait_for(test.run_to_end(), HANG_S)

        return run_in_thread(body, self.asked, SilentRunWatcher())

    async def _recorded(self, *given: Any) -> None:
        """Nothing."""

    def _prepare_submission(self, *given: Any, asked: StopRequest, **more: Any) -> Any:
        return SimpleNamespace(submit=lambda planned: self._submit(asked))

    async def _submit(self, asked: StopRequest) -> SubmissionOutcome:
        self.asked_at_submission = asked.times
        told = [
            run_records.Begun(self.plan.run, 1, 1),
            *(run_records.Acked(index, 1, 1, 201) for index in self.accepted),
        ]
        (self.folder / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, told)))
        reason = "interrupted" if asked.times else "finished"
        return SubmissionOutcome(reason, 1, 1, 2, 2, 0, 0, 0, 2, 0, 0, 0, 0.0, None, None, None)

    async def _empty(self, *given: Any) -> CleanupResult:
        self.emptied += 1
        if self.ask_in_cleanup:
            self.asked.request_stop()
            await asyncio.Event().wait()
        return CleanupResult(self.plan.run, ("tests",), {})

    def _conclude(self, folder: Path) -> Any:
        reasons = run_figures._read_run_notes(folder)[1]
        run_folder.load_run(folder).conclude("invalid" if reasons else "valid", reasons, "It was simulated.")
        return SimpleNamespace(reasons=reasons, warnings=(), answer="simulated", quantile=lambda step, share: None)


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    return Simulated(tmp_path, monkeypatch)


def test_without_trouble_it_is_valid_and_cleaned_up(simulated: Simulated) -> None:
    found = simulated.run()
    assert (found.verdict, found.exit_code, found.drained, simulated.emptied) == ("valid", 0, "all are done", 1)


def test_trouble_while_draining_makes_the_run_invalid_and_leaves_its_objects_to_look_at(simulated: Simulated) -> None:
    simulated.sampler.told = {"away_s": 0.0, "nodes_not_ready": 2, "nodes_not_ready_at_start": 0}
    found = simulated.run()
    assert (found.verdict, found.exit_code) == ("invalid", 1)
    assert found.reasons == ("aborted: 2 node(s) stopped being ready (while draining)",)
    assert found.drained == "aborted: 2 node(s) stopped being ready; sampled for 0.2 s more"
    # As after an abort of submission: the scenario says that nothing is deleted then.
    assert (found.cleaned, simulated.emptied) == (None, 0)


def test_a_test_that_ended_before_all_pods_were_made_is_invalid(simulated: Simulated) -> None:
    simulated.accepted = (0,)
    found = simulated.run()
    assert (found.verdict, found.drained) == ("invalid", "nothing changed for 0.1 s")
    assert found.reasons == ("nothing changed for 0.1 s, and 1 of 1 pods were not made yet (while draining)",)


def test_ctrl_c_in_the_cleanup_ends_the_cleanup_and_takes_nothing_from_the_run(simulated: Simulated) -> None:
    simulated.ask_in_cleanup = True
    found = simulated.run()
    assert (found.cleaned, found.interrupted, found.verdict, found.exit_code) == (None, False, "valid", 0)
    assert run_folder.load_run(simulated.folder).status == "succeeded"


def test_ctrl_c_while_the_sampler_starts_ends_the_start(simulated: Simulated) -> None:
    simulated.sampler.comes_up = simulated.sampler.is_ready = False
    simulated.asked.request_stop()
    found = simulated.run()
    assert (simulated.asked_at_submission, found.outcome.reason, found.exit_code) == (1, "interrupted", 130)
    assert simulated.sampler.stopped_within_s == [run_lifecycle.UNREADY_LIMIT_S]
    assert (simulated.emptied, run_folder.load_run(simulated.folder).status) == (0, "cancelled")


def test_a_test_that_somebody_is_running_is_not_gone_on_with_beside(simulated: Simulated) -> None:
    from tests.scaletest.test_run.test_variant_turns import _test
    from workbench.scaletest.observation import run_records

    run_records.write_conditions(simulated.folder, _test(simulated.plan))
    simulated.plan.write(simulated.folder)
    before = (simulated.folder / run_folder.RECORD_FILE).read_bytes()
    with lock_test_folder(simulated.folder), pytest.raises(ConfigError, match="another process is running the test"):
        resume_test(simulated.folder, ClusterAccess(None, "c"))
    assert (simulated.folder / run_folder.RECORD_FILE).read_bytes() == before


def cluster(real_nodes: int) -> ClusterFacts:
    from workbench.scaletest.safety.cluster_facts import NodeFacts

    node = NodeFacts("n", simulated=False, ready=True, gpus=8, cpus=1, memory_bytes=1, pods=1, labels={}, taints=())
    return ClusterFacts("c", "http://c", "v1", "0123456789", None, "me", (), (node,) * real_nodes, 0)


def test_a_command_is_not_sent_to_a_cluster_with_real_nodes_unless_somebody_says_so() -> None:
    drawn, command = draw_plan(GIVEN), build_options(submit_with="command", submit_command=("cli", "{name}"))
    with pytest.raises(ConfigError, match="cannot be kept on simulated nodes"):
        run_lifecycle._check_command_fence(drawn, command, cluster(2))
    run_lifecycle._check_command_fence(drawn, command, cluster(0))
    run_lifecycle._check_command_fence(drawn, build_options(), cluster(2))
    allowed = GIVEN.model_copy(update={"allow_real_nodes": True})
    run_lifecycle._check_command_fence(draw_plan(allowed), command, cluster(2))
