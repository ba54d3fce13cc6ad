"""A database made ready: its tables are made where they are missing, and one of somebody else's is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, select, text
from sqlalchemy.schema import CreateColumn

from workbench.errors import InputError
from workbench.indicators.storage.declarations import Field, fields_of, table_name
from workbench.indicators.storage.schema import ABOUT, FORMAT_VERSION, INDICATOR, METADATA, typed_table

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Table

    from workbench.indicators.storage.database import Database

# Any number, the same in all workbenches: who holds it may make tables.
_LOCK = 7_114_020_250


def prepare(database: Database, *, create: bool) -> None:
    """Check that the database is one of ours; make or extend its tables.

    Raises
    ------
    InputError
        It holds other people's tables, is empty (only to read), or was written by a newer workbench.
    """
    with database.transaction() as connection:
        if create:
            lock(connection)
        present = set(inspect(connection).get_table_names())
        if ABOUT.name not in present:
            _refuse_foreign(database, present, create=create)
            METADATA.create_all(connection)
            connection.execute(ABOUT.insert().values(key="format_version", value=str(FORMAT_VERSION)))
            return
        found = connection.execute(select(ABOUT.c.value).where(ABOUT.c.key == "format_version")).scalar()
        if not str(found).isdigit() or int(str(found)) > FORMAT_VERSION:
            raise InputError(
                "written by a newer workbench", where=database.place, found=found, do="update this installation"
            )
        if create:
            METADATA.create_all(connection)
            for table in METADATA.sorted_tables:
                add_columns(connection, table, table.columns)


def lock(connection: Connection) -> None:
    """Wait until nobody else makes tables; until the end of the transaction. SQLite lets one writer in anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _refuse_foreign(database: Database, present: set[str], *, create: bool) -> None:
    if not create:
        raise InputError("no runs are kept there", where=database.place, do="workbench indicators sync FOLDER first")
    # A server's database may be shared with others, as long as no name is taken; a file may not.
    taken = present if database.sqlite else present & set(METADATA.tables)
    if taken:
        raise InputError(
            "a database of something else", where=database.place, found=sorted(taken)[:5], do="name an empty one"
        )


def add_columns(connection: Connection, table: Table, columns: Iterable[Column[Any]]) -> None:
    """Add the columns that a table of an older format, or an earlier declaration, does not have yet; all nullable."""
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    quote = connection.dialect.identifier_preparer.quote
    for column in columns:
        if column.name not in present:
            wanted = column._copy()
            wanted.nullable, wanted.table = True, table
            made = CreateColumn(wanted).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {quote(table.name)} ADD COLUMN {made}"))


def ensure_indicator(connection: Connection, name: str, version: str, declaration: Mapping[str, Any]) -> None:
    """Note a version of an indicator, and make its typed table as soon as a declaration is at hand.

    Raises
    ------
    InputError
        The declaration is none, or says something else than the one that the table was made by.
    """
    here = (INDICATOR.c.name == name) & (INDICATOR.c.version == version)
    row = connection.execute(select(INDICATOR).where(here)).mappings().first()
    if row is None:
        connection.execute(INDICATOR.insert().values(name=name, version=version))
    before = json.loads(row["declaration"]) if row is not None and row["declaration"] else {}
    if not declaration or before == declaration:
        return
    fields, table = fields_of(declaration), table_name(name, version)
    made = typed_table(table, fields)
    if before:
        declaration = _evolved(before, declaration, f"{name} {version}")
        add_columns(connection, made, made.columns)
    else:
        made.create(connection, checkfirst=True)
    kept = json.dumps(declaration)  # in its own order: that of the columns
    connection.execute(INDICATOR.update().where(here).values(table_name=table, declaration=kept))


def _evolved(old: dict[str, Any], new: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The old declaration with the new nullable fields.

    Raises
    ------
    InputError
        A field has another type, or a new one may not be null: that is another version.
    """
    known = {field.key: field for field in fields_of(old)}
    for field in fields_of(new):
        before = known.get(field.key)
        if before is None and not field.nullable:
            raise InputError("declared otherwise under the same version", where=where, found=f"new field {field.key}")
        if before is not None and _type(before) != _type(field):
            found = f"{field.key} is {field.kind} in {field.part}, was {before.kind} in {before.part}"
            raise InputError("declared otherwise under the same version", where=where, found=found)
    return {**old, "properties": {**old["properties"], **new["properties"]}}


def _type(field: Field) -> tuple[str, str, bool]:
    return field.part, field.kind, field.mixed
