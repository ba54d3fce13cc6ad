"""Compatible wheels of a package index or local folder, from its JSON or HTML pages."""

from __future__ import annotations

import base64
import hashlib
import json
import platform as machine
import re
import sys
import sysconfig
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, platform_tags, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from workbench.core.errors import ConfigError, InputError, RunFailedError, refuse_os_errors
from workbench.core.redaction import strip_user_info
from workbench.indicators.stacks.uv_tool import Sources

OLDEST_MINOR = 8
_PYTHON = re.compile(r"3\.(\d{1,2})(\.\d{1,2})?")
_GLIBC = re.compile(r"(x86_64|aarch64)-manylinux_2_(\d{1,2})")
# glibc versions of the three legacy manylinux names.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
ALLOWED = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "windows", "aarch64-apple-darwin")
MAX_FILES = 200_000
_SCHEMES = ("https", "http", "file")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_BYTES = 64 << 20
TIMEOUT_S = 60.0
AT_ONCE = 4
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
REACH = "set UV_DEFAULT_INDEX (or PIP_INDEX_URL) to an index that this machine reaches, or check the network"


@dataclass(frozen=True)
class Target:
    """Python and platform; `ranks` maps compatible wheel tags to ranks, best first (0).

    `uv_platform` is uv's name of another platform; null for this machine.
    """

    python: str
    platform: str
    uv_platform: str | None
    ranks: Mapping[Tag, int] = field(repr=False)

    def rank_tags(self, tags: Iterable[Tag]) -> int | None:
        """Best rank of the tags of a wheel, 0 is best; null if incompatible."""
        return min((self.ranks[tag] for tag in tags if tag in self.ranks), default=None)

    def allows_python(self, requires_python: str | None) -> bool:
        """Whether Requires-Python allows this Python; an invalid specifier allows all versions."""
        if not requires_python:
            return True
        try:
            return SpecifierSet(requires_python).contains(self.python, prereleases=True)
        except InvalidSpecifier:
            return True

    def list_uv_options(self) -> list[str]:
        """Options of `uv pip compile` for this target."""
        options = ["--python", sys.executable, "--python-version", self.python]
        return [*options, "--python-platform", self.uv_platform] if self.uv_platform else options


def this_python_version() -> str:
    """Version of the running interpreter, such as 3.11.7."""
    return machine.python_version().split("+")[0]


def this_platform() -> str:
    """Platform name of this machine without system versions, such as linux_x86_64 or macosx_arm64."""
    parts = re.split(r"[-.]", sysconfig.get_platform())
    system, processor = parts[0], parts[-1]
    if system == "linux" and any(tag.startswith("musllinux") for tag in platform_tags()):
        system = "musllinux"
    return f"{system}_{processor}" if processor != system else system


def build_target(python: str | None = None, platform: str | None = None) -> Target:
    """Target of this interpreter and machine, or of other ones.

    `python`: Version such as "3.12" or "3.12.4"; by default that of this interpreter.
    `platform`: uv's name of another platform, such as "x86_64-manylinux_2_28", "windows" or "aarch64-apple-darwin".

    >>> other = build_target("3.12", "x86_64-manylinux_2_28")
    >>> other.platform, other.rank_tags([Tag("cp312", "cp312", "manylinux_2_17_x86_64")]) is not None
    ('manylinux_2_28_x86_64', True)
    """
    version = _check_python(python)
    if platform is None:
        # Compatible tags are read from the running interpreter; others are assumed to be built alike.
        tags = list(sys_tags()) if version == this_python_version() else _list_tags(version, list(platform_tags()))
        return Target(version, this_platform(), None, _rank_tags(tags))
    # Name of another platform, and its tags, the best first.
    if match := _GLIBC.fullmatch(platform):
        processor = match[1]
        newest = int(match[2])
        oldest = 5 if processor == "x86_64" else 17
        names = []
        for minor in range(newest, oldest - 1, -1):
            names.append(f"manylinux_2_{minor}_{processor}")
            if old := _OLD_NAMES.get(minor):
                names.append(f"{old}_{processor}")
        name, platforms = f"manylinux_2_{match[2]}_{match[1]}", [*names, f"linux_{processor}"]
    elif platform == "windows":
        name, platforms = "win_amd64", ["win_amd64"]
    elif platform == "aarch64-apple-darwin":
        name, platforms = "macosx_arm64", list(mac_platforms((13, 0), "arm64"))
    else:
        raise ConfigError("unknown platform", where="--platform", found=platform[:60], allowed=ALLOWED)
    return Target(version, name, platform, _rank_tags(_list_tags(version, platforms)))


