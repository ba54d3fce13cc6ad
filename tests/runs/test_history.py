"""Runs of a notebook over time: figures in the order of the runs, verdicts of steps, what changed beside."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.fakes.kept_runs import Rows, kept
from workbench.cli.app import app
from workbench.core.errors import ConfigError
from workbench.runs import catalogue, history, history_page, run_folder


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)


def keep(folder: Path, day: int, rows: Rows, *, area: str = "speedup", status: str = "succeeded", top: int = 5) -> None:
    """A run that started on a day of November."""
    run = kept(folder, rows, area=area, config={"top": top})
    run.record["started_at"] = run.record["ended_at"] = f"2026-11-{day:02}T09:00:00.000+00:00"
    run.record["duration_s"] = 0.0
    run.record["status"] = status
    run.save()


def read(folder: Path, **options: object) -> history.RunHistory:
    return history.build_history(catalogue.list_runs(folder), **options)  # type: ignore[arg-type]


STEADY = ("Filter", 2.0, 1.998, 2.002)
BAD = "<script>bad()</script>"


def test_a_figure_that_jumps_once_is_told_apart_at_that_step_alone(tmp_path: Path) -> None:
    # Written out of order: the start of a run counts.
    for day in (3, 1, 4, 2):
        middle = 1.0 if day < 3 else 1.5
        keep(tmp_path, day, [STEADY, ("Sort", middle, 0.999 * middle, 1.001 * middle)])
    found = read(tmp_path)
    assert [run.began.day for run in found.runs] == [1, 2, 3, 4]
    first, second = found.figures
    assert (first.row, first.column, first.verdicts) == ("Sort", "factor", (None, "SAME", "HIGHER", "SAME"))
    assert (second.row, second.n_told_apart) == ("Filter", 0)
    assert [value.estimate for value in first.values if value] == [1.0, 1.0, 1.5, 1.5]
    assert found.answer.startswith("1 of 2 figures moved from one run to the next over 4 runs")


def test_runs_that_did_not_succeed_are_rows_without_figures(tmp_path: Path) -> None:
    for day, status in ((1, "succeeded"), (2, "failed"), (3, "succeeded")):
        keep(tmp_path, day, [STEADY], status=status)
    (figure,) = read(tmp_path).figures
    assert [value is None for value in figure.values] == [False, True, False]
    assert figure.verdicts == (None, None, "SAME")


def test_no_run_is_held_against_an_invalid_one(tmp_path: Path) -> None:
    for day, middle in ((1, 2.0), (2, 4.0), (3, 2.0)):
        keep(tmp_path, day, [("Filter", middle, 0.998 * middle, 1.002 * middle)])
    bad = next(run for run in catalogue.list_runs(tmp_path) if run.began.day == 2)
    record = json.loads((Path(bad.place) / "run.json").read_text())
    (Path(bad.place) / "run.json").write_text(json.dumps(record | {"verdict": "invalid", "reasons": ["noisy"]}))
    found = read(tmp_path)
    (figure,) = found.figures
    assert figure.verdicts == (None, None, "SAME")
    assert [value.estimate for value in figure.values if value] == [2.0, 4.0, 2.0]
    assert found.answer == "No figure moved from one run to the next: 1 over 3 runs."
    lines = history_page.format_history(found)
    assert "not compared: it is invalid: noisy" in lines
    assert "4 (3.99 to 4.01)  not compared: invalid" in lines
    assert history_page.build_history_document(found)["runs"][1]["reasons"] == ["noisy"]


def test_noise_is_seldom_told_apart(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    n_moved = 0
    for trial in range(10):
        for day in range(1, 9):
            rows = []
            for number in range(5):
                middle = math.exp(random.normal(0.5, 0.05))
                half = math.exp(1.645 * 0.05)
                rows.append((f"Operator{number}", middle, middle / half, middle * half))
            keep(tmp_path / str(trial), day, rows)
        n_moved += any(figure.n_told_apart for figure in read(tmp_path / str(trial)).figures)
    # Ten families, each wrong at most one time in ten.
    assert n_moved <= 3


def test_what_changed_beside_the_figures_stands_with_its_run(tmp_path: Path) -> None:
    for day, top in ((1, 5), (2, 5), (3, 7)):
        keep(tmp_path, day, [STEADY], top=top)
    assert [[fact[:2] for fact in facts] for facts in read(tmp_path).facts] == [[], [], [("setting", "top")]]
    lines = history_page.format_history(read(tmp_path))
    assert "setting top: 5 -> 7" in lines


def test_runs_of_two_areas_and_no_runs_are_refused(tmp_path: Path) -> None:
    keep(tmp_path, 1, [STEADY])
    keep(tmp_path, 2, [STEADY], area="sizing")
    with pytest.raises(ConfigError, match="different areas"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="no runs"):
        read(tmp_path / "none")


def test_the_command_writes_text_page_and_json(tmp_path: Path) -> None:
    for day in (1, 2):
        keep(tmp_path, day, [STEADY, (BAD, float(day), day * 0.98, day * 1.02)])
    page = tmp_path / "history.html"
    line = ["runs", "history", "speedup", "--out", str(tmp_path), "--html", str(page)]
    shown = CliRunner().invoke(app, line)
    assert shown.exit_code == 0, shown.output
    assert f"factors.factor {BAD}" in shown.output
    text = page.read_text()
    assert 'id="spec-1"' in text
    assert BAD not in text.replace("\\u003c", "<")
    document = json.loads(CliRunner().invoke(app, [*line, "--json"]).stdout)
    assert [figure["verdicts"] for figure in document["figures"]] == [[None, "HIGHER"], [None, "SAME"]]
    chosen = json.loads(CliRunner().invoke(app, [*line[:5], "--json", "--figure", "Filter"]).stdout)
    assert [figure["row"] for figure in chosen["figures"]] == ["Filter"]
    missing = CliRunner().invoke(app, ["runs", "history", "sizing", "--out", str(tmp_path)])
    assert isinstance(missing.exception, ConfigError)
    assert "speedup" in str(missing.exception)


def test_one_run_is_no_history(tmp_path: Path) -> None:
    keep(tmp_path, 1, [STEADY])
    assert read(tmp_path).answer == "One run found; a history needs at least two."


def test_the_terminal_tells_what_moved_and_counts_the_rest(tmp_path: Path) -> None:
    flat = [(f"Operator{number}", 1.0, 0.9, 1.1) for number in range(9)]
    for day in (1, 2, 3):
        keep(tmp_path, day, [*flat, ("Sort", 1.0 * day, 0.98 * day, 1.02 * day)])
    found = read(tmp_path)
    text = history_page.format_history(found)
    assert text.startswith(found.answer)
    assert len(found.answer) <= 90
    assert "Operator" not in text
    assert "9 of 10 figures did not move" in text
    assert text.index("factors.factor Sort") < text.index(f"\n{found.runs[0].run_id}  succeeded")
