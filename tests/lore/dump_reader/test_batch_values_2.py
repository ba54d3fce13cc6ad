"""Values are added up batch by batch; what the account says does not depend on how they were cut."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from workbench.lore.dump_reader.batch_values import MAX_VALUE_CHARS, SKETCH_SIZE, ColumnStatistics


def of(*batches: Any) -> ColumnStatistics:
    values = ColumnStatistics()
    for batch in batches:
        values.add_series(batch if isinstance(batch, pl.Series) else pl.Series(batch, strict=False))
    return values


def facts(values: ColumnStatistics) -> tuple[Any, ...]:
    return values.n_rows, values.n_nulls, values.n_nan, values.minimum, values.maximum, values.distinct


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param(([3, None], [1, 3]), (4, 1, None, "1", "3", (2, True)), id="whole numbers"),
        pytest.param(([0.5, float("nan"), None], [-2.0]), (4, 1, 1, "-2.0", "0.5", (3, True)), id="floats"),
        pytest.param(([float("nan")],), (1, 0, 1, None, None, (1, True)), id="no number at all"),
        pytest.param((["b", "a"], [None]), (3, 1, None, "a", "b", (2, True)), id="texts"),
        pytest.param(([b"\x01", b"\xff\x00"],), (2, 0, None, "01", "ff00", (2, True)), id="bytes"),
        pytest.param(([True, False, True],), (3, 0, None, "False", "True", (2, True)), id="yes and no"),
        pytest.param(([dt.date(2024, 1, 2)],), (1, 0, None, "2024-01-02", "2024-01-02", (1, True)), id="days"),
        pytest.param(([decimal.Decimal("1.20")],), (1, 0, None, "1.20", "1.20", (1, True)), id="decimals"),
        pytest.param(([[1], None],), (2, 1, None, None, None, (None, None)), id="lists"),
        pytest.param(([None, None],), (2, 2, None, None, None, (0, True)), id="nulls"),
        pytest.param((), (0, 0, None, None, None, (None, None)), id="nothing"),
    ],
)
def test_extremes_nulls_and_different_values_of_each_type(batches: Any, expected: tuple[Any, ...]) -> None:
    assert facts(of(*batches)) == expected


def test_huge_texts_and_bytes_are_cut() -> None:
    values = of(["x" * 10_000_000])
    assert values.maximum == "x" * MAX_VALUE_CHARS + "…"
    assert len(of([b"\x01" * 1_000_000]).maximum or "") == MAX_VALUE_CHARS + 1


@pytest.mark.parametrize("n_distinct", [SKETCH_SIZE, SKETCH_SIZE + 1, 5_000, 200_000])
def test_different_values_are_counted_up_to_a_number_and_estimated_beyond(n_distinct: int) -> None:
    numbers = np.random.default_rng(7).permutation(np.repeat(np.arange(n_distinct), 2))
    values = of(*(pl.Series(part) for part in np.array_split(numbers, 6)))
    found, exact = values.distinct
    assert exact is (n_distinct <= SKETCH_SIZE)
    assert found == (n_distinct if exact else pytest.approx(n_distinct, rel=0.1))


def test_the_account_does_not_depend_on_the_cut() -> None:
    numbers = pl.Series(np.random.default_rng(8).integers(0, 50_000, 30_000))
    assert facts(of(numbers)) == facts(of(*(numbers[start : start + 997] for start in range(0, 30_000, 997))))


def test_no_more_different_values_than_values() -> None:
    for seed in range(5):
        values = of(pl.Series(np.random.default_rng(seed).integers(0, 2**62, 1_500)))
        found, exact = values.distinct
        assert not exact
        assert found is not None
        assert found <= 1_500


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(pa.array([(1, 2, 3)], pa.month_day_nano_interval()), id="an interval of three parts"),
        pytest.param(pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)), id="a decimal of 50 digits"),
    ],
)
def test_a_type_that_cannot_be_taken_is_a_fault_of_its_column_alone(array: pa.Array) -> None:
    values = ColumnStatistics()
    values.add_array(array)
    values.add_array(pa.array([1]))
    assert values.fault is not None
    assert f"values of type {array.type} cannot be read" in values.fault
    assert values.n_rows == 0


def test_of_nested_types_nulls_are_counted_even_where_a_name_stands_twice() -> None:
    values = ColumnStatistics()
    values.add_array(pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"]))
    values.add_array(pa.array([[1], None], pa.list_(pa.int64())))
    assert facts(values) == (4, 1, None, None, None, (None, None))
