"""Workloads that come later, drawn from those of the record: hours of it in random order, with all that came in them.

Whole stretches are drawn, so that what comes in bursts comes in bursts again; from a record of a day or longer, of the
same time of day.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.scaletest.start_times.cluster_state import ClusterState, WorkloadState

_DAY_S, _HOUR_S = 86_400.0, 3600.0
_N_STRETCHES = 12


class Arrivals:
    """What came during the record."""

    def __init__(self, state: ClusterState) -> None:
        self._span_s = state.span_s
        came = [workload for workload in state.workloads if -state.span_s < workload.created_s <= 0]
        self._came = sorted(came, key=lambda workload: workload.created_s)
        self._at_s = np.array([workload.created_s for workload in self._came])
        self._is_daily = state.span_s >= _DAY_S
        self._stretch_s = _HOUR_S if self._is_daily else state.span_s / _N_STRETCHES

    def draw(self, random: np.random.Generator, until_s: float) -> Iterator[tuple[float, WorkloadState]]:
        """Workloads that come in one future, with their times, in order; where they ran before counts no more."""
        if not self._came:
            return
        # What the record happened to hold is drawn once for a future: its rate is not known exactly either.
        n_kept = max(1, round(self._span_s / self._stretch_s))
        places = random.random(n_kept)
        for number in range(int(np.ceil(until_s / self._stretch_s))):
            since_s = self._find_begin(number * self._stretch_s, float(random.choice(places)))
            first, last = np.searchsorted(self._at_s, [since_s, since_s + self._stretch_s], "right")
            for workload in self._came[first:last]:
                yield number * self._stretch_s + workload.created_s - since_s, workload

    def _find_begin(self, ahead_s: float, place: float) -> float:
        """Begin of the stretch that is repeated so far ahead. `place`: From 0 to 1, a part of the record."""
        if not self._is_daily:
            return -self._stretch_s - place * (self._span_s - self._stretch_s)
        # The same time of a recorded day, up to half an hour off; only days that were recorded then.
        n_days = max(1, int((self._span_s + ahead_s % _DAY_S) // _DAY_S))
        day, shift = divmod(place * n_days, 1.0)
        offset_s = ahead_s % _DAY_S + (shift - 0.5) * _HOUR_S - _DAY_S * (1 + day)
        return max(-self._span_s, min(-self._stretch_s, offset_s))
