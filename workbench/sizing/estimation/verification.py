"""Verifies a predicted GPU count: drives its load and compares latency quantiles with the limits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.sizing.config import Goal, SweepConfig
from workbench.sizing.estimation import answer_profiles, metrics, step_points, sweep_store
from workbench.sizing.estimation.answer_profiles import AnswerProfile, ProbeCounts
from workbench.sizing.estimation.sizing_answer import SizingAnswer, find_recommended_gpus
from workbench.sizing.estimation.step_points import PointLimits, assess_steps, select_kept_requests
from workbench.sizing.load import sweep_journal, sweep_runner
from workbench.sizing.load.sweep_report import SweepResult, SweepWatcher
from workbench.sizing.tables import FAILING_VERDICTS, USABLE_VERDICTS, VERIFICATION
from workbench.stats import quantiles

Scope = Literal["per-GPU load", "whole load"]
SCOPES: dict[Scope, str] = {
    "per-GPU load": "test GPUs at their share of the load; routing and shared resources are not verified",
    "whole load": "predicted GPUs at the whole load",
}
FAULTY_VERDICTS = ("cached", "unsteady", "changed", "drift", "server-limited", "client-limited")
WORST_VERDICTS = (*FAILING_VERDICTS, *FAULTY_VERDICTS)
VERIFICATION_FACTOR = 4
"""Factor on samples and duration of a step: a prediction lies near its limit, so its verification needs more."""
VERIFICATION_FOLDER = "verification"
ANSWER_DRAWS = 500
MAX_MORE_ATTEMPTS = 2
MORE_GPUS_SHARE = 0.05
"""A prediction whose verification does not hold is at its limit: a few GPUs more decide, where measuring longer does
not."""


def share_load(load: float, gpus: int, test_gpus: int, *, whole: bool) -> list[float]:
    """Share of the load for the test GPUs when `gpus` GPUs share it evenly.

    Users are whole numbers: for a fractional share, the two whole loads around it are returned, none of them 0.

    >>> share_load(150, 18, 1, whole=True), share_load(144, 18, 2, whole=True)
    ([8.0, 9.0], [16.0])
    >>> share_load(30.0, 12, 2, whole=False)
    [5.0]
    """
    share = load * test_gpus / gpus
    if not whole or abs(share - round(share)) < 1e-9:
        return [share if not whole else float(max(1, round(share)))]
    return [float(around) for around in (math.floor(share), math.ceil(share)) if around]


@dataclass(frozen=True)
class Reference:
    """Of its sweep, for a verification: answers at the lowest load, whether the server's clock is right, probes."""

    answers: AnswerProfile | None = None
    trusts_server_clock: bool = True
    probes: ProbeCounts = field(default_factory=ProbeCounts)


def build_reference(requests: pl.DataFrame, steps: pl.DataFrame, limits: PointLimits) -> Reference:
    """Answers at the lowest load of a sweep; empty without a step.

    `requests`, `steps`: Tables of these names.
    """
    if not steps.height:
        return Reference()
    lowest = steps.sort("users", "rate_per_s", "step").row(0, named=True)
    sent = requests.filter(pl.col("step") == lowest["step"])
    assessment = step_points.assess_step(sent, lowest, limits, [metrics.DEFAULT_QUANTILE])
    wrong = lowest["users"] == 1 and assessment.point["verdict"] == "server-limited"
    if not requests["right"].count():
        return Reference(assessment.answers, not wrong)
    points, _ = assess_steps(requests, steps, limits=limits)
    usable = points.filter(pl.col("verdict").is_in(USABLE_VERDICTS))
    return Reference(assessment.answers, not wrong, ProbeCounts.read_points(usable.iter_rows(named=True)))


