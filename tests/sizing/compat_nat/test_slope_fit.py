"""The calculator's formulas by hand, at their limits, and by properties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import InputError
from workbench.sizing.compat_nat.calc_file import GpuEstimates
from workbench.sizing.compat_nat.calculation import FitRules, Line, fit_line, gpus_by_slope, rough_gpus

DOCUMENTED = ([1, 2, 4, 8, 16, 32], [4.03488, 4.71197, 5.67581, 7.90895, 12.677, 24.5307])


def line_of(*given: Any) -> Line:
    line = fit_line(*given).line
    assert line is not None
    return line


def rough_at(llm_s: float, runtime_s: float) -> GpuEstimates:
    """Of 100 users on 8 GPUs with targets of 3 and 10 s, by what was measured at 4."""
    target = {"target_llm_s": 3, "target_runtime_s": 10, "users": 100, "test_gpus": 8}
    return rough_gpus(4, llm_latency_s=llm_s, wf_runtime_s=runtime_s, **target)


def test_the_documented_table_gives_the_toolkits_line_and_gpus() -> None:
    line = line_of(*DOCUMENTED)
    assert math.isclose(line.slope, 0.6568376759061832, rel_tol=1e-12)
    assert math.isclose(line.intercept, 3.026422736318409, rel_tol=1e-12)
    estimate = gpus_by_slope(line, target_s=10, users=100, test_gpus=8)
    assert estimate.gpus is not None
    assert math.isclose(estimate.gpus, 75.35159084873075, rel_tol=1e-12)


def test_an_exact_line_is_found_and_explains_everything() -> None:
    line = line_of([1, 2, 4], [3.5, 4.0, 5.0])
    assert line == Line(0.5, 3.0, 1.0)
    assert line.at(10) == 8.0


def test_one_outlier_among_five_is_left_out_and_among_four_is_not() -> None:
    assert line_of([1, 2, 4, 8, 16], [3.5, 4.0, 5.0, 7.0, 55.0]).outliers_removed == (16,)
    four = fit_line([1, 2, 4, 8], [3.5, 12.0, 5.0, 7.0])
    assert four.line is None
    assert four.reason == "p95 does not follow a line over the load: R² = 0.000, at least 0.7 needed"


def test_the_top_of_a_geometric_ladder_is_called_an_outlier_as_the_toolkit_does() -> None:
    levels = [2**power for power in range(8)]
    line = line_of(levels, [1.0 + 0.5 * level for level in levels])
    assert line.outliers_removed[0] == 128


def test_a_bend_is_accepted_as_a_line_as_the_toolkit_does() -> None:
    levels = list(range(1, 33))
    line = line_of(levels, [3.0 + max(0, level - 16) for level in levels])
    assert 0.7 < line.r_squared < 0.9


def test_outliers_stay_when_the_rules_say_so() -> None:
    assert line_of([1, 2, 4, 8, 16], [3.5, 4.0, 5.0, 7.0, 55.0], FitRules(remove_outliers=False)).outliers_removed == ()


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        ([], "a line needs at least 2 usable levels, there are none"),
        ([4], "a line needs at least 2 usable levels, there is 1"),
    ],
)
def test_too_few_points_are_no_line(levels: list[int], reason: str) -> None:
    assert fit_line(levels, [5.0 for _ in levels]).reason == reason


def test_outliers_that_leave_one_point_are_no_line() -> None:
    fit = fit_line([1, 2, 3, 4, 5], [1.0, 1.0, 1.0, 1.0, 9.0])
    assert fit.line is None
    assert "R² = 0.000" in str(fit.reason)


def test_values_too_large_for_a_sum_of_squares_are_no_line() -> None:
    assert fit_line([1, 2, 3], [1e200, 2e200, 3e200]).reason == "p95 values too large to fit a line"


def test_levels_whose_squares_do_not_fit_an_integer_are_still_fitted() -> None:
    levels = [10**9, 2 * 10**9, 4 * 10**9, 5 * 10**9]
    line = line_of(levels, [1.0 + 1e-9 * level for level in levels])
    assert math.isclose(line.slope, 1e-9, rel_tol=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="no line can be fitted"):
        fit_line([1, 2], [1.0, value])


def test_loads_and_values_must_be_pairs() -> None:
    with pytest.raises(InputError, match="not pairs"):
        fit_line([1, 2], [1.0])


@pytest.mark.parametrize("target_s", [3.0, 2.9])
def test_a_target_that_no_load_meets_gives_a_reason(target_s: float) -> None:
    estimate = gpus_by_slope(Line(0.5, 3.0, 1.0), target_s=target_s, users=100, test_gpus=8)
    assert (estimate.gpus, estimate.refused) == (None, True)
    assert "not above the 3 s that the line has without load" in str(estimate.reason)


@pytest.mark.parametrize("slope", [-0.5, 0.0])
def test_a_line_that_does_not_rise_gives_a_reason(slope: float) -> None:
    estimate = gpus_by_slope(Line(slope, 3.0, 1.0), target_s=10, users=100, test_gpus=8)
    assert (estimate.gpus, estimate.refused) == (None, True)
    assert "does not rise with the load" in str(estimate.reason)


def test_rough_gpus_are_in_proportion() -> None:
    assert rough_at(1.5, 5) == GpuEstimates(gpu_estimate_by_llm_latency=100.0, gpu_estimate_by_wf_runtime=100.0)


def test_one_metric_over_its_target_takes_both_rough_estimates() -> None:
    assert rough_at(3.1, 5) == GpuEstimates()


@given(
    slope=st.floats(0.01, 10),
    intercept=st.floats(0, 100),
    factor=st.floats(0.01, 100),
    levels=st.lists(st.integers(1, 500), min_size=2, max_size=4, unique=True),
)
def test_all_times_scaled_alike_leave_the_gpus_alone(
    slope: float, intercept: float, factor: float, levels: list[int]
) -> None:
    values = [intercept + slope * level for level in levels]
    one, other = line_of(levels, values), line_of(levels, [factor * value for value in values])
    target = intercept + slope * 20
    first = gpus_by_slope(one, target_s=target, users=100, test_gpus=8).gpus
    second = gpus_by_slope(other, target_s=factor * target, users=100, test_gpus=8).gpus
    assert first is not None
    assert second is not None
    assert math.isclose(first, second, rel_tol=1e-5)


@given(st.permutations(list(range(9))))
def test_the_order_of_the_levels_moves_nothing_but_the_last_digits(order: list[int]) -> None:
    levels = [3 * number + 1 for number in range(9)]
    noise = np.random.default_rng(4).normal(0, 0.3, 9)
    values = [2.0 + 0.4 * level + extra for level, extra in zip(levels, noise, strict=True)]
    one = line_of(levels, values)
    other = line_of([levels[n] for n in order], [values[n] for n in order])
    assert math.isclose(one.slope, other.slope, rel_tol=1e-9)
    assert sorted(one.outliers_removed) == sorted(other.outliers_removed)


def test_four_levels_keep_a_point_that_five_would_lose() -> None:
    """Beyond Q3 + 2 IQR (28), yet R² is 0.9: the line stands, and the point in it."""
    assert line_of([1, 2, 4, 8], [1.0, 2.0, 4.0, 30.0]).outliers_removed == ()


@pytest.mark.parametrize(
    ("values", "removed"),
    [
        # Residuals between 1.5 and 2 IQR outside the quartiles.
        ([2.7, 3.1, 3.6, 3.8, 4.5, 5.2, 5.9, 5.6, 7.0, 7.4, 7.7], (8,)),
        # Quartiles of other ranks would leave this one in.
        ([2.5, 3.0, 3.3, 3.6, 4.9, 5.1, 5.4, 5.9, 6.3, 6.1, 7.5], (10,)),
    ],
)
def test_residuals_outside_one_and_a_half_interquartile_ranges_are_outliers(
    values: list[float], removed: tuple[int, ...]
) -> None:
    assert line_of(range(1, 12), values).outliers_removed == removed


def test_what_just_meets_a_threshold_is_good_enough() -> None:
    assert fit_line([1, 2, 4], [3.5, 4.0, 5.0], FitRules(min_r_squared=1.0)).line is not None
    assert rough_at(3, 10) == GpuEstimates(gpu_estimate_by_llm_latency=200.0, gpu_estimate_by_wf_runtime=200.0)
