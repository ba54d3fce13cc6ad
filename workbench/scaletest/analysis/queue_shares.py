"""Fairness between queues: each one's share of the GPUs against its quota, while all of them waited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.scaletest.analysis.saturation import count_gpus_between

N_MOMENTS = 2000


@dataclass(frozen=True)
class QueueShares:
    """Queues while pods of each one waited.

    `fair_shares`: By queue: its quota's share of all quotas; equal ones without quotas.
    `unfairness`: Share of the GPUs that was held by other queues than the quotas say: half of the summed distances,
    averaged over that time. 0 is fair; 1 - 1/n means that one of n equal queues had all.
    """

    contended_s: float
    shares: dict[str, float]
    fair_shares: dict[str, float]
    unfairness: float


def measure_queue_shares(
    schedule: pl.DataFrame, pods: pl.DataFrame, end_s: float, quotas: Mapping[str, float] | None = None
) -> QueueShares | None:
    """How do the queues share the GPUs while all of them want more?

    `quotas`: GPUs of each queue; all of the run's queues, or they count as equal.

    Returns: None for a run with one queue, or whose queues never waited together.

    The distance of two divisions is the total variation distance. Only GPUs are looked at, and only times in which
    every queue waited: a queue without work is not treated unfairly. Does not show whether a queue waited for its
    quota or for room.
    """
    queues = sorted(schedule["queue"].drop_nulls().unique().to_list())
    if len(queues) < 2:
        return None
    gpu_pods = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    gpu_pods = gpu_pods.join(schedule.select("index", "queue"), on="index")
    at = np.linspace(0.0, max(end_s, 1e-3), N_MOMENTS)
    queue_pods = {queue: gpu_pods.filter(pl.col("queue") == queue) for queue in queues}
    waiting = np.array(
        [count_gpus_between(queue_pods[queue], at, "created_s", "scheduled_s", "ended_s") for queue in queues]
    )
    running = np.array(
        [count_gpus_between(queue_pods[queue], at, "scheduled_s", "ended_s", "ended_s") for queue in queues]
    )
    contended = (waiting > 0).all(axis=0) & (running.sum(axis=0) > 0)
    if not contended.any():
        return None
    has_quotas = quotas is not None and set(queues) <= quotas.keys() and sum(quotas[queue] for queue in queues) > 0
    fair = np.array([float(quotas[queue]) if has_quotas and quotas else 1.0 for queue in queues])
    fair /= fair.sum()
    shares = running[:, contended] / running[:, contended].sum(axis=0)
    distances = np.abs(shares - fair[:, None]).sum(axis=0) / 2
    return QueueShares(
        contended_s=float(contended.mean() * at[-1]),
        shares=dict(zip(queues, shares.mean(axis=1).tolist(), strict=True)),
        fair_shares=dict(zip(queues, fair.tolist(), strict=True)),
        unfairness=float(distances.mean()),
    )
