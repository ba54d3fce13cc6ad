"""Turns of several schedulers: their order, what is made anew, what ends them. The runs themselves are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.fakes import scale_runs
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.kubernetes.client import Target
from workbench.runs import run_folder
from workbench.scaletest.analysis import variants
from workbench.scaletest.command import app
from workbench.scaletest.commands.run import _print_turns
from workbench.scaletest.observation import run_records
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan, read_plan
from workbench.scaletest.submission.abort_criteria import StopRequest
from workbench.scaletest.submission.plan_submission import SubmissionOutcome
from workbench.scaletest.submission.submission_journal import lock_test_folder
from workbench.scaletest.test_run import variant_turns
from workbench.scaletest.test_run.run_console import SilentRunWatcher
from workbench.scaletest.test_run.run_lifecycle import RunContext, replace_schedulers
from workbench.scaletest.test_run.run_options import ClusterAccess, RunResult

GIVEN = scenario_file.parse_scenario(
    "{name: a, arrival: {process: constant, rate_per_s: 1, n: 2}, workloads: [{kind: Pod, gpus: 1, lifetime: 1}]}"
)
ON = ClusterAccess(None, "nowhere")
BOTH = ("default-scheduler", "kai-scheduler")
OUTCOME = SubmissionOutcome("finished", 1, 1, 2, 2, 2, 0, 0, 0, 2, 1, 0, 0.0, None, None, None)


class SimulatedRuns:
    """Stands in for `run`: keeps what it was asked, and leaves a run folder with a verdict."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.left: dict[str, int] = {}
        self.checked: list[str] = []
        self.refused: str | None = None
        self.emptied: list[str] = []
        self.dies_at: int | None = None
        self.interrupts_at: int | None = None
        self.invalid_at: int | None = None

    def __call__(self, given: Any, context: RunContext, *, scheduler: str, folder: Path) -> RunResult:
        turn = len(self.asked)
        self.asked.append((scheduler, folder.name))
        assert context.options.cleanup
        assert scheduler in given.schedulers
        record = run_folder.start_run(
            "scaletest", folder=folder, config={"options": context.options.model_dump(mode="json")}
        )
        drawn = draw_plan(given, scheduler=scheduler)
        drawn.write(folder)
        run_records.write_conditions(folder, _test(drawn))
        if turn == self.dies_at:
            raise RunFailedError("the simulated run broke off")
        verdict: Any = "invalid" if turn == self.invalid_at else "valid"
        record.conclude(verdict, ["it was simulated"] if verdict == "invalid" else [], "It was simulated.")
        if turn == self.interrupts_at:
            context.asked.request_stop()
        cleaned = CleanupResult(drawn.run, ("ns",), {"ns/pods": 2}, self.left)
        return RunResult(
            folder, drawn.run, scheduler, OUTCOME, "all are done", verdict, (), (), "simulated", {}, 2, cleaned
        )

    def check(self, given: Any, context: RunContext, scheduler: str) -> None:
        self.checked.append(scheduler)
        if scheduler == self.refused:
            raise ConfigError("the simulated cluster has no such scheduler", where=scheduler)

    async def clean(self, api: Any, run: str, namespaces: Any, *rest: Any, **more: Any) -> CleanupResult:
        self.emptied.append(run)
        return CleanupResult(run, tuple(namespaces), self.left, self.left)


def _test(drawn: Plan) -> run_records.RunConditions:
    made = drawn.scenario
    more = {"scenario_sha256": scenario_file.hash_scenario(made), "schedulers": (drawn.scheduler,)}
    return scale_runs.record_of(scale_runs.Plan([0.0]), run=drawn.run, namespaces=drawn.namespaces, **more)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimulatedRuns:
    made = SimulatedRuns()

    async def the_same(*given: Any) -> None:
        """It is the same cluster."""

    monkeypatch.setattr(variant_turns, "run_test", made)
    monkeypatch.setattr(variant_turns, "check_test", made.check)
    monkeypatch.setattr(variant_turns, "confirm_same_cluster", the_same)
    monkeypatch.setattr(variant_turns, "TURN_PAUSE_S", 0)
    monkeypatch.setattr(run_cleanup, "delete_run_objects", made.clean)
    monkeypatch.setattr(ClusterAccess, "target", property(lambda place: Target("http://127.0.0.1:1", "c", None, dict)))
    return made


