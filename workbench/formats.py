"""How values are written for people: numbers, units, sizes, times; and what keeps foreign text harmless in HTML.

Only display is rounded here; tables and chart data keep what was measured.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from datetime import UTC, datetime

NULL = "–"

_UNITS = {
    "per_s": "per s",
    "ratio": "×",
    "percent": "%",
    "bytes": "bytes",
    "kib": "KiB",
    "mib": "MiB",
    "gib": "GiB",
    "ns": "ns",
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "min": "min",
    "h": "h",
    "w": "W",
    "usd": "USD",
}


def escape(text: object) -> str:
    """Text from outside, made harmless in HTML (also inside quoted attributes)."""
    return html.escape(str(text), quote=True)


def unit_of(name: str) -> str:
    """The unit that a column's name carries, "" for none.

    Examples
    --------
    >>> unit_of("duration_s"), unit_of("output_tokens_per_s"), unit_of("query")
    ('s', 'per s', '')
    """
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(f"_{suffix}")), "")


def label_of(name: str, unit: str | None = None) -> str:
    """A column's name as an axis title or a table header, its unit in brackets.

    Examples
    --------
    >>> label_of("shuffle_read_bytes"), label_of("speedup_ratio"), label_of("n"), label_of("tokens_per_s")
    ('shuffle read (bytes)', 'speedup (×)', 'n', 'tokens per s')
    """
    suffix = next((suffix for suffix in _UNITS if name.endswith(f"_{suffix}")), "")
    unit = _UNITS.get(suffix, "") if unit is None else unit
    words = name.replace("_", " ").strip()
    if not unit or suffix == "per_s":
        return words
    if suffix:
        words = words[: -len(suffix)].strip()
    return words if words.endswith(unit) else f"{words} ({unit})"


def number(value: object) -> str:
    """A value for reading: thousands apart, floats with 3 significant digits, null as a dash.

    Examples
    --------
    >>> number(1234567), number(0.123456), number(1234.5), number(None), number(True)
    ('1,234,567', '0.123', '1,234', '–', 'yes')
    >>> number(1e-9), number(3.0), number(2.5e21)
    ('1e-09', '3', '2.5e+21')
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, list | tuple):
        return ", ".join(number(item) for item in value)
    return str(value)


def aligned(values: Sequence[object]) -> list[str]:
    """A column's values for reading, floats with equally many decimals where that claims no digits.

    Examples
    --------
    >>> aligned([5.1, 4.0, None]), aligned([0.00123, 4.0]), aligned([45.9, 41335.0])
    (['5.1', '4.0', '–'], ['0.00123', '4'], ['45.9', '41,335'])
    """
    texts = [number(value) for value in values]
    figures = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    decimals = max((len(number(value).partition(".")[2]) for value in figures), default=0)
    largest = max((abs(value) for value in figures), default=0.0)
    # More decimals than this would claim digits that three significant ones do not hold.
    allowed = 3 if largest < 10 else 2 if largest < 100 else 0
    if not 0 < decimals <= allowed or any("e" in number(value) or isinstance(value, str) for value in values):
        return texts
    return [
        f"{value:,.{decimals}f}" if isinstance(value, float) and math.isfinite(value) else text
        for text, value in zip(texts, values, strict=True)
    ]


def _float(value: float) -> str:
    if not math.isfinite(value):
        return NULL if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.3g}"
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:,.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(count_bytes: int | float | None) -> str:
    """Bytes in the binary unit that keeps the figure short.

    Examples
    --------
    >>> size(0), size(1536), size(25_282_215_936), size(None)
    ('0 bytes', '1.5 KiB', '23.5 GiB', '–')
    """
    if count_bytes is None:
        return NULL
    value, units = float(count_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number(round(value) if units[0] == 'bytes' else value)} {units[0]}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration(0.0123), duration(12.34), duration(75), duration(7300), duration(None)
    ('12.3 ms', '12.3 s', '1 min 15 s', '2 h 1 min', '–')
    """
    if seconds is None:
        return NULL
    if seconds < 1:
        return f"{number(float(seconds) * 1000)} ms"
    if seconds < 60:
        return f"{number(float(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def seconds(value: float | None) -> str:
    """A short time in one unit, for figures that stand beside each other; a dash where it is not known.

    Examples
    --------
    >>> seconds(0.0042), seconds(12.34), seconds(None)
    ('4.2 ms', '12.3 s', '–')
    """
    if value is None:
        return NULL
    if not value:
        return "0 s"
    if abs(value) < 1e-3:
        return f"{1e6 * value:.0f} µs"
    return f"{1e3 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"


def moment(text: str | None) -> str:
    """An ISO time as day and minute in UTC; anything else is given back as it is.

    Examples
    --------
    >>> moment("2026-11-21T09:38:00Z"), moment(None)
    ('2026-11-21 09:38 UTC', '–')
    """
    if not text:
        return NULL
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
