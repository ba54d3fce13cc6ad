"""The smallest part of something for which a question is still answered with yes: delta debugging.

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Transactions on Software
Engineering 28(2), 2002, algorithm ddmin; the empty part is tried first, here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self, TypeVar


class Divisible(Protocol):
    """Something in order that can be cut and put together: a list, or `Rows`."""

    def __len__(self) -> int:
        """Of how many it is made."""

    def __getitem__(self, part: slice, /) -> Self:
        """A part of it, steps being 1."""

    def __add__(self, other: Self, /) -> Self:
        """It and another that comes after."""


S = TypeVar("S", bound=Divisible)


def ddmin(items: S, holds: Callable[[S], bool], accepted: Callable[[S], S] = lambda found: found) -> S:
    """A part for which `holds` is true, and false for the same with any one item less.

    Parameters
    ----------
    items
        The whole, for which it holds.
    holds
        The question. With a single culprit it is asked about 2 log2(n) times, at worst n squared.
    accepted
        Told of each smaller part that was found; may give the same part back under another numbering.

    Examples
    --------
    >>> ddmin(list(range(1000)), lambda part: 137 in part and 802 in part)
    [137, 802]
    >>> ddmin([1, 2, 3], lambda part: True)
    []
    """
    if not len(items):
        return items
    if holds(items[:0]):
        return accepted(items[:0])
    n_parts = 2
    while len(items) >= 2:
        n_parts = min(n_parts, len(items))
        found = _smaller(items, n_parts, holds)
        if found is not None:
            part, n_parts = found
            items = accepted(part)
        elif n_parts == len(items):
            break
        else:
            n_parts *= 2
    return items


def _smaller(items: S, n_parts: int, holds: Callable[[S], bool]) -> tuple[S, int] | None:
    """One of the parts, or all but one of them, and into how many to cut that next."""
    size = len(items)
    cuts = list(pairwise(size * number // n_parts for number in range(n_parts + 1)))
    for start, stop in cuts:
        if holds(part := items[start:stop]):
            return part, 2
    if n_parts > 2:
        for start, stop in cuts:
            if holds(part := items[:start] + items[stop:]):
                return part, n_parts - 1
    return None


@dataclass(frozen=True)
class Rows:
    """Numbers of rows, ascending, as runs: many rows cost no more than few.

    Attributes
    ----------
    runs
        (first, one past the last) each; none empty, none touching the next.

    Examples
    --------
    >>> rows = Rows.of([(0, 5), (10, 15)])
    >>> len(rows), rows[3:7], rows[:2] + rows[8:]
    (10, Rows(runs=((3, 5), (10, 12))), Rows(runs=((0, 2), (13, 15))))
    """

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]]) -> Rows:
        """From runs in order; those that touch become one, empty ones none."""
        found: list[tuple[int, int]] = []
        for first, stop in runs:
            if first >= stop:
                continue
            if found and found[-1][1] == first:
                first = found.pop()[0]
            found.append((first, stop))
        return cls(tuple(found))

    def __len__(self) -> int:
        """How many rows."""
        return sum(stop - first for first, stop in self.runs)

    def __getitem__(self, part: slice) -> Rows:
        """Rows by their place in order."""
        begin, end, _ = part.indices(len(self))
        found, place = [], 0
        for first, stop in self.runs:
            low, high = max(begin - place, 0), min(end - place, stop - first)
            found.append((first + low, first + high))
            place += stop - first
        return Rows.of(found)

    def __add__(self, other: Rows) -> Rows:
        """These and rows that come after them."""
        return Rows.of((*self.runs, *other.runs))

    def within(self, first: int, stop: int) -> Rows:
        """Those from `first` to before `stop`."""
        begin = max(bisect_right(self.runs, (first,)) - 1, 0)
        found = []
        for low, high in self.runs[begin:]:
            if low >= stop:
                break
            found.append((max(low, first), min(high, stop)))
        return Rows.of(found)
