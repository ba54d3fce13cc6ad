"""Live sliders move the what-if and its words; a live cell says how far a sweep is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from IPython.utils.capture import capture_output

from workbench import report
from workbench.charts import theme
from workbench.sizing.config import Goal
from workbench.sizing.estimation.capacity_fit import Level
from workbench.sizing.estimation.gpu_what_if import GpuWhatIfControls, WhatIf, estimate_capacities
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_step import StepResult
from workbench.sizing.load.sweep_report import (
    NOTEBOOK_STOPPING,
    CellLines,
    SweepProgress,
    SweepWatcher,
    notebook_watcher,
)

GOAL = Goal(limit_s=1.0)


def levels() -> list[Level]:
    """p95 is a tenth of a second a user, a little spread around it."""
    around = np.linspace(0.9, 1.0, 200)[:, None]
    return [Level(load, 0.1 * load * around) for load in (1.0, 2.0, 4.0, 8.0, 12.0, 16.0)]


def made() -> GpuWhatIfControls:
    known = levels()
    return GpuWhatIfControls(WhatIf(known, 1, GOAL, 40.0, "users", estimate_capacities({1: known}, GOAL, draws=100)))


def test_the_sliders_stand_at_the_question() -> None:
    controls = made()
    assert (controls.load.value, controls.limit.value) == (40.0, 1000)
    assert "40 users at runtime p95 ≤ 1 s: " in controls.sentence.value


def test_twice_the_users_need_twice_the_gpus() -> None:
    controls = made()
    before = controls.sentence.value
    controls.load.value = 80.0
    assert "80 users" in controls.sentence.value
    assert [text.split("(")[1].split(",")[0] for text in (before, controls.sentence.value)] == ["3.98", "7.96"]


def test_another_limit_is_calculated_anew() -> None:
    controls = made()
    controls.limit.value = 1500
    assert "≤ 1.5 s" in controls.sentence.value
    assert controls.what_if.capacity.value == pytest.approx(15.0, rel=0.02)


def test_a_limit_beyond_the_levels_or_below_them_has_no_number() -> None:
    controls = made()
    controls.what_if.set(limit_ms=9000)
    assert "no number. 1.592 s at the largest load of 16 is far below" in controls.what_if.answer
    controls.what_if.set(limit_ms=50)
    assert "no number. 0.0995 s at the lowest load of 1 exceeds the limit of 0.05 s" in controls.what_if.answer


def test_a_move_draws_the_shown_chart_again() -> None:
    theme.enable_theme()
    controls = made()
    with capture_output():
        controls.show()
    drawn: list[Any] = []
    controls._chart = type("Handle", (), {"update": lambda _, chart: drawn.append(chart.to_dict())})()
    controls.limit.value = 1200
    assert [param["value"] for param in drawn[0]["params"] if param["name"] == "limit_s"] == [1.2]


def test_headless_the_chart_has_sliders_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    theme.enable_theme()
    monkeypatch.setenv("WORKBENCH_RUN_DIR", "headless")
    what_if = made().what_if
    asked: list[bool] = []
    monkeypatch.setattr(what_if, "chart", lambda *, sliders=True: asked.append(sliders))
    with capture_output():
        what_if.show()
    assert asked == [True]


class Handle:
    """What a display gives."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def update(self, thing: Any) -> None:
        self.shown.append(thing)


def test_a_live_cell_keeps_a_line_for_each_step() -> None:
    handle = Handle()
    cell = SweepProgress(CellLines(handle), NOTEBOOK_STOPPING)
    for number in range(2):
        load = StepLoad(number, "closed", 0, users=2**number)
        cell.on_step_start(load)
        cell.on_progress(StepResult(load, ""))
        cell.on_step_end(StepResult(load, "", stopped="tight"))
    cell.on_stop_request(1)
    lines = handle.shown[-1].text.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 0, 1 user", "step 1, 2 users", "stopping"]
    assert "(tight)" in lines[0]


def test_in_a_batch_run_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_RUN_DIR", "headless")
    with notebook_watcher() as watcher:
        assert type(watcher) is SweepWatcher


def test_notes_from_outside_are_harmless() -> None:
    assert "<b>" not in report.bullets(["<b>x</b>"]).html
