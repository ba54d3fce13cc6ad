"""Files of benchmark tools: bounded reading of files and folders, and their JSON documents."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.core.data_files import measure_depth
from workbench.core.errors import InputError, refuse_os_errors
from workbench.core.files import read_unpacked
from workbench.indicators.store.archive import OUTSIDE, is_inside

MAX_BYTES = 256 << 20
MAX_FILES = 10_000
MAX_DEPTH = 100
MAX_DOCUMENTS = 1_000_000
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class ResultFile:
    """A file with its text, which has been unpacked and decoded.

    `modified_at`: When it was last changed, in ISO format and UTC.
    """

    path: Path
    text: str
    modified_at: str = ""

    @cached_property
    def _parsed(self) -> tuple[list[Any], int]:
        """JSON values one after another, and where the first that is none begins."""
        decoder, documents, place, text = json.JSONDecoder(), list[Any](), 0, self.text
        has_half_pairs = _HALF_PAIR.search(text) is not None
        while True:
            while place < len(text) and text[place] in " \t\r\n":
                place += 1
            if place == len(text) or len(documents) == MAX_DOCUMENTS:
                return documents, place
            try:
                value, place = decoder.raw_decode(text, place)
            except RecursionError:
                raise InputError("nested too deeply", where=self.path, allowed=f"{MAX_DEPTH} levels") from None
            except ValueError:  # no JSON, or a number of thousands of digits
                return documents, place
            if measure_depth(value, MAX_DEPTH) > MAX_DEPTH:
                raise InputError("nested too deeply", where=self.path, allowed=f"{MAX_DEPTH} levels")
            if has_half_pairs:
                # Halves of pairs of code units in its texts, which no file can hold.
                value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
            documents.append(value)

    def read_documents(self, noun: str, notices: dict[str, int], *, do: str | None = None) -> list[Any]:
        """The JSON documents of a file, of which there may be several, one after another.

        What is cut off at the end is counted in `notices`; a file without a whole document is refused.
        """
        documents, end = self._parsed
        if not documents:
            try:
                json.loads(self.text)
            except ValueError as error:
                found = str(error)[:120]
            raise InputError(f"not a {noun}: no whole JSON document", where=self.path, found=found, do=do)
        if end < len(self.text):
            add_notice(notices, "the end of the file is not a complete JSON document and was skipped")
        if len(documents) > 1 and not all(map(is_line_of_stream, documents)):
            add_notice(notices, "several documents in one file: each is a session")
        return documents


def is_line_of_stream(document: Any) -> bool:
    """Whether a document is a message of a stream, as cargo-criterion and `go test -json` write them."""
    return isinstance(document, dict) and not {"reason", "Action"}.isdisjoint(document)


def add_notice(notices: dict[str, int], text: str, count: int = 1) -> None:
    """Count a notice."""
    notices[text] = notices.get(text, 0) + count


def read_result_file(path: Path, noun: str = "result of a benchmark tool") -> ResultFile:
    """Read a text file, plain or gzip, in UTF-8 or, as PowerShell writes it, UTF-16; empty ones are refused."""
    with refuse_os_errors("cannot be read", path):
        raw = read_unpacked(path, MAX_BYTES)
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if raw.startswith(mark)), "utf-8")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"not a {noun}: no text", where=path, found=f"byte {error.start} is not {encoding}") from None
    if not text.strip():
        raise InputError(f"not a {noun}: an empty file", where=path)
    return ResultFile(path, text.replace("\r\n", "\n"), format_modified(path))


def format_modified(path: Path) -> str:
    """When a file was last changed, in ISO format and UTC; empty where it is not known."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    except (OSError, ValueError, OverflowError):
        return ""


def list_result_files(path: Path, noun: str, *, skip: Iterable[str] = ()) -> list[Path]:
    """Files of a folder and of the folders in it, without hidden ones; a path that is no folder as it is."""
    if not path.is_dir():
        return [path]
    skipped = set(skip)
    listed = itertools.chain(path.glob("*"), path.glob("*/*"))
    seen = (file for file in listed if not file.name.startswith(".") and file.name not in skipped and not file.is_dir())
    paths = sorted(itertools.islice(seen, MAX_FILES + 1))
    if outside := [file for file in paths if not is_inside(file, path.resolve())]:
        raise InputError(OUTSIDE, where=outside[0], do="name the file itself")
    if not paths:
        raise InputError(f"no {noun} in this folder", where=path)
    if len(paths) > MAX_FILES:
        raise InputError("too many result files", where=path, allowed=f"at most {MAX_FILES:,}", do="name some of them")
    return paths
