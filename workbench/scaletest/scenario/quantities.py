"""Kubernetes quantities."""

from __future__ import annotations

import re
from decimal import Decimal

_SIGNS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_SIGNS |= {sign: Decimal(1000) ** power for power, sign in enumerate("kMGTPE", 1)}
_SIGNS |= {sign + "i": Decimal(1024) ** power for power, sign in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(r"([+-]?\d{1,20}(?:\.\d{0,12})?)(?:[eE]([+-]?\d{1,2}))?([numkMGTPE]?|[KMGTPE]i)")


def parse_quantity(quantity: object) -> float:
    """A quantity as a number in its base unit (cores, bytes, GPUs).

    >>> parse_quantity("500m"), parse_quantity("2Gi"), parse_quantity(8), parse_quantity("1e3")
    (0.5, 2147483648.0, 8.0, 1000.0)
    """
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None or isinstance(quantity, bool):
        raise ValueError(f"not a quantity such as 500m or 2Gi: {str(quantity)[:40]!r}")
    digits, exponent, sign = match.groups()
    return float(Decimal(digits).scaleb(int(exponent or 0)) * _SIGNS[sign])
