"""How much an operator had to do, in units that its cost is about proportional to; read from the plan, not timed."""

from __future__ import annotations

import re

from workbench.speedup.execution import Execution, Node


def work(execution: Execution, node: Node) -> float:
    """Millions of rows, times the functions that an aggregate computes for each.

    Joins count the rows of both inputs and of the output, exchanges those that they carry. Zero where the plan does
    not tell, which leaves the operator without a part in a shared time.
    """
    name = node.operator.name
    if node.operator.kind == "exchange":
        rows = node.total("shuffle records written") or node.total("records read") or rows_in(execution, node)
    elif "Join" in name:
        rows = rows_in(execution, node) + node.rows
    elif name.endswith("Aggregate"):
        rows = rows_in(execution, node) * max(1, n_functions(node.arguments))
    elif operator_name(execution, node).startswith("Scan"):
        rows = _values(execution, node)
    else:
        rows = rows_in(execution, node)
    return rows / 1e6


def operator_name(execution: Execution, node: Node) -> str:
    """The operator that a node's time is booked on.

    The conversion to rows right above a scan is the scan's: there Spark's reader decodes what it had only loaded,
    while an accelerator's scan decodes at once. Elsewhere a conversion is a transition between engines.
    """
    if node.operator.kind == "transition" and node.operator.engine == "spark":
        below = [execution.nodes[child] for child in execution.children.get(node.node_id, ())]
        if len(below) == 1 and below[0].operator.name.startswith("Scan") and below[0].operator.engine == "spark":
            return below[0].operator.name
    return node.operator.name


def rows_in(execution: Execution, node: Node) -> float:
    """Rows of all inputs; operators that count none pass on those of their own inputs."""
    return sum(_rows_out(execution, child, 0) for child in execution.children.get(node.node_id, ()))


def n_functions(arguments: str) -> int:
    """Functions of an aggregate, as far as its (cut) text tells.

    Examples
    --------
    >>> n_functions("HashAggregate(keys=[k#1], functions=[partial_sum(a#2), partial_avg(b#3)])")
    2
    """
    inside = arguments.partition("functions=[")[2].partition("], output=")[0]
    return len(
        re.findall(
            r"\b(?:partial_|merge_)?(?:sum|avg|count|min|max|first|last|[a-z_]*(?:set|list|dev|var)[a-z_]*)\(", inside
        )
    )


def n_columns(arguments: str) -> int:
    """Columns that a scan reads, as far as its text tells; at least one.

    Examples
    --------
    >>> n_columns("FileScan parquet [a#1,b#2L] Batched: true"), n_columns("Scan [a#1,b#2,... 7 more fields] x")
    (2, 9)
    """
    inside = arguments.partition("[")[2].partition("] ")[0]
    more = re.search(r"\.\.\. (\d+) more fields", inside)
    return max(1, inside.count("#") + (int(more[1]) if more else 0))


def _values(execution: Execution, node: Node) -> float:
    """Rows times columns of a scan, or of the scan below a conversion to rows."""
    if not node.operator.name.startswith("Scan"):
        node = execution.nodes[execution.children[node.node_id][0]]
    return node.rows * n_columns(node.arguments)


def _rows_out(execution: Execution, node_id: int, depth: int) -> float:
    node = execution.nodes[node_id]
    rows = node.rows or node.total("shuffle records written") or node.total("records read")
    if rows or depth > 50:
        return rows
    return sum(_rows_out(execution, child, depth + 1) for child in execution.children.get(node_id, ()))
