"""What the command prints about a recording: the plan before, the outcome after."""

from __future__ import annotations

import polars as pl
from pydantic import ValidationError

from workbench.formats import size
from workbench.speedup.recording import plan
from workbench.speedup.recording.config import RecordConfig
from workbench.speedup.recording.recorder import Outcome

MAX_REASONS = 30


def problems(error: ValidationError) -> list[str]:
    """Every option that is out of range, and why."""
    return [
        f"--{str(one['loc'][0]).replace('_', '-')}: {one['msg']}"
        for one in error.errors(include_url=False)
        if one["loc"]
    ]


def plan_text(config: RecordConfig) -> str:
    """What would be run: suite, tables, sides with their settings, sessions in their order. Nothing is fetched.

    Raises
    ------
    ConfigError, InputError, MissingToolError
        As `plan.prepare`.
    """
    prepared = plan.prepare(config, say=lambda _: None, dry=True)
    scale = f", scale {prepared.data.scale:g}" if prepared.data.scale else ""
    lines = [
        f"{len(prepared.suite.queries)} queries of {prepared.suite.name} on {prepared.data.source}{scale}",
        f"{config.sessions} sessions x {config.passes} passes a side, master {config.master}, seed {config.seed}",
        *(f"  {key}={value}" for key, value in plan.shown(prepared.shared).items()),
    ]
    for side in prepared.sides:
        jar = f" with {side.artifact.coordinate}" if side.artifact else ""
        lines += [
            f"side {side.label}: {side.engine}{jar}",
            *(f"  {key}={value}" for key, value in plan.shown(side.settings).items()),
        ]
    order = plan.sequence([side.label for side in prepared.sides], config.seed, config.sessions)
    lines.append("order: " + ", ".join(f"{label} {number}" for label, number in order))
    return "\n".join(lines)


def outcome_text(outcome: Outcome) -> str:
    """What was recorded, how the sides compare at first sight, what is not good, where it lies."""
    recording = outcome.recording
    logs = list(recording.logs())
    n_bytes = sum(path.stat().st_size for _, _, path in logs)
    lines = [
        f"{len(logs)} sessions x {recording.n_passes} passes of {len(recording.suite.queries)} queries, "
        f"logs of {size(n_bytes)}"
    ]
    lines += [f"  {row['label']}: {_side_text(row)}" for row in _by_side(outcome).iter_rows(named=True)]
    warnings = sorted({warning.split(":")[0] for one in recording.sessions for warning in one.warnings})
    lines += [f"warning: {text} (see {recording.folder / 'recording.json'})" for text in warnings]
    lines += [f"not good: {reason}" for reason in outcome.reasons[:MAX_REASONS]]
    if len(outcome.reasons) > MAX_REASONS:
        lines.append(f"not good: and {len(outcome.reasons) - MAX_REASONS} more")
    if not outcome.reasons and len(recording.sides) > 1:
        lines.append("all answers are those of the first side")
    return "\n".join([*lines, str(recording.folder / "recording.json")])


def _by_side(outcome: Outcome) -> pl.DataFrame:
    """Warm passes of queries that count on all sides; the sum over queries of their medians."""
    recording = outcome.recording
    good = pl.col("status").eq("ok") & ~pl.col("query").is_in(list(recording.bad_queries()))
    warm = recording.executions().filter(good & ((pl.col("pass") > 1) | pl.lit(recording.n_passes == 1)))
    medians = warm.group_by("label", "query").agg(pl.col("duration_s").median(), n=pl.len())
    return (
        medians.group_by("label")
        .agg(pl.col("duration_s").sum(), n_queries=pl.len())
        .sort(pl.col("label").replace_strict({name: place for place, name in enumerate(recording.labels)}))
    )


def _side_text(row: dict[str, object]) -> str:
    return f"{row['duration_s']:.2f} s for {row['n_queries']} queries, the sum of their warm medians"
