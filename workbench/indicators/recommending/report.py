"""What `workbench indicators recommend` prints: the answer, the stacks, what was left out, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from workbench.display import table
from workbench.indicators.recommending.justification import MIX, Justification, percent
from workbench.indicators.recommending.result import Recommendation

MOST_ROWS = 30
MOST_SENTENCES = 40


def text(found: Recommendation) -> str:
    """The recommendation for people."""
    lines = [found.answer.sentence, _asked(found)]
    if found.table.height:
        lines += ["", table(_stacks(found), caption="Stacks", limit=MOST_ROWS).text]
    if found.excluded.height:
        lines += ["", f"Left out ({found.excluded.height})", *_left_out(found)]
    if found.proposals.height:
        shown = found.proposals.select("place", "stack", _effect(), "n")
        lines += ["", table(shown, caption="Measure next, beside the baseline", limit=MOST_ROWS).text]
    if found.answer.stack is not None:
        lines += ["", f"Why {found.answer.stack}", *_why(found)]
    if found.unmeasured:
        told = "--predict tells what to expect of them, --predict --next 3 which to measure"
        lines += ["", f"{found.unmeasured} solved stack(s) were not measured: {told}"]
    return "\n".join(lines)


def document(found: Recommendation, folder: Path) -> dict[str, Any]:
    """The recommendation as a JSON document; paths of runs are below `folder`."""
    return {
        "session": found.session_id,
        "folder": str(folder),
        "request": found.request.model_dump(mode="json"),
        "mix": dict(found.mix.weights),
        "margin": found.margin,
        "answer": found.answer.kind,
        "recommended": found.answer.stack,
        "stack_key": found.key,
        "as_good": list(found.answer.as_good),
        "undecided": list(found.answer.undecided),
        "sentence": found.answer.sentence,
        "stacks": found.table.to_dicts(),
        "excluded": found.excluded.to_dicts(),
        "proposals": found.proposals.to_dicts(),
        "justification": [{"stack": stack, **one.model_dump(mode="json")} for stack, one in found.said],
        "unmeasured": found.unmeasured,
    }


def _asked(found: Recommendation) -> str:
    level = found.table["level"].first() if found.table.height else None
    intervals = f"; intervals at {100 * level:.3g} %" if isinstance(level, float) else ""
    margin = f"differences within {100 * found.margin:.2g} % do not matter"
    return f"{found.request.type} by {found.mix}, session {found.session_id}; {margin}{intervals}"


def _stacks(found: Recommendation) -> pl.DataFrame:
    mark = pl.when(pl.col("recommended")).then(pl.lit("*")).otherwise(pl.lit("")).alias("pick")
    base = pl.when(pl.col("baseline")).then(pl.lit("baseline")).otherwise(pl.col("verdict")).alias("verdict")
    source = pl.when(pl.col("predicted")).then(pl.lit("predicted")).otherwise(pl.lit("measured")).alias("source")
    chances = [(100 * pl.col(name)).round(1).alias(f"{name}_pct") for name in ("p_best", "p_near")]
    return found.table.select(
        "rank", mark, "stack", _effect(), base, *chances, pl.col("regret_pct").round(2), "n", source
    )  # fmt: skip


def _effect() -> pl.Expr:
    """The ratio with its interval, in percent, as text."""
    return (
        pl.struct("ratio", "low", "high")
        .map_elements(_effect_text, return_dtype=pl.String)
        .alias("against_baseline_pct")
    )  # fmt: skip


def _effect_text(row: dict[str, float | None]) -> str:
    ratio, low, high = row["ratio"], row["low"], row["high"]
    if ratio is None:
        return "-"
    if low is None or high is None:
        return f"{percent(ratio):+.1f}"
    return f"{percent(ratio):+.1f} [{percent(low):+.1f}, {percent(high):+.1f}]"


def _left_out(found: Recommendation) -> Iterator[str]:
    rows = found.excluded.head(MOST_ROWS).iter_rows(named=True)
    for row in rows:
        see = f" ({row['link']})" if row["link"] else ""
        yield f"  {row['stack']}: {row['reason']}{see}"
    if found.excluded.height > MOST_ROWS:
        yield f"  and {found.excluded.height - MOST_ROWS} more: --json, or the table excluded"


def _why(found: Recommendation) -> list[str]:
    lines = [_line(one) for one in _sentences(found)]
    more = len(lines) - MOST_SENTENCES
    return lines[:MOST_SENTENCES] + ([f"  and {more} more: --json, or the table justifications"] if more > 0 else [])


def _sentences(found: Recommendation) -> list[Justification]:
    """All about the answer and the session; of what is as good, the figure over the mix and the warnings."""
    shown = []
    for stack, one in found.said[1:]:
        of_answer = stack in (None, found.answer.stack)
        of_others = stack in (*found.answer.as_good, *found.answer.undecided) and (
            one.evidence.metric == MIX or one.type == "WARNING"
        )
        if (of_answer or of_others) and one.type != "ERROR":
            shown.append(one)
    return shown


def _line(one: Justification) -> str:
    runs = len(one.evidence.runs)
    count = f"{runs} runs, first " if runs > 1 else ""
    return f"  {one.type:<7} {one.message}" + (f" ({count}{one.link})" if one.link else "")
