"""Check the invariants of a result; a broken one stops the notebook.

Each area lists in its `invariants` what must hold between tables that are computed in different ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from workbench.core.errors import BrokenInvariantError

if TYPE_CHECKING:
    import polars as pl


def check_invariants(rows: Iterable[tuple[str, float] | tuple[str, float, float]]) -> pl.DataFrame:
    """Check invariants; returns them as a table.

    `rows`: For each: what is measured, its value, and the allowed maximum (0 when left out). NaN never holds.

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    >>> check_invariants([("runs that are counted twice", 0), ("distance from the sum", 1e-9, 1e-6)])["holds"].all()
    True
    >>> check_invariants([("runs that are counted twice", 2)])
    Traceback (most recent call last):
    ...
    workbench.core.errors.BrokenInvariantError: an invariant does not hold
      where: runs that are counted twice
      found: 2
      allowed: at most 0
    """
    import polars as pl

    schema = {"check": pl.String, "found": pl.Float64, "allowed": pl.Float64}
    full_rows = [(*row, 0.0)[:3] for row in rows]
    checks = pl.DataFrame(
        [(name, float(value), float(limit)) for name, value, limit in full_rows], schema, orient="row"
    )
    # Polars orders NaN above all numbers, so it never holds.
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
