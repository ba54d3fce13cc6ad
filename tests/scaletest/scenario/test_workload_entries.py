"""Lifetimes: each distribution has the mean that it says, and its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workbench.scaletest.scenario.workload_entries import Lifetime, parse_quantity

READ: TypeAdapter[Any] = TypeAdapter(Lifetime)


def test_a_number_is_a_fixed_lifetime() -> None:
    assert READ.validate_python(30) == READ.validate_python({"distribution": "fixed", "s": 30})


@pytest.mark.parametrize(
    ("fields", "mean_s"),
    [
        ({"distribution": "fixed", "s": 12.5}, 12.5),
        ({"distribution": "uniform", "least_s": 10, "most_s": 30}, 20),
        ({"distribution": "exponential", "mean_s": 40}, 40),
        ({"distribution": "lognormal", "median_s": 20, "sigma": 0.5}, 20 * np.exp(0.125)),
    ],
)
def test_what_is_drawn_has_the_mean_of_its_distribution(fields: dict[str, Any], mean_s: float) -> None:
    found = READ.validate_python(fields)
    drawn = found.draw_lifetimes(50_000, np.random.default_rng(7))
    assert found.mean_s == pytest.approx(mean_s)
    assert drawn.mean() == pytest.approx(mean_s, rel=0.02)
    assert (drawn > 0).all()


def test_the_median_of_a_lognormal_lifetime_is_the_given_one() -> None:
    drawn = READ.validate_python({"distribution": "lognormal", "median_s": 20, "sigma": 2}).draw_lifetimes(
        50_000, np.random.default_rng(7)
    )
    assert np.median(drawn) == pytest.approx(20, rel=0.05)


def test_the_longest_are_cut() -> None:
    found = READ.validate_python({"distribution": "exponential", "mean_s": 40, "most_s": 50})
    assert found.draw_lifetimes(1000, np.random.default_rng(7)).max() == 50


@pytest.mark.parametrize(
    "fields",
    [
        0,
        -1,
        True,
        "soon",
        {"distribution": "fixed"},
        {"distribution": "uniform", "least_s": 5, "most_s": 1},
        {"distribution": "exponential", "mean_s": 1e9},
        {"distribution": "lognormal", "median_s": 5, "sigma": 99},
        {"distribution": "pareto", "a": 1},
        {"distribution": "fixed", "s": 1, "more": 2},
    ],
)
def test_a_lifetime_that_cannot_be_is_refused(fields: object) -> None:
    with pytest.raises(ValidationError):
        READ.validate_python(fields)


@pytest.mark.parametrize(
    ("text", "value"),
    [("64", 64), ("512Gi", 512 * 2**30), ("500m", 0.5), ("100k", 1e5), ("1.5", 1.5), ("2e3", 2000), ("250n", 2.5e-7)],
)
def test_quantities_are_numbers_in_their_base_unit(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "lots", "1GB", "1 Gi", "--1", "1e999", "nan", "0x10", True, None])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)
