"""The peak: quantiles by hour, binding constraint, sensitivity to inputs, what-if loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.config import HOURS_PER_DAY
from workbench.capacity.inputs import Scheduler
from workbench.capacity.model import Floats, Model, Outcome, evaluate_model, pack_first_fit
from workbench.capacity.tables import CONSTRAINTS, DAY, HOURS_TABLE, TORNADO, WHAT_IF
from workbench.core.formats import format_cost_unit, format_number

QUANTILE_FRACTIONS = (0.05, 0.5, 0.95)
QUANTILE_NAMES = ("p5", "p50", "p95")
GPUS, SPARK_GPUS, SERVICE_GPUS, NODES = "GPUs at the peak", "Spark GPUs at their peak", "service GPUs", "nodes"
COST_SCALED, COST_FIXED, PODS = "cost, scaled by the hour", "cost, fixed at the peak", "pods a second at their peak"
WHAT_IF_PERCENTS = tuple(range(50, 201, 25))
SPARK, SERVICE, PACKING, RATE = "Spark work", "service replicas", "packing", "the scheduler's rate"
SUSTAINED, NOT_SUSTAINED, NOT_MEASURED = "sustained", "not sustained", "not measured"


def compute_quantiles(values: Any) -> Any:
    """P5, P50 and P95 along the first axis, each a value that was drawn, so that nodes stay whole.

    This is the smallest value that this share of the draws does not exceed (Hyndman and Fan 1996, type 1).

    >>> compute_quantiles(np.arange(101)).tolist()
    [5.0, 50.0, 95.0]
    """
    return np.quantile(np.asarray(values, dtype=np.float64), QUANTILE_FRACTIONS, axis=0, method="inverted_cdf")


def find_peak_hour(outcome: Outcome) -> int:
    """Find the hour with the most nodes at P50; ties go to the most GPUs, then to the first hour."""
    nodes, gpus = compute_quantiles(outcome.nodes)[1], compute_quantiles(outcome.gpus)[1]
    return int(np.lexsort((np.arange(HOURS_PER_DAY), -gpus, -nodes))[0])


def build_hours(model: Model, outcome: Outcome) -> pl.DataFrame:
    """Table HOURS_TABLE."""
    columns: dict[str, list[Any]] = {"hour": list(range(HOURS_PER_DAY))}
    columns["jobs"] = sum(work.per_hour for work in model.works).tolist() if model.works else [None] * HOURS_PER_DAY  # type: ignore[union-attr]
    columns["load"] = model.serving.load.tolist() if model.serving else [None] * HOURS_PER_DAY
    spread = {
        "spark_gpus": outcome.spark_gpus,
        "replicas": outcome.replicas,
        "service_gpus": outcome.service_gpus,
        "gpus": outcome.gpus,
        "nodes": outcome.nodes,
        "cost": outcome.cost_by_hour,
    }
    for name, values in spread.items():
        quantiles = [[None] * HOURS_PER_DAY] * 3 if values is None else compute_quantiles(values).tolist()
        columns |= {f"{name}_{share}": row for share, row in zip(QUANTILE_NAMES, quantiles, strict=True)}
    columns["capacity_gpus"] = [nodes * model.node_gpus for nodes in columns["nodes_p50"]]
    # Columns by hour: GPUs that no job or replica holds, as means over the draws, and their cost with each node count.
    # A job holds its GPUs while it runs, so that the margin of the utilisation target is idle, too.
    parts = [
        None if outcome.spark_gpus is None else outcome.spark_gpus * model.utilisation,
        outcome.service_gpus,
    ]
    busy = sum((part for part in parts if part is not None), np.zeros(outcome.nodes.shape))
    peak = np.broadcast_to(outcome.nodes.max(axis=1, keepdims=True), outcome.nodes.shape)
    hourly, fixed = ((nodes * model.node_gpus - busy).mean(axis=0) for nodes in (outcome.nodes, peak))
    price = None if model.node_price_per_h is None else model.node_price_per_h / model.node_gpus
    costs = ([None] * HOURS_PER_DAY if price is None else (gpus * price).tolist() for gpus in (hourly, fixed))
    idle_columns = dict(zip(("idle_gpus", "idle_cost", "idle_cost_fixed"), (hourly.tolist(), *costs), strict=True))
    columns |= idle_columns
    columns["pods_per_s_p95"] = compute_quantiles(outcome.pods_per_s)[2].tolist()
    return HOURS_TABLE.frame(columns)


def build_day(outcome: Outcome, currency: str = "") -> pl.DataFrame:
    """Table DAY: the maximum over the hours of each draw, and the cost of the day."""
    figures: list[tuple[str, str, Floats | None]] = [
        (GPUS, "GPUs", outcome.gpus.max(axis=1)),
        (SPARK_GPUS, "GPUs", None if outcome.spark_gpus is None else outcome.spark_gpus.max(axis=1)),
        (SERVICE_GPUS, "GPUs", None if outcome.service_gpus is None else outcome.service_gpus.max(axis=1)),
        (NODES, "nodes", outcome.nodes.max(axis=1).astype(np.float64)),
        (COST_SCALED, format_cost_unit(currency, "a day"), outcome.cost_scaled),
        (COST_FIXED, format_cost_unit(currency, "a day"), outcome.cost_fixed),
        (PODS, "pods/s", outcome.pods_per_s.max(axis=1)),
    ]
    rows = [
        {"figure": name, "unit": unit, **dict(zip(QUANTILE_NAMES, compute_quantiles(values).tolist(), strict=True))}
        for name, unit, values in figures
        if values is not None
    ]
    return DAY.frame(rows)


def classify_scheduler_rate(scheduler: Scheduler | None, pods_per_s: float) -> str:
    """Whether the scheduler sustains this pod rate: sustained, not sustained, or not measured.

    >>> classify_scheduler_rate(None, 1.0)
    'not measured'
    """
    if scheduler is None or scheduler.low_per_s is None:
        return NOT_MEASURED
    return SUSTAINED if pods_per_s <= scheduler.low_per_s else NOT_SUSTAINED


def build_constraints(
    model: Model, median: Outcome, hour: int, scheduler: Scheduler | None, pods_per_s: float
) -> pl.DataFrame:
    """Demand of each constraint at an hour, and the nodes without it.

    `model`, `median`: The model, and its outcome with every input at its median (one draw).
    `scheduler`, `pods_per_s`: The sustained rate, and the P95 of the pod rate at the worst time.

    Returns: Table CONSTRAINTS. A rate that is not sustained always binds, because more nodes do not help. Otherwise
    the constraint binds without which the most nodes are saved; ties go to the larger demand. Packing: GPUs of the
    nodes that no job or replica uses, because whole jobs and replicas must fit.
    """
    rows = [
        *_build_work_constraints(model, median, hour),
        _build_packing_constraint(model, median, hour),
        _build_rate_constraint(scheduler, pods_per_s),
    ]
    if classify_scheduler_rate(scheduler, pods_per_s) == NOT_SUSTAINED:
        chosen = RATE
    else:
        saving = [row for row in rows if row["nodes_saved"]]
        saving.sort(key=lambda row: (-row["nodes_saved"], -row["figure"]))
        chosen = saving[0]["constraint"] if saving else ""
    return CONSTRAINTS.frame([row | {"binding": row["constraint"] == chosen} for row in rows])


def _build_work_constraints(model: Model, median: Outcome, hour: int) -> list[dict[str, Any]]:
    """Rows of the constraints Spark and service at the peak hour.

    `median` is the outcome with all inputs at their value.
    """
    at = f"{hour:02d}:00"
    constraints = []
    if median.spark_gpus is not None:
        largest = max(model.works, key=lambda work: median.slots[work.name][0, hour] * work.gpus)
        target = f"{model.utilisation:g}"
        relief = f"move jobs of {largest.name} out of {at}, shorten them, or raise the utilisation above {target}"
        constraints.append(_build_constraint(model, median, hour, SPARK, median.spark_gpus[0, hour], relief))
    if median.service_gpus is not None and model.serving is not None:
        carried = f"{format_number(model.serving.per_replica.value)} {model.serving.per_replica.unit}"
        relief = (
            f"raise the capacity of a replica above {carried} (faster model, longer limit), or reduce the load at {at}"
        )
        constraints.append(_build_constraint(model, median, hour, SERVICE, median.service_gpus[0, hour], relief))
    return constraints


def _build_constraint(model: Model, median: Outcome, hour: int, name: str, gpus: float, relief: str) -> dict[str, Any]:
    """Row of table CONSTRAINTS: the GPUs of one kind of work, and the nodes saved if it were absent at that hour."""
    nodes = int(median.nodes[0, hour])
    spark = name != SPARK
    service = name != SERVICE
    shapes = [(work.gpus, int(median.slots[work.name][0, hour])) for work in model.works if spark]
    if service and model.serving is not None and median.replicas is not None:
        shapes.append((model.serving.gpus, int(median.replicas[0, hour])))
    if not shapes:
        without = 0
    else:
        counts = np.array([[count for _, count in shapes]])
        without = int(pack_first_fit(counts, [size for size, _ in shapes], model.node_gpus, spanning=model.spanning)[0])
    return {
        "constraint": name,
        "figure": float(gpus),
        "unit": "GPUs",
        "nodes_without": without,
        "nodes_saved": nodes - without,
        "relief": relief,
    }


def _build_packing_constraint(model: Model, median: Outcome, hour: int) -> dict[str, Any]:
    """Row of table CONSTRAINTS: the GPUs that stay idle because jobs do not fill whole nodes."""
    nodes, gpus = int(median.nodes[0, hour]), float(median.gpus[0, hour])
    least = int(np.ceil(gpus / model.node_gpus - 1e-9))
    sizes = sorted({work.gpus for work in model.works} | ({model.serving.gpus} if model.serving else set()))
    relief = (
        f"use smaller shapes than {', '.join(map(str, sizes))} GPUs, or nodes of another size than {model.node_gpus}"
    )
    return {
        "constraint": PACKING,
        "figure": nodes * model.node_gpus - gpus,
        "unit": "GPUs",
        "nodes_without": min(least, nodes),
        "nodes_saved": max(0, nodes - least),
        "relief": relief,
    }


def _build_rate_constraint(scheduler: Scheduler | None, pods_per_s: float) -> dict[str, Any]:
    """Row of table CONSTRAINTS for the scheduler; `pods_per_s` is the rate that the plan needs."""
    verdict = classify_scheduler_rate(scheduler, pods_per_s)
    relief = "spread arrivals over more of the hour, or use fewer pods per job"
    better = [] if scheduler is None else [other for other in scheduler.others if other[1] >= pods_per_s]
    if verdict == NOT_MEASURED:
        relief = "measure it: workbench scaletest run, with these arrivals"
    elif verdict == NOT_SUSTAINED and better:
        name, rate = max(better, key=lambda other: other[1])
        relief = f"{relief}; or another scheduler: {name} sustained {format_number(rate)} pods/s in the same test"
    elif verdict == SUSTAINED:
        relief = "none is needed: the scheduler keeps up"
    return {
        "constraint": RATE,
        "figure": float(pods_per_s),
        "unit": "pods/s",
        "nodes_without": None,
        "nodes_saved": None,
        "relief": relief,
    }


def build_tornado(model: Model) -> pl.DataFrame:
    """Effect of each input alone on the plan.

    Returns: Table TORNADO, without inputs that are points. Swings do not add up, because nodes and replicas are
    whole.
    """
    middle = evaluate_model(model, model.medians)
    rows = []
    for quantity in model.quantities:
        if quantity.is_point:
            continue
        ends = [quantity.quantile(share) for share in (0.05, 0.95)]
        low, high = (evaluate_model(model, model.medians | {quantity.name: np.array([end])}) for end in ends)
        rows.append(
            {
                "input": quantity.name,
                "input_p5": ends[0],
                "input_p95": ends[1],
                "unit": quantity.unit,
                "gpus_median": _peak_gpus(middle),
                "swing_gpus": abs(_peak_gpus(high) - _peak_gpus(low)),
                **_build_end_figures(low, "p5"),
                **_build_end_figures(high, "p95"),
            }
        )
    return TORNADO.frame(rows).sort("swing_gpus", "input", descending=[True, False])


def _peak_gpus(outcome: Outcome) -> float:
    return float(outcome.gpus.max())


def _build_end_figures(outcome: Outcome, end: str) -> dict[str, Any]:
    cost = outcome.cost_scaled
    return {
        f"gpus_at_{end}": _peak_gpus(outcome),
        f"nodes_at_{end}": int(outcome.nodes.max()),
        f"cost_at_{end}": None if cost is None else float(cost[0]),
    }


def build_what_if(model: Model) -> pl.DataFrame:
    """GPUs and nodes by hour with half to twice the jobs and the users, every input at its median.

    Returns: Table WHAT_IF; only 100 % for jobs or users that are not covered.
    """
    rows: list[dict[str, Any]] = []
    for jobs in WHAT_IF_PERCENTS if model.works else (100,):
        for users in WHAT_IF_PERCENTS if model.serving else (100,):
            outcome = evaluate_model(_scale_loads(model, jobs / 100, users / 100), model.medians)
            rows += [
                {
                    "jobs_percent": jobs,
                    "users_percent": users,
                    "hour": hour,
                    "gpus": float(outcome.gpus[0, hour]),
                    "nodes": int(outcome.nodes[0, hour]),
                    "capacity_gpus": float(outcome.nodes[0, hour] * model.node_gpus),
                }
                for hour in range(HOURS_PER_DAY)
            ]
    return WHAT_IF.frame(rows)


def _scale_loads(model: Model, jobs: float, users: float) -> Model:
    works = tuple(replace(work, per_hour=work.per_hour * jobs) for work in model.works)
    serving = None if model.serving is None else replace(model.serving, load=model.serving.load * users)
    return replace(model, works=works, serving=serving)
