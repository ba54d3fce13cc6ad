"""A test that goes on is followed from its files, and a dashboard shows it without any front end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scale_runs import Plan, tables
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.connection import NS_PER_S, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Acked, Begun, Failed, Seen, Stopped
from workbench.scaletest.tables import SCHEDULE
from workbench.scaletest.test_run.live_dashboard import MAX_POINTS, Course, Dashboard

RUN = "st-00000001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = run_folder.start_run("scaletest", folder=tmp_path / "run")
    SCHEDULE.write(tables(Plan([0.0, 1.0, 2.0]))["schedule"], run.folder / "tables")
    return run.folder


def add(folder: Path, name: str, *lines: Any) -> None:
    with (folder / name).open("ab") as file:
        for one in lines:
            file.write(run_records.encode_line(one))


def pod(uid: str, transition: str, at_ns: int) -> Seen:
    return Seen("pod", transition, uid, uid, "n", at_ns)


def test_a_course_reads_what_is_new(folder: Path) -> None:
    course = Course(folder)
    assert course.update().is_empty()
    begun = now_ns() - 5 * NS_PER_S
    ends = Acked(0, begun, begun, 201), Failed(1, begun, begun, "no")
    add(folder, run_records.JOURNAL, Begun(RUN, begun, begun), *ends)
    add(folder, run_records.OBSERVED, pod("a", "created", begun), pod("b", "created", begun))
    first = course.update().row(-1, named=True)
    assert [first[name] for name in ("accepted", "refused", "made", "scheduled")] == [1, 1, 2, 0]
    assert first["p50_s"] is None
    later = pod("a", "scheduled", begun + 3 * NS_PER_S), pod("a", "running", begun + 4 * NS_PER_S)
    add(folder, run_records.OBSERVED, *later)
    second = course.update().row(-1, named=True)
    assert [second[name] for name in ("scheduled", "running", "p50_s")] == [1, 1, 3.0]
    assert (course.planned, course.stopped, course.ended) == (3, None, False)


def test_half_a_line_is_read_when_it_is_whole(folder: Path) -> None:
    course, begun = Course(folder), now_ns()
    add(folder, run_records.JOURNAL, Begun(RUN, begun, begun))
    text = run_records.encode_line(Acked(0, begun, begun, 201))
    with (folder / run_records.JOURNAL).open("ab") as file:
        file.write(text[:10])
        file.flush()
        assert course.update()["accepted"].to_list() == [0]
        file.write(text[10:])
    assert course.update()["accepted"].to_list() == [0, 1]


def test_a_long_course_keeps_its_last_moment(folder: Path) -> None:
    course, begun = Course(folder), now_ns()
    add(folder, run_records.JOURNAL, Begun(RUN, begun, begun))
    for _ in range(MAX_POINTS + 10):
        course.update()
    add(folder, run_records.JOURNAL, Acked(0, begun, begun, 201))
    table = course.update()
    assert table.height <= MAX_POINTS
    assert table["accepted"][-1] == 1


def test_the_dashboard_shows_figures_and_ends_with_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, chart: Any) -> None:
            shown.append(chart)

    monkeypatch.setattr("IPython.display.display", lambda *things, **more: Handle() if more else None)
    begun = now_ns()
    add(folder, run_records.JOURNAL, Begun(RUN, begun, begun), Acked(0, begun, begun, 201))
    board = Dashboard(folder, every_s=0.001)
    board.show()
    assert "<b>1</b> of 3 accepted" in board.figures.value
    assert "sending" in board.figures.value
    # Before the run is over, for it ends at once then.
    (follower,) = [one for one in threading.enumerate() if one.name == "scale test dashboard"]
    add(folder, run_records.JOURNAL, Stopped(begun, "finished <b>"))
    run_folder.load_run(folder).conclude("valid")
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
