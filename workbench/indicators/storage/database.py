"""One database, SQLite or PostgreSQL: opened, checked to be ours, and its errors in words that tell what to do.

A password comes from $WORKBENCH_DATABASE_URL, $PGPASSWORD or a pgpass file, and is in no message.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from workbench import redaction
from workbench.errors import ConfigError, InputError, MissingToolError, RunFailedError, WorkbenchError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

VARIABLE = "WORKBENCH_DATABASE_URL"
DEFAULT_NAME = "indicators.db"
BUSY_S = 30.0
_ALLOWED = f"a path, sqlite:///PATH or postgresql://HOST/NAME (with a password: in ${VARIABLE})"
_WRONG_USE = ("authentication failed", "does not exist", "no password supplied", "permission denied", "no pg_hba")
_NO_SERVER = ("connect", "name or service not known", "resolve", "timeout expired", "no address")


@dataclass(frozen=True)
class Database:
    """An open database; a context that closes it at its end.

    Attributes
    ----------
    engine
        SQLAlchemy's engine.
    place
        Where it is, without a password.
    """

    engine: Engine
    place: str
    secrets: tuple[str, ...] = ()

    @property
    def sqlite(self) -> bool:
        """SQLite; else PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction: kept when the block ends well, undone when not.

        Raises
        ------
        WorkbenchError
            The database could not be reached, read or written: what it said, and what to do.
        """
        with self.explained(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of the database into ours; those of single rows pass through."""
        from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

        try:
            yield
        except (DataError, IntegrityError):
            raise
        except DBAPIError as error:
            raise self.explain(error.orig) from None
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            raise self.explain(error) from None

    def explain(self, error: BaseException | None) -> WorkbenchError:
        """An error of the driver as one of ours: its first line, without secrets, and what to do."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = redaction.without_user_info(redaction.clean(lines[0][:300], self.secrets))
        code = str(getattr(error, "sqlstate", None) or "")
        return _told(said, code, self.place)


def _told(said: str, code: str, place: str) -> WorkbenchError:
    """What a database's message means to its user."""
    text = said.lower()
    if "is full" in text or code == "53100":
        return RunFailedError("no room for the database", where=place, found=said, do="free space, then sync again")
    if "readonly" in text or "read-only" in text or code == "25006":
        return InputError("the database cannot be written", where=place, found=said, do="choose another: --database")
    if "not a database" in text or "malformed" in text:
        return InputError("not a SQLite database, or a damaged one", where=place, do="sync into a new one: --database")
    if "unable to open" in text:
        return InputError("cannot open the database", where=place, found=said, do="check the folder and its rights")
    if "is locked" in text:
        return RunFailedError(f"others wrote to the database for {BUSY_S:.0f} s", where=place, do="sync again later")
    if code == "57014" or "interrupted" in text:
        return RunFailedError("the query took too long", where=place, do="ask for less, or use DuckDB on an export")
    if code.startswith(("28", "3D")) or code == "42501" or any(words in text for words in _WRONG_USE):
        return ConfigError("the server refused", where=place, found=said, do=f"check user, name and ${VARIABLE}")
    if any(words in text for words in _NO_SERVER) or code.startswith(("08", "57P")):
        return RunFailedError("the server cannot be reached", where=place, found=said, do="is it up, and is this it?")
    return RunFailedError("the database failed", where=place, found=said)


def open_database(target: str | Path | None = None, *, create: bool = True) -> Database:
    """Open a database, to write (its tables are made where they are missing) or only to read.

    Parameters
    ----------
    target
        A path or a URL; without one $WORKBENCH_DATABASE_URL, else `indicators.db` in the default out folder.
    create
        Write to it, and make what is missing; else it is opened so that nothing can be written.

    Raises
    ------
    ConfigError
        Not a path or URL that is allowed; the server refused the user.
    InputError
        Nothing there to read, not one of these databases, or of a newer format.
    RunFailedError
        The server cannot be reached, or the disk is full.
    """
    from workbench.indicators.storage import preparing

    text = str(target) if target is not None else os.environ.get(VARIABLE) or str(default_path())
    _refuse_half_a_url(text)
    if "://" in text and not text.startswith("sqlite:"):
        database = _postgresql(text, readonly=not create)
    else:
        database = _sqlite(_sqlite_path(text), readonly=not create)
    try:
        preparing.prepare(database, create=create)
    except BaseException:
        database.engine.dispose()
        raise
    return database


def default_path() -> Path:
    """Where the database lies when none is named."""
    from workbench import runs

    return runs.default_out() / DEFAULT_NAME


