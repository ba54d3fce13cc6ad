"""Clocks: the client's monotonic time in ns, and timestamps of API servers.

All times of the client are nanoseconds since 1970 by the wall clock of the process's start, moved on by its monotonic
clock. Server times are kept as they were stamped; how far the two clocks are apart is measured, never assumed.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime

NS_PER_S = 1_000_000_000
_WALL_NS, _MONOTONIC_NS = time.time_ns(), time.monotonic_ns()
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def now_ns() -> int:
    """The client's time: never steps, whatever happens to the wall clock meanwhile."""
    return _WALL_NS + time.monotonic_ns() - _MONOTONIC_NS


@dataclass(frozen=True)
class ServerTime:
    """A server's time.

    `ns`: Nanoseconds since 1970, by the server's clock; truncated to the resolution.
    `resolution_ns`: The true time lies within [ns, ns + resolution_ns): Kubernetes cuts most of its times to whole
    seconds.
    """

    ns: int
    resolution_ns: int


def parse_timestamp(text: object) -> ServerTime | None:
    """A time as Kubernetes writes it; null where it is none (some components write null or the year 1).

    >>> parse_timestamp("2026-11-22T02:45:30Z")
    ServerTime(ns=1795315530000000000, resolution_ns=1000000000)
    >>> parse_timestamp("2026-11-22T02:45:30.123456Z").resolution_ns
    1000
    >>> parse_timestamp("0001-01-01T00:00:00Z") is None
    True
    """
    match = _STAMP.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    moment, fraction, zone = match.groups()
    try:
        seconds = datetime.fromisoformat(moment + ("+00:00" if zone == "Z" else zone)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    if seconds <= 0:
        return None
    digits = fraction or ""
    return ServerTime(int(seconds) * NS_PER_S + int(digits.ljust(9, "0")), 10 ** (9 - len(digits)))
