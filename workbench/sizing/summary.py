"""Key numbers and next steps below the answer of the sizing notebook."""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import polars as pl

from workbench.core.formats import format_cost_unit, format_number
from workbench.report.display import MAX_KEY_NUMBERS, KeyNumber
from workbench.sizing.config import NotebookConfig
from workbench.sizing.deployment.replica_plan import estimate_in_flight_per_replica
from workbench.sizing.estimation.metrics import format_quantile
from workbench.sizing.estimation.sizing_answer import SizingAnswer, find_carried_point

COST_LABELS = (("cost of a million tokens", "cost_per_million_tokens"), ("cost of 1,000 requests", "cost_per_1000"))
_PLAN_STEP = (
    "Cost and nodes, together with Spark jobs: `workbench run capacity_plan -p sizing=RUN` (RUN: this report's folder)."
)


def build_key_numbers(answer: SizingAnswer) -> list[KeyNumber]:
    """GPUs with their interval, what the test GPUs carry, the quantile at the load, goodput; cost, energy, slope.

    The last ones only as far as a headline has room; tables have them all.
    """
    row = answer.binding or (answer.estimates.row(0, named=True) if answer.estimates.height else {})
    if not row:
        return []
    unit = "users" if row["load_unit"] == "users" else "per s"
    gpus = (
        ""
        if row["gpus"] is None
        else f"{format_number(row['gpus'])} {_format_interval(row['gpus_low'], row['gpus_high'])}"
    )
    numbers: list[KeyNumber] = [
        ("recommended", answer.recommended, "GPUs", gpus),
        (
            _capacity_label(row["test_gpus"]),
            row["capacity"],
            unit,
            _format_interval(row["capacity_low"], row["capacity_high"]),
        ),
    ]
    if answer.sessions_per_hour is not None:
        sessions = f"of {answer.session_turns:.2g} turns, {format_number(answer.session_s)} s"
        numbers.append(("sessions", answer.sessions_per_hour, "an hour", sessions))
    # Key number of the verification for one target: value in seconds with its interval, null if not verified.
    name = f"{format_quantile(row['metric'], row['q'])} at that load"
    if answer.verification is None or not answer.verification.height:
        number = [(name, None, "s", "not verified")]
    else:
        verdict_row = answer.verification.filter(target=row["target"]).row(0, named=True)
        interval = _format_interval(verdict_row["low_s"], verdict_row["high_s"])
        note = f"{interval} {verdict_row['verdict']}, {verdict_row['scope']}"
        number = [(name, verdict_row["value_s"], "s", note)]
    numbers += [*number, *_serving_numbers(answer, row)]
    slope = row["slope_gpus"]
    numbers.append(("straight-line method", slope, "GPUs", "slope-based, the same points, no interval"))
    return numbers[:MAX_KEY_NUMBERS]


def _capacity_label(gpus: int) -> str:
    return f"{gpus} test GPU{' carries' if gpus == 1 else 's carry'}"


def _serving_numbers(answer: SizingAnswer, row: dict[str, Any]) -> list[KeyNumber]:
    """Key numbers of goodput, costs and energy at the largest load within the capacity, at which it should run."""
    numbers: list[KeyNumber] = []
    if answer.cost_per_hour is not None:
        price = f"{format_number(answer.gpu_price_per_hour)} {format_cost_unit(answer.currency, 'a GPU')}"
        numbers.append(("cost", answer.cost_per_hour, format_cost_unit(answer.currency, "an hour"), f"at {price}"))
    best = None if row["capacity"] is None else find_carried_point(answer.points, row)
    if best is None:
        return numbers
    served = answer.goodput.filter(step=best["step"]).row(0, named=True)
    unit = "users" if row["load_unit"] == "users" else "a second"
    in_time = "in time: unknown" if served["within_share"] is None else f"{100 * served['within_share']:.1f} % in time"
    note = f"at {best['load']:g} {unit}, {in_time}"
    goodput: KeyNumber = ("goodput of a GPU", served["goodput_per_gpu"], "requests/s", note)
    return [goodput, *numbers, *_unit_numbers(served, f"at {best['load']:g} {unit}", answer.currency)]


