"""What a table of an engine holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

FORMATS = frozenset({"parquet", "orc", "csv", "json", "avro", "text", "delta", "iceberg", "hive", "jdbc"})
# plain: works in a task; exchange: writes in one stage, is read in another; broadcast: works on the driver;
# transition: turns rows into columns or back; none: takes no time of its own.
Kind = Literal["plain", "exchange", "broadcast", "transition", "none"]


@dataclass(frozen=True)
class Operator:
    """A plan node as its engine's table tells it.

    Parameters
    ----------
    engine
        Whose node it is: spark, comet or rapids.
    name
        The operator, by Spark's name for it.
    kind
        Where it takes its time.
    own_times
        Metrics that are its own task time, without its inputs; they are added up.
    span_times
        Metrics that are task time with its inputs in the same stage.
    read_times
        For exchanges: metrics of the stage that reads.
    """

    engine: str
    name: str
    kind: Kind = "plain"
    own_times: tuple[str, ...] = ()
    span_times: tuple[str, ...] = ()
    read_times: tuple[str, ...] = ()

    @property
    def accelerated(self) -> bool:
        """Does it run on an accelerator?"""
        return self.engine != "spark"


@dataclass(frozen=True)
class Engine:
    """An engine's nodes by name, and by the beginning of the name where it carries more (a file format)."""

    name: str
    nodes: dict[str, Operator]
    prefixes: dict[str, Operator]
    # Operators that the engine is known to run, by Spark's names; null when it is not told here.
    supported: frozenset[str] | None = None

    def find(self, node_name: str) -> Operator | None:
        """The operator of this engine that a node is; null when it is not this engine's."""
        if (found := self.nodes.get(node_name)) is not None:
            return found
        for prefix, operator in self.prefixes.items():
            if node_name.startswith(prefix):
                name = _scan(node_name) if operator.name == "Scan" else operator.name
                return replace(operator, name=name)
        return None


def _scan(node_name: str) -> str:
    """A scan by its format; the table's name, which may follow, is no part of the operator.

    Examples
    --------
    >>> _scan("Scan parquet spark_catalog.default.t"), _scan("CometScan [native] parquet"), _scan("BatchScan orders")
    ('Scan parquet', 'Scan parquet', 'Scan')
    """
    found = next((word for word in node_name.lower().split()[1:] if word in FORMATS), None)
    return f"Scan {found}" if found else "Scan"
