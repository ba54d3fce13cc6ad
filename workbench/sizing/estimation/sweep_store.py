"""Stores sizing answers in sweep folders, reads them back and formats them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_cost_unit, format_number
from workbench.runs import run_folder
from workbench.sizing.config import Goal, SweepConfig
from workbench.sizing.estimation.serving_costs import select_costs
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer, concat_sweeps
from workbench.sizing.estimation.step_points import (
    PointLimits,
    describe_time_scale,
    mean_session_turns,
    select_kept_requests,
)
from workbench.sizing.load import sweep_journal
from workbench.sizing.tables import ESTIMATES, GOODPUT, POINTS, QUANTILES, SCALING, STEPS, VERIFICATION

MAX_PRINTED_POINTS = 40
SERVED_COLUMNS = ("within_share", "goodput_per_s", "goodput_per_gpu", "tokens_per_s_per_gpu")
SESSIONS_UNIT = "sessions/s"


@dataclass(frozen=True)
class TargetLoad:
    """Load to be served."""

    value: float
    unit: str


def choose_target_load(
    users: float | None, rate_per_s: float | None, sessions_per_s: float | None = None
) -> TargetLoad:
    """Build the target load from users, requests or sessions a second, of which one is given."""
    given = {
        "--target-users": (users, "users"),
        "--target-rate": (rate_per_s, "1/s"),
        "--target-sessions": (sessions_per_s, SESSIONS_UNIT),
    }
    loads = [(where, TargetLoad(value, unit)) for where, (value, unit) in given.items() if value is not None]
    if len(loads) != 1:
        do = "give --target-users N, or --target-rate R for open loops, or --target-sessions S for those with sessions"
        raise ConfigError("how many users?", do=do)
    where, load = loads[0]
    if not load.value > 0:
        raise ConfigError("nobody is to be served", where=where, found=load.value, allowed="more than 0")
    return load


def estimate_sweeps(
    folders: Sequence[Path],
    load: TargetLoad,
    goals: Sequence[str] | None,
    price: float | None,
    draws: int,
    seed: int,
    currency: str = "",
) -> SizingAnswer:
    """The answer of one or several sweeps, kept in the first folder."""
    read = [sweep_journal.load_sweep_journal(folder) for folder in folders]
    wanted = [Goal.read(text) for text in goals] if goals else _collect_goals([config for _, config in read])
    requests, steps, samples = concat_sweeps([(sweep.requests, sweep.steps, sweep.server_metrics) for sweep, _ in read])
    load = _count_requests(load, requests, steps)
    check_load_unit(steps, load)
    limits = PointLimits.from_config(read[0][1])
    wanted_loop = steps["loop"] == ("closed" if load.unit == "users" else "open")
    chosen = steps.filter(wanted_loop)
    answer = compute_answer(
        requests.filter(requests["step"].is_in(chosen["step"].implode())),
        chosen,
        wanted,
        load.value,
        limits=limits,
        gpu_price_per_hour=price,
        currency=currency,
        draws=draws,
        seed=seed,
        server_metrics=samples,
        served=read[0][1].served,
    )
    if chosen.height < steps.height:
        answer = replace(answer, left_out=f"{steps.height - chosen.height} levels of another kind of load are excluded")
    store_answer(answer, folders[0])
    return answer


def _count_requests(load: TargetLoad, requests: pl.DataFrame, steps: pl.DataFrame) -> TargetLoad:
    """The load as requests a second where it is in sessions; their turns are those that were measured."""
    if load.unit != SESSIONS_UNIT:
        return load
    sent = [(requests.filter(requests["step"] == step), users) for step, users in steps["step", "users"].iter_rows()]
    means = [mean_session_turns(select_kept_requests(one, users)) for one, users in sent]
    turns = [mean for mean in means if mean is not None]
    if not turns:
        do = "give --target-rate, or measure a trace with sessions"
        raise ConfigError("the sweep has no sessions", where="--target-sessions", found=load.value, do=do)
    return TargetLoad(load.value * statistics.median(turns), "1/s")


def check_load_unit(steps: pl.DataFrame, load: TargetLoad) -> None:
    """Refuse a load in users for an open loop, and a rate for a closed one. `steps`: `loop` of table STEPS.

    >>> import polars as pl
    >>> check_load_unit(pl.DataFrame({"loop": ["closed"]}), TargetLoad(100, "users"))
    """
    measured = {"closed": "users", "open": "1/s"}
    units = [measured[loop] for loop in steps["loop"].unique()]
    if units and load.unit not in units:
        option = "--target-users" if "users" in units else "--target-rate"
        finding = f"levels in {units[0]}"
        raise ConfigError("the sweep measured another kind of load", found=finding, do=f"give {option}")


def _collect_goals(configs: Sequence[SweepConfig]) -> list[Goal]:
    goals = list(dict.fromkeys(goal for config in configs for goal in config.goals))
    if not goals:
        raise ConfigError("the sweep has no goal", where="--goal", do="give --goal, such as p95<=2")
    return goals


def store_answer(answer: SizingAnswer, folder: Path) -> None:
    """Write the answer's tables into a sweep's folder, and conclude it; what an earlier answer had more goes."""
    run = run_folder.load_run(folder)
    tables = {POINTS: answer.points, QUANTILES: answer.quantiles, ESTIMATES: answer.estimates, GOODPUT: answer.goodput}
    if answer.scaling.height:
        tables[SCALING] = answer.scaling
    if answer.verification is not None:
        tables[VERIFICATION] = answer.verification
    for table in (SCALING, VERIFICATION):
        if table not in tables:
            table.path(run.tables_folder).unlink(missing_ok=True)
            run.record["tables"] = [entry for entry in run.record["tables"] if entry["name"] != table.name]
    for table, frame in tables.items():
        run.write_table(table, frame)
    _conclude_run(run, answer)


def store_verification(table: pl.DataFrame, folder: Path) -> None:
    """Write a verification beside the stored answer, and conclude the answer anew.

    A verification of another count than the recommended one says nothing of the answer, which stays as it was.
    """
    run = run_folder.load_run(folder)
    run.write_table(VERIFICATION, table)
    # The answer as `keep` left it, without a verification.
    estimates, steps = run.read_table(ESTIMATES), run.read_table(STEPS)
    first = estimates.row(0, named=True)
    answer = SizingAnswer(
        load=first["load"],
        load_unit=first["load_unit"],
        points=run.read_table(POINTS),
        quantiles=run.read_table(QUANTILES),
        estimates=estimates,
        goodput=run.read_table(GOODPUT),
        scaling=run.read_table(SCALING) if SCALING.path(run.tables_folder).is_file() else SCALING.frame([]),
        simulated=bool(steps["simulated"].any()),
        scale_note=describe_time_scale(steps),
    )
    if table["predicted_gpus"].eq(answer.recommended).all():
        _conclude_run(run, answer.with_verification(table))


def _conclude_run(run: run_folder.Run, answer: SizingAnswer) -> None:
    run.conclude(
        "invalid" if answer.reasons else "valid",
        answer.reasons,
        answer.sentence,
        details=answer.details,
        conditions=answer.conditions,
    )
    run.save()


def read_estimates(folder: Path) -> pl.DataFrame:
    """The table `estimates` of a sweep's folder."""
    run = run_folder.load_run(folder)
    if not (run.tables_folder / f"{ESTIMATES.name}.parquet").exists():
        raise InputError(
            "nothing was estimated yet", where=folder, do=f"workbench sizing estimate {folder} --target-users N"
        )
    return run.read_table(ESTIMATES)


