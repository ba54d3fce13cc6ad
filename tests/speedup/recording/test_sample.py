"""The shipped pair is whole, small, tells nothing about its machine, and its answers are TPC-H's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import SAMPLES
from workbench.spark.engines import COMET
from workbench.speedup.recording import benchmark_data
from workbench.speedup.recording.answers import Answer, AnswerStore
from workbench.speedup.recording.query_suite import Suite
from workbench.speedup.recording.recording_plan import load_recording

PAIR = SAMPLES / "speedup" / "tpch-sf1"
# Rows, and the beginning of the first one, of the answers that the benchmark publishes for scale factor 1.
PUBLISHED: dict[str, tuple[int, list[Any]]] = {
    "q1": (4, ["A", "F", "37734107.00", "56586554400.73"]),
    "q2": (100, ["9938.53", "Supplier#000005359"]),
    "q3": (10, [2456423, "406181.0111", "1995-03-05"]),
    "q4": (5, ["1-URGENT", 10594]),
    "q5": (5, ["INDONESIA", "55502041.1697"]),
    "q6": (1, ["123141078.2283"]),
    "q7": (4, ["FRANCE", "GERMANY", 1995, "54639732.7336"]),
    "q8": (2, [1995, "0.034436"]),
    "q9": (175, ["ALGERIA", 1998, "27136900.1803"]),
    "q10": (20, [57040, "Customer#000057040", "734235.2455"]),
    "q11": (1048, [129760, "17538456.86"]),
    "q12": (2, ["MAIL", 6202, 9324]),
    "q13": (42, [0, 50005]),
    "q14": (1, ["16.380779"]),
    "q15": (1, [8449, "Supplier#000008449"]),
    "q16": (18314, ["Brand#41", "MEDIUM BRUSHED TIN", 3, 28]),
    "q17": (1, ["348406.054286"]),
    "q18": (57, ["Customer#000128120", 128120, 4722021, "1994-04-07", "544089.09"]),
    "q19": (1, ["3083843.0578"]),
    "q20": (186, ["Supplier#000000020"]),
    "q21": (100, ["Supplier#000002829", 20]),
    "q22": (7, ["13", 888, "6737713.99"]),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    store = AnswerStore(PAIR / "answers")
    return {query: store.load_answer(digest) for query, digest in store.read_session_index("spark-s1").items()}


def test_the_pair_is_whole_and_every_query_counts() -> None:
    recording = load_recording(PAIR)
    assert recording.labels == ["spark", "comet"]
    assert len(list(recording.iterate_logs())) == 10
    assert (recording.n_passes, recording.data.scale, recording.excluded) == (3, 1.0, {})
    assert recording.read_executions().height == 10 * 3 * 22
    assert set(recording.read_executions()["status"]) == {"ok"}
    assert recording.find_side("comet").jar_sha256 == COMET["3.5"].sha256


def test_the_pair_is_small_and_scrubbed() -> None:
    recording = load_recording(PAIR)
    assert sum(path.stat().st_size for path in PAIR.rglob("*")) < 6_000_000
    assert recording.scrubbed
    assert [text for one in recording.sessions for text in one.warnings if "tells about this machine" in text] == []


def test_its_queries_are_those_of_today() -> None:
    assert load_recording(PAIR).suite.sha256 == Suite("tpch", benchmark_data.build_tpch_queries(1)).sha256


@pytest.mark.parametrize("query", PUBLISHED)
def test_an_answer_is_the_published_one(query: str, answers: dict[str, Answer]) -> None:
    n_rows, first = PUBLISHED[query]
    assert len(answers[query].rows) == n_rows
    assert answers[query].rows[0][: len(first)] == first