def test_turns_alternate_and_each_has_its_own_folder(simulated: SimulatedRuns, tmp_path: Path) -> None:
    found = variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=3, out=tmp_path)
    a, b = BOTH
    assert [side for side, _ in simulated.asked] == [a, b, b, a, a, b]
    assert [name for _, name in simulated.asked][:2] == ["00-default-scheduler", "01-kai-scheduler"]
    assert (found.left, found.exit_code) == (0, 0)
    session = variants.read_session(found.folder)
    assert session.sides == BOTH
    assert [(one.side, one.position) for one in session.runs] == [(a, 0), (b, 1), (b, 2), (a, 3), (a, 4), (b, 5)]


def test_what_is_missing_is_made_and_what_broke_off_is_made_anew(simulated: SimulatedRuns, tmp_path: Path) -> None:
    simulated.dies_at = 2
    with pytest.raises(RunFailedError, match="broke off"):
        variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=2, out=tmp_path)
    folder = next((tmp_path / "scaletest").iterdir())
    simulated.dies_at, simulated.asked = None, []
    found = variant_turns.resume_variants(folder, ON)
    assert [name for _, name in simulated.asked] == ["02-kai-scheduler", "03-default-scheduler"]
    assert found.left == 0
    assert len(list(folder.glob("broken-*-02-kai-scheduler"))) == 1
    simulated.asked = []
    assert variant_turns.resume_variants(folder, ON).results == ()
    assert simulated.asked == []


def test_a_side_that_must_not_begin_is_told_before_the_other_ones_run(simulated: SimulatedRuns, tmp_path: Path) -> None:
    simulated.refused = BOTH[1]
    with pytest.raises(ConfigError, match="no such scheduler"):
        variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=2, out=tmp_path)
    assert simulated.checked == list(BOTH)
    assert simulated.asked == []
    assert list(tmp_path.iterdir()) == []


def test_what_earlier_turns_left_goes_before_the_next_one(simulated: SimulatedRuns, tmp_path: Path) -> None:
    simulated.left = {"ns/pods": 3}
    with pytest.raises(RunFailedError, match="not emptied"):
        variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=2, out=tmp_path)
    assert len(simulated.asked) == 1
    folder = next((tmp_path / "scaletest").iterdir())
    simulated.asked = []
    # The turn has a verdict and is kept, but its pods are still there.
    with pytest.raises(RunFailedError, match="not emptied"):
        variant_turns.resume_variants(folder, ON)
    assert simulated.asked == []
    simulated.left, simulated.emptied = {}, []
    found = variant_turns.resume_variants(folder, ON)
    assert simulated.emptied == [read_plan(folder / "00-default-scheduler").run]
    assert [name for _, name in simulated.asked] == ["01-kai-scheduler", "02-kai-scheduler", "03-default-scheduler"]
    assert found.left == 0


def test_two_processes_do_not_make_the_same_turns(simulated: SimulatedRuns, tmp_path: Path) -> None:
    simulated.interrupts_at = 0
    found = variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=1, out=tmp_path)
    simulated.asked = []
    with lock_test_folder(found.folder), pytest.raises(ConfigError, match="another process"):
        variant_turns.resume_variants(found.folder, ON)
    with lock_test_folder(found.folder / "00-default-scheduler"), pytest.raises(ConfigError, match="another process"):
        variant_turns.resume_variants(found.folder, ON)
    assert simulated.asked == []


