"""Planted truth (synthetic): factors come back, intervals cover, nothing is claimed where nothing is.

What 200 seeds of each design give is recorded in planted_factors.parquet, and judged from there. Whether the record is
what the code gives is tested on two seeds of each design, and on all of them in `make test-all`. To record anew:

    python -m tests.speedup.test_planted
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.fakes.planted import BASELINE, CANDIDATE, POOR, RARE, RICH, SAME, Design, planted, shares, truth
from workbench.speedup.calibration.pair_calibration import calibrate_pair

SEEDS = 200
FEW_SEEDS = (0, 137)
DESIGNS = {"rich": RICH, "poor": POOR, "same": SAME}
RECORD = Path(__file__).with_name("planted_factors.parquet")
COLUMNS = ["operator", "factor", "factor_low", "factor_high", "quality", "verdict", "log_overall", "overall_verdict"]


def _calibrate(name: str, seed: int) -> pl.DataFrame:
    """Factors of one drawn recording, with what holds for the whole of it in every row."""
    found = calibrate_pair(planted(DESIGNS[name], seed), BASELINE, CANDIDATE)
    overall = {"log_overall": pl.lit(float(found.model.log_overall)), "overall_verdict": pl.lit(found.verdict)}
    return found.factors.with_columns(**overall).select(COLUMNS)


@lru_cache(maxsize=4)
def _all(name: str) -> list[pl.DataFrame]:
    """What is recorded of a design, by seed."""
    rows = pl.read_parquet(RECORD).filter(pl.col("design") == name)
    return [rows.filter(pl.col("seed") == seed).select(COLUMNS) for seed in range(SEEDS)]


def _logs(runs: list[pl.DataFrame]) -> dict[str, np.ndarray]:
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for operator, factor in run.select("operator", "factor").iter_rows():
            found[operator].append(float(np.log(factor)))
    return {name: np.array(values) for name, values in found.items()}


def _coverage(runs: list[pl.DataFrame], design: Design) -> dict[str, float]:
    inside: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        for name, low, high in run.select("operator", "factor_low", "factor_high").iter_rows():
            inside[name].append(low <= truth(design)[name] <= high)
    return {name: float(np.mean(hits)) for name, hits in inside.items()}


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(
    "seeds", [FEW_SEEDS, pytest.param(range(SEEDS), marks=pytest.mark.slow)], ids=["two seeds", "all seeds"]
)
def test_the_record_is_what_the_code_gives(name: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        assert_frame_equal(_calibrate(name, seed), _all(name)[seed], check_dtypes=False, rel_tol=1e-6, abs_tol=1e-9)


def test_the_rich_design_gives_every_operator_three_percent_of_the_time() -> None:
    measured = planted(RICH, 0)
    operators = shares(measured).filter(~pl.col("operator").is_in(["idle", "task overhead"]))
    assert operators["share"].min() >= 0.03  # type: ignore[operator]
    assert operators.height == 8


def test_rich_factors_are_unbiased_and_the_slower_operator_is_found() -> None:
    logs = _logs(_all("rich"))
    bias = {name: float(values.mean() - np.log(truth(RICH)[name])) for name, values in logs.items()}
    assert max(map(abs, bias.values())) < 0.02, bias
    slower = np.exp(logs["SortMergeJoin"])
    assert 0.57 <= slower.mean() <= 0.63
    assert np.mean((slower >= 0.57) & (slower <= 0.63)) > 0.95


@pytest.mark.parametrize(("name", "design"), [("rich", RICH), ("poor", POOR)])
def test_intervals_cover_the_truth_as_often_as_they_say(name: str, design: Design) -> None:
    coverage = _coverage(_all(name), design)
    assert 0.85 <= np.mean(list(coverage.values())) <= 0.95, coverage


def test_a_rare_operator_is_drawn_to_the_engine_wide_factor_and_called_weak() -> None:
    runs = _all("poor")
    overall = np.array([run["log_overall"][0] for run in runs])
    factor = _logs(runs)[RARE]
    planted_log = float(np.log(POOR.rare_factor))
    assert overall.mean() < factor.mean() < planted_log
    assert np.mean((factor > overall) & (factor < planted_log)) > 0.85
    qualities = {run.filter(pl.col("operator") == RARE)["quality"][0] for run in runs}
    assert qualities == {"weak"}


def test_the_same_on_both_sides_is_hardly_ever_told_apart() -> None:
    runs = _all("same")
    claims = [run["verdict"].is_in(["FASTER", "SLOWER"]).any() for run in runs]
    assert np.mean(claims) <= 0.05
    overall = [run["overall_verdict"][0] for run in runs]
    assert sum(verdict in ("FASTER", "SLOWER") for verdict in overall) <= 0.05 * SEEDS


if __name__ == "__main__":
    parts = [
        _calibrate(name, seed).with_columns(design=pl.lit(name), seed=pl.lit(seed, dtype=pl.Int32))
        for name in DESIGNS
        for seed in range(SEEDS)
    ]
    pl.concat(parts).write_parquet(RECORD, compression="zstd", compression_level=19)
