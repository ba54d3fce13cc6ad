"""What a session is, noted before its runs: stacks, machine, arms, cases, indicators. Told twice, it is there once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from workbench.errors import InputError
from workbench.indicators.archive import Arm, Hardware, PlannedCase, Session, inspection_id
from workbench.indicators.storage import preparing
from workbench.indicators.storage.declarations import MOST_NAME_BYTES, clean_text
from workbench.indicators.storage.schema import (
    ARM,
    HARDWARE,
    INSPECTION,
    PLANNED_CASE,
    SESSION,
    STACK,
    STACK_PACKAGE,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

Declare = Callable[[str, str], Mapping[str, Any]]
"""The declaration of an indicator and version that a session does not tell; empty when nobody knows."""

# What goes on while a session runs; everything else is fixed once it is planned.
_PROGRESS = {"rounds_done", "ended_at", "stop_reason", "notes"}
_CASE_NOTES = {"skipped", "declaration", "about"}


def register(connection: Connection, session: Session, declare: Declare) -> None:
    """Note a session.

    Raises
    ------
    InputError
        Another session of this id, another stack of this key, or another declaration of this version is there; an
        indicator's name is none.
    """
    for case in session.cases:
        _refuse_name(case.indicator)
    preparing.lock(connection)
    _register_hardware(connection, session.hardware)
    for arm in session.arms:
        _register_stack(connection, arm)
    for case in session.cases:
        declared = case.declaration or declare(case.indicator, case.indicator_version)
        preparing.ensure_indicator(connection, clean_text(case.indicator), clean_text(case.indicator_version), declared)
    if _register_session(connection, session):
        _register_plan(connection, session)


def _refuse_name(name: str) -> None:
    """Questions name indicators, NAME@VERSION: what no class can be called would not be found again."""
    if not (name.isascii() and name.isidentifier() and len(name) <= MOST_NAME_BYTES):
        allowed = f"letters, digits, _; at most {MOST_NAME_BYTES}"
        raise InputError("not a name for an indicator", found=name[:80], allowed=allowed)


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert the rows that are not there yet, by their keys."""
    if rows:
        connection.execute(ignoring(connection, table), [tidy(row) for row in rows])


def ignoring(connection: Connection, table: Table) -> Any:
    """An INSERT that leaves out rows whose key is taken."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def tidy(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that both databases can hold: texts without NUL, lists and mappings as JSON."""
    made = {}
    for name, value in row.items():
        if isinstance(value, list | tuple | dict):
            value = json.dumps(value, sort_keys=True)
        made[name] = clean_text(value) if isinstance(value, str) else value
    return made


