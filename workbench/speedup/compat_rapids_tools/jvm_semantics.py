"""Rounding, number formatting and hash-table order of Java and Scala 2.12."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TypeVar

# Scala's BigDecimal divides to 34 digits.
_DIVISION = Context(prec=34)
K = TypeVar("K", int, str)
HASH_MASK = 0xFFFFFFFF
HASH_SEED = 4  # of the first table's 16 buckets; it stays when the table grows
MAX_SMALL_SET = 4  # Set1 to Set4 and Map1 to Map4 keep the order in which they were filled


def round_ratio(total: float, count: float, places: int) -> float:
    """`total / count`, halves up at `places` decimals; 0.0 when either is 0.

    >>> round_ratio(2.675, 1, 2), round_ratio(1, 3, 2), round_ratio(5, 0, 2)
    (2.68, 0.33, 0.0)
    """
    if not total or not count:
        return 0.0
    quotient = _DIVISION.divide(Decimal(repr(total)), Decimal(repr(count)))
    return float(quotient.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def round_percent(part: int, total: int) -> float:
    """Percent with two decimals; 0.0 when either is 0.

    >>> round_percent(1, 3), round_percent(0, 3)
    (33.33, 0.0)
    """
    if not part or not total:
        return 0.0
    quotient = _DIVISION.multiply(_DIVISION.divide(Decimal(part), Decimal(total)), Decimal(100))
    return float(quotient.quantize(Decimal("0.01"), ROUND_HALF_UP))


def round_average(values: list[float]) -> float:
    """Mean with two decimals, halves up; 1.0 of nothing.

    >>> round_average([4.5, 4.55]), round_average([])
    (4.53, 1.0)
    """
    return round_ratio(sum(values), len(values), 2) if values else 1.0


def truncate_decimals(value: float) -> float:
    """Two decimals, the rest cut off downwards.

    >>> truncate_decimals(1.999), truncate_decimals(-0.001)
    (1.99, -0.01)
    """
    return math.floor(value * 100) / 100


def format_double(value: float) -> str:
    """A double as Java prints it: shortest digits, scientific from ten million on and below a thousandth.

    >>> format_double(1.0), format_double(109118.18), format_double(12345678.9), format_double(0.00012)
    ('1.0', '109118.18', '1.23456789E7', '1.2E-4')
    """
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)) if math.isfinite(value) else "NaN"
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _scala_hash(key: int | str) -> int:
    """`##` of an Int or a String; a Long within 32 bits hashes like an Int."""
    if isinstance(key, int):
        return key & HASH_MASK
    value = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & HASH_MASK
    return value


def _hash_trie_path(key: int | str) -> tuple[int, ...]:
    """Sort key of an element in Scala's immutable hash tables: five bits of its hash at a time, lowest first."""
    value = _scala_hash(key)
    value = (value + (~(value << 9) & HASH_MASK)) & HASH_MASK
    value ^= value >> 14
    value = (value + (value << 4)) & HASH_MASK
    value ^= value >> 10
    return tuple(value >> shift & 31 for shift in range(0, 35, 5))


def immutable_order(keys: Iterable[K]) -> list[K]:
    """How an immutable Set (or the keys of an immutable Map) filled in this order is walked through.

    >>> immutable_order([3, 1, 3, 2])
    [3, 1, 2]
    >>> immutable_order([9, 1, 7, 3, 5])
    [5, 1, 9, 7, 3]
    """
    unique: Sequence[K] = list(dict.fromkeys(keys))
    return list(unique) if len(unique) <= MAX_SMALL_SET else sorted(unique, key=_hash_trie_path)


def mutable_order(keys: Iterable[K]) -> list[K]:
    """How the keys of a mutable HashMap filled in this order are walked through: from the last bucket to the first.

    >>> mutable_order([1, 2, 3])
    [2, 1, 3]
    """
    size = 16
    buckets: dict[int, list[K]] = {}
    for count, key in enumerate(dict.fromkeys(keys), start=1):
        buckets.setdefault(_bucket_index(key, size), []).insert(0, key)
        # A table grows when it holds more than three quarters of its buckets; chains turn round when they move.
        if count > size * 3 // 4:
            size *= 2
            moved: dict[int, list[K]] = {}
            for bucket in sorted(buckets, reverse=True):
                for old in buckets[bucket]:
                    moved.setdefault(_bucket_index(old, size), []).insert(0, old)
            buckets = moved
    return [key for bucket in sorted(buckets, reverse=True) for key in buckets[bucket]]


def _bucket_index(key: int | str, size: int) -> int:
    swapped = _scala_hash(key) * 0x9E3775CD & HASH_MASK
    swapped = int.from_bytes(swapped.to_bytes(4, "little"), "big")
    swapped = swapped * 0x9E3775CD & HASH_MASK
    turned = (swapped >> HASH_SEED | swapped << (32 - HASH_SEED)) & HASH_MASK
    return turned >> (32 - (size - 1).bit_length()) & (size - 1)
