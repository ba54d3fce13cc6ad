"""Who asked the API server for what: the audit log's lines, counted per second, client, verb and resource."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.scaletest import tables
from workbench.scaletest.times import NS

if TYPE_CHECKING:
    import polars as pl

SETTLED_S = 5  # lines of a second come no later than that after it
MOST_DURATIONS = 500  # kept of one second and key; above, a random sample of so many
MOST_KEYS = 20_000
MOST_ROWS = 2_000_000
OTHER = "other"


@dataclass
class _Second:
    """Requests of one key in one second."""

    count: int = 0
    durations_s: list[float] = field(default_factory=list)


Key = tuple[str, str, str, str, int]  # client, verb, resource, subresource, code


class Requests:
    """Counts that take 30 bytes a row once a second is over, however many requests it had."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, _Second]] = {}
        self._keys: dict[Key, int] = {}
        self._newest = 0
        self._draws = random.Random(0)  # noqa: S311 -- a sample of durations
        self._at, self._key, self._count = array("q"), array("i"), array("q")
        self._p50, self._p99 = array("d"), array("d")
        self.left_out = 0

    def add(self, at_ns: int, key: Key, duration_s: float) -> None:
        """One request that was answered then, after so long."""
        second = at_ns // NS
        number = self._number(key)
        found = self._open.setdefault(second, {}).setdefault(number, _Second())
        found.count += 1
        if len(found.durations_s) < MOST_DURATIONS:
            found.durations_s.append(duration_s)
        elif (place := self._draws.randrange(found.count)) < MOST_DURATIONS:
            found.durations_s[place] = duration_s
        if second > self._newest:
            self._newest = second
            self._settle(second - SETTLED_S)

    def _number(self, key: Key) -> int:
        number = self._keys.get(key)
        if number is None:
            if len(self._keys) >= MOST_KEYS:
                key = (OTHER, OTHER, OTHER, "", key[4])
            number = self._keys.setdefault(key, len(self._keys))
        return number

    def _settle(self, before: int) -> None:
        for second in sorted(one for one in self._open if one < before):
            for number, found in self._open.pop(second).items():
                self._row(second, number, found)

    def _row(self, second: int, number: int, found: _Second) -> None:
        if len(self._at) >= MOST_ROWS:
            self.left_out += found.count
            return
        ordered = sorted(found.durations_s)
        self._at.append(second)
        self._key.append(number)
        self._count.append(found.count)
        self._p50.append(_quantile(ordered, 0.5))
        self._p99.append(_quantile(ordered, 0.99))

    def frame(self, origin_ns: int) -> pl.DataFrame:
        """tables.REQUESTS, in seconds since the run's start."""
        import polars as pl

        self._settle(self._newest + 1)
        made = pl.DataFrame(list(self._rows(origin_ns)), schema=tables.REQUESTS.schema(), orient="row")
        # Late lines of a second make a second row of it: counts add up, and of the quantiles the larger part tells.
        return _merged(made)

    def _rows(self, origin_ns: int) -> Iterator[tuple[Any, ...]]:
        keys = list(self._keys)
        columns = (self._at, self._key, self._count, self._p50, self._p99)
        for second, number, count, p50, p99 in zip(*columns, strict=True):
            yield (second - origin_ns / NS, *keys[number], count, p50, p99)


def merged(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """Rows of two samplers of one run, one after the other."""
    import polars as pl

    return _merged(pl.concat([older, newer]))


def _merged(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    key, count = list(tables.REQUESTS.key), pl.col("requests")
    largest = pl.col("duration_p50_s", "duration_p99_s").sort_by("requests").last()
    return (
        frame.group_by(key, maintain_order=True)
        .agg(count.sum(), largest)
        .sort(key)
        .select(list(tables.REQUESTS.schema()))
    )


def _quantile(ordered: list[float], q: float) -> float:
    """The smallest value that at least a share q of all does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]
