"""The record run.json: its fields, entries for tables and inputs, upgrades, parsing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.core import files, host, redaction
from workbench.core.errors import InputError
from workbench.core.paths import CHECKOUT

if TYPE_CHECKING:
    from workbench.core.tables import Table

FORMAT_VERSION = 1
Json = dict[str, Any]

# By format version: the function that upgrades a record to the next version.
UPGRADES: dict[int, Callable[[Json], Json]] = {}
_MAX_DURATION_S = 100 * 366 * 86400.0
_TEXT = (str,)
_REQUIRED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "area", "title", "status", "started_at"), _TEXT),
    "config": (dict,),
    "inputs": (list,),
    "tables": (list,),
    "verdict": (str, type(None)),
    "reasons": (list,),
}


def build_record(run_id: str, area: str, now: datetime) -> Json:
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
        "git_commit": host.read_git_commit(CHECKOUT),
        "versions": host.list_versions(),
        "host": host.read_host_facts(),
        "inputs": [],
        "tables": [],
        "verdict": None,
        "reasons": [],
        "answer": None,
        "failure": None,
    }


def parse_record(content: bytes, where: object) -> Json:
    """Parse the bytes of a run.json, upgraded to the current format version."""
    try:
        # Deep nesting ends in a RecursionError.
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError("unreadable run record", where=where, found=str(error)[:200]) from error
    record = _upgrade_record(record, where)
    if missing := [name for name in _REQUIRED if name not in record]:
        raise InputError("not a run record", where=where, found="missing: " + ", ".join(missing))
    if wrong := [name for name, kinds in _REQUIRED.items() if not isinstance(record[name], kinds)]:
        raise InputError("not a run record", where=where, found="of another type: " + ", ".join(wrong))
    return record


def _upgrade_record(record: Any, where: object) -> Json:
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


def read_start_time(record: Mapping[str, Any]) -> datetime:
    """Start time of a run in UTC: end time minus duration where known, since a clock may be corrected during a run.

    The year 1 when the record has no readable time.
    """
    ended, started = (parse_time(record.get(name)) for name in ("ended_at", "started_at"))
    took_s = record.get("duration_s")
    if ended is not None and isinstance(took_s, int | float) and 0 <= took_s < _MAX_DURATION_S:
        with contextlib.suppress(OverflowError):
            return ended - timedelta(seconds=took_s)
    return started or datetime.min.replace(tzinfo=UTC)


def parse_time(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def build_table_entry(table: Table, rows: int) -> Json:
    """The entry of a table in run.json, with the key and interval columns that comparisons of runs need."""
    from workbench.runs.table_pairs import find_interval_columns

    numeric = [column.name for column in table.columns if column.dtype in ("int", "float")]
    units = {column.name: column.unit for column in table.columns if column.unit}
    ends = {name: list(pair) for name, pair in find_interval_columns(numeric).items()}
    ends |= {column.name: list(column.ends) for column in table.columns if column.ends}
    return {"name": table.name, "rows": rows, "key": list(table.key), "units": units, "intervals": ends}


def build_input_entry(path: str | Path, *, digest: bool = True) -> Json:
    if "://" in str(path):
        return {"path": redaction.strip_user_info(str(path)), "bytes": None, "sha256": None}
    path = Path(path)
    members = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    try:
        size_bytes = sum(file.stat().st_size for file in members)
        sha256 = None
        if digest:
            sha256 = files.hash_file(path) if not path.is_dir() else _hash_folder(path, members)
    except OSError as error:
        raise InputError("cannot read the input", where=path, found=error.strerror) from error
    full = path.resolve()
    # Paths in the checkout are relative, so that samples have the same name on every machine.
    shown = full.relative_to(CHECKOUT).as_posix() if full.is_relative_to(CHECKOUT) else str(full)
    return {"path": shown, "bytes": size_bytes, "sha256": sha256}


def _hash_folder(folder: Path, members: list[Path]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for file in members:
        digest.update(f"{file.relative_to(folder).as_posix()}\0{files.hash_file(file)}\n".encode())
    return digest.hexdigest()
