"""Is all well while a run goes on? What the sampler tells, against how it was at the start."""

from __future__ import annotations

from typing import Any, Protocol

from workbench.scaletest.driving import Aborts, Health
from workbench.scaletest.running.following import Follower
from workbench.scaletest.times import NS, now_ns

LOOK_EVERY_S = 0.5


class Telling(Protocol):
    """The sampler, as far as it is asked here."""

    @property
    def is_running(self) -> bool:
        """It has not ended."""

    def lag_s(self) -> float:
        """How late it is."""

    def state(self) -> dict[str, Any]:
        """What it last said of itself."""


class Care:
    """Asked several times a second, looks twice a second.

    Parameters
    ----------
    others_evicted
        Whether an evicted pod of somebody else is trouble.
    """

    def __init__(self, sampler: Telling, follower: Follower, aborts: Aborts, *, others_evicted: bool = True) -> None:
        self._sampler, self._follower, self._aborts = sampler, follower, aborts
        self._others_evicted = others_evicted
        self._looked_ns = 0
        self._health = Health()

    def __call__(self) -> Health:
        """How it is now."""
        if now_ns() - self._looked_ns >= LOOK_EVERY_S * NS:
            self._looked_ns = now_ns()
            self._follower.look()
            state = self._sampler.state()
            # While the API server is away there is nothing to be late of; that is a gap, and is told as one.
            lag_s = None if state.get("away_s") else self._sampler.lag_s()
            self._health = Health(self._follower.pending, self._follower.ended, lag_s, self._trouble(state))
        return self._health

    def _trouble(self, state: dict[str, Any]) -> str | None:
        if not self._sampler.is_running:
            return "the sampler ended: nobody watches any more"
        # Against what the sampler found when it became ready: the first second of submission counts, too.
        lost = _of(state, "nodes_not_ready") - _of(state, "nodes_not_ready_at_start")
        if self._aborts.node_not_ready and lost > 0:
            return f"{lost} node(s) stopped being ready"
        evicted = _of(state, "foreign_evicted")
        if self._others_evicted and evicted > 0:
            return f"{evicted} pod(s) of others were evicted"
        waiting = _of(state, "foreign_pending") - _of(state, "foreign_pending_at_start")
        if self._aborts.foreign_pods is not None and waiting >= self._aborts.foreign_pods:
            return f"{waiting} more pods of others wait for a node than at the start"
        return None


def _of(state: dict[str, Any], key: str) -> int:
    return int(state.get(key) or 0)
