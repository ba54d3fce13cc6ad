"""Format numbers, units, sizes and times for display, and escape text for HTML.

Only display is rounded; tables and chart data keep the measured values.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

NULL = "–"
# What a reader takes in at a glance.
MAX_ANSWER_CHARS = 90

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

# Terminal control characters, and characters that change the writing direction.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_html(text: object) -> str:
    """Text escaped for HTML, also inside quoted attributes.

    >>> escape_html('<a href="x">R&D</a>')
    '&lt;a href=&quot;x&quot;&gt;R&amp;D&lt;/a&gt;'
    """
    return html.escape(str(text), quote=True)


def spell_nested(value: object) -> str | None:
    """A dict, or a list that holds lists or dicts, as JSON; null for any other value.

    >>> spell_nested({"eu": [0.5, 2]}), spell_nested([[1], [2]]), spell_nested([1, 2])
    ('{"eu": [0.5, 2]}', '[[1], [2]]', None)
    """
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict | list) for item in value)):
        return json.dumps(value, ensure_ascii=False, default=repr)
    return None


def find_unit(name: str) -> str:
    """The unit in a column's name, "" for none.

    >>> find_unit("duration_s"), find_unit("output_tokens_per_s"), find_unit("query")
    ('s', 'per s', '')
    """
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(f"_{suffix}")), "")


def format_items(items: Iterable[object], max_items: int = 5) -> str:
    """The first items as text, and the number of others.

    >>> format_items([4, 5, 7], max_items=2)
    '4, 5 and 1 more'
    """
    texts = [str(item) for item in items]
    more = f" and {len(texts) - max_items:,} more" if len(texts) > max_items else ""
    return ", ".join(texts[:max_items]) + more


def fit_answer(*wordings: str) -> str:
    """The first wording of an answer that is short enough for one line of a page; of none, the last, cut after a word.

    >>> fit_answer("comet is 1.8x faster than spark over 22 queries, 1.7 to 1.9.", "1.8x faster.")
    'comet is 1.8x faster than spark over 22 queries, 1.7 to 1.9.'
    >>> fit_answer("word " * 20 + "end.", "Short.")
    'Short.'
    >>> fit_answer("word " * 20 + "end.")
    'word word word word word word word word word word word word word word word word word word…'
    """
    for wording in wordings:
        if len(wording) <= MAX_ANSWER_CHARS:
            return wording
    return shorten_text(wordings[-1], MAX_ANSWER_CHARS)


def cut_text(text: str, max_chars: int) -> str:
    """A text with at most so many characters; a longer one ends in an ellipsis.

    >>> cut_text("word", 4), cut_text("words", 4)
    ('word', 'wor…')
    """
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def cut_with_digest(text: str, max_chars: int) -> str:
    """A text with at most so many characters; a longer one ends in its digest, so that texts that begin alike differ.

    >>> len({cut_with_digest("x" * 300 + end, 30) for end in "ab"})
    2
    """
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 10]}… {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def shorten_text(text: str, max_chars: int) -> str:
    """A text with at most so many characters, cut after a word with an ellipsis; a number is never cut.

    >>> shorten_text("19 GPUs serve 1,400 users", 20)
    '19 GPUs serve 1,400…'
    """
    if len(text) <= max_chars:
        return text
    words = text[:max_chars].rsplit(" ", 1)[0]
    return words.rstrip(" ,;:.(–-") + "…"


def format_label(name: str, unit: str | None = None) -> str:
    """A column's name as an axis title or a table header, its unit in brackets.

    >>> [format_label(name) for name in ("shuffle_read_bytes", "speedup_ratio", "n", "tokens_per_s")]
    ['shuffle read (bytes)', 'speedup (×)', 'n', 'tokens per s']
    """
    suffix = next((suffix for suffix in _UNITS if name.endswith(f"_{suffix}")), "")
    unit = _UNITS.get(suffix, "") if unit is None else "×" if unit == "times" else unit
    words = name.replace("_", " ").strip()
    if not unit or suffix == "per_s":
        return words
    if suffix:
        words = words[: -len(suffix)].strip()
    return words if words.endswith(unit) else f"{words} ({unit})"


def format_number(value: object) -> str:
    """A value for display: grouped thousands, floats with 3 significant digits, null as a dash.

    >>> format_number(1234567), format_number(0.123456), format_number(1234.5), format_number(None), format_number(True)
    ('1,234,567', '0.123', '1,234', '–', 'yes')
    >>> format_number(1e-9), format_number(3.0), format_number(2.5e21)
    ('1e-09', '3', '2.5e+21')
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return NULL if math.isnan(value) else ("∞" if value > 0 else "−∞")
        if value and not 1e-4 <= abs(value) < 1e15:
            return f"{value:.3g}"
        digits = 2 - math.floor(math.log10(abs(value))) if value else 0
        text = f"{value:,.{max(0, digits)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, list | tuple):
        return ", ".join(format_number(item) for item in value)
    return str(value)


