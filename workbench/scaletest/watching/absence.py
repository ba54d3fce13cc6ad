"""When a watch was away, and what of that which it sees afterwards happened meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.scaletest import records
from workbench.scaletest.times import NS, now_ns

# After reopening, what comes at once may have happened just before.
GRACE_NS = NS // 10


@dataclass
class _Gap:
    from_ns: int
    reason: str
    to_ns: int = 0  # 0: still away
    head: int = 0  # the version at the time of coming back: whatever is not newer happened meanwhile
    relisted: bool = False
    recovered: int = 0


class Absence:
    """Of one watch: at most one gap is open, and is written once nothing more can belong to it.

    Parameters
    ----------
    resource
        As in records.Gap.
    write
        Takes the gaps.
    since_ns
        An earlier process watched until then; 0 where there was none.
    """

    def __init__(self, resource: str, write: Callable[[records.Gap], None], since_ns: int = 0) -> None:
        self._resource, self._write = resource, write
        self._gap = _Gap(since_ns, "the sampler was not running") if since_ns else None

    @property
    def is_open(self) -> bool:
        """A gap is not yet written."""
        return self._gap is not None

    def away_s(self) -> float:
        """How long the watch has been away; 0 while it is there."""
        gap = self._gap
        return 0.0 if gap is None or gap.to_ns else (now_ns() - gap.from_ns) / NS

    def begin(self, from_ns: int, reason: str) -> None:
        """The watch is away since then; another failure of one that is away already only gives a better reason."""
        gap = self._gap
        if gap is not None and gap.to_ns:
            self._close(gap)  # it had been back: another gap begins
            gap = None
        if gap is None:
            self._gap = _Gap(from_ns, reason)
        elif gap.reason == "end of stream":
            gap.reason = reason

    def aim(self, head: int) -> None:
        """This is the version that the server has now, just before the watch is opened again."""
        if self._gap is not None:
            self._gap.head = head

    def relisted(self, recovered: int) -> None:
        """All was listed anew, which told so many transitions."""
        if self._gap is not None:
            self._gap.relisted = True
            self._gap.recovered += recovered

    def back(self, at_ns: int) -> None:
        """The watch is open again."""
        if self._gap is not None:
            self._gap.to_ns = at_ns

    def holds(self, arrival_ns: int, version: int) -> bool:
        """Whether what has just come happened while the watch was away."""
        gap = self._gap
        if gap is None:
            return False
        if version <= gap.head or arrival_ns <= gap.to_ns + GRACE_NS:
            return True
        self._close(gap)
        return False

    def recovered(self, count: int) -> None:
        """So many transitions more were found on the way back."""
        if self._gap is not None:
            self._gap.recovered += count

    def settle(self) -> None:
        """Write the gap once all that happened meanwhile has come."""
        gap = self._gap
        if gap is not None and gap.to_ns and now_ns() > gap.to_ns + GRACE_NS:
            self._close(gap)

    def end(self) -> None:
        """Write the gap that is still open: nothing more will come."""
        if self._gap is not None:
            self._gap.to_ns = self._gap.to_ns or now_ns()
            self._close(self._gap)

    def _close(self, gap: _Gap) -> None:
        self._gap = None
        self._write(records.Gap(self._resource, gap.from_ns, gap.to_ns, gap.reason, gap.relisted, gap.recovered))
