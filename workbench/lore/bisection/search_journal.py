"""Journal of a search: the answers so far, so that a search that was killed goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workbench.core.errors import ConfigError

FORMAT = "workbench-lore-search/1"
# A part of some inputs: the number of the input, and the runs of its rows.
Part = tuple[int, tuple[tuple[int, int], ...]]


class SearchJournal:
    """Answers of a search in the order in which they were asked for, one JSON line each.

    The search asks the same questions in the same order, so the answers in the file are taken one by one as long as the
    questions match; then the rest is asked and written. A line that a kill cut off is dropped.

    `identity`: What the search is about: a journal of another dump or condition is refused.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        self.n_resumed = 0
        self._known: list[tuple[Part, bool]] = []
        lines = self._read_lines()
        head = {"format": FORMAT, **identity}
        if lines:
            if lines[0] != json.loads(json.dumps(head)):
                raise ConfigError(
                    "a journal of another search", where=f"--journal {path}", do="choose a new file, or remove this one"
                )
            self._known = [(_parse_part(line), bool(line["holds"])) for line in lines[1:]]
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                "cannot write the journal",
                where=f"--journal {path}",
                found=error.strerror,
                do="name a file in a folder that you can write to",
            ) from error
        self._write_line(head)
        for part, holds in self._known:
            self._write_answer(part, holds=holds)
        self._next = 0

    def _read_lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        if not records:
            raise ConfigError("not a journal of a search", where=f"--journal {self.path}", do="choose a new file")
        return records

    def find_answer(self, part: Part) -> bool | None:
        """The next answer of the file, when it is to this question; null otherwise."""
        if self._next >= len(self._known) or self._known[self._next][0] != part:
            self._next = len(self._known)
            return None
        self._next += 1
        self.n_resumed += 1
        return self._known[self._next - 1][1]

    def add_answer(self, part: Part, *, holds: bool) -> None:
        """Write an answer; it is on the disk when this returns."""
        self._write_answer(part, holds=holds)

    def _write_answer(self, part: Part, *, holds: bool) -> None:
        self._write_line({"input": part[0], "rows": part[1], "holds": holds})

    def _write_line(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _parse_part(line: dict[str, Any]) -> Part:
    return int(line["input"]), tuple((int(start), int(end)) for start, end in line["rows"])
