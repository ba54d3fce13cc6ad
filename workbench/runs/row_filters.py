"""Rows of a table that meet conditions: a value, one of several, or limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

OPERATORS = (">", ">=", "<", "<=", "!=")


def check_columns(frame: pl.DataFrame, names: Sequence[str], table: str) -> None:
    """Refuse columns that a table lacks."""
    if missing := [name for name in names if name not in frame.columns]:
        do = "describe_table explains each column"
        raise InputError("no such column", where=f"table {table}", found=missing, allowed=frame.columns, do=do)


def select_rows(frame: pl.DataFrame, where: Mapping[str, Any], table: str) -> pl.DataFrame:
    """Rows that meet all conditions; null selects nulls, a list any of its values, {">": 5} what is above."""
    import polars as pl

    check_columns(frame, list(where), table)
    for name, condition in where.items():
        column, dtype = pl.col(name), frame.schema[name]
        if isinstance(condition, Mapping):
            if not condition or (unknown := [sign for sign in condition if sign not in OPERATORS]):
                found = unknown if condition else "{}"
                raise InputError("no such comparison", where=name, found=found, allowed=OPERATORS)
            tests = [_build_test(column, sign, value, name, dtype) for sign, value in condition.items()]
            frame = frame.filter(*tests)
        else:
            values = condition if isinstance(condition, list) else [condition]
            tests = [_build_test(column, "=", value, name, dtype) for value in values]
            frame = frame.filter(pl.any_horizontal([pl.lit(value=False), *tests]))
    return frame


def _build_test(column: pl.Expr, sign: str, value: Any, name: str, dtype: pl.DataType) -> pl.Expr:
    """One comparison; nulls and NaN meet none but that with null."""
    import polars as pl

    if value is None and sign in ("=", "!="):
        return column.is_null() if sign == "=" else column.is_not_null()
    if isinstance(value, bool):
        has_type = bool(dtype == pl.Boolean)
    elif isinstance(value, int | float):
        has_type = dtype.is_numeric()
    else:
        has_type = isinstance(value, str) and bool(dtype == pl.String)
    if not has_type:
        raise InputError("value of another type", where=name, found=repr(value)[:100], allowed=str(dtype))
    literal = pl.lit(value)
    tests = {
        "=": column == literal,
        "!=": column != literal,
        ">": column > literal,
        ">=": column >= literal,
        "<": column < literal,
        "<=": column <= literal,
    }
    return tests[sign] & column.is_not_nan() if dtype.is_float() else tests[sign]
