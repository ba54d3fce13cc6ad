"""Planted truth (synthetic): factors come back, intervals cover, nothing is claimed where nothing is."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import numpy as np
import polars as pl
import pytest

from tests.fakes.planted import BASELINE, CANDIDATE, POOR, RARE, RICH, SAME, Design, planted, shares, truth
from workbench.speedup.calibrated import Calibrated, calibrate

SEEDS = 200


@lru_cache(maxsize=4)
def _all(design_name: str) -> list[Calibrated]:
    design = {"rich": RICH, "poor": POOR, "same": SAME}[design_name]
    return [calibrate(planted(design, seed), BASELINE, CANDIDATE) for seed in range(SEEDS)]


def _logs(runs: list[Calibrated]) -> dict[str, np.ndarray]:
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for operator, factor in run.factors.select("operator", "factor").iter_rows():
            found[operator].append(float(np.log(factor)))
    return {name: np.array(values) for name, values in found.items()}


def _coverage(runs: list[Calibrated], design: Design) -> dict[str, float]:
    inside: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        for name, low, high in run.factors.select("operator", "factor_low", "factor_high").iter_rows():
            inside[name].append(low <= truth(design)[name] <= high)
    return {name: float(np.mean(hits)) for name, hits in inside.items()}


def test_the_rich_design_gives_every_operator_three_percent_of_the_time() -> None:
    measured = planted(RICH, 0)
    operators = shares(measured).filter(~pl.col("operator").is_in(["idle", "task overhead"]))
    assert operators["share"].min() >= 0.03  # type: ignore[operator]
    assert operators.height == 8


@pytest.mark.slow
def test_rich_factors_are_unbiased_and_the_slower_operator_is_found() -> None:
    logs = _logs(_all("rich"))
    bias = {name: float(values.mean() - np.log(truth(RICH)[name])) for name, values in logs.items()}
    assert max(map(abs, bias.values())) < 0.02, bias
    slower = np.exp(logs["SortMergeJoin"])
    assert 0.57 <= slower.mean() <= 0.63
    assert np.mean((slower >= 0.57) & (slower <= 0.63)) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("name", "design"), [("rich", RICH), ("poor", POOR)])
def test_intervals_cover_the_truth_as_often_as_they_say(name: str, design: Design) -> None:
    coverage = _coverage(_all(name), design)
    assert 0.85 <= np.mean(list(coverage.values())) <= 0.95, coverage


@pytest.mark.slow
def test_a_rare_operator_is_drawn_to_the_engine_wide_factor_and_called_weak() -> None:
    runs = _all("poor")
    overall = np.array([run.model.log_overall for run in runs])
    factor = _logs(runs)[RARE]
    planted_log = float(np.log(POOR.rare_factor))
    assert overall.mean() < factor.mean() < planted_log
    assert np.mean((factor > overall) & (factor < planted_log)) > 0.85
    qualities = {run.factors.filter(pl.col("operator") == RARE)["quality"][0] for run in runs}
    assert qualities == {"weak"}


@pytest.mark.slow
def test_the_same_on_both_sides_is_hardly_ever_told_apart() -> None:
    runs = _all("same")
    claims = [run.factors["verdict"].is_in(["FASTER", "SLOWER"]).any() for run in runs]
    assert np.mean(claims) <= 0.05
    overall = [run.verdict for run in runs]
    assert sum(verdict in ("FASTER", "SLOWER") for verdict in overall) <= 0.05 * SEEDS
