"""Rounded times: intervals cover the ratio before rounding, and a clock in ticks never says 'the same'."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indicators.analysis.test_dimension_effects import matrix
from tests.indicators.worlds import of_values, result, session
from workbench.indicators.analysis.effects import compare_session, estimate_dimension_effects
from workbench.indicators.analysis.observations import build_observations
from workbench.indicators.analysis.rounded_values import find_step, measure_rounding
from workbench.indicators.store.archive import inspection_id


def compare(base_ms: float, other_ms: float, step_ms: float, noise: float, seed: int = 0) -> dict[str, object]:
    """The effect of an arm by times that were rounded to a step."""
    plan, rng = session(method="sequence"), np.random.default_rng(seed)
    found = []
    for number in range(20):
        for arm in plan.arms:
            true_ms = (other_ms if arm.name == "other" else base_ms) * (1 + rng.normal(0, noise))
            made = result(plan, arm.name, "Sort", number, round(true_ms / step_ms) * step_ms)
            found.append((inspection_id(plan.session_id, arm.name, "Sort"), number, made))
    effects = compare_session(build_observations(plan, found)).effects
    return next(row for row in effects.iter_rows(named=True) if row["arm"] == "other")


def test_a_difference_smaller_than_a_step_is_not_no_difference() -> None:
    row = compare(3.6, 4.4, 1.0, 0.001)
    assert (row["ratio"], row["verdict"]) == (1.0, "UNDECIDED")
    assert str(row["undecided_because"]).startswith("rounded values may hide 31 %")
    assert float(str(row["low"])) < 3.6 / 4.4
    fine = compare(3.6, 4.4, 0.001, 0.001)
    assert fine["verdict"] == "SLOWER"


@pytest.mark.parametrize("noise", [0.001, 0.03, 0.2])
def test_intervals_cover_the_ratio_before_rounding(noise: float) -> None:
    rng, covered = np.random.default_rng(1), []
    for seed in range(100):
        base, other = rng.uniform(3, 20, 2)
        row = compare(base, other, 1.0, noise, seed)
        covered.append(float(str(row["low"])) <= base / other <= float(str(row["high"])))
    assert np.mean(covered) >= 0.95


def compare_levels(step_ms: float, seed: int, *, noise: float = 0.001) -> tuple[dict[str, object], float]:
    """The effect of a matrix's level by times that were rounded to a step, and its true ratio."""
    plan, rng = matrix({"python": ("3.11", "3.12"), "numpy": ("1", "2")}), np.random.default_rng(seed)
    base_ms, python, numpy = rng.uniform(3, 20), *np.exp(rng.normal(0, 0.3, 2))
    values = {}
    for arm in plan.arms:
        faster = (python if arm.factors["python"] == "3.12" else 1) * (numpy if arm.factors["numpy"] == "2" else 1)
        times = base_ms / faster * (1 + rng.normal(0, noise, 20))
        values[arm.name, "Sort"] = [float(value) for value in np.maximum(np.round(times / step_ms), 1) * step_ms]
    found = estimate_dimension_effects(of_values(plan, values))
    return found.filter(found["dimension"] == "python").row(0, named=True), float(python)


def test_effects_of_levels_allow_for_rounding() -> None:
    rows = [compare_levels(1.0, seed) for seed in range(100)]
    assert np.mean([float(str(row["low"])) <= truth <= float(str(row["high"])) for row, truth in rows]) >= 0.95
    assert not any(row["verdict"] == "SAME" for row, _ in rows)
    reasons = [str(row["undecided_because"]) for row, _ in rows if row["verdict"] == "UNDECIDED"]
    assert reasons
    assert all(reason.startswith("rounded values may hide") for reason in reasons)
    assert all(row["is_additive"] is not False for row, _ in rows)
    fine = [compare_levels(1e-4, seed)[0] for seed in range(20)]
    assert sum(row["verdict"] in ("FASTER", "SLOWER") for row in fine) >= 18


def test_a_clear_difference_is_still_told() -> None:
    assert compare(4.0, 9.0, 1.0, 0.001)["verdict"] == "SLOWER"


def test_extreme_values_and_those_below_the_step_of_others_are_measured() -> None:
    assert find_step([]) == 1.0
    assert measure_rounding([[1e300, 3e300], [5e-324]], "ms") < 1e-9
    # A side whose values are smaller than what the others were rounded to.
    assert measure_rounding([[4.0], [0.3]], "ms", 1.0) == pytest.approx(-np.log1p(-0.125) - np.log1p(-0.5))
