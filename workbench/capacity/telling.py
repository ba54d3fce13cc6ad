"""A plan in words, and as one document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import table

if TYPE_CHECKING:
    from workbench.capacity.study import Study


def text(made: Study, out: Path | None) -> str:
    """The short answer: a sentence, the day, what binds, the inputs, and what to know."""
    from workbench.capacity import tables

    lines = [f"INVALID: {reason}" for reason in made.reasons]
    lines += [made.answer, ""]
    lines.append(table(made.day, tables.DAY, caption="The day, over all draws").text)
    shown = made.constraints.select("constraint", "figure", "unit", "nodes_saved", "binding")
    lines += ["", table(shown, tables.CONSTRAINTS, caption=f"At the peak, {made.peak_hour:02d}:00").text]
    shown = made.sources.select("input", "value", "low", "high", "unit", "run", "verdict")
    lines += ["", table(shown, tables.SOURCES, caption="Inputs").text, ""]
    lines += [f"note: {note}" for note in made.notes]
    return "\n".join([*lines, f"written: {out}"] if out is not None else lines)


def document(made: Study, out: Path | None) -> dict[str, Any]:
    """The same as one JSON document, with all tables but the what-if."""
    return {
        "answer": made.answer,
        "verdict": "invalid" if made.reasons else "valid",
        "reasons": list(made.reasons),
        "notes": list(made.notes),
        "peak_hour": made.peak_hour,
        "bound_by": made.bound_by,
        "scheduler": made.kept_up,
        "folder": None if out is None else str(out),
        **{one.name: frame.to_dicts() for one, frame in made.tables() if one.name != "what_if"},
    }
