"""Amun's documents as they lie on disk, of all layouts, as one list of runs; nothing is judged yet.

A folder `ID/build/specification` with `ID/results/N/result`; one older document with the result in `job_log`; a
result alone; what a script printed, alone (`*.stdout`, `*.json`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import ConfigError, InputError
from workbench.files import read_bounded
from workbench.indicators.archive import INSPECTIONS, MOST_RESULT_BYTES, SESSION

MOST_FILES = 100_000
MOST_DEPTH = 50
MOST_TOTAL_BYTES = 1 << 30
OUTSIDE = "a link that leads out of the folder given"
SUFFIXES = (".json", ".stdout")
_Any = TypeVar("_Any")
_RESULT_KEYS = ("stdout", "usage", "exit_code", "hwinfo", "script_sha256")


@dataclass(frozen=True)
class Raw:
    """A run's result as it was found, with the specification it belongs to (empty when there is none)."""

    path: Path
    inspection: str
    result: Mapping[str, Any]
    specification: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Problems:
    """Files that could not be read, each with the reason; and how much was read so far."""

    found: list[tuple[Path, str]] = field(default_factory=list)
    bytes_read: int = 0

    def read(self, path: Path) -> bytes:
        """A file's bytes.

        Raises
        ------
        InputError
            It cannot be read, is no regular file, or is too large.
        ConfigError
            All files together are more than one import can hold.
        """
        try:
            found = read_bounded(path, MOST_RESULT_BYTES)
        except OSError as error:
            raise InputError("cannot be read", found=error.strerror) from None
        self.bytes_read += len(found)
        if self.bytes_read > MOST_TOTAL_BYTES:
            allowed = f"at most {MOST_TOTAL_BYTES >> 20} MiB"
            raise ConfigError("too much for one import", where=path, allowed=allowed, do="import it in parts")
        return found

    def add(self, path: Path, reason: object) -> None:
        """Note one."""
        self.found.append((path, " ".join(str(reason).split())[:500]))


def raw_runs(path: Path, problems: Problems) -> Iterator[Raw]:
    """All runs at a path: of one inspection, of a folder of them, or of single documents.

    Raises
    ------
    InputError
        There is nothing of the kind; it is a session of this project; there are too many files.
    """
    if path.is_file():
        yield from _document(path, problems)
        return
    if not path.is_dir():
        raise InputError("nothing there", where=path, allowed="a document, an inspection's folder, a folder of those")
    if (path / SESSION).is_file() or (path / INSPECTIONS).is_dir():
        raise InputError(
            "a session of this project already",
            where=path,
            do=f"bring it in as it is: workbench indicators sync {path}",
        )
    found, root = False, path.resolve()
    for one in _below(path):
        found = True
        if inside(one, root):
            yield from _inspection(one, problems, root) if one.is_dir() else _document(one, problems)
        else:
            problems.add(one, OUTSIDE)
    if not found:
        raise InputError(
            "no documents of Amun there",
            where=path,
            allowed="ID/build/specification with ID/results/N/result, *.json or *.stdout",
        )


def inside(path: Path, root: Path) -> bool:
    """Does a path, its links followed, lie in this folder (a resolved one)? What was not given is not read."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # links in a circle
        return False


def _below(path: Path) -> list[Path]:
    """The inspections' folders and single documents of a folder, in order."""
    if _is_inspection(path):
        return [path]
    entries = sorted(path.iterdir())
    if len(entries) > MOST_FILES:
        raise InputError("too many files", where=path, found=len(entries), allowed=f"at most {MOST_FILES:,}")
    return [
        entry
        for entry in entries
        if (entry.is_file() and entry.suffix in SUFFIXES) or (entry.is_dir() and _is_inspection(entry))
    ]


def _is_inspection(path: Path) -> bool:
    return (path / "build" / "specification").is_file() or (path / "results").is_dir()


