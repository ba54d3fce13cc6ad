"""`workbench sizing autoscale`: autoscalers under test, over days of traffic in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.sizing.commands.run import Out

if TYPE_CHECKING:
    from workbench.sizing.autoscaling.comparison import AutoscalingAnswer

Traffic = Annotated[
    Path,
    typer.Option("--traffic", help="CSV with hour and rate_per_s, or a trace of arrivals (as --trace of run)."),
]
Goals = Annotated[
    list[str], typer.Option("--goal", metavar="GOAL", help="Goal: p95<=6 (seconds) or 'ttft p99<=300ms'. Repeatable.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="fixed (the smallest count that holds), fixed:N, hpa:METRIC=TARGET, keda:METRIC=TARGET (of a replica: "
        "in_flight, waiting, busy, rate), function:MODULE:NAME. Repeatable. Default: fixed and three HPAs.",
    ),
]
Start = Annotated[float, typer.Option("--start", metavar="S", help="Time until a new replica serves.", min=0)]
Least = Annotated[int, typer.Option(help="Replicas at least.", min=1, max=4096)]
Most = Annotated[int, typer.Option(help="Replicas at most.", min=1, max=4096)]
Days = Annotated[int, typer.Option(help="Days of the same traffic, with other requests each.", min=1, max=100)]
USUAL_POLICIES = ("fixed", "hpa:in_flight=8", "hpa:busy=0.7", "keda:waiting=2")


@take_options_from(
    "workbench.sizing.simulation.cluster_model:Service",
    omit="gpus router admission",
    options={
        "gpu_type": FieldOption(default="h100_sxm"),
        "calls": FieldOption(default=1),
        "output_tokens": FieldOption(default=800.0),
    },
    groups={
        "Traffic and goals": "traffic goal",
        "Autoscalers": "policy start min_replicas max_replicas days",
        "Server": "gpu_type model slots prefill_tokens_per_s decode_base_s decode_per_sequence_s cache_tokens",
        "Requests": "calls input_tokens input_cv output_tokens output_cv tool_s tool_cv shared_s",
    },
    defaults="model",
)
def autoscale(
    option_values: OptionValues,
    traffic: Traffic,
    goal: Goals,
    policy: Policies = None,
    start: Start = 120.0,
    min_replicas: Least = 1,
    max_replicas: Most = 64,
    days: Days = 1,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Which autoscaler holds the goals over a day of traffic, with how many GPU hours?

    Each autoscaler changes the replicas of a simulated service (a GPU each, of a type that predictions describe) while
    the same requests come. Beside them: foresight, which knows the traffic and orders replicas in time, and a fixed
    count. The first day's replicas are in the run folder.

    Exit code 0 when one holds the goals, 1 when none does, 2 for wrong use.

    Example: workbench sizing autoscale --traffic sample:sizing/day.csv --goal "p95<=30"
    """
    from workbench.console import terminal
    from workbench.core.errors import ConfigError
    from workbench.sizing.autoscaling.comparison import compare_policies
    from workbench.sizing.autoscaling.day_simulation import ScalingLimits
    from workbench.sizing.autoscaling.day_traffic import read_day_traffic
    from workbench.sizing.autoscaling.policies import read_policy
    from workbench.sizing.config import Goal
    from workbench.sizing.simulation.cluster_model import Service

    if min_replicas > max_replicas:
        raise ConfigError("more replicas at least than at most", where="--min-replicas", found=min_replicas)
    service = option_values.build_model(Service)
    policies = [read_policy(text) for text in policy or USUAL_POLICIES]
    goals = [Goal.read(text) for text in goal]
    day = read_day_traffic(traffic)
    with terminal.open_status() as status:
        answer = compare_policies(
            service,
            day,
            policies,
            goals,
            ScalingLimits(start, min_replicas, max_replicas),
            days=days,
            seed=service.seed,
            on_progress=status.show,
        )
    folder = _store_comparison(answer, traffic, option_values, out)
    finish_command(
        lambda: _format_comparison(answer),
        lambda: _build_document(answer, folder),
        as_json=as_json,
        is_valid=not answer.reasons,
        written=[folder],
    )


def _store_comparison(answer: AutoscalingAnswer, traffic: Path, settings: dict[str, Any], out: Path | None) -> Path:
    from workbench.runs import run_folder
    from workbench.sizing.load.sweep_journal import SIZING_AREA
    from workbench.sizing.tables import AUTOSCALERS, REPLICA_TIMES

    run = run_folder.start_run(
        SIZING_AREA, out, title="Which autoscaler?", config=dict(settings), command=format_command_line()
    )
    run.add_input(traffic)
    run.write_table(AUTOSCALERS, answer.table)
    run.write_table(REPLICA_TIMES, answer.times)
    run.conclude(
        "invalid" if answer.reasons else "valid",
        answer.reasons,
        answer.sentence,
        details=answer.notes,
        conditions=["simulated service"],
    )
    run.save()
    return run.folder


def _format_comparison(answer: AutoscalingAnswer) -> str:
    from workbench.report.display import table
    from workbench.sizing.tables import AUTOSCALERS

    columns = ["policy", "gpu_hours", "over_foresight", "late_share", "late_high", "most_replicas", "verdict"]
    lines = [answer.sentence, *answer.notes, "note: simulated service", ""]
    lines.append(table(answer.table.select(columns), AUTOSCALERS, caption="Autoscalers, over the same days").text)
    lines += [f"invalid: {reason}" for reason in answer.reasons]
    return "\n".join(lines)


def _build_document(answer: AutoscalingAnswer, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "answer": answer.sentence,
        "verdict": "invalid" if answer.reasons else "valid",
        "reasons": answer.reasons,
        "notes": answer.notes,
        "autoscalers": answer.table.to_dicts(),
    }
