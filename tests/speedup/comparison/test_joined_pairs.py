"""Recordings joined for one model: more queries, no fewer doubts, and nothing of a left-out query left in."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tests.fakes.planted import BASELINE, CANDIDATE, Design, planted
from workbench.core.errors import InputError
from workbench.speedup.calibration.factors import strip_recording
from workbench.speedup.calibration.pair_calibration import calibrate_pair, cross_validate
from workbench.speedup.comparison.pair import Pair, join_pairs
from workbench.speedup.tables import COMPARABILITY

CHECK = {"property": "cores", "baseline": "2", "candidate": "4", "severity": "warning", "why": "more cores are faster"}


def build_pair(seed: int, *, n_queries: int = 10) -> Pair:
    measured = planted(Design(n_queries=n_queries, n_sessions=3), seed=seed)
    sources = [{"label": BASELINE, "session": f"{BASELINE}-s1"}]
    return Pair(
        BASELINE, CANDIDATE, measured, COMPARABILITY.frame([CHECK]), ("spark", "comet"), sources, (("a",), ("b",))
    )


def test_a_recording_joined_with_its_copy_tells_what_it_tells_alone() -> None:
    one = build_pair(1)
    alone = calibrate_pair(one.measured, BASELINE, CANDIDATE)
    joined_pair = join_pairs({"first": one, "second": one})
    joined = calibrate_pair(joined_pair.measured, BASELINE, CANDIDATE)
    # Factors are drawn less to the engine-wide one: errors of booking are taken to be independent from query to query.
    for name, tolerance in (("measured_factor", 1e-6), ("factor", 0.02), ("factor_low", 0.05)):
        found, expected = (result.factors.sort("operator")[name].to_list() for result in (joined, alone))
        assert found == pytest.approx(expected, rel=tolerance)
    assert joined.overall.low == pytest.approx(alone.overall.low)
    # A copy of the left-out query would predict it too well.
    left_out = cross_validate(joined).validation.with_columns(pl.col("query").map_elements(strip_recording, pl.String))
    expected = cross_validate(alone).validation.select("predictor", "query", expected="predicted_s")
    beside = left_out.join(expected, on=["predictor", "query"])
    assert beside.height == 6 * len(alone.queries)
    for (predictor,), rows in beside.group_by("predictor"):
        tolerance = 1e-6 if predictor == "constant" else 0.02
        assert rows["predicted_s"].to_list() == pytest.approx(rows["expected"].to_list(), rel=tolerance)


def test_queries_sources_and_warnings_say_their_recording() -> None:
    joined = join_pairs({"first": build_pair(1), "second": build_pair(2)})
    result = calibrate_pair(joined.measured, BASELINE, CANDIDATE)
    assert len(result.queries) == 20
    assert {query.partition(" @ ")[2] for query in result.queries} == {"first", "second"}
    assert {source["recording"] for source in joined.sources} == {"first", "second"}
    assert joined.comparability["property"].to_list() == ["first: cores", "second: cores"]
    assert joined.logs == (("a", "a"), ("b", "b"))


def test_recordings_of_several_versions_are_warned_of() -> None:
    versions = [
        CHECK | {"property": "Spark version", "baseline": version, "candidate": version, "severity": "ok"}
        for version in ("3.5.9", "4.1.4")
    ]
    old, new = (replace(build_pair(1), comparability=COMPARABILITY.frame([version])) for version in versions)
    assert join_pairs({"old": old, "old too": old}).warnings == ()
    (warning,) = join_pairs({"old": old, "new": new}).warnings
    assert warning.startswith("Spark version: 3.5.9; 4.1.4 against 3.5.9; 4.1.4; recordings differ")


def test_one_recording_stays_as_it_is() -> None:
    one = build_pair(1)
    assert join_pairs({"only": one}) is one


@pytest.mark.parametrize("other", [{"engines": ("spark", "rapids")}, {"first_runs": True}])
def test_other_engines_and_first_runs_are_not_joined(other: dict[str, object]) -> None:
    with pytest.raises(InputError, match="cannot be joined"):
        join_pairs({"first": build_pair(1), "second": replace(build_pair(2), **other)})  # type: ignore[arg-type]
