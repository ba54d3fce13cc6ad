"""Fewer rows for the same picture: what a chart does before it draws a large table, and the sentence that says so.

No statistics are made here: kept steps are exact, merged intervals cover the same time to less than a pixel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import InputError
from workbench.formats import number

if TYPE_CHECKING:
    import polars as pl

LIMIT_ROWS = 5_000
"""No chart of this project carries more rows than this: beyond it pages turn slow and marks hide one another."""

LIMIT_POSITIONS = 2_000


def ecdf_steps(values: pl.Series, *, positions: int = LIMIT_POSITIONS) -> pl.DataFrame:
    """The steps of the empirical distribution function, thinned to at most `positions` of them.

    Every kept step is exact; first, last and the outermost steps always stay, since tails are what is read.

    Parameters
    ----------
    values
        Observations; nulls are left out.
    positions
        Most steps to keep, at least 10.

    Returns
    -------
    pl.DataFrame
        `value` (ascending, one row per kept distinct value), `share` of all observations at or below it, in (0, 1].

    Examples
    --------
    >>> import polars as pl
    >>> ecdf_steps(pl.Series([3.0, 1.0, 1.0, 2.0])).rows()
    [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    """
    import polars as pl

    known = values.drop_nulls().cast(pl.Float64)
    steps = (
        pl.DataFrame({"value": known})
        .group_by("value")
        .len()
        .sort("value")
        .select("value", share=pl.col("len").cum_sum() / max(1, known.len()))
    )
    if steps.height <= positions:
        return steps
    tail = positions // 10
    inner = positions - 2 * tail
    last = steps.height - 1
    even = {tail + round(index * (last - 2 * tail) / (inner - 1)) for index in range(inner)}
    kept = sorted(set(range(tail)) | even | set(range(last - tail + 1, last + 1)))
    return steps[kept]


def merged_intervals(
    frame: pl.DataFrame, start: str, end: str, by: list[str], *, limit: int
) -> tuple[pl.DataFrame, str]:
    """Intervals of one lane and colour that touch, merged until at most `limit` are left.

    Parameters
    ----------
    frame
        One row per interval; `start` <= `end`, both without nulls.
    by
        The columns that must be equal for two intervals to be merged.
    limit
        Most rows to give back.

    Returns
    -------
    (pl.DataFrame, str)
        The columns of `by`, `start`, `end` and `intervals` (how many were merged), and the sentence that tells what
        was done ("" when nothing was).

    Raises
    ------
    InputError
        There are more different groups than `limit`.
    """
    import polars as pl

    if frame.height <= limit:
        return frame.select(*by, start, end, intervals=pl.lit(1)), ""
    groups = frame.select(by).n_unique() if by else 1
    if groups > limit:
        raise InputError(
            "too many lanes to draw",
            found=f"{groups} lanes and colours",
            allowed=f"at most {limit}",
            do="draw the lanes that matter, or group them",
        )
    span = float(frame.get_column(end).max()) - float(frame.get_column(start).min())  # type: ignore[arg-type]
    gap = 0.0
    while (merged := _merge(frame, start, end, by, gap)).height > limit:
        gap = gap * 2 if gap else span / 4_000
    told = f"{number(frame.height)} intervals drawn as {number(merged.height)}: "
    return merged, told + ("those that touch are merged" if not gap else f"gaps up to {number(gap)} s are closed")


def _merge(frame: pl.DataFrame, start: str, end: str, by: list[str], gap: float) -> pl.DataFrame:
    import polars as pl

    def within(expression: pl.Expr) -> pl.Expr:
        return expression.over(by) if by else expression

    ordered = frame.select(*by, start, end).sort(*by, start, end)
    reached = within(pl.col(end).cum_max().shift(1))
    opens = (pl.col(start) > reached + gap).fill_null(value=True)
    return (
        ordered.with_columns(opens.alias("_opens"))
        .with_columns(within(pl.col("_opens").cum_sum()).alias("_block"))
        .group_by(*by, "_block", maintain_order=True)
        .agg(pl.col(start).min(), pl.col(end).max(), pl.len().cast(pl.Int32).alias("intervals"))
        .drop("_block")
    )


def open_intervals(frame: pl.DataFrame, start: str, end: str, *, positions: int = 1_000) -> tuple[pl.DataFrame, str]:
    """How many intervals are open at each moment, as steps; the peak of each bin where there are too many steps.

    Returns
    -------
    (pl.DataFrame, str)
        `at` (same unit as `start`), `open`; and the sentence that tells of binning ("" when exact).

    Examples
    --------
    >>> import polars as pl
    >>> steps, told = open_intervals(pl.DataFrame({"start_s": [0.0, 1.0], "end_s": [2.0, 3.0]}), "start_s", "end_s")
    >>> steps.rows(), told
    ([(0.0, 1), (1.0, 2), (2.0, 1), (3.0, 0)], '')
    """
    import polars as pl

    starts = frame.select(at=pl.col(start).cast(pl.Float64), change=pl.lit(1))
    ends = frame.select(at=pl.col(end).cast(pl.Float64), change=pl.lit(-1))
    steps = (
        pl.concat([starts, ends])
        .group_by("at")
        .agg(pl.col("change").sum())
        .sort("at")
        .select("at", open=pl.col("change").cum_sum())
    )
    if steps.height <= positions:
        return steps, ""
    low, high = steps["at"][0], steps["at"][-1]
    width = (high - low) / (positions - 1)
    bins = pl.DataFrame({"_bin": pl.int_range(positions, eager=True)})
    peaks = steps.group_by(((pl.col("at") - low) / width).floor().cast(pl.Int64).alias("_bin")).agg(
        pl.col("open").max().alias("peak"), pl.col("open").last().alias("left")
    )
    # What a bin leaves open is still open in the bins after it in which nothing happens.
    carried = bins.join(peaks, on="_bin", how="left").with_columns(
        pl.col("left").forward_fill().shift(1).alias("before")
    )
    binned = carried.select(at=low + pl.col("_bin") * width, open=pl.max_horizontal("peak", "before").fill_null(0))
    return binned, f"overview: peak in bins of {number(width)} s"


def sub_rows(starts: list[float], ends: list[float]) -> list[int]:
    """The row of each interval so that none covers another, as few rows as there are open at once.

    Examples
    --------
    >>> sub_rows([0, 1, 2], [2, 3, 4])
    [0, 1, 0]
    """
    import heapq

    order = sorted(range(len(starts)), key=lambda index: (starts[index], ends[index]))
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    rows = [0] * len(starts)
    for index in order:
        while busy and busy[0][0] <= starts[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else len(busy)
        rows[index] = row
        heapq.heappush(busy, (ends[index], row))
    return rows
