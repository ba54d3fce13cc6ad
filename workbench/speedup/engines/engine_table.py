"""Classes that an engine's operator table is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

FORMATS = frozenset({"parquet", "orc", "csv", "json", "avro", "text", "delta", "iceberg", "hive", "jdbc"})
# plain: runs in a task; exchange: written in one stage, read in another; broadcast: runs on the driver;
# transition: converts rows to columns or back; none: takes no time of its own.
Kind = Literal["plain", "exchange", "broadcast", "transition", "none"]


@dataclass(frozen=True)
class Operator:
    """A plan node as its engine's table describes it.

    Parameters
    ----------
    engine
        Engine of the node, such as spark, comet or rapids.
    name
        Spark's name of the operator.
    kind
        Where it runs.
    own_times
        Metrics of its own task time, without its inputs; they are added up.
    span_times
        Metrics of task time that includes its inputs in the same stage.
    read_times
        For exchanges: metrics of the reading stage.
    """

    engine: str
    name: str
    kind: Kind = "plain"
    own_times: tuple[str, ...] = ()
    span_times: tuple[str, ...] = ()
    read_times: tuple[str, ...] = ()

    @property
    def accelerated(self) -> bool:
        """Whether it runs on an accelerator."""
        return self.engine != "spark"


@dataclass(frozen=True)
class Engine:
    """Operator table of one engine.

    `name`: Name of the engine, as in the column `engine` of event log tables.
    `prefixes`: Operators by the beginning of the name, for nodes whose name goes on (with a file format).
    `list_supported`: Operators that the engine supports, by Spark's names; null if unknown.
    """

    name: str
    nodes: dict[str, Operator]
    prefixes: dict[str, Operator]
    list_supported: Callable[[], frozenset[str]] | None = None

    def find_operator(self, node_name: str) -> Operator | None:
        """The operator of a node; null for a node of another engine."""
        if (found := self.nodes.get(node_name)) is not None:
            return found
        for prefix, operator in self.prefixes.items():
            if node_name.startswith(prefix):
                name = _scan_name(node_name) if operator.name == "Scan" else operator.name
                return replace(operator, name=name)
        return None


def _scan_name(node_name: str) -> str:
    """A scan with its format, without the table's name.

    >>> [_scan_name(name) for name in ("Scan parquet default.t", "CometScan [native] parquet", "BatchScan orders")]
    ['Scan parquet', 'Scan parquet', 'Scan']
    """
    found = next((word for word in node_name.lower().split()[1:] if word in FORMATS), None)
    return f"Scan {found}" if found else "Scan"
