"""Aligned tables for the terminal: numbers at the right, long cells cut or wrapped, text from outside harmless."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from numbers import Number
from typing import Literal

from workbench.core import formats
from workbench.core.formats import CONTROL_CHARACTERS

MIN_COLUMN_WIDTH = 8
_ELLIPSIS = "…"
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def format_table(
    rows: Iterable[Sequence[object]],
    headers: Sequence[str] = (),
    *,
    right: Collection[str | int] = (),
    max_width: int | None = None,
    overflow: Literal["cut", "wrap"] = "cut",
    indent: int = 0,
    gap: int = 2,
) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell.

    `rows`: Values, as many in each row. Numbers are written by `formats.aligned`, None as a dash; texts stay as they
    are, but for what would steer the terminal. A column of numbers is aligned at the right.
    `right`: Further columns that are aligned at the right, by header or place: texts that hold numbers ("4.2 ms").
    `max_width`: Characters of a line: the widest columns of texts are narrowed until it fits. None: whatever it
    needs.
    `overflow`: Whether cells that are too wide are cut, or wrapped to more lines.

    >>> print(*format_table([["sort", 1.5, None], ["a\\x1b[1m", 20, True]], ["name", "runs", "fast"]), sep="\\n")
    name   runs  fast
    sort    1.5  –
    a�[1m  20.0  yes
    >>> print(*format_table([["a name that is long", 7]], max_width=14), sep="\\n")
    a name tha…  7
    """
    values = [list(row) for row in rows]
    if not values and not headers:
        return []
    columns = [list(column) for column in zip(*values, strict=True)] if values else [[] for _ in headers]
    numeric = [_is_numeric(column) for column in columns]
    cells = [_format_column(column) for column in columns]
    if headers:
        cells = [[escape_cell(header), *column] for header, column in zip(headers, cells, strict=True)]
    places = {*right} | {place for place, name in enumerate(headers) if name in right}
    at_right = [is_number or place in places for place, is_number in enumerate(numeric)]
    widths = [max(map(measure_width, column)) for column in cells]
    if max_width is not None:
        widths = _narrow_columns(widths, at_right, max_width - indent - gap * (len(widths) - 1))
    lines: list[str] = []
    for row in zip(*cells, strict=True):
        parts = [_fit_cell(cell, width, overflow) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            shown = [_pad_cell(*arguments) for arguments in zip(line, widths, at_right, strict=True)]
            lines.append((" " * indent + (" " * gap).join(shown)).rstrip())
    return lines


def escape_cell(text: object) -> str:
    """A text from outside as one line that steers no terminal.

    >>> escape_cell("two\\nlines"), escape_cell("\\x1b[31mred")
    ('two lines', '�[31mred')
    """
    clean_text = str(text).encode("utf-8", "replace").decode()
    return CONTROL_CHARACTERS.sub(_REPLACED, " ".join(clean_text.replace("\t", " ").splitlines()))


def measure_width(text: str) -> int:
    """Places that a text takes on a terminal: two for a wide letter, none for an accent that is drawn over one.

    >>> measure_width("abc"), measure_width("日本"), measure_width("e\\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(_measure_letter(letter) for letter in text)


def cut_text(text: str, width: int) -> str:
    """A text in no more than `width` places, with an ellipsis where something is left out.

    >>> cut_text("abcdef", 4), cut_text("abc", 4)
    ('abc…', 'abc')
    """
    if measure_width(text) <= width:
        return text
    head, used = "", 0
    for letter in text:
        used += _measure_letter(letter)
        if used > width - 1:
            break
        head += letter
    return head.rstrip() + _ELLIPSIS


def _measure_letter(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _is_numeric(column: Sequence[object]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(value, Number) and not isinstance(value, bool) for value in values)


def _format_column(column: Sequence[object]) -> list[str]:
    if not _is_numeric(column):
        return [escape_cell(formats.format_number(value)) for value in column]
    if any(isinstance(value, float) and not math.isnan(value) for value in column):
        column = [float(value) if isinstance(value, int) else value for value in column]
    return formats.format_column(column)


def _narrow_columns(widths: Sequence[int], fixed: Sequence[bool], room: int) -> list[int]:
    """Take from the widest column that may be narrower until all fit, or none can give any more."""
    new_widths = list(widths)
    while sum(new_widths) > room:
        free = [place for place, width in enumerate(new_widths) if not fixed[place] and width > MIN_COLUMN_WIDTH]
        if not free:
            break
        widest = max(free, key=lambda place: new_widths[place])
        new_widths[widest] -= 1
    return new_widths


def _fit_cell(text: str, width: int, overflow: str) -> list[str]:
    if measure_width(text) <= width:
        return [text]
    return [cut_text(text, width)] if overflow == "cut" else textwrap.wrap(text, width) or [""]


def _pad_cell(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - measure_width(text))
    return space + text if is_right else text + space
