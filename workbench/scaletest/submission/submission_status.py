"""Status, outcome and meter of a submission."""

from __future__ import annotations

import array
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from workbench.scaletest.cluster_api.clock import NS_PER_S

N_RECENT_ANSWERS = 1000
RATE_OVER_S = 5.0


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """A submission at one moment.

    `planned`, `sent`, `acked`, `failed`: Workloads in all and so far; `acked` counts those of an earlier process of
    the same run, too.
    `ack_p50_s`, `ack_p95_s`: Of the last accepted workloads, from the intended time on; null without one.
    `pending_pods`, `finished_pods`: As the sampler sees them; null where it does not tell.
    """

    at_s: float
    planned: int
    sent: int
    acked: int
    failed: int
    in_flight: int
    throttled: int
    window: int
    rate_per_s: float
    ack_p50_s: float | None
    ack_p95_s: float | None
    pending_pods: int | None = None
    finished_pods: int | None = None


class StatusWatcher(Protocol):
    """Who wants to know."""

    def show_status(self, live: SubmissionStatus) -> None:
        """Called several times a second."""

    def say(self, line: str) -> None:
        """Something that a person should read."""


class SilentWatcher:
    """Shows nothing."""

    def show_status(self, live: SubmissionStatus) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """What came of a submission.

    `acked`: Workloads that the server has, those of an earlier process of this run included.
    `unsent`: Planned and never accepted, refused ones not counted; 0 when it finished.
    `throttled`, `throttled_s`: Answers of 429, and the time that workloads waited because of them, summed.
    `lateness_p50_s`, `lateness_p99_s`: From the intended time to the first byte; null when nothing was sent in time
    (all overdue or known).
    `rate_per_s`: Sent a second between the first and the last; null below two.
    """

    reason: str
    origin_ns: int
    began_ns: int
    ended_ns: int
    planned: int
    acked: int
    known: int
    failed: int
    unsent: int
    objects: int
    in_flight_most: int
    throttled: int
    throttled_s: float
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    rate_per_s: float | None
    resumed: bool = False
    overdue: int = 0
    first_failure: str | None = None

    @property
    def aborted(self) -> bool:
        """Something was wrong with the cluster, or with what was found there."""
        return self.reason.startswith("aborted")

    @property
    def complete(self) -> bool:
        """Every workload of the plan is there."""
        return self.reason == "finished" and not self.failed and not self.unsent


class SubmissionMeter:
    """Live counts and times of a submission."""

    def __init__(self) -> None:
        self.sent = self.acked = self.failed = self.known = self.objects = self.throttled = 0
        self.throttled_ns = self.in_flight = self.in_flight_most = 0
        self.overdue = 0
        self.first_failure: str | None = None
        self._lateness = array.array("d")
        self._ends: deque[int] = deque(maxlen=100_000)
        self._acks: deque[float] = deque(maxlen=N_RECENT_ANSWERS)
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    def record_start(self, due_ns: int | None, sent_ns: int) -> None:
        """The first byte of a workload goes out; `due_ns` null for one that was overdue from the beginning."""
        self.sent += 1
        if due_ns is not None:
            self._lateness.append(max(0.0, (sent_ns - due_ns) / NS_PER_S))
        else:
            self.overdue += 1
        self._first_ns = sent_ns if self._first_ns is None else min(self._first_ns, sent_ns)
        self._last_ns = max(self._last_ns or 0, sent_ns)

    def add_in_flight(self) -> None:
        """A workload is on its way, or waits for its turn."""
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)

    def remove_in_flight(self) -> None:
        """It is that no longer."""
        self.in_flight -= 1

    def record_failure(self, message: str) -> None:
        """A workload is not there, and is not tried again."""
        self.failed += 1
        self.first_failure = self.first_failure or message

    def record_acceptance(self, due_ns: int, at_ns: int, *, known: bool) -> None:
        """A workload is there; `known`: it was already."""
        self.acked += 1
        self.known += known
        self._ends.append(at_ns)
        self._acks.append((at_ns - due_ns) / NS_PER_S)

    def accepted_per_s(self, at_ns: int) -> float:
        """Accepted a second, over the last seconds."""
        since = at_ns - int(RATE_OVER_S * NS_PER_S)
        while self._ends and self._ends[0] < since:
            self._ends.popleft()
        return len(self._ends) / RATE_OVER_S

    def ack_quantile(self, share: float) -> float | None:
        """Of the last accepted workloads."""
        return _ordered_quantile(sorted(self._acks), share)

    def lateness_quantile(self, share: float) -> float | None:
        """Of all workloads that were not overdue from the beginning."""
        return _ordered_quantile(sorted(self._lateness), share)

    def send_rate(self) -> float | None:
        """Workloads a second, between the first and the last."""
        if self._first_ns is None or self._last_ns is None or self._last_ns <= self._first_ns:
            return None
        return (self.sent - 1) / (self._last_ns - self._first_ns) * NS_PER_S


def _ordered_quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
