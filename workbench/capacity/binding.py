"""Which constraint decides at the peak, and what would relax it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.inputs import Scheduler
from workbench.capacity.model import Model, Outcome
from workbench.capacity.packing import first_fit
from workbench.capacity.tables import CONSTRAINTS
from workbench.formats import number

SPARK, SERVICE, PACKING, RATE = "Spark work", "service replicas", "packing", "the scheduler's rate"
SUSTAINED, NOT_SUSTAINED, NOT_MEASURED = "sustained", "not sustained", "not measured"


def kept_up(scheduler: Scheduler | None, pods_per_s: float) -> str:
    """Does the scheduler sustain so many pods a second: sustained, not sustained, or not measured.

    Examples
    --------
    >>> kept_up(None, 1.0)
    'not measured'
    """
    if scheduler is None or scheduler.low_per_s is None:
        return NOT_MEASURED
    return SUSTAINED if pods_per_s <= scheduler.low_per_s else NOT_SUSTAINED


def constraints(
    model: Model, median: Outcome, hour: int, scheduler: Scheduler | None, pods_per_s: float
) -> pl.DataFrame:
    """What each constraint asks for at an hour, and how many nodes there would be without it.

    Parameters
    ----------
    model, median
        What is planned, and its outcome with every input at its median (one draw).
    hour
        The peak hour.
    scheduler, pods_per_s
        The rate that is sustained, and the P95 of what arrives at its worst.

    Returns
    -------
    DataFrame
        Table CONSTRAINTS. A rate that is not sustained binds before all: more nodes do not help then. Else it is the
        constraint without which most nodes would be saved; where two are alike, the one that asks for more GPUs.
        Packing: GPUs of the nodes that neither work nor replicas ask for, because whole jobs and replicas must fit.
    """
    rows = [*_of_work(model, median, hour), _of_packing(model, median, hour), _of_rate(scheduler, pods_per_s)]
    if kept_up(scheduler, pods_per_s) == NOT_SUSTAINED:
        chosen = RATE
    else:
        asking = [row for row in rows if row["nodes_saved"]]
        asking.sort(key=lambda row: (-row["nodes_saved"], -row["figure"]))
        chosen = asking[0]["constraint"] if asking else ""
    return CONSTRAINTS.frame([row | {"binding": row["constraint"] == chosen} for row in rows])


def _of_work(model: Model, median: Outcome, hour: int) -> list[dict[str, Any]]:
    at = f"{hour:02d}:00"
    found = []
    if median.spark_gpus is not None:
        largest = max(model.works, key=lambda work: median.slots[work.name][0, hour] * work.gpus)
        relief = (
            f"move jobs of {largest.name} out of {at}, shorter jobs, or a higher utilisation than {model.utilisation:g}"
        )
        found.append(_row(model, median, hour, SPARK, median.spark_gpus[0, hour], relief))
    if median.service_gpus is not None and model.serving is not None:
        carried = f"{number(model.serving.per_replica.value)} {model.serving.per_replica.unit}"
        relief = f"more than {carried} on a replica (a faster model, a longer limit), or fewer of them at {at}"
        found.append(_row(model, median, hour, SERVICE, median.service_gpus[0, hour], relief))
    return found


def _row(model: Model, median: Outcome, hour: int, name: str, gpus: float, relief: str) -> dict[str, Any]:
    nodes = int(median.nodes[0, hour])
    without = _nodes(model, median, hour, spark=name != SPARK, service=name != SERVICE)
    return {
        "constraint": name,
        "figure": float(gpus),
        "unit": "GPUs",
        "nodes_without": without,
        "nodes_saved": nodes - without,
        "relief": relief,
    }


def _nodes(model: Model, median: Outcome, hour: int, *, spark: bool, service: bool) -> int:
    shapes = [(work.gpus, int(median.slots[work.name][0, hour])) for work in model.works if spark]
    if service and model.serving is not None and median.replicas is not None:
        shapes.append((model.serving.gpus, int(median.replicas[0, hour])))
    if not shapes:
        return 0
    counts = np.array([[count for _, count in shapes]])
    return int(first_fit(counts, [size for size, _ in shapes], model.node_gpus, spanning=model.spanning)[0])


def _of_packing(model: Model, median: Outcome, hour: int) -> dict[str, Any]:
    nodes, gpus = int(median.nodes[0, hour]), float(median.gpus[0, hour])
    least = int(np.ceil(gpus / model.node_gpus - 1e-9))
    sizes = sorted({work.gpus for work in model.works} | ({model.serving.gpus} if model.serving else set()))
    relief = f"smaller shapes than {', '.join(map(str, sizes))} GPUs, or nodes of another size than {model.node_gpus}"
    return {
        "constraint": PACKING,
        "figure": nodes * model.node_gpus - gpus,
        "unit": "GPUs",
        "nodes_without": min(least, nodes),
        "nodes_saved": max(0, nodes - least),
        "relief": relief,
    }


def _of_rate(scheduler: Scheduler | None, pods_per_s: float) -> dict[str, Any]:
    relief = "arrivals spread over more of the hour, fewer pods for a job, or another scheduler"
    if kept_up(scheduler, pods_per_s) == NOT_MEASURED:
        relief = "not measured: workbench scaletest run, with these arrivals"
    return {
        "constraint": RATE,
        "figure": float(pods_per_s),
        "unit": "pods/s",
        "nodes_without": None,
        "nodes_saved": None,
        "relief": relief,
    }