def verify_goals(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    goals: Sequence[Goal],
    *,
    predicted_gpus: int,
    load: float,
    limits: PointLimits | None = None,
    cut: str | None = None,
    reference: Reference | None = None,
) -> pl.DataFrame:
    """Compare each goal with the measurements at the predicted load.

    `requests`, `steps`: Raw tables of the verification run: one step, or two steps at the whole loads around the
    share of the test GPUs. Quantiles and intervals are then interpolated linearly.
    `cut`: Reason why the run ended early; null if it finished.

    Returns: Table `verification`. `held`: the 90 % interval is within the limit. `failed`: it is above the limit, or
    the point was interrupted. `undecided`: it contains the limit. `invalid`: the point is invalid or the run ended
    early.
    """
    if steps.height not in (1, 2):
        raise InputError("a verification needs one step, or two steps around its load", found=f"{steps.height} steps")
    points = _assess_points(requests, steps, replace(limits or PointLimits(), goals=tuple(goals)), reference)
    first = points[0]
    driven = first["load"] if steps.height == 1 else load * first["gpus"] / predicted_gpus
    users = dict(steps.select("step", "users").iter_rows())
    frames = [
        select_kept_requests(requests.filter(pl.col("step") == row["step"]), users[row["step"]]) for row in points
    ]
    simulated = bool(steps["simulated"].any())
    shared = _build_shared_columns(predicted_gpus, load, first["gpus"], driven, first["load_unit"], simulated=simulated)
    worst = min(points, key=_verdict_rank)
    rows = []
    for goal in goals:
        measured = [quantiles.estimate_quantile(metrics.metric_values(frame, goal.metric), goal.q) for frame in frames]
        # Row of table VERIFICATION for a goal: the quantile measured at the predicted size, and the verdict on it.
        quantile = _interpolate_quantile(measured, [point["load"] for point in points], driven)
        verdict, reason = _goal_verdict(goal, quantile, worst)
        ends = {"value_s": quantile.value, "low_s": quantile.low, "high_s": quantile.high}
        row = {
            "target": goal.name,
            "limit_s": goal.limit_s,
            "n": quantile.n,
            **{name: float(value) if np.isfinite(value) else None for name, value in ends.items()},
            "verdict": verdict,
            "reason": reason,
        }
        rows.append(shared | row | ({} if cut is None else {"verdict": "invalid", "reason": cut}))
    return VERIFICATION.frame(rows)


def _assess_points(
    requests: pl.DataFrame, steps: pl.DataFrame, limits: PointLimits, reference: Reference | None
) -> list[dict[str, Any]]:
    """Points of the verification's steps, by load; their answers are compared to those of the sweep.

    `requests`, `steps`: Tables of these names.
    """
    baseline = reference or Reference()
    limits = replace(limits, trusts_server_clock=baseline.trusts_server_clock)
    points, _ = assess_steps(requests, steps, limits=limits)
    return [_compare_answers(point, requests, steps, baseline, limits) for point in points.sort("load").to_dicts()]


def _compare_answers(
    point: dict[str, Any], requests: pl.DataFrame, steps: pl.DataFrame, baseline: Reference, limits: PointLimits
) -> dict[str, Any]:
    """Mark the point as one of other answers if these differ from those of the sweep's lowest load.

    `point`: Row of table POINTS. `requests`, `steps`: Tables of these names.
    """
    if baseline.answers is None or point["verdict"] in FAILING_VERDICTS:
        return point
    step = steps.filter(pl.col("step") == point["step"]).row(0, named=True)
    assessment = step_points.assess_step(
        requests.filter(pl.col("step") == point["step"]), step, limits, [metrics.DEFAULT_QUANTILE]
    )
    text = None
    if not limits.any_answer:
        text = answer_profiles.describe_other_answers(assessment.answers, baseline.answers, limits.max_error_ratio)
    text = text or ProbeCounts.read_points([point]).describe_fall(baseline.probes)
    return point if text is None else point | {"verdict": "other answers", "reason": f"{text} in the sweep"}


def _verdict_rank(point: dict[str, Any]) -> int:
    """Rank of the verdict; 0 is the worst."""
    verdict = point["verdict"]
    return WORST_VERDICTS.index(verdict) if verdict in WORST_VERDICTS else len(WORST_VERDICTS)


