"""An index's page about one package, in JSON or HTML, as the wheels that it lists.

Both forms, because some indexes answer HTML even to who accepts JSON alone. Fields that a page lacks are null.
Source: the Simple repository API (PEP 503, 592, 629, 691, 700).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

MOST_FILES = 200_000
_SCHEMES = ("https", "http", "file")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Wheel:
    """One wheel on an index.

    `sha256`, `size_bytes` and `uploaded` (UTC) are null where the index does not tell; `url` may hold a password.
    """

    name: str
    version: Version
    build: tuple[int, str] | tuple[()]
    tags: frozenset[Tag] = field(repr=False)
    url: str = field(repr=False)
    sha256: str | None = None
    size_bytes: int | None = None
    uploaded: datetime | None = None
    yanked: bool = False
    requires_python: str | None = None


def parse(text: str, content_type: str, url: str) -> list[Wheel]:
    """The wheels that a page lists; files that are no wheels are left out.

    Parameters
    ----------
    text
        The page.
    content_type
        As the server called it; a page that begins like JSON is read as JSON whatever it is called.
    url
        Where the page lies, against which its links are read.

    Raises
    ------
    ValueError
        It is no such page, or lists too many files.
    """
    if "json" in content_type or text.lstrip()[:1] == "{":
        return _collect(_json_entries(text), url)
    return _collect(_html_entries(text), url)


def wheel(file_name: str, url: str, **facts: Any) -> Wheel | None:
    """A wheel by its file's name; null when it is none."""
    try:
        _, version, build, tags = parse_wheel_filename(file_name)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return Wheel(file_name, version, build, tags, url, **facts)


def _collect(entries: Iterable[dict[str, Any]], url: str) -> list[Wheel]:
    wheels = []
    for count, entry in enumerate(entries):
        if count >= MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
        found = wheel(**_facts(entry, url)) if entry["name"].endswith(".whl") else None
        # What a page links to is written into locks and reports: nothing but what can be fetched.
        if found is not None and urlsplit(found.url).scheme in _SCHEMES:
            wheels.append(found)
    return wheels


def _facts(entry: dict[str, Any], url: str) -> dict[str, Any]:
    link, _, fragment = urljoin(url, entry["url"]).partition("#")
    digest = entry.get("sha256") or fragment.removeprefix("sha256=")
    size = entry.get("size")
    asks = entry.get("requires-python")
    return {
        "file_name": entry["name"],
        "url": link,
        "sha256": digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None,
        "size_bytes": size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        "uploaded": _moment(entry.get("upload-time")),
        # A yanked file has a reason, which may be empty in HTML; in JSON it is true or a text.
        "yanked": entry.get("yanked") not in (None, False),
        "requires_python": asks if isinstance(asks, str) else None,
    }


def _moment(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _json_entries(text: str) -> Iterable[dict[str, Any]]:
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    listed = document.get("files") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no list of files in it")
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
            continue
        name, hashes = entry.get("filename"), entry.get("hashes")
        if isinstance(name, str):
            yield {**entry, "name": name, "sha256": hashes.get("sha256") if isinstance(hashes, dict) else None}


class _Anchors(HTMLParser):
    """Every link of a page with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.is_html = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the links; any tag at all shows that this is HTML."""
        self.is_html = True
        given = dict(attrs)
        if tag != "a" or not given.get("href"):
            return
        link = given["href"] or ""
        facts: dict[str, Any] = {name[5:]: value or "" for name, value in given.items() if name.startswith("data-")}
        if (size := facts.get("size", "")).isdigit():
            facts["size"] = int(size)
        self.found.append({**facts, "url": link, "name": unquote(urlsplit(link).path).rsplit("/", 1)[-1]})


def _html_entries(text: str) -> Iterable[dict[str, Any]]:
    parser = _Anchors()
    parser.feed(text)
    parser.close()
    if not parser.is_html:
        raise ValueError("neither JSON nor HTML")
    return parser.found
