"""Known vulnerabilities from a local file: OSV records or a pip-audit report; nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbench.core.errors import InputError, refuse_os_errors

MAX_BYTES = 256 << 20
MAX_ID = 100
_ADDRESS = re.compile(r"https?://[^\s\"'<>]{1,300}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


@dataclass(frozen=True)
class Vulnerability:
    """One known vulnerability of a package.

    `advisory`, `summary`, `link`: Its id, what it is (may be empty), where to read more (null: nowhere).
    `ranges`: Ranges of versions: from (null: the first one), before, and up to and with (null: no such end).
    """

    advisory: str
    summary: str = ""
    link: str | None = None
    versions: frozenset[str] = frozenset()
    ranges: tuple[tuple[str | None, str | None, str | None], ...] = ()

    def affects_version(self, version: str) -> bool:
        """Does it affect this version? One that cannot be compared is affected only when named.

        A local version (2.1.0+cpu) is a build of its public one, and compared as that; where the record itself names a
        local version, as it stands.
        """
        if version in self.versions:
            return True
        try:
            stack_version = Version(version)
        except InvalidVersion:
            return False
        return any(_compare_version(stack_version, text) == 0 for text in self.versions if _is_version(text)) or any(
            (begin is None or _compare_version(stack_version, begin) >= 0)
            and (before is None or _compare_version(stack_version, before) < 0)
            and (last is None or _compare_version(stack_version, last) <= 0)
            for begin, before, last in self.ranges
        )

    @property
    def version_range(self) -> str:
        """The affected versions, as a requirement spells them."""
        parts = [
            ",".join(
                sign + end
                for sign, end in ((">=", begin), ("<", before), ("<=", last))
                if end is not None and end != "0"
            )
            for begin, before, last in self.ranges
        ]
        listed = [f"=={version}" for version in sorted(self.versions)[:5]] if not self.ranges else []
        return " or ".join(part or "all" for part in [*parts, *listed])


@dataclass(frozen=True)
class KnownVulnerabilities:
    """Vulnerabilities that a file records.

    `audited`: The (package, version) pairs that were looked at; null for OSV records, which cover what they name.
    """

    found: Mapping[str, tuple[Vulnerability, ...]] = field(default_factory=dict)
    audited: frozenset[tuple[str, str]] | None = None

    def find_affecting(self, packages: Mapping[str, str]) -> Iterator[tuple[str, str, Vulnerability]]:
        """The vulnerabilities of these packages: package, version, which."""
        for name, version in sorted(packages.items()):
            for vulnerability in self.found.get(canonicalize_name(name), ()):
                if vulnerability.affects_version(version):
                    yield name, version, vulnerability

    def list_without_audit(self, packages: Mapping[str, str]) -> list[str]:
        """The packages that the report did not look at; none when it cannot tell."""
        if self.audited is None:
            return []
        pairs = ((name, version, (canonicalize_name(name), version)) for name, version in sorted(packages.items()))
        return [f"{name} {version}" for name, version, pair in pairs if pair not in self.audited]

    def list_without_record(self, packages: Mapping[str, str]) -> list[str]:
        """The packages that no OSV record names: nothing is known of them; none for a report of pip-audit."""
        if self.audited is not None:
            return []
        return [name for name in sorted(packages) if canonicalize_name(name) not in self.found]


def read_vulnerabilities(path: Path) -> KnownVulnerabilities:
    """The vulnerabilities in a file: OSV records (one, an array, or one a line), or `pip-audit --format json`."""
    with refuse_os_errors("cannot read the vulnerabilities", path), path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if not raw.strip():
        raise InputError("an empty file says nothing about vulnerabilities", where=path)
    if len(raw) > MAX_BYTES:
        raise InputError("too large for a file of vulnerabilities", where=path, allowed=f"up to {MAX_BYTES >> 20} MiB")
    documents = _parse_documents(raw, path)
    if len(documents) == 1 and isinstance(documents[0], dict) and "dependencies" in documents[0]:
        return _parse_audit_report(documents[0]["dependencies"], path)
    if documents and all(
        isinstance(document, dict) and "vulns" in document and "name" in document for document in documents
    ):
        return _parse_audit_report(documents, path)
    # Vulnerabilities of packages on PyPI by version ranges; withdrawn records are left out.
    by_package: dict[str, list[Vulnerability]] = {}
    for position, record in enumerate(_check_list(list(documents), path, "the file")):
        if not isinstance(record.get("affected"), list):
            raise InputError(
                "not a record of OSV or pip-audit",
                where=f"{path}, entry {position}",
                found=f"keys {sorted(record)[:8]}",
            )
        if record.get("withdrawn"):
            continue
        for affected in _check_list(record["affected"], path, f"{position}.affected"):
            package = affected.get("package")
            if (
                isinstance(package, dict)
                and package.get("ecosystem") == "PyPI"
                and isinstance(package.get("name"), str)
            ):
                vulnerability = Vulnerability(
                    _read_id(record, path),
                    _read_summary(record),
                    _find_link(record),
                    _list_versions(affected),
                    tuple(_parse_ranges(affected, path)),
                )
                by_package.setdefault(canonicalize_name(package["name"]), []).append(vulnerability)
    return KnownVulnerabilities({name: tuple(entries) for name, entries in by_package.items()})


def _parse_documents(raw: bytes, path: Path) -> list[Any]:
    """The records of a file: one JSON document, a list, or a document a line."""
    try:
        document = json.loads(raw)
    except RecursionError:
        raise InputError("nested too deep", where=path) from None
    except ValueError as error:
        try:
            return [json.loads(line) for line in raw.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise InputError(
                "neither JSON nor a JSON document a line", where=path, found=str(error)[:200],
                allowed="OSV records, or the output of pip-audit --format json",
            ) from None  # fmt: skip
    return document if isinstance(document, list) else [document]


def _parse_audit_report(dependencies: Any, path: Path) -> KnownVulnerabilities:
    """Vulnerabilities of the exact versions that pip-audit looked at; what it skipped counts as not audited."""
    by_package: dict[str, list[Vulnerability]] = {}
    audited = set()
    for position, dependency in enumerate(_check_list(dependencies, path, "dependencies")):
        name, version = dependency.get("name"), dependency.get("version")
        if not isinstance(name, str) or not isinstance(version, str):
            # pip-audit lists what it skipped without a version: that was not looked at.
            continue
        audited.add((str(canonicalize_name(name)), version))
        for entry in _check_list(dependency.get("vulns", []), path, f"dependencies.{position}.vulns"):
            # What holds for one build holds for the others of that version.
            public = Version(version).public if _is_version(version) else version
            vulnerability = Vulnerability(
                _read_id(entry, path), _read_summary(entry), _find_link(entry), versions=frozenset({public})
            )
            by_package.setdefault(canonicalize_name(name), []).append(vulnerability)
    return KnownVulnerabilities({name: tuple(entries) for name, entries in by_package.items()}, frozenset(audited))


def _parse_ranges(affected: Mapping[str, Any], path: Path) -> Iterator[tuple[str | None, str | None, str | None]]:
    """Each range from an `introduced` event to the next `fixed` or `last_affected`; open where there is none."""
    for version_range in _check_list(affected.get("ranges", []), path, "ranges"):
        if version_range.get("type") != "ECOSYSTEM":
            # Ranges of commits say nothing about versions; the record's list of versions does.
            continue
        begin: str | None = None
        for _, kind, version in sorted(_parse_events(version_range, path)):
            if kind == "introduced":
                begin = version if begin is None else begin
            elif begin is not None:
                yield (begin, version, None) if kind == "fixed" else (begin, None, version)
                begin = None
        if begin is not None:
            yield begin, None, None


def _parse_events(version_range: Mapping[str, Any], path: Path) -> Iterator[tuple[Version, str, str]]:
    """The events with their versions, to be sorted: records need not keep an order."""
    for event in _check_list(version_range.get("events", []), path, "events"):
        for kind, version in event.items():
            if kind in ("introduced", "fixed", "last_affected"):
                if not isinstance(version, str) or not _is_version(version):
                    raise InputError("not a version", where=f"{path}, {kind}", found=repr(version)[:80])
                yield Version(version), kind, version


def _list_versions(affected: Mapping[str, Any]) -> frozenset[str]:
    versions = affected.get("versions")
    return frozenset(
        version for version in (versions if isinstance(versions, list) else ()) if isinstance(version, str)
    )


def _check_list(value: Any, path: Path, where: str) -> list[dict[str, Any]]:
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        return value
    raise InputError("a list of objects is needed", where=f"{path}, {where}", found=type(value).__name__)


def _read_id(entry: Mapping[str, Any], path: Path) -> str:
    identifier = entry.get("id")
    if not isinstance(identifier, str) or not _ID.fullmatch(identifier):
        raise InputError("a vulnerability without an id", where=path, found=repr(identifier)[:80])
    return identifier


def _read_summary(entry: Mapping[str, Any]) -> str:
    text = entry.get("summary") or entry.get("description") or ""
    return " ".join(text.split())[:200] if isinstance(text, str) else ""


def _find_link(entry: Mapping[str, Any]) -> str:
    """Address of the advisory, or of the record on osv.dev."""
    references = entry.get("references")
    for reference in references if isinstance(references, list) else []:
        if (
            isinstance(reference, dict)
            and reference.get("type") == "ADVISORY"
            and _ADDRESS.fullmatch(str(reference.get("url")))
        ):
            return str(reference["url"])
    return f"https://osv.dev/vulnerability/{entry['id']}"


def _compare_version(version: Version, text: str) -> int:
    """Below 0: before the named version; 0: this one; above 0: after it."""
    named = Version(text)
    candidate = version if named.local else Version(version.public)
    return (candidate > named) - (candidate < named)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