def find_uv_platform(platform: str) -> str | None:
    """uv's name of a platform other than this machine's; null if unknown.

    >>> find_uv_platform("manylinux_2_28_x86_64"), find_uv_platform("win_amd64")
    ('x86_64-manylinux_2_28', 'windows')
    """
    if match := re.fullmatch(r"(manylinux_2_\d{1,2})_(x86_64|aarch64)", platform):
        return f"{match[2]}-{match[1]}"
    return {"win_amd64": "windows", "macosx_arm64": "aarch64-apple-darwin"}.get(platform)


def _check_python(version: str | None) -> str:
    """The version as it was given, or this interpreter's where that is meant; refused if it is none."""
    if version is None:
        return this_python_version()
    match = _PYTHON.fullmatch(version)
    if match is None or int(match[1]) < OLDEST_MINOR:
        raise ConfigError(
            "not a version of Python",
            where="--python-version",
            found=version[:40],
            allowed=f"3.{OLDEST_MINOR} or newer",
        )
    # "3.11" on Python 3.11.7 means this interpreter, so no other Python is needed for environments.
    return this_python_version() if version == ".".join(this_python_version().split(".")[:2]) else version


def _list_tags(python: str, platforms: list[str]) -> list[Tag]:
    major, minor = (int(part) for part in python.split(".")[:2])
    interpreter = f"cp{major}{minor}"
    tags = cpython_tags((major, minor), platforms=platforms)
    return [*tags, *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms)]


def _rank_tags(tags: Iterable[Tag]) -> dict[Tag, int]:
    ranks: dict[Tag, int] = {}
    for rank, tag in enumerate(tags):
        ranks.setdefault(tag, rank)
    return ranks


@dataclass(frozen=True)
class Wheel:
    """Wheel on an index.

    `sha256`, `size_bytes` and `uploaded` (UTC) are null if the index does not report them; `url` may hold a password.
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


def parse_page(text: str, content_type: str, url: str) -> list[Wheel]:
    """Parse the wheels of an index page; other files are ignored.

    `content_type`: Content type of the response; a page that starts like JSON is always read as JSON.
    """
    if "json" in content_type or text.lstrip()[:1] == "{":
        return _collect_wheels(_parse_json_entries(text), url)
    # Files of an HTML page (PEP 503).
    parser = _Anchors()
    parser.feed(text)
    parser.close()
    if not parser.is_html:
        raise ValueError("neither JSON nor HTML")
    return _collect_wheels(parser.found, url)


def parse_wheel(file_name: str, url: str, **facts: Any) -> Wheel | None:
    """Wheel from its file name; null if the file is not a wheel."""
    try:
        _, version, build, tags = parse_wheel_filename(file_name)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return Wheel(file_name, version, build, tags, url, **facts)


def _collect_wheels(entries: Iterable[dict[str, Any]], url: str) -> list[Wheel]:
    """The wheels among the files of a page; others, and links that cannot be fetched, are left out."""
    wheels = []
    for count, entry in enumerate(entries):
        if count >= MAX_FILES:
            raise ValueError(f"more than {MAX_FILES} files")
        wheel = parse_wheel(**_read_wheel_facts(entry, url)) if entry["name"].endswith(".whl") else None
        # Links end up in locks and reports, so only fetchable schemes are accepted.
        if wheel is not None and urlsplit(wheel.url).scheme in _SCHEMES:
            wheels.append(wheel)
    return wheels


def _read_wheel_facts(entry: dict[str, Any], url: str) -> dict[str, Any]:
    """Facts of a file as its page has them; null for what is missing or malformed."""
    link, _, fragment = urljoin(url, entry["url"]).partition("#")
    digest = entry.get("sha256") or fragment.removeprefix("sha256=")
    size = entry.get("size")
    asks = entry.get("requires-python")
    return {
        "file_name": entry["name"],
        "url": link,
        "sha256": digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None,
        "size_bytes": size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        "uploaded": _parse_time(entry.get("upload-time")),
        # "Yanked" is a reason that may be empty in HTML, and true or a text in JSON.
        "yanked": entry.get("yanked") not in (None, False),
        "requires_python": asks if isinstance(asks, str) else None,
    }


def _parse_time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _parse_json_entries(text: str) -> Iterable[dict[str, Any]]:
    """Files of a JSON page (PEP 691); malformed entries are left out."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    listed = document.get("files") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no list of files")
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
            continue
        name, hashes = entry.get("filename"), entry.get("hashes")
        if isinstance(name, str):
            yield {**entry, "name": name, "sha256": hashes.get("sha256") if isinstance(hashes, dict) else None}


