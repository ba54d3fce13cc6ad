"""Run folders with a table of factors, as an area would leave them: for what reads runs afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.core.tables import Column, Table
from workbench.runs import run_folder

FACTORS = Table(
    "factors",
    "One row per operator.",
    ("operator",),
    (
        Column("operator", "str", "Name of the operator."),
        Column("factor", "float", "How many times faster.", nullable=True),
        Column("factor_low", "float", "Low end of the interval.", nullable=True),
        Column("factor_high", "float", "High end of the interval.", nullable=True),
        Column("n", "int", "Queries behind it."),
        Column("baseline_s", "float", "Time of the baseline.", unit="s", nullable=True),
        Column("verdict", "str", "FASTER and so on.", nullable=True),
    ),
)

Rows = Sequence[tuple[str, float | None, float | None, float | None]]
ROWS: Rows = (("Filter", 2.0, 1.8, 2.2), ("Sort", 1.2, 1.1, 1.3), ("Window", None, None, None))


def kept(
    out: Path,
    rows: Rows = ROWS,
    *,
    area: str = "speedup",
    verdict: Any = "valid",
    config: Mapping[str, Any] | None = None,
) -> run_folder.Run:
    """A run that has ended, with table FACTORS."""
    run = run_folder.start_run(area, out, title="How fast?", config=config or {"top": 5})
    made = [
        dict(zip(("operator", "factor", "factor_low", "factor_high"), row, strict=True))
        | {"n": 22, "baseline_s": 10.0, "verdict": "FASTER" if row[1] else None}
        for row in rows
    ]
    run.write_table(FACTORS, FACTORS.frame(made))
    run.conclude(verdict, ["few queries"] if verdict == "invalid" else [], "Twice as fast.")
    return run