def _inspection(folder: Path, problems: Problems, root: Path) -> Iterator[Raw]:
    path = folder / "build" / "specification"
    specification: Mapping[str, Any] = {}
    if not inside(path, root):
        problems.add(path, OUTSIDE)
    elif path.is_file():
        try:
            specification = _object(path, problems)
        except InputError as error:
            problems.add(path, error)
    else:
        problems.add(path, "no specification: the stack is not known")
    numbered = []
    for count, one in enumerate((folder / "results").glob("*/result")):
        if count >= MOST_FILES:
            raise InputError("too many results", where=folder, allowed=f"at most {MOST_FILES:,}")
        if not inside(one, root):
            problems.add(one, OUTSIDE)
        elif one.parent.name.isascii() and one.parent.name.isdigit():
            numbered.append((int(one.parent.name), one))
        else:
            problems.add(one, "not the number of a result")
    for _, one in sorted(numbered):
        try:
            result = _object(one, problems)
        except InputError as error:
            problems.add(one, error)
            continue
        yield Raw(one, folder.resolve().name, _hoisted(result), specification)


def _document(path: Path, problems: Problems) -> Iterator[Raw]:
    """The run of a single file."""
    try:
        stdout = path.suffix == ".stdout"
        found = {"stdout": _printed(path, problems)} if stdout else _object(path, problems)
    except InputError as error:
        problems.add(path, error)
        return
    if "benchmarks" in found and "stdout" not in found:
        problems.add(path, "a document of pyperf, not of Amun (--format pyperf)")
    elif "job_log" in found:
        yield from _older(path, found, problems)
    elif any(key in found for key in _RESULT_KEYS):
        yield Raw(path, path.stem, _hoisted(found))
    else:
        yield Raw(path, path.stem, {"stdout": found})


def _older(path: Path, found: Mapping[str, Any], problems: Problems) -> Iterator[Raw]:
    """A document of older releases: the result in `job_log`, times in `status`."""
    name = found.get("inspection_id")
    specification = found.get("specification")
    log, status = found.get("job_log"), found.get("status")
    if log is None:
        problems.add(path, "nothing was run: it has no job_log (did its build fail?)")
        return
    result = dict(log) if isinstance(log, Mapping) else {"stdout": log}
    job = status.get("job") if isinstance(status, Mapping) else None
    if isinstance(job, Mapping):
        times = {
            "start_datetime": job.get("started_at"),
            "end_datetime": job.get("finished_at"),
            "node": job.get("node"),
        }
        result = {key: value for key, value in times.items() if value is not None} | result
    yield Raw(
        path,
        name if isinstance(name, str) else path.stem,
        _hoisted(result),
        specification if isinstance(specification, Mapping) else {},
    )


def _hoisted(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result whose printed document was put at its top, with the document back in `stdout`."""
    if "stdout" in result or "@result" not in result:
        return result
    outer = {*_RESULT_KEYS, "stderr", "hostname", "os_release", "runtime_environment", "datetime"}
    outer |= {"start_datetime", "end_datetime", "node"}
    printed = {key: value for key, value in result.items() if key not in outer}
    return {key: value for key, value in result.items() if key in outer} | {"stdout": printed}


def _object(path: Path, problems: Problems) -> dict[str, Any]:
    try:
        found = json.loads(problems.read(path))
    except (ValueError, RecursionError) as error:
        raise InputError("not readable JSON", found=str(error)[:120]) from None
    if not isinstance(found, dict):
        raise InputError("a JSON object is needed", found=type(found).__name__)
    return _bounded(found)


def _printed(path: Path, problems: Problems) -> Any:
    """What a script printed: its JSON; as a text where it is none."""
    text = problems.read(path).decode("utf-8", "replace")
    try:
        return _bounded(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _bounded(found: _Any) -> _Any:
    """JSON data that is not nested so deep that what walks over it would fail."""
    level: list[Any] = [found]
    for _ in range(MOST_DEPTH):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for listed in inner for one in listed if isinstance(one, dict | list)]
        if not level:
            return _encodable(found)
    raise InputError(f"nested more than {MOST_DEPTH} deep", found="a deeper one")


def _encodable(found: _Any) -> _Any:
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError("half of a pair of code units in a text", found="a text that no file can hold") from None
    return found