def digest(document: Any) -> str:
    """A sha256 of JSON data that does not change with spaces or the order of keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _register_hardware(connection: Connection, hardware: Hardware) -> None:
    row = {
        "hardware_key": hardware.key,
        "cpu_model": hardware.cpu_model,
        "cores": hardware.cores,
        "memory_bytes": hardware.memory_bytes,
        "document": json.dumps(hardware.model_dump(mode="json"), sort_keys=True),
    }
    insert_new(connection, HARDWARE, [row])
    # A machine's memory may be told differently after a boot: of several accounts the first in order is kept,
    # whichever came first, so that a database made anew is the same.
    here = HARDWARE.c.hardware_key == clean_text(hardware.key)
    connection.execute(HARDWARE.update().where(here, HARDWARE.c.document > row["document"]).values(tidy(row)))


def _register_stack(connection: Connection, arm: Arm) -> None:
    content = digest([arm.lock_sha256, arm.packages])
    row = {
        "stack_key": arm.stack_key,
        "lock_sha256": arm.lock_sha256,
        "packages": len(arm.packages),
        "content_sha256": content,
    }
    here = STACK.c.stack_key == clean_text(arm.stack_key)
    found = connection.execute(select(STACK.c.content_sha256).where(here)).scalar()
    if found is not None and found != content:
        raise InputError("another stack of this key is there", where=f"arm {arm.name}", found=arm.stack_key[:64])
    if found is None:
        insert_new(connection, STACK, [row])
        packages = [
            {"stack_key": arm.stack_key, "package": name, "version": version} for name, version in arm.packages.items()
        ]
        insert_new(connection, STACK_PACKAGE, packages)


def _register_session(connection: Connection, session: Session) -> bool:
    """Note the session, or how far it has come; is it new here?"""
    plan = session.model_dump(mode="json", exclude=_PROGRESS)
    for case in plan["cases"]:
        for name in _CASE_NOTES:
            case.pop(name)
    plan_sha256 = digest(plan)
    here = SESSION.c.session_id == clean_text(session.session_id)
    columns = (SESSION.c.plan_sha256, SESSION.c.rounds_done, SESSION.c.ended_at)
    found = connection.execute(select(*columns).where(here)).first()
    progress = {name: getattr(session, name) for name in sorted(_PROGRESS)}
    if found is None:
        connection.execute(insert(SESSION), tidy(_session_row(session) | progress | {"plan_sha256": plan_sha256}))
        return True
    if found[0] != plan_sha256:
        raise InputError("another session of this id is there, planned otherwise", found=session.session_id[:80])
    if (session.rounds_done, session.ended_at or "") >= (found[1], found[2] or ""):
        connection.execute(SESSION.update().where(here).values(tidy(progress)))
        for one in session.cases:  # an arm may be found not to apply only while it runs
            case = (PLANNED_CASE.c.session_id == clean_text(session.session_id)) & (
                PLANNED_CASE.c.case == clean_text(one.label)
            )
            connection.execute(PLANNED_CASE.update().where(case).values(tidy({"skipped": one.skipped})))
    return False


def _session_row(session: Session) -> dict[str, Any]:
    names = ("session_id", "created_at", "baseline", "backend", "design", "seed", "alpha", "looks", "memory_bytes")
    row = {name: getattr(session, name) for name in (*names, "threads", "timeout_s")}
    return row | {"hardware_key": session.hardware.key}


def _register_plan(connection: Connection, session: Session) -> None:
    own = {"session_id": session.session_id}
    insert_new(connection, ARM, [own | _arm_row(arm) for arm in session.arms])
    insert_new(connection, PLANNED_CASE, [own | _case_row(case) for case in session.cases])
    inspections = [
        own | {"inspection_id": inspection_id(session.session_id, arm, case), "arm": arm, "case": case}
        for case in (one.label for one in session.cases)
        for arm in (one.name for one in session.arms)
    ]
    insert_new(connection, INSPECTION, inspections)
    _refuse_shared(connection, session.session_id, [one["inspection_id"] for one in inspections])


def _refuse_shared(connection: Connection, session_id: str, inspections: list[str]) -> None:
    """Inspections are named by hashes of eight digits: two sessions may, rarely, have a name in common."""
    other = select(INSPECTION.c.inspection_id).where(INSPECTION.c.session_id != clean_text(session_id))
    for begin in range(0, len(inspections), 500):  # SQLite takes 32,766 values in one question
        some = [clean_text(name) for name in inspections[begin : begin + 500]]
        if taken := connection.execute(other.where(INSPECTION.c.inspection_id.in_(some))).scalars().first():
            raise InputError("another session has an inspection of this name", found=taken[:80])


def _arm_row(arm: Arm) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "stack": arm.stack,
        "stack_key": arm.stack_key,
        "copy_number": arm.copy_number,
        "python": arm.python,
        "platform": arm.notes.get("platform"),
        "notes": arm.notes,
    }


def _case_row(case: PlannedCase) -> dict[str, Any]:
    names = ("indicator", "indicator_version", "parameters", "skipped")
    return {"case": case.label, **{name: getattr(case, name) for name in names}}
