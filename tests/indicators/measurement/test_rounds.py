"""Sessions of real runs: every planned run once, whatever happens to the runs, the workbench or the files."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.indicators.measurement.making import Tiny, kept, printing, scripted, session, two_sides, valid
from tests.indicators.measurement.test_launcher_client import descendants, gone, waited
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement.launcher_client import DIED, Launcher
from workbench.indicators.measurement.rounds import Judge, measure_session
from workbench.indicators.measurement.run_messages import RunEnd
from workbench.indicators.measurement.session_plan import Slot, order_runs
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session, inspection_id, read_session, result_path

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[3]


class Told(SessionWatcher):
    """Notes what a session tells."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.runs: list[tuple[str, str, str]] = []
        self.rounds: list[tuple[int, int, object]] = []
        self.notes: list[str] = []

    def report_start(self, done: int, planned: int) -> None:
        self.begun.append((done, planned))

    def report_run(self, arm: str, case: str, status: str) -> None:
        self.runs.append((arm, case, status))

    def report_round(self, number: int, most: int, verdicts: object) -> None:
        self.rounds.append((number, most, verdicts))

    def report_note(self, text: str) -> None:
        self.notes.append(text)


def test_every_planned_run_is_made_once_in_its_order(tmp_path: Path) -> None:
    cases = [Case.from_parameters(Tiny), Case.from_parameters(Tiny, {"n": 5})]
    plan, told = session(cases, rounds=(3,)), Told()
    done = measure_session(tmp_path, plan, two_sides(), cases, watcher=told)
    assert (done.stop_reason, done.rounds_done, read_session(tmp_path)) == ("all rounds", 3, done)
    assert kept(tmp_path) == [(one.position, one.case, one.arm, "ok") for one in order_runs(plan)]
    assert [(arm, case) for arm, case, _ in told.runs] == [(one.arm, one.case) for one in order_runs(plan)]
    assert told.begun == [(0, 18)]
    assert [number for number, *_ in told.rounds] == [1, 2, 3]


def test_runs_follow_each_other_and_say_what_was_in_force(tmp_path: Path) -> None:
    plan = session(rounds=(2,))
    measure_session(tmp_path, plan, two_sides(), [Case.from_parameters(Tiny)])
    found = sorted((one for *_, one in archive.read_results(tmp_path, plan)), key=lambda one: one.workbench.position)
    for before, after in itertools.pairwise(found):
        assert before.end_datetime <= after.start_datetime
    measured = found[0].workbench
    assert {"network", "memory", "processes", "user"} <= set(measured.isolation)
    assert measured.threads == 1
    assert measured.cpus == plan.cpus
    assert measured.before.load_1m is not None
    assert found[0].metric_value("elapsed_ms") == 3.0
    for arm in plan.arms:
        inspection = inspection_id(plan.session_id, arm.name, plan.cases[0].label)
        told = json.loads((tmp_path / "inspections" / inspection / "build" / "specification").read_text())
        assert (told["script"], told["batch_size"], told["@workbench"]["arm"]) == (Tiny.script, 2, arm.name)


HOSTILE = {
    "timeout": "import time; time.sleep(600)",
    "out of memory": "b = bytearray(3 << 30); print(b[0])",
    "not JSON": "print('elapsed 3 ms')",
    "exit code": "raise SystemExit(3)",
    "killed": "import ctypes; ctypes.string_at(0)",
}


def test_no_failing_run_ends_a_session_and_each_has_its_status(tmp_path: Path) -> None:
    statuses: Counter[str] = Counter()
    for status, script in HOSTILE.items():
        folder, case = tmp_path / status, Case.from_parameters(scripted(script))
        plan = session([case], rounds=(1,), timeout_s=1.5 if status == "timeout" else 20.0, memory_bytes=1 << 30)
        done = measure_session(folder, plan, two_sides(), [case])
        assert done.stop_reason == "all rounds"
        statuses.update(found for *_, found in kept(folder))
    assert statuses == dict.fromkeys(HOSTILE, 3)


def test_a_side_that_fails_twice_is_not_asked_again_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import os\nif os.environ['WHO'] == 'two': raise SystemExit('no')\n" + printing(valid())
    case = Case.from_parameters(scripted(script))
    plan, usual = session([case], rounds=(5,)), Launcher.run_command
    # The side is told by an environment variable that only the test sets. First comes the run that only warms up.
    names = iter(["one", *(one.arm for one in order_runs(plan) if one.arm != "two" or one.round < 2)])

    def told(self: Launcher, command: object) -> object:
        command.environment["WHO"] = next(names)  # type: ignore[attr-defined]
        return usual(self, command)  # type: ignore[arg-type]

    monkeypatch.setattr(Launcher, "run_command", told)
    done = measure_session(tmp_path, plan, two_sides(), [case])
    counts = Counter((arm, status) for *_, arm, status in kept(tmp_path))
    assert counts == {("one", "ok"): 5, ("control", "ok"): 5, ("two", "exit code"): 2}
    assert any("two, Tiny: given up after 2 runs" in note for note in done.notes)


