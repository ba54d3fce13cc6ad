"""Opens a SQLite or PostgreSQL database, checks its format, and creates or extends its tables."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Column, Connection, Engine, Table, inspect, select, text
from sqlalchemy.schema import CreateColumn

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, MissingToolError, RunFailedError, WorkbenchError
from workbench.core.files import default_out
from workbench.indicators.store.sql_schema import (
    ABOUT,
    FORMAT_VERSION,
    INDICATOR,
    METADATA,
    Field,
    build_table_name,
    build_typed_table,
    parse_declaration_fields,
)

VARIABLE = "WORKBENCH_DATABASE_URL"
DEFAULT_NAME = "indicators.db"
BUSY_S = 30.0
_ALLOWED = f"a path, sqlite:///PATH or postgresql://HOST/NAME (with a password: in ${VARIABLE})"
_WRONG_USE = ("authentication failed", "does not exist", "no password supplied", "permission denied", "no pg_hba")
_NO_SERVER = ("connect", "name or service not known", "resolve", "timeout expired", "no address")
# Arbitrary constant: key of the advisory lock for creating tables.
_LOCK = 7_114_020_250


@dataclass(frozen=True)
class Database:
    """Open database; a context manager that closes it."""

    engine: Engine
    place: str
    secrets: tuple[str, ...] = ()

    @property
    def sqlite(self) -> bool:
        """Whether this is SQLite, otherwise PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Transaction that commits at the end of the block, or rolls back on an exception."""
        with self.translate_errors(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate database errors to `WorkbenchError`; errors of single rows pass through."""
        from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

        try:
            yield
        except (DataError, IntegrityError):
            raise
        except DBAPIError as error:
            raise self.translate_error(error.orig) from None
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            raise self.translate_error(error) from None

    def translate_error(self, error: BaseException | None) -> WorkbenchError:
        """Translate a driver error: its first line, without secrets, and what to do."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = redaction.strip_user_info(redaction.redact_value(lines[0][:300], self.secrets))
        code = str(getattr(error, "sqlstate", None) or "")
        # Map a message of the database to an error for the user.
        place = self.place
        text = message.lower()
        if "is full" in text or code == "53100":
            return RunFailedError(
                "no disk space for the database", where=place, found=message, do="free space, then sync again"
            )
        if "readonly" in text or "read-only" in text or code == "25006":
            return InputError(
                "the database is not writable", where=place, found=message, do="choose another one with --database"
            )
        if "not a database" in text or "malformed" in text:
            return InputError(
                "not a SQLite database, or a damaged one", where=place, do="sync into a new one: --database"
            )
        if "unable to open" in text:
            return InputError(
                "cannot open the database", where=place, found=message, do="check the folder and its permissions"
            )
        if "is locked" in text:
            return RunFailedError(f"the database was locked for {BUSY_S:.0f} s", where=place, do="sync again later")
        if code == "57014" or "interrupted" in text:
            return RunFailedError(
                "the query took too long", where=place, do="narrow the query, or use DuckDB on an export"
            )
        if code.startswith(("28", "3D")) or code == "42501" or any(words in text for words in _WRONG_USE):
            return ConfigError(
                "the server refused the login", where=place, found=message, do=f"check user, name and ${VARIABLE}"
            )
        if any(words in text for words in _NO_SERVER) or code.startswith(("08", "57P")):
            return RunFailedError(
                "cannot reach the server", where=place, found=message, do="check that it runs, and its address"
            )
        return RunFailedError("the database failed", where=place, found=message)


def open_database(target: str | Path | None = None, *, create: bool = True) -> Database:
    """Open a database for writing (creating missing tables) or read-only.

    `target`: Path or URL; by default $WORKBENCH_DATABASE_URL, or `indicators.db` in the default output folder.
    """

    text = str(target) if target is not None else os.environ.get(VARIABLE) or str(default_database_path())
    # Refuse malformed server addresses, which would become file names with a password in them.
    settings = re.search(r"(^|\s)(host|hostaddr|port|user|dbname|service|passw(or)?d)\s*=", text, re.IGNORECASE)
    half = "://" not in text and re.match(
        r"(?!sqlite:)(([A-Za-z][\w+.-]+:/)|postgres(ql)?(\+\w+)?:|[^/]*:[^/]*@)", text
    )
    if settings or half:
        raise ConfigError("not a database URL", where="database", allowed=_ALLOWED)
    if "://" in text and not text.startswith("sqlite:"):
        database = _open_postgresql(text, readonly=not create)
    else:
        if not text.startswith("sqlite:"):
            sqlite_path = Path(text)
        else:
            path_text = text.removeprefix("sqlite:///")
            if path_text in (text, "", ":memory:") or "?" in path_text:
                raise ConfigError(
                    "not a path of a SQLite file", where="database", allowed="sqlite:///PATH, or just a path"
                )
            sqlite_path = Path(path_text)
        database = _open_sqlite(sqlite_path, readonly=not create)
    try:
        prepare_database(database, create=create)
    except BaseException:
        database.engine.dispose()
        raise
    return database


def default_database_path() -> Path:
    """Default path of the database."""

    return default_out() / DEFAULT_NAME


def refuse_password(target: str | None) -> None:
    """Refuse a password on the command line, which is visible to all users of the machine."""
    # Also for malformed URLs with one slash, and for libpq settings.
    before = re.sub(r"^[A-Za-z][\w+.-]*:/+", "", target or "").rpartition("@")[0]
    if ":" in before or re.search(r"passw(or)?d\s*=", target or "", re.IGNORECASE):
        raise ConfigError(
            "the command line contains a password", where="--database", do=f"put the URL into ${VARIABLE}"
        )


def _open_sqlite(path: Path, *, readonly: bool) -> Database:
    """A database in a file; a read-only one must exist."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import QueuePool

    path = path.absolute()
    if path.is_dir():
        raise InputError("this is a folder, not a database", where=path, do=f"name the file: {path / DEFAULT_NAME}")
    if readonly and not path.is_file():
        raise InputError(
            "the database does not exist", where=path, do="workbench indicators sync FOLDER --database FILE"
        )
    if not readonly:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            do = "choose --database"
            raise ConfigError("cannot create the folder", where=path.parent, found=error.strerror, do=do) from None

    def connect() -> sqlite3.Connection:
        # In a read-only folder, SQLite cannot create the files that WAL needs.
        still = readonly and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
        mode = "ro&immutable=1" if still else "ro" if readonly else "rwc"
        uri = f"file:{quote(str(path))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA query_only=ON" if readonly else "PRAGMA synchronous=NORMAL")
        if not readonly:
            _enable_write_ahead(connection)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    begin = "BEGIN" if readonly else "BEGIN IMMEDIATE"  # a reader that becomes a writer would fail instead of waiting
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return Database(engine, str(path))


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL, with retries: concurrent first writers do not wait for each other."""
    until = time.monotonic() + BUSY_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return  # a file system without shared memory keeps the old mode, which works too


def _open_postgresql(text: str, *, readonly: bool) -> Database:
    """A database on a server, with its secrets kept out of messages."""
    # The URL of a PostgreSQL database; no message contains any part of a password.
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The parsed text may contain part of a password.
        raise ConfigError("not a database URL", where="database", allowed=_ALLOWED) from None
    if url.drivername not in ("postgresql", "postgresql+psycopg", "postgres"):
        raise ConfigError("unsupported database", where="database", found=url.drivername[:40], allowed=_ALLOWED)
    if any("password" in name.lower() for name in url.query):
        raise ConfigError(
            "the URL's options contain a password", where="database", do="put it before the host, or PGPASSWORD"
        )
    url = url.set(drivername="postgresql+psycopg")
    place = URL.create("postgresql", url.username, None, url.host, url.port, url.database).render_as_string()
    secrets = tuple(str(secret) for secret in (url.password, os.environ.get("PGPASSWORD")) if secret)
    try:
        engine = create_engine(url, connect_args={"connect_timeout": 10}, pool_size=1, hide_parameters=True)
        if readonly:
            engine = engine.execution_options(postgresql_readonly=True)
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        do = "pip install 'accelerated-workbench[postgres]'"
        raise MissingToolError("PostgreSQL needs psycopg", where=place, do=do) from None
    return Database(engine, place, secrets)


def prepare_database(database: Database, *, create: bool) -> None:
    """Check the format of a database; create or extend its tables."""
    with database.transaction() as connection:
        if create:
            lock_tables(connection)
        present = set(inspect(connection).get_table_names())
        if ABOUT.name not in present:
            # Refuse a database that is empty and must not be created, or that has tables of others.
            if not create:
                raise InputError(
                    "the database has no runs", where=database.place, do="workbench indicators sync FOLDER first"
                )
            # A server database may be shared if table names do not collide; a file may not.
            taken = present if database.sqlite else present & set(METADATA.tables)
            if taken:
                raise InputError(
                    "the database belongs to another application",
                    where=database.place,
                    found=sorted(taken)[:5],
                    do="name an empty one",
                )
            METADATA.create_all(connection)
            connection.execute(ABOUT.insert().values(key="format_version", value=str(FORMAT_VERSION)))
            return
        version = connection.execute(select(ABOUT.c.value).where(ABOUT.c.key == "format_version")).scalar()
        if not str(version).isdigit() or int(str(version)) > FORMAT_VERSION:
            raise InputError(
                "written by a newer version of the workbench",
                where=database.place,
                found=version,
                do="update this installation",
            )
        if create:
            METADATA.create_all(connection)
            for table in METADATA.sorted_tables:
                add_columns(connection, table, table.columns)


def lock_tables(connection: Connection) -> None:
    """Lock the creation of tables until the end of the transaction; SQLite always has a single writer."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def add_columns(connection: Connection, table: Table, columns: Iterable[Column[Any]]) -> None:
    """Add nullable columns that are missing in a table of an older format or declaration."""
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    quote = connection.dialect.identifier_preparer.quote
    for column in columns:
        if column.name not in present:
            wanted = column._copy()
            wanted.nullable, wanted.table = True, table
            definition = CreateColumn(wanted).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {quote(table.name)} ADD COLUMN {definition}"))


