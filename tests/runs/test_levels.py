"""Changes of level of a notebook's own figures: told where they are shown, with what else changed there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.runs.test_history import keep, read
from workbench.runs import history, history_page, run_folder
from workbench.runs.questions import RunQuestions

STEP = [1.0] * 8 + [1.5] * 8


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)


def follow(folder: Path, levels: Sequence[float], *, bad: Sequence[int] = (), ends: bool = True) -> history.RunHistory:
    """The history of runs, one a day, whose setting `top` changes with the ninth."""
    draw = np.random.default_rng(1)
    for place, level in enumerate(levels):
        value = level * float(np.exp(draw.normal(0, 0.01)))
        limits = (0.98 * value, 1.02 * value) if ends else (None, None)
        status = "failed" if place in bad else "succeeded"
        keep(folder, place + 1, [("Sort", value, *limits)], top=5 if place < 8 else 7, status=status)
    return read(folder)


@pytest.mark.parametrize("ends", [True, False])
def test_a_step_is_told_with_its_run_and_what_changed_there(tmp_path: Path, ends: bool) -> None:
    found = follow(tmp_path, STEP, ends=ends)
    (figure,) = found.levels.figures
    (change,) = figure.changes
    assert (figure.name, change.shape, change.verdict, change.first, change.last) == (
        "factors.factor Sort", "step", "HIGHER", 8, 8)  # fmt: skip
    assert change.change.low < 1.5 < change.change.high
    assert [fact[:2] for fact in change.facts] == [("setting", "top")]
    assert "1 of 2 figures changed their level" in found.answer
    lines = history_page.format_levels(found)
    assert f"since {found.runs[8].run_id}, and was 1 before (1.5 (" in lines[1]
    assert lines[2].strip() == "there: setting top: 5 -> 7"
    told = RunQuestions(tmp_path).show_history("speedup")["levels"]["figures"]
    assert [one["changes"][0]["first_run"] for one in told] == [found.runs[8].run_id]


def test_a_drift_is_told_as_one(tmp_path: Path) -> None:
    (figure,) = follow(tmp_path, np.linspace(1, 2, 24).tolist()).levels.figures
    assert [(change.shape, change.first, change.last) for change in figure.changes] == [("drift", 0, 23)]


def test_a_bad_last_run_is_an_outlier_and_one_inside_is_nothing(tmp_path: Path) -> None:
    found = follow(tmp_path / "last", [1.0] * 15 + [1.5])
    assert [(change.shape, change.first) for one in found.levels.figures for change in one.changes] == [("outlier", 15)]
    assert "an outlier, until 4 runs show a level" in history_page.format_levels(found)[1]
    assert "1 of 2 figures are far from their level in the last run" in found.answer
    inside = follow(tmp_path / "inside", [1.0] * 8 + [1.5] + [1.0] * 7)
    assert inside.levels.figures == ()
    assert history_page.format_levels(inside) == ["No change of level is shown (2 figures in 12 valid runs or more)."]


def test_runs_that_are_not_valid_have_no_levels_and_fewer_than_twelve_are_not_searched(tmp_path: Path) -> None:
    levels = [9.0 if place in (3, 9, 12) else 1.0 for place in range(16)]
    found = follow(tmp_path / "bad", levels, bad=(3, 9, 12))
    assert (found.levels.n_searched, found.levels.figures) == (2, ())
    short = follow(tmp_path / "short", STEP, bad=(0, 1, 2, 13, 14))
    assert short.levels.n_searched == 0
    assert "level" not in history_page.format_history(short).casefold()


def test_noise_alone_is_no_change(tmp_path: Path) -> None:
    assert follow(tmp_path, [1.0] * 20).levels.figures == ()
