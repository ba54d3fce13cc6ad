"""What is behind an operator's time in a query: every piece with its stage, basis, metrics, work, price and weight."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from workbench.errors import InputError
from workbench.eventlog.reader import Facts
from workbench.speedup.calibration import natural, term_names
from workbench.speedup.execution import Execution, read_executions
from workbench.speedup.measured import FAILED, Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.parts import ACCELERATED, Cuts, Floats, cuts, inseparable, session_prices, split
from workbench.tables import Column, Table

EXPLAINED = Table(
    "explained",
    "Pieces of a query's wall time that hold the operator; `part_s` of a session's rows add up to the operator's time "
    "in that session.",
    ("label", "session", "sql_id", "piece"),
    (
        Column("label", "str", "Side."),
        Column("session", "str", "Log."),
        Column("sql_id", "int", "SQL execution."),
        Column("run", "int", "Which run of the query in its session, from 0 (cold)."),
        Column("piece", "int", "Number of the piece in `pieces`."),
        Column("stage_id", "int", "Stage; null for time without a running stage.", nullable=True),
        Column("basis", "str", "What the piece rests on."),
        Column("operators", "list[str]", "Operators that share it."),
        Column("nodes", "list[int]", "The operator's nodes in the final plan."),
        Column("piece_s", "float", "Wall time of the piece.", "s"),
        Column("work", "float", "The operator's work in it, in millions of rows (see the guide)."),
        Column("price_s", "float", "Seconds for a unit of work; null where the time is one operator's.", nullable=True),
        Column("share", "float", "Of the piece, the operator's share."),
        Column("run_weight", "float", "Weight of the run: the runs of a session add up to their median."),
        Column("part_s", "float", "piece_s times share times run_weight.", "s"),
    ),
)
EXPLAINED_METRICS = Table(
    "explained_metrics",
    "Metrics of the operator's nodes in the stages of these pieces: totals over tasks.",
    ("label", "session", "sql_id", "node_id", "stage_id", "metric"),
    (
        Column("label", "str", "Side."),
        Column("session", "str", "Log."),
        Column("sql_id", "int", "SQL execution."),
        Column("node_id", "int", "Node in the final plan."),
        Column("node", "str", "Its name there."),
        Column("stage_id", "int", "Stage; -1 for what the driver added."),
        Column("metric", "str", "Name."),
        Column("total", "float", "Times in s, others as counted."),
    ),
)
Session = tuple[str, str, Facts]


@dataclass(frozen=True)
class Explained:
    """`parts` and `metrics` as declared; `sums` has the operator's time by session, `term` what it counts as."""

    query: str
    term: str
    parts: pl.DataFrame
    metrics: pl.DataFrame
    sums: pl.DataFrame
    factor: dict[str, Any] | None

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        by_label = self.sums.group_by("label", maintain_order=True).agg(pl.col("operator_s", "query_s").mean())
        told = [
            f"{row['operator_s']:,.3f} of {row['query_s']:,.3f} s on {row['label']}"
            for row in by_label.iter_rows(named=True)
        ]
        return f"{self.term} took {' and '.join(told)} in {self.query}, from {self.parts.height} pieces."


def explain(
    sessions: Sequence[Session], measured: Measured, query: str, operator: str, *, model: FactorModel | None = None
) -> Explained:
    """Where does the time come from that is booked on an operator in a query?

    Parameters
    ----------
    sessions
        Label, session and facts of each log.
    measured
        The same logs measured; executions that do not count (`why_not`) are left out.
    query
        Description of the query.
    operator
        An operator, a group of them that is not separable, or a kind of time such as idle.
    model
        Prices that split shared times; by default they are fitted to each of these logs, as calibration does.

    Returns
    -------
    Explained
        The rows' `part_s` add up to the time that calibration books on the operator, session by session.

    Raises
    ------
    InputError
        No such query, or the operator has no time in it (those that have are listed).
    """
    executions = measured.executions.filter(pl.col("why_not").is_null())
    known = sorted(set(executions["query"]), key=natural)
    if query not in known:
        raise _absent("no such query that counts in these logs", query, known)
    every = cuts(measured)
    groups = model.groups if model else inseparable(every)
    names = term_names(every.columns, groups)
    term = _term(operator, names)
    of_query = _only(measured, query)
    rows, pieces = _rows(of_query), cuts(of_query)
    prices = _prices(model, every, known, rows)[:, [every.columns.index(name) for name in pieces.columns]]
    alone = replace(pieces, keys=rows.select("label", "session", "query"), owner=np.arange(rows.height))
    values = split(alone, prices)
    columns = [i for i, name in enumerate(pieces.columns) if names[name] == term]
    if not columns or not values[:, columns].sum():
        present = [names[name] for i, name in enumerate(pieces.columns) if values[:, i].sum() > 0]
        raise _absent(f"the operator takes no time in {query}", operator, sorted(set(present)))
    parts = _parts(rows, pieces, values, columns, prices)
    sums = _sums(rows, parts)
    factor = next((one.model_dump() for one in model.terms if one.operator == term), None) if model else None
    return Explained(query, term, parts, _metrics(sessions, parts), sums, factor)


