"""No fit meets a constant, a zero, a missing or an infinite value in silence: it is finite, or says why not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sizing import making
from workbench import stats
from workbench.core.errors import InputError, InvalidResultError
from workbench.indicators.recommendation.ratio_estimates import Scores, fit_additive_model
from workbench.sizing.compat_nat.calculation import fit_line
from workbench.sizing.config import Goal
from workbench.sizing.estimation.gpu_estimates import GpuCapacity, fit_scaling_laws
from workbench.sizing.estimation.point_verdicts import PointLimits
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.speedup.calibration.factors import PairedTimes, fit_factors

ODD = [0.0, 1e-12, 0.2, 0.2, 1.0, 1e6, math.inf]
TABLES = st.lists(st.lists(st.sampled_from(ODD), min_size=1, max_size=40), min_size=0, max_size=5)
WHOLE = st.lists(st.lists(st.sampled_from([v for v in ODD if 0 < v < math.inf]), min_size=1, max_size=6), max_size=5)
Table = list[list[float]]


@contextmanager
def quiet() -> Iterator[None]:
    """Numerical warnings are errors: they reach the user's terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


KINDS: dict[float | None, dict[str, object]] = {None: {"ttft_s": None}, math.inf: {"outcome": "timeout"}}


@settings(max_examples=80, deadline=None)
@example(rows=[[0.0] * 60] * 4)
@example(rows=[[0.2] * 60] * 4)
@example(rows=[[math.inf] * 60] * 2)
@example(rows=[[None] * 60] * 3)
@example(rows=[[0.0] * 60, [1.0] * 60])
@given(rows=st.lists(st.lists(st.sampled_from([None, *ODD]), min_size=1, max_size=60), min_size=1, max_size=5))
def test_an_answer_is_finite_or_says_why_there_is_none(rows: list[list[float | None]]) -> None:
    tables = [
        making.requests(
            [
                {"ttft_s": value, "sent_s": float(at)} | KINDS.get(value, {"runtime_s": value})
                for at, value in enumerate(row)
            ],
            step,
        )
        for step, row in enumerate(rows)
    ]
    steps = making.steps(*({"users": 2**step} for step in range(len(rows))))
    goals = [Goal.read("p95<=0.5"), Goal.read("ttft p50<=500ms")]
    with quiet():
        found = compute_answer(pl.concat(tables), steps, goals, 100, limits=PointLimits(), draws=30)
    for row in found.estimates.iter_rows(named=True):
        if row["gpus"] is None:
            assert row["reason"]
        else:
            assert 0 < row["gpus"] < math.inf
            # A quantile of zero is no measurement of a latency.
            assert any(value and value < math.inf for values in rows for value in values)


@settings(max_examples=100, deadline=None)
@given(rows=TABLES)
def test_a_line_is_finite_or_says_why_there_is_none(rows: Table) -> None:
    p95_s = [row[0] for row in rows]
    with quiet():
        try:
            fit = fit_line([2**place for place in range(len(rows))], p95_s)
        except InputError:
            assert not np.isfinite(p95_s).all()
            return
    assert fit.reason if fit.line is None else math.isfinite(fit.line.slope + fit.line.intercept)


@settings(max_examples=100, deadline=None)
@given(rows=WHOLE)
def test_a_limit_by_isotonic_regression_is_finite_or_says_why(rows: Table) -> None:
    loads = [float(place) for place, row in enumerate(rows) for _ in row]
    with quiet():
        found = stats.isotonic_inversion(loads, [value for row in rows for value in row], 0.5, draws=50)
    assert found.reason if found.estimate is None else math.isfinite(found.estimate)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.sampled_from([1e-9, 1.0, 1.0, 8.0, 1e9]), min_size=2, max_size=5))
def test_scaling_laws_give_a_count_or_say_why(values: list[float]) -> None:
    measured = [GpuCapacity(2**place, value, value, value) for place, value in enumerate(values)]
    with quiet():
        laws = fit_scaling_laws("p95", measured, 30, draws=20)
    for row in laws.iter_rows(named=True):
        assert row["reason"] if row["gpus"] is None else row["gpus"] >= 1


SIDES: dict[str, Callable[[int], np.ndarray]] = {
    "equal": lambda n: np.ones((2, n, 2)),
    "one term only": lambda n: np.ones((2, n, 2)) * [1.0, 0.0],
    "one session": lambda n: np.ones((1, n, 2)),
    "a session without a query": lambda n: np.where(np.arange(2 * n * 2).reshape(2, n, 2) < 2, np.nan, 1.0),
}


@pytest.mark.parametrize("n", [1, 2, 12])
@pytest.mark.parametrize("base", SIDES)
@pytest.mark.parametrize("cand", SIDES)
def test_factors_are_finite_or_refused(base: str, cand: str, n: int) -> None:
    names = tuple(f"q{place}" for place in range(n))
    both = PairedTimes(names, ("filter", "join"), SIDES[base](n), SIDES[cand](n), np.ones((n, 2)))
    with quiet():
        try:
            found = fit_factors(both)
        except (InputError, InvalidResultError):
            return
    for predictor in (found.by_plan, found.by_log):
        assert np.isfinite(found.predict(np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 3)), predictor)).all()


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, 1e6]), min_size=0, max_size=3), max_size=4))
def test_an_additive_model_is_finite_or_refused(rows: Table) -> None:
    packages = [{"numpy": str(place % 2), "scipy": str(place)} for place in range(3)]
    table = [(stack, number, value) for number, row in enumerate(rows) for stack, value in enumerate(row)]
    with quiet():
        try:
            found = fit_additive_model(packages, Scores.from_rows(table))
        except (InputError, InvalidResultError):
            assert all(len(row) < 2 for row in rows)
            return
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.covariance).all()
