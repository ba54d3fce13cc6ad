"""What are the values of a column? Added up batch by batch, in bounded memory, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

LONGEST_VALUE = 60
# Smallest hashes that are kept: the estimate is within 3 % in two of three cases, within 10 % nearly always.
SKETCH = 1024
_SPAN = 2.0**64


class ColumnValues:
    """Nulls, NaNs, extremes and how many different values, of what was added so far.

    Source of the estimate: Bar-Yossef and others, Counting distinct elements in a data stream (2002), by the k smallest
    hashes.

    Examples
    --------
    >>> import polars as pl
    >>> values = ColumnValues()
    >>> values.add(pl.Series([3, None, 1, 3]))
    >>> values.n_rows, values.n_nulls, values.minimum, values.maximum, values.distinct
    (4, 1, '1', '3', (2, True))
    """

    def __init__(self) -> None:
        self.n_rows = self.n_nulls = 0
        self.n_nan: int | None = None
        self.fault: str | None = None
        self._lowest: Any = None
        self._highest: Any = None
        self._hashes: Any = None
        self._full = False

    def add_array(self, array: Any) -> None:
        """Take in an Arrow array; a type that polars cannot take ends the account of this column, as a fault."""
        import polars as pl

        if self.fault is not None:
            return
        if array.type.num_fields:
            # Of nested types only nulls are counted; polars refuses some, as structs with a name twice.
            self.n_rows += len(array)
            self.n_nulls += array.null_count
            return
        try:
            # Spark has none; polars would print a panic before it raises.
            if str(array.type).startswith("decimal256"):
                raise TypeError("wider than any number of Spark")
            self.add(pl.Series(pl.from_arrow(array)))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError) as error:
            self.fault = f"values of type {str(array.type)[:80]} cannot be read: {str(error)[:80]}"

    def add(self, series: pl.Series) -> None:
        """Take in the values of one batch."""
        self.n_rows += len(series)
        self.n_nulls += series.null_count()
        if series.dtype.is_nested():
            return
        present = series.drop_nulls()
        if series.dtype.is_float():
            numbers = present.filter(present.is_not_nan())
            self.n_nan = (self.n_nan or 0) + len(present) - len(numbers)
            self._bounds(numbers)
        else:
            self._bounds(present)
        self._count(present)

    def _bounds(self, values: pl.Series) -> None:
        if not len(values):
            return
        lowest, highest = values.min(), values.max()
        self._lowest = lowest if self._lowest is None else min(self._lowest, lowest)
        self._highest = highest if self._highest is None else max(self._highest, highest)

    def _count(self, values: pl.Series) -> None:
        import numpy as np

        found = values.hash(seed=0).unique().to_numpy()
        hashes = found if self._hashes is None else np.union1d(self._hashes, found)
        if len(hashes) > SKETCH:
            self._full = True
            hashes = np.partition(hashes, SKETCH - 1)[:SKETCH]
        self._hashes = np.sort(hashes)

    @property
    def minimum(self) -> str | None:
        """Smallest value as a text, cut; null without one."""
        return _shown(self._lowest)

    @property
    def maximum(self) -> str | None:
        """Largest value as a text, cut; null without one."""
        return _shown(self._highest)

    @property
    def distinct(self) -> tuple[int | None, bool | None]:
        """How many different values, and whether they were counted; null where the type does not allow it."""
        if self._hashes is None:
            return None, None
        if not self._full:
            return len(self._hashes), True
        estimate = round((SKETCH - 1) * _SPAN / (float(self._hashes[-1]) + 1))
        return min(estimate, self.n_rows - self.n_nulls), False


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = value[:LONGEST_VALUE].hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
