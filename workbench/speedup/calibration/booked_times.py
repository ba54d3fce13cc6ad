"""Booked times: the measured wall time of each piece of an execution, assigned to operators and plan nodes.

A piece of one operator is booked on it; a piece that operators share is split among them by work times price, the
price being that of a factor model or fitted to the session itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.time_split import (
    Floats,
    PieceArrays,
    build_piece_arrays,
    fit_session_prices,
    split_times,
)
from workbench.speedup.engines import ACCELERATED

SHARED = "shared, split by prices"
# Wall seconds and their basis by plan node, or by term for time outside operators.
NodeTimes = dict[int | str, tuple[float, str]]


@dataclass(frozen=True)
class BookedPieces:
    """Pieces of one query, booked: row i of all four is a piece, a column an operator or term of `pieces.columns`.

    `rows`: Table PIECES with `query, run, run_weight, query_s`.
    `prices`: Baseline seconds per unit of work, [piece, column].
    `values`: Wall seconds, weighted so that a session's runs add up to their median, [piece, column].
    """

    rows: pl.DataFrame
    pieces: PieceArrays
    prices: Floats
    values: Floats


class Booking:
    """Books the executions that count, by the prices of a model, or else by prices fitted to each session."""

    def __init__(self, measured: Measured, model: FactorModel | None = None) -> None:
        self.measured, self.model = measured, model
        self.all_pieces = build_piece_arrays(measured)
        self.queries = sorted(set(measured.executions.filter(COUNTS)["query"]))
        self._session_prices = None if model else fit_session_prices(self.all_pieces, self.queries)

    def book_query(self, query: str) -> BookedPieces:
        """Book the pieces of all runs of a query, weighted so that a session's runs add up to their median."""
        of_query = self.measured.select(pl.col("query") == query, COUNTS)
        # List the time pieces in the order of `build_piece_arrays`, with their query and the weight of their run.
        group = ["label", "session"]
        weights = of_query.executions.select(
            *group,
            "sql_id",
            "query",
            run="number",
            run_weight=pl.col("wall_s").median().over(group) / pl.col("wall_s").sum().over(group),
            query_s=pl.col("wall_s").median().over(group),
        )
        joined = of_query.pieces.filter(pl.col("wall_s") > 0).join(weights, on=[*group, "sql_id"])
        rows, pieces = joined.sort(*group, "sql_id", "piece"), build_piece_arrays(of_query)
        prices = self._price_rows(rows)[:, [self.all_pieces.columns.index(name) for name in pieces.columns]]
        alone = replace(pieces, keys=rows.select("label", "session", "query"), owner=np.arange(rows.height))
        return BookedPieces(rows, pieces, prices, split_times(alone, prices))

    def book_nodes(self, query: str, sql_id: int) -> NodeTimes:
        """Wall seconds and basis by node of one execution, and by term for time outside operators."""
        booked = self.book_query(query)
        times: dict[int | str, float] = defaultdict(float)
        bases: dict[int | str, dict[str, None]] = defaultdict(dict)
        column_numbers = {name: column for column, name in enumerate(booked.pieces.columns)}
        for i, row in enumerate(booked.rows.iter_rows(named=True)):
            if row["sql_id"] != sql_id:
                continue
            if row["term"] is not None or not row["node_ids"]:
                times[row["term"] or "unattributed"] += row["wall_s"]
                bases[row["term"] or "unattributed"][row["basis"]] = None
                continue
            names = [
                f"{name}{ACCELERATED}" if is_accelerated else name
                for name, is_accelerated in zip(row["operators"], row["accelerated"], strict=True)
            ]
            for name in dict.fromkeys(names):
                works = zip(row["node_ids"], row["work"], names, strict=True)
                node_works = [(node, work) for node, work, other in works if other == name]
                total = sum(work for _, work in node_works)
                time_s = float(booked.values[i, column_numbers[name]]) / row["run_weight"]
                for node, work in node_works:
                    times[node] += time_s * (work / total if total else 1 / len(node_works))
                    bases[node][row["basis"] if len(names) == 1 else SHARED] = None
        return {key: (time_s, ", ".join(bases[key])) for key, time_s in times.items()}

    def _price_rows(self, rows: pl.DataFrame) -> Floats:
        """Price of a unit of work for each piece (row) and operator (column), by the model or the piece's session."""
        if self.model is not None:
            return np.tile(self.model.get_column_prices(self.all_pieces.columns), (rows.height, 1))
        key = ("label", "session", "query")
        row_numbers = {owner: i for i, owner in enumerate(self.all_pieces.keys.select(key).iter_rows())}
        assert self._session_prices is not None
        return self._session_prices[[row_numbers[owner] for owner in rows.select(key).iter_rows()]]
