"""The few numbers below an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.display import KeyNumber
from workbench.formats import number

if TYPE_CHECKING:
    from workbench.sizing.answering import Answer


def of_answer(found: Answer) -> list[KeyNumber]:
    """GPUs with their interval, what the test GPUs carry, the quantile at the load, goodput, what a line says."""
    row = found.binding or (found.estimates.row(0, named=True) if found.estimates.height else {})
    if not row:
        return []
    unit = "users" if row["load_unit"] == "users" else "per s"
    gpus = "" if row["gpus"] is None else f"{number(row['gpus'])} {_ends(row['gpus_low'], row['gpus_high'])}"
    numbers: list[KeyNumber] = [
        ("recommended", found.recommended, "GPUs", gpus),
        (_carry(row["test_gpus"]), row["capacity"], unit, _ends(row["capacity_low"], row["capacity_high"])),
    ]
    numbers += [*_verified(found, row), *_goodput(found, row)]
    if found.cost_per_hour is not None:
        numbers.append(("cost", found.cost_per_hour, "an hour", f"at {number(found.gpu_price_per_hour)} a GPU"))
    slope = row["slope_gpus"]
    return [*numbers, ("a line would say", slope, "GPUs", "slope-based, the same points, no interval")]


def _carry(gpus: int) -> str:
    return f"{gpus} test GPU{' carries' if gpus == 1 else 's carry'}"


def _verified(found: Answer, row: dict[str, Any]) -> list[KeyNumber]:
    name = f"{row['metric']} p{100 * row['q']:g} at that load"
    if found.verification is None or not found.verification.height:
        return [(name, None, "s", "not verified")]
    one = found.verification.filter(target=row["target"]).row(0, named=True)
    note = f"{_ends(one['low_s'], one['high_s'])} {one['verdict']}, {one['scope']}"
    return [(name, one["value_s"], "s", note)]


def _goodput(found: Answer, row: dict[str, Any]) -> list[KeyNumber]:
    """Of the largest load within the capacity: what one would run at."""
    carried = found.points.filter((pl.col("gpus") == row["test_gpus"]) & (pl.col("load") <= (row["capacity"] or 0)))
    if not carried.height:
        return []
    best = carried.sort("load").row(-1, named=True)
    served = found.goodput.filter(step=best["step"]).row(0, named=True)
    unit = "users" if row["load_unit"] == "users" else "a second"
    in_time = "in time: unknown" if served["within_share"] is None else f"{served['within_share']:.1%} in time"
    note = f"at {best['load']:g} {unit}, {in_time}"
    return [("goodput of a GPU", served["goodput_per_gpu"], "requests/s", note)]


def _ends(low: float | None, high: float | None) -> str:
    return "(no interval)" if low is None and high is None else f"[{number(low)}, {number(high)}]"