def ensure_indicator(connection: Connection, name: str, version: str, declaration: Mapping[str, Any]) -> None:
    """Register a version of an indicator, and create its typed table if a declaration is available."""
    here = (INDICATOR.c.name == name) & (INDICATOR.c.version == version)
    row = connection.execute(select(INDICATOR).where(here)).mappings().first()
    if row is None:
        connection.execute(INDICATOR.insert().values(name=name, version=version))
    before = json.loads(row["declaration"]) if row is not None and row["declaration"] else {}
    if not declaration or before == declaration:
        return
    fields, table = parse_declaration_fields(declaration), build_table_name(name, version)
    typed_table = build_typed_table(table, fields)
    if before:
        declaration = _extend_declaration(before, declaration, f"{name} {version}")
        add_columns(connection, typed_table, typed_table.columns)
        for index in typed_table.indexes:
            index.create(connection, checkfirst=True)
    else:
        typed_table.create(connection, checkfirst=True)
    declaration_text = json.dumps(declaration)  # keeps the order of the columns
    connection.execute(INDICATOR.update().where(here).values(table_name=table, declaration=declaration_text))


def _extend_declaration(old: dict[str, Any], new: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Extend the old declaration by new nullable fields."""
    old_fields = {field.key: field for field in parse_declaration_fields(old)}
    for field in parse_declaration_fields(new):
        before = old_fields.get(field.key)
        if before is None and not field.nullable:
            raise InputError(
                "a different declaration has the same version", where=where, found=f"new field {field.key}"
            )
        if before is not None and _field_type(before) != _field_type(field):
            finding = f"{field.key} is {field.kind} in {field.part}, was {before.kind} in {before.part}"
            raise InputError("a different declaration has the same version", where=where, found=finding)
    return {**old, "properties": {**old["properties"], **new["properties"]}}


def _field_type(field: Field) -> tuple[str, str, bool]:
    return field.part, field.kind, field.mixed
