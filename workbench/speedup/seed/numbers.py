"""Numbers as the original rounds and prints them."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

# Scala's BigDecimal divides to 34 digits.
_DIVISION = Context(prec=34)


def rounded(total: float, count: float, places: int) -> float:
    """`total / count`, halves up at `places` decimals; 0.0 when either is 0.

    Examples
    --------
    >>> rounded(2.675, 1, 2), rounded(1, 3, 2), rounded(5, 0, 2)
    (2.68, 0.33, 0.0)
    """
    if not total or not count:
        return 0.0
    quotient = _DIVISION.divide(Decimal(repr(total)), Decimal(repr(count)))
    return float(quotient.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def percent(part: int, whole: int) -> float:
    """Percent with two decimals; 0.0 when either is 0."""
    if not part or not whole:
        return 0.0
    quotient = _DIVISION.multiply(_DIVISION.divide(Decimal(part), Decimal(whole)), Decimal(100))
    return float(quotient.quantize(Decimal("0.01"), ROUND_HALF_UP))


def average(values: list[float]) -> float:
    """Mean with two decimals, halves up; 1.0 of nothing.

    Examples
    --------
    >>> average([4.5, 4.55]), average([])
    (4.53, 1.0)
    """
    return rounded(sum(values), len(values), 2) if values else 1.0


def cut(value: float) -> float:
    """Two decimals, the rest cut off downwards.

    Examples
    --------
    >>> cut(1.999), cut(-0.001)
    (1.99, -0.01)
    """
    return math.floor(value * 100) / 100


def printed(value: float) -> str:
    """A double as Java prints it: shortest digits, scientific from ten million on and below a thousandth.

    Examples
    --------
    >>> printed(1.0), printed(109118.18), printed(12345678.9), printed(0.00012)
    ('1.0', '109118.18', '1.23456789E7', '1.2E-4')
    """
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)) if math.isfinite(value) else "NaN"
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
