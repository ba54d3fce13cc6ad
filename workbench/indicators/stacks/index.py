"""Which wheels does the configured index have that fit? Asked over HTTP, or read from a local folder."""

from __future__ import annotations

import base64
import hashlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from workbench.errors import InputError, RunFailedError
from workbench.indicators.stacks import pages
from workbench.indicators.stacks.pages import Wheel
from workbench.indicators.stacks.sources import Sources
from workbench.indicators.stacks.target import Target
from workbench.redaction import without_user_info

MOST_BYTES = 64 << 20
TIMEOUT_S = 60.0
AT_ONCE = 4
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
REACH = "set UV_DEFAULT_INDEX (or PIP_INDEX_URL) to an index that this machine reaches, or see to the network"


class Index:
    """What the configured sources have for one target; each page is asked for once.

    Parameters
    ----------
    sources
        Where to ask, in which order.
    target
        The Python and platform that wheels must fit.
    """

    def __init__(self, sources: Sources, target: Target) -> None:
        self.sources = sources
        self.target = target
        self._pages: dict[str, tuple[Wheel, ...]] = {}
        self._sizes: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def wheels(self, name: str) -> tuple[Wheel, ...]:
        """All wheels of a package for this target, whenever uploaded, yanked ones too.

        As uv does, the first index that has the package is the only one that counts, and flat folders add to it.

        Raises
        ------
        InputError
            No index has such a package, or a page is none.
        RunFailedError
            An index cannot be reached, or refuses.
        """
        name = canonicalize_name(name)
        with self._lock:
            known = self._pages.get(name)
        if known is None:
            listed = self._listed(name)
            fitting = (one for one in listed if self.target.rank(one.tags) is not None)
            known = tuple(one for one in fitting if self.target.allows(one.requires_python))
            with self._lock:
                self._pages[name] = known
        return known

    def ask_ahead(self, names: Iterable[str]) -> None:
        """Ask for several packages at once, so that `wheels` has them; the first error is raised."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.wheels, dict.fromkeys(names)))

    def files(self, name: str, version: str | Version, before: datetime | None = None) -> list[Wheel]:
        """The wheels of one version that fit and were uploaded before a time, the best first.

        With a time, files whose upload time is unknown are left out, as uv leaves them out.
        """
        wanted = Version(str(version))
        found = [one for one in self.wheels(name) if one.version == wanted and is_older(one, before)]
        return sorted(found, key=lambda one: (self.target.rank(one.tags), _reversed(one.build), one.name))

    def versions(self, name: str, specifier: SpecifierSet, before: datetime | None = None) -> list[Version]:
        """The versions with a wheel that fits and a number that the specifier allows, newest first.

        Yanked versions are left out unless pinned by ==, pre-releases unless the specifier names one.
        """
        pinned = {Version(one.version) for one in specifier if one.operator == "==" and not one.version.endswith(".*")}
        found = {
            one.version
            for one in self.wheels(name)
            if is_older(one, before) and (not one.yanked or one.version in pinned)
        }
        allowed = specifier.filter(sorted(found, reverse=True), prereleases=bool(specifier.prereleases))
        return list(allowed)

    def untimed(self, name: str, *, wholly: bool = False) -> bool:
        """Has the package wheels for this target whose upload time the index does not tell (`wholly`: only such)?"""
        unknown = [one.uploaded is None for one in self.wheels(name)]
        return bool(unknown) and all(unknown) if wholly else any(unknown)

    def size_bytes(self, wheel: Wheel) -> int | None:
        """How much installing this wheel downloads: as the index tells, else by asking the server; null if unknown."""
        if wheel.size_bytes is not None:
            return wheel.size_bytes
        with self._lock:
            if wheel.url in self._sizes:
                return self._sizes[wheel.url]
        size = _length(wheel.url)
        with self._lock:
            self._sizes[wheel.url] = size
        return size

    def _listed(self, name: str) -> list[Wheel]:
        found: list[Wheel] = []
        known = False
        for url in self.sources.indexes:
            page = _page(f"{url.rstrip('/')}/{quote(name)}/")
            if page is None:
                continue
            known = True
            found += page
            if self.sources.strategy == "first-index":
                break
        flat = [one for link in self.sources.find_links for one in _flat(link, name)]
        if not known and not flat:
            raise InputError(
                f"no such package on the index: {name}", where=self.sources.shown, do="check the spelling of its name"
            )
        return found + flat


def is_older(wheel: Wheel, before: datetime | None) -> bool:
    """Was a wheel uploaded before a time? An unknown upload time is not; without a time any wheel is."""
    return before is None or (wheel.uploaded is not None and wheel.uploaded < before)


def _reversed(build: tuple[int, str] | tuple[()]) -> tuple[int, str]:
    # The highest build number goes first; none is lower than any.
    return (-build[0], build[1]) if build else (0, "")


def _page(url: str) -> list[Wheel] | None:
    """The wheels on one page; null when the index does not have the package."""
    if urlsplit(url).scheme == "file":
        return _local_page(url)
    request, safe = _request(url, "GET")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http(s) alone, see _request
            text, kind = _bounded(answer, safe), str(answer.headers.get("content-type", ""))
            # Without a redirect the links are below the URL as it was given, with its user and password.
            at = answer.geturl() if answer.geturl() != request.full_url else url
    except urllib.error.HTTPError as error:
        # It holds the connection.
        error.close()
        if error.code in (404, 410):
            return None
        raise _refused(safe, error.code) from None
    except (OSError, HTTPException) as error:
        # The exception's own text may quote the URL: only its reason is told.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise RunFailedError("the package index cannot be reached", where=safe, found=str(reason), do=REACH) from None
    return _parsed(text, kind, at, safe)


def _parsed(text: str, kind: str, at: str, safe: str) -> list[Wheel]:
    try:
        return pages.parse(text, kind, at)
    except ValueError as error:
        raise InputError("not a page of a package index", where=safe, found=str(error)[:200], do=REACH) from None


def _refused(safe: str, code: int) -> RunFailedError:
    if code in (401, 403, 407):
        advice = "give user and password in the index's URL: UV_DEFAULT_INDEX=https://USER:PASSWORD@HOST/…"
        return RunFailedError("the package index refuses", where=safe, found=f"HTTP {code}", do=advice)
    return RunFailedError("the package index failed", where=safe, found=f"HTTP {code}", do="try again later")


def _request(url: str, method: str) -> tuple[urllib.request.Request, str]:
    """A request without user and password in its URL, and the URL that a message may show."""
    parts = urlsplit(url)
    safe = without_user_info(url)
    if parts.scheme not in ("http", "https"):
        raise InputError("not an address of a package index", where=safe, allowed=["http://…", "https://…", "file://…"])
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), method=method)  # noqa: S310
    request.add_header("Accept", ACCEPT)
    request.add_header("User-Agent", "accelerated-workbench")
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        # Unredirected: a redirect to another host must not take the password along.
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    return request, safe


def _bounded(file: IO[bytes], safe: str) -> str:
    raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise InputError("the index's answer is too large", where=safe, allowed=f"up to {MOST_BYTES >> 20} MiB")
    return raw.decode("utf-8", errors="replace")


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _local_page(url: str) -> list[Wheel] | None:
    folder = _local(url)
    try:
        page = folder / "index.html"
        if page.is_file():
            with page.open("rb") as file:
                return [_measured(one) for one in _parsed(_bounded(file, str(page)), "text/html", url, str(page))]
        return _wheels_in(folder, folder.name) if folder.is_dir() else None
    except OSError as error:
        raise InputError("cannot read the local index", where=folder, found=error.strerror) from error


def _flat(link: str, name: str) -> list[Wheel]:
    if link.startswith("file:"):
        return _wheels_in(_local(link), name)
    return [one for one in _page(link) or [] if _is_of(one.name, name)]


def _wheels_in(folder: Path, name: str) -> list[Wheel]:
    if not folder.is_dir():
        return []
    found = (pages.wheel(path.name, path.as_uri()) for path in sorted(folder.glob("*.whl")) if _is_of(path.name, name))
    return [_measured(one) for one in found if one is not None]


def _is_of(file_name: str, name: str) -> bool:
    try:
        return parse_wheel_filename(file_name)[0] == canonicalize_name(name)
    except InvalidWheelFilename:
        return False


def _measured(wheel: Wheel) -> Wheel:
    """A local wheel with its size, and its hash where the page does not tell one."""
    path = _local(wheel.url)
    if urlsplit(wheel.url).scheme != "file" or not path.is_file():
        return wheel
    digest = wheel.sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    return replace(wheel, size_bytes=path.stat().st_size, sha256=digest)


def _length(url: str) -> int | None:
    """Content-Length as the server tells it; null when it does not, or cannot be asked."""
    try:
        request, _ = _request(url, "HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            told = str(answer.headers.get("content-length", ""))
    except (OSError, HTTPException, InputError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return None
    return int(told) if told.isdigit() else None


def moment(time: datetime) -> str:
    """A time as it is written in files: UTC, to the second.

    Examples
    --------
    >>> moment(datetime(2024, 6, 30, tzinfo=UTC))
    '2024-06-30T00:00:00Z'
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
