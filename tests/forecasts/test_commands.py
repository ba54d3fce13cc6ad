"""`workbench forecast`: what is kept, told and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.introspection import Said, call_command
from tests.forecasts.conftest import DAY, format_line, make_forecast, make_outcome, write_run
from tests.forecasts.test_matching import measure, predict
from workbench.forecasts import tables
from workbench.forecasts.ledger import LEDGER_FILE, read_ledger
from workbench.report.gallery import write_gallery
from workbench.runs import load_run

BY_HAND = ["--area", "speedup", "--subject", "application etl", "--quantity", "time on the candidate", "--unit", "s"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs: made (two forecasts), seen (their outcomes), noisy (invalid)."""
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path))
    write_run(tmp_path / "speedup" / "made", "speedup", {tables.INPUT_PREDICTIONS: [predict("q1"), predict("q2")]})
    write_run(
        tmp_path / "speedup" / "seen", "speedup", {tables.INPUT_PAIRS: [measure("q1"), measure("q2", 9.0)]}, day=2
    )
    prediction = {tables.INPUT_PREDICTIONS: [predict("q1")]}
    write_run(tmp_path / "speedup" / "noisy", "speedup", prediction, verdict="invalid")
    return tmp_path


def call(*words: str, code: int = 0) -> Said:
    said = call_command(["forecast", *words])
    assert said.code == code, said.err
    return said


