"""Rows by column, and slices of them: what the stages or plans of a chunk are, each in its slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.core.tables import Coded

Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Rows:
    """Rows by column: numbers, and columns of few distinct values."""

    numbers: dict[str, npt.NDArray[Any]]
    coded: dict[str, Coded]


@dataclass(frozen=True)
class Slice:
    """Some rows of many."""

    rows: Rows
    first: int
    count: int

    def copy(self) -> Slice:
        """The same rows alone, so that the others can be released."""
        return Slice(join_slices([self]), 0, self.count)


def join_slices(slices: Sequence[Slice]) -> Rows:
    """The rows of one or more slices, one after the other; values that no row has are left out."""
    blocks = list({id(one.rows): one.rows for one in slices}.values())
    sizes = [len(next(iter(block.numbers.values()))) for block in blocks]
    starts = dict(zip(map(id, blocks), np.cumsum([0, *sizes]).tolist(), strict=False))
    places = list_ranges([starts[id(one.rows)] + one.first for one in slices], [one.count for one in slices])
    return Rows(
        {name: np.concatenate([block.numbers[name] for block in blocks])[places] for name in blocks[0].numbers},
        {name: _join_coded([block.coded[name] for block in blocks], places) for name in blocks[0].coded},
    )


def _join_coded(columns: Sequence[Coded], places: Ints) -> Coded:
    values = list(chain.from_iterable(column.values for column in columns))
    starts = np.cumsum([0, *(len(column.values) for column in columns)])
    codes = np.concatenate([column.codes + start for column, start in zip(columns, starts, strict=False)])[places]
    is_used = np.zeros(len(values), bool)
    is_used[codes] = True
    return Coded((np.cumsum(is_used) - 1)[codes], [values[place] for place in np.flatnonzero(is_used).tolist()])


def list_ranges(firsts: Sequence[int] | Ints, counts: Sequence[int] | Ints) -> Ints:
    """So many numbers from each of the first ones on.

    >>> list_ranges([5, 0], [2, 3]).tolist()
    [5, 6, 0, 1, 2]
    """
    counts = np.asarray(counts, np.int64)
    before = np.cumsum(counts) - counts
    places: Ints = np.arange(counts.sum()) + np.repeat(np.asarray(firsts, np.int64) - before, counts)
    return places
