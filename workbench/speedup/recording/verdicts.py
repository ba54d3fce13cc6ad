"""The answers of all sessions against those of the first side: table `answers`, and what is not to be counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.speedup.recording import answers, tables
from workbench.speedup.recording.journal import GOOD_VERDICTS, Recording
from workbench.speedup.recording.store import Store

# The first of these that a side's sessions have is the side's: the worst one, then whether it is the reference.
_WORST_FIRST: tuple[answers.Verdict, ...] = (
    "failed",
    "wrong answer",
    "not comparable",
    "equal up to ties at the limit",
    "reference",
    "equal",
)


# Digest of an answer to its comparison with the reference and its rows.
_Cache = dict[str, tuple[answers.Comparison, int]]


@dataclass(frozen=True)
class _Found:
    verdict: answers.Verdict
    difference: str | None
    n_rows: int | None


def session_name(label: str, number: int) -> str:
    """How files of a session are named."""
    return f"{label}-s{number}"


def judge(recording: Recording, store: Store, executions: pl.DataFrame) -> pl.DataFrame:
    """Which queries were answered alike by all sides, in all sessions?

    Parameters
    ----------
    recording
        Its good sessions are judged.
    store
        Their answers.
    executions
        Table `executions`.

    Returns
    -------
    DataFrame
        Table `answers`. A query that failed in any of its executions has the verdict failed for that side.
    """
    references = _references(recording, store)
    rows: list[dict[str, Any]] = []
    for query in recording.suite.queries:
        failures = executions.filter((pl.col("query") == query) & (pl.col("status") == "failed"))
        cache: _Cache = {}
        for label in recording.labels:
            if label not in {name for name, _, _ in recording.logs()}:
                continue
            found = _failed(failures.filter(pl.col("label") == label))
            found += _compared(recording, store, label, query, references.get(query), cache)
            if not found:
                continue
            worst = min(found, key=lambda one: _WORST_FIRST.index(one.verdict))
            n_rows = next((one.n_rows for one in found if one.n_rows is not None), None)
            rows.append(
                {
                    "query": query,
                    "label": label,
                    "n_rows": n_rows,
                    "verdict": worst.verdict,
                    "difference": worst.difference,
                }
            )
    return tables.ANSWERS.frame(rows)


def _references(recording: Recording, store: Store) -> dict[str, tuple[str, str]]:
    """Query to the session and digest of its reference: the first side that answered it, its first session."""
    found: dict[str, tuple[str, str]] = {}
    for label, number, _ in recording.logs():
        name = session_name(label, number)
        for query, digest in store.index(name).items():
            found.setdefault(query, (name, digest))
    return found


def _failed(failures: pl.DataFrame) -> list[_Found]:
    if not failures.height:
        return []
    first = failures.row(0, named=True)
    text = f"{failures.height:,} executions failed; session {first['session']}: {first['error']}"
    return [_Found("failed", text, None)]


def _compared(
    recording: Recording, store: Store, label: str, query: str, reference: tuple[str, str] | None, cache: _Cache
) -> list[_Found]:
    """A side's answers to one query, session by session; each different one is compared once."""
    if reference is None:
        return []
    found = []
    for _, number, _ in recording.logs(label):
        name = session_name(label, number)
        digest = store.index(name).get(query)
        if digest is None:
            continue
        if digest not in cache:
            answer = store.get(digest)
            cache[digest] = (answers.compare(store.get(reference[1]), answer), len(answer.rows))
        result, n_rows = cache[digest]
        if name == reference[0]:
            found.append(_Found("reference", None, n_rows))
        else:
            said = f"session {number} against {reference[0]}: {result.difference}" if result.difference else None
            found.append(_Found(result.verdict, said, n_rows))
    return found


def excluded(judged: pl.DataFrame) -> dict[str, dict[str, str]]:
    """Side to query to why its executions do not count."""
    found: dict[str, dict[str, str]] = {}
    for row in judged.filter(~pl.col("verdict").is_in(GOOD_VERDICTS)).iter_rows(named=True):
        found.setdefault(row["label"], {})[row["query"]] = f"{row['verdict']}: {row['difference']}"
    return found
