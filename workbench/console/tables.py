"""Aligned tables for the terminal: numbers at the right, text from outside harmless."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from numbers import Number

from workbench.console.screen import find_width, remember_heads, wrap_words
from workbench.core import formats
from workbench.core.formats import CONTROL_CHARACTERS

MAX_CELL_LINES = 4
MIN_TEXT_WIDTH = 12
# Longer words may be broken at their marks.
MAX_WORD_WIDTH = 24
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_GAP = "  "
_FIGURE = r"[-+~−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?[%×x]?"
# A number with its unit or interval, which stands at the right; and numbers that are not broken.
_NUMBER = re.compile(rf"(?:x )?{_FIGURE}(?: [^\W\d]{{1,6}}| [%×])?(?: \(?{_FIGURE} to {_FIGURE}\)?)?")
_NUMBERS = re.compile(r"[-+~−]?\d\S*(?: (?:to|of|\(?\d\S*))*(?: [^\W\d]{1,6}| %)?")
_PART = re.compile(r"[^/,;=:]*[/,;=:]+|[^/,;=:]+")


def format_table(
    rows: Iterable[Sequence[object]],
    headers: Sequence[str] = (),
    *,
    right: Collection[str] = (),
    rank: Sequence[str] = (),
) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell, or as the screen of a command allows.

    `rows`: Values, as many in each row. Numbers are written by `formats.format_column`, None as a dash; texts stay as
    they are, but for what would steer the terminal. A column of numbers is aligned at the right.
    `right`: Headers of further columns that are aligned at the right: texts that hold numbers ("4.2 ms").
    `rank`: Headers of the columns that are shown first where not all have room; the others follow in their order.

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
    if headers:
        numeric = [is_number or header in right for is_number, header in zip(numeric, headers, strict=True)]
    return format_cells([_format_column(column) for column in columns], headers, right=numeric, rank=rank)


def format_cells(
    columns: Sequence[Sequence[str]],
    headers: Sequence[str] = (),
    *,
    right: Sequence[bool] = (),
    rank: Sequence[str] = (),
    width: int | None = None,
    max_lines: int = MAX_CELL_LINES,
) -> list[str]:
    """Lines of a table of texts, one list for each column, fitted to the screen of a command or to `width`.

    Texts wrap between words and end with an ellipsis after `max_lines` lines; a number is never broken. Columns
    without room are named in a line below. `right`: For each column, whether it is aligned at the right, as all
    numbers are.

    >>> columns = [["sort", "scan"], ["1.5", "20.0"], ["one thread on each of two cores", ""]]
    >>> print(*format_cells(columns, ["name", "seconds", "remark"], width=33), sep="\\n")
    name  seconds  remark
    sort      1.5  one thread on each
                   of two cores
    scan     20.0
    >>> print(*format_cells(columns, ["name", "seconds", "remark"], width=24), sep="\\n")
    name  seconds
    sort      1.5
    scan     20.0
    Not shown: remark.
    --wide shows all
    columns.
    """
    width = find_width() if width is None else width
    heads = [escape_cell(header) for header in headers] or [""] * len(columns)
    aligned = right or [False] * len(columns)
    cells_of = [[escape_cell(text) for text in column] for column in columns]
    made = [_Column(*column) for column in zip(heads, cells_of, aligned, strict=True)]
    shown = made
    if width is not None:
        if headers:
            shown = _choose_columns(made, rank, width)
        _set_widths(shown, width)
    head_lines = _join_cells([(column.wrap_head(), column) for column in shown], at_bottom=True) if headers else []
    remember_heads(head_lines)
    lines = head_lines
    is_cut = False
    for place in range(len(columns[0]) if columns else 0):
        cells = [(column.wrap_cell(place), column) for column in shown]
        is_cut |= any(len(cell) > max_lines for cell, _ in cells)
        lines = lines + _join_cells([(_cut_lines(cell, max_lines, column.width), column) for cell, column in cells])
    names = [column.head for column in made if column not in shown]
    if width is None or not (names or is_cut):
        omissions = []
    else:
        texts = [
            f"Not shown: {', '.join(names)}." if names else "",
            f"--wide shows {'all columns' if names else 'whole texts'}.",
        ]
        omissions = wrap_words(" ".join(filter(None, texts)), width)
    return lines + omissions


class _Column:
    """A column of a table: its texts, and how wide it is now and at least."""

    def __init__(self, head: str, cells: list[str], is_right: bool) -> None:
        self.head, self.cells = head, cells
        self.is_right = is_right or _all_match(_NUMBER, cells)
        self.is_whole = self.is_right or _all_match(_NUMBERS, cells)
        self.content = max(map(measure_width, cells), default=0)
        self.width = max(self.content, measure_width(head))

    @property
    def least(self) -> int:
        """The least width: of the longest word, and for texts enough to read."""
        head = _measure_longest_word(head) if (head := self.head) else 0
        if self.is_whole:
            return max(head, self.content)
        words = max(map(_measure_longest_word, self.cells), default=0)
        return max(head, words, min(self.content, MIN_TEXT_WIDTH))

    def wrap_head(self) -> list[str]:
        return _wrap_cell(self.head, self.width)

    def wrap_cell(self, place: int) -> list[str]:
        text = self.cells[place]
        return [text] if self.is_whole else _wrap_cell(text, self.width)


def _all_match(pattern: re.Pattern[str], cells: Sequence[str]) -> bool:
    texts = [text for text in cells if text not in ("", formats.NULL, "-")]
    return bool(texts) and all(pattern.fullmatch(text) for text in texts)


def _choose_columns(columns: list[_Column], rank: Sequence[str], width: int) -> list[_Column]:
    """The most important columns that have room beside the first, in their order."""
    places = {name: place for place, name in enumerate(rank)}
    ordered = sorted(columns[1:], key=lambda column: places.get(column.head, len(places)))
    left, chosen = width - columns[0].least, {id(columns[0])}
    for column in ordered:
        if column.least + len(_GAP) <= left:
            left -= column.least + len(_GAP)
            chosen.add(id(column))
    return [column for column in columns if id(column) in chosen]


def _set_widths(columns: list[_Column], width: int) -> None:
    """Give each column its least width, and share out the room that is left, to the narrowest first."""
    left = width - len(_GAP) * (len(columns) - 1) - sum(column.least for column in columns)
    wanted = sorted(columns, key=lambda column: column.width - column.least)
    for n_waiting, column in zip(range(len(columns), 0, -1), wanted, strict=True):
        more = min(column.width - column.least, max(0, left) // n_waiting)
        column.width = column.least + more
        left -= more


def _split_words(text: str) -> list[tuple[str, str]]:
    """Words, each with what stands before it; long ones, such as paths, in parts that end with a mark."""
    found = []
    for word in text.split(" "):
        parts = _PART.findall(word) if measure_width(word) > MAX_WORD_WIDTH else [word]
        found += [(" " if place == 0 else "", part) for place, part in enumerate(parts)]
    return found


def _measure_longest_word(text: str) -> int:
    return max(measure_width(word) for _, word in _split_words(text))


def _wrap_cell(text: str, width: int) -> list[str]:
    if measure_width(text) <= width:
        return [text]
    lines = [""]
    for before, word in _split_words(text):
        longer = f"{lines[-1]}{before}{word}" if lines[-1] else word
        if measure_width(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _cut_lines(lines: list[str], max_lines: int, width: int) -> list[str]:
    """The first lines of a cell, the last with an ellipsis behind the last word that leaves room for it."""
    if len(lines) <= max_lines:
        return lines
    last = lines[max_lines - 1]
    while last and measure_width(last) + 2 > width:
        last = last.rpartition(" ")[0]
    return [*lines[: max_lines - 1], f"{last} …".lstrip()]


def _join_cells(cells: Sequence[tuple[list[str], _Column]], *, at_bottom: bool = False) -> list[str]:
    """The lines of a row whose cells may have several."""
    height = max(len(lines) for lines, _ in cells)
    padded = []
    for lines, column in cells:
        empty = [""] * (height - len(lines))
        full = [*empty, *lines] if at_bottom else [*lines, *empty]
        spaces = [" " * (column.width - measure_width(line)) for line in full]
        padded.append(
            [space + line if column.is_right else line + space for line, space in zip(full, spaces, strict=True)]
        )
    return [_GAP.join(line).rstrip() for line in zip(*padded, strict=True)]


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
    shown = [letter for letter in text if not unicodedata.combining(letter)]
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shown)


def _is_numeric(column: Sequence[object]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(value, Number) and not isinstance(value, bool) for value in values)


def _format_column(column: Sequence[object]) -> list[str]:
    if not _is_numeric(column):
        return [formats.format_number(value) for value in column]
    if any(isinstance(value, float) and not math.isnan(value) for value in column):
        column = [float(value) if isinstance(value, int) else value for value in column]
    return formats.format_column(column)