def verify_sweep(
    sweep: SweepResult,
    goals: Sequence[Goal],
    *,
    predicted_gpus: int,
    load: float,
    limits: PointLimits,
    reference: Reference | None = None,
) -> pl.DataFrame:
    """`verify_goals` for a sweep over the loads of `share_load` that may have ended early."""
    cut = None if sweep.ended == "finished" else f"the run ended early: {sweep.limit or sweep.ended}"
    if not sweep.steps.height:
        return VERIFICATION.frame([_build_undriven_row(goal, sweep, predicted_gpus, load, cut) for goal in goals])
    return verify_goals(
        sweep.requests,
        sweep.steps,
        goals,
        predicted_gpus=predicted_gpus,
        load=load,
        limits=limits,
        cut=cut,
        reference=reference,
    )


def _build_undriven_row(
    goal: Goal, sweep: SweepResult, predicted_gpus: int, load: float, cut: str | None
) -> dict[str, Any]:
    """Row of table VERIFICATION for a run whose limits were exhausted before it started."""
    unit = "1/s" if sweep.config.is_open else "users"
    return _build_shared_columns(predicted_gpus, load, sweep.config.gpus, 0.0, unit, simulated=sweep.simulated) | {
        "target": goal.name,
        "limit_s": goal.limit_s,
        "n": 0,
        **dict.fromkeys(("value_s", "low_s", "high_s")),
        "verdict": "invalid",
        "reason": cut,
    }


def _build_shared_columns(
    predicted_gpus: int, load: float, gpus: int, driven: float, unit: str, *, simulated: bool
) -> dict[str, Any]:
    """Columns of table VERIFICATION that all goals share: the predicted GPUs, and the load that was driven."""
    return {
        "predicted_gpus": predicted_gpus,
        "estimated_gpus": predicted_gpus,
        "load": float(load),
        "gpus": gpus,
        "driven_load": float(driven),
        "load_unit": unit,
        "scope": "whole load" if gpus == predicted_gpus else "per-GPU load",
        "simulated": simulated,
    }


def _interpolate_quantile(each: list[quantiles.Quantile], loads: list[float], driven: float) -> quantiles.Quantile:
    """Interpolate a quantile and its interval linearly between two driven loads."""
    if len(each) == 1:
        return each[0]
    share = (driven - loads[0]) / (loads[1] - loads[0])
    first, last = each
    names = ("value", "low", "high", "ok_only")
    mixed = {name: (1 - share) * getattr(first, name) + share * getattr(last, name) for name in names}
    return quantiles.Quantile(**mixed, n=first.n + last.n)


def _goal_verdict(goal: Goal, quantile: quantiles.Quantile, point: dict[str, Any]) -> tuple[str, str | None]:
    """Verdict on a goal (held, failed, undecided, invalid) and the reason; `point` is a row of table POINTS."""
    if point["verdict"] in FAILING_VERDICTS:
        return "failed", f"{point['verdict']}: {point['reason']}"
    if point["verdict"] in FAULTY_VERDICTS:
        return "invalid", f"{point['verdict']}: {point['reason']}"
    if not quantile.n or np.isnan(quantile.value):
        return "invalid", metrics.explain_missing(goal.metric, point["stream_note"])
    if quantile.high <= goal.limit_s:
        return "held", None
    if quantile.low > goal.limit_s:
        return "failed", f"{quantile.value:.4g} s [{quantile.low:.4g}, {quantile.high:.4g}] exceeds {goal.limit_s:g} s"
    return "undecided", f"{quantile.value:.4g} s [{quantile.low:.4g}, {quantile.high:.4g}] contains {goal.limit_s:g} s"


def verify_count(verify: Callable[[int], pl.DataFrame], gpus: int) -> pl.DataFrame:
    """Verify a count, and larger ones where that did not hold; the table of `settle_verification`.

    `verify`: Drives a count's load; returns table VERIFICATION.
    """
    tables = [verify(gpus)]
    while (count := find_next_count(tables)) is not None:
        tables.append(verify(count))
    return settle_verification(tables)