def call_json(*words: str, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(call(*words, "--json", code=code).out)
    return document


def test_forecasts_of_a_run_are_kept_beside_the_runs_matched_and_scored(place: Path) -> None:
    assert "2 forecast(s) kept in" in call("add", "made").out
    content = (place / LEDGER_FILE).read_bytes()
    assert "0 forecast(s) kept" in call("add", "made").out
    assert call_json("add", "made")["n_known"] == 2
    assert (place / LEDGER_FILE).read_bytes() == content
    call("score", code=1)
    assert "2 matched, 2 no forecast" in call("match", "seen").out
    assert call_json("match", "seen")["counts"] == {"unchanged": 2, "no forecast": 2}
    assert len(read_ledger(place / LEDGER_FILE).outcomes) == 2
    document = call_json("score")
    assert document["answer"].startswith("2 of 2 forecasts have an outcome that counts: 1 of 2 intervals held, 50 % [")
    assert [row["covered"] for row in document["forecasts"]].count(True) == 1
    # Nothing says when the pair was recorded.
    assert document["scores"][0]["n_retrospective"] == 2
    assert "0 of 0" in call("score", "--in-time", code=1).out


def test_a_forecast_and_its_outcome_are_kept_by_hand(place: Path) -> None:
    added = call_json("add", *BY_HAND, "--value", "310", "--low", "280", "--high", "350", "--note", "from a colleague")
    (forecast,) = added["added"]
    assert (forecast["level"], forecast["run_id"], forecast["note"]) == (0.9, None, "from a colleague")
    assert forecast["id"] in call("score", "--open", code=1).out
    assert "came: 305 s" in call("match", "--forecast", forecast["id"][:6], "--value", "305").out
    said = call("match", "--forecast", forecast["id"], "--value", "306", code=2)
    assert "the forecast has an outcome" in said.err
    call("match", "--forecast", forecast["id"], "--failed", "out of memory", "--again")
    document = call_json("score", code=1)
    assert (document["scores"][-1]["n_failed"], document["forecasts"][0]["failure"]) == (1, "out of memory")
    assert len(read_ledger(place / LEDGER_FILE).outcomes) == 2


WRONG = {
    "neither run nor options": (["add"], "found: neither"),
    "both": (["add", "made", "--value", "1"], "found: both: --value"),
    "half by hand": (["add", *BY_HAND], "no --value"),
    "ends exchanged": (["add", *BY_HAND, "--value", "1", "--low", "2", "--high", "1"], "above the upper end"),
    "a level of 90": (["add", *BY_HAND, "--value", "1", "--level", "90"], "where: --level"),
    "no number": (["add", *BY_HAND, "--value", "nan"], "where: --value"),
    "an infinite value": (["add", *BY_HAND, "--value", "inf"], "where: --value"),
    "a negative value": (["add", *BY_HAND, "--value", "-1"], "allowed: greater than or equal to 0"),
    "a negative end": (["add", *BY_HAND, "--value", "1", "--low", "-1"], "where: --low"),
    "an infinite end": (["add", *BY_HAND, "--value", "1", "--high", "inf"], "where: --high"),
    "a value below its interval": (
        ["add", *BY_HAND, "--value", "1", "--low", "2", "--high", "3"],
        "found: the value 1 is below its lower end 2",
    ),
    "a value above its interval": (["add", *BY_HAND, "--value", "4", "--high", "3"], "above its upper end 3"),
    "a level of nothing": (["add", *BY_HAND, "--value", "1", "--level", "0.8"], "a level without an interval"),
    "runs for a value by hand": (["add", *BY_HAND, "--value", "1", "--out", "x"], "only used with a run"),
    "an invalid run by hand": (["add", *BY_HAND, "--value", "1", "--accept-invalid"], "where: --accept-invalid"),
    "a negative outcome": (["match", "--forecast", "a", "--value", "-1"], "allowed: greater than or equal to 0"),
    "an outcome that is no number": (["match", "--forecast", "a", "--value", "nan"], "where: --value"),
    "an outcome beyond its interval": (["match", "--forecast", "a", "--value", "3", "--low", "4"], "lower end 4"),
    "an interval of a failure": (["match", "--forecast", "a", "--failed", "x", "--low", "4"], "a failure has no"),
    "a run for an outcome by hand": (["match", "--forecast", "a", "--value", "1", "--made-by", "x"], "with a run"),
    "forecasts of no run": (["match", "seen", "--made-by", "fly"], "no forecast of this run is kept"),
    "text that steers": (["add", *BY_HAND, "--value", "1", "--note", "\x1b[2J"], "where: --note"),
    "an area that is none": (["add", "--area", "a b", *BY_HAND[2:], "--value", "1"], "where: --area"),
    "an invalid run": (["add", "noisy"], "found: it is invalid: it was noisy"),
    "no such run": (["add", "fly"], "no run matches"),
    "no forecasts": (["add", "seen"], "no table with forecasts in the run"),
    "a run at a URL": (["add", "memory://fly/run"], "not a run folder"),
    "no outcome": (["match", "--forecast", "0000", "--value", "1"], "not one forecast"),
    "nothing to match": (["match"], "found: neither"),
    "a value of nothing": (["match", "--value", "1"], "no --forecast"),
    "neither value nor failure": (["match", "--forecast", "a"], "either a value or a failure"),
    "no time": (["match", "seen", "--measured-at", "noon"], "not a time"),
    "measured after the run": (["match", "seen", "--measured-at", "0min"], "measured after the run"),
    "measured in the future": (
        ["match", "--forecast", "a", "--value", "1", "--measured-at", "2999-01-01"],
        "in the future",
    ),
    "another unit": (["match", "--forecast", "a", "--value", "1", "--unit", "min"], "another unit"),
    "no outcomes in the run": (["match", "made"], "no table with outcomes in the run"),
    "no ledger": (["score", "--ledger", "fly.jsonl"], "cannot read the ledger"),
    "no ledger to match": (["match", "seen", "--ledger", "fly.jsonl"], "cannot read the ledger"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=list(WRONG))
def test_wrong_use_ends_with_2_says_what_and_loses_nothing(place: Path, words: list[str], message: str) -> None:
    path = place / LEDGER_FILE
    path.write_text(format_line(make_forecast(10 << 44)))  # the id begins with a
    before = path.read_bytes()
    said = call(*words, code=2)
    assert message in said.err
    assert path.read_bytes() == before
    assert not Path("fly.jsonl").exists()


def test_an_outcome_that_two_forecasts_wait_for_is_told_and_not_written(place: Path) -> None:
    write_run(place / "speedup" / "revised", "speedup", {tables.INPUT_PREDICTIONS: [predict("q1")]})
    call("add", "made")
    call("add", "revised")
    said = call("match", "seen", "--wide")
    assert said.out.splitlines()[0].startswith("2 ambiguous, 1 matched, 2 no forecast: run seen, ")
    assert said.out.count("2 forecasts wait for it: --made-by RUN, or --forecast ID") == 2
    document = call_json("match", "seen")
    assert document["counts"] == {"no forecast": 2, "ambiguous": 2, "unchanged": 1}
    assert len(read_ledger(place / LEDGER_FILE).outcomes) == 1
    assert call_json("match", "seen", "--made-by", "revised")["counts"] == {"no forecast": 3, "matched": 1}


def test_an_invalid_run_is_accepted_on_demand_and_said(place: Path) -> None:
    (forecast,) = call_json("add", "noisy", "--accept-invalid", "--retrospective")["added"]
    assert (forecast["note"], forecast["retrospective"]) == ("it is invalid: it was noisy", True)


def test_a_cut_line_is_told(place: Path) -> None:
    path = place / LEDGER_FILE
    path.write_text(format_line(make_forecast(1)) + format_line(make_outcome(1))[:50])
    assert "was cut (50 bytes) and is left out" in call("score", code=1).err
    assert "was cut (50 bytes) and was removed" in call("add", "made").err
    assert call("score", code=1).err == ""


def test_scores_are_written_as_a_run_folder(place: Path) -> None:
    (place / LEDGER_FILE).write_text(format_line(make_forecast(1)) + format_line(make_outcome(1)))
    call("score", "--out", str(place / "scored"))
    run = load_run(place / "scored")
    assert (run.area, run.verdict, run.read_table(tables.FORECASTS).height) == ("forecasts", "valid", 1)
    assert run.read_table(tables.FORECAST_SCORES)["n_covered"].to_list() == [1, 1]
    assert run.record["inputs"][0]["sha256"]


def test_the_gallery_has_a_table_of_scores_beside_a_ledger(place: Path) -> None:
    def read_page() -> str:
        return Path(write_gallery(place)).read_text()

    assert "Do the forecasts hold?" not in read_page()
    (place / LEDGER_FILE).write_text("")
    assert "Do the forecasts hold?" not in read_page()
    spiked = make_forecast(2, area="sizing", kept_at=DAY, note="<script>")
    lines = [make_forecast(1), make_outcome(1), spiked]
    (place / LEDGER_FILE).write_text("".join(map(format_line, lines)))
    page = read_page()
    assert "Do the forecasts hold?" in page
    assert "1 of 2 forecasts have an outcome that counts" in page
    (place / LEDGER_FILE).write_text("{nothing\n")
    page = read_page()
    assert "Do the forecasts hold?" not in page
    assert "not JSON: the ledger of forecasts" in page
