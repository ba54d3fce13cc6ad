"""Invariants of a plan: each compares two independent ways to compute the same figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workbench.capacity import peak
from workbench.report.study import check_invariants

if TYPE_CHECKING:
    from workbench.capacity.capacity_plan import Plan

# Allowed deviation of the share of draws in an interval from its level; exceeded by chance once in 10^6 cases.
MAX_STANDARD_ERRORS = 4.9
# Smallest relative width of an interval's side that is more than rounding.
MIN_INTERVAL_WIDTH = 1e-9


def check_plan(plan_study: Plan) -> pl.DataFrame:
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


def _check_draws(study: Plan) -> list[tuple[str, float, float]]:
    """Compare the share of draws inside each input's interval with its level: rule, distance found and allowed."""
    rows = []
    for quantity in study.model.quantities:
        if quantity.low is None or quantity.high is None:
            continue
        values = study.given[quantity.name]
        sides = []
        if quantity.value - quantity.low > MIN_INTERVAL_WIDTH * quantity.value:
            sides.append(values < quantity.low)
        if quantity.high - quantity.value > MIN_INTERVAL_WIDTH * quantity.value:
            sides.append(values > quantity.high)
        if not sides:
            continue
        level = quantity.level if len(sides) == 2 else (1 + quantity.level) / 2
        inside = 1 - float(np.any(sides, axis=0).mean())
        allowed = MAX_STANDARD_ERRORS * math.sqrt(level * (1 - level) / len(values))
        rows.append(
            (
                f"share of draws of {quantity.name} in its interval, distance from its level",
                abs(inside - level),
                allowed,
            )
        )
    return rows


def _check_nodes(study: Plan) -> list[tuple[str, float]]:
    """Count the hours whose number of nodes cannot be right: pairs of rule and count."""
    # GPUs of whole jobs and replicas.
    total = np.zeros(study.outcome.nodes.shape)
    for work in study.model.works:
        total += study.outcome.slots[work.name] * float(work.gpus)
    shape_gpus = total if study.outcome.service_gpus is None else total + study.outcome.service_gpus
    packed, node = shape_gpus, study.model.node_gpus
    nodes = study.outcome.nodes
    fits = all(work.gpus <= node for work in study.model.works)
    fits &= study.model.serving is None or study.model.serving.gpus <= node
    # First fit never leaves two nodes at most half full.
    wasted = (nodes * node > 2 * packed + node) & fits
    return [
        ("hours whose nodes are too small for their content", float((nodes * node < packed).sum())),
        ("hours with more than twice the number of full nodes", float(wasted.sum())),
    ]


def _check_work(study: Plan) -> list[tuple[str, float, float]]:
    """Recompute the median's Spark GPUs by the guide's formula, and compare its replicas with their load.

    Returns: Rule, deviation found, deviation allowed.
    """
    rows: list[tuple[str, float, float]] = []
    values = dict(study.sources.select("input", "value").iter_rows())
    if study.median.spark_gpus is not None:
        ratio = study.model.stack.value if study.model.stack is not None else 1.0
        hour = study.peak_hour
        demand = math.fsum(
            job_class.per_hour[hour]
            * values[work.duration.name]
            / 3600
            * job_class.gpus
            * _remaining_fraction(job_class.stack_share, ratio)
            for job_class, work in zip(study.config.job_classes, study.model.works, strict=True)
        )
        gpus = float(study.median.spark_gpus[0, hour])
        rows.append(
            (
                "Spark GPUs at the peak hour, distance from their formula",
                abs(demand / study.config.utilisation - gpus),
                1e-6,
            )
        )
    if study.median.replicas is not None and study.model.serving is not None:
        ratio = study.model.stack.value if study.model.stack is not None else 1.0
        capacity = study.model.serving.per_replica.value / _remaining_fraction(study.model.serving.stack_share, ratio)
        over = study.model.serving.load - study.model.serving.sum_replica_capacity(study.median.replicas[0]) * capacity
        rows.append(("users beyond the capacity of the median's replicas", float(over.max()), 1e-6 * capacity))
    return rows


def _remaining_fraction(share: float, ratio: float) -> float:
    return 1 - share + share / ratio


def _check_costs(study: Plan) -> list[tuple[str, float]]:
    """Count draws in which scaling costs more than a fixed cluster: pairs of rule and count; empty without prices."""
    scaled, fixed = study.outcome.cost_scaled, study.outcome.cost_fixed
    if scaled is None or fixed is None:
        return []
    return [("draws with a higher scaled than fixed cost", float((scaled > fixed * (1 + 1e-12)).sum()))]


def _check_quantiles(study: Plan) -> list[tuple[str, float]]:
    """Count the quantiles that are out of order: pairs of rule and count."""
    day = study.day.filter((pl.col("p5") > pl.col("p50")) | (pl.col("p50") > pl.col("p95"))).height
    gpus, nodes = study.get_figure(peak.GPUS), study.get_figure(peak.NODES)
    over = sum(gpus[share] > nodes[share] * study.model.node_gpus + 1e-9 for share in ("p5", "p50", "p95"))
    return [
        ("figures whose P5, P50 and P95 are out of order", day),
        ("quantiles of GPUs above those of the nodes", over),
    ]
