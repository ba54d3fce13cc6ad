"""Selection of operators and partitions: the grammar of `spark.rapids.sql.lore.idsToDump`.

The plugin reads this text leniently: an empty range means all partitions to it, letters before an id are passed over,
of an id given twice the last one wins. Each of these dumps something else than was meant, so each is an error here.
Facts of the plugin's reading: its OutputLoreId, as of 2026-04.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workbench.core.errors import ConfigError

IDS_KEY = "spark.rapids.sql.lore.idsToDump"
EXAMPLE_SELECTION = "1[0 2 5-9], 4[*]"
# Ids and partitions are Java ints.
MAX_NUMBER = 2**31 - 1
# Of the whole text: "0-2147483647" is short, and a set of as many numbers would fill the memory.
MAX_PARTITIONS = 1_000_000
MAX_CHARS = 1_000_000
_ENTRY = re.compile(r"([0-9]+)\s*\[([^\[\]]*)\]", re.ASCII)
_RANGE = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)
_COMMA_INSIDE = re.compile(r"[0-9]*\s*\[[^\[\]]*,[^\[\]]*\]", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """The partitions chosen of one operator; `None` is all of them.

    >>> Selection().partitions, sorted(Selection(frozenset({7, 2})).partitions)
    (None, [2, 7])
    """

    partitions: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if self.partitions is not None and not self.partitions:
            raise ConfigError("no partition is chosen", where=IDS_KEY, allowed="numbers, or * for all")


ALL_PARTITIONS = Selection()


def parse_selection(text: str, *, where: str = IDS_KEY) -> dict[int, Selection]:
    """Which partitions of which operators does a text like `1[0 2 5-9], 4[*]` choose?

    `text`: Entries with commas between them. An entry is an id and, in brackets, partitions with spaces between them:
    numbers, ranges that exclude their end (`5-9` is 5, 6, 7, 8), or `*` alone for all. `1[]` is read as `1[*]`,
    because that is how the plugin's documentation is shown.

    >>> sorted(parse_selection("1[0 2 5-9], 4[*]")[1].partitions)
    [0, 2, 5, 6, 7, 8]
    """
    if len(text) > MAX_CHARS:
        raise ConfigError("the text is too long", where=where, found=f"{len(text):,} characters", allowed=MAX_CHARS)
    if not text.strip():
        raise ConfigError("no ids are given", where=where, allowed=EXAMPLE_SELECTION)
    if inside := _COMMA_INSIDE.search(text):
        meant = re.sub(r"[\s,]+", " ", inside[0])
        raise ConfigError(
            "a comma inside brackets",
            where=where,
            found=_shorten_text(inside[0]),
            do=f"write {_shorten_text(meant)}: spaces inside",
        )
    chosen: dict[int, Selection] = {}
    room = MAX_PARTITIONS
    for entry in text.split(","):
        lore_id, selection = _parse_entry(entry.strip(), where, room)
        if lore_id in chosen:
            raise ConfigError(
                f"id {lore_id} is given twice", where=where, do="write all its partitions into one pair of brackets"
            )
        chosen[lore_id] = selection
        room -= len(selection.partitions or ())
    return chosen


def build_selection(ids: str | Mapping[int, Iterable[int] | None], *, where: str = "ids") -> dict[int, Selection]:
    """Build a selection from Python: from a text, or from partitions by id, where `None` means all.

    >>> format_selection(build_selection({4: None, 1: [2, 0]}))
    '4[*], 1[0 2]'
    """
    if isinstance(ids, str):
        return parse_selection(ids, where=where)
    if not ids:
        raise ConfigError("no ids are given", where=where, allowed=f"{EXAMPLE_SELECTION!r}, or {{1: [0, 2], 4: None}}")
    return {
        _check_whole_number(lore_id, where): _select_numbers(lore_id, numbers, where)
        for lore_id, numbers in ids.items()
    }


def format_selection(selection: Mapping[int, Selection]) -> str:
    """The text that `parse` reads as this selection; runs of three or more partitions as ranges.

    >>> format_selection(parse_selection("4[], 1[9 5 6 7]"))
    '4[*], 1[5-8 9]'
    """
    return ", ".join(f"{lore_id}[{_format_items(chosen)}]" for lore_id, chosen in selection.items())


def _parse_entry(entry: str, where: str, room: int) -> tuple[int, Selection]:
    """Parse an entry such as 5[0-3]: the operator's id and its partitions; `room` is the most that may be named."""
    matched = _ENTRY.fullmatch(entry)
    if matched is None:
        # Build the error for an entry that does not have the form `id[partitions]`.
        excerpt, message, do = (
            _shorten_text(entry),
            "not of the form id[partitions]",
            f"write it like {EXAMPLE_SELECTION}",
        )
        if not entry:
            message, excerpt, do = "nothing between two commas, or after the last one", "", "remove the comma"
        elif re.fullmatch(r"[0-9]+", entry):
            message, do = "an id without partitions", f"write {excerpt}[*] for all partitions, or {excerpt}[0] for one"
        elif len(several := _ENTRY.findall(entry)) > 1:
            message, do = (
                "no comma between two ids",
                f"write {', '.join(f'{lore_id}[{_shorten_text(body)}]' for lore_id, body in several)}",
            )
        elif entry.count("[") != entry.count("]"):
            message, do = "brackets that do not match", "close each [ with one ]"
        elif after := re.fullmatch(r"([^0-9\[\]]+)([0-9]+\s*\[[^\[\]]*\])", entry):
            message, do = f"{_shorten_text(after[1].strip())!r} before the id", f"write {_shorten_text(after[2])}"
        raise ConfigError(message, where=where, found=excerpt or None, do=do)
    return _parse_number(matched[1], entry, where), _parse_partitions(matched[2], entry, where, room)


