from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.indicators.store import server as servers
from tests.indicators.store.server import Server
from tests.scaletest.compat_runai import making
from tests.scaletest.compat_runai.making import chain, name
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.scaletest.compat_runai import backend_query
from workbench.scaletest.compat_runai.backend_query import BackendQuery, build_backend
from workbench.scaletest.compat_runai.runai_files import export_run

QUERY = "SELECT name, time_created FROM jobs WHERE project = %(project)s AND kind = %(kind)s"
MADE_MS = 1_767_261_603_900
VARIABLE = "TEST_BACKEND_URL"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    programs = servers.binaries()
    if programs is None:
        pytest.skip("no PostgreSQL on this machine (apt-get install postgresql)")
    with servers.started(programs) as found:
        yield found


@pytest.fixture
def url(server: Server) -> str:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS jobs")
        connection.execute("CREATE TABLE jobs (name text, project text, kind text, time_created bigint)")
        rows = [
            (name(0), "a", "RunaiJob", MADE_MS),
            (name(0), "a", "RunaiJob", MADE_MS + 9000),
            (name(1), "b", "RunaiJob", MADE_MS),
            (name(2), "a", "Other", MADE_MS),
        ]
        connection.cursor().executemany("INSERT INTO jobs VALUES (%s, %s, %s, %s)", rows)
    return server.url()


@pytest.mark.postgres
def test_the_first_time_of_each_name_is_joined_by_namespace(url: str) -> None:
    found = BackendQuery(url, QUERY, {"kind": "RunaiJob"}).query_seconds(["runai-a", "runai-c"])
    assert found == {(name(0), "runai-a"): MADE_MS // 1000}


@pytest.mark.postgres
def test_parameters_are_bound_and_never_part_of_the_statement(url: str) -> None:
    """The old sampler puts the project into the statement as text."""
    assert BackendQuery(url, QUERY, {"kind": "x'; DROP TABLE jobs; --"}).query_seconds(["runai-a"]) == {}
    assert len(BackendQuery(url, QUERY, {"kind": "RunaiJob"}).query_seconds(["runai-a"])) == 1


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("DELETE FROM jobs RETURNING name, time_created", "refused"),
        ("SELECT name, time_created FROM jobs; SELECT 1, 2", "refused"),
        ("SELECT name FROM jobs", "two columns"),
        ("SELECT name, kind FROM jobs", "not a time"),
        ("SELECT name, time_created FROM elsewhere", "refused"),
        ("SELECT name, time_created FROM jobs WHERE project = %(team)s", "not given"),
    ],
)
def test_what_is_no_query_for_it_is_refused(url: str, query: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        BackendQuery(url, query).query_seconds(["runai-a"])


@pytest.mark.postgres
def test_an_export_has_the_backends_times(url: str, tmp_path: Path) -> None:
    folder = making.run(tmp_path, 2, chain(0) + chain(1))
    rows = export_run(folder, backend=BackendQuery(url, QUERY, {"kind": "RunaiJob"})).view.jobs
    assert rows["backend_at_s"].to_list() == [MADE_MS // 1000, None]


@pytest.mark.postgres
def test_a_database_that_is_not_there_is_told_without_its_url(server: Server) -> None:
    gone = BackendQuery("postgresql://somebody:s3cret-word@127.0.0.1:1/nothing", QUERY)
    with pytest.raises(RunFailedError) as told:
        gone.query_seconds(["runai-a"])
    assert "s3cret-word" not in str(told.value)
    assert "s3cret-word" not in repr(gone)


def test_a_parameter_is_missing_only_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://localhost/a")
    made = build_backend(VARIABLE, QUERY, ["kind=RunaiJob", "note=a=b"])
    assert made is not None
    assert dict(made.parameters) == {"kind": "RunaiJob", "note": "a=b"}
    assert build_backend(None, None, []) is None


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((VARIABLE, None, []), "one without the other"),
        ((None, QUERY, []), "one without the other"),
        (("UNSET_VARIABLE", QUERY, []), "no URL"),
        (("postgresql://ann:pw@host/db", QUERY, []), "no URL"),
        ((VARIABLE, QUERY, ["kind"]), "not a parameter"),
    ],
)
def test_options_that_cannot_be_are_refused_and_a_url_is_never_repeated(
    given: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://localhost/a")
    with pytest.raises(ConfigError, match=what) as told:
        build_backend(*given)
    assert "pw@host" not in str(told.value)


def test_times_are_taken_in_several_spellings() -> None:
    told = SimpleNamespace(at=datetime(2026, 1, 1, 10, 0, 3, 900_000, UTC))
    assert {
        backend_query._to_whole_seconds(one)
        for one in (told.at, told.at.replace(tzinfo=None), MADE_MS, 1_767_261_603.9)
    } == {MADE_MS // 1000}
