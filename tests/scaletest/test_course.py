"""A test that goes on is followed from its files, and a dashboard shows it without any front end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scale_runs import Plan, tables
from workbench import runs
from workbench.scaletest import records
from workbench.scaletest.course import MOST_POINTS, Course
from workbench.scaletest.live import Dashboard
from workbench.scaletest.records import Acked, Begun, Failed, Seen, Stopped
from workbench.scaletest.tables import SCHEDULE
from workbench.scaletest.times import NS, now_ns

RUN = "st-00000001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = runs.start("scaletest", folder=tmp_path / "run")
    SCHEDULE.write(tables(Plan([0.0, 1.0, 2.0]))["schedule"], run.folder / "tables")
    return run.folder


def add(folder: Path, name: str, *lines: Any) -> None:
    with (folder / name).open("ab") as file:
        for one in lines:
            file.write(records.line(one))


def pod(uid: str, transition: str, at_ns: int) -> Seen:
    return Seen("pod", transition, uid, uid, "n", at_ns)


def test_a_course_reads_what_is_new(folder: Path) -> None:
    course = Course(folder)
    assert course.look().is_empty()
    begun = now_ns() - 5 * NS
    add(folder, records.JOURNAL, Begun(RUN, begun, begun), Acked(0, begun, begun, 201), Failed(1, begun, begun, "no"))
    add(folder, records.OBSERVED, pod("a", "created", begun), pod("b", "created", begun))
    first = course.look().row(-1, named=True)
    assert [first[name] for name in ("accepted", "refused", "made", "scheduled")] == [1, 1, 2, 0]
    assert first["p50_s"] is None
    add(folder, records.OBSERVED, pod("a", "scheduled", begun + 3 * NS), pod("a", "running", begun + 4 * NS))
    second = course.look().row(-1, named=True)
    assert [second[name] for name in ("scheduled", "running", "p50_s")] == [1, 1, 3.0]
    assert (course.planned, course.stopped, course.ended) == (3, None, False)


def test_half_a_line_is_read_when_it_is_whole(folder: Path) -> None:
    course, begun = Course(folder), now_ns()
    add(folder, records.JOURNAL, Begun(RUN, begun, begun))
    text = records.line(Acked(0, begun, begun, 201))
    with (folder / records.JOURNAL).open("ab") as file:
        file.write(text[:10])
        file.flush()
        assert course.look()["accepted"].to_list() == [0]
        file.write(text[10:])
    assert course.look()["accepted"].to_list() == [0, 1]


def test_a_long_course_keeps_its_last_moment(folder: Path) -> None:
    course, begun = Course(folder), now_ns()
    add(folder, records.JOURNAL, Begun(RUN, begun, begun))
    for _ in range(MOST_POINTS + 10):
        course.look()
    add(folder, records.JOURNAL, Acked(0, begun, begun, 201))
    table = course.look()
    assert table.height <= MOST_POINTS
    assert table["accepted"][-1] == 1


def test_the_dashboard_shows_figures_and_ends_with_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, chart: Any) -> None:
            shown.append(chart)

    monkeypatch.setattr("IPython.display.display", lambda *things, **more: Handle() if more else None)
    begun = now_ns()
    add(folder, records.JOURNAL, Begun(RUN, begun, begun), Acked(0, begun, begun, 201))
    board = Dashboard(folder, every_s=0.001)
    board.show()
    assert "<b>1</b> of 3 accepted" in board.figures.value
    assert "sending" in board.figures.value
    # Before the run is over, for it ends at once then.
    (follower,) = [one for one in threading.enumerate() if one.name == "scale test dashboard"]
    add(folder, records.JOURNAL, Stopped(begun, "finished <b>"))
    runs.load(folder).conclude("valid")
    follower.join(60)
    assert not follower.is_alive()
    assert "finished &lt;b&gt;" in board.figures.value
    assert shown


def test_a_dashboard_may_be_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.display.display", lambda *things, **more: None)
    board = Dashboard(folder)
    board.show()
    assert "Nothing was sent yet" in board.figures.value
    (follower,) = [one for one in threading.enumerate() if one.name == "scale test dashboard"]
    board.stop()
    follower.join(60)
    assert not follower.is_alive()
