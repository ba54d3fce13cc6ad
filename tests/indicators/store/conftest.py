from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.indicators.store import server as servers
from tests.indicators.store.server import Server

Place = Callable[[], str]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    programs = servers.binaries()
    if programs is None:
        pytest.skip("no PostgreSQL on this machine (apt-get install postgresql)")
    with servers.started(programs) as found:
        yield found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Gives the place of a new, empty database each time; on both kinds in turn."""
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"{next(_numbers)}.db")
    started: Server = request.getfixturevalue("server")

    def made() -> str:
        import psycopg

        name = f"test_{next(_numbers)}"
        with psycopg.connect(started.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return started.url(name)

    return made