def find_next_count(tables: Sequence[pl.DataFrame]) -> int | None:
    """The count to verify after those of `tables`: a few more where the last failed or stayed undecided; null: none.

    >>> find_next_count([pl.DataFrame({"verdict": ["held", "undecided"], "predicted_gpus": [4, 4]})])
    5
    """
    verdicts = set(tables[-1]["verdict"])
    if len(tables) > MAX_MORE_ATTEMPTS or "invalid" in verdicts or not verdicts & {"failed", "undecided"}:
        return None
    count = int(tables[-1]["predicted_gpus"][0])
    return count + math.ceil(MORE_GPUS_SHARE * count)


def settle_verification(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Table VERIFICATION of the count that held, with the reason why fewer are not enough; of the first where none did.

    `tables`: One for each count, as verified.
    """
    first, last = tables[0], tables[-1]
    if len(tables) == 1 or not last["verdict"].eq("held").all():
        return first
    fewer, whys = tables[-2]["predicted_gpus"][0], dict(tables[-2].select("target", "reason").iter_rows())
    rows = last.to_dicts()
    for row in rows:
        row["estimated_gpus"] = first["predicted_gpus"][0]
        if (why := whys[row["target"]]) is not None:
            row["reason"] = f"{fewer} GPU{'' if fewer == 1 else 's'}: {why}"
    return VERIFICATION.frame(rows)


@dataclass(frozen=True)
class VerificationRun:
    """Table `verification`, and why the run ended: finished, interrupted or limit."""

    table: pl.DataFrame
    ended: str


def run_verification(
    folder: Path,
    *,
    url: str | None = None,
    gpus: int | None = None,
    predicted: int | None = None,
    target_confirm: str | None = None,
    limits: Mapping[str, Any] | None = None,
    watcher: SweepWatcher | None = None,
) -> VerificationRun:
    """Drive the predicted load and verify the goals; writes the table `verification` to the folder of the sweep.

    `url`, `gpus`: URL of the service and its number of GPUs; those of the sweep by default.
    `limits`: Any of `LIMIT_NAMES`, replacing those of the sweep. Limits apply to the sweep and its verifications
    together.
    """
    journal, config = sweep_journal.load_sweep_journal(folder)
    estimates = sweep_store.read_estimates(folder)
    count = predicted or _max_recommended_gpus(estimates)
    goals = [Goal(metric=row["metric"], q=row["q"], limit_s=row["limit_s"]) for row in estimates.iter_rows(named=True)]
    load, served = float(estimates["load"][0]), gpus or config.gpus
    loads = [load] if served == count else share_load(load, count, served, whole=not config.is_open)
    earlier = run_folder.list_run_folders(folder / VERIFICATION_FOLDER)
    settings = config.model_dump(mode="python", exclude_defaults=True) | build_verification_settings(
        config, loads, len(earlier)
    )
    settings |= {"goals": goals, "gpus": served}
    settings |= {name: value for name, value in (("url", url), ("target_confirm", target_confirm)) if value}
    settings |= {name: value for name, value in (limits or {}).items() if value is not None}
    before = journal.total_usage()
    for run in earlier:
        before = before.combine_with(sweep_journal.load_sweep_journal(run.folder)[0].total_usage())
    sweep = sweep_runner.run_sweep(
        out=folder / VERIFICATION_FOLDER, watcher=watcher, needs_listener=True, before=before, **settings
    )
    judged = PointLimits.from_config(config)
    reference = build_reference(journal.requests, journal.steps, judged)
    table = verify_sweep(sweep, goals, predicted_gpus=count, load=load, limits=judged, reference=reference)
    sweep_store.store_verification(table, folder)
    return VerificationRun(table, sweep.ended)


def answer_sweep(
    folder: Path,
    load: sweep_store.TargetLoad,
    *,
    price: float | None = None,
    currency: str = "",
    verified: bool = False,
    watcher: SweepWatcher | None = None,
) -> tuple[SizingAnswer, str]:
    """Answer of a sweep that has just ended, written to its folder; verified on the same service if requested.

    The second value says why the verification ended; `finished` if there was none.
    """
    answer = sweep_store.estimate_sweeps([folder], load, None, price, ANSWER_DRAWS, 0, currency)
    if not verified or answer.recommended is None:
        return answer, "finished"
    ended = "finished"

    def verify(gpus: int) -> pl.DataFrame:
        nonlocal ended
        run = run_verification(folder, predicted=gpus, watcher=watcher)
        ended = run.ended
        return run.table

    answer = answer.with_verification(verify_count(verify, answer.recommended))
    sweep_store.store_answer(answer, folder)
    return answer, ended


def describe_verification_cost(sweep: SweepResult, answer: SizingAnswer) -> str:
    """Requests and time of a verification at most, from what the sweep measured at the nearest load."""
    config = sweep.config
    count = answer.recommended or 1
    loads = share_load(answer.load, count, config.gpus, whole=not config.is_open)
    points = sweep.points.sort("load")
    rate = float(np.interp(loads[0], points["load"].to_numpy(), points["rate_per_s"].to_numpy()))
    n = VERIFICATION_FACTOR * config.max_samples * len(loads)
    longest_s = VERIFICATION_FACTOR * config.max_step_s * len(loads)
    time_s = min(longest_s, n / rate) if rate > 0 else longest_s
    return f"up to {n} requests, about {max(1, round(time_s / 60))} min"


def format_verification(table: pl.DataFrame, folder: Path) -> str:
    """Verdicts as text for the terminal.

    `table`: Table VERIFICATION.
    """
    lines = []
    for row in table.iter_rows(named=True):
        simulated = "simulated: " if row["simulated"] else ""
        values = "quantile falls among failures" if row["n"] else "no requests were sent"
        values = f"{row['value_s']:.4g} s" if row["value_s"] is not None else values
        ends = f" [{_format_bound(row['low_s'])}, {_format_bound(row['high_s'])}]" if row["value_s"] is not None else ""
        lines.append(f"{row['verdict'].upper()}: {simulated}{row['target']}: {values}{ends}, n = {row['n']}")
        if row["reason"]:
            lines.append(f"  {row['reason']}")
    first = table.row(0, named=True)
    unit = "users" if first["load_unit"] == "users" else "requests per second"
    gpus = "1 GPU" if first["gpus"] == 1 else f"{first['gpus']} GPUs"
    lines.append(f"{first['driven_load']:g} {unit} on {gpus}: {SCOPES[first['scope']]}")
    return "\n".join([*lines, f"written: {folder}"])


def verification_json(table: pl.DataFrame, folder: Path) -> str:
    """Format table VERIFICATION as a JSON document."""
    return json.dumps({"folder": str(folder), "verification": table.to_dicts()}, indent=1)


def _max_recommended_gpus(estimates: pl.DataFrame) -> int:
    """Largest recommended GPU count of table ESTIMATES; refused if a target has none."""
    count = find_recommended_gpus(estimates)
    if count is None:
        raise ConfigError(
            "no recommended GPU count to verify", do="set --predicted N, or measure the levels that it suggests"
        )
    return count


def build_verification_settings(config: SweepConfig, loads: list[float], n_earlier: int = 0) -> dict[str, Any]:
    """Settings of a verification that differ from its sweep: load levels, step limits, seed.

    A seed of the sweep or of one of its `n_earlier` verifications would repeat prompts that the service has cached.
    """
    levels = {"rates": loads} if config.is_open else {"users": [int(load) for load in loads]}
    return levels | {
        "most_samples": VERIFICATION_FACTOR * config.max_samples,
        "max_step_s": VERIFICATION_FACTOR * config.max_step_s,
        "tight": config.tight / 2,
        "seed": (config.seed + 1 + n_earlier) % 2**63,
        # A file's prompts were all sent by the sweep; only another beginning shows what a cache has answered.
        **({"unique_prefix": True} if config.prompts is not None else {}),
        **({} if config.speed is None else {"speed": None}),
    }


def _format_bound(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"
