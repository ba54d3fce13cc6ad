"""times.csv: every column under its right heading, or, on request, byte for byte as the old tool writes it."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from workbench.scaletest.upstream.chain import FALLBACKS, HEADINGS, STEPS, Milestone
from workbench.scaletest.upstream.deltas import US, column, deltas

if TYPE_CHECKING:
    import polars as pl

FILE = "times.csv"
_NAMES = {"name": "Job Name", "namespace": "Namespace", "project": "Project"}

# The old tool's headings: 23 over 26 columns, right up to the ninth only.
_OLD_HEADINGS = (
    "Job Name,Namespace,projectName,Workload Created,Job Created,First Pod Created,Last Pod Created,Pod Group Created,"
    "Pod Scheduling Decision,Workload Submitted,Backend Job Created,Workload Creation,Job Creation,First Pod Creation,"
    "Last Pod Creation,Pod Group Creation,Pod Scheduling Decision,First Eviction,First PVC Bind Request,First PVC Bind,"
    "Backend Job Creation,Total Pod Scheduling Decision,Total Backend Job Creation"
)


def text(jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False) -> str:
    """The file's content.

    Parameters
    ----------
    jobs
        Table `upstream_jobs`.
    skip_errors
        Without the workloads that the old tool skips.
    bug_compatible
        The old layout: 23 headings over 26 columns, its fallbacks and its deltas; else one heading a column, deltas
        as they are, and nothing where nothing was measured.
    """
    shown = jobs.filter("kept") if skip_errors else jobs
    rows = _old_rows(shown) if bug_compatible else _rows(shown)
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()


def _rows(jobs: pl.DataFrame) -> list[list[str]]:
    heads = [*_NAMES.values(), *(f"{name} (UTC)" for name in HEADINGS.values())]
    rows = [[*heads, *(f"{step.name} (s)" for step in STEPS)]]
    by_job = _by_job(jobs, "delta_s")
    for row in jobs.iter_rows(named=True):
        told = [str(row[name]) for name in _NAMES] + [_time(row, name) for name in HEADINGS]
        rows.append(told + ["" if delta is None else str(delta) for delta in by_job[row["row"]]])
    return rows


def _old_rows(jobs: pl.DataFrame) -> list[list[str]]:
    rows = [_OLD_HEADINGS.split(",")]
    by_job, clamped = _by_job(jobs, "upstream_s"), _by_job(jobs, "clamped")
    for row in jobs.iter_rows(named=True):
        told = [str(row[name]) for name in _NAMES] + [_time(row, name, fallback=True) for name in HEADINGS]
        printed = zip(by_job[row["row"]], clamped[row["row"]], strict=True)
        # A difference of times is a float there, a clamped one the whole number 0.
        rows.append(told + ["0" if was else str(float(delta or 0)) for delta, was in printed])
    return rows


def _by_job(jobs: pl.DataFrame, name: str) -> dict[int, list[int | None]]:
    grouped = deltas(jobs).group_by("row", maintain_order=True).agg(name)
    return dict(zip(grouped["row"].to_list(), grouped[name].to_list(), strict=True))


def _time(row: dict[str, int | None], name: Milestone, *, fallback: bool = False) -> str:
    found = row[column(name)]
    if found is None and fallback:
        found = row[column(FALLBACKS[name])]
    if found is None:
        return ""
    second = found // US if name == "submitted" else found
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
