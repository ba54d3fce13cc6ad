"""How far a submission may go, and what ends it early; how a person asks it to stop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a submission. Total, wall clock and pending pods end it; rate and requests in flight hold it back.

    Attributes
    ----------
    objects
        Objects that are sent at most, a gang's members counted each.
    rate_per_s
        Workloads a second at most, on average over five seconds; null for as planned. A faster plan becomes late.
    in_flight
        Workloads that are not yet answered, at most: a client that waits for ever for more would only hide the queue.
    pending_pods
        Pods that wait for a node, at most, as the sampler sees them; null for any number.
    wall_clock_s
        Longest time of submitting, from this process's begin.
    request_timeout_s
        An answer that has not come by then is lost.
    retry_for_s
        How long a workload is tried again after lost answers and server errors; refusals by 429 do not count.
    longest_wait_s
        What a server may ask us to wait by Retry-After, at most.
    """

    objects: int = 1000
    rate_per_s: float | None = 20.0
    in_flight: int = 64
    pending_pods: int | None = None
    wall_clock_s: float | None = None
    request_timeout_s: float = 60.0
    retry_for_s: float = 120.0
    longest_wait_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Aborts:
    """What ends a submission because something is wrong; null switches a criterion off.

    Attributes
    ----------
    no_success_s
        Nothing was created for so long although it was tried. An answer of 429 is a sign of life.
    p99_s, p99_for_s
        Latency of requests, over so long.
    errors_share, errors_over_s
        Share of 5xx among the answers of so long, outside a reconnect.
    watch_lag_s
        How late our own watch is.
    foreign_pods
        Pods of others were evicted, or more of them wait than before, by so many.
    node_not_ready
        A node stopped being ready.
    """

    no_success_s: float | None = 30.0
    p99_s: float | None = 5.0
    p99_for_s: float = 30.0
    errors_share: float | None = 0.05
    errors_over_s: float = 60.0
    watch_lag_s: float | None = 5.0
    foreign_pods: int | None = 10
    node_not_ready: bool = True


@dataclass(frozen=True, slots=True)
class Health:
    """What the sampler tells while submission goes on; null where it does not know.

    Attributes
    ----------
    pending_pods
        Pods of this run without a node.
    finished_pods
        Pods of this run that ended.
    watch_lag_s
        Of the latest heartbeat.
    trouble
        A sentence on a node, on pods of others or on the sampler itself, when there is something.
    """

    pending_pods: int | None = None
    finished_pods: int | None = None
    watch_lag_s: float | None = None
    trouble: str | None = None


class Asked:
    """How a person, or another part, asks a submission to end: once to stop and drain, twice to break off.

    Asked from a signal's handler or another thread; looked at several times a second.
    """

    def __init__(self) -> None:
        self.times = 0
        self.reason: str | None = None

    def stop(self, reason: str = "interrupted") -> None:
        """Ask; the first reason stays."""
        self.reason = self.reason or reason
        self.times += 1
