"""The shipped TPC-DS pair: facts instead of logs, recorded beside other work, and told so."""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from tests.conftest import SAMPLES
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.comparison import pair
from workbench.speedup.recording.recording_plan import load_recording
from workbench.speedup.summary import list_pair_key_numbers

PAIR = SAMPLES / "speedup" / "tpcds-sf0.05"
N_QUERIES, N_SESSIONS, N_PASSES = 24, 2, 3


@lru_cache(maxsize=1)
def recorded() -> tuple[pair.Pair, CalibrationResult]:
    found = pair.load_recorded_pair(PAIR)
    return found, calibrate_pair(found.measured, found.baseline, found.candidate)


def test_the_pair_is_whole_and_small_and_has_no_logs() -> None:
    recording = load_recording(PAIR)
    assert recording.labels == ["spark", "comet"]
    assert (recording.suite.name, recording.n_passes, recording.data.scale) == ("tpcds", N_PASSES, 0.05)
    assert recording.read_executions().height == 2 * N_SESSIONS * N_PASSES * N_QUERIES
    assert set(recording.read_executions()["status"]) == {"ok"}
    files = [path for path in PAIR.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert not [path for path in files if path.suffix in (".zstd", ".inprogress")]


def test_every_query_counts_and_both_sides_read_the_same_data() -> None:
    found, calibrated = recorded()
    assert not found.reasons
    assert len(calibrated.queries) == N_QUERIES
    assert (calibrated.model.n_baseline_sessions, calibrated.model.n_candidate_sessions) == (N_SESSIONS, N_SESSIONS)
    assert {found.baseline, found.candidate} == {"spark", "comet"}


def test_the_load_beside_the_recording_stands_in_its_report() -> None:
    found, calibrated = recorded()
    row = found.comparability.row(by_predicate=pl.col("property") == "other load", named=True)
    assert row["severity"] == "warning"
    assert row["baseline"].endswith("%")
    names = {number[0]: number[1] for number in list_pair_key_numbers(calibrated, None)}
    assert names["noise of a query's ratio"] > 5, "percent: the machine was shared"
