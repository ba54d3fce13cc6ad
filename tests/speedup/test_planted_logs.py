"""From the bytes of synthetic logs to the factors that were planted in them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.fakes import planted_logs
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.comparison import pair


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> pair.Pair:
    logs = planted_logs.write(tmp_path_factory.mktemp("synthetic"))
    return pair.load_pair_from_logs(logs["plain"], logs["fast"])


@pytest.fixture(scope="module")
def result(found: pair.Pair) -> CalibrationResult:
    return calibrate_pair(found.measured, found.baseline, found.candidate)


def test_first_passes_are_cold_and_do_not_count(found: pair.Pair) -> None:
    executions = found.measured.executions
    assert executions.height == 10 * planted_logs.N_PASSES * planted_logs.N_QUERIES
    assert executions["cold"].sum() == 10 * planted_logs.N_QUERIES
    assert executions.filter(pl.col("cold"))["why_not"].null_count() == 0


def test_every_execution_is_cut_into_what_was_planted(found: pair.Pair) -> None:
    key = ["label", "session", "sql_id"]
    terms = (
        found.measured.pieces.filter(pl.col("term").is_not_null()).group_by(*key, "term").agg(pl.col("wall_s").sum())
    )
    assert np.allclose(terms.filter(pl.col("term") == "idle")["wall_s"], planted_logs.IDLE_MS / 1e3)
    assert np.allclose(terms.filter(pl.col("term") == "task overhead")["wall_s"], planted_logs.OVERHEAD_MS / 1e3)
    shared = found.measured.pieces.filter(pl.col("basis") == "remainder", pl.col("label") == "spark")
    assert {tuple(sorted(names)) for names in shared["operators"]} == {("Exchange", "Filter", "HashAggregate")}


@pytest.mark.parametrize("operator", list(planted_logs.FACTORS))
def test_the_planted_factors_come_back(result: CalibrationResult, operator: str) -> None:
    row = result.factors.row(by_predicate=pl.col("operator") == operator, named=True)
    assert row["factor"] == pytest.approx(planted_logs.FACTORS[operator], rel=0.05)
    assert row["verdict"] == ("SLOWER" if planted_logs.FACTORS[operator] < 1 else "FASTER")
    assert row["quality"] == "good"


def test_idle_and_overhead_are_the_same_on_both_sides(result: CalibrationResult) -> None:
    fixed = result.factors.filter(pl.col("operator").is_in(["idle", "task overhead"]))
    assert fixed["measured_factor"].to_list() == pytest.approx([1.0, 1.0], rel=0.02)


def test_one_query_alone_cannot_tell_fused_operators_apart(found: pair.Pair) -> None:
    alone = calibrate_pair(found.measured, found.baseline, found.candidate, queries=["q3"])
    group = alone.factors.filter(pl.col("quality") == "not separable")
    assert group["operator"].to_list() == ["Exchange + Filter + HashAggregate"]
    assert "Filter" in group["note"][0]
