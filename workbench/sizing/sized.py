"""How many GPUs to deploy, and what a replica carries: from a sweep's estimates, or as the user says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Sized:
    """GPUs for the load; requests in flight that a replica carries within the target, null when unknown."""

    gpus: int
    in_flight: float | None
    notes: list[str] = field(default_factory=list)


def sized(sweep: Path | None, gpus: int | None, gpus_per_replica: int, in_flight: float | None) -> Sized:
    """What is to be deployed?

    Parameters
    ----------
    sweep
        Folder of a sweep with the table `estimates`.
    gpus
        GPUs instead of its estimate.
    gpus_per_replica
        GPUs of one replica; must divide the GPUs that were measured.
    in_flight
        What a replica carries, instead of what the sweep says.

    Raises
    ------
    ConfigError
        Neither a sweep nor GPUs are given, or the sweep ran on a part of a replica.
    InputError
        The folder has no estimates, or a target has no answer.
    """
    if in_flight is not None and in_flight <= 0:
        raise ConfigError("too small", where="--in-flight", found=in_flight, allowed="more than 0")
    if sweep is None:
        if gpus is None:
            raise ConfigError("nothing says how many GPUs", do="give the folder of a sweep, or --gpus N")
        return Sized(gpus, in_flight, [f"{gpus} GPUs as given."])
    binding, points, notes = _binding(sweep, partly=gpus is not None)
    if binding["test_gpus"] % gpus_per_replica:
        raise ConfigError(
            "the sweep did not run on whole replicas",
            where="--gpus-per-replica",
            found=f"{gpus_per_replica}; measured on {binding['test_gpus']} GPUs",
            do="measure on a multiple of a replica's GPUs",
        )
    carried = in_flight if in_flight is not None else carried_in_flight(binding, points, gpus_per_replica)
    return Sized(gpus or int(binding["recommended"]), carried, [*_notes(binding, gpus), *notes])


def _binding(sweep: Path, *, partly: bool) -> tuple[dict[str, Any], pl.DataFrame, list[str]]:
    """The estimate that asks for the most, the points that it rests on, and what a verification said.

    A target without an answer may need more than all others: refused, unless the user names the GPUs.
    """
    from workbench import runs
    from workbench.sizing import keeping
    from workbench.sizing.tables import POINTS, VERIFICATION

    rows = list(keeping.estimated(sweep).iter_rows(named=True))
    answered = [row for row in rows if row["recommended"] is not None]
    if not answered or (len(answered) < len(rows) and not partly):
        raise InputError(
            "a target has no answer" if answered else "no estimate with an answer",
            where=sweep,
            found=[f"{row['target']}: {row['reason'] or row['verdict']}" for row in rows if row not in answered],
            do="measure the levels that it names, or give --gpus N",
        )
    run = runs.load(sweep)
    notes = []
    if VERIFICATION.path(run.tables_folder).is_file():
        notes = [_verified(row) for row in run.read_table(VERIFICATION).iter_rows(named=True)]
    return max(answered, key=lambda row: (row["recommended"], row["gpus"] or 0)), run.read_table(POINTS), notes


def carried_in_flight(binding: dict[str, Any], points: pl.DataFrame, gpus_per_replica: int) -> float | None:
    """Requests in flight per replica at the capacity: measured ones, since a load may count arrivals or thinkers."""
    rows = points.filter((points["n_ok"] > 0) & (points["gpus"] == binding["test_gpus"])).sort("load")
    capacity = binding["capacity_low"] if binding["capacity_low"] is not None else binding["capacity"]
    if capacity is None or not rows.height:
        return None
    loads = np.concatenate([[0.0], rows["load"].to_numpy()])
    flying = np.concatenate([[0.0], rows["in_flight"].to_numpy()])
    replicas = int(binding["test_gpus"]) // gpus_per_replica
    return float(np.interp(capacity, loads, flying)) / replicas


def _verified(row: dict[str, Any]) -> str:
    gpus = f"{row['predicted_gpus']} GPU{'' if row['predicted_gpus'] == 1 else 's'}"
    found = f"Verification of {row['target']}, {gpus} for {_load(row)}: {row['verdict']}"
    return f"{found} ({row['reason']})." if row["reason"] else f"{found}."


def _load(row: dict[str, Any]) -> str:
    return f"{row['load']:g} {'users' if row['load_unit'] == 'users' else 'arrivals a second'}"


def _notes(binding: dict[str, Any], gpus: int | None) -> list[str]:
    found = (
        f"{binding['target']} for {_load(binding)}: {binding['recommended']} GPUs recommended ({binding['verdict']})."
    )
    notes = [found] if gpus is None else [found, f"{gpus} GPUs as given instead."]
    if binding["reason"]:
        notes.append(binding["reason"])
    return notes