def format_sizing_answer(answer: SizingAnswer, folder: Path) -> str:
    """The answer for people."""
    from workbench.report.display import table

    lines = [answer.sentence, *answer.details, *(f"note: {note}" for note in answer.notes)]
    lines += [f"note: {condition}" for condition in answer.conditions] + [""]
    columns = ("target", "method", "capacity", "capacity_low", "capacity_high", "gpus", "gpus_low", "gpus_high")
    lines.append(table(answer.estimates.select(*columns, "recommended", "slope_gpus"), caption="GPUs by target").text)
    if answer.scaling.height:
        names = ("target", "model", "per_gpu", "contention", "coherency", "miss_cost", "gpus", "gpus_low", "gpus_high")
        lines.append(table(answer.scaling.select(names), caption="By law").text)
    served = answer.goodput.join(answer.points.select("step", "verdict"), on="step")
    rates = served.select("load", *SERVED_COLUMNS, "verdict")
    lines.append(table(rates, caption="Served within all targets", limit=MAX_PRINTED_POINTS).text)
    if (costs := select_costs(answer.goodput)) is not None:
        lines.append(table(costs.drop("step"), caption=answer.cost_caption, limit=MAX_PRINTED_POINTS).text)
    if answer.verification is not None:
        driven = answer.verification.select(
            "target", "gpus", "driven_load", "n", "value_s", "low_s", "high_s", "limit_s", "verdict"
        )
        lines.append(table(driven, caption="Verification").text)
    if answer.sessions_per_hour is not None:
        sessions = f"of {answer.session_turns:.2g} turns and {format_number(answer.session_s)} s"
        lines.append(f"sessions: about {format_number(answer.sessions_per_hour)} an hour, {sessions}")
    if answer.cost_per_hour is not None:
        unit = format_cost_unit(answer.currency, "an hour")
        lines.append(f"cost of the recommended GPUs: {answer.cost_per_hour:g} {unit}")
    lines += [f"invalid: {reason}" for reason in answer.reasons]
    return "\n".join([*lines, f"written: {folder}"])


def sizing_answer_json(answer: SizingAnswer, folder: Path) -> str:
    """The answer as one JSON document."""
    tables = {
        "estimates": answer.estimates,
        "points": answer.points,
        "goodput": answer.goodput,
        "scaling": answer.scaling,
        "verification": answer.verification,
        "books": answer.books,
    }
    return json.dumps(
        {
            "folder": str(folder),
            "answer": answer.sentence,
            "details": answer.details,
            "recommended": answer.recommended,
            "cost_per_hour": answer.cost_per_hour,
            "currency": answer.currency,
            "sessions_per_hour": answer.sessions_per_hour,
            "session_s": answer.session_s,
            "simulated": answer.simulated,
            "reasons": answer.reasons,
            "notes": answer.notes,
            **{name: frame.to_dicts() if frame is not None else None for name, frame in tables.items()},
        },
        indent=1,
    )
