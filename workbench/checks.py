"""Invariants of a result: what was found beside what is allowed; a broken one stops the notebook.

Each area says in its `invariants.py` what must hold, from two different ways through its tables, so that each can fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from workbench.errors import BrokenInvariantError

if TYPE_CHECKING:
    import polars as pl


def held(rows: Iterable[tuple[str, float] | tuple[str, float, float]]) -> pl.DataFrame:
    """The invariants as a table, if all of them hold.

    Parameters
    ----------
    rows
        For each what is counted or measured, what was found, and the most that is allowed (0 when left out). NaN holds
        nowhere.

    Returns
    -------
    DataFrame
        One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    Raises
    ------
    BrokenInvariantError
        An invariant does not hold; the message names the first such with both figures.

    Examples
    --------
    >>> held([("runs that are counted twice", 0), ("parts, distance from their sum, in s", 1e-9, 1e-6)])["holds"].all()
    True
    >>> held([("runs that are counted twice", 2)])
    Traceback (most recent call last):
    ...
    workbench.errors.BrokenInvariantError: an invariant does not hold
      where: runs that are counted twice
      found: 2
      allowed: at most 0
    """
    import polars as pl

    whole = [(*row, 0.0)[:3] for row in rows]
    columns = {"check": [row[0] for row in whole]}
    figures = {"found": [float(row[1]) for row in whole], "allowed": [float(row[2]) for row in whole]}
    schema = {"check": pl.String, "found": pl.Float64, "allowed": pl.Float64}
    checks = pl.DataFrame(columns | figures, schema=schema)
    # In polars NaN is the largest of all, and so never at most anything.
    checks = checks.with_columns(holds=pl.col("found") <= pl.col("allowed"))
    if (broken := checks.filter(~pl.col("holds"))).height:
        row = broken.row(0, named=True)
        raise BrokenInvariantError(
            "an invariant does not hold",
            where=row["check"],
            found=f"{row['found']:g}",
            allowed=f"at most {row['allowed']:g}",
        )
    return checks
