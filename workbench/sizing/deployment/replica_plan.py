"""Replicas and nodes for a GPU count, read from a sweep or given by the user."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ReplicaPlan:
    """How many replicas, on how many nodes."""

    gpus: int
    gpus_per_replica: int
    gpus_per_node: int
    needed: int
    spare: int
    per_node: int
    nodes: int

    @property
    def replicas(self) -> int:
        """Total number of replicas."""
        return self.needed + self.spare

    @property
    def used_gpus(self) -> int:
        """GPUs that replicas hold."""
        return self.replicas * self.gpus_per_replica

    @property
    def stranded_gpus(self) -> int:
        """GPUs of the nodes that are too few to hold another replica, on full nodes."""
        return (self.gpus_per_node - self.per_node * self.gpus_per_replica) * (self.replicas // self.per_node)

    @property
    def idle_gpus(self) -> int:
        """Number of GPUs of the nodes that no replica holds, including the stranded ones."""
        return self.nodes * self.gpus_per_node - self.used_gpus

    def explain_plan(self) -> list[str]:
        """The way from GPUs to nodes in sentences."""
        spare = f" and {self.spare} spare" if self.spare else ", none spare"
        lines = [
            f"{self.gpus} GPUs -> {self.needed} replicas of {self.gpus_per_replica}{spare}: {self.replicas} replicas",
            f"{self.per_node} replicas on a node of {self.gpus_per_node} GPUs -> {self.nodes} nodes, "
            f"{self.idle_gpus} of their {self.nodes * self.gpus_per_node} GPUs unused",
        ]
        if self.stranded_gpus:
            lines[-1] += f" ({self.stranded_gpus} of these too few on their node for a replica)"
        return lines


def plan_replicas(
    gpus: int, *, gpus_per_replica: int = 1, gpus_per_node: int = 8, spare: int = 1, survive_node: bool = False
) -> ReplicaPlan:
    """How many replicas and nodes do this many GPUs come to?

    `gpus_per_replica`: GPUs that one copy of the model spans: tensor times pipeline parallelism.
    `spare`: Replicas that may be missing while the load is still carried; 1 is N+1.

    >>> found = plan_replicas(14, gpus_per_replica=3, gpus_per_node=8)
    >>> found.needed, found.replicas, found.per_node, found.nodes, found.idle_gpus
    (5, 6, 2, 3, 6)
    """
    for name, value, least in (
        ("gpus", gpus, 1),
        ("gpus_per_replica", gpus_per_replica, 1),
        ("gpus_per_node", gpus_per_node, 1),
        ("spare", spare, 0),
    ):
        if value < least:
            raise ConfigError("too small", where=name, found=value, allowed=f"{least} or more")
    per_node = gpus_per_node // gpus_per_replica
    if not per_node:
        raise ConfigError(
            "a replica does not fit on a node",
            where="gpus_per_replica",
            found=gpus_per_replica,
            allowed=f"up to {gpus_per_node}",
            do="lay such replicas over several nodes by a LeaderWorkerSet, which is not written here",
        )
    needed = math.ceil(gpus / gpus_per_replica)
    spare = max(spare, per_node) if survive_node else spare
    nodes = math.ceil((needed + spare) / per_node)
    return ReplicaPlan(gpus, gpus_per_replica, gpus_per_node, needed, spare, per_node, nodes)


@dataclass(frozen=True)
class DeploymentSize:
    """GPUs for the load; requests in flight that a replica carries within the target, null when unknown."""

    gpus: int
    in_flight: float | None
    notes: list[str] = field(default_factory=list)


def size_deployment(
    sweep: Path | None, gpus: int | None, gpus_per_replica: int, in_flight: float | None
) -> DeploymentSize:
    """Determine what is to be deployed."""
    if in_flight is not None and in_flight <= 0:
        raise ConfigError("too small", where="--in-flight", found=in_flight, allowed="more than 0")
    if sweep is None:
        if gpus is None:
            raise ConfigError("nothing says how many GPUs", do="give the folder of a sweep, or --gpus N")
        return DeploymentSize(gpus, in_flight, [f"{gpus} GPUs as given."])
    binding, points, notes = _load_binding_estimate(sweep, partly=gpus is not None)
    if binding["test_gpus"] % gpus_per_replica:
        raise ConfigError(
            "the sweep did not run on whole replicas",
            where="--gpus-per-replica",
            found=f"{gpus_per_replica}; measured on {binding['test_gpus']} GPUs",
            do="measure on a multiple of a replica's GPUs",
        )
    carried = in_flight if in_flight is not None else estimate_in_flight_per_replica(binding, points, gpus_per_replica)
    return DeploymentSize(
        gpus or int(binding["recommended"]), carried, [*_format_recommendation_notes(binding, gpus), *notes]
    )


def _load_binding_estimate(sweep: Path, *, partly: bool) -> tuple[dict[str, Any], pl.DataFrame, list[str]]:
    """Load the estimate that asks for most GPUs, the points it rests on, and notes on the verification.

    A target without an answer may need more than all others: refused, unless the user names the GPUs.
    """
    from workbench.runs import run_folder
    from workbench.sizing.estimation import sweep_store
    from workbench.sizing.tables import POINTS, VERIFICATION

    rows = list(sweep_store.read_estimates(sweep).iter_rows(named=True))
    answered = [row for row in rows if row["recommended"] is not None]
    if not answered or (len(answered) < len(rows) and not partly):
        raise InputError(
            "a target has no answer" if answered else "no estimate with an answer",
            where=sweep,
            found=[f"{row['target']}: {row['reason'] or row['verdict']}" for row in rows if row not in answered],
            do="measure the levels that it names, or give --gpus N",
        )
    run = run_folder.load_run(sweep)
    notes = []
    if VERIFICATION.path(run.tables_folder).is_file():
        notes = [_format_verification_note(row) for row in run.read_table(VERIFICATION).iter_rows(named=True)]
    return max(answered, key=lambda row: (row["recommended"], row["gpus"] or 0)), run.read_table(POINTS), notes


def estimate_in_flight_per_replica(
    binding: dict[str, Any], points: pl.DataFrame, gpus_per_replica: int
) -> float | None:
    """Requests in flight per replica at the capacity: measured ones, since a load may count arrivals or thinkers.

    `binding`: The row of `estimates` that asks for most GPUs. `points`: Table `points`, interpolated between its loads.

    >>> import polars as pl
    >>> points = pl.DataFrame({"n_ok": [900, 900], "gpus": [2, 2], "load": [10.0, 20.0], "in_flight": [8.0, 18.0]})
    >>> estimate_in_flight_per_replica({"test_gpus": 2, "capacity": 15.0, "capacity_low": None}, points, 1)
    6.5
    """
    rows = points.filter((points["n_ok"] > 0) & (points["gpus"] == binding["test_gpus"])).sort("load")
    capacity = binding["capacity_low"] if binding["capacity_low"] is not None else binding["capacity"]
    if capacity is None or not rows.height:
        return None
    loads = np.concatenate([[0.0], rows["load"].to_numpy()])
    flying = np.concatenate([[0.0], rows["in_flight"].to_numpy()])
    replicas = int(binding["test_gpus"]) // gpus_per_replica
    return float(np.interp(capacity, loads, flying)) / replicas


def _format_verification_note(row: dict[str, Any]) -> str:
    gpus = f"{row['predicted_gpus']} GPU{'' if row['predicted_gpus'] == 1 else 's'}"
    text = f"Verification of {row['target']}, {gpus} for {_format_load(row)}: {row['verdict']}"
    return f"{text} ({row['reason']})." if row["reason"] else f"{text}."


def _format_load(row: dict[str, Any]) -> str:
    return f"{row['load']:g} {'users' if row['load_unit'] == 'users' else 'arrivals a second'}"


def _format_recommendation_notes(binding: dict[str, Any], gpus: int | None) -> list[str]:
    answer = f"{binding['target']} for {_format_load(binding)}: {binding['recommended']} GPUs recommended"
    notes = [f"{answer} ({binding['verdict']}).", *([] if gpus is None else [f"{gpus} GPUs as given instead."])]
    if binding["reason"]:
        notes.append(binding["reason"])
    return notes
