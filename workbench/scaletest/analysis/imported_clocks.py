"""Clocks of an imported run: is the submission's another one than the cluster's, and by how much?"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_QUARTER_S = 900
# Time until the quickest workload of a run is created, at most, for its delay to be told from a time zone's offset.
_MAX_FIRST_S = 60.0
# So few delays that are too long may be real.
_MIN_LATE = 3
_MAX_ZONE_S = 14 * 3600
_MAX_RARE_FRACTION = 0.05


@dataclass(frozen=True)
class ClockFault:
    """Fault of the submission's clock. `distorts`: Delays look possible, and are wrong by the offset."""

    sentence: str
    distorts: bool


def find_clock_fault(submissions: pl.DataFrame) -> ClockFault | None:
    """Find out whether the clock of the submission is off from the cluster's; null within the resolution of a second.

    A workload is created after it is sent, so its delay is at least 0, less the second that is cut off. Delays near
    a multiple of 15 minutes are a time zone's.

    `submissions`: `sent_s` by the submission's clock, `created_s` by the cluster's, in whole seconds.

    >>> sent = [0.3, 1.3, 2.3]
    >>> print(find_clock_fault(pl.DataFrame({"sent_s": sent, "created_s": [7200.0, 7201.0, 7203.0]})).sentence)
    submission times are 2 h earlier than the cluster's for 3 of 3 workloads (delays 7,199.7 to 7,200.7 s): \
written in another time zone, such as UTC-2, and read as UTC; write that offset into submitTimestamp, and import again
    >>> print(find_clock_fault(pl.DataFrame({"sent_s": sent, "created_s": [-5.0, -4.0, -3.0]})).sentence)
    the submission's clock is about 5 s ahead of the cluster's (all 3 delays are negative, -5.3 to -5.3 s)
    >>> find_clock_fault(pl.DataFrame({"sent_s": sent, "created_s": [0.0, 1.0, 3.0]})) is None
    True
    """
    delays = submissions.select(delay=pl.col("created_s") - pl.col("sent_s"))["delay"].drop_nulls().sort()
    if not delays.len():
        return None
    shortest, longest = float(delays[0]), float(delays[-1])
    if (zone := _find_zone(delays)) is not None:
        quarters, n_shifted = zone
        side = "earlier" if quarters > 0 else "later"
        hours = abs(quarters) / 4
        counted = f"{n_shifted:,} of {delays.len():,} workloads (delays {shortest:,.1f} to {longest:,.1f} s)"
        return ClockFault(
            f"submission times are {hours:g} h {side} than the cluster's for {counted}: written in another time zone, "
            f"such as UTC{-quarters / 4:+g}, and read as UTC; write that offset into submitTimestamp, and import again",
            distorts=quarters > 0 or n_shifted < delays.len(),
        )
    if shortest >= -1:
        return None
    n_negative = int((delays < 0).sum())
    if n_negative == delays.len():
        signs = f"all {n_negative:,} delays are negative, {shortest:,.1f} to {longest:,.1f} s"
        return ClockFault(f"the submission's clock is about {-shortest:,.0f} s ahead of the cluster's ({signs})", False)
    signs = f"{n_negative:,} of {delays.len():,} delays are negative, down to {shortest:,.1f} s"
    if n_negative <= _MAX_RARE_FRACTION * delays.len():
        return ClockFault(
            f"a clock was set meanwhile, or names of workloads were used before ({signs})", distorts=False
        )
    words = f"the submission's clock is at least {-shortest:,.0f} s ahead of the cluster's, or was set meanwhile"
    return ClockFault(f"{words} ({signs})", distorts=True)


def _find_zone(delays: pl.Series) -> tuple[int, int] | None:
    """Offset of a time zone in quarters of an hour, and the number of workloads that have it; null without one.

    `delays`: Seconds from sent to created, sorted.
    """
    quarters = int((float(delays[0]) + 1) // _QUARTER_S)
    first = float(delays[0]) - quarters * _QUARTER_S
    if not quarters or first > _MAX_FIRST_S or abs(quarters) * _QUARTER_S > _MAX_ZONE_S:
        return None
    if quarters > 0 and delays.len() < _MIN_LATE:
        return None
    return quarters, int((delays < (quarters + 1) * _QUARTER_S - 1).sum())