def format_ends(low: float | None, high: float | None) -> str:
    """Both ends of an interval, with as many digits as it takes to tell them apart.

    >>> format_ends(2.21, 2.24), format_ends(150.21, 150.43), format_ends(3.0, None)
    ('2.21 to 2.24', '150.2 to 150.4', '3 to –')
    """
    texts = [format_number(low), format_number(high)]
    if low is not None and high is not None and low != high and texts[0] == texts[1]:
        digits = next((n for n in range(4, 12) if f"{low:.{n}g}" != f"{high:.{n}g}"), 12)
        texts = [f"{end:.{digits}g}" for end in (low, high)]
    return f"{texts[0]} to {texts[1]}"


def format_column(values: Sequence[object]) -> list[str]:
    """A column's values for display; floats get the same number of decimals where 3 significant digits allow it.

    >>> format_column([5.1, 4.0, None]), format_column([0.00123, 4.0]), format_column([45.9, 41335.0])
    (['5.1', '4.0', '–'], ['0.00123', '4'], ['45.9', '41,335'])
    >>> format_column([0.0663, 0.046])
    ['0.0663', '0.0460']
    """
    texts = [format_number(value) for value in values]
    figures = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    decimals = max((len(format_number(value).partition(".")[2]) for value in figures), default=0)
    largest = max((abs(value) for value in figures), default=0.0)
    # More decimals would show more than four significant digits of the largest value.
    allowed = 0 if largest >= 100 or not largest else 3 - math.floor(math.log10(largest))
    if not 0 < decimals <= allowed or any("e" in format_number(value) or isinstance(value, str) for value in values):
        return texts
    return [
        f"{value:,.{decimals}f}" if isinstance(value, float) and math.isfinite(value) else text
        for text, value in zip(texts, values, strict=True)
    ]


def format_shares(values: Sequence[float | None]) -> list[str]:
    """Parts of a whole in per cent, with three digits; null as a dash.

    >>> format_shares([0.23, 1.0, 0.00123, None, 0.9999])
    ['23 %', '100 %', '0.123 %', '–', '> 99.9 %']
    """

    def format_share(value: float | None) -> str:
        if value is None:
            return NULL
        # Not all of it is not all of it.
        return "> 99.9 %" if 0.999 < value < 1 else f"{format_number(round(100 * value, 10))} %"

    return [format_share(value) for value in values]


def format_cost_unit(currency: str, per: str = "") -> str:
    """Unit of a cost: its currency, if one was named, and what it is for.

    >>> format_cost_unit("EUR", "an hour"), format_cost_unit("", "an hour"), format_cost_unit("EUR")
    ('EUR an hour', 'an hour', 'EUR')
    """
    return f"{currency} {per}".strip()


def format_bytes(count_bytes: int | float | None) -> str:
    """Bytes in a binary unit.

    >>> format_bytes(0), format_bytes(1536), format_bytes(25_282_215_936), format_bytes(None)
    ('0 bytes', '1.5 KiB', '23.5 GiB', '–')
    """
    if count_bytes is None:
        return NULL
    value, units = float(count_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{format_number(round(value) if units[0] == 'bytes' else value)} {units[0]}"


def format_duration(seconds: float | None) -> str:
    """A duration in its usual units.

    >>> [format_duration(seconds) for seconds in (0.0123, 12.34, 59.97, 75, 7300, None)]
    ['12.3 ms', '12.3 s', '1 min 0 s', '1 min 15 s', '2 h 1 min', '–']
    """
    if seconds is None or seconds < 59.95:
        return format_seconds(seconds)
    minutes, remainder_s = divmod(round(seconds), 60)
    return f"{minutes} min {remainder_s} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_seconds(value: float | None) -> str:
    """A short time in one unit, for tables; a dash for null.

    >>> [format_seconds(value) for value in (0, 1.2e-5, 0.0042, 0.9996, 12.34, 3600, None)]
    ['0 s', '12 µs', '4.2 ms', '1 s', '12.3 s', '3,600 s', '–']
    """
    if value is None:
        return NULL
    # What rounds to a whole unit is written in it.
    if not value or abs(value) >= 0.9995:
        return f"{format_number(float(value))} s"
    return f"{1e3 * value:.3g} ms" if abs(value) >= 0.9995e-3 else f"{1e6 * value:.0f} µs"


def format_moment(text: str | None) -> str:
    """An ISO time as day and minute in UTC; other text is returned unchanged.

    >>> format_moment("2026-11-21T09:38:00Z"), format_moment(None)
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


def replace_controls(text: str) -> str:
    r"""Untrusted text with its control characters replaced.

    >>> replace_controls("line\x1b[31m")
    'line�[31m'
    """
    return CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)
