"""Pieces, metrics, work and prices behind one operator's time in one query."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core.errors import InputError
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.time_pieces import COUNTS, Measured, concat_measured_logs, measure_log_times
from workbench.speedup.calibration.booked_times import Booking
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.factors import map_columns_to_terms, natural_sort_key
from workbench.speedup.calibration.time_split import find_inseparable_columns
from workbench.speedup.comparison.pair import EXCLUSION_REASON
from workbench.speedup.engines import ACCELERATED
from workbench.speedup.recording import recording_plan
from workbench.speedup.recording.recording_plan import JOURNAL
from workbench.speedup.tables import EXPLAINED, EXPLAINED_METRICS

LogSession = tuple[str, str, EventLogFacts]


@dataclass(frozen=True)
class Explained:
    """Tables `parts` and `metrics`, the operator's time by session (`sums`), and the term that it is booked on."""

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
        times = [
            f"{row['operator_s']:,.3f} of {row['query_s']:,.3f} s on {row['label']}"
            for row in by_label.iter_rows(named=True)
        ]
        return f"{self.term} took {' and '.join(times)} in {self.query}, from {self.parts.height} pieces."


def explain_operator(
    sessions: Sequence[LogSession], measured: Measured, query: str, operator: str, *, model: FactorModel | None = None
) -> Explained:
    """Explain the time of an operator in a query by the pieces of wall time that are booked on it.

    `measured`: The same logs measured; executions that do not count (`why_not`) are ignored.
    `operator`: An operator, an inseparable group, or a kind of time such as idle.
    `model`: Prices that split shared times; fitted to each of these logs by default, as calibration does.

    Returns: Per session, `part_s` adds up to the time that calibration books on the operator.
    """
    queries = sorted(set(measured.executions.filter(COUNTS)["query"]), key=natural_sort_key)
    if query not in queries:
        raise _unknown_name_error("no such query in these logs", query, queries)
    booking = Booking(measured, model)
    all_columns = booking.all_pieces.columns
    groups = model.groups if model else find_inseparable_columns(booking.all_pieces)
    names = map_columns_to_terms(all_columns, groups)
    term = _find_term(operator, names)
    booked = booking.book_query(query)
    columns = [i for i, name in enumerate(booked.pieces.columns) if names[name] == term]
    if not columns or not booked.values[:, columns].sum():
        present = [names[name] for i, name in enumerate(booked.pieces.columns) if booked.values[:, i].sum() > 0]
        raise _unknown_name_error(f"the operator takes no time in {query}", operator, sorted(set(present)))
    # Build table EXPLAINED from the time pieces that have time in these columns of `booked`.
    pieces, values, prices = booked.pieces, booked.values, booked.prices
    part_rows = []
    wanted = {pieces.columns[i].removesuffix(ACCELERATED) for i in columns}
    for i, row in enumerate(booked.rows.iter_rows(named=True)):
        part_s = float(values[i, columns].sum())
        if part_s <= 0:
            continue
        whole_s = float(values[i].sum())
        shared = bool(pieces.shared[i])
        theirs = zip(row["node_ids"], row["work"], row["operators"], strict=True)
        node_amounts = [(node, amount) for node, amount, name in theirs if name in wanted]
        priced = float((pieces.work[i, columns] * prices[i, columns]).sum() / pieces.work[i, columns].sum())
        part_rows.append(
            {name: row[name] for name in ("label", "session", "sql_id", "run", "piece", "stage_id", "basis")}
            | {
                "operators": row["operators"] or [row["term"]],
                "nodes": [node for node, _ in node_amounts],
                "piece_s": row["wall_s"],
                "work": sum(amount for _, amount in node_amounts),
                "price_s": priced if shared else None,
                "share": part_s / whole_s,
                "run_weight": row["run_weight"],
                "part_s": part_s,
            }
        )
    parts = EXPLAINED.frame(part_rows)
    sums = _sum_by_session(booked.rows, parts)
    factor = (
        next((model_term.model_dump() for model_term in model.terms if model_term.operator == term), None)
        if model
        else None
    )
    return Explained(query, term, parts, _list_metrics(sessions, parts), sums, factor)