def test_how_many_runs_there_will_be_is_said_first(simulated: SimulatedRuns, tmp_path: Path) -> None:
    class Hearing(SilentRunWatcher):
        def __init__(self) -> None:
            self.told: list[str] = []

        def say(self, line: str) -> None:
            assert simulated.checked or not self.told
            self.told.append(line)

    heard = Hearing()
    variant_turns.run_variants(GIVEN, RunContext(ON, watcher=heard), BOTH, repeat=5, out=tmp_path)
    # Two workloads, a second apart, the last of which runs for a second.
    assert heard.told[0] == (
        "10 runs, 5 of each of default-scheduler, kai-scheduler, each of at least 2 s and its cleanup; "
        "--scheduler default-scheduler for one run of one side"
    )


def test_ctrl_c_ends_the_turns(simulated: SimulatedRuns, tmp_path: Path) -> None:
    simulated.interrupts_at = 1
    found = variant_turns.run_variants(GIVEN, RunContext(ON, asked=StopRequest()), BOTH, repeat=2, out=tmp_path)
    assert (len(simulated.asked), found.exit_code) == (2, 130)
    assert found.left > 0


def test_a_turn_that_is_invalid_counts_also_when_a_later_process_makes_the_others(
    simulated: SimulatedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.invalid_at = simulated.interrupts_at = 0
    folder = variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=1, out=tmp_path).folder
    simulated.invalid_at = simulated.interrupts_at = None
    found = variant_turns.resume_variants(folder, ON)
    assert [one.verdict for one in found.results] == ["valid"]
    assert (found.left, found.exit_code) == (0, 1)
    with pytest.raises(typer.Exit) as ended:
        _print_turns(found, as_json=False)
    assert ended.value.exit_code == 1
    assert "00-default-scheduler, an earlier turn, is invalid: it was simulated" in capsys.readouterr().out
    # A process that finds nothing to do says so, too.
    assert variant_turns.resume_variants(folder, ON).exit_code == 1


@pytest.mark.parametrize("repeat", [-1, 0, 101])
def test_a_number_of_runs_that_cannot_be_is_told_before_the_cluster_is_touched(
    repeat: int, simulated: SimulatedRuns, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="not a number of runs"):
        variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=repeat, out=tmp_path)
    assert simulated.checked == []
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario_file.format_canonical(GIVEN))
    words = ["run", str(path), "--context", "c", "--scheduler", "default,kai", "--repeat", str(repeat)]
    found = CliRunner().invoke(app, words)
    assert (found.exit_code, "--repeat" in found.output) == (2, True)
    assert simulated.checked == []


def test_ctrl_c_before_a_turn_has_begun_keeps_the_turns_before_it(
    simulated: SimulatedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*given: Any, **options: Any) -> RunResult:
        if simulated.asked:
            raise KeyboardInterrupt
        return simulated(*given, **options)

    monkeypatch.setattr(variant_turns, "run_test", run)
    found = variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=2, out=tmp_path)
    assert (len(found.results), found.left, found.exit_code) == (1, 3, 130)


@pytest.mark.parametrize("names", [("default-scheduler",), ("kai-scheduler", "kai-scheduler"), ()])
def test_one_side_is_no_comparison(names: tuple[str, ...], simulated: SimulatedRuns, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two or more different sides"):
        variant_turns.run_variants(GIVEN, RunContext(ON), names, out=tmp_path)


def test_a_scenario_that_was_changed_meanwhile_is_not_gone_on_with(simulated: SimulatedRuns, tmp_path: Path) -> None:
    found = variant_turns.run_variants(GIVEN, RunContext(ON), BOTH, repeat=1, out=tmp_path)
    path = found.folder / "scenario.yaml"
    path.write_text(path.read_text().replace("name: a", "name: b"))
    with pytest.raises(InputError, match="was changed"):
        variant_turns.resume_variants(found.folder, ON)


def test_a_scenario_that_one_side_cannot_run_is_refused_before_anything() -> None:
    arrival = "{process: constant, rate_per_s: 1, n: 2}"
    text = f"{{name: a, scheduler: kai, arrival: {arrival}, workloads: [{{kind: Pod, fraction: 0.5}}]}}"
    with pytest.raises(ConfigError, match="not a scenario for these schedulers"):
        replace_schedulers(scenario_file.parse_scenario(text), BOTH)
