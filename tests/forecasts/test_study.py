"""The notebook on forecasts: an answer for every ledger, charts of what can be drawn, and checks."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.forecasts.conftest import format_line, make_forecast, make_outcome
from workbench.core.errors import BrokenInvariantError
from workbench.forecasts.charts import HELD, MISSED, OPEN_ENDED, chart_coverage, chart_outcomes
from workbench.forecasts.config import NotebookConfig
from workbench.forecasts.ledger import Entry
from workbench.forecasts.scores import Scores
from workbench.forecasts.study import Study, build_study
from workbench.runs import run_folder


def study(folder: Path, *entries: Entry) -> Study:
    ledger = folder / "ledger.jsonl"
    ledger.write_text("".join(map(format_line, entries)))
    return build_study(NotebookConfig(ledger=str(ledger)), run_folder.start_run("forecasts", folder / "out"))


def test_the_sample_has_an_answer_with_its_interval_and_its_conditions(tmp_path: Path) -> None:
    run = run_folder.start_run("forecasts", tmp_path)
    found = build_study(NotebookConfig(ledger=str(SAMPLES / "forecasts" / "ledger.jsonl")), run)
    assert found.answer == "44 of 47 intervals held: 94 %, 32 to 100 %; 90 % promised, not decided."
    assert run.list_conditions(found.conditions) == ["outcomes known before", "recorded sample"]
    assert [entry["name"] for entry in run.record["tables"]] == ["forecasts", "forecast_scores"]
    assert found.check()["holds"].all()


@pytest.mark.parametrize(
    ("entries", "verdict", "answer"),
    [
        ((), "invalid", "None of 0 forecasts has an outcome that counts."),
        ((make_forecast(1),), "invalid", "None of 1 forecasts has an outcome that counts."),
        (
            (make_forecast(1, low=None, high=None), make_outcome(1)),
            "valid",
            "1 of 1 forecasts have an outcome, none an interval.",
        ),
        ((make_forecast(1), make_outcome(1, 20.0)), "valid", "0 of 1 intervals held: 0 %, 0 to 93 %; 90 % promised, "),
    ],
)
def test_every_ledger_has_an_answer(tmp_path: Path, entries: tuple[Entry, ...], verdict: str, answer: str) -> None:
    found = study(tmp_path, *entries)
    assert found.verdict == verdict
    assert found.answer.startswith(answer)
    assert 3 <= len(found.key_numbers()) <= 5
    assert 1 <= len(found.next_steps()) <= 3
    assert found.check()["holds"].all()
    chart_outcomes(found.scored.forecasts)
    chart_coverage(found.scored.scores)


def test_the_chart_tells_held_from_missed_and_counts_what_it_cannot_draw(tmp_path: Path) -> None:
    forecasts = [make_forecast(1), make_forecast(2), make_forecast(3, low=None), make_forecast(4, 0.0, 0.0, 1.0)]
    outcomes = [make_outcome(1), make_outcome(2, 20.0), make_outcome(3), make_outcome(4, 0.5)]
    chart = chart_outcomes(study(tmp_path, *forecasts, *outcomes).scored.forecasts).to_dict()
    rows = [row for data in chart["datasets"].values() for row in data if "result" in row]
    assert {row["result"] for row in rows} == {HELD, MISSED, OPEN_ENDED}
    assert "1 not drawn" in str(chart["title"]["subtitle"])


def test_a_count_that_does_not_add_up_is_named(tmp_path: Path) -> None:
    found = study(tmp_path, make_forecast(1), make_outcome(1))
    wrong = Scores(found.scored.forecasts, found.scored.scores.with_columns(n_open=pl.lit(1)))
    with pytest.raises(BrokenInvariantError, match="forecasts in no state"):
        Study(wrong, 0).check()
