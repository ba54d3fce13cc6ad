"""The answer beside others: the slope-based calculator's on the same levels, and, where it can be known, the truth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.answering import Answer
    from workbench.sizing.truth import Truth

OURS = "this workbench"
LINE = "line, same points"
BURST = "line, toolkit's runs"
TRUE = "true need"

COMPARISON = Table(
    "comparison",
    "One row per answer to the question.",
    ("answer",),
    (
        Column("answer", "str", "Who says so."),
        Column("gpus", "float", "GPUs, not rounded; null without an answer.", nullable=True),
        Column("gpus_low", "float", "Low end of the 90 % interval.", nullable=True),
        Column("gpus_high", "float", "High end.", nullable=True),
        Column(
            "deployed",
            "int",
            "Whole GPUs that one would deploy: the high end, or the figure, rounded up.",
            nullable=True,
        ),
        Column("off", "int", "Deployed minus the true need: below 0 the target is missed.", nullable=True),
        Column("basis", "str", "What it rests on."),
    ),
)


def comparison(found: Answer, *, burst_gpus: float | None = None, truth: Truth | None = None) -> pl.DataFrame:
    """Whose answer is how far off?

    Parameters
    ----------
    found
        The answer; its binding target is compared.
    burst_gpus
        What the slope-based calculator says when it measures itself; a row of it only beside a truth.
    truth
        What the service really needs.

    Returns
    -------
    DataFrame
        The table `COMPARISON`; `off` is null without a truth.
    """
    row = found.binding or (found.estimates.row(0, named=True) if found.estimates.height else {})
    points = f"{row.get('n_levels', 0)} levels, {row.get('n_samples', 0):,} samples"
    ends = {"gpus_low": row.get("gpus_low"), "gpus_high": row.get("gpus_high")}
    rows: list[dict[str, Any]] = [
        {"answer": OURS, "gpus": row.get("gpus"), **ends, "deployed": found.recommended, "basis": points},
        _line(LINE, row.get("slope_gpus"), points),
    ]
    if truth is not None:
        rows.append(_line(BURST, burst_gpus, "two passes a level, a burst"))
        runs = f"{len(truth.tried)} counts tried, {truth.runs} runs each"
        rows.append(_line(TRUE, None if truth.gpus is None else float(truth.gpus), runs))
    need = truth.gpus if truth is not None else None
    for one in rows:
        known = need is not None and one["deployed"] is not None
        one["off"] = one["deployed"] - need if known and need is not None else None
    return COMPARISON.frame(rows)


def _line(name: str, gpus: float | None, basis: str) -> dict[str, Any]:
    deployed = None if gpus is None else math.ceil(gpus - 1e-9)
    return {"answer": name, "gpus": gpus, "gpus_low": None, "gpus_high": None, "deployed": deployed, "basis": basis}