def _unit_numbers(served: dict[str, Any], place: str, currency: str) -> list[KeyNumber]:
    """Key numbers of one row of table GOODPUT: cost of tokens, else of requests, with its interval, and energy."""
    numbers: list[KeyNumber] = []
    for label, name in COST_LABELS:
        if served[name] is not None:
            interval = _format_interval(served[f"{name}_low"], served[f"{name}_high"])
            numbers.append((label, served[name], format_cost_unit(currency), f"{interval} {place}"))
            break
    joules = served["joules_per_token"]
    return numbers if joules is None else [*numbers, ("energy of a token", joules, "J", place)]


def _format_interval(low: float | None, high: float | None) -> str:
    return "(no interval)" if low is None and high is None else f"[{format_number(low)}, {format_number(high)}]"


def _measure_own_step(answer: SizingAnswer) -> str:
    """The command for one's own service, with the goals and the load of this answer."""
    goals = '" --goal "'.join(
        f"{format_quantile(row['metric'], row['q'])}<={row['limit_s']:g}"
        for row in answer.estimates.iter_rows(named=True)
    )
    about = "This service is simulated. Measure yours:"
    load = f"{answer.load:g}"
    if answer.load_unit == "users":
        return f'{about} `workbench sizing run --url URL --goal "{goals}" --target-users {load} --verify`.'
    return (
        f'{about} `workbench sizing run --url URL --goal "{goals}" --arrivals poisson --target-rate {load} --verify`.'
    )


def format_parameters(config: NotebookConfig) -> str:
    """The load and all other parameters of a report that were set, as `-p` takes them, from the load on.

    >>> from workbench.sizing.config import NotebookConfig
    >>> print(format_parameters(NotebookConfig(users=60, goals=["p95<=2"], live=True)))
    60 -p 'goals=["p95<=2"]' -p live=true
    """
    parameters = config.model_dump(mode="json", exclude_defaults=True, exclude={"users"})
    parts = (f"{name}={json.dumps(value)}" for name, value in parameters.items() if name != "settings")
    return " -p ".join([f"{config.users:g}", *(shlex.quote(part) for part in parts)])


def list_next_steps(answer: SizingAnswer, config: NotebookConfig | None = None) -> list[str]:
    """Recommend the GPUs to plan with, or name the obstacle; then the service to deploy, or the plan to make.

    `config` is that of the report, whose parameters the commands carry on.
    """
    row, gpus = answer.binding, answer.recommended
    after = _measure_own_step(answer) if answer.simulated else _PLAN_STEP
    if gpus is None or row is None:
        return ["Do not plan with a number yet: correct the reasons above, then measure again.", after]
    verdicts = set() if answer.verification is None else set(answer.verification["verdict"].to_list())
    if answer.reasons and not verdicts & {"failed", "undecided"}:
        return [
            f"Do not plan with {_format_gpu_count(gpus)} yet: correct the reasons above, then measure again.",
            after,
        ]
    # Next step after the verification of `gpus`, by the set of its verdicts; empty if it was not made.
    counted = _format_gpu_count(gpus)
    if "failed" in verdicts:
        targets = answer.verification.filter(pl.col("verdict") == "failed") if answer.verification is not None else None
        missed = "" if targets is None else ", ".join(targets["target"].to_list())
        for_verdicts = f"Do not plan with {counted}: driven with its load, {missed} failed. Measure more GPU counts."
    elif verdicts == {"held"}:
        service = f"{answer.served or 'a service'} as simulated" if answer.simulated else "this service"
        # Command that writes the manifests, with the requests in flight (not the users) that one GPU carries.
        each = math.floor(estimate_in_flight_per_replica(row, answer.points, 1) or 0)
        command = f"workbench sizing manifests --gpus {gpus} --in-flight {each or 'N'}"
        for_verdicts = f"Plan with {counted} for {service}. To deploy it: `{command}`."
    elif verdicts:
        carried = f"{answer.load:g}" if config is None else format_parameters(config)
        other_settings = (
            [] if config is None else [setting for setting in config.settings if not setting.startswith("most_samples")]
        )
        settings = json.dumps([*other_settings, "most_samples=20000"])
        more = f"`workbench run sizing -p users={carried} -p 'settings={settings}'`"
        for_verdicts = f"Not decided whether {counted} are enough: measure more requests before you plan, {more}."
    else:
        for_verdicts = f"Verify {counted} before you plan with them: `workbench sizing verify SWEEP --gpus {gpus}`."
    return [for_verdicts, after]


def _format_gpu_count(gpus: int) -> str:
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"
