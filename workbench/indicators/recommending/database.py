"""Queries of units, answered by the database: its named ones for this session, or SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.errors import InputError
from workbench.indicators.recommending.units import is_sql
from workbench.indicators.storage import queries, reading
from workbench.indicators.storage.database import open_database

if TYPE_CHECKING:
    import polars as pl


def answering(target: str, session_id: str) -> Callable[[str], pl.DataFrame]:
    """A function that answers a named query, for one session, or SQL, which sees all that the database holds.

    Parameters
    ----------
    target
        A path or a URL; nothing is written there.
    session_id
        The session whose rows named queries give.

    Raises
    ------
    ConfigError, InputError, RunFailedError
        The database cannot be used. The function raises them for a query: no such name, wrong SQL, too many rows.
    """
    database = open_database(target, create=False)

    def ask(name: str) -> pl.DataFrame:
        if is_sql(name):
            found = reading.select(database, name)
        else:
            known = queries.QUERIES.get(name)
            of_session = known is not None and "session" in known.filters
            found = queries.ask(database, name, queries.Filters(session=session_id if of_session else None))
        if found.truncated:
            raise InputError("too many rows for a unit", found=name[:80], allowed=f"up to {queries.MOST_ROWS:,}")
        return found.frame

    return ask
