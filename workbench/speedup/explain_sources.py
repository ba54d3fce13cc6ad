"""Logs of a recording or a single log, with facts and measured executions, for commands that look into one query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from workbench.errors import InputError
from workbench.eventlog.reader import Facts, read
from workbench.speedup import recording
from workbench.speedup.explain import Session, countable
from workbench.speedup.measured import Measured, joined, measure
from workbench.speedup.pair import EXCLUDED
from workbench.speedup.recording.journal import JOURNAL


def sessions_of(source: str, sides: Sequence[str] = ()) -> tuple[list[Session], Measured]:
    """Label, session and facts of each log at a recording's folder or of one log, and all of them measured.

    Raises
    ------
    InputError
        It is neither, or the recording has no such side.
    """
    if not is_recording(source):
        if sides:
            raise InputError("a single log has no sides", where=source, found=list(sides), do="leave --side out")
        facts = single(source)
        return [("log", "log", facts)], countable(measure(facts, "log", "log"))
    found = recording.load(source)
    labels = [found.side(side).label for side in sides] or found.labels[:2]
    sessions = [
        (label, f"{label}-s{number}", single(str(path))) for label in labels for _, number, path in found.logs(label)
    ]
    measured = joined(measure(facts, label, session) for label, session, facts in sessions)
    bad = pl.col("query").is_in(sorted(found.bad_queries())) & pl.col("why_not").is_null()
    why = pl.when(bad).then(pl.lit(EXCLUDED)).otherwise(pl.col("why_not"))
    return sessions, Measured(measured.executions.with_columns(why_not=why), measured.pieces)


def is_recording(source: str) -> bool:
    """Whether a folder is one that `workbench speedup record` wrote."""
    return "://" not in source and (Path(source) / JOURNAL).is_file()


def single(source: str) -> Facts:
    """Facts of exactly one log."""
    facts = read(source)
    if facts.applications.height != 1:
        raise InputError(
            "one log, please",
            where=source,
            found=f"{facts.applications.height} logs",
            do="name the log itself, or the folder of a recording",
        )
    return facts
