"""Where does the time go, and where does it go for the slowest?

The way of a workload from due to running is cut into segments that follow one another: the end of each is the latest
of the milestones so far, so they add up to the whole, whatever overlaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.flow import Floats
from workbench.scaletest.result_tables import SHARES

TAIL = 0.05
LEVEL = 0.95
BLOCKS = 20
DRAWS = 1_000
# Milestone that ends it -> name of the segment.
SEGMENTS = {
    "sent": "waiting to be sent",
    "acked": "accepted by the API server",
    "job": "job made",
    "last pod": "pods made",
    "podgroup": "podgroup made",
    "all scheduled": "scheduled",
    "all running": "started",
}


def segments(milestones: pl.DataFrame) -> pl.DataFrame:
    """One row per workload that ran, one column per segment that this run has, in seconds by the client's clock.

    Workloads without one of the ends (a resumed run does not know when those before were accepted) are left out.
    """
    wide = milestones.filter(pl.col("client_s").is_not_null()).pivot("milestone", index="index", values="client_s")
    needed = ("due", "all running" if "all running" in wide.columns else "all scheduled")
    if any(name not in wide.columns for name in needed):
        return pl.DataFrame(schema={"index": pl.Int64, "due_s": pl.Float64})
    ends = [name for name in SEGMENTS if name in wide.columns and _common(wide, name, needed[1])]
    whole = wide.drop_nulls(["due", *ends]).sort("due", "index")
    reached = pl.col("due")
    columns = []
    for name in ends:
        later = pl.max_horizontal(reached, pl.col(name))
        columns.append((later - reached).alias(SEGMENTS[name]))
        reached = later
    return whole.select("index", pl.col("due").alias("due_s"), *columns)


def _common(wide: pl.DataFrame, name: str, last: str) -> bool:
    """A milestone that most workloads never have (a podgroup of one kind in a mix) would leave the others out."""
    done = wide.filter(pl.col(last).is_not_null())
    return done.height > 0 and done[name].null_count() <= 0.05 * done.height


def shares(milestones: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """The share of each segment in the time of all workloads, and in the time of the slowest 5 %.

    Returns
    -------
    DataFrame
        Table SHARES; both kinds of shares add up to 1. Intervals are of the slowest ones' shares, by resampling 20
        blocks of workloads that follow one another.

    Notes
    -----
    Does not say what would happen if a segment were faster: the next one may be as slow. Source: circular block
    bootstrap, Politis and Romano (1992).
    """
    table = segments(milestones)
    names = [name for name in table.columns if name not in ("index", "due_s")]
    if not table.height or not names:
        return SHARES.frame([])
    values = table.select(names).to_numpy().astype(float)
    all_share, tail_share, slow = _shares(values)
    low, high = _bounds(values, np.random.default_rng(seed))
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        rows.append(
            {
                "segment": name,
                "mean_s": float(values[:, place].mean()),
                "share": all_share[place],
                "tail_mean_s": float(values[slow, place].mean()),
                "tail_share": tail_share[place],
                "low": low[place],
                "high": high[place],
                "n": len(values),
                "n_tail": int(slow.sum()),
            }
        )
    return SHARES.frame(rows)


def _shares(values: Floats) -> tuple[list[float | None], list[float | None], Any]:
    total = values.sum(axis=1)
    slow = total >= np.quantile(total, 1 - TAIL)
    return _of(values), _of(values[slow]), slow


def _of(values: Floats) -> list[float | None]:
    sums = values.sum(axis=0)
    whole = float(sums.sum())
    return [float(one) / whole if whole > 0 else None for one in sums]


def _bounds(values: Floats, random: np.random.Generator) -> tuple[list[float | None], list[float | None]]:
    n, count = len(values), values.shape[1]
    if n < 2 * BLOCKS:
        return [None] * count, [None] * count
    length = -(-n // BLOCKS)
    draws = max(100, min(DRAWS, 20_000_000 // n))
    found = np.empty((draws, count))
    for one in range(draws):
        starts = random.integers(0, n, size=(BLOCKS, 1))
        picked = values[((starts + np.arange(length)) % n).ravel()[:n]]
        total = picked.sum(axis=1)
        slow = picked[total >= np.partition(total, int(n * (1 - TAIL)))[int(n * (1 - TAIL))]]
        found[one] = slow.sum(axis=0) / max(float(slow.sum()), 1e-12)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return [float(one) for one in low], [float(one) for one in high]
