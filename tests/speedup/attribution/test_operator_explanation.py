"""Any figure can be traced: the parts behind it add up to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.cli import app
from workbench.core.errors import InputError
from workbench.speedup.attribution.operator_explanation import (
    Explained,
    explain_operator,
    read_sessions,
    read_single_log,
)
from workbench.speedup.attribution.time_pieces import concat_measured_logs, measure_log_times
from workbench.speedup.calibration.factors import arrange_paired_times, natural_sort_key
from workbench.speedup.calibration.pair_calibration import calibrate_pair
from workbench.speedup.calibration.time_split import build_piece_arrays, find_inseparable_columns, fit_session_prices

LOG = SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"
RECORDING = SAMPLES / "speedup" / "tpch-sf1"


@lru_cache(maxsize=1)
def source() -> Any:
    return read_sessions(str(LOG))


@lru_cache(maxsize=1)
def booked() -> Any:
    """What calibration books on each operator, by session, query and term."""
    _, measured = source()
    pieces = build_piece_arrays(measured)
    queries = sorted(set(pieces.keys["query"]), key=natural_sort_key)
    return arrange_paired_times(
        pieces, fit_session_prices(pieces, queries), "log", "log", queries, find_inseparable_columns(pieces)
    )


def explained(query: str, operator: str) -> Explained:
    sessions, measured = source()
    return explain_operator(sessions, measured, query, operator)


def test_parts_add_up_to_what_calibration_books_for_every_operator_of_some_queries() -> None:
    sides = booked()
    checked = 0
    for i, query in list(enumerate(sides.queries))[::7]:
        for j, term in enumerate(sides.terms):
            seconds = sides.baseline[0, i, j]
            if seconds > 0:
                found = explained(query, term)
                assert found.parts["part_s"].sum() == pytest.approx(seconds)
                assert found.sums["operator_s"].to_list() == pytest.approx([seconds])
                checked += 1
    assert checked > 20


def test_of_a_recording_parts_add_up_in_every_session_to_what_calibration_books() -> None:
    names = [(label, f"{label}-s{number}") for label in ("spark", "comet") for number in (1, 2)]
    sessions = [(label, name, read_single_log(str(RECORDING / "logs" / f"{name}.zstd"))) for label, name in names]
    measured = concat_measured_logs(measure_log_times(facts, label, name) for label, name, facts in sessions)
    found = calibrate_pair(measured, "spark", "comet")
    groups = found.model.groups
    sides = arrange_paired_times(
        found.pieces, fit_session_prices(found.pieces, found.queries), "spark", "comet", found.queries, groups
    )
    for query, operator in (("q13", "Filter"), ("q1", "HashAggregate"), ("q9", "BroadcastHashJoin")):
        i, j = sides.queries.index(query), sides.terms.index(operator)
        sums = explain_operator(sessions, measured, query, operator).sums
        for label, cube in (("spark", sides.baseline), ("comet", sides.candidate)):
            assert sums.filter(pl.col("label") == label)["operator_s"].to_list() == pytest.approx(
                cube[:, i, j].tolist()
            )


def test_a_row_says_how_its_part_came_about() -> None:
    found = explained(booked().queries[0], "HashAggregate")
    parts = found.parts
    product = parts["piece_s"] * parts["share"] * parts["run_weight"]
    assert np.allclose(product, parts["part_s"])
    assert parts.filter(pl.col("basis") == "remainder")["price_s"].null_count() < parts.height
    assert all("HashAggregate" in operators for operators in parts["operators"])


def test_metrics_are_those_of_the_operators_nodes() -> None:
    found = explained(booked().queries[0], "HashAggregate")
    assert found.metrics.height
    assert set(found.metrics["node"]) == {"HashAggregate"}
    assert "time in aggregation build" in found.metrics["metric"].to_list()
    assert set(found.metrics["node_id"]) == {node for nodes in found.parts["nodes"] for node in nodes}


def test_idle_time_is_explained_too() -> None:
    found = explained(booked().queries[0], "idle")
    assert found.parts["stage_id"].to_list() == [None]
    assert found.metrics.height == 0


@pytest.mark.parametrize(
    ("query", "operator", "words"),
    [("no such", "Filter", "no such query"), (None, "HashAggregat", "HashAggregate"), (None, "Nonsense", "operator")],
)
def test_what_is_not_there_is_refused_with_the_nearest_names(query: str | None, operator: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        explained(query or booked().queries[0], operator)


def test_the_command_prints_pieces_metrics_and_sums(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", "explain", booked().queries[0], "HashAggregate", "--log", str(LOG)])
    printed = capsys.readouterr().out
    assert not ended.value.code
    assert "HashAggregate took" in printed
    assert "Metrics of its nodes" in printed
