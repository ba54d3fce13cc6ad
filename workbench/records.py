"""What run.json says: its first form, its parts, and how a record of anybody's making is read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__, files, host, redaction
from workbench.errors import InputError

if TYPE_CHECKING:
    from workbench.tables import Table

FORMAT_VERSION = 1
CHECKOUT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]

# From the format version that it reads to the function that makes the next one of it.
UPGRADES: dict[int, Callable[[Json], Json]] = {}
_MOST_S = 100 * 366 * 86400.0
_TEXT = (str,)
_REQUIRED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "area", "title", "status", "started_at"), _TEXT),
    "config": (dict,),
    "inputs": (list,),
    "tables": (list,),
    "verdict": (str, type(None)),
    "reasons": (list,),
}


def first(run_id: str, area: str, now: datetime) -> Json:
    return {
        "format_version": FORMAT_VERSION,
        "run_id": run_id,
        "area": area,
        "title": area,
        "notebook": None,
        "status": "running",
        "started_at": now.isoformat(timespec="milliseconds"),
        "ended_at": None,
        "duration_s": None,
        "config": {},
        "command": None,
        "package_version": __version__,
        "git_commit": host.git_commit(CHECKOUT),
        "versions": host.versions(),
        "host": host.facts(),
        "inputs": [],
        "tables": [],
        "verdict": None,
        "reasons": [],
        "answer": None,
        "failure": None,
    }


def parse(content: bytes, where: object) -> Json:
    """The record in the bytes of a run.json, upgraded to this version's format.

    Raises
    ------
    InputError
        It is no run record, or of a newer workbench.
    """
    try:
        # Deep nesting ends in a RecursionError.
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError("unreadable run record", where=where, found=str(error)[:200]) from error
    record = _upgraded(record, where)
    if missing := [name for name in _REQUIRED if name not in record]:
        raise InputError("not a run record", where=where, found="missing: " + ", ".join(missing))
    if wrong := [name for name, kinds in _REQUIRED.items() if not isinstance(record[name], kinds)]:
        raise InputError("not a run record", where=where, found="of another type: " + ", ".join(wrong))
    return record


def _upgraded(record: Any, where: object) -> Json:
    version = record.get("format_version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError("not a run record", where=where, found="no format_version")
    if version > FORMAT_VERSION:
        raise InputError(
            "run record of a newer workbench",
            where=where,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    while version < FORMAT_VERSION:
        if version not in UPGRADES:
            raise InputError("run record of an unknown format", where=where, found=f"format version {version}")
        record = UPGRADES[version](dict(record))
        version += 1
        record["format_version"] = version
    return dict(record)


def began(record: Mapping[str, Any]) -> datetime:
    """When a run began, in UTC: by the clock at its end where there is one, since clocks are set right, not wrong.

    The year 1 when no time in the record can be read.
    """
    ended, started = (time_of(record.get(name)) for name in ("ended_at", "started_at"))
    took_s = record.get("duration_s")
    if ended is not None and isinstance(took_s, int | float) and 0 <= took_s < _MOST_S:
        with contextlib.suppress(OverflowError):
            return ended - timedelta(seconds=took_s)
    return started or datetime.min.replace(tzinfo=UTC)


def time_of(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def table_entry(table: Table, rows: int) -> Json:
    """What run.json says of a table; what compares runs reads its key and intervals here, since it knows no areas."""
    from workbench.pairing import intervals_by_name

    numeric = [column.name for column in table.columns if column.dtype in ("int", "float")]
    units = {column.name: column.unit for column in table.columns if column.unit}
    ends = {name: list(pair) for name, pair in intervals_by_name(numeric).items()}
    ends |= {column.name: list(column.ends) for column in table.columns if column.ends}
    return {"name": table.name, "rows": rows, "key": list(table.key), "units": units, "intervals": ends}


def input_entry(path: str | Path, *, digest: bool = True) -> Json:
    if "://" in str(path):
        return {"path": redaction.without_user_info(str(path)), "bytes": None, "sha256": None}
    path = Path(path)
    members = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    try:
        size_bytes = sum(file.stat().st_size for file in members)
        found = None
        if digest:
            found = files.sha256(path) if not path.is_dir() else _folder_digest(path, members)
    except OSError as error:
        raise InputError("cannot read the input", where=path, found=error.strerror) from error
    full = path.resolve()
    # Samples are named alike on every machine; other people's paths stay as they are.
    shown = full.relative_to(CHECKOUT).as_posix() if full.is_relative_to(CHECKOUT) else str(full)
    return {"path": shown, "bytes": size_bytes, "sha256": found}


def _folder_digest(folder: Path, members: list[Path]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for file in members:
        digest.update(f"{file.relative_to(folder).as_posix()}\0{files.sha256(file)}\n".encode())
    return digest.hexdigest()
