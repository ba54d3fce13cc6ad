"""Sessions as a notebook starts them: classes at hand, environments that are there, the run folder that is left."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.measurement.making import Tiny, scripted
from tests.indicators.worlds import session
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement import session_report, sessions
from workbench.indicators.measurement.launcher_client import Launcher
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import SessionOutcome, lock_session, resume_session, start_session
from workbench.indicators.store import archive
from workbench.indicators.store.archive import write_session
from workbench.indicators.tables import EFFECTS, JUDGEMENTS, OBSERVATIONS, RUNS
from workbench.runs import run_folder

pytestmark = pytest.mark.live

PYTHONS = (f"one={sys.executable}", f"two={sys.executable}")


def started(out: Path, cases: list[Case] | None = None, **settings: Any) -> SessionOutcome:
    config = session_config(**{"python": PYTHONS, "rounds": (5,), "seed": 1, **settings})
    return start_session(config, cases=cases or [Case.from_parameters(Tiny)], out=out)


def test_a_class_of_a_notebook_is_measured_in_one_call(tmp_path: Path) -> None:
    found = started(tmp_path, rounds=(2, 4, 6))
    # A look before five rounds does not end it.
    assert (found.session.stop_reason, found.session.rounds_done, found.interrupted) == ("decided", 5, False)
    assert found.folder.parent == tmp_path / "indicators"
    run = run_folder.load_run(found.folder)
    assert run.record["config"]["rounds"] == [2, 4, 6]
    for table, rows in ((RUNS, 15), (OBSERVATIONS, 15), (EFFECTS, 2), (JUDGEMENTS, 1)):
        assert run.read_table(table).height == rows
    # One value alone has no spread, so its ratio is exactly one.
    assert found.compared.effects["ratio"].to_list() == [1.0, 1.0]
    # The answer counts verdicts without the control.
    figures = "1.000 [1.000, 1.000] times the baseline's speed, 5 rounds."
    assert session_report.format_answer(found) == f"two, Tiny: within 2 % of one in wall time, {figures}"


def test_such_a_session_is_taken_up_with_its_own_classes_only(tmp_path: Path) -> None:
    found = started(tmp_path)
    next(found.folder.glob("inspections/*/results/2/result")).unlink()
    with pytest.raises(ConfigError, match="classes of a notebook"):
        resume_session(found.folder)
    with pytest.raises(ConfigError, match="has changed since"):
        resume_session(found.folder, cases=[Case.from_parameters(scripted("print(1)"))])
    assert run_folder.load_run(found.folder).status == "failed"
    again = resume_session(found.folder, cases=[Case.from_parameters(Tiny)])
    assert run_folder.load_run(found.folder).read_table(RUNS).height == 15
    assert again.session.session_id == found.session.session_id
    write_session(found.folder, found.session.model_copy(update={"backend": "imported"}))
    with pytest.raises(ConfigError, match="not a session of this machine's runs"):
        resume_session(found.folder, cases=[Case.from_parameters(Tiny)])


def test_a_plan_that_cannot_be_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="twice"):
        started(tmp_path / "out", [Case.from_parameters(Tiny), Case.from_parameters(Tiny)])
    assert not (tmp_path / "out").exists()


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C, as the session sees it, in the run of this number."""
    usual, count = Launcher.run_command, iter(range(1000))

    def run(self: Launcher, command: Any) -> Any:
        # Not those that only find the conditions of an interpreter.
        if "PI_N" in command.environment and next(count) == after:
            signal.raise_signal(signal.SIGINT)
        return usual(self, command)

    monkeypatch.setattr(Launcher, "run_command", run)


@pytest.mark.usefixtures("usual_ctrl_c")
def test_an_interrupted_session_is_judged_as_far_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        # Before them, one run warms up.
        interrupted(patched, 5)
        found = started(tmp_path)
    assert found.interrupted
    assert run_folder.load_run(found.folder).status == "cancelled"
    # The run in which it came was let to its end.
    assert found.compared.judgement["runs"].to_list() == [5]
    assert "run --resume" in session_report.format_session(found)
    done = resume_session(found.folder, cases=[Case.from_parameters(Tiny)])
    assert (done.session.stop_reason, done.compared.judgement["runs"].to_list()) == ("decided", [15])
    assert run_folder.load_run(found.folder).status == "succeeded"


def test_a_session_without_a_single_run_is_invalid_and_no_error(tmp_path: Path) -> None:
    found = started(tmp_path)
    for path in found.folder.glob("inspections/*/results/*/result"):
        path.unlink()
    write_session(found.folder, found.session.model_copy(update={"rounds_done": 0}))
    from workbench.indicators.analysis import effects
    from workbench.indicators.analysis.observations import load_observations

    empty = SessionOutcome(found.folder, effects.compare_session(load_observations(found.folder)))
    assert not empty.compared.valid
    assert "0 runs" in session_report.format_session(empty)
    assert json.loads(json.dumps(session_report.build_session_document(empty)))["judgement"]["runs"] == 0


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual: Callable[..., Path] = archive.write_result
    count = iter(range(1000))

    def full(*arguments: Any) -> Path:
        if next(count) == 3:
            raise OSError(28, "No space left on device")
        return usual(*arguments)

    monkeypatch.setattr(archive, "write_result", full)
    with pytest.raises(RunFailedError, match="cannot write a result") as caught:
        started(tmp_path)
    assert "No space left" in str(caught.value)
    (folder,) = (tmp_path / "indicators").iterdir()
    assert run_folder.load_run(folder).status == "failed"
    monkeypatch.undo()
    assert resume_session(folder, cases=[Case.from_parameters(Tiny)]).compared.judgement["runs"].to_list() == [15]


def test_a_finished_session_goes_on_by_more_rounds_and_keeps_its_error_rate(tmp_path: Path) -> None:
    found, cases = started(tmp_path), [Case.from_parameters(Tiny)]
    more = resume_session(found.folder, cases=cases, more=2)
    assert (more.session.rounds_done, more.session.method, more.session.level) == (7, "sequence", 0.95)
    assert more.compared.effects["n"].to_list() == [7, 7]
    assert resume_session(found.folder, cases=cases, rounds=8).session.rounds_done == 8
    with pytest.raises(ConfigError, match="no number of further rounds"):
        resume_session(found.folder, cases=cases, rounds=8)


def test_a_session_that_planned_its_looks_becomes_a_sequence_when_it_goes_on() -> None:
    old = session(looks=(10, 20, 30)).model_copy(update={"rounds_done": 30})
    assert old.level == pytest.approx(1 - 0.05 / 3)
    new = sessions.extend_session(old, more=10)
    assert (new.method, new.looks, new.level) == ("sequence", (31, 40), 0.95)
    assert "extended to 40 rounds" in new.notes[-1]
    assert sessions.extend_session(old, rounds=50, decided=True).looks == (50,)
    for wrong in ({"rounds": 30}, {"more": 5000}, {"rounds": 40, "more": 3}):
        with pytest.raises(ConfigError):
            sessions.extend_session(old, **wrong)


def test_two_processes_do_not_measure_one_session(tmp_path: Path) -> None:
    found = started(tmp_path)
    record = (found.folder / "run.json").read_bytes()
    with lock_session(found.folder), pytest.raises(ConfigError, match="another process is measuring this session"):
        resume_session(found.folder, cases=[Case.from_parameters(Tiny)])
    # It is the other one's to say how it ends.
    assert (found.folder / "run.json").read_bytes() == record
    assert resume_session(found.folder, cases=[Case.from_parameters(Tiny)]).session.stop_reason == "decided"
