"""Is something wrong with the cluster while we submit? Judged again every moment; 429s never count against it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from workbench.scaletest.driving.limits import Aborts, Health
from workbench.scaletest.driving.reply import Reply
from workbench.scaletest.times import NS

# Fewer answers than these are no share and no percentile.
FEWEST = 20
# A percentile of requests is above its limit when more than this share of them is.
BEYOND_P99 = 0.01
# So long after a lost answer a server may still be coming up.
COMING_UP_S = 30.0


@dataclass(slots=True)
class _Second:
    """The answers of one second; 429s are not among them."""

    second: int
    answers: int = 0
    slow: int = 0
    judged: int = 0  # outside a reconnect
    errors: int = 0  # 5xx among those


class Watchdog:
    """Takes every answer, says when submission must end and why."""

    def __init__(self, aborts: Aborts) -> None:
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

    def sent(self, token: int, at_ns: int) -> None:
        """A request is on its way; `token` tells it from others."""
        if self._rested(at_ns):
            self._wanted_ns = None
        self._out[token] = at_ns
        self._wanting.add(token)
        self._wanted_ns = at_ns if self._wanted_ns is None else self._wanted_ns
        self._first_ns = at_ns if self._first_ns is None else self._first_ns

    def answered(self, token: int, reply: Reply) -> None:
        """It ended."""
        self._out.pop(token, None)
        meaning = reply.meaning
        if meaning in ("made", "refused"):
            self._wanting.discard(token)
        self._last_ns = max(self._last_ns, reply.done_ns)
        if meaning in ("made", "exists"):
            self._wanted_ns, self._reconnecting, self._any = None, False, True
        elif meaning == "throttled":
            # The server is there, and asks for patience.
            self._wanted_ns = reply.done_ns
            return
        elif meaning == "refused":
            self._refused += 1
            self._told = f"{reply.status or ''} {reply.message}".strip()
        if reply.status is None and meaning == "again":
            self._reconnecting, self._lost_ns = True, reply.done_ns
        self._count(reply)

    def left(self, token: int) -> None:
        """Nothing of it is tried any more."""
        self._out.pop(token, None)
        self._wanting.discard(token)

    def coming_up(self, at_ns: int) -> bool:
        """An answer was lost a moment ago: a server that starts does not know all rights and kinds yet."""
        return self._lost_ns is not None and at_ns - self._lost_ns < COMING_UP_S * NS

    def reason(self, at_ns: int, health: Health | None = None) -> str | None:
        """Why to end it now; null for no reason."""
        longest_s = max(self._aborts.p99_for_s, self._aborts.errors_over_s)
        while self._seconds and self._seconds[0].second < at_ns / NS - longest_s - 1:
            self._seconds.popleft()
        of_answers = self._stalled(at_ns) or self._slow(at_ns) or self._failing(at_ns)
        return of_answers or unwell(health, self._aborts.watch_lag_s)

    def _count(self, reply: Reply) -> None:
        second = reply.done_ns // NS
        if not self._seconds or self._seconds[-1].second < second:
            self._seconds.append(_Second(second))
        one = self._seconds[-1]
        one.answers += 1
        one.slow += self._aborts.p99_s is not None and reply.duration_s > self._aborts.p99_s
        one.judged += not self._reconnecting
        one.errors += not self._reconnecting and (reply.status or 0) >= 500

    def _rested(self, at_ns: int) -> bool:
        """Since the last answer the plan wanted nothing for so long that what it wanted before is no measure."""
        limit = self._aborts.no_success_s
        return limit is not None and not self._wanting and at_ns - self._last_ns >= limit * NS

    def _stalled(self, at_ns: int) -> str | None:
        limit = self._aborts.no_success_s
        if self._refused >= FEWEST and not self._any:
            return f"the first {self._refused} workloads were all refused: {self._told}"
        if limit is None or self._wanted_ns is None or at_ns - self._wanted_ns <= limit * NS:
            return None
        # A plan may rest; what it does not want cannot be missed.
        busy = bool(self._out) or at_ns - self._last_ns < limit * NS
        return f"nothing was created for {limit:g} s" if busy else None

    def _slow(self, at_ns: int) -> str | None:
        limit, over_s = self._aborts.p99_s, self._aborts.p99_for_s
        if limit is None or not self._known_for(at_ns, over_s):
            return None
        # Both halves must be slow: one bad second is no half minute.
        since, half = at_ns / NS - over_s, at_ns / NS - over_s / 2
        halves = ([one for one in self._seconds if since <= one.second < half], self._since(half))
        # What has no answer yet is at least so slow: else a server that never answers would look fast.
        out = sum(at_ns - sent > limit * NS for sent in self._out.values())
        for seconds in halves:
            answers, slow = sum(one.answers for one in seconds) + out, sum(one.slow for one in seconds) + out
            if answers < FEWEST // 2 or slow <= BEYOND_P99 * answers:
                return None
        return f"p99 of requests above {limit:g} s for {over_s:g} s"

    def _failing(self, at_ns: int) -> str | None:
        limit, over_s = self._aborts.errors_share, self._aborts.errors_over_s
        if limit is None or not self._known_for(at_ns, over_s):
            return None
        seconds = self._since(at_ns / NS - over_s)
        judged, errors = sum(one.judged for one in seconds), sum(one.errors for one in seconds)
        if judged < FEWEST or errors <= limit * judged:
            return None
        return f"{errors} of {judged} answers within {over_s:g} s were server errors (5xx)"

    def _known_for(self, at_ns: int, over_s: float) -> bool:
        return self._first_ns is not None and at_ns - self._first_ns >= over_s * NS

    def _since(self, second: float) -> list[_Second]:
        return [one for one in self._seconds if one.second >= second]


def unwell(health: Health | None, watch_lag_s: float | None) -> str | None:
    """What the sampler tells is wrong; null for nothing, and where nobody tells.

    Parameters
    ----------
    watch_lag_s
        How late our own watch may be, in seconds; null for any time.
    """
    if health is None:
        return None
    if watch_lag_s is not None and health.watch_lag_s is not None and health.watch_lag_s > watch_lag_s:
        return f"our own watch is {health.watch_lag_s:.1f} s late"
    return health.trouble
