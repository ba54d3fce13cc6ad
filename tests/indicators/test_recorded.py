"""What the recorded sessions show: versions of numpy whose differences have known causes, and copies that have none."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.indicators.copies import comparisons, false_share
from workbench.indicators.analysis.effects import Comparison, compare_session
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.store.archive import CONTROL
from workbench.indicators.tables import OBSERVATIONS, RUNS

NUMPY = SAMPLES / "indicators" / "numpy"
COPIES = SAMPLES / "indicators" / "copies"
SIN, EXP = "Ufunc[function=sin]", "Ufunc[function=exp]"


@pytest.fixture(scope="module")
def numpy() -> Comparison:
    return compare_session(load_observations(NUMPY))


def cell(found: Comparison, stack: str, metric: str) -> dict[str, object]:
    here = (pl.col("stack") == stack) & (pl.col("metric") == metric) & ~pl.col("control")
    return found.effects.filter(here).row(0, named=True)


def test_the_session_is_whole_and_valid(numpy: Comparison) -> None:
    session = numpy.observed.session
    assert numpy.valid
    assert session.arms[0].name == session.baseline == "numpy 2.2.6"
    assert session.arms[-1].name == CONTROL
    assert set(numpy.observed.runs["status"]) == {"ok"}
    assert set(numpy.observed.runs["network"]) == {"isolated"}
    assert numpy.observed.runs.height == 36 * session.rounds_done
    assert "avx512f" in session.hardware.cpu_flags


def test_sorting_got_faster_with_vector_instructions_and_the_fast_sine_went(numpy: Comparison) -> None:
    assert cell(numpy, "numpy 1.24.4", "Sort")["verdict"] == "SLOWER"
    assert cell(numpy, "numpy 1.26.4", "Sort")["verdict"] == "SLOWER"
    sine = cell(numpy, "numpy 1.24.4", SIN)
    assert sine["verdict"] == "FASTER"
    assert sine["ratio"] > 8
    assert cell(numpy, "numpy 1.26.4", SIN)["ratio"] == pytest.approx(1, abs=0.05)
    # None is faster or slower at multiplying matrices.
    verdicts = numpy.effects.filter(pl.col("metric") == "Matmul")["verdict"].to_list()
    assert len(verdicts) == 5
    assert not {"FASTER", "SLOWER"} & set(verdicts)


def test_the_fast_sine_is_left_out_for_its_error_and_the_sentence_says_so(numpy: Comparison) -> None:
    said = recommend(numpy, build_request(mix=f"{SIN}=0.8,matmul=0.2"))
    assert "numpy 1.24.4" not in said.table["stack"].to_list()
    row = said.excluded.filter(pl.col("stack") == "numpy 1.24.4").row(0, named=True)
    assert "error_ulp is 3.087 ULP, at most 1 ULP is allowed" in row["reason"]
    assert all((NUMPY / run).is_file() for run in row["runs"])
    messages = said.justifications["message"].to_list()
    assert any("numpy 1.24.4" in message and "3.087 ULP" in message for message in messages)
    # Every sentence leads to runs that are there.
    for runs in recommend(numpy, build_request()).justifications["runs"].to_list():
        assert runs
        assert all((NUMPY / run).is_file() for run in runs)


@pytest.mark.parametrize(("design", "low", "high"), [("rounds", 0, 0.05), ("blocks", 0.15, 1)])
def test_copies_in_rounds_are_not_told_apart_and_in_blocks_often(design: str, low: float, high: float) -> None:
    values = OBSERVATIONS.read(COPIES / design)
    assert comparisons(values).height == 108
    assert low <= false_share(values) <= high


def test_the_disturbance_was_there_in_both_designs() -> None:
    for design in ("rounds", "blocks"):
        runs, values = RUNS.read(COPIES / design), OBSERVATIONS.read(COPIES / design)
        placed = values.join(runs.select("inspection_id", "run", "position"), on=["inspection_id", "run"])
        late = pl.col("position") >= runs.height / 2
        held = placed.filter(pl.col("metric") == "Matmul")
        assert held.filter(late)["value"].median() > 1.02 * held.filter(~late)["value"].median()


def test_nothing_in_the_recordings_names_the_machine() -> None:
    texts = [path.read_text() for path in (SAMPLES / "indicators").rglob("*") if path.is_file() and not path.suffix]
    assert len(texts) > 300
    for text in [*texts, (NUMPY / "session.json").read_text()]:
        assert not [word for word in ("/root", "/home/", "/tmp", "/work", "http:", "https:") if word in text]
    assert json.loads(Path(NUMPY / "session.json").read_text())["hardware"]["cpu_model"]
