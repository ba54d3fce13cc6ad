"""Both sides of a pair, from a recording or from logs that the user has: read, checked, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench import files
from workbench.errors import InputError
from workbench.eventlog.reader import Facts, read
from workbench.eventlog.sources import find_all
from workbench.host import cores
from workbench.speedup import recording
from workbench.speedup.calibration import queries_apart
from workbench.speedup.comparability import COMPARABILITY, comparability
from workbench.speedup.fleet import pool
from workbench.speedup.measured import Measured, joined, measure

# Below this, starting processes takes longer than they save.
FEWEST_FOR_POOL = 4
EXCLUDED = "its answer differs or it failed on a side"


@dataclass(frozen=True)
class Pair:
    """Both sides measured; `comparability` says how their settings differ."""

    baseline: str
    candidate: str
    measured: Measured
    comparability: pl.DataFrame
    engines: tuple[str, str]
    sources: list[dict[str, Any]]
    logs: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the pair is invalid; empty when it is valid."""
        wrong = self.comparability.filter(pl.col("severity") == "invalid")
        return tuple(f"{row['property']}: {row['why']}" for row in wrong.iter_rows(named=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What differs without making the pair invalid."""
        seen = self.comparability.filter(pl.col("severity") == "warning")
        return tuple(
            f"{row['property']}: {row['baseline']} against {row['candidate']}; {row['why']}"
            for row in seen.iter_rows(named=True)
        )


def from_recording(folder: str | Path, baseline: str | None = None, candidate: str | None = None) -> Pair:
    """Two sides of a recording; by default its first two.

    Raises
    ------
    InputError
        It is no recording, has fewer than two sides, or none of this name.
    """
    found = recording.load(folder)
    labels = found.labels
    if len(labels) < 2 and not (baseline and candidate):
        raise InputError(
            "a pair needs two sides", where=folder, found=labels, do="record both: --engine spark --engine comet"
        )
    sides = (found.side(baseline or labels[0]).label, found.side(candidate or labels[1]).label)
    logs = {side: [(f"{side}-s{number}", str(path)) for _, number, path in found.logs(side)] for side in sides}
    return _pair(sides, logs, found.bad_queries(), named=baseline is not None or candidate is not None)


def from_logs(
    baseline_logs: Sequence[str], candidate_logs: Sequence[str], labels: tuple[str, str] | None = None
) -> Pair:
    """Two sides given as event logs: each log is one session. Folders stand for the logs in them.

    Without `labels` the baseline must be a plain Spark and the candidate an accelerated one; with labels the user said
    which is which, and any two will do.

    Raises
    ------
    InputError
        A side has no logs, a log cannot be read, holds no query, or is on both sides; without labels also when the
        candidate is not accelerated.
    """
    named, labels = labels is not None, labels or ("cpu", "gpu")
    if labels[0] == labels[1]:
        raise InputError("both sides have one name", found=labels[0], do="name them apart: --baseline A --candidate B")
    baseline_logs, candidate_logs = _each(baseline_logs), _each(candidate_logs)
    both = set(baseline_logs) & set(candidate_logs)
    if both:
        raise InputError("a log is on both sides", found=sorted(both), do="give each side logs of its own")
    logs = {
        label: [(f"{label}-s{i}", path) for i, path in enumerate(paths, 1)]
        for label, paths in zip(labels, (baseline_logs, candidate_logs), strict=True)
    }
    found = _pair(labels, logs, set(), named=named)
    if not named and found.engines[1] == "spark":
        raise InputError(
            "the accelerated side is a plain Spark",
            where=candidate_logs[0],
            found="no accelerator in its settings",
            do="swap the logs; or name the sides, when they are not CPU and GPU: --baseline NAME --candidate NAME",
        )
    return found


def _each(paths: Sequence[str]) -> list[str]:
    """The logs of paths that may be folders."""
    return [source.path for source in find_all(paths)]


def _pair(
    labels: tuple[str, str], logs: Mapping[str, Sequence[tuple[str, str]]], excluded: set[str], *, named: bool
) -> Pair:
    parts: list[Measured] = []
    facts: dict[str, list[Facts]] = {}
    sources: list[dict[str, Any]] = []
    read_now = _read([path for label in labels for _, path in logs[label]])
    for label in labels:
        if not logs[label]:
            raise InputError("a side has no event log", where=label, do="give at least one log for each side")
        for session, path in logs[label]:
            one = read_now[path]
            part = measure(one, label, session)
            if not part.executions.height:
                raise InputError(
                    "the log holds no SQL execution that ran tasks and ended", where=path, do="give a log of SQL work"
                )
            parts.append(part)
            facts.setdefault(label, []).append(one)
            sources.append({"label": label, "session": session, **_source(path)})
    measured = joined(parts)
    bad = pl.col("query").is_in(sorted(excluded)) & pl.col("why_not").is_null()
    executions = measured.executions.with_columns(
        why_not=pl.when(bad).then(pl.lit(EXCLUDED)).otherwise(pl.col("why_not"))
    )
    measured = Measured(executions, measured.pieces)
    engines = tuple(str(facts[label][0].applications["engine"][0]) for label in labels)
    found = comparability(facts[labels[0]], facts[labels[1]], named=named)
    invalid = pl.col("severity") == "invalid"
    return Pair(
        labels[0],
        labels[1],
        measured,
        pl.concat([found.filter(invalid), _apart(measured, labels), found.filter(~invalid)]),
        (engines[0], engines[1]),
        sources,
        (tuple(path for _, path in logs[labels[0]]), tuple(path for _, path in logs[labels[1]])),
    )


def _apart(measured: Measured, labels: tuple[str, str]) -> pl.DataFrame:
    """A row of `COMPARABILITY` on queries that fell out because the sides read other tables there, if there are any."""
    left_out = queries_apart(measured, *labels)
    counts = measured.executions.group_by("label").agg(pl.col("query").n_unique())
    texts = {label: f"{count} queries" for label, count in counts.iter_rows()}
    why = f"left out, since the two sides read other tables or columns there: {', '.join(left_out)}"
    row = {"property": "queries", "baseline": texts[labels[0]], "candidate": texts[labels[1]], "severity": "warning"}
    return COMPARABILITY.frame([row | {"why": why}] if left_out else [])


def _read(paths: Sequence[str]) -> dict[str, Facts]:
    """Facts by path; from a few logs on one process a core, each with logs of its own."""
    if len(paths) < FEWEST_FOR_POOL or cores() < 2:
        return {path: _read_one(path) for path in paths}
    with pool(min(cores(), len(paths))) as workers:
        return dict(zip(paths, workers.map(_read_one, paths), strict=True))


def _read_one(path: str) -> Facts:
    facts = read(path, jobs=1)
    if facts.applications.height != 1:
        raise InputError("one log a session, please", where=path, do="name each log itself, not its folder")
    return facts


def _source(path: str) -> dict[str, Any]:
    place = Path(path)
    if not place.is_file():
        return {"file": place.name}
    return {"file": place.name, "bytes": place.stat().st_size, "sha256": files.sha256(place)}
