"""The order in which Scala 2.12 walks through its hash tables.

The original leaves several choices to that order (which of a node's stages counts as its first, which of two equal
rows comes first), so that its figures can only be had by following it. Source: scala.collection.{mutable,immutable} of
2.12; checked against the compiled original on real logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", int, str)
MASK = 0xFFFFFFFF
SEED = 4  # of the first table's 16 buckets; it stays when the table grows
SMALL = 4  # Set1 to Set4 and Map1 to Map4 keep the order in which they were filled


def _hash(key: int | str) -> int:
    """`##` of an Int or a String; a Long within 32 bits hashes like an Int."""
    if isinstance(key, int):
        return key & MASK
    value = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & MASK
    return value


def _trie_key(key: int | str) -> tuple[int, ...]:
    """Immutable tables are tries over five bits at a time, lowest first."""
    value = _hash(key)
    value = (value + (~(value << 9) & MASK)) & MASK
    value ^= value >> 14
    value = (value + (value << 4)) & MASK
    value ^= value >> 10
    return tuple(value >> shift & 31 for shift in range(0, 35, 5))


def immutable(keys: Iterable[K]) -> list[K]:
    """How an immutable Set (or the keys of an immutable Map) filled in this order is walked through.

    Examples
    --------
    >>> immutable([3, 1, 3, 2])
    [3, 1, 2]
    >>> immutable([9, 1, 7, 3, 5])
    [5, 1, 9, 7, 3]
    """
    unique: Sequence[K] = list(dict.fromkeys(keys))
    return list(unique) if len(unique) <= SMALL else sorted(unique, key=_trie_key)


def mutable(keys: Iterable[K]) -> list[K]:
    """How the keys of a mutable HashMap filled in this order are walked through: from the last bucket to the first.

    Examples
    --------
    >>> mutable([1, 2, 3])
    [2, 1, 3]
    """
    size = 16
    buckets: dict[int, list[K]] = {}
    for count, key in enumerate(dict.fromkeys(keys), start=1):
        buckets.setdefault(_bucket(key, size), []).insert(0, key)
        # A table grows when it holds more than three quarters of its buckets; chains turn round when they move.
        if count > size * 3 // 4:
            size *= 2
            moved: dict[int, list[K]] = {}
            for bucket in sorted(buckets, reverse=True):
                for old in buckets[bucket]:
                    moved.setdefault(_bucket(old, size), []).insert(0, old)
            buckets = moved
    return [key for bucket in sorted(buckets, reverse=True) for key in buckets[bucket]]


def _bucket(key: int | str, size: int) -> int:
    swapped = _hash(key) * 0x9E3775CD & MASK
    swapped = int.from_bytes(swapped.to_bytes(4, "little"), "big")
    swapped = swapped * 0x9E3775CD & MASK
    turned = (swapped >> SEED | swapped << (32 - SEED)) & MASK
    return turned >> (32 - (size - 1).bit_length()) & (size - 1)
