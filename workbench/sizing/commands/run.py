"""`workbench sizing run`: measures a service at one load after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.sizing.commands.estimate import Currency, Price, Rate, Sessions, Users

if TYPE_CHECKING:
    from workbench.sizing.estimation.sweep_store import TargetLoad

_GOAL_HELP = "Goal such as p95<=2 (seconds) or 'ttft p99<=300ms'; levels are chosen around its limit. Repeatable."
Verify = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify",
        help="Drive the service at the predicted load. Default: on this machine yes, elsewhere no.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Create the sweep's folder below this one.")]
Resume = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Resume the sweep in this folder; only limits may change.")
]


PerHour = Annotated[
    float | None,
    typer.Option("--users-per-hour", help="Sessions that begin in an hour, instead of --target-users.", min=0),
]
SessionLength = Annotated[
    float | None,
    typer.Option("--session-length", metavar="S", help="Their length. Default: by turns and think time.", min=0),
]


@take_options_from(
    "workbench.sizing.config:SweepConfig",
    "goals",
    {
        "protocol": FieldOption(default="nat"),
        "goals": FieldOption("goal", kind=list[str], metavar="GOAL", help=_GOAL_HELP),
    },
    units={"s": "S"},
    groups=("Service", "Requests", "Load", "Precision", "Limits and prices"),
)
def run(
    option_values: OptionValues,
    target_users: Users = None,
    target_rate: Rate = None,
    target_sessions: Sessions = None,
    users_per_hour: PerHour = None,
    session_length: SessionLength = None,
    gpu_price: Price = None,
    currency: Currency = "",
    verify: Verify = None,
    out: Out = None,
    resume: Resume = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure a service at one load level after the other, and record every request.

    A level is a number of concurrent requests, or of users with --think-time. A step ends when its p95 is known
    precisely enough; its warm-up is dropped. Each step is written as it ends: Ctrl-C keeps the finished ones, and
    --resume continues. Retries, timeouts and failures are counted by kind.

    With --target-users, --target-rate or --target-sessions it also estimates the GPUs, with an interval, and drives the
    service at the predicted load: without being asked on this machine, with --verify elsewhere. Drift, warm caches and
    routing show only there; an answer without it says "not verified".

    Exit code 0 when all points are valid, 1 when some are not or a limit ended the sweep. With a target: 0 when there
    is an answer (and it held, where it was verified), else 1. 130 after Ctrl-C.

    Example: workbench sizing run --url http://127.0.0.1:8000 --goal "p95<=2" --target-users 150 --verify
    """
    settings = _complete_settings(option_values, is_resumed=resume is not None)
    if users_per_hour is not None or session_length is not None:
        target_users = convert_sessions(settings, users_per_hour, session_length, target_users)
    target = None
    if any(value is not None for value in (target_users, target_rate, target_sessions)):
        from workbench.sizing.estimation.sweep_store import choose_target_load

        target = choose_target_load(target_users, target_rate, target_sessions)
        _check_target(settings, target, is_resumed=resume is not None)
    if target is None and (verify or gpu_price is not None):
        from workbench.core.errors import ConfigError

        raise ConfigError("no load to size for", where="--target-users", do="add --target-users N or --target-rate R")
    prices = {"price": gpu_price, "currency": currency}
    _run_and_print(settings, target, prices, out=out, resume=resume, verify=verify, as_json=as_json)


def _complete_settings(option_values: OptionValues, *, is_resumed: bool) -> dict[str, Any]:
    """Build the settings of a sweep from the options.

    Those of a new sweep are checked, a resumed one has the others.
    """
    from datetime import datetime

    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.sizing.config import Goal, SweepConfig

    if option_values.get("function"):
        option_values["protocol"] = "function"
    if "method" in option_values:
        option_values["method"] = option_values["method"].upper()
    if "goals" in option_values:
        option_values["goals"] = [Goal.read(text) for text in option_values["goals"]]
    if option_values.get("least_samples", 0) > 1000:
        option_values.setdefault("most_samples", option_values["least_samples"])
    if is_resumed:
        return option_values
    if not (option_values.get("url") or option_values.get("function")):
        raise ConfigError(
            "no service to measure", where="--url", do="add --url URL or --function MODULE:NAME, or --resume a sweep"
        )
    # Tell how long sessions and the sweep take.
    config = option_values.build_model(SweepConfig, show_values=False)
    plan = config.session_plan
    if plan is not None:
        print_text(f"{plan.describe()}; {plan.describe_end(config.max_step_s, datetime.now().astimezone())}", err=True)
    if config.agent_tasks is not None and not config.is_open:
        from workbench.sizing.load.agent_traces import describe_pace, load_agent_tasks

        print_text(describe_pace(load_agent_tasks(config), config), err=True)
    return option_values