def _prices(model: FactorModel | None, every: Cuts, queries: Sequence[str], rows: pl.DataFrame) -> Floats:
    """Prices by piece (row) and column: the model's, else those of the piece's own session."""
    if model is not None:
        return np.tile(model.column_prices(every.columns), (rows.height, 1))
    key = ("label", "session", "query")
    place = {owner: i for i, owner in enumerate(every.keys.select(key).iter_rows())}
    return session_prices(every, queries)[[place[owner] for owner in rows.select(key).iter_rows()]]


def countable(measured: Measured) -> Measured:
    """First runs counted, too, as predictions do: in production most runs are first ones."""
    why = pl.when(pl.col("why_not") == FAILED).then(pl.col("why_not"))
    return Measured(measured.executions.with_columns(why_not=why), measured.pieces)


def _absent(what: str, found: str, known: list[str]) -> InputError:
    near = difflib.get_close_matches(found, known, 3, 0.5)
    return InputError(what, found=found, allowed=(near or known[:40]) or "none")


def _term(operator: str, names: dict[str, str]) -> str:
    """The term of an operator's name: itself, or the group that it is a member of."""
    wanted = operator.removesuffix(ACCELERATED)
    for column, term in names.items():
        if wanted in (term, column.removesuffix(ACCELERATED)):
            return term
    raise _absent("no such operator in these logs", operator, sorted(set(names.values())))


def _only(measured: Measured, query: str) -> Measured:
    kept = measured.executions.filter(pl.col("query") == query, pl.col("why_not").is_null())
    return Measured(kept, measured.pieces.join(kept, on=["label", "session", "sql_id"], how="semi"))


def _rows(measured: Measured) -> pl.DataFrame:
    """The pieces in the order of `cuts`, with the weight of their run."""
    group = ["label", "session"]
    weights = measured.executions.select(
        *group,
        "sql_id",
        "query",
        run="number",
        run_weight=pl.col("wall_s").median().over(group) / pl.col("wall_s").sum().over(group),
        query_s=pl.col("wall_s").median().over(group),
    )
    joined = measured.pieces.filter(pl.col("wall_s") > 0).join(weights, on=[*group, "sql_id"])
    return joined.sort(*group, "sql_id", "piece")


def _parts(rows: pl.DataFrame, pieces: Cuts, values: Floats, columns: list[int], prices: Floats) -> pl.DataFrame:
    found = []
    wanted = {pieces.columns[i].removesuffix(ACCELERATED) for i in columns}
    for i, row in enumerate(rows.iter_rows(named=True)):
        part_s = float(values[i, columns].sum())
        if part_s <= 0:
            continue
        whole_s = float(values[i].sum())
        shared = bool(pieces.shared[i])
        theirs = zip(row["node_ids"], row["work"], row["operators"], strict=True)
        mine = [(node, amount) for node, amount, name in theirs if name in wanted]
        priced = float((pieces.work[i, columns] * prices[i, columns]).sum() / pieces.work[i, columns].sum())
        found.append(
            {name: row[name] for name in ("label", "session", "sql_id", "run", "piece", "stage_id", "basis")}
            | {
                "operators": row["operators"] or [row["term"]],
                "nodes": [node for node, _ in mine],
                "piece_s": row["wall_s"],
                "work": sum(amount for _, amount in mine),
                "price_s": priced if shared else None,
                "share": part_s / whole_s,
                "run_weight": row["run_weight"],
                "part_s": part_s,
            }
        )
    return EXPLAINED.frame(found)


def _sums(rows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """The operator's and the query's time by session."""
    key = ["label", "session"]
    whole = rows.group_by(key, maintain_order=True).agg(pl.col("query_s").first())
    mine = parts.group_by(key).agg(operator_s=pl.col("part_s").sum())
    return whole.join(mine, on=key, how="left", maintain_order="left").with_columns(pl.col("operator_s").fill_null(0.0))


def _metrics(sessions: Sequence[Session], parts: pl.DataFrame) -> pl.DataFrame:
    wanted: dict[tuple[str, str, int], set[int]] = {}
    for label, session, sql_id, nodes in parts.select("label", "session", "sql_id", "nodes").iter_rows():
        wanted.setdefault((label, session, sql_id), set()).update(nodes)
    rows = []
    for label, session, facts in sessions:
        for execution in read_executions(facts):
            for node_id in sorted(wanted.get((label, session, execution.sql_id), ())):
                key = {"label": label, "session": session, "sql_id": execution.sql_id}
                rows += [key | told for told in _of_node(execution, node_id)]
    return EXPLAINED_METRICS.frame(rows)


def _of_node(execution: Execution, node_id: int) -> list[dict[str, Any]]:
    node = execution.nodes[node_id]
    return [
        {"node_id": node_id, "node": node.name, "stage_id": stage, "metric": name, "total": total}
        for stage, values in sorted(node.metrics.items())
        for name, total in sorted(values.items())
    ]