def _parse_partitions(body: str, entry: str, where: str, room: int) -> Selection:
    items = body.split()
    if not items or items == ["*"]:
        return ALL_PARTITIONS
    if "*" in items:
        raise ConfigError(
            "* among numbers",
            where=where,
            found=_shorten_text(entry),
            allowed="* alone for all partitions, or numbers; the plugin reads such a text as the numbers alone",
        )
    numbers: set[int] = set()
    for item in items:
        span = _parse_range(item, entry, where)
        # Before it is spread out.
        if len(span) + len(numbers) > room:
            raise ConfigError(
                "too many partitions",
                where=where,
                found=_shorten_text(entry),
                allowed=f"{MAX_PARTITIONS:,} in all, or *",
            )
        numbers.update(span)
    return Selection(frozenset(numbers))


def _parse_range(item: str, entry: str, where: str) -> range:
    if re.fullmatch(r"[0-9]+", item):
        start = _parse_number(item, entry, where)
        return range(start, start + 1)
    matched = _RANGE.fullmatch(item)
    if matched is None:
        raise ConfigError(
            f"{_shorten_text(item)!r} is no partition",
            where=where,
            found=_shorten_text(entry),
            allowed="a number, a range without spaces like 5-9, which is 5 to 8, or *",
        )
    start, end = _parse_number(matched[1], entry, where), _parse_number(matched[2], entry, where)
    if start >= end:
        kind, meant = ("reversed", f"{end}-{start}") if start > end else ("empty", f"{start} or {start}-{start + 1}")
        raise ConfigError(
            f"the range {item} is {kind}: a range excludes its end",
            where=where,
            found=_shorten_text(entry),
            do=f"write {meant}; the plugin would dump all partitions",
        )
    return range(start, end)


def _parse_number(digits: str, entry: str, where: str) -> int:
    # Python refuses to read thousands of digits with an error of its own.
    if len(digits.lstrip("0")) > 10 or int(digits) > MAX_NUMBER:
        raise ConfigError(
            "the number is too large", where=where, found=_shorten_text(entry), allowed=f"0 to {MAX_NUMBER}"
        )
    return int(digits)


def _check_whole_number(number: object, where: str) -> int:
    # True is an int to Python, and surely no partition.
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_NUMBER:
        excerpt = f"{_shorten_text(repr(number))} ({type(number).__name__})"
        raise ConfigError("not an id or partition", where=where, found=excerpt, allowed=f"whole, 0 to {MAX_NUMBER}")
    return number


def _select_numbers(lore_id: int, numbers: Iterable[int] | None, where: str) -> Selection:
    if numbers is None:
        return ALL_PARTITIONS
    if isinstance(numbers, str | bytes) or not isinstance(numbers, Iterable):
        excerpt = f"{_shorten_text(repr(numbers))} for id {lore_id}"
        raise ConfigError("not a list of partitions", where=where, found=excerpt, allowed="[0, 2], or None for all")
    if isinstance(numbers, range) and len(numbers) > MAX_PARTITIONS:
        raise ConfigError("too many partitions", where=where, found=str(numbers), allowed=f"{MAX_PARTITIONS:,}")
    return Selection(frozenset(_check_whole_number(number, where) for number in numbers))


def _format_items(selection: Selection) -> str:
    if selection.partitions is None:
        return "*"
    return " ".join(_format_run(start, end) for start, end in _find_runs(sorted(selection.partitions)))


def _format_run(start: int, end: int) -> str:
    if end - start < 3:
        return " ".join(map(str, range(start, end)))
    # The last number of all has none after it that could end a range.
    return f"{start}-{end}" if end <= MAX_NUMBER else f"{start}-{end - 1} {end - 1}"


def _find_runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Group ascending numbers into half-open ranges of consecutive ones.

    >>> _find_runs([1, 2, 3, 7])
    [(1, 4), (7, 8)]
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _shorten_text(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