def test_ctrl_c_in_the_round_in_which_a_side_is_given_up_does_not_lose_its_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [Case.from_parameters(Tiny), Case.from_parameters(Tiny, {"n": 5})]
    plan, usual = session(cases, rounds=(4,)), Launcher.run_command
    # First come the runs that only warm up, one for each case.
    slots = itertools.chain([None, None], order_runs(plan))
    last_of_group = order_runs(plan)[8]

    def run(self: Launcher, command: object) -> object:
        slot = next(slots)
        if slot == last_of_group:
            signal.raise_signal(signal.SIGINT)
        if slot is not None and slot.arm == "two":
            return RunEnd("exit code", "exit code 1")
        return usual(self, command)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Launcher, "run_command", run)
        stopped = measure_session(tmp_path, plan, two_sides(), cases)
    assert (stopped.stop_reason, stopped.rounds_done, len(kept(tmp_path))) == ("interrupted", 1, 9)
    lost = f"two, {last_of_group.case}: given up after 2 runs without values (the last: exit code)"
    assert lost in stopped.notes
    # A kill in that round leaves no note in session.json: it is derived from the runs.
    archive.write_session(tmp_path, stopped.model_copy(update={"notes": ()}))
    told = Told()
    done = measure_session(tmp_path, read_session(tmp_path), two_sides(), cases, watcher=told)
    assert (done.notes.count(lost), told.notes.count(lost)) == (1, 1)


def test_a_case_whose_baseline_fails_is_left_alone(tmp_path: Path) -> None:
    cases = [Case.from_parameters(scripted("raise SystemExit(1)"))]
    plan = session(cases, rounds=(6,))
    measure_session(tmp_path, plan, two_sides(), cases)
    assert len(kept(tmp_path)) == 6


def test_it_stops_at_the_first_look_that_decides(tmp_path: Path) -> None:
    plan, told = session(rounds=(2, 4, 9)), Told()
    asked: list[int] = []

    def decided(folder: Path) -> bool:
        asked.append(read_session(folder).rounds_done)
        return asked[-1] >= 4

    judge = Judge(decided, lambda _: {"SAME": 1})
    done = measure_session(tmp_path, plan, two_sides(), [Case.from_parameters(Tiny)], judge=judge, watcher=told)
    # A sequence may end after any round from the first look on.
    assert (done.stop_reason, done.rounds_done, asked) == ("decided", 4, [2, 3, 4])
    assert [verdicts for *_, verdicts in told.rounds] == [None, {"SAME": 1}, {"SAME": 1}, {"SAME": 1}]


def test_what_is_there_is_not_run_again_and_a_round_with_torn_files_is_as_a_whole(tmp_path: Path) -> None:
    cases = [Case.from_parameters(Tiny), Case.from_parameters(Tiny, {"n": 5})]
    plan = session(cases, rounds=(3,))
    measure_session(tmp_path, plan, two_sides(), cases)
    slots = order_runs(plan)
    paths = [result_path(tmp_path, inspection_id(plan.session_id, one.arm, one.case), one.round) for one in slots]
    before = [path.read_bytes() for path in paths]
    paths[2].unlink()
    paths[7].write_bytes(before[7][:100])
    paths[13].write_bytes(b"")
    # What a killed write leaves: a temporary file, never a result.
    (paths[4].parent / ".result.abc.part").write_bytes(b"{")
    told = Told()
    done = measure_session(tmp_path, read_session(tmp_path), two_sides(), cases, watcher=told)
    # The three sides of a case in a round stand together: those without the missing run are made again with it.
    again = [0, 1, 2, 6, 7, 8, 12, 13, 14]
    assert told.begun == [(9, 18)]
    assert [(arm, label) for arm, label, _ in told.runs] == [(slots[n].arm, slots[n].case) for n in again]
    assert kept(tmp_path) == [(one.position, one.case, one.arm, "ok") for one in slots]
    assert [n for n in range(18) if paths[n].read_bytes() != before[n]] == again
    notes = [
        f"round {slots[n].round}, {slots[n].case}: runs of some variants were missing, all are made again"
        for n in (2, 7, 13)
    ]
    assert [note.partition(";")[0] for note in done.notes if "missing" in note] == notes


