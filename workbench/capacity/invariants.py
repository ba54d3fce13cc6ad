"""Do the figures of a plan agree with each other? A broken invariant stops.

Each compares what two different ways say of the same thing, so that each can fail.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workbench.capacity import summing
from workbench.checks import held

if TYPE_CHECKING:
    from workbench.capacity.study import Study

# Shares of draws inside an interval may be off its level by so many standard errors: 1 in 10^6 is.
ERRORS = 4.9
# Relative width from which on a side of an interval is more than rounding.
NARROW = 1e-9


def check(found: Study) -> pl.DataFrame:
    """Do draws lie in their intervals, do nodes hold what is packed, is nothing bought twice, are quantiles in order?

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    return held([*_of_draws(found), *_of_nodes(found), *_of_work(found), *_of_cost(found), *_of_quantiles(found)])


def _of_draws(found: Study) -> list[tuple[str, float, float]]:
    """Each input falls into its own interval as often as its level says; a side without width has nothing beyond it."""
    rows = []
    for one in found.model.quantities:
        if one.low is None or one.high is None:
            continue
        values = found.given[one.name]
        sides = []
        if one.value - one.low > NARROW * one.value:
            sides.append(values < one.low)
        if one.high - one.value > NARROW * one.value:
            sides.append(values > one.high)
        if not sides:
            continue
        level = one.level if len(sides) == 2 else (1 + one.level) / 2
        inside = 1 - float(np.any(sides, axis=0).mean())
        allowed = ERRORS * math.sqrt(level * (1 - level) / len(values))
        rows.append((f"draws of {one.name} in its interval, off its level", abs(inside - level), allowed))
    return rows


def _packed(found: Study) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """GPUs of whole jobs and replicas."""
    total = np.zeros(found.outcome.nodes.shape)
    for work in found.model.works:
        total += found.outcome.slots[work.name] * float(work.gpus)
    return total if found.outcome.service_gpus is None else total + found.outcome.service_gpus


def _of_nodes(found: Study) -> list[tuple[str, float]]:
    packed, node = _packed(found), found.model.node_gpus
    nodes = found.outcome.nodes
    fits = all(work.gpus <= node for work in found.model.works)
    fits &= found.model.serving is None or found.model.serving.gpus <= node
    # Two nodes that are both at most half full would have been one.
    wasted = (nodes * node > 2 * packed + node) & fits
    return [
        ("hours whose nodes hold less than what is packed", float((nodes * node < packed).sum())),
        ("hours with more than twice the nodes that full ones would be", float(wasted.sum())),
    ]


def _of_work(found: Study) -> list[tuple[str, float, float]]:
    """The median's Spark GPUs by the guide's formula, and its replicas by whole steps, from the tables alone."""
    rows: list[tuple[str, float, float]] = []
    values = dict(found.sources.select("input", "value").iter_rows())
    if found.median.spark_gpus is not None:
        ratio = found.model.stack.value if found.model.stack is not None else 1.0
        hour = found.peak_hour
        asked = math.fsum(
            one.per_hour[hour] * values[work.duration.name] / 3600 * one.gpus * _left(one.stack_share, ratio)
            for one, work in zip(found.config.job_classes, found.model.works, strict=True)
        )
        gpus = float(found.median.spark_gpus[0, hour])
        rows.append(
            ("Spark GPUs at the peak hour, off their formula", abs(asked / found.config.utilisation - gpus), 1e-6)
        )
    if found.median.replicas is not None and found.model.serving is not None:
        ratio = found.model.stack.value if found.model.stack is not None else 1.0
        one = found.model.serving.per_replica.value / _left(found.model.serving.stack_share, ratio)
        over = found.model.serving.load - found.model.serving.carried_by(found.median.replicas[0]) * one
        rows.append(("users beyond what the median's replicas carry", float(over.max()), 1e-6 * one))
    return rows


def _left(share: float, ratio: float) -> float:
    return 1 - share + share / ratio


def _of_cost(found: Study) -> list[tuple[str, float]]:
    scaled, fixed = found.outcome.cost_scaled, found.outcome.cost_fixed
    if scaled is None or fixed is None:
        return []
    return [("days that cost more scaled by the hour than fixed", float((scaled > fixed * (1 + 1e-12)).sum()))]


def _of_quantiles(found: Study) -> list[tuple[str, float]]:
    day = found.day.filter((pl.col("p5") > pl.col("p50")) | (pl.col("p50") > pl.col("p95"))).height
    gpus, nodes = found.figure(summing.GPUS), found.figure(summing.NODES)
    over = sum(gpus[share] > nodes[share] * found.model.node_gpus + 1e-9 for share in ("p5", "p50", "p95"))
    return [
        ("figures whose P5, P50 and P95 are out of order", day),
        ("quantiles of GPUs beyond those of the nodes", over),
    ]
