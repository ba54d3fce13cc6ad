"""The same work by each library for tables, and its columns given back as lists."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


class Pandas:
    """pandas, as its defaults are."""

    name = "pandas"

    def __init__(self, run: Run) -> None:
        self.module = run.load(self.name)

    def frame(self, columns: Mapping[str, Any]) -> Any:
        """A table of these columns: arrays of numbers."""
        import numpy as np

        # pandas itself needs NumPy.
        kinds = {"d": "float64", "q": "int64"}
        return self.module.DataFrame(
            {name: np.frombuffer(values, dtype=kinds[values.typecode]).copy() for name, values in columns.items()}
        )

    def listed(self, frame: Any) -> dict[str, list[Any]]:
        """All columns, as lists."""
        return {name: frame[name].tolist() for name in frame.columns}

    def totals(self, frame: Any) -> Any:
        """Sum, maximum and count of `value` by `key`."""
        totals = frame.groupby("key", sort=False)["value"].agg(["sum", "max", "count"])
        return totals.reset_index()

    def join(self, left: Any, right: Any) -> Any:
        """Rows of both that agree in `key`."""
        return left.merge(right, on="key", how="inner")

    def read_csv(self, path: str) -> Any:
        return self.module.read_csv(path)

    def read_parquet(self, path: str) -> Any:
        return self.module.read_parquet(path)


class Polars(Pandas):
    """Polars, eagerly."""

    name = "polars"

    def frame(self, columns: Mapping[str, array[Any]]) -> Any:
        # From lists: Polars has no NumPy beside it in every stack.
        return self.module.DataFrame({name: values.tolist() for name, values in columns.items()})

    def listed(self, frame: Any) -> dict[str, list[Any]]:
        return {name: frame[name].to_list() for name in frame.columns}

    def totals(self, frame: Any) -> Any:
        value = self.module.col("value")
        return frame.group_by("key").agg(
            value.sum().alias("sum"), value.max().alias("max"), value.count().alias("count")
        )

    def join(self, left: Any, right: Any) -> Any:
        return left.join(right, on="key", how="inner")


def opened(run: Run) -> Pandas:
    """The library that was asked for."""
    kinds = {kind.name: kind for kind in (Pandas, Polars)}
    return kinds[run.choice("framework", tuple(kinds))](run)


def text_digest(rows: Any) -> str:
    """Sixteen hex digits that stand for these rows, in this order."""
    import hashlib

    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()[:16]
