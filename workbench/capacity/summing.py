"""Draws summed up: P5, P50 and P95 by hour and over the day, and where the peak is."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.model import Model, Outcome
from workbench.capacity.quantity import Floats
from workbench.capacity.tables import DAY, HOURS_TABLE

SHARES = (0.05, 0.5, 0.95)
NAMES = ("p5", "p50", "p95")
GPUS, SPARK_GPUS, SERVICE_GPUS, NODES = "GPUs at the peak", "Spark GPUs at their peak", "service GPUs", "nodes"
COST_SCALED, COST_FIXED, PODS = "cost, scaled by the hour", "cost, fixed at the peak", "pods a second at their peak"


def quantiles(values: Any) -> Any:
    """P5, P50 and P95 along the first axis: values that were drawn, so that nodes stay whole.

    The smallest value that so large a share of the draws does not exceed (Hyndman and Fan 1996, type 1).
    """
    return np.quantile(np.asarray(values, dtype=np.float64), SHARES, axis=0, method="inverted_cdf")


def peak_hour(outcome: Outcome) -> int:
    """The hour with the most nodes at P50; of several the one with the most GPUs, then the first."""
    nodes, gpus = quantiles(outcome.nodes)[1], quantiles(outcome.gpus)[1]
    return int(np.lexsort((np.arange(24), -gpus, -nodes))[0])


def hours(model: Model, outcome: Outcome) -> pl.DataFrame:
    """Table HOURS_TABLE."""
    columns: dict[str, list[Any]] = {"hour": list(range(24))}
    columns["jobs"] = sum(work.per_hour for work in model.works).tolist() if model.works else [None] * 24  # type: ignore[union-attr]
    columns["load"] = model.serving.load.tolist() if model.serving else [None] * 24
    spread = {
        "spark_gpus": outcome.spark_gpus,
        "replicas": outcome.replicas,
        "service_gpus": outcome.service_gpus,
        "gpus": outcome.gpus,
        "nodes": outcome.nodes,
        "cost": outcome.cost_by_hour,
    }
    for name, values in spread.items():
        found = [[None] * 24] * 3 if values is None else quantiles(values).tolist()
        columns |= {f"{name}_{share}": row for share, row in zip(NAMES, found, strict=True)}
    columns["capacity_gpus"] = [nodes * model.node_gpus for nodes in columns["nodes_p50"]]
    columns["pods_per_s_p95"] = quantiles(outcome.pods_per_s)[2].tolist()
    return HOURS_TABLE.frame(columns)


def day(outcome: Outcome) -> pl.DataFrame:
    """Table DAY: the largest of each draw's hours, and what a day costs."""
    figures: list[tuple[str, str, Floats | None]] = [
        (GPUS, "GPUs", outcome.gpus.max(axis=1)),
        (SPARK_GPUS, "GPUs", None if outcome.spark_gpus is None else outcome.spark_gpus.max(axis=1)),
        (SERVICE_GPUS, "GPUs", None if outcome.service_gpus is None else outcome.service_gpus.max(axis=1)),
        (NODES, "nodes", outcome.nodes.max(axis=1).astype(np.float64)),
        (COST_SCALED, "a day", outcome.cost_scaled),
        (COST_FIXED, "a day", outcome.cost_fixed),
        (PODS, "pods/s", outcome.pods_per_s.max(axis=1)),
    ]
    rows = [
        {"figure": name, "unit": unit, **dict(zip(NAMES, quantiles(values).tolist(), strict=True))}
        for name, unit, values in figures
        if values is not None
    ]
    return DAY.frame(rows)
