"""Summary of a recommendation: text, JSON document, key numbers, next steps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.core.formats import format_number
from workbench.indicators.analysis.effects import Comparison
from workbench.indicators.analysis.judgement import MIN_ROUNDS
from workbench.indicators.measurement.session_report import count_more_rounds
from workbench.indicators.recommendation.evidence import MIX, Justification, ratio_to_percent
from workbench.report.display import KeyNumber, table
from workbench.report.study import RUN_NOTE
from workbench.stats.verdicts import DIFFERENT, SAME

if TYPE_CHECKING:
    from workbench.indicators.recommendation.conclusion import Recommendation


MAX_SHOWN_ROWS = 30
MAX_SENTENCES = 40


def build_indicator_table() -> pl.DataFrame:
    """The shipped indicators: name, question and parameters of each.

    >>> build_indicator_table().row(3, named=True)["question"]
    'How long does it take to sort random numbers?'
    """
    from workbench.indicators.shipped.indicator_classes import list_shipped_indicators

    rows = [
        (indicator.__name__, (indicator.__doc__ or "").split("\n")[0], ", ".join(indicator.parameters()))
        for indicator in list_shipped_indicators()
    ]
    return pl.DataFrame(rows, schema=["indicator", "question", "parameters"], orient="row")


def list_key_numbers(comparison: Comparison, recommendation: Recommendation) -> list[KeyNumber]:
    """Key numbers: the recommended stack's ratio and chances, the claims, the control, the excluded stacks."""
    numbers: list[KeyNumber] = []
    chosen = recommendation.table.filter(recommendation.table["recommended"])
    if chosen.height:
        row = chosen.row(0, named=True)
        if not row["baseline"]:
            numbers.append(
                (row["stack"], row["ratio"], "times", f"[{format_number(row['low'])}, {format_number(row['high'])}]")
            )
        within = f"{row['stack']} within {100 * recommendation.margin:.2g} % of the best"
        near = None if row["p_near"] is None else 100 * row["p_near"]
        best = "unknown" if row["p_best"] is None else f"{100 * row['p_best']:.0f} %"
        numbers.append((within, near, "% chance", f"chance to be the best: {best}"))
    effects = comparison.effects.filter(~comparison.effects["control"])
    claims = effects.filter(effects["verdict"].is_in(DIFFERENT)).height
    same = effects.filter(effects["verdict"] == SAME).height
    numbers.append(
        ("faster or slower than the baseline", claims, f"of {effects.height}", f"stack and metric; {same} equivalent")
    )
    # Largest difference between the two copies of the baseline that their intervals allow: what can be resolved.
    control = comparison.effects.filter(comparison.effects["control"])
    if not control.height:
        key_number = ("control", None, "", "no control")
    elif not (rows := control.drop_nulls(["low", "high"])).height:
        key_number = ("control off by at most", None, "%", "too few rounds for an interval")
    else:
        ends = rows.select("low", "high", "ratio", "metric").iter_rows()
        worst, ratio, metric = max((max(high, 1 / low), ratio, metric) for low, high, ratio, metric in ends)
        measured = f"{ratio_to_percent(ratio):+.1f} % measured"
        key_number = ("control off by at most", 100 * (worst - 1), "%", f"{metric}: end of its interval, {measured}")
    numbers.append(key_number)
    numbers.append(("excluded", recommendation.excluded.height, "stacks", "by checks and constraints"))
    return numbers


def list_next_steps(comparison: Comparison, recommendation: Recommendation, folder: str, *, live: bool) -> list[str]:
    """List at most three sentences: the decision, and how to adapt it to one's own work and machine."""
    processor = comparison.observed.session.hardware.cpu_model
    measure_hint = (
        f"Measured on {processor}. To measure your stacks on your hardware, run "
        "`workbench run indicators -p live=true`."
    )
    weigh = "Weigh the metrics as your work does: `-p mix=Sort=0.7,Matmul=0.3`; without it, weights are equal."
    more = [] if recommendation.request.mix else [weigh]
    more += [] if live else [measure_hint]
    if not comparison.sound:
        return [_format_repetition(comparison), *([] if live else [measure_hint])]
    arms = comparison.observed.session.arms
    is_there = any(arm.name == recommendation.answer.stack and arm.packages and not arm.lock_sha256 for arm in arms)
    decision = _format_decision(recommendation, folder, is_there=is_there)
    if "RUN/" in decision:
        decision = f"{decision.removesuffix('.')}{RUN_NOTE}."
    return [decision, *more]


