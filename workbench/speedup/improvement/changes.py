"""Settings to try for a suite of queries: those of the advice on its log, values around them, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl
from pydantic import Field

from workbench.core.schema import StrictModel
from workbench.speedup.improvement.trial_session import DEFAULT
from workbench.speedup.recording.recording_plan import parse_settings

# Settings that a session may change while it runs; others need a session of their own, and so do static ones.
# Source: "Static SQL Configuration", spark.apache.org/docs/latest/configuration.html
_RUNTIME = "spark.sql."
_STATIC = re.compile(
    r"spark\.sql\.(cache\.serializer|catalog\..+|catalogImplementation|codegen\.cache\..+|event\..+|extensions.*|hive\..+"
    r"|metadataCacheTTLSeconds|queryExecutionListeners|sources\.disabledJdbcConnProviderList|ui\..+|warehouse\.dir"
    r"|streaming\.(ui\..+|streamingQueryListeners))"
)
NOT_TRIED = "not tried"
# Values around an advised one: where the best lies, advice only knows the order of magnitude. Before a query runs,
# Spark holds the threshold against its own estimate of a side, which may be many times the size that is shuffled.
_AROUND = {"spark.sql.shuffle.partitions": (0.25, 0.5, 2.0), "spark.sql.autoBroadcastJoinThreshold": (2.0, 8.0)}


class StatePart(StrictModel, frozen=False):
    """A part of a search's state, which grows while it goes on."""


class Change(StatePart):
    """One setting with a value to try, and what its trials told. `now`: The value of the run; null: Spark's default."""

    setting: str
    value: str
    now: str | None
    why: str
    screened: float | None = Field(default=None, description="Times as fast in the screening; null: not screened.")
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    n_rounds: int = 0
    verdict: str = NOT_TRIED

    @property
    def name(self) -> str:
        """As key=value."""
        return f"{self.setting}={self.value}"

    @property
    def needs_session(self) -> bool:
        """Whether a running session cannot change it, such as memory."""
        return not _is_runtime(self.setting)


def list_changes(advice: pl.DataFrame, tried: Sequence[str], given: Sequence[str]) -> list[Change]:
    """Changes to try. `advice`: Table ADVICE. `tried`, `given`: To try, and what the suite has, as key=value."""
    found: dict[tuple[str, str], Change] = {}
    for row in advice.filter(pl.col("setting").is_not_null()).iter_rows(named=True):
        for value in _list_values(row["setting"], row["value"]):
            change = Change(setting=row["setting"], value=value, now=row["now"], why=row["change"])
            if value != row["now"]:
                found.setdefault((change.setting, value), change)
    for setting, value in parse_settings(tried).items():
        found.setdefault((setting, value), Change(setting=setting, value=value, now=None, why="asked for"))
    for setting, now in parse_settings(given).items():
        if _is_runtime(setting):
            change = Change(setting=setting, value=DEFAULT, now=now, why="Leave it to Spark's default")
            found.setdefault((setting, DEFAULT), change)
    return list(found.values())


def _is_runtime(setting: str) -> bool:
    return setting.startswith(_RUNTIME) and _STATIC.fullmatch(setting) is None


def _list_values(setting: str, value: str) -> Iterator[str]:
    """The advised value and others around it.

    >>> list(_list_values("spark.sql.shuffle.partitions", "8"))
    ['8', '2', '4', '16']
    """
    yield value
    if value.isdigit():
        for factor in _AROUND.get(setting, ()):
            other = int(int(value) * factor)
            if other >= 1:
                yield str(other)