def convert_sessions(
    settings: dict[str, Any], per_hour: float | None, session_s: float | None, target_users: float | None
) -> float:
    """Users at once of so many sessions an hour; a length that is not given is that of a first session."""
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.sizing.config import build_sweep_config
    from workbench.stats.littles_law import count_users_at_once

    if per_hour is None or target_users is not None:
        do = "give --users-per-hour N (with --session-length S), or --target-users N"
        raise ConfigError("how many users?", where="--users-per-hour", do=do)
    if session_s is None:
        plan = build_sweep_config(**settings).session_plan
        if plan is None:
            do = "add --session-length S, or --turns N and --think-time S"
            raise ConfigError("sessions of unknown length", where="--users-per-hour", do=do)
        session_s = plan.first_session_s
        print_text(plan.describe(), err=True)
    users, text = count_users_at_once(per_hour, session_s)
    print_text(text, err=True)
    return users


def _check_target(settings: dict[str, Any], target: TargetLoad, *, is_resumed: bool) -> None:
    """Refuse a load to size for that does not fit the sweep's arrivals, and one without a goal."""
    from workbench.core.errors import ConfigError

    if is_resumed:
        return
    if (target.unit == "users") != (settings.get("arrivals", "users") == "users"):
        raise ConfigError("target and levels are of different kinds", found=target.unit, where="--arrivals")
    if "goals" not in settings:
        raise ConfigError("no goal to size for", where="--goal", allowed="like p95<=2")


def _run_and_print(
    settings: dict[str, Any],
    target: TargetLoad | None,
    prices: dict[str, Any],
    *,
    out: Path | None,
    resume: Path | None,
    verify: bool | None,
    as_json: bool,
) -> None:
    """Run or resume a sweep, size for the target, verify on a service of this machine, and print the answer."""
    import json

    from workbench.core.host import is_loopback
    from workbench.sizing.estimation import sweep_store, verification
    from workbench.sizing.load.sweep_report import format_sweep, sweep_json, terminal_watcher
    from workbench.sizing.load.sweep_runner import run_sweep

    command = format_command_line()
    answer = None
    with terminal_watcher() as watcher:
        sweep = run_sweep(
            out=out, keep=True, resume=resume, watcher=watcher, command=command, needs_listener=True, **settings
        )
        ended = sweep.ended
        if target is not None and ended == "finished" and sweep.folder is not None:
            on_this_machine = sweep.config.protocol == "function" or is_loopback(sweep.config.host)
            verified = on_this_machine if verify is None else verify
            answer, ended = verification.answer_sweep(
                sweep.folder, target, verified=verified, watcher=watcher, **prices
            )
    folder = sweep.folder or Path()

    def build_document() -> dict[str, Any]:
        sized = None if answer is None else json.loads(sweep_store.sizing_answer_json(answer, folder))
        return {**json.loads(sweep_json(sweep)), "answer": sized}

    def format_text() -> str:
        if answer is None:
            return format_sweep(sweep)
        lines = [format_sweep(sweep), "", sweep_store.format_sizing_answer(answer, folder)]
        if answer.verification is None and answer.recommended is not None:
            cost = verification.describe_verification_cost(sweep, answer)
            lines.append(f"to verify it ({cost}): workbench sizing verify {folder}")
        return "\n".join(lines)

    finish_command(
        format_text,
        build_document,
        as_json=as_json,
        is_valid=not (sweep if answer is None else answer).reasons,
        is_cancelled=ended == "interrupted",
    )