def _format_repetition(comparison: Comparison) -> str:
    """Advise what to do with an invalid session."""
    again = "`workbench indicators run --resume SESSION --more 10`"
    if comparison.judgement["rounds"][0] < MIN_ROUNDS:
        return f"Do not choose by this session yet; it has too few rounds: {again}."
    reasons = " ".join(comparison.judgement["reasons"][0].to_list())
    if "the control differs" in reasons:
        return "Do not choose by this session; measure again on a quieter machine, or with `--clock cpu`."
    return "Do not choose by this session; its reasons name what to measure again."


def _format_decision(recommendation: Recommendation, folder: str, *, is_there: bool) -> str:
    """The first next step: install or keep a stack, or measure more; `is_there`: it is an existing environment."""
    answer = recommendation.answer
    if answer.stack is None:
        return "Do not choose yet; the table of excluded stacks shows which constraint or check excluded each."
    # The options that repeat the recommendation.
    request = recommendation.request
    mix = ["--mix", request.mix] if request.mix else []
    kind = ["--type", request.type] if request.type != "performance" else []
    needed = [word for requirement in request.require for word in ("--require", requirement)]
    seed = ["--seed", str(request.seed)] if request.seed else []
    words = ["workbench", "indicators", "recommend", folder, *[*mix, *kind, *needed, *seed]]
    undecided = recommendation.table.select("rounds_needed", "n").iter_rows()
    pinned = f"; pinned, with hashes: `{shlex.join([*words, '--requirements', 'requirements.txt'])}`"
    verb, pinned = ("Use", ", which is already installed") if is_there else ("Install", pinned)
    sentences = {
        "better": f"{verb} {answer.stack}{pinned}.",
        "best left": f"{verb} {answer.stack}, since the baseline is excluded{pinned}.",
        "by type": f"{verb} {answer.stack} if its type fits: it was not chosen for speed.",
        "not decided": f"Keep {answer.stack}; to decide, measure more rounds: "
        f"`workbench indicators run --resume {shlex.quote(folder)} --more {count_more_rounds(undecided)}`"
        ", on the machine that measured it.",
    }
    return sentences.get(answer.kind, f"Keep {answer.stack}: no other stack is better by more than the margin.")


def format_recommendation(recommendation: Recommendation) -> str:
    """A recommendation as text."""
    lines = [recommendation.answer.claim, f"{recommendation.answer.sentence}.", _format_question(recommendation)]
    if recommendation.table.height:
        # Columns of RECOMMENDATIONS that a terminal shows, figures as percents and text.
        mark = pl.when(pl.col("recommended")).then(pl.lit("*")).otherwise(pl.lit("")).alias("pick")
        base = pl.when(pl.col("baseline")).then(pl.lit("baseline")).otherwise(pl.col("verdict")).alias("verdict")
        source = pl.when(pl.col("predicted")).then(pl.lit("predicted")).otherwise(pl.lit("measured")).alias("source")
        chances = [(100 * pl.col(name)).round(1).alias(f"{name}_pct") for name in ("p_best", "p_near")]
        stack_table = recommendation.table.select(
            "rank", mark, "stack", _effect_expression(), base, *chances, pl.col("regret_pct").round(2), "n", source
        )  # fmt: skip
        lines += ["", table(stack_table, caption="Stacks", limit=MAX_SHOWN_ROWS).text]
    if recommendation.excluded.height:
        lines += ["", f"Excluded ({recommendation.excluded.height})", *_format_exclusions(recommendation)]
    if recommendation.proposals.height:
        shown = recommendation.proposals.select("place", "stack", _effect_expression(), "n")
        lines += ["", table(shown, caption="Measure next, together with the baseline", limit=MAX_SHOWN_ROWS).text]
    if recommendation.answer.stack is not None:
        lines += ["", f"Why {recommendation.answer.stack}", *_format_reasons(recommendation)]
    if recommendation.unmeasured:
        hint = "--predict estimates them, --predict --next 3 proposes which to measure"
        lines += ["", f"{recommendation.unmeasured} solved stack(s) were not measured: {hint}"]
    return "\n".join(lines)


