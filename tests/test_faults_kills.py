"""`workbench run` killed at any moment: nothing half-written is read as whole, and no process is left."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.cli import app
from workbench.core.locks import find_holder
from workbench.runs import catalogue, run_folder

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "tests" / "fakes" / "notebooks" / "writes_and_spawns.ipynb"
# Long enough for any machine: only what hangs comes to it.
GUARD_S = 120.0
KILLS, STOPS = 20, 4
SEED = 20261122
pytestmark = pytest.mark.notebook


class Zygote:
    """Runs of `workbench run`, one after the other, in processes that have imported everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.fakes.zygote"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, out: Path) -> int:
        """Begin a run; gives its process id."""
        assert self._process.stdin is not None
        order = {"arguments": ["run", str(NOTEBOOK), "--out", str(out)], "log": str(self.folder / "log.txt")}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def ended_within(self, seconds: float) -> bool:
        """Has the run ended by then?"""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return bool(ready)

    def exit_code(self) -> int:
        """Wait for the run's end."""
        assert self.ended_within(GUARD_S), "the run does not end"
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    served = Zygote(tmp_path_factory.mktemp("zygote"))
    yield served
    served.close()


class Moment:
    """A moment of a run, drawn at random: something is there, and a little more time has passed."""

    STAGES = (
        "process",
        "run.json",
        "cell 0",
        "cell 2",
        "cell 4",
        "cell 5",
        "sums.parquet",
        "report.ipynb",
        "report.html",
    )

    def __init__(self, drawn: random.Random) -> None:
        self.stage = drawn.choice(self.STAGES)
        self.later_s = drawn.uniform(0.0, 0.3)

    def come(self, out: Path) -> bool:
        """Is it there?"""
        if self.stage == "process":
            return True
        kind, _, number = self.stage.partition(" ")
        if kind != "cell":
            return any(out.rglob(self.stage))
        for path in out.rglob("progress.json"):
            try:
                return bool(json.loads(path.read_text())["cell"] >= int(number))
            except FileNotFoundError:
                return False
        return False

    def wait(self, zygote: Zygote, out: Path) -> bool:
        """Wait for it; false when the run has ended before."""
        end = time.monotonic() + GUARD_S
        while not self.come(out):
            assert time.monotonic() < end, f"no {self.stage}"
            if zygote.ended_within(0.002):
                return False
        return not zygote.ended_within(self.later_s)


def belongs_to(process: psutil.Process, out: Path) -> bool:
    try:
        below = str(process.environ().get(run_folder.RUN_DIR_VARIABLE, "")).startswith(str(out))
        return below and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def nobody_is_left(out: Path) -> bool:
    return not [process for process in psutil.process_iter() if belongs_to(process, out)]


def check_whole(out: Path) -> list[Any]:
    """Every file that goes by a real name is whole; a run that succeeded has its report."""
    import nbformat
    import polars as pl

    found = catalogue.list_runs(out, unreadable=lambda error: pytest.fail(str(error)))
    for path in out.rglob("*.parquet"):
        if not path.name.startswith("."):
            assert pl.read_parquet(path).height > 0
    for path in (*out.rglob("run.json"), *out.rglob("progress.json")):
        json.loads(path.read_text())
    for path in out.rglob("report.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))
    for path in out.rglob("report.html"):
        assert path.read_text().rstrip().endswith("</html>")
    for run in found:
        folder = Path(run.place)
        assert run.state != "running"
        assert find_holder(folder) is None
        if run.state == "succeeded":
            assert (folder / "report.html").is_file()
            assert (folder / "report.ipynb").is_file()
        for name in run.list_table_names():
            assert run.read_table(name).height > 0
    return found


def test_a_run_that_nobody_disturbs_is_whole(zygote: Zygote, tmp_path: Path) -> None:
    zygote.start(tmp_path)
    assert zygote.exit_code() == 0, (zygote.folder / "log.txt").read_text()
    (run,) = check_whole(tmp_path)
    assert (run.state, run.record["answer"]) == ("succeeded", "The last table has 2000 rows.")
    assert nobody_is_left(tmp_path)


def test_a_run_killed_at_any_moment_leaves_nothing_half_and_nobody_behind(
    zygote: Zygote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random.Random(SEED)
    codes, states = [], []
    for number in range(KILLS):
        out = tmp_path / f"out{number}"
        process = zygote.start(out)
        if Moment(drawn).wait(zygote, out):
            os.kill(process, signal.SIGKILL)
        codes.append(zygote.exit_code())
        until(lambda out=out: nobody_is_left(out), "a process is left behind")  # type: ignore[misc]
        states += [run.state for run in check_whole(out)]
    assert set(codes) <= {-signal.SIGKILL, 0}
    assert codes.count(-signal.SIGKILL) >= KILLS // 2
    assert set(states) <= {"died", "succeeded"}
    assert "died" in states
    with pytest.raises(SystemExit) as ended:
        app.main(["runs", "list", "--out", str(tmp_path)])
    assert not ended.value.code
    assert len(capsys.readouterr().out.splitlines()) == len(states)


def test_a_run_that_is_asked_to_end_at_any_moment_ends_as_asked_and_leaves_nobody_behind(
    zygote: Zygote, tmp_path: Path
) -> None:
    drawn = random.Random(SEED + 1)
    for number in range(STOPS):
        out = tmp_path / f"out{number}"
        process = zygote.start(out)
        if Moment(drawn).wait(zygote, out):
            os.kill(process, signal.SIGTERM)
        code = zygote.exit_code()
        until(lambda out=out: nobody_is_left(out), "a process is left behind")  # type: ignore[misc]
        states = {run.state for run in check_whole(out)}
        # Before it listens to signals, and when all is done, it ends by the signal itself.
        assert code in (130, -signal.SIGTERM, 0)
        assert states <= {"cancelled", "succeeded"}
        assert code == 130 or states != {"cancelled"}
        assert code != 0 or states == {"succeeded"}
