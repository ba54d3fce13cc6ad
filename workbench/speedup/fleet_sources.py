"""Which logs lie below folders, globs and URLs: every candidate is named, so that a bad one can be told, not lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import InputError
from workbench.eventlog.scrub import scrub
from workbench.eventlog.sources import BYSTANDER, DATABRICKS, MAX_LOGS, ROLLED
from workbench.stores import open_store

MAGIC = "*?["
# Files that stand beside logs and are plainly none; any other that is no log is told with its reason.
DOCUMENTS = frozenset(
    {".md", ".txt", ".py", ".ipynb", ".html", ".csv", ".json", ".yaml", ".yml", ".toml", ".conf", ".properties"}
    | {".sh", ".parquet", ".jar", ".sql", ".pdf", ".png"}
)


@dataclass(frozen=True)
class Candidate:
    """What may be one log; `reason` says why it cannot even be looked at."""

    path: str
    size_bytes: int = 0
    reason: str | None = None


def candidates(paths: Sequence[str | Path]) -> list[Candidate]:
    """Every log that may lie at these files, folders, globs or URLs, each once, in natural order.

    Raises
    ------
    InputError
        A path is not there, a glob matches nothing, or the kind of URL cannot be opened here.
    """
    found: dict[str, Candidate] = {}
    for path in paths:
        for candidate in _at(str(path)):
            found.setdefault(candidate.path, candidate)
    return sorted(found.values(), key=lambda one: one.path)


def _at(path: str) -> list[Candidate]:
    store, root = open_store(str(Path(path).expanduser()) if "://" not in path else path, told=scrub)
    try:
        roots = [root] if store.exists(root) or not set(MAGIC) & set(path) else sorted(store.glob(root))
        if not roots or not store.exists(roots[0]):
            raise InputError(
                "no such file or folder", where=scrub(path), do="check the path; folders, globs and URLs work"
            )
        found: list[Candidate] = []
        for place in roots:
            info = store.info(place)
            if info["type"] == "directory":
                found += _below(store, place)
            elif len(roots) == 1 or not _is_document(place):
                found.append(Candidate(_url(store, place), int(info.get("size") or 0)))
    except OSError as error:
        raise InputError("cannot be read", where=scrub(path), found=scrub(str(error))) from error
    if not found:
        raise InputError(
            "nothing in it could be an event log", where=scrub(path), do="point to the folder spark.eventLog.dir names"
        )
    return found


def _below(store: Any, folder: str) -> list[Candidate]:
    found: list[Candidate] = []
    todo = [folder]
    while todo and len(found) < MAX_LOGS:
        place = todo.pop()
        try:
            entries = store.ls(place, detail=True)
        except OSError as error:
            found.append(Candidate(_url(store, place), reason=f"folder cannot be read: {error.strerror or error}"))
            continue
        files = [entry for entry in entries if entry["type"] == "file"]
        if _is_one_log(place, [_name(entry["name"]) for entry in files]):
            found.append(Candidate(_url(store, place), sum(int(entry.get("size") or 0) for entry in files)))
            continue
        for entry in files:
            name = _name(entry["name"])
            if not BYSTANDER.fullmatch(name) and not _is_document(name):
                found.append(Candidate(_url(store, entry["name"]), int(entry.get("size") or 0)))
        # Links to folders may form loops.
        todo += [
            entry["name"]
            for entry in entries
            if entry["type"] == "directory"
            and not entry.get("islink")
            and not _name(entry["name"]).startswith((".", "_"))
        ]
    return found


def _is_one_log(folder: str, names: list[str]) -> bool:
    """Whether the folder's files are parts of one application's log: rolled by Spark or by Databricks."""
    if any(ROLLED.fullmatch(name) for name in names):
        return True
    parts = [name for name in names if DATABRICKS.fullmatch(name)]
    return ("eventlog" in parts and len(parts) > 1) or (bool(parts) and _name(folder).isdigit())


def _is_document(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in DOCUMENTS


def _name(path: str) -> str:
    return PurePosixPath(path.rstrip("/")).name


def _url(store: Any, path: str) -> str:
    protocols = (store.protocol,) if isinstance(store.protocol, str) else store.protocol
    return path if "file" in protocols else str(store.unstrip_protocol(path))