def build_recommendation_document(recommendation: Recommendation, folder: Path) -> dict[str, Any]:
    """A recommendation as one JSON document; paths of runs are relative to `folder`."""
    return {
        "session": recommendation.session_id,
        "folder": str(folder),
        "request": recommendation.request.model_dump(mode="json"),
        "mix": dict(recommendation.mix.weights),
        "margin": recommendation.margin,
        "answer": recommendation.answer.kind,
        "recommended": recommendation.answer.stack,
        "stack_key": recommendation.key,
        "as_good": list(recommendation.answer.as_good),
        "undecided": list(recommendation.answer.undecided),
        "claim": recommendation.answer.claim,
        "sentence": recommendation.answer.sentence,
        "stacks": recommendation.table.to_dicts(),
        "excluded": recommendation.excluded.to_dicts(),
        "proposals": recommendation.proposals.to_dicts(),
        "justification": [
            {"stack": sentence.stack, **sentence.justification.model_dump(mode="json")}
            for sentence in recommendation.sentences
        ],
        "unmeasured": recommendation.unmeasured,
    }


def _format_question(recommendation: Recommendation) -> str:
    level = recommendation.table["level"].first() if recommendation.table.height else None
    intervals = f"; intervals at {100 * level:.3g} %" if isinstance(level, float) else ""
    question = f"{recommendation.request.type} by {recommendation.mix}, session {recommendation.session_id}"
    return f"{question}; margin {100 * recommendation.margin:.2g} %{intervals}"


def _effect_expression() -> pl.Expr:
    """Expression of the effect with its interval, in percent, as text."""
    return (
        pl.struct("ratio", "low", "high")
        .map_elements(_format_effect, return_dtype=pl.String)
        .alias("against_baseline_pct")
    )  # fmt: skip


def _format_effect(row: dict[str, float | None]) -> str:
    ratio, low, high = row["ratio"], row["low"], row["high"]
    if ratio is None:
        return "-"
    if low is None or high is None:
        return f"{ratio_to_percent(ratio):+.1f}"
    return f"{ratio_to_percent(ratio):+.1f} [{ratio_to_percent(low):+.1f}, {ratio_to_percent(high):+.1f}]"


def _format_exclusions(recommendation: Recommendation) -> Iterator[str]:
    rows = recommendation.excluded.head(MAX_SHOWN_ROWS).iter_rows(named=True)
    for row in rows:
        see = f" ({row['link']})" if row["link"] else ""
        yield f"  {row['stack']}: {row['reason']}{see}"
    if recommendation.excluded.height > MAX_SHOWN_ROWS:
        yield f"  and {recommendation.excluded.height - MAX_SHOWN_ROWS} more: --json, or the table excluded"


def _format_reasons(recommendation: Recommendation) -> list[str]:
    lines = []
    for sentence in _select_sentences(recommendation):
        runs = len(sentence.evidence.runs)
        count = f"{runs} runs, first " if runs > 1 else ""
        see = f" ({count}{sentence.link})" if sentence.link else ""
        lines.append(f"  {sentence.type:<7} {sentence.message}{see}")
    more = len(lines) - MAX_SENTENCES
    return lines[:MAX_SENTENCES] + ([f"  and {more} more: --json, or the table justifications"] if more > 0 else [])


def _select_sentences(recommendation: Recommendation) -> list[Justification]:
    """Select all sentences about the answer and the session; of stacks as good, only the mix and the warnings."""
    shown = []
    for stack, sentence in recommendation.sentences[1:]:
        of_answer = stack in (None, recommendation.answer.stack)
        of_others = stack in (*recommendation.answer.as_good, *recommendation.answer.undecided) and (
            sentence.evidence.metric == MIX or sentence.type == "WARNING"
        )
        if (of_answer or of_others) and sentence.type != "ERROR":
            shown.append(sentence)
    return shown
