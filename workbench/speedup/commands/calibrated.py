"""The calibrated method behind `generate` and `validate`: read, compute, write, say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workbench.terminal import say

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs import Run
    from workbench.speedup.calibrated import Calibrated
    from workbench.speedup.pair import Pair


def load_pair(
    recording: Path | None,
    baseline_logs: Sequence[str],
    candidate_logs: Sequence[str],
    baseline: str | None,
    candidate: str | None,
) -> Pair:
    """The pair that the options name: a recording, or logs of both sides."""
    from workbench.errors import ConfigError
    from workbench.speedup import pair

    if recording is not None and (baseline_logs or candidate_logs):
        raise ConfigError("a recording and logs", do="give the folder of a recording, or --cpu and --gpu, not both")
    if recording is not None:
        return pair.from_recording(recording, baseline, candidate)
    if not baseline_logs or not candidate_logs:
        raise ConfigError(
            "nothing to compare",
            do="give the folder of a recording (workbench speedup record makes one), or logs: --cpu LOG --gpu LOG",
        )
    named = (baseline or "baseline", candidate or "candidate") if baseline or candidate else None
    return pair.from_logs(baseline_logs, candidate_logs, named)


def calibrate(found: Pair, level: float) -> Calibrated:
    """Factors of a pair, with where they come from in the model."""
    from workbench import host
    from workbench.speedup import calibrated

    result = calibrated.calibrate(found.measured, found.baseline, found.candidate, level=level, engines=found.engines)
    differing = found.comparability.filter(found.comparability["severity"] != "ok").to_dicts()
    model = result.model.model_copy(update={"sources": found.sources, "comparability": differing, "host": host.facts()})
    return calibrated.with_model(result, model)


def generate(found: Pair, output: Path, *, out: Path | None, level: float, as_json: bool) -> int:
    """Write the factor model (or the original tools' CSV) and say what was found; the exit code."""
    from workbench.display import table
    from workbench.speedup import calibrated_tables as tables
    from workbench.speedup.comparability import COMPARABILITY
    from workbench.speedup.export import export_upstream
    from workbench.speedup.measured import EXECUTIONS

    result = calibrate(found, level)
    notes: list[str] = []
    if output.suffix.lower() == ".csv":
        notes += export_upstream(result.model, output)
    else:
        result.model.write(output)
    if out is not None:
        run = _run(out, "Factors", {"output": str(output), "level": level}, "workbench speedup generate")
        for declared, frame in (
            (tables.FACTORS, result.factors),
            (tables.PAIRS, result.pairs),
            (COMPARABILITY, found.comparability),
            (EXECUTIONS, found.measured.executions),
        ):
            run.write_table(declared, frame)
        run.conclude("invalid" if found.reasons else "valid", found.reasons, result.answer)
    if as_json:
        _print_json(result.answer, found, {"factors": result.factors, "pairs": result.pairs}, {"output": str(output)})
    else:
        say(result.answer)
        _say_pair(found)
        say(_short(result.factors, table, tables.FACTORS))
        for note in notes:
            say(f"note: {note}")
        say(f"written: {output}" + (f", {out}" if out else ""))
    return 1 if found.reasons else 0


def seed_ratios(found: Pair, queries: Sequence[str]) -> dict[str, float] | None:
    """The seed method's estimates of left-out queries; null where it does not apply: it knows plain against fast."""
    from workbench.speedup.seed.left_out import left_out_ratios

    if found.engines[0] != "spark" or found.engines[1] == "spark":
        return None
    return left_out_ratios(*found.logs, queries)


def validate(found: Pair, *, out: Path | None, level: float, seed: bool, as_json: bool) -> int:
    """Leave each query out and say how well it was predicted; the exit code."""
    from workbench.display import table
    from workbench.speedup import calibrated_tables as tables
    from workbench.speedup import validation

    result = calibrate(found, level)
    ratios = seed_ratios(found, result.queries) if seed else None
    checked = validation.validate(result, seed_ratios=ratios, level=level)
    if out is not None:
        run = _run(out, "Validation", {"level": level}, "workbench speedup validate")
        for declared, frame in ((tables.VALIDATION, checked.validation), (tables.SCORES, checked.scores)):
            run.write_table(declared, frame)
        run.conclude("invalid" if found.reasons else "valid", found.reasons, checked.answer)
    if as_json:
        _print_json(checked.answer, found, {"scores": checked.scores, "validation": checked.validation}, {})
        return 1 if found.reasons else 0
    say(f"{result.answer}\n{checked.answer}")
    _say_pair(found)
    narrow = checked.scores.drop("mean_low", "mean_high", "mean_over_constant_low", "mean_over_constant_high")
    say(table(narrow, tables.SCORES, caption="Predictors over left-out queries").text)
    mine = checked.validation.filter(checked.validation["predictor"] == validation.CALIBRATED)
    mine = mine.drop("predictor", "time_weight", "absolute_error_share")
    say(table(mine, tables.VALIDATION, caption="Each query predicted from the others", limit=100).text)
    return 1 if found.reasons else 0


def _short(factors: pl.DataFrame, table: object, declared: object) -> str:
    columns = ["operator", "factor", "factor_low", "factor_high", "verdict", "quality", "baseline_share", "n_queries"]
    return str(table(factors.select(columns), declared, caption="Factors, most time first", limit=40).text)  # type: ignore[operator]


def _say_pair(found: Pair) -> None:
    for reason in found.reasons:
        say(f"invalid: {reason}")
    for warning in found.warnings:
        say(f"warning: {warning}")


def _run(out: Path, title: str, config: dict[str, object], command: str) -> Run:
    from workbench import runs

    return runs.start("speedup", folder=out, title=title, config=config, command=command)


def _print_json(answer: str, found: Pair, frames: dict[str, pl.DataFrame], more: dict[str, object]) -> None:
    document: dict[str, object] = {
        "answer": answer,
        "verdict": "invalid" if found.reasons else "valid",
        "reasons": list(found.reasons),
        "warnings": list(found.warnings),
        **more,
    }
    document |= {name: frame.to_dicts() for name, frame in frames.items()}
    typer.echo(json.dumps(document, indent=2))
