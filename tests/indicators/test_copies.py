"""Copies held against each other: what failed is missing and counted, and too few rounds are refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.indicators.copies import comparisons, false_share

Runs = list[tuple[str, int]]
ALL: Runs = [(arm, number) for arm in "abc" for number in range(20)]


def world(failed: Runs) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Values and runs of three copies; `c` is no copy, it takes twice as long."""
    noise = np.random.default_rng(1).normal(0, 0.001, len(ALL))
    there = [
        {"arm": arm, "round": number, "metric": "Sort", "value": (2 if arm == "c" else 1) * (1 + float(more))}
        for (arm, number), more in zip(ALL, noise, strict=True)
        if (arm, number) not in failed
    ]
    return pl.DataFrame(there), pl.DataFrame(ALL, schema=["arm", "round"], orient="row")


def test_every_pair_and_window_is_compared() -> None:
    values, runs = world([])
    found = comparisons(values, runs=runs)
    assert found.select("one", "other", "begin").rows() == [
        (one, other, begin) for begin in (0, 10) for one, other in ("ab", "ac", "bc")
    ]
    assert [verdict == "SAME" for verdict in found["verdict"]] == [True, False, False] * 2
    assert false_share(values) == pytest.approx(2 / 3)


def test_a_window_with_a_failed_run_is_missing_for_its_pairs() -> None:
    values, runs = world([("a", 3)])
    for found in (comparisons(values), comparisons(values, runs=runs)):
        missing = found.filter(pl.col("verdict").is_null())
        assert missing.select("one", "other", "begin").rows() == [("a", "b", 0), ("a", "c", 0)]
        assert missing["ratio"].to_list() == [None, None]
        assert found.height == 6
    assert false_share(values) == pytest.approx(3 / 4)


def test_rounds_and_arms_without_any_value_are_missing_too() -> None:
    values, runs = world([(arm, number) for arm, number in ALL if arm == "c" or number > 14])
    found = comparisons(values, runs=runs)
    assert found.height == 6
    assert found.drop_nulls("verdict").select("one", "other", "begin").rows() == [("a", "b", 0)]
