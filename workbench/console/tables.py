"""Aligned tables for the terminal: numbers at the right, text from outside harmless."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from numbers import Number

from workbench.core import formats
from workbench.core.formats import CONTROL_CHARACTERS

_REPLACED = "\N{REPLACEMENT CHARACTER}"


def format_table(
    rows: Iterable[Sequence[object]], headers: Sequence[str] = (), *, right: Collection[str] = ()
) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell.

    `rows`: Values, as many in each row. Numbers are written by `formats.format_column`, None as a dash; texts stay as
    they are, but for what would steer the terminal. A column of numbers is aligned at the right.
    `right`: Headers of further columns that are aligned at the right: texts that hold numbers ("4.2 ms").

    >>> print(*format_table([["sort", 1.5, None], ["a\\x1b[1m", 20, True]], ["name", "runs", "fast"]), sep="\\n")
    name   runs  fast
    sort    1.5  –
    a�[1m  20.0  yes
    """
    values = [list(row) for row in rows]
    if not values and not headers:
        return []
    columns = [list(column) for column in zip(*values, strict=True)] if values else [[] for _ in headers]
    numeric = [_is_numeric(column) for column in columns]
    cells = [_format_column(column) for column in columns]
    if headers:
        numeric = [is_number or header in right for is_number, header in zip(numeric, headers, strict=True)]
        cells = [[escape_cell(header), *column] for header, column in zip(headers, cells, strict=True)]
    widths = [max(map(measure_width, column)) for column in cells]
    return [
        "  ".join(_pad_cell(*cell) for cell in zip(row, widths, numeric, strict=True)).rstrip()
        for row in zip(*cells, strict=True)
    ]


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


def _pad_cell(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - measure_width(text))
    return space + text if is_right else text + space
