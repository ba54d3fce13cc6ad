"""How far a sweep is: figures of the running step, on a terminal and in a log."""

from __future__ import annotations

import pytest

from tests.sizing.making import row_of
from workbench.console.terminal import ChangingStatusLine, StatusLines
from workbench.sizing.load.client_messages import RequestRow, StepLoad
from workbench.sizing.load.load_step import StepResult
from workbench.sizing.load.sweep_report import (
    BREAKING_OFF,
    TERMINAL_STOPPING,
    SweepProgress,
    format_live_figures,
    format_load,
    list_point_notes,
)
from workbench.sizing.tables import POINTS

LOAD = StepLoad(step=3, loop="closed", seed=0, users=8)


def held(*outcomes: str) -> StepResult:
    found = StepResult(LOAD, "2026-01-01T00:00:00", in_flight=8, duration_s=2.0)
    for number, outcome in enumerate(outcomes):
        times = (0, 0.1 * number, 0.1 * number, 0.1 * number + 0.5)
        found.requests.append(RequestRow(*times, outcome, None, 0, None, None, None, None, None, None, False))
    return found


def test_figures_are_median_p95_rate_and_failures() -> None:
    assert format_live_figures(held(*["ok"] * 18, "timeout", "cut")) == "20 ended, p50 0.5 s, p95 0.5 s, 10/s, 2 failed"


@pytest.mark.parametrize("outcomes", [(), ("ok",), ("cut",), ("cut", "cut")])
def test_a_step_that_has_hardly_begun_has_figures_too(outcomes: tuple[str, ...]) -> None:
    assert format_live_figures(held(*outcomes)).startswith(f"{len(outcomes)} ended")


def test_a_load_is_told_in_its_own_unit() -> None:
    assert format_load(LOAD) == "8 users"
    assert format_load(StepLoad(step=0, loop="closed", seed=0, users=1)) == "1 user"
    assert format_load(StepLoad(step=0, loop="open", seed=0, rate_per_s=2.5, arrivals="poisson")) == "2.5/s poisson"


@pytest.mark.parametrize("kind", [StatusLines, ChangingStatusLine])
def test_steps_and_stops_are_told_on_stderr_alone(kind: type[StatusLines], capsys: pytest.CaptureFixture[str]) -> None:
    with kind() as status:
        told = SweepProgress(status)
        told.on_step_start(LOAD)
        told.on_progress(held("ok", "ok"))
        told.on_step_end(held("ok", "ok", "ok"))
        told.on_stop_request(1)
        told.on_stop_request(2)
    said = capsys.readouterr()
    assert said.out == ""
    assert "step 3, 8 users: 3 ended, p50 0.5 s, p95 0.5 s, 10/s, 0 failed, 2.0 s (time)" in said.err
    assert TERMINAL_STOPPING in said.err
    assert BREAKING_OFF in said.err


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([None, 0.0, 0.05], None),
        ([0.0, 0.5], "2 users: 50 % of the answers ended at their limit of tokens"),
        ([0.1, 0.9, 0.04], "2 users: 90 % of the answers ended at their limit of tokens"),
    ],
)
def test_answers_that_are_cut_are_told_once(shares: list[float | None], told: str | None) -> None:
    rows = [
        row_of(POINTS, step=place, load=place + 1.0, load_unit="users", repeated_prompts=0.0, length_share=share)
        for place, share in enumerate(shares)
    ]
    notes = list_point_notes(POINTS.frame(rows))
    assert len(notes) == (told is not None)
    assert all(note.startswith(str(told)) for note in notes)
    assert [", and more than 5 % at 2 levels" in note for note in notes] == ([len(shares) == 3] if told else [])