def test_killed_while_a_round_is_made_again_it_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, case = session(rounds=(1,)), Case.from_parameters(Tiny)
    measure_session(tmp_path, plan, two_sides(), [case])
    slots = order_runs(plan)
    _path_of(tmp_path, plan, slots[2]).unlink()
    usual, count = Launcher.run_command, itertools.count()

    def run(self: Launcher, command: object) -> object:
        # The first run only warms up.
        if next(count) == 2:
            raise KeyboardInterrupt
        return usual(self, command)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Launcher, "run_command", run)
        with pytest.raises(KeyboardInterrupt):
            measure_session(tmp_path, read_session(tmp_path), two_sides(), [case])
    # The old run of the second side is gone: only the new one of the first is there.
    assert [_path_of(tmp_path, plan, slot).exists() for slot in slots] == [True, False, False]


def _path_of(folder: Path, plan: Session, slot: Slot) -> Path:
    return result_path(folder, inspection_id(plan.session_id, slot.arm, slot.case), slot.round)


@pytest.mark.parametrize(
    "ended",
    [
        RunEnd("not started", "cannot make a folder for it: No space left on device"),
        RunEnd("killed", f"{DIED} (it ended)"),
    ],
)
def test_runs_that_cannot_be_made_end_the_session_and_are_made_when_it_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: RunEnd
) -> None:
    plan, case = session(rounds=(4,)), Case.from_parameters(Tiny)
    usual, count = Launcher.run_command, itertools.count()

    def run(self: Launcher, command: object) -> object:
        # Two in a row in the first round, then one by one, then three.
        return ended if next(count) in (0, 1, 4, 6, 7, 8) else usual(self, command)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Launcher, "run_command", run)
        with pytest.raises(RunFailedError, match="3 runs in a row") as caught:
            measure_session(tmp_path, plan, two_sides(), [case])
    assert ended.detail in str(caught.value)
    assert "--resume" in str(caught.value)
    assert next(count) == 9
    done = measure_session(tmp_path, read_session(tmp_path), two_sides(), [case])
    assert done.stop_reason == "all rounds"
    assert kept(tmp_path) == [(one.position, one.case, one.arm, "ok") for one in order_runs(plan)]


def test_a_look_is_not_taken_again_after_later_rounds(tmp_path: Path) -> None:
    plan, case, asked = session(rounds=(2, 4)), Case.from_parameters(Tiny), []
    measure_session(tmp_path, plan, two_sides(), [case])

    def decided(folder: Path) -> bool:
        asked.append(len(kept(folder)))
        return False

    told = Told()
    done = measure_session(tmp_path, read_session(tmp_path), two_sides(), [case], judge=Judge(decided), watcher=told)
    assert asked == [12]
    assert (told.runs, told.begun, done.stop_reason) == ([], [(12, 12)], "all rounds"), "it is whole: nothing is run"


RUNNER = """
import sys
from pathlib import Path
from tests.indicators.measurement.making import Tiny, session, two_sides, scripted, SCRIPT
from workbench.indicators.store.archive import read_session
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement.rounds import measure_session

folder = Path(sys.argv[1])
case = Case.from_parameters(scripted("import time; time.sleep(0.05)" + SCRIPT))
plan = read_session(folder) if (folder / "session.json").exists() else session([case], rounds=(6,))
done = measure_session(folder, plan, two_sides(), [case])
print(done.stop_reason, flush=True)
"""


def begun(folder: Path) -> int:
    command = [sys.executable, "-c", RUNNER, str(folder)]
    return os.spawnve(os.P_NOWAIT, sys.executable, command, {**os.environ, "PYTHONPATH": str(ROOT)})


def results_in(folder: Path) -> int:
    return len(list(folder.glob("inspections/*/results/*/result")))


@pytest.mark.smoke
def test_killed_again_and_again_it_still_makes_exactly_the_planned_runs(tmp_path: Path) -> None:
    for kill_after in (1, 4, 9):
        pid = begun(tmp_path)
        waited(lambda least=kill_after: results_in(tmp_path) >= least)  # type: ignore[misc]
        orphans = descendants(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert orphans
        for orphan in orphans:
            waited(lambda one=orphan: gone(one))  # type: ignore[misc]
        there = results_in(tmp_path)
        assert there >= kill_after
    pid = begun(tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    plan = read_session(tmp_path)
    assert kept(tmp_path) == [(one.position, one.case, one.arm, "ok") for one in order_runs(plan)]
    assert plan.stop_reason == "all rounds"


def test_a_session_of_another_machine_or_script_is_refused(tmp_path: Path) -> None:
    plan = session()
    other = plan.model_copy(update={"hardware": plan.hardware.model_copy(update={"key": "another"})})
    with pytest.raises(ConfigError, match="another machine"):
        measure_session(tmp_path, other, two_sides(), [Case.from_parameters(Tiny)])
    with pytest.raises(ConfigError, match="has changed since"):
        measure_session(tmp_path, plan, two_sides(), [Case.from_parameters(scripted("print(1)"))])
