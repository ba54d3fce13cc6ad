"""Abort criteria of a submission, and the watchdog that checks them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.scenario.scenario_file import AbortCriteria
from workbench.scaletest.submission.object_creation import Reply

# Fewer answers than these are no share and no percentile.
MIN_ANSWERS = 20
# A percentile of requests is above its limit when more than this share of them is.
ALLOWED_BEYOND_P99 = 0.01
# Time after a lost answer during which the server may still be starting.
RECONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The sampler's view of the cluster during submission; None where unknown.

    `trouble`: A sentence on a node, on pods of others or on the sampler itself, when there is something.
    """

    pending_pods: int | None = None
    finished_pods: int | None = None
    watch_lag_s: float | None = None
    trouble: str | None = None


class StopRequest:
    """Stop request for a submission: the first stops and drains, the second cancels.

    Set from a signal handler or another thread; polled several times per second.
    """

    def __init__(self) -> None:
        self.times = 0

    def request_stop(self) -> None:
        """Request the stop."""
        self.times += 1


@dataclass(slots=True)
class _Second:
    """The answers of one second; 429s are not among them."""

    second: int
    answers: int = 0
    slow: int = 0
    judged: int = 0  # outside a reconnect
    errors: int = 0  # 5xx among those


class Watchdog:
    """Watchdog: receives every response, and decides when and why the submission aborts."""

    def __init__(self, aborts: AbortCriteria) -> None:
        self._aborts = aborts
        self._seconds: deque[_Second] = deque()
        self._out: dict[int, int] = {}
        self._wanting: set[int] = set()
        self._wanted_ns: int | None = None
        self._first_ns: int | None = None
        self._last_ns = 0
        self._reconnecting = False
        self._lost_ns: int | None = None
        self._refused = 0
        self._any = False
        self._told = ""

    def record_request(self, token: int, at_ns: int) -> None:
        """Record a request that is sent; `token` tells it from others."""
        if self._has_rested(at_ns):
            self._wanted_ns = None
        self._out[token] = at_ns
        self._wanting.add(token)
        self._wanted_ns = at_ns if self._wanted_ns is None else self._wanted_ns
        self._first_ns = at_ns if self._first_ns is None else self._first_ns

    def record_reply(self, token: int, reply: Reply) -> None:
        """Record the end of a request."""
        self._out.pop(token, None)
        meaning = reply.meaning
        if meaning in ("made", "refused"):
            self._wanting.discard(token)
        self._last_ns = max(self._last_ns, reply.done_ns)
        if meaning in ("made", "exists"):
            self._wanted_ns, self._reconnecting, self._any = None, False, True
        elif meaning == "throttled":
            # The server is alive, and throttles.
            self._wanted_ns = reply.done_ns
            return
        elif meaning == "refused":
            self._refused += 1
            self._told = f"{reply.status or ''} {reply.message}".strip()
        if reply.status is None and meaning == "again":
            self._reconnecting, self._lost_ns = True, reply.done_ns
        self._count_reply(reply)

    def forget_request(self, token: int) -> None:
        """Record that a request is not retried."""
        self._out.pop(token, None)
        self._wanting.discard(token)

    def is_reconnecting(self, at_ns: int) -> bool:
        """An answer was lost a moment ago: a server that starts does not know all rights and kinds yet."""
        return self._lost_ns is not None and at_ns - self._lost_ns < RECONNECT_S * NS_PER_S

    def find_reason(self, at_ns: int, health: ClusterHealth | None = None) -> str | None:
        """Reason to abort now; None without one."""
        longest_s = max(self._aborts.api_p99_for_s, self._aborts.errors_window_s)
        while self._seconds and self._seconds[0].second < at_ns / NS_PER_S - longest_s - 1:
            self._seconds.popleft()
        of_answers = self._find_stall(at_ns) or self._find_slow_answers(at_ns) or self._find_server_errors(at_ns)
        return of_answers or find_health_problem(health, self._aborts.watch_lag_s)

    def _count_reply(self, reply: Reply) -> None:
        second = reply.done_ns // NS_PER_S
        if not self._seconds or self._seconds[-1].second < second:
            self._seconds.append(_Second(second))
        bucket = self._seconds[-1]
        bucket.answers += 1
        bucket.slow += self._aborts.api_p99_s is not None and reply.duration_s > self._aborts.api_p99_s
        bucket.judged += not self._reconnecting
        bucket.errors += not self._reconnecting and (reply.status or 0) >= 500

    def _has_rested(self, at_ns: int) -> bool:
        """Since the last answer the plan wanted nothing for so long that what it wanted before is no measure."""
        limit = self._aborts.no_create_s
        return limit is not None and not self._wanting and at_ns - self._last_ns >= limit * NS_PER_S

    def _find_stall(self, at_ns: int) -> str | None:
        limit = self._aborts.no_create_s
        if self._refused >= MIN_ANSWERS and not self._any:
            return f"the first {self._refused} workloads were all refused: {self._told}"
        if limit is None or self._wanted_ns is None or at_ns - self._wanted_ns <= limit * NS_PER_S:
            return None
        # A plan may rest; what it does not want cannot be missed.
        busy = bool(self._out) or at_ns - self._last_ns < limit * NS_PER_S
        return f"no object was created for {limit:g} s" if busy else None

    def _find_slow_answers(self, at_ns: int) -> str | None:
        limit, over_s = self._aborts.api_p99_s, self._aborts.api_p99_for_s
        if limit is None or not self._has_history_of(at_ns, over_s):
            return None
        # Both halves must be slow: one bad second is no half minute.
        since, half = at_ns / NS_PER_S - over_s, at_ns / NS_PER_S - over_s / 2
        halves = ([bucket for bucket in self._seconds if since <= bucket.second < half], self._list_seconds_since(half))
        # What has no answer yet is at least so slow: else a server that never answers would look fast.
        out = sum(at_ns - sent > limit * NS_PER_S for sent in self._out.values())
        for seconds in halves:
            answers, slow = (
                sum(bucket.answers for bucket in seconds) + out,
                sum(bucket.slow for bucket in seconds) + out,
            )
            if answers < MIN_ANSWERS // 2 or slow <= ALLOWED_BEYOND_P99 * answers:
                return None
        return f"p99 of requests above {limit:g} s for {over_s:g} s"

    def _find_server_errors(self, at_ns: int) -> str | None:
        limit, over_s = self._aborts.errors_share, self._aborts.errors_window_s
        if limit is None or not self._has_history_of(at_ns, over_s):
            return None
        seconds = self._list_seconds_since(at_ns / NS_PER_S - over_s)
        judged, errors = sum(bucket.judged for bucket in seconds), sum(bucket.errors for bucket in seconds)
        if judged < MIN_ANSWERS or errors <= limit * judged:
            return None
        return f"{errors} of {judged} answers within {over_s:g} s were server errors (5xx)"

    def _has_history_of(self, at_ns: int, over_s: float) -> bool:
        return self._first_ns is not None and at_ns - self._first_ns >= over_s * NS_PER_S

    def _list_seconds_since(self, second: float) -> list[_Second]:
        return [bucket for bucket in self._seconds if bucket.second >= second]


def find_health_problem(health: ClusterHealth | None, watch_lag_s: float | None) -> str | None:
    """Problem reported by the sampler; None without one.

    `watch_lag_s`: Maximum watch lag in seconds; None for no limit.
    """
    if health is None:
        return None
    if watch_lag_s is not None and health.watch_lag_s is not None and health.watch_lag_s > watch_lag_s:
        return f"the watch lag is {health.watch_lag_s:.1f} s"
    return health.trouble
