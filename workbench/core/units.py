"""Units of figures: which are one quantity, and the plain factor between them."""

from __future__ import annotations

import re

# Quantity, how much of its base unit one unit is, and the unit's names.
_UNITS = (
    ("time", 1e-9, "ns nanosecond nanoseconds"),
    ("time", 1e-6, "us µs μs microsecond microseconds"),
    ("time", 1e-3, "ms millisecond milliseconds"),
    ("time", 1.0, "s sec second seconds"),
    ("time", 60.0, "min minute minutes"),
    ("time", 3600.0, "h hour hours"),
    ("time", 86400.0, "d day days"),
    ("bytes", 1.0, "B byte bytes"),
    ("bytes", 1e3, "kB KB"),
    ("bytes", 1e6, "MB"),
    ("bytes", 1e9, "GB"),
    ("bytes", 1e12, "TB"),
    ("bytes", 1024.0, "KiB"),
    ("bytes", 1024.0**2, "MiB"),
    ("bytes", 1024.0**3, "GiB"),
    ("bytes", 1024.0**4, "TiB"),
    ("frequency", 1.0, "Hz"),
    ("frequency", 1e3, "kHz"),
    ("frequency", 1e6, "MHz"),
    ("frequency", 1e9, "GHz"),
    ("power", 1e-3, "mW"),
    ("power", 1.0, "W"),
    ("power", 1e3, "kW"),
    ("energy", 1.0, "J"),
    ("energy", 1e3, "kJ"),
    ("energy", 3.6e3, "Wh"),
    ("energy", 3.6e6, "kWh"),
    ("share", 1.0, "share fraction"),
    ("share", 0.01, "% percent"),
    ("times", 1.0, "times x × ratio"),
    ("", 1.0, "1"),
)
_FACTORS = {name: (quantity, factor) for quantity, factor, names in _UNITS for name in names.split()}
_PER = re.compile(r"\s*/\s*|\s*\bper\s+")


def find_unit_factor(unit: str, other: str) -> float | None:
    """What one `unit` is in `other`; null where no plain factor leads from one to the other.

    >>> find_unit_factor("s", "ms"), find_unit_factor("MiB/s", "KiB/s"), find_unit_factor("1/s", "per s")
    (1000.0, 1024.0, 1.0)
    >>> find_unit_factor("ms", "KiB"), find_unit_factor("", "ms"), find_unit_factor("tokens/s", "tokens/min")
    (None, None, 60.0)
    """
    parts, other_parts = (_PER.split(text.strip(), maxsplit=1) for text in (unit, other))
    if unit == other:
        return 1.0
    if len(parts) != len(other_parts):
        return None
    factors = []
    for part, other_part in zip(parts, other_parts, strict=True):
        (quantity, factor), (other_quantity, other_factor) = (
            _FACTORS.get(name, (name, 1.0)) for name in (part, other_part)
        )
        if quantity != other_quantity:
            return None
        factors.append(_divide_exactly(factor, other_factor))
    return factors[0] if len(factors) == 1 else _divide_exactly(factors[0], factors[1])


def _divide_exactly(factor: float, other: float) -> float:
    """The quotient, as a whole number where it is one but for rounding.

    >>> 1e-3 / 1e-6, _divide_exactly(1e-3, 1e-6)
    (1000.0000000000001, 1000.0)
    """
    quotient = factor / other
    return float(round(quotient)) if abs(quotient - round(quotient)) < 1e-9 * quotient else quotient
