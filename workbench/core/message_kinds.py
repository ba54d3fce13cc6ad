"""Messages of failures by kind: those that differ only in numbers and ids are one, of which the first is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

NUMBER_MARK, ID_MARK = "<n>", "<id>"
# Ends of long messages are cut off, so that a longer number before shifts what is left of them.
MAX_COMPARED_CHARS = 150
_NUMBER = r"\d+(?:[.,:]\d+)*"
# UUIDs, hexadecimal numbers, and words of letters and digits, which are ids where they are long.
_ID = (
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+"
    r"|(?<![0-9a-z])(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{8,}(?![0-9a-z])"
)
_VARYING_PATTERN = re.compile(f"{NUMBER_MARK}|{ID_MARK}|{_ID}|{_NUMBER}", re.IGNORECASE)
_NUMBER_PATTERN = re.compile(f"{NUMBER_MARK}|{_NUMBER}")


@dataclass
class MessageKind:
    """Messages of one kind: their text with a mark for each number or id that differs, the first one, and how many.

    `title` goes before the text and is compared as it is, so that a status in it stays.
    """

    title: str
    text: str
    example: str
    count: int = 1

    def __str__(self) -> str:
        pairs = zip(_VARYING_PATTERN.findall(self.example), _VARYING_PATTERN.findall(self.text), strict=False)
        replaced = [value for value, mark in pairs if value != mark]
        such_as = f" (such as {', '.join(replaced)})" if replaced else ""
        return f"{self.title}: {self.text}{such_as}" if self.text else self.title


class MessageKinds:
    """Counts messages by kind; with more than `max_kinds`, one more for each title.

    >>> kinds = MessageKinds()
    >>> for request, ms in (("7f3a9c01", 300), ("08d1e2b4", 2999)):
    ...     _ = kinds.add("http_error 500", f"request {request} ended after {ms} ms, limit 4 s")
    >>> kinds.count_by_text()
    Counter({'http_error 500: request <id> ended after <n> ms, limit 4 s (such as 7f3a9c01, 300)': 2})
    """

    def __init__(self, max_kinds: int = 100) -> None:
        self._max_kinds = max_kinds
        self._kinds: dict[tuple[str, str], MessageKind] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[MessageKind]:
        return iter(self._kinds.values())

    def add(self, title: str, message: str) -> MessageKind:
        """Count a message; its kind so far."""
        return self.merge(MessageKind(title, message, message))

    def merge(self, kind: MessageKind) -> MessageKind:
        """Add a kind that was counted elsewhere; what it is now."""
        key = kind.title, _VARYING_PATTERN.sub("#", kind.text)[:MAX_COMPARED_CHARS]
        if key not in self._kinds and len(self._kinds) >= self._max_kinds:
            other = "other messages"
            key, kind = (kind.title, other), MessageKind(kind.title, other, other, kind.count)
        known = self._kinds.get(key)
        if known is None:
            # A copy: the one that was given is counted further elsewhere.
            known = self._kinds[key] = MessageKind(kind.title, kind.text, kind.example, 0)
        known.text = _mark_differences(known.text, kind.text)
        known.count += kind.count
        return known

    def count_by_text(self) -> Counter[str]:
        """How many messages there were of each kind."""
        return Counter({str(kind): kind.count for kind in self})


def _mark_differences(text: str, other: str) -> str:
    """Text with a mark for each number or id in which the other one, of the same kind, differs.

    >>> _mark_differences("port 80, id 5c0ffee1", "port 80, id 12345678")
    'port 80, id <id>'
    """
    values = iter(_VARYING_PATTERN.findall(other))

    def mark(match: re.Match[str]) -> str:
        here, there = match[0], next(values, match[0])
        if here == there:
            return here
        return NUMBER_MARK if all(map(_NUMBER_PATTERN.fullmatch, (here, there))) else ID_MARK

    return _VARYING_PATTERN.sub(mark, text)
