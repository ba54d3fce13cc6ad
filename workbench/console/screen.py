"""The screen that a command writes to: how wide it is, and which lines are heads of tables.

Outside of a command there is no screen: texts are as wide as they need to be, as in a notebook or a library call.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TextIO

PIPE_WIDTH = 80
MIN_WIDTH = 20
_BOLD, _RED, _GREEN, _YELLOW, _END = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_COLOURS = {
    **dict.fromkeys(("valid", "succeeded", "better", "passed", "FASTER"), _GREEN),
    **dict.fromkeys(("invalid", "failed", "died", "worse", "broken", "SLOWER"), _RED),
    **dict.fromkeys(("UNDECIDED", "cancelled", "unfinished"), _YELLOW),
}
# A verdict is a cell of its own or stands behind its label; in a sentence it keeps the sentence's colour.
_VERDICT = re.compile(rf"(?:(?<=  )|(?<=: )|^)({'|'.join(_COLOURS)})(?=  |: |, |$)")
# Lines to copy from: a wrapped path or command would not be one.
_COPIED = re.compile(
    r"\s*(?:again|copy|do|folder|for the [\w' ]+|next|page|report|resume|to repeat|verify it|written|workbench)\b[: ]"
)


@dataclass
class Screen:
    """`width`: In columns; null for no limit. `heads`: Lines that are heads of tables. `wraps`: Whether prose wraps."""

    width: int | None
    wraps: bool = False
    heads: set[str] = field(default_factory=set)


_SCREEN: ContextVar[Screen | None] = ContextVar("screen", default=None)


@contextmanager
def open_screen(*, is_wide: bool) -> Iterator[Screen]:
    """The screen of a command while it runs: as wide as the terminal or $COLUMNS, 80 columns in a pipe.

    `is_wide`: Tables have all columns, however wide. Sentences wrap on a terminal only: a program reads whole lines.
    """
    width = None if is_wide else max(MIN_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)
    screen = Screen(width, wraps=width is not None and is_terminal(sys.stdout))
    token = _SCREEN.set(screen)
    try:
        yield screen
    finally:
        _SCREEN.reset(token)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads this stream."""
    return stream.isatty()


def find_width() -> int | None:
    """Columns that a table may take; null for any number."""
    screen = _SCREEN.get()
    return None if screen is None else screen.width


def remember_heads(lines: list[str]) -> None:
    """Lines that are heads of a table, which a terminal shows in bold."""
    if (screen := _SCREEN.get()) is not None:
        screen.heads.update(lines)


def arrange_text(text: str, *, on_terminal: bool) -> str:
    """A text as its screen shows it: sentences wrapped at words, on a terminal heads bold and verdicts coloured."""
    screen = _SCREEN.get()
    if screen is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        if not screen.wraps or screen.width is None or len(line) <= screen.width or _COPIED.match(line):
            lines.append(line)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            lines += wrap_words(line.strip(), screen.width - len(indent), indent=indent)
    if on_terminal and not os.environ.get("NO_COLOR"):
        lines = [
            f"{_BOLD}{line}{_END}"
            if line in screen.heads
            else _VERDICT.sub(lambda found: f"{_COLOURS[found[1]]}{found[1]}{_END}", line)
            for line in lines
        ]
    return "\n".join(lines)


def wrap_words(text: str, width: int, *, indent: str = "") -> list[str]:
    """Lines of a text, broken between words; a word that is longer than the width stays whole.

    >>> wrap_words("19 GPUs serve 400 users, 90 % of them fast", 16)
    ['19 GPUs serve', '400 users, 90 %', 'of them fast']
    """
    joined = re.sub(r"(?<=\d) (?=[%×x](?:\W|$))", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(joined, max(8, width), break_long_words=False, break_on_hyphens=False) or [""]
    return [indent + line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
