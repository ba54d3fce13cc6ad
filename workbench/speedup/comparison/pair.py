"""The two sides of a pair, read from a recording or from event logs, checked and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import polars as pl

from workbench.core import files
from workbench.core.books import AT_MOST, Book, build_books, describe_broken_books
from workbench.core.errors import InputError
from workbench.core.formats import format_items
from workbench.eventlog.engine_detection import SPARK
from workbench.eventlog.sources import list_all_logs
from workbench.speedup.attribution.application_time import UNKNOWN
from workbench.speedup.attribution.time_pieces import COUNTS, FAILED, WAITING, Measured, concat_measured_logs
from workbench.speedup.calibration.factors import RECORDING_MARK, has_common_queries, list_mismatched_queries
from workbench.speedup.comparison.comparability import (
    SEVERITIES,
    SessionFacts,
    check_comparability,
    list_invalid_reasons,
    load_session_facts,
    read_session_logs,
)
from workbench.speedup.comparison.query_matching import WORK_TOLERANCE, match_queries
from workbench.speedup.recording import recording_plan
from workbench.speedup.recording.recording_plan import MAX_OTHER_LOAD
from workbench.speedup.tables import COMPARABILITY

FirstRuns = Literal["auto", "use", "skip"]
SIDES = ("baseline", "candidate")
# Properties that joined recordings should have in common.
JOINED_ALIKE = ("Spark version", "task slots")
# More executions than a log has.
MAX_NAMED = 8
_IDS_OF_A_LOG = 1 << 32
EXCLUSION_REASON = "its answer differs or it failed on a side"


@dataclass(frozen=True)
class Pair:
    """Both sides measured, with the differences between their settings (`comparability`).

    `logs` are those of each side; empty for a recording that keeps facts instead.
    """

    baseline: str
    candidate: str
    measured: Measured
    comparability: pl.DataFrame
    engines: tuple[str, str]
    sources: list[dict[str, Any]]
    logs: tuple[tuple[str, ...], tuple[str, ...]]
    first_runs: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the pair is invalid; empty when it is valid."""
        return (*list_invalid_reasons(self.comparability), *describe_broken_books(self.books))

    @cached_property
    def books(self) -> pl.DataFrame:
        """Table BOOKS: work and identity of the queries that count on both sides."""
        counted = self.measured.executions.filter(COUNTS, pl.col("label").is_in([self.baseline, self.candidate]))
        both = counted.filter(pl.col("label").n_unique().over("query") == len(SIDES))
        amounts = both.group_by("query", "label").agg(pl.col("read_rows", "file_bytes").median())
        spread = [
            (pl.col(column).max() - pl.col(column).min()) > WORK_TOLERANCE * pl.col(column).max()
            for column in ("read_rows", "file_bytes")
        ]
        # Filters pushed into the files change the rows: where the files are as large, the data are the same.
        differ = amounts.group_by("query").agg(spread[0] & (spread[1] | (pl.col("file_bytes").fill_null(0).max() == 0)))
        n_differ = float(differ["read_rows"].sum()) if both["read_rows"].drop_nulls().len() else None
        n_plans = both.group_by("query", "label").agg(pl.col("plan").n_unique())["plan"].max()
        known = bool(both["plan"].drop_nulls().len())
        return build_books(
            [
                Book(
                    "work of the sides",
                    ("queries that read other rows from other files", n_differ),
                    ("none", 0.0),
                    "ratios and factors",
                    "other data on a side",
                ),
                Book(
                    "identity of queries",
                    (
                        "most plans under one name on a side",
                        float(n_plans) if known and isinstance(n_plans, int) else None,
                    ),
                    ("one plan", 1.0),
                    "ratios and factors",
                    "queries that are called alike",
                    AT_MOST,
                ),
            ]
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Differences that do not make the pair invalid."""
        seen = self.comparability.filter(pl.col("severity") == "warning")
        return tuple(
            f"{row['property']}: {row['baseline']} against {row['candidate']}; {row['why']}"
            for row in seen.iter_rows(named=True)
        )


def load_recorded_pair(
    folder: str | Path,
    baseline: str | None = None,
    candidate: str | None = None,
    *,
    first_runs: FirstRuns = "auto",
) -> Pair:
    """Load two sides of a recording; by default its first two."""
    source_recording = recording_plan.load_recording(folder)
    labels = source_recording.labels
    if len(labels) < 2 and not (baseline and candidate):
        raise InputError(
            "a pair needs two sides", where=folder, found=labels, do="record both: --engine spark --engine comet"
        )
    sides = (
        source_recording.find_side(baseline or labels[0]).label,
        source_recording.find_side(candidate or labels[1]).label,
    )
    stored_facts = load_session_facts(source_recording)
    read = read_session_logs([str(path) for side in sides for _, _, path in source_recording.iterate_logs(side)])
    sessions: dict[str, list[_Session]] = {side: [] for side in sides}
    for session in source_recording.list_good_sessions():
        if session.label in sides:
            path = str(source_recording.folder / session.log) if session.log else None
            origin = (
                {"file": session.file_name, "sha256": session.log_sha256} if path is None else _read_log_origin(path)
            )
            facts = stored_facts[session.label, session.session] if path is None else read[path]
            sessions[session.label].append(_Session(f"{session.label}-s{session.session}", facts, origin, path))
    named = baseline is not None or candidate is not None
    return _build_pair(
        sides,
        sessions,
        source_recording.list_bad_queries(),
        named=named,
        first_runs=first_runs,
        recorded=source_recording,
    )


def join_pairs(pairs: Mapping[str, Pair]) -> Pair:
    """Pairs of the same two engines as one, so that factors rest on the queries of all.

    `pairs`: By a name that tells them apart, which queries get behind theirs. Labels are those of the first.

    Returns: Sessions of the same number count as one, which keeps the noise of the mean what it is; a query has only
    those of its own recording. A query that several recordings have is left out of all at once.

    Raises
    ------
    InputError
        Engines differ, or only some compare first runs.
    """
    first = next(iter(pairs.values()))
    if len(pairs) == 1:
        return first
    for name, pair in pairs.items():
        if (pair.engines, pair.first_runs) != (first.engines, first.first_runs):
            raise InputError(
                "recordings of other engines, or of first runs, cannot be joined",
                where=name,
                found=f"{' and '.join(pair.engines)}{', first runs' * pair.first_runs}",
                allowed=f"{' and '.join(first.engines)}{', first runs' * first.first_runs}",
            )
    parts, checks = [], []
    sources: list[dict[str, Any]] = []
    logs: tuple[list[str], list[str]] = ([], [])
    for number, (name, pair) in enumerate(pairs.items()):
        parts.append(_rename_pair(pair, name, number, first))
        checks.append(pair.comparability.with_columns(property=pl.concat_str(pl.lit(f"{name}: "), "property")))
        sources += [{**source, "recording": name} for source in pair.sources]
        for side, paths in zip(logs, pair.logs, strict=True):
            side.extend(paths)
    # Rows of table COMPARABILITY, a warning for each of `JOINED_ALIKE` in which recordings differ.
    rows = []
    for name in JOINED_ALIKE:
        found = [pair.comparability.filter(pl.col("property") == name) for pair in pairs.values()]
        texts = {side: list(dict.fromkeys(text for part in found for text in part[side])) for side in SIDES}
        if max(map(len, texts.values())) > 1:
            why = "recordings differ: the factors of one do not apply to the other"
            shown = {side: "; ".join(values) for side, values in texts.items()}
            rows.append({"property": name, **shown, "severity": "warning", "why": why})
    checks.append(COMPARABILITY.frame(rows))
    comparability = pl.concat(checks).sort(pl.col("severity").replace_strict(SEVERITIES), maintain_order=True)
    return replace(
        first,
        measured=concat_measured_logs(parts),
        comparability=comparability,
        sources=sources,
        logs=(tuple(logs[0]), tuple(logs[1])),
    )


def _rename_pair(pair: Pair, name: str, number: int, first: Pair) -> Measured:
    """Times of a pair under the labels of the first, with names of queries and numbers of executions of its own."""
    labels = {pair.baseline: first.baseline, pair.candidate: first.candidate}
    sides = pair.measured.select(pl.col("label").is_in(list(labels)))
    label = pl.col("label").replace_strict(labels)
    shared = {
        "label": label,
        # A session is named after its side and number, where the workbench names it.
        "session": pl.concat_str(label, pl.col("session").str.extract(r"(-s\d+)$").fill_null(pl.col("session"))),
        "sql_id": pl.col("sql_id") + number * _IDS_OF_A_LOG,
    }
    return Measured(
        sides.executions.with_columns(**shared, query=pl.concat_str("query", pl.lit(f"{RECORDING_MARK}{name}"))),
        sides.pieces.with_columns(**shared),
    )


def _build_load_row(recorded: recording_plan.Recording | None, labels: Sequence[str]) -> pl.DataFrame:
    """Row of table COMPARABILITY with the CPU use of other processes during the sessions of each side."""
    texts, highest = [], 0.0
    for label in labels:
        every = recorded.sessions if recorded is not None else []
        sessions = [session for session in every if session.label == label and session.status == "ok"]
        during = [
            session.other_cpu_share + (session.steal_share or 0.0)
            for session in sessions
            if session.other_cpu_share is not None
        ]
        before = [session.busy_share for session in sessions if session.busy_share is not None]
        shares, when = (during, "") if during else (before, " just before")
        highest = max([highest, *shares])
        texts.append(f"{100 * max(shares):.0f} %{when}" if shares else UNKNOWN)
    reason = "CPU used by other programs, in the session with most: it slows down queries and adds noise"
    row = {"property": "other load", "baseline": texts[0], "candidate": texts[1], "why": reason}
    return COMPARABILITY.frame([row | {"severity": "warning" if highest > MAX_OTHER_LOAD else "ok"}])


def load_pair_from_logs(
    baseline_logs: Sequence[str],
    candidate_logs: Sequence[str],
    labels: tuple[str, str] | None = None,
    *,
    first_runs: FirstRuns = "auto",
) -> Pair:
    """Load two sides from event logs, one session per log; a folder stands for the logs in it.

    Without `labels`, the sides are named by their engines, and the candidate must be accelerated; with labels, any two
    sides can be compared.

    `first_runs`: use: compare the first run of each query in a session; skip: only later runs, which are warm; auto:
    first runs where no query ran warm on both sides, as in a Power Run.
    """
    if labels is not None and labels[0] == labels[1]:
        raise InputError(
            "both sides have the same name", found=labels[0], do="use two names: --baseline A --candidate B"
        )
    sides = (_list_logs(baseline_logs), _list_logs(candidate_logs))
    if both := set(sides[0]) & set(sides[1]):
        raise InputError("a log is on both sides", found=sorted(both), do="give each side its own logs")
    read = read_session_logs([*sides[0], *sides[1]])
    names = labels or tuple(_name_side([read[path] for path in paths]) for paths in sides)
    if labels is None and sides[1] and names[1] == SPARK:
        raise InputError(
            "the accelerated side is a plain Spark",
            where=candidate_logs[0],
            found="no accelerator in its settings",
            do="swap the logs; or name the sides if they are not CPU and GPU: --baseline NAME --candidate NAME",
        )
    if names[0] == names[1]:
        names = (f"{names[0]}-baseline", f"{names[1]}-candidate")
    sessions = {
        label: [_Session(f"{label}-s{i}", read[path], _read_log_origin(path), path) for i, path in enumerate(paths, 1)]
        for label, paths in zip(names, sides, strict=True)
    }
    return _build_pair((names[0], names[1]), sessions, set(), named=labels is not None, first_runs=first_runs)


def load_pair_from_folder(folder: str | Path, *, first_runs: FirstRuns = "auto") -> Pair:
    """Load a folder of logs of two engines: plain Spark is the baseline, the other engine the candidate."""
    by_engine: dict[str, list[str]] = {}
    read = read_session_logs(_list_logs([str(folder)]))
    for path, session in read.items():
        by_engine.setdefault(_name_side([session]), []).append(path)
    others = [name for name in by_engine if name != SPARK]
    if SPARK not in by_engine or len(others) != 1:
        raise InputError(
            "not the logs of plain Spark and one accelerated engine",
            where=folder,
            found="; ".join(f"{name}: {', '.join(Path(path).name for path in by_engine[name])}" for name in by_engine),
            do="give each side its own logs: --cpu LOG --gpu LOG; or the folder of a recording",
        )
    return load_pair_from_logs(by_engine[SPARK], by_engine[others[0]], first_runs=first_runs)


def _name_side(sessions: Sequence[SessionFacts]) -> str:
    """Name of a side: its engine; the first one's where they differ, which the comparison reports."""
    return str(sessions[0][0].applications["engine"][0]) if sessions else "none"


def _list_logs(paths: Sequence[str]) -> list[str]:
    """The logs at paths that may be folders."""
    return [source.path for source in list_all_logs(paths)]


@dataclass(frozen=True)
class _Session:
    name: str
    facts: SessionFacts
    origin: Mapping[str, Any]
    log: str | None


def _build_pair(
    labels: tuple[str, str],
    sessions: Mapping[str, Sequence[_Session]],
    excluded: set[str],
    *,
    named: bool,
    first_runs: FirstRuns,
    recorded: recording_plan.Recording | None = None,
) -> Pair:
    """Build a pair from the sessions of both sides, by label.

    `excluded`: Queries to leave out. `recorded`: The recording that the sessions come from, null for plain logs.
    """
    parts: list[Measured] = []
    sources: list[dict[str, Any]] = []
    for label in labels:
        if not sessions[label]:
            raise InputError("a side has no event log", where=label, do="give at least one log for each side")
        for session in sessions[label]:
            part = session.facts[1]
            if not part.executions.height:
                where = session.log or session.name
                raise InputError(
                    "the log has no SQL execution that ran tasks and ended", where=where, do="give a log of SQL work"
                )
            names = {"label": pl.lit(label), "session": pl.lit(session.name)}
            parts.append(Measured(part.executions.with_columns(**names), part.pieces.with_columns(**names)))
            sources.append({"label": label, "session": session.name, **session.origin})
    facts = {label: [side_session.facts[0] for side_session in sessions[label]] for label in labels}
    together = concat_measured_logs(parts)
    everything, refused = match_queries(together.leave_out_waits(), *labels)
    refused |= dict.fromkeys(excluded, EXCLUSION_REASON)
    measured = _exclude_refused(everything, refused)
    engines = tuple(str(facts[label][0].applications["engine"][0]) for label in labels)
    uses_first = first_runs == "use" or (first_runs == "auto" and not has_common_queries(measured, *labels))
    if uses_first:
        measured = _exclude_refused(everything.select_first_runs(), refused)
    checks = [
        check_comparability(
            facts[labels[0]],
            facts[labels[1]],
            named=named,
            first_runs=uses_first,
            most_runs=_count_most_runs(everything, labels),
        ),
        _build_mismatch_row(measured, labels),
        _build_refused_row({name: reason for name, reason in refused.items() if name not in excluded}),
        _build_one_sided_row(measured, labels),
        _build_waits_row(together, labels),
        _build_load_row(recorded, labels),
    ]
    return Pair(
        labels[0],
        labels[1],
        measured,
        pl.concat(checks).sort(pl.col("severity").replace_strict(SEVERITIES), maintain_order=True),
        (engines[0], engines[1]),
        sources,
        (_list_log_paths(sessions[labels[0]]), _list_log_paths(sessions[labels[1]])),
        uses_first,
    )


def _list_log_paths(sessions: Sequence[_Session]) -> tuple[str, ...]:
    return tuple(session.log for session in sessions if session.log is not None)


def _build_mismatch_row(measured: Measured, labels: tuple[str, str]) -> pl.DataFrame:
    """Row of table COMPARABILITY with the queries left out because the sides read different tables.

    No row without any.
    """
    left_out = list_mismatched_queries(measured, *labels)
    counts = measured.executions.group_by("label").agg(pl.col("query").n_unique())
    texts = {label: f"{count} queries" for label, count in counts.iter_rows()}
    reason = f"excluded, because the sides read different tables or columns: {', '.join(left_out)}"
    row = {"property": "queries", "baseline": texts[labels[0]], "candidate": texts[labels[1]], "severity": "warning"}
    return COMPARABILITY.frame([row | {"why": reason}] if left_out else [])


def _exclude_refused(measured: Measured, refused: Mapping[str, str]) -> Measured:
    """The executions, those of some queries marked as not counting. `refused`: Reasons by query."""
    for reason, names in _group_by_reason(refused).items():
        measured = measured.exclude_queries(names, reason)
    return measured


def _group_by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """Queries by the reason why they do not count."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused.items():
        by_reason.setdefault(reason, []).append(name)
    return by_reason


def _build_refused_row(refused: Mapping[str, str]) -> pl.DataFrame:
    """Row of table COMPARABILITY with the queries that cannot be paired, by name. No row without any."""
    reasons = [
        f"left out, because {reason}: {format_items(sorted(names), MAX_NAMED)}"
        for reason, names in _group_by_reason(refused).items()
    ]
    row = {"property": "queries that cannot be paired", **dict.fromkeys(SIDES, str(len(refused)))}
    return COMPARABILITY.frame([row | {"severity": "warning", "why": "; ".join(reasons)}] if refused else [])


def _count_most_runs(measured: Measured, labels: tuple[str, str]) -> tuple[int, int]:
    """Most runs of a query that succeeded in a session, on each side."""
    ran = measured.executions.filter(pl.col("why_not").is_null() | (pl.col("why_not") != FAILED))
    counts = ran.group_by("label", "session", "query").len().group_by("label").agg(pl.col("len").max())
    most = dict(counts.iter_rows())
    return most.get(labels[0], 0), most.get(labels[1], 0)


def _build_one_sided_row(measured: Measured, labels: tuple[str, str]) -> pl.DataFrame:
    """Row of table COMPARABILITY with the queries that count on one side only, and why. No row without any."""
    counted = {
        label: set(measured.executions.filter(pl.col("label") == label, COUNTS)["query"].unique()) for label in labels
    }
    notes = []
    for label, other in (labels, labels[::-1]):
        reasons = dict(
            measured.executions.filter(pl.col("label") == other, ~COUNTS).select("query", "why_not").iter_rows()
        )
        notes += [
            f"{query} ({reasons.get(query, 'did not run')} on {other})"
            for query in sorted(counted[label] - counted[other])
        ]
    texts = {side: f"{len(counted[label])} queries" for side, label in zip(SIDES, labels, strict=True)}
    why = f"queries that count on one side only are excluded: {format_items(notes, MAX_NAMED)}"
    row = {"property": "queries of one side", **texts, "severity": "warning", "why": why}
    return COMPARABILITY.frame([row] if notes else [])


def _build_waits_row(measured: Measured, labels: tuple[str, str]) -> pl.DataFrame:
    """Row of table COMPARABILITY with the time in which queries waited for executors. No row without any."""
    waits = measured.sum_pieces(pl.col("term") == WAITING).group_by("label").agg(pl.col("wall_s").sum())
    waited_s = dict(waits.iter_rows())
    reason = "waits for executors are due to the cluster, and do not count in any time"
    texts = [f"{waited_s.get(label, 0.0):,.1f} s" for label in labels]
    row = {"property": "waits", "baseline": texts[0], "candidate": texts[1], "severity": "warning", "why": reason}
    return COMPARABILITY.frame([row] if waited_s else [])


def _read_log_origin(path: str) -> dict[str, Any]:
    place = Path(path)
    if not place.is_file():
        return {"file": place.name}
    return {"file": place.name, "bytes": place.stat().st_size, "sha256": files.hash_file(place)}
