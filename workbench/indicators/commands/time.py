"""`workbench indicators time`: compare shell commands, or one command on several stacks, by time and memory."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import FieldOption, OptionValues, take_options_from
from workbench.indicators.commands import SESSION_OPTIONS


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "commands stacks stack python baseline rounds clock alpha threads timeout_s memory_bytes processes network seed "
    "max_download_bytes revision",
    {
        **SESSION_OPTIONS,
        "commands": FieldOption("command", metavar="NAME=COMMAND"),
        "baseline": FieldOption(metavar="NAME", show_default="the first"),
    },
    units={"s": "S"},
)
def time(
    settings: OptionValues,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A program with its arguments, or one text for the shell."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the session's own folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare commands of any kind by time and peak memory, in rounds as `run` does.

    COMMAND is the baseline, each --command another one. With --stack, --stacks or --python, COMMAND runs on each of
    these instead, with the stack's programs first in PATH.

    Commands run by the shell in the current folder, with your PATH, an empty home, without network, and within limits.
    Memory is the peak of the largest process, and never less than the shell's. A command that ends with another exit
    code than 0 has failed. `run --resume` continues a session.

    Exit codes are those of `run`.

    Example: workbench indicators time --command 'new=sort -u words.txt' -- 'sort words.txt | uniq'
    """
    from workbench.indicators.measurement import session_report, sessions
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    _set_commands(settings, words or [])
    with select_watcher() as watcher:
        outcome = sessions.start_session(
            settings.build_model(SessionConfig), out=out, watcher=watcher, command=format_command_line()
        )
    finish_command(
        lambda: session_report.format_session(outcome),
        lambda: session_report.build_session_document(outcome),
        as_json=as_json,
        is_valid=outcome.compared.valid,
        is_cancelled=outcome.interrupted,
    )


def _set_commands(settings: OptionValues, words: list[str]) -> None:
    """Put COMMAND into the settings: for all stacks, or as the first of the commands."""
    from workbench.core.errors import ConfigError
    from workbench.indicators.measurement.timed_programs import name_command

    text = words[0] if len(words) == 1 else shlex.join(words)
    others = settings.get("commands", ())
    if {"stacks", "stack", "python"} & set(settings):
        if not text or others:
            raise ConfigError(
                "stacks are compared by one command", where="COMMAND", do="give it behind --, and no --command"
            )
        settings["command"] = text
        return
    if not others:
        raise ConfigError(
            "nothing to compare with",
            where="--command",
            found=text[:80] or None,
            do="add --command NAME=COMMAND, or --stack for each stack that runs COMMAND",
        )
    if text:
        settings["commands"] = (f"{name_command(text).replace('=', ':')}={text}", *others)
