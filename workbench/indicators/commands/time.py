"""`workbench indicators time`: compare shell commands, or one command on several stacks, by time and memory."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "commands scan prepare cleanup shell input exit_codes output",
    {"baseline": FieldOption(metavar="NAME"), "output": FieldOption(group="Commands")},
    units={"s": "S"},
    groups=("Commands", "Stacks", "Measurement", "History"),
    omit="specification ignore reference",
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
    """Compare commands of any kind by time and memory, in rounds as `run` does.

    COMMAND is the baseline, each --command another one. With --stack, --stacks or --python, COMMAND runs on each of
    these instead, with the stack's programs first in PATH.

    Commands run by the shell in the current folder, with your PATH, an empty home, without network, and within limits.
    Memory is the peak of the largest process (peak_mib) and of all together, sampled (tree_mib). `run --resume`
    continues a session.

    The session is valid only if all do the same work. Commands must print the same as the baseline (see --output), end
    with one of the --exit-codes, and leave no process running. /bin/sh is not bash: bash syntax needs --shell bash.

    Exit codes are those of `run`.

    Example: workbench indicators time --command 'new=seq 99999 | sort -u' -- 'seq 99999 | sort | uniq'

    Example: workbench indicators time --threads 4 --scan jobs=1,2,4 --prepare 'make clean' -- 'make -j {jobs}'
    """
    from workbench.indicators.measurement import session_report, sessions
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    _set_commands(settings, words or [])
    with select_watcher() as watcher:
        if "input" not in settings and _is_fed():
            watcher.report_note("what is piped in here is not passed on to the commands: give it as --input FILE")
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
    if not others and not (text and settings.get("scan")):
        raise ConfigError(
            "nothing to compare with",
            where="--command",
            found=text[:80] or None,
            do="add --command NAME=COMMAND, --scan NAME=V,V, or --stack for each stack that runs COMMAND",
        )
    if text:
        settings["commands"] = (f"{name_command(text).replace('=', ':')}={text}", *others)


def _is_fed() -> bool:
    """Whether the workbench's own standard input is a file or a pipe with something in it."""
    import fcntl
    import select
    import termios

    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode):
            return os.fstat(0).st_size > 0
        if not stat.S_ISFIFO(mode) or not select.select([0], [], [], 0)[0]:
            return False
        # A pipe whose other end is closed can be read, too.
        return int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder) > 0
    except OSError:
        return False
