"""How two runs differ, as a short table for a terminal and as one JSON document."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.diffing import VERDICTS, Contrast, Diff, TableDiff
from workbench.formats import number
from workbench.stats import Interval

if TYPE_CHECKING:
    from workbench.catalogue import Kept

MOST_LINES = 12
MOST_NAMES = 5


def counted(counts: dict[str, int]) -> str:
    """Verdicts and how often each was given.

    Examples
    --------
    >>> counted({"HIGHER": 2, "LOWER": 0, "UNDECIDED": 5, "SAME": 1})
    '2 HIGHER, 5 UNDECIDED, 1 SAME'
    """
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def with_ends(value: Interval) -> str:
    """A figure and its ends.

    Examples
    --------
    >>> with_ends(Interval(2.0, 1.8, 2.25, 0.9, 5, "t")), with_ends(Interval(2.0, None, None, 0.9, 5, "t"))
    ('2 (1.8 to 2.25)', '2')
    """
    ends = f" ({number(value.low)} to {number(value.high)})" if value.low is not None and value.high is not None else ""
    return number(value.estimate) + ends


def text(found: Diff) -> str:
    """The comparison in lines: what differs around the figures, then table by table what was told apart first."""
    lines = [
        f"{found.candidate.area}: candidate / baseline",
        f"  baseline   {_ended(found.baseline)}",
        f"  candidate  {_ended(found.candidate)}",
    ]
    lines += [f"  {kind} {name}: {_side(one)} -> {_side(other)}" for kind, name, one, other in found.facts]
    if not found.facts:
        lines.append("  settings, inputs, versions and machine are the same")
    for table in found.tables:
        lines += _table(table)
    lines.append(f"told apart: {counted(found.counts) or 'no figure has an interval in both runs'}")
    return "\n".join([*lines, *(f"  {note}" for note in found.notes)])


def _ended(run: Kept) -> str:
    return f"{run.run_id}  {run.state}, {run.record['verdict'] or 'no verdict'}"


def _side(value: str | None) -> str:
    return "-" if value is None else value if len(value) <= 60 else value[:59] + "…"


def _table(table: TableDiff) -> Iterator[str]:
    if table.note:
        yield f"{table.name}: not compared: {table.note}"
        return
    by = f" by {', '.join(table.key)}" if table.key else ""
    yield f"{table.name}: {table.rows} rows in both{by}{_only(table)}"
    told = sorted(table.contrasts, key=_weight)
    yield from _aligned([_cells(one) for one in told[:MOST_LINES]])
    if len(told) > MOST_LINES:
        yield f"    and {len(told) - MOST_LINES} more ({counted(table.counts)} in all)"
    if table.changes:
        rows = Counter(one.column for one in table.changes)
        told_columns = ", ".join(f"{column} ({count} of {table.rows} rows)" for column, count in rows.items())
        yield f"    without interval: {told_columns}"


def _only(table: TableDiff) -> str:
    parts = []
    for names, which in ((table.only_baseline, "baseline"), (table.only_candidate, "candidate")):
        if names:
            more = " …" if len(names) > MOST_NAMES else ""
            parts.append(f", {len(names)} only in the {which} ({'; '.join(names[:MOST_NAMES])}{more})")
    return "".join(parts)


def _weight(one: Contrast) -> tuple[int, float]:
    place = VERDICTS.index(one.verdict) if one.verdict else len(VERDICTS)
    return place, one.adjusted_p_value if one.adjusted_p_value is not None else 2.0


def _cells(one: Contrast) -> list[str]:
    ratio = f"x {with_ends(one.ratio)}" if one.ratio.estimate is not None else f"no ratio: {one.ratio.reason}"
    before, after = (with_ends(value) for value in (one.baseline, one.candidate))
    return [one.row, one.column, before, "->", after, ratio, one.verdict or "no verdict"]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [min(44, max(len(row[place]) for row in rows)) for place in range(len(rows[0]))]
    for row in rows:
        yield ("    " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()


def document(found: Diff) -> dict[str, Any]:
    """The comparison as JSON: runs, facts, tables with contrasts and changes, counts, notes."""
    return {
        "baseline": _run(found.baseline),
        "candidate": _run(found.candidate),
        "facts": [dict(zip(("kind", "name", "baseline", "candidate"), fact, strict=True)) for fact in found.facts],
        "tables": [_table_document(table) for table in found.tables],
        "counts": found.counts,
        "notes": list(found.notes),
    }


def _run(run: Kept) -> dict[str, Any]:
    names = ("run_id", "area", "title", "started_at", "verdict", "answer")
    return {name: run.record.get(name) for name in names} | {"status": run.state, "folder": run.place}


def _table_document(table: TableDiff) -> dict[str, Any]:
    plain = ("name", "rows", "note")
    listed = ("key", "own", "only_baseline", "only_candidate")
    return {
        **{name: getattr(table, name) for name in plain},
        **{name: list(getattr(table, name)) for name in listed},
        "counts": table.counts,
        "contrasts": [_contrast(one) for one in table.contrasts],
        "changes": [dataclasses.asdict(one) for one in table.changes],
    }


def _contrast(one: Contrast) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in ("row", "column", "unit", "verdict", "adjusted_p_value")}
    sides = {name: _figure(getattr(one, name)) for name in ("baseline", "candidate", "ratio")}
    return plain | sides | {"reason": one.ratio.reason}


def _figure(value: Interval) -> dict[str, Any]:
    return {"estimate": value.estimate, "low": value.low, "high": value.high, "level": value.level}
