"""Rows of a frame as a polars table, with the names of the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.lore.replays.row_differences import choose_display_names

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame


def name_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The output (columns c0, c1 …) with the names of the query; a name that repeats has its position: `k (2)`."""
    return frame.toDF(*choose_display_names(names))


def collect_table(frame: DataFrame) -> pl.DataFrame:
    """The rows of a frame as a polars table."""
    import polars as pl
    import pyarrow as pa  # type: ignore[import-untyped]

    if hasattr(frame, "toArrow"):
        table = frame.toArrow()
    else:
        batches = frame._collect_as_arrow()
        table = pa.Table.from_batches(batches) if batches else _build_empty_table(frame)
    rows = pl.from_arrow(table)
    assert isinstance(rows, pl.DataFrame)
    return rows


def _build_empty_table(frame: DataFrame) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema).empty_table()
