"""Runs as they lie in a folder, made without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, Field

from workbench.core.tables import Column, Table
from workbench.runs import run_folder as runs_run_folder

OPERATORS = Table(
    "operators",
    "One row an operator.",
    ("operator",),
    (Column("operator", "str", "Its name."), Column("time_s", "float", "Time.", unit="s", nullable=True)),
)


class Settings(BaseModel):
    """What the made notebooks may set."""

    left: int = Field(1, ge=0, le=100)
    label: str = ""


def run_folder(out: Path, *, area: str = "adds", answer: str | None = "3.", **config: Any) -> runs_run_folder.Run:
    """A run that succeeded, with a table and a report."""
    run = runs_run_folder.start_run(
        area, out, config={"left": 2, "label": "two"} | config, command="workbench run adds"
    )
    frame = pl.DataFrame({"operator": ["Sort", "Join", "<b>Filter</b>"], "time_s": [10.0, None, 9.0]})
    run.write_table(OPERATORS, frame)
    run.record |= {"verdict": "valid", "answer": answer}
    run.report.write_text("<!doctype html><title>x</title><p id='said'>a report</p>", encoding="utf-8")
    run.end("succeeded")
    return run
