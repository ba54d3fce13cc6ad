from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from tests.indicators.store import making
from tests.indicators.store.conftest import Place
from tests.indicators.store.server import PASSWORD, QUOTED, Server, free_port
from workbench.core.errors import ConfigError, InputError, RunFailedError, WorkbenchError
from workbench.indicators.store import sql_database as module
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.sql_database import ensure_indicator, open_database, refuse_password
from workbench.indicators.store.sql_schema import build_table_name

NUMBER = {"role": "result", "type": "number"}


def declared(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"properties": fields, "required": [name for name, field in fields.items() if "default" not in field]}


def test_a_file_has_write_ahead_logging_and_checks_references(tmp_path: Path) -> None:
    with open_database(tmp_path / "deep" / "x.db") as database, database.transaction() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_without_a_name_the_variable_and_then_the_default_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path / "out"))
    with open_database() as database:
        assert database.place == str(tmp_path / "out" / "indicators.db")
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", f"sqlite:///{tmp_path}/named.db")
    with open_database() as database:
        assert database.place == str(tmp_path / "named.db")
    assert (tmp_path / "named.db").is_file()


def test_each_parameter_has_an_index_also_one_that_was_added(place: Place) -> None:
    name, long = build_table_name("PiX", "0" * 12), {"role": "parameter", "type": "string"}
    added = {"role": "parameter", "anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    with open_database(place()) as database:
        for fields in ({"a": long, "b": NUMBER}, {"a": long, "b": NUMBER, "c": added}):
            with database.transaction() as connection:
                ensure_indicator(connection, "PiX", "0" * 12, declared(**fields))
        with database.transaction() as connection:
            indexes = inspect(connection).get_indexes(name)
        assert sorted(column for index in indexes for column in index["column_names"]) == ["a", "c"]


def test_a_new_nullable_field_is_added_to_the_table(place: Place) -> None:
    name = build_table_name("PiX", "0" * 12)
    with open_database(place()) as database:
        with database.transaction() as connection:
            ensure_indicator(connection, "PiX", "0" * 12, declared(a=NUMBER))
        more = {"role": "result", "anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
        with database.transaction() as connection:
            ensure_indicator(connection, "PiX", "0" * 12, declared(a=NUMBER, b=more))
        with database.transaction() as connection:
            ensure_indicator(connection, "PiX", "0" * 12, declared(a=NUMBER))
            columns = [column["name"] for column in inspect(connection).get_columns(name)]

    assert columns == ["run_id", "a", "b"]


@pytest.mark.parametrize(
    "change",
    [{"a": {"role": "result", "type": "integer"}}, {"a": NUMBER | {"role": "check"}}, {"a": NUMBER, "b": NUMBER}],
)
def test_a_changed_type_under_the_same_version_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with open_database(tmp_path / "x.db") as database, database.transaction() as connection:
        ensure_indicator(connection, "PiX", "0" * 12, declared(a=NUMBER))

        with pytest.raises(InputError, match="a different declaration has the same version"):
            ensure_indicator(connection, "PiX", "0" * 12, declared(**change))


def test_a_column_that_an_older_format_lacks_is_added(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_database(path).engine.dispose()
    with sqlite3.connect(path) as old:
        old.execute("ALTER TABLE session DROP COLUMN stop_reason")
    old.close()
    making.archive(tmp_path / "a", making.session(stop_reason="enough"))

    with open_database(path) as database:
        sync_sessions([tmp_path / "a"], database)
        with database.transaction() as connection:
            assert connection.execute(text("SELECT stop_reason FROM session")).scalar() == "enough"


def test_somebody_elses_database_and_one_of_a_newer_format_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (a)")
    other.close()

    with pytest.raises(InputError, match="belongs to another application"):
        open_database(path)
    with pytest.raises(InputError, match="has no runs"):
        open_database(path, create=False)
    with open_database(tmp_path / "new.db") as database, database.transaction() as connection:
        connection.execute(text("UPDATE workbench_about SET value = '99'"))
    with pytest.raises(InputError, match="written by a newer version"):
        open_database(tmp_path / "new.db")


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database, but long enough to be looked at as one, page by page" * 100)

    with pytest.raises(InputError, match="not a SQLite database"):
        open_database(tmp_path / "x.db")
    with pytest.raises(InputError, match="a folder, not a database"):
        open_database(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        open_database(tmp_path / "none.db", create=False)


def test_a_database_opened_to_read_cannot_be_written(place: Place) -> None:
    target = place()
    open_database(target).engine.dispose()

    with (
        open_database(target, create=False) as database,
        pytest.raises(InputError, match="not writable"),
        database.transaction() as connection,
    ):
        connection.execute(text("DELETE FROM run"))


def test_a_full_disk_is_named_and_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making.archive(tmp_path / "a", runs=150)
    real = module._enable_write_ahead

    def small(connection: sqlite3.Connection) -> None:
        real(connection)
        connection.execute("PRAGMA max_page_count=90")

    with monkeypatch.context() as patch, open_database(tmp_path / "x.db") as database:
        patch.setattr(module, "_enable_write_ahead", small)
        database.engine.dispose()
        with pytest.raises(RunFailedError, match="no disk space for the database"):
            sync_sessions([tmp_path / "a"], database)

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path / "a"], database)
        assert (report.processed, report.failed) == (450, 0)
        assert report.skipped % 50 == 0
        assert report.skipped > 0


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    # Root may write everything: what SQLite says is made up here, and what is made of it is looked at.
    with open_database(tmp_path / "x.db") as database:
        error = database.translate_error(sqlite3.OperationalError("attempt to write a readonly database"))
    assert (error.exit_code, error.what) == (2, "the database is not writable")


def test_a_folder_that_may_not_be_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making.archive(tmp_path / "a")
    with open_database(tmp_path / "b" / "x.db") as database:
        sync_sessions([tmp_path / "a"], database)
    (tmp_path / "b").chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr("os.access", lambda *_: False)
    try:
        with open_database(tmp_path / "b" / "x.db", create=False) as database, database.transaction() as connection:
            assert connection.execute(text("SELECT count(*) FROM run")).scalar() == 12
        assert [path.name for path in (tmp_path / "b").iterdir()] == ["x.db"]
    finally:
        (tmp_path / "b").chmod(0o700)


@pytest.mark.parametrize(
    "target",
    ["mysql://u:hunter22@h/x", "postgresql://u:hunter22:hunter22@h:x/y", "postgresql://h/x?password=hunter22",
     "duckdb:///x", "sqlite://", "sqlite:///:memory:", "sqlite:///x?hunter22", "postgresql://u:hunter22@h:hunter22/x",
     "://hunter22", "postgresql:/ann:hunter22@h/db", "postgres:ann:hunter22@h/db", "ann:hunter22@h/db",
     "host=h password=hunter22", "HOST = h user=ann PASSWORD = hunter22", "postgresql+psycopg:/hunter22"],
)  # fmt: skip
def test_a_wrong_url_is_wrong_use_and_its_password_is_not_repeated(target: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_database(target)

    assert error.value.exit_code == 2
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize("name", ["a:b.db", "host.db", "me@home.db", "x=1.db", "postgresql.db"])
def test_a_file_may_be_called_nearly_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    open_database(name).engine.dispose()
    assert (tmp_path / name).is_file()


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg", reason="no psycopg (pip install 'accelerated-workbench[postgres]')")
    with pytest.raises(RunFailedError, match="cannot reach the server") as error:
        open_database(f"postgresql://runner:{QUOTED}@127.0.0.1:{free_port()}/x")

    assert error.value.exit_code == 3
    assert PASSWORD not in str(error.value)
    assert QUOTED not in str(error.value)
    assert "runner@127.0.0.1" in str(error.value)


@pytest.mark.postgres
@pytest.mark.parametrize(("name", "password"), [("postgres", "wr0ng-pass"), ("nowhere", QUOTED)])
def test_a_server_that_refuses_is_wrong_use(server: Server, name: str, password: str) -> None:
    with pytest.raises(ConfigError, match="the server refused") as error:
        open_database(server.url(name, password=password))

    assert not any(one in str(error.value) for one in (PASSWORD, QUOTED, "wr0ng-pass"))


@pytest.mark.postgres
def test_a_server_that_others_use_too_is_taken_with_a_password_of_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    target = server.url().replace(f":{QUOTED}", "")

    with open_database(target) as database, database.transaction() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS theirs (a int)"))
    with open_database(target) as database, database.transaction() as connection:
        assert "theirs" in inspect(connection).get_table_names()
        assert not database.sqlite
        assert PASSWORD not in repr(database.engine)


@pytest.mark.parametrize(
    "target",
    ["postgresql://u:pw@h/x", "postgresql://h/x?password=pw", "sqlite://a:b@c", "postgresql:/u:pw@h/x", "u:pw@h/x",
     "host=h password=pw", "host=h PASSWORD = pw"],
)  # fmt: skip
def test_a_password_on_the_command_line_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="command line contains a password"):
        refuse_password(target)
    for free in (None, "x.db", "postgresql://u@h:5432/x", "sqlite:///a:b"):
        refuse_password(free)


def test_errors_in_the_middle_undo_the_transaction(tmp_path: Path) -> None:
    def fail_in_the_middle() -> None:
        with database.transaction() as connection:
            connection.execute(text("INSERT INTO workbench_about VALUES ('a', 'b')"))
            connection.execute(text("SELECT nothing FROM nowhere"))

    with open_database(tmp_path / "x.db") as database:
        with pytest.raises(WorkbenchError, match="the database failed"):
            fail_in_the_middle()
        with database.transaction() as connection:
            assert connection.execute(text("SELECT count(*) FROM workbench_about")).scalar() == 1
