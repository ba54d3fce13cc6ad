"""Was there room? When pods waited and the GPUs were taken, what gets through is no scheduler's speed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.flow import Floats, count

# What ends is not taken again at once: a scheduler that looks once a second leaves some free between two looks.
NEARLY = 0.05
_NONE = 1e-9


@dataclass(frozen=True)
class Room:
    """The cluster's GPUs at moments of a run; each holds until the next.

    Attributes
    ----------
    at_s
        The moments; none for a run without GPUs, which always had room.
    full
        Pods waited for GPUs then, and could not have them.
    """

    at_s: Floats
    full: npt.NDArray[np.bool_]
    allocated: Floats
    capacity: Floats

    def share(self, begin_s: float, end_s: float) -> float:
        """Share of the moments between two times at which the cluster was full."""
        own = self.full[self._between(begin_s, end_s)]
        return float(own.mean()) if len(own) else 0.0

    def shares(self, edges_s: Floats) -> Floats:
        """The same between each two of these times."""
        pairs = zip(edges_s[:-1].tolist(), edges_s[1:].tolist(), strict=True)
        return np.array([self.share(begin, end) for begin, end in pairs])

    def taken(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """GPUs that were allocated meanwhile (median), and GPUs that there are."""
        own = self._between(begin_s, end_s)
        return float(np.median(self.allocated[own])), float(self.capacity[own].max())

    def _between(self, begin_s: float, end_s: float) -> slice:
        """The moment that holds at the begin, and all until the end."""
        first = int(np.searchsorted(self.at_s, begin_s, side="right")) - 1
        return slice(max(0, first), int(np.searchsorted(self.at_s, end_s, side="left")))


def room(gpus: pl.DataFrame | None, pods: pl.DataFrame | None = None) -> Room:
    """When was the cluster full?

    Parameters
    ----------
    gpus
        Table GPUS; null or empty for a run without.
    pods
        Table PODS: tells what the smallest pod that waits asks for.

    Notes
    -----
    Full: more is waited for than is free, and less is free than the smallest waiting pod asks for, or less than 5 % of
    all. Where only pods of the largest size wait, GPUs on nodes that have too few free for one are not free for them.
    Where more was taken than there is, nodes came or were not seen: then nothing is said of room.
    Knows GPUs only, and of this run's pods only; does not show that a gang waits until all of it fits.
    """
    if gpus is None or not gpus.height:
        nothing = np.zeros(0)
        return Room(nothing, nothing.astype(bool), nothing, nothing)
    at, capacity, allocated, waiting, stranded = (
        gpus[name].to_numpy().astype(float) for name in ("at_s", "capacity", "allocated", "waiting", "stranded")
    )
    smallest, alike = _asked(pods, at)
    free = capacity - allocated - np.where(alike, stranded, 0.0)
    full = (waiting > free + _NONE) & (free < np.maximum(smallest, NEARLY * capacity) - _NONE)
    if (allocated > (1 + NEARLY) * capacity).any():
        full[:] = False
    return Room(at, full, allocated, capacity)


def _asked(pods: pl.DataFrame | None, at: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """GPUs of the smallest pod that waits at each moment, 0 for none; and whether it is one of the largest of all."""
    smallest = np.zeros(len(at))
    if pods is None:
        return smallest, smallest > 0
    asking = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    rows = asking.select("gpus", "created_s", gone_s=pl.min_horizontal("scheduled_s", "ended_s").fill_null(np.inf))
    sizes = sorted(rows["gpus"].unique().to_list(), reverse=True)
    for size in sizes:
        own = rows.filter(pl.col("gpus") == size)
        came, gone = (np.sort(own[name].to_numpy().astype(float)) for name in ("created_s", "gone_s"))
        smallest[count(came, at) > count(gone, at)] = size
    return smallest, (smallest >= sizes[0]) if sizes else smallest > 0
