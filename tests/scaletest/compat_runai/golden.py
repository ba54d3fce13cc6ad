"""The old tool's own files and its output of them, as recorded: columns by what they hold, not by their headings."""

from __future__ import annotations

import csv
from pathlib import Path

from workbench.scaletest.compat_runai.delta_chain import STEPS

# What stands in the 26 columns of its times.csv, whose 23 headings say something else from the tenth on.
COLUMNS = (
    "name",
    "namespace",
    "project",
    "workload",
    "job",
    "first_pod",
    "last_pod",
    "podgroup",
    "decision",
    "eviction",
    "pvc_request",
    "pvc_bind",
    "backend",
    "submitted",
    *(step.name for step in STEPS),
)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "times.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]
