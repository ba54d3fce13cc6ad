"""Pods that are not of the run: whether it harms them. Only counts are kept, and the first few are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.scaletest import names
from workbench.scaletest.watching.discovery import PODS
from workbench.scaletest.watching.known import Scope, Sight
from workbench.scaletest.watching.objects import Decoding, Pod
from workbench.scaletest.watching.transitions import of_pod
from workbench.scaletest.watching.watch import Sink, Watched

MOST_NAMED = 20
LEAST_GROWTH = 5  # pods waiting beyond those at the start, before it is told


class Foreigners:
    """Evictions and waiting pods of others, in all namespaces but the run's.

    Parameters
    ----------
    note
        Takes what a reader must know.
    """

    def __init__(self, run: str, namespaces: tuple[str, ...], note: Callable[[str], None]) -> None:
        self._run, self._own, self._note = run, frozenset(namespaces), note
        self._pending: set[str] = set()
        self._hit: set[str] = set()
        self._told = LEAST_GROWTH
        self._begun = False
        self.pending_at_start = 0
        self.evicted = 0

    @property
    def pending(self) -> int:
        """How many wait now."""
        return len(self._pending)

    def watched(self) -> Watched:
        """The watch of them."""
        # `!=` also takes the pods that have no such label.
        return Watched(Scope("foreign", "Pod", ""), PODS.path(""), Decoding(Pod), labels=f"{names.RUN}!={self._run}")

    def sink(self) -> Sink:
        """What its watch gives to."""
        return Sink(self._put, self._gone, self._missing)

    def begin(self) -> None:
        """What is there by now is how it was before the run."""
        self._begun, self.pending_at_start = True, len(self._pending)

    def _put(self, pod: Any, _: Sight) -> int:
        meta = pod.metadata
        if meta.namespace in self._own:
            return 0
        phase = pod.status.phase if pod.status is not None else None
        if phase == "Pending":
            self._pending.add(meta.uid)
            self._grown()
        else:
            self._pending.discard(meta.uid)
        why = next((step.reason or "" for step in of_pod(pod) if step.transition == "evicted"), None)
        if why is not None and meta.uid not in self._hit:
            self._hit.add(meta.uid)
            if self._begun:
                self._evicted(f"{meta.namespace}/{meta.name}", why)
        return 0

    def _evicted(self, name: str, why: str) -> None:
        self.evicted += 1
        if self.evicted <= MOST_NAMED:
            more = " (others are only counted)" if self.evicted == MOST_NAMED else ""
            self._note(f"a pod of others was evicted: {name} {why}".strip() + more)

    def _grown(self) -> None:
        growth = len(self._pending) - self.pending_at_start
        if self._begun and growth >= self._told:
            self._told = 2 * growth
            self._note(f"{growth} more pods of others wait than at the start ({self.pending_at_start})")

    def _gone(self, pod: Any, sight: Sight) -> int:
        self._put(pod, sight)
        self._pending.discard(pod.metadata.uid)
        self._hit.discard(pod.metadata.uid)
        return 0

    def _missing(self, present: set[str], _: Sight) -> int:
        self._pending &= present
        self._hit &= present
        return 0