class _Anchors(HTMLParser):
    """Collects the links of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.is_html = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect links; any tag marks the page as HTML."""
        self.is_html = True
        attributes = dict(attrs)
        if tag != "a" or not attributes.get("href"):
            return
        link = attributes["href"] or ""
        facts: dict[str, Any] = {
            name[5:]: value or "" for name, value in attributes.items() if name.startswith("data-")
        }
        if (size := facts.get("size", "")).isdigit():
            facts["size"] = int(size)
        self.found.append({**facts, "url": link, "name": unquote(urlsplit(link).path).rsplit("/", 1)[-1]})


class PackageIndex:
    """Packages of the configured sources for one target; each page is fetched once."""

    def __init__(self, sources: Sources, target: Target) -> None:
        self.sources = sources
        self.target = target
        self._pages: dict[str, tuple[Wheel, ...]] = {}
        self._sizes: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def list_wheels(self, name: str) -> tuple[Wheel, ...]:
        """List all wheels of a package for this target, with any upload time, including yanked ones.

        As in uv, only the first index that has the package is used; flat folders are added to it.
        """
        name = canonicalize_name(name)
        with self._lock:
            wheels = self._pages.get(name)
        if wheels is None:
            listed = self._fetch_wheels(name)
            fitting = (wheel for wheel in listed if self.target.rank_tags(wheel.tags) is not None)
            wheels = tuple(wheel for wheel in fitting if self.target.allows_python(wheel.requires_python))
            with self._lock:
                self._pages[name] = wheels
        return wheels

    def prefetch_pages(self, names: Iterable[str]) -> None:
        """Fetch the pages of several packages in parallel; the first error is raised."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.list_wheels, dict.fromkeys(names)))

    def list_files(self, name: str, version: str | Version, before: datetime | None = None) -> list[Wheel]:
        """Compatible wheels of one version that were uploaded before a time, best first.

        With a time, files of unknown upload time are left out, as in uv.
        """
        wanted = Version(str(version))
        wheels = [wheel for wheel in self.list_wheels(name) if wheel.version == wanted and is_older(wheel, before)]
        return sorted(
            wheels, key=lambda wheel: (self.target.rank_tags(wheel.tags), _reverse_build(wheel.build), wheel.name)
        )

    def list_versions(self, name: str, specifier: SpecifierSet, before: datetime | None = None) -> list[Version]:
        """Versions with a compatible wheel that match the specifier, newest first.

        Yanked versions are left out unless pinned with ==, pre-releases unless the specifier names one.
        """
        pinned = {
            Version(clause.version)
            for clause in specifier
            if clause.operator == "==" and not clause.version.endswith(".*")
        }
        versions = {
            wheel.version
            for wheel in self.list_wheels(name)
            if is_older(wheel, before) and (not wheel.yanked or wheel.version in pinned)
        }
        allowed = specifier.filter(sorted(versions, reverse=True), prereleases=bool(specifier.prereleases))
        return list(allowed)

    def has_untimed_wheels(self, name: str, *, wholly: bool = False) -> bool:
        """Whether wheels of the package lack an upload time (`wholly`: all of them)."""
        unknown = [wheel.uploaded is None for wheel in self.list_wheels(name)]
        return bool(unknown) and all(unknown) if wholly else any(unknown)

    def size_bytes(self, wheel: Wheel) -> int | None:
        """Download size of a wheel, from the index or the server; null if unknown."""
        if wheel.size_bytes is not None:
            return wheel.size_bytes
        with self._lock:
            if wheel.url in self._sizes:
                return self._sizes[wheel.url]
        size = _fetch_content_length(wheel.url)
        with self._lock:
            self._sizes[wheel.url] = size
        return size

    def _fetch_wheels(self, name: str) -> list[Wheel]:
        """All wheels of a package on its indexes and in flat folders, whatever their platform."""
        wheels: list[Wheel] = []
        has_package = False
        sources = self.sources.select_for(name)
        for url in sources.indexes:
            page = _fetch_page(f"{url.rstrip('/')}/{quote(name)}/")
            if page is None:
                continue
            has_package = True
            wheels += page
            if sources.strategy == "first-index":
                break
        flat = [wheel for link in sources.find_links for wheel in _list_flat_links(link, name)]
        if not has_package and not flat:
            raise InputError(
                f"no such package on the index: {name}", where=sources.shown, do="check the spelling of its name"
            )
        return wheels + flat


def is_older(wheel: Wheel, before: datetime | None) -> bool:
    """Whether a wheel was uploaded before a time; false for an unknown upload time, true without a time."""
    return before is None or (wheel.uploaded is not None and wheel.uploaded < before)


def _reverse_build(build: tuple[int, str] | tuple[()]) -> tuple[int, str]:
    # The highest build number sorts first, a missing one last.
    return (-build[0], build[1]) if build else (0, "")


def _fetch_page(url: str) -> list[Wheel] | None:
    """Wheels of one page; null if the index does not have the package."""
    if urlsplit(url).scheme == "file":
        # Wheels of an index in a folder: by its index.html, else by its files; null if there is no such folder.
        folder = _local_path(url)
        with refuse_os_errors("cannot read the local index", folder):
            page = folder / "index.html"
            if page.is_file():
                with page.open("rb") as file:
                    return [
                        _add_size(wheel)
                        for wheel in _parse_response(_read_text(file, str(page)), "text/html", url, str(page))
                    ]
            return _list_folder_wheels(folder, folder.name) if folder.is_dir() else None
    request, safe = _build_request(url, "GET")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http(s) alone, see _request
            text, kind = _read_text(answer, safe), str(answer.headers.get("content-type", ""))
            # Without a redirect, links are relative to the given URL, including user and password.
            at = answer.geturl() if answer.geturl() != request.full_url else url
    except urllib.error.HTTPError as error:
        # The exception keeps the connection open.
        error.close()
        if error.code in (404, 410):
            return None
        if error.code in (401, 403, 407):
            advice = "give user and password in the index's URL: UV_DEFAULT_INDEX=https://USER:PASSWORD@HOST/…"
            raise RunFailedError(
                "the package index refuses access", where=safe, found=f"HTTP {error.code}", do=advice
            ) from None
        raise RunFailedError(
            "the package index failed", where=safe, found=f"HTTP {error.code}", do="try again later"
        ) from None
    except (OSError, HTTPException) as error:
        # The message of the exception may contain the URL, so only its reason is shown.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise RunFailedError("cannot reach the package index", where=safe, found=str(reason), do=REACH) from None
    return _parse_response(text, kind, at, safe)


def _parse_response(text: str, kind: str, at: str, safe: str) -> list[Wheel]:
    try:
        return parse_page(text, kind, at)
    except ValueError as error:
        raise InputError("not a package index page", where=safe, found=str(error)[:200], do=REACH) from None


def _build_request(url: str, method: str) -> tuple[urllib.request.Request, str]:
    """Request without credentials in its URL, and a URL that is safe to show."""
    parts = urlsplit(url)
    safe = strip_user_info(url)
    if parts.scheme not in ("http", "https"):
        raise InputError("not a package index URL", where=safe, allowed=["http://…", "https://…", "file://…"])
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), method=method)  # noqa: S310
    request.add_header("Accept", ACCEPT)
    request.add_header("User-Agent", "accelerated-workbench")
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        # Not sent on redirects, so that another host does not receive the password.
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    return request, safe


def _read_text(file: IO[bytes], safe: str) -> str:
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InputError("the response of the index is too large", where=safe, allowed=f"up to {MAX_BYTES >> 20} MiB")
    return raw.decode("utf-8", errors="replace")


def _local_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _list_flat_links(link: str, name: str) -> list[Wheel]:
    if link.startswith("file:"):
        return _list_folder_wheels(_local_path(link), name)
    return [wheel for wheel in _fetch_page(link) or [] if _is_file_of(wheel.name, name)]


def _list_folder_wheels(folder: Path, name: str) -> list[Wheel]:
    if not folder.is_dir():
        return []
    wheels = (
        parse_wheel(path.name, path.as_uri()) for path in sorted(folder.glob("*.whl")) if _is_file_of(path.name, name)
    )
    return [_add_size(wheel) for wheel in wheels if wheel is not None]


def _is_file_of(file_name: str, name: str) -> bool:
    try:
        return parse_wheel_filename(file_name)[0] == canonicalize_name(name)
    except InvalidWheelFilename:
        return False


def _add_size(wheel: Wheel) -> Wheel:
    """Local wheel with its size, and its hash if the page has none."""
    path = _local_path(wheel.url)
    if urlsplit(wheel.url).scheme != "file" or not path.is_file():
        return wheel
    digest = wheel.sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    return replace(wheel, size_bytes=path.stat().st_size, sha256=digest)


def _fetch_content_length(url: str) -> int | None:
    """Content-Length from the server; null if not available."""
    try:
        request, _ = _build_request(url, "HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            length_text = str(answer.headers.get("content-length", ""))
    except (OSError, HTTPException, InputError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return None
    return int(length_text) if length_text.isdigit() else None


def format_time(time: datetime) -> str:
    """Format a time in UTC with seconds.

    >>> format_time(datetime(2024, 6, 30, tzinfo=UTC))
    '2024-06-30T00:00:00Z'
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
