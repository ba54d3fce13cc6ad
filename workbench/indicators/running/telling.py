"""A measured session in words: verdicts by metric and side, what failed, what was not isolated."""

from __future__ import annotations

import shlex
from typing import Any

from workbench.formats import NULL
from workbench.indicators.running.starting import Outcome

_HEADS = ("metric", "stack", "times better", "interval", "rounds", "verdict", "")


def text(outcome: Outcome) -> str:
    """The table of verdicts, why the session is (in)valid, what to bear in mind, and where it lies."""
    session, judged = outcome.session, outcome.compared.judgement.row(0, named=True)
    level = outcome.compared.effects["level"].max() if outcome.compared.effects.height else None
    share = "" if level is None else f", intervals at {float(str(level)):.1%}"
    lines = [
        f"baseline: {session.baseline}; {judged['rounds']} round(s), {judged['runs']} runs, "
        f"{judged['failed']} without values; ended: {session.stop_reason}{share}; seed {session.seed}",
        "",
        *_table(outcome),
        "",
        f"session: {judged['verdict']}",
        *(f"  {reason}" for reason in judged["reasons"]),
    ]
    lines += ["", "noted:", *(f"  {note}" for note in session.notes)] if session.notes else []
    lines += ["", f"written: {outcome.folder}"]
    if outcome.interrupted:
        place = " --backend kubernetes" if session.backend == "kubernetes" else ""
        lines.append(f"go on with: workbench indicators run --resume {shlex.quote(str(outcome.folder))}{place}")
    return "\n".join(lines)


def document(outcome: Outcome) -> dict[str, Any]:
    """The same as one JSON document."""
    session = outcome.session
    return {
        "session_id": session.session_id,
        "folder": str(outcome.folder),
        "baseline": session.baseline,
        "seed": session.seed,
        "stop_reason": session.stop_reason,
        "notes": list(session.notes),
        "judgement": outcome.compared.judgement.row(0, named=True),
        "effects": outcome.compared.effects.to_dicts(),
    }


def _table(outcome: Outcome) -> list[str]:
    rows = [_HEADS, *(_row(row) for row in outcome.compared.effects.iter_rows(named=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = NULL if row["ratio"] is None else f"{row['ratio']:.3f}"
    interval = NULL if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]"
    remark = row["reason"] or ""
    if row["rounds_needed"] is not None and not row["control"]:
        remark = f"likely decided after {row['rounds_needed']} rounds" + (f"; {remark}" if remark else "")
    return (row["metric"], row["arm"], ratio, interval, str(row["n"]), row["verdict"], remark[:120])
