"""Invariants of a plan: each compares two independent ways to compute the same figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workbench.capacity import peak
from workbench.report.invariants import check_invariants

if TYPE_CHECKING:
    from workbench.capacity.study import Study

# Allowed deviation of the share of draws in an interval from its level; exceeded by chance once in 10^6 cases.
MAX_STANDARD_ERRORS = 4.9
# Smallest relative width of an interval's side that is more than rounding.
MIN_INTERVAL_WIDTH = 1e-9


def check_plan(plan_study: Study) -> pl.DataFrame:
    """Check draws against their intervals, nodes against their content, costs, and the order of quantiles."""
    return check_invariants(
        [
            *_check_draws(plan_study),
            *_check_nodes(plan_study),
            *_check_work(plan_study),
            *_check_costs(plan_study),
            *_check_quantiles(plan_study),
        ]
    )


def _check_draws(found: Study) -> list[tuple[str, float, float]]:
    """The share of draws in each input's interval matches its level."""
    rows = []
    for one in found.model.quantities:
        if one.low is None or one.high is None:
            continue
        values = found.given[one.name]
        sides = []
        if one.value - one.low > MIN_INTERVAL_WIDTH * one.value:
            sides.append(values < one.low)
        if one.high - one.value > MIN_INTERVAL_WIDTH * one.value:
            sides.append(values > one.high)
        if not sides:
            continue
        level = one.level if len(sides) == 2 else (1 + one.level) / 2
        inside = 1 - float(np.any(sides, axis=0).mean())
        allowed = MAX_STANDARD_ERRORS * math.sqrt(level * (1 - level) / len(values))
        rows.append(
            (f"share of draws of {one.name} in its interval, distance from its level", abs(inside - level), allowed)
        )
    return rows


def _sum_shape_gpus(found: Study) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """GPUs of whole jobs and replicas."""
    total = np.zeros(found.outcome.nodes.shape)
    for work in found.model.works:
        total += found.outcome.slots[work.name] * float(work.gpus)
    return total if found.outcome.service_gpus is None else total + found.outcome.service_gpus


def _check_nodes(found: Study) -> list[tuple[str, float]]:
    packed, node = _sum_shape_gpus(found), found.model.node_gpus
    nodes = found.outcome.nodes
    fits = all(work.gpus <= node for work in found.model.works)
    fits &= found.model.serving is None or found.model.serving.gpus <= node
    # First fit never leaves two nodes at most half full.
    wasted = (nodes * node > 2 * packed + node) & fits
    return [
        ("hours whose nodes are too small for their content", float((nodes * node < packed).sum())),
        ("hours with more than twice the number of full nodes", float(wasted.sum())),
    ]


def _check_work(found: Study) -> list[tuple[str, float, float]]:
    """The median's Spark GPUs by the guide's formula, and its replicas against their load, from the tables."""
    rows: list[tuple[str, float, float]] = []
    values = dict(found.sources.select("input", "value").iter_rows())
    if found.median.spark_gpus is not None:
        ratio = found.model.stack.value if found.model.stack is not None else 1.0
        hour = found.peak_hour
        demand = math.fsum(
            one.per_hour[hour]
            * values[work.duration.name]
            / 3600
            * one.gpus
            * _remaining_fraction(one.stack_share, ratio)
            for one, work in zip(found.config.job_classes, found.model.works, strict=True)
        )
        gpus = float(found.median.spark_gpus[0, hour])
        rows.append(
            (
                "Spark GPUs at the peak hour, distance from their formula",
                abs(demand / found.config.utilisation - gpus),
                1e-6,
            )
        )
    if found.median.replicas is not None and found.model.serving is not None:
        ratio = found.model.stack.value if found.model.stack is not None else 1.0
        one = found.model.serving.per_replica.value / _remaining_fraction(found.model.serving.stack_share, ratio)
        over = found.model.serving.load - found.model.serving.sum_replica_capacity(found.median.replicas[0]) * one
        rows.append(("users beyond the capacity of the median's replicas", float(over.max()), 1e-6 * one))
    return rows


def _remaining_fraction(share: float, ratio: float) -> float:
    return 1 - share + share / ratio


def _check_costs(found: Study) -> list[tuple[str, float]]:
    scaled, fixed = found.outcome.cost_scaled, found.outcome.cost_fixed
    if scaled is None or fixed is None:
        return []
    return [("draws with a higher scaled than fixed cost", float((scaled > fixed * (1 + 1e-12)).sum()))]


def _check_quantiles(found: Study) -> list[tuple[str, float]]:
    day = found.day.filter((pl.col("p5") > pl.col("p50")) | (pl.col("p50") > pl.col("p95"))).height
    gpus, nodes = found.get_figure(peak.GPUS), found.get_figure(peak.NODES)
    over = sum(gpus[share] > nodes[share] * found.model.node_gpus + 1e-9 for share in ("p5", "p50", "p95"))
    return [
        ("figures whose P5, P50 and P95 are out of order", day),
        ("quantiles of GPUs above those of the nodes", over),
    ]
