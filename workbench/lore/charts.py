"""Charts of dumps: each draws one table and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from workbench import charts
from workbench.chart_data import sentences
from workbench.formats import number
from workbench.lore.inspection.tables import PARTITIONS

if TYPE_CHECKING:
    import altair as alt


def chart_partitions(
    partitions: pl.DataFrame, *, of: Literal["n_rows", "n_bytes"] = "n_rows", top: int = 20
) -> alt.Chart:
    """How are the rows, or the bytes of the files, spread over the partitions? The largest on top.

    Parameters
    ----------
    partitions
        Table `inspection.tables.PARTITIONS`.
    of
        The quantity that is drawn.
    top
        Partitions that are shown at first.

    Raises
    ------
    InputError
        It is another table, or `top` is below 1.

    Notes
    -----
    Does not show partitions that were not dumped: those may be the largest.
    """
    frame = PARTITIONS.check(partitions)
    several = frame["lore_id"].n_unique() > 1
    dump = pl.format("loreId-{} · ", "lore_id") if several else pl.lit("")
    labelled = frame.with_columns(label=dump + pl.format("{} · partition {}", "input", "partition"))
    skew = frame["skew_ratio"].max() if of == "n_rows" else None
    return charts.bars(
        labelled,
        title="Rows by partition" if of == "n_rows" else "Bytes of the files by partition",
        label="label",
        value=of,
        category="input",
        top=top,
        subtitle=sentences(f"the largest has {number(skew)} times the median of its input" if skew is not None else ""),
    )
