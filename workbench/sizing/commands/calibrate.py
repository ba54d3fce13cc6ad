"""`workbench sizing calibrate`: measures what this machine's client can drive."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption

_OPTIONS = {
    "protocol": FieldOption(default="nat", help="nat: POST /generate/full; openai: chat completions."),
    "users": FieldOption(help="Levels. Default: 250,500,1000,2000,4000."),
}
AnswerTime = Annotated[float, typer.Option("--answer", metavar="S", help="Time of an answer, in seconds.", min=0.01)]
StepTime = Annotated[float, typer.Option("--max-step", metavar="S", help="Longest step, in seconds.", min=1)]


@take_options_from("workbench.sizing.config:SweepConfig", "protocol users processes workers", _OPTIONS)
def calibrate(
    option_values: OptionValues, answer_s: AnswerTime = 1.0, max_step_s: StepTime = 4.0, as_json: JsonFlag = False
) -> None:
    """Measure how many requests in flight this machine's client can drive, before a service is measured.

    A simulated service on this machine answers after a fixed time; a level counts as driven while the client is not
    late. The service takes part of the machine, so against another machine the client can do as much, or more. Takes
    half a minute.

    Exit code 0 when at least the lowest level was driven, else 1.

    Example: workbench sizing calibrate --processes 2 --users 1000,2000
    """
    from workbench.core.errors import ConfigError
    from workbench.sizing.load.client_calibration import calibrate_client, format_calibration
    from workbench.sizing.load.sweep_report import terminal_watcher

    if option_values.get("protocol", "nat") not in ("nat", "openai"):
        raise ConfigError("not a protocol of the simulated service", where="--protocol", allowed="nat, openai")
    with terminal_watcher() as watcher:
        found = calibrate_client(answer_s=answer_s, max_step_s=max_step_s, watcher=watcher, **option_values)
    finish_command(
        lambda: format_calibration(found),
        {
            "answer": found.answer,
            "simulated": True,
            "max_users": found.max_users,
            "answer_s": found.answer_s,
            "levels": found.levels.to_dicts(),
        },
        as_json=as_json,
        is_valid=found.max_users is not None,
        is_cancelled=found.sweep.ended == "interrupted",
    )
