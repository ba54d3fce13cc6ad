"""Times of Run:ai's backend: one query to its PostgreSQL database for each namespace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError, InputError, MissingToolError, RunFailedError
from workbench.scaletest.compat_runai.delta_chain import find_project

MAX_ROWS = 1_000_000
MAX_QUERY_S = 60
_SCHEMES = ("postgresql://", "postgres://")
_MILLISECONDS_FROM = 100_000_000_000  # seconds of the year 5138


@dataclass(frozen=True)
class BackendQuery:
    """A database and what to ask it.

    `query`: One SELECT of two columns: a workload's name, and when the backend had it (a time, or seconds or
    milliseconds since 1970). It is asked once per namespace; `%(namespace)s` and `%(project)s` are bound to it.
    """

    url: str = field(repr=False)
    query: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def query_seconds(self, namespaces: list[str]) -> dict[tuple[str, str], int]:
        """Query the times by name and namespace: whole seconds since 1970; of several rows the earliest."""
        try:
            import psycopg
        except ModuleNotFoundError as error:
            if error.name != "psycopg":
                raise
            raise MissingToolError(
                "PostgreSQL's driver is not installed", do="pip install 'accelerated-workbench[postgres]'"
            ) from None
        seconds: dict[tuple[str, str], int] = {}
        try:
            with psycopg.connect(self.url, connect_timeout=10, autocommit=False) as connection:
                connection.read_only = True
                connection.execute(f"SET statement_timeout = {MAX_QUERY_S * 1000}")
                for namespace in namespaces:
                    for name, second in self._query_rows(connection, namespace):
                        seconds[name, namespace] = min(second, seconds.get((name, namespace), second))
        except psycopg.OperationalError as error:
            # The driver's message can hold the host and the user: its kind is enough.
            raise RunFailedError("the backend's database gave no answer", found=type(error).__name__) from None
        except psycopg.Error as error:
            message = str(getattr(error.diag, "message_primary", "") or type(error).__name__)[:200]
            raise InputError("the query was refused", where="--backend-query", found=message) from None
        return seconds

    def _query_rows(self, connection: Any, namespace: str) -> list[tuple[str, int]]:
        """Run the query for a namespace: pairs of a workload's name and a time in whole seconds since 1970."""
        import psycopg

        bound = {**self.parameters, "namespace": namespace, "project": find_project(namespace)}
        try:
            cursor = connection.execute(self.query, bound, prepare=True)
        except (KeyError, psycopg.ProgrammingError) as error:
            if isinstance(error, psycopg.errors.Error) and error.sqlstate:
                raise
            raise InputError(
                "the query names a parameter that is not given",
                where="--backend-query",
                found=str(error)[:200],
                allowed=sorted(bound),
            ) from None
        if cursor.description is None or len(cursor.description) != 2:
            raise InputError("the query must give two columns", where="--backend-query", allowed="name, time")
        rows = cursor.fetchmany(MAX_ROWS + 1)
        if len(rows) > MAX_ROWS:
            raise InputError("too many rows", where="--backend-query", allowed=f"up to {MAX_ROWS}")
        return [(str(name), _to_whole_seconds(at)) for name, at in rows if at is not None]


def _to_whole_seconds(at: object) -> int:
    """Convert to whole seconds since 1970.

    >>> _to_whole_seconds(1767261600), _to_whole_seconds(1767261600999)
    (1767261600, 1767261600)
    >>> _to_whole_seconds(datetime(2026, 1, 1, 10, tzinfo=UTC))
    1767261600
    """
    if isinstance(at, datetime):
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() // 1)
    try:
        value = float(str(at))
        return int(value // 1000 if value >= _MILLISECONDS_FROM else value // 1)
    except (ValueError, OverflowError):
        raise InputError(
            "not a time", where="--backend-query, second column", found=str(at)[:60], allowed="a time, or s or ms"
        ) from None


def build_backend(url_env: str | None, query: str | None, parameters: list[str]) -> BackendQuery | None:
    """Build the backend query that the options name; null without them."""
    if url_env is None and query is None and not parameters:
        return None
    if url_env is None or query is None:
        raise ConfigError("one without the other", where="--backend-url-env, --backend-query", do="give both")
    url = os.environ.get(url_env, "")
    if not url.startswith(_SCHEMES):
        raise ConfigError(
            "no URL of PostgreSQL in this environment variable",
            where="--backend-url-env",
            found=url_env[:80] if "://" not in url_env else "a URL: give the variable's name",
            allowed="postgresql://…",
        )
    split = [text.partition("=") for text in parameters]
    if bad := [name for name, equals, _ in split if not equals or not name]:
        raise ConfigError("not a parameter", where="--backend-parameter", found=bad[0][:60], allowed="NAME=VALUE")
    return BackendQuery(url, query, {name: value for name, _, value in split})


def add_backend_times(jobs: pl.DataFrame, backend: BackendQuery) -> pl.DataFrame:
    """Return the jobs with the backend's times, by name and namespace; null where it has none.

    `jobs`: `name, namespace`; the column `backend_at_s` is added.
    """
    seconds = backend.query_seconds(sorted(set(jobs["namespace"])))
    keys = jobs.select("name", "namespace").iter_rows()
    return jobs.with_columns(pl.Series("backend_at_s", [seconds.get(key) for key in keys], dtype=pl.Int64))
