"""Which operator of a tagged plan is worth a dump: the plan as a table with the rows that go through, and a choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.errors import ConfigError
from workbench.lore import tables
from workbench.lore.running import as_table
from workbench.tables import Column

if TYPE_CHECKING:
    from workbench.lore.plan import Node, Tree

# Joins and aggregates are where most questions on time and on wrong results lie.
WORTH = ("Join", "Aggregate", "CartesianProduct")

TREE = replace(
    tables.TREE,
    columns=(
        *tables.TREE.columns,
        Column("rows_in", "int", "Rows that its inputs gave, as far as metrics say.", nullable=True),
        Column("span", "int", "Code-generated stage that it is fused into; null when it runs alone.", nullable=True),
        Column(
            "span_ms",
            "float",
            "Of the topmost of a fused stage: time of all operators in it, over tasks.",
            unit="ms",
            nullable=True,
        ),
    ),
)


@dataclass(frozen=True)
class Pick:
    """An operator, and why it."""

    lore_id: int
    reason: str


def plan_table(tree: Tree) -> pl.DataFrame:
    """Table `TREE` of a tagged plan.

    Rows that an operator does not count itself (a sort, an exchange, a projection) are those of what feeds it.
    """
    rows: list[dict[str, Any]] = []
    for row, (_, node, _) in zip(as_table(tree).iter_rows(named=True), tree.lines(), strict=True):
        spanned = {"span": node.codegen_id, "span_ms": node.span_ms}
        rows.append(row | spanned | {"rows_in": _added([_rows_of(child) for child in node.children])})
    return TREE.frame(rows)


def pick(plan: pl.DataFrame) -> Pick:
    """The join or aggregate that most rows go through (in and out); of all operators where there is neither.

    Parameters
    ----------
    plan
        Table `TREE`.

    Raises
    ------
    ConfigError
        No operator of this plan can be dumped.
    """
    can = plan.filter(pl.col("refused").is_null() & pl.col("lore_id").is_not_null())
    if not can.height:
        raise ConfigError("no operator of this plan can be dumped", found=plan["refused"].drop_nulls().unique()[:3])
    worth = can.filter(pl.any_horizontal(pl.col("operator").str.contains(word) for word in WORTH))
    kind = "joins and aggregates" if worth.height else "operators"
    through = pl.col("rows_in").fill_null(0) + pl.col("n_rows").fill_null(0)
    # Of operators alike, the one that runs first.
    ranked = (
        (worth if worth.height else can)
        .with_columns(through=through)
        .sort("through", "lore_id", descending=[True, False])
    )
    best = ranked.row(0, named=True)
    told = f"{_told(best['rows_in'])} rows in, {_told(best['n_rows'])} out"
    return Pick(best["lore_id"], f"of {ranked.height} {kind} that can be dumped, most rows go through it: {told}")


def _rows_of(node: Node) -> int | None:
    return node.rows if node.rows is not None else _added([_rows_of(child) for child in node.children])


def _added(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _told(count: int | None) -> str:
    from workbench.formats import number

    return "unknown" if count is None else number(count)
