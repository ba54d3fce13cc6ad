"""Replay of a recorded day: the recorded workloads with their recorded run times, and the starts that follow.

Pods go to their recorded nodes where they fit: of equal nodes the scheduler takes any, and what follows from that is no
difference of rules. Where starts differ from the recorded ones, the cluster's schedulers have rules that the simulation
lacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.start_times.cluster_state import ClusterState, WorkloadState
from workbench.scaletest.start_times.node_room import NodeTable
from workbench.scaletest.start_times.virtual_cluster import VirtualCluster

# Workloads that waited, from which a difference says something; and the log error that is none.
MIN_COMPARED, MAX_LOG_ERROR = 10, 0.25
Floats = npt.NDArray[np.float64]
# Kubernetes' own times are whole seconds, and scheduling itself takes some.
_LEAST_WAIT_S = 10.0


@dataclass(frozen=True)
class DayReplay:
    """Starts of recorded workloads beside simulated ones.

    `starts`: `name, created_s, recorded_s, simulated_s`, of the first replay; null where it did not start.
    `n_compared`: Workloads that waited for more than ten seconds, recorded or simulated.
    `log_error`: Median absolute log of simulated over recorded waits; 0.25 is a factor of 1.28.
    `order`: Rank correlation of the starts; null of fewer than three.
    """

    starts: pl.DataFrame
    n_compared: int
    log_error: float
    order: float | None

    @property
    def is_true(self) -> bool:
        """Are the simulated waits those that were recorded, as far as enough workloads waited?"""
        return self.n_compared < MIN_COMPARED or self.log_error <= MAX_LOG_ERROR


def replay_day(state: ClusterState, *, packs_gpus: bool = False) -> DayReplay | None:
    """Replay a state's own span; null for a look at one moment."""
    if not state.span_s:
        return None
    begin_s = -state.span_s
    workloads = [one for one in state.workloads if one.ended_s is None or one.ended_s > begin_s]
    table = NodeTable(state, [pod for one in workloads for pod in one.pods], packs_gpus=packs_gpus)
    came = [at for at, one in enumerate(workloads) if one.started_s is None or one.started_s > begin_s]
    since_s = np.array([max(workloads[at].created_s, begin_s) for at in came])
    recorded = _list_waits([workloads[at].started_s for at in came], since_s)
    random = np.random.default_rng(0)
    cluster = VirtualCluster(state, table, workloads, _read_rest, random, now_s=begin_s, keeps_nodes=True)
    starts_s = cluster.run(0.0).starts_s
    simulated = _list_waits([starts_s[at] for at in came], since_s)
    starts = pl.DataFrame(
        {
            "name": [workloads[at].name for at in came],
            "created_s": [workloads[at].created_s for at in came],
            "recorded_s": _to_times(recorded + since_s),
            "simulated_s": _to_times(simulated + since_s),
        },
        schema={"name": pl.String, "created_s": pl.Float64, "recorded_s": pl.Float64, "simulated_s": pl.Float64},
    )
    return DayReplay(
        starts=starts,
        n_compared=int(_find_waiting(recorded, simulated).sum()),
        log_error=_measure_error(recorded, simulated),
        order=_correlate_order(starts),
    )


def _list_waits(starts_s: Sequence[float | None], since_s: Floats) -> Floats:
    """Waits; infinite where there was no start."""
    return np.array([math.inf if start_s is None else start_s for start_s in starts_s], dtype=float) - since_s


def _to_times(times_s: Floats) -> list[float | None]:
    return [float(at_s) if math.isfinite(at_s) else None for at_s in times_s]


def _find_waiting(one: Floats, other: Floats) -> npt.NDArray[np.bool_]:
    """Workloads that started in both, and waited in one of them."""
    return np.isfinite(one) & np.isfinite(other) & (np.maximum(one, other) > _LEAST_WAIT_S)


def _measure_error(one: Floats, other: Floats) -> float:
    """Median absolute log of the waits' ratio; 0 where none waited."""
    waiting = _find_waiting(one, other)
    if not waiting.any():
        return 0.0
    ratios = np.maximum(one[waiting], _LEAST_WAIT_S) / np.maximum(other[waiting], _LEAST_WAIT_S)
    return float(np.median(np.abs(np.log(ratios))))


def _read_rest(workload: WorkloadState, age_s: float) -> float:
    """How much longer a workload ran, as recorded; one that has not ended runs on."""
    if workload.ended_s is None or workload.started_s is None:
        return math.inf
    return max(0.0, workload.ended_s - workload.started_s - age_s)


def _correlate_order(starts: pl.DataFrame) -> float | None:
    known = starts.drop_nulls(["recorded_s", "simulated_s"])
    if known.height < 3:
        return None
    value = known.select(pl.corr("recorded_s", "simulated_s", method="spearman")).item()
    return None if value is None or math.isnan(value) else float(value)
