"""What a table of an engine holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
                scanned = operator.name == "Scan"
                name = f"Scan {node_name.split()[-1]}".removesuffix(" Scan") if scanned else operator.name
                return Operator(
                    operator.engine, name, operator.kind, operator.own_times, operator.span_times, operator.read_times
                )
        return None
