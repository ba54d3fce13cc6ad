"""What every chart does with its table first: the columns it needs, checked, and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import InputError
from workbench.formats import NULL, number
from workbench.thinning import LIMIT_ROWS

if TYPE_CHECKING:
    import polars as pl

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def chosen(
    table: pl.DataFrame,
    piece: str,
    *,
    numbers: Sequence[str | None] = (),
    texts: Sequence[str | None] = (),
    flags: Sequence[str | None] = (),
) -> pl.DataFrame:
    """The named columns of `table`, with NaN as null and a dash for missing text; null names are skipped.

    Parameters
    ----------
    piece
        Name of the chart, for messages.
    numbers, texts, flags
        Columns that must be numeric, that are written as text, that must be boolean.

    Raises
    ------
    InputError
        A column is missing, is of another type, holds infinite values, or has a name that Vega would read as a path.
    """
    import polars as pl

    wanted = [name for name in (*texts, *numbers, *flags) if name]
    if not isinstance(table, pl.DataFrame):
        raise InputError(
            "not a polars data frame",
            where=piece,
            found=type(table).__name__,
            do="use polars.from_pandas, or .collect()",
        )
    if missing := [name for name in wanted if name not in table.columns]:
        raise InputError("column(s) missing: " + ", ".join(missing), where=f"chart {piece}", found=table.columns)
    if odd := [name for name in wanted if not _PLAIN_NAME.fullmatch(name)]:
        raise InputError(
            "column name that a chart cannot use",
            where=f"chart {piece}",
            found=odd,
            allowed="letters, digits and _",
            do="rename it",
        )
    frame = table.select(list(dict.fromkeys(wanted)))
    for name in filter(None, numbers):
        _check_type(
            frame, piece, name, frame.schema[name].is_numeric(), "numbers; durations in the unit of the column's name"
        )
    for name in filter(None, flags):
        _check_type(frame, piece, name, frame.schema[name] == pl.Boolean, "true, false and null")
    frame = frame.with_columns(pl.col(name).cast(pl.String).fill_null(NULL) for name in filter(None, texts))
    frame = frame.with_columns(pl.col(name).fill_nan(None) for name in wanted if frame.schema[name].is_float())
    for name in filter(None, numbers):
        if frame.schema[name].is_float() and frame.get_column(name).is_infinite().any():
            raise InputError(
                "infinite values", where=f"chart {piece}, column {name}", do="make them null and count them"
            )
    return frame


def _check_type(frame: pl.DataFrame, piece: str, name: str, good: bool, allowed: str) -> None:
    if not good:
        raise InputError(
            "column of another type", where=f"chart {piece}, column {name}", found=frame.schema[name], allowed=allowed
        )


def at_most(frame: pl.DataFrame, piece: str, limit: int, advice: str) -> pl.DataFrame:
    """Refuse more rows than a reader could tell apart."""
    if frame.height > min(limit, LIMIT_ROWS):
        raise InputError(
            f"too many rows for the chart {piece}",
            found=number(frame.height),
            allowed=f"at most {number(limit)}",
            do=advice,
        )
    return frame


def positive(frame: pl.DataFrame, piece: str, columns: Sequence[str | None]) -> None:
    """Refuse values that a log axis cannot show."""
    for name in filter(None, columns):
        low = frame.get_column(name).min()
        if isinstance(low, int | float) and not math.isnan(low) and low <= 0:
            raise InputError(
                "a log axis needs values above 0",
                where=f"chart {piece}, column {name}",
                found=number(low),
                do="pass log=False",
            )


def unique(frame: pl.DataFrame, piece: str, columns: list[str]) -> None:
    """Refuse two rows in one place, which would be drawn over each other."""
    twice = frame.select(columns).filter(frame.select(columns).is_duplicated())
    if twice.height:
        place = ", ".join(str(value) for value in twice.row(0))
        raise InputError(
            "two rows in one place",
            where=f"chart {piece}, column(s) {', '.join(columns)}",
            found=place,
            do="one row for each, please",
        )


def first_appearance(frame: pl.DataFrame, column: str) -> list[str]:
    """The categories of a column in the order of the table."""
    return [value for value in frame.get_column(column).unique(maintain_order=True).to_list() if value is not None]


def sentences(*parts: str) -> str:
    """Parts that say something, joined to one line.

    Examples
    --------
    >>> sentences("n = 5", "", "2 missing")
    'n = 5 · 2 missing'
    """
    return " · ".join(part for part in parts if part)


def missing_note(count: int, what: str = "row") -> str:
    """How many rows had no value, as a note ("" for none)."""
    return f"{number(count)} {what}{'' if count == 1 else 's'} without a value not drawn" if count else ""