def _unknown_name_error(message: str, name: str, names: list[str]) -> InputError:
    near = difflib.get_close_matches(name, names, 3, 0.5)
    return InputError(message, found=name, allowed=(near or names[:40]) or "none")


def _find_term(operator: str, names: dict[str, str]) -> str:
    """The term of an operator: the operator itself, or its group."""
    wanted = operator.removesuffix(ACCELERATED)
    for column, term in names.items():
        if wanted in (term, column.removesuffix(ACCELERATED)):
            return term
    raise _unknown_name_error("no such operator in these logs", operator, sorted(set(names.values())))


def _sum_by_session(rows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Sum the operator's and the query's seconds by session.

    `rows`: `label, session, query_s`. `parts`: Table EXPLAINED.

    Returns: `label, session, query_s, operator_s`.
    """
    key = ["label", "session"]
    query_times = rows.group_by(key, maintain_order=True).agg(pl.col("query_s").first())
    operator_times = parts.group_by(key).agg(operator_s=pl.col("part_s").sum())
    return query_times.join(operator_times, on=key, how="left", maintain_order="left").with_columns(
        pl.col("operator_s").fill_null(0.0)
    )


def _list_metrics(sessions: Sequence[LogSession], parts: pl.DataFrame) -> pl.DataFrame:
    """List the metrics of the plan nodes that `parts` names: columns label, session, sql_id, nodes (ids)."""
    wanted: dict[tuple[str, str, int], set[int]] = {}
    for label, session, sql_id, nodes in parts.select("label", "session", "sql_id", "nodes").iter_rows():
        wanted.setdefault((label, session, sql_id), set()).update(nodes)
    rows = []
    for label, session, facts in sessions:
        for execution in read_executions(facts):
            for node_id in sorted(wanted.get((label, session, execution.sql_id), ())):
                key = {"label": label, "session": session, "sql_id": execution.sql_id}
                rows += [key | row for row in _list_node_metrics(execution, node_id)]
    return EXPLAINED_METRICS.frame(rows)


def _list_node_metrics(execution: Execution, node_id: int) -> list[dict[str, Any]]:
    node = execution.nodes[node_id]
    return [
        {"node_id": node_id, "node": node.name, "stage_id": stage, "metric": name, "total": total}
        for stage, values in sorted(node.metrics.items())
        for name, total in sorted(values.items())
    ]


def read_sessions(source: str, sides: Sequence[str] = ()) -> tuple[list[LogSession], Measured]:
    """Label, session and facts of each log of a recording, or of a single log, and their measured times."""
    if not is_recording(source):
        if sides:
            raise InputError("a single log has no sides", where=source, found=list(sides), do="leave --side out")
        facts = read_single_log(source)
        return [("log", "log", facts)], measure_single_log(facts)
    source_recording = recording_plan.load_recording(source)
    labels = [source_recording.find_side(side).label for side in sides] or source_recording.labels[:2]
    sessions = [
        (label, f"{label}-s{number}", read_single_log(str(path)))
        for label in labels
        for _, number, path in source_recording.iterate_logs(label)
    ]
    if not sessions:
        raise InputError(
            "the recording has no logs",
            where=source,
            found="facts of its sessions" if source_recording.list_good_sessions() else "no good session",
            do="give a log, or record without --keep facts",
        )
    measured = concat_measured_logs(measure_log_times(facts, label, session) for label, session, facts in sessions)
    return sessions, measured.exclude_queries(source_recording.list_bad_queries(), EXCLUSION_REASON)


def measure_single_log(facts: EventLogFacts) -> Measured:
    """Executions of one log, its first runs included."""
    return measure_log_times(facts, "log", "log").include_first_runs()


def is_recording(source: str) -> bool:
    """Whether a folder was written by `workbench speedup record`."""
    return "://" not in source and (Path(source) / JOURNAL).is_file()


def read_single_log(source: str) -> EventLogFacts:
    """Facts of a path that holds exactly one log."""
    facts = read_event_logs(source)
    if facts.applications.height != 1:
        raise InputError(
            "not a single log",
            where=source,
            found=f"{facts.applications.height} logs",
            do="give the path of one log, or the folder of a recording",
        )
    return facts