def refuse_password(target: str | None) -> None:
    """Refuse a password on the command line, where every user of the machine can read it.

    Raises
    ------
    ConfigError
        There is one; it is not repeated.
    """
    # A URL may be written with one slash, and settings without any: the password can be read just as well.
    before = re.sub(r"^[A-Za-z][\w+.-]*:/+", "", target or "").rpartition("@")[0]
    if ":" in before or re.search(r"passw(or)?d\s*=", target or "", re.IGNORECASE):
        raise ConfigError("a password on the command line", where="--database", do=f"put the URL into ${VARIABLE}")


def _refuse_half_a_url(text: str) -> None:
    """Refuse what was meant as a server and would become the name of a file, with the password in it.

    Raises
    ------
    ConfigError
        It is libpq's settings, or a URL with too few slashes; it is not repeated.
    """
    settings = re.search(r"(^|\s)(host|hostaddr|port|user|dbname|service|passw(or)?d)\s*=", text, re.IGNORECASE)
    half = "://" not in text and re.match(
        r"(?!sqlite:)(([A-Za-z][\w+.-]+:/)|postgres(ql)?(\+\w+)?:|[^/]*:[^/]*@)", text
    )
    if settings or half:
        raise ConfigError("not a URL of a database", where="database", allowed=_ALLOWED)


def _sqlite_path(text: str) -> Path:
    if not text.startswith("sqlite:"):
        return Path(text)
    rest = text.removeprefix("sqlite:///")
    if rest in (text, "", ":memory:") or "?" in rest:
        raise ConfigError("not a place for a SQLite file", where="database", allowed="sqlite:///PATH, or just a path")
    return Path(rest)


def _sqlite(path: Path, *, readonly: bool) -> Database:
    from sqlalchemy import create_engine, event

    path = path.absolute()
    if path.is_dir():
        raise InputError("a folder, not a database", where=path, do=f"name the file: {path / DEFAULT_NAME}")
    if readonly and not path.is_file():
        raise InputError("no database there", where=path, do="workbench indicators sync FOLDER --database FILE")
    if not readonly:
        _make_folder(path.parent)

    def connect() -> sqlite3.Connection:
        # Beside a file in a folder that cannot be written, SQLite cannot make what WAL needs.
        still = readonly and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
        mode = "ro&immutable=1" if still else "ro" if readonly else "rwc"
        uri = f"file:{quote(str(path))}?mode={mode}"
        made = sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        made.execute("PRAGMA foreign_keys=ON")
        made.execute("PRAGMA query_only=ON" if readonly else "PRAGMA synchronous=NORMAL")
        if not readonly:
            _write_ahead(made)
        return made

    engine = create_engine("sqlite://", creator=connect, poolclass=_queue_pool())
    begin = "BEGIN" if readonly else "BEGIN IMMEDIATE"  # a reader that becomes a writer cannot wait for its turn
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return Database(engine, str(path))


def _queue_pool() -> Any:
    from sqlalchemy.pool import QueuePool

    return QueuePool


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL; several first writers at once do not wait for each other by themselves."""
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


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "cannot make the folder", where=folder, found=error.strerror, do="choose --database"
        ) from None


def _postgresql(text: str, *, readonly: bool) -> Database:
    from sqlalchemy import create_engine
    from sqlalchemy.engine import URL

    url = _postgresql_url(text)
    place = URL.create("postgresql", url.username, None, url.host, url.port, url.database).render_as_string()
    secrets = tuple(str(one) for one in (url.password, os.environ.get("PGPASSWORD")) if one)
    try:
        engine = create_engine(url, connect_args={"connect_timeout": 10}, pool_size=1, hide_parameters=True)
        if readonly:
            engine = engine.execution_options(postgresql_readonly=True)
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise MissingToolError("PostgreSQL needs psycopg", where=place, do="pip install -r requirements.lock") from None
    return Database(engine, place, secrets)


def _postgresql_url(text: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # What it found may be half a password.
        raise ConfigError("not a URL of a database", where="database", allowed=_ALLOWED) from None
    if url.drivername not in ("postgresql", "postgresql+psycopg", "postgres"):
        raise ConfigError("not a database for this", where="database", found=url.drivername[:40], allowed=_ALLOWED)
    if any("password" in name.lower() for name in url.query):
        raise ConfigError(
            "a password among the URL's options", where="database", do="put it before the host, or PGPASSWORD"
        )
    return url.set(drivername="postgresql+psycopg")
