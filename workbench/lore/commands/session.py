"""`workbench lore session`: one Spark for many replays, a line each."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from collections.abc import Iterator

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import ModelCommand, OptionValues, build_group, take_options_from
from workbench.lore.commands.bisect import bisect
from workbench.lore.commands.inspect import bundle, inspect
from workbench.lore.commands.lore_options import REPLAY_FLAGS
from workbench.lore.commands.replay import replay, verify
from workbench.lore.commands.run import run

PROMPT = "lore> "
_END_WORDS = ("quit", "exit")


def session(as_json: JsonFlag = False) -> None:
    """Keep one Spark for many replays: each line that you type is a command, such as verify dumps/q/loreId-9.

    Commands are replay, verify, run, bisect, inspect and bundle with their options, and start, which only starts Spark;
    help shows them, quit ends the session. Each has settings of its own; another engine, master or memory starts
    another Spark. With --json each line gives one line: exit_code, document (of the command's own --json) and message.

    Example: echo 'verify dumps/q/loreId-9' | workbench lore session
    """
    from workbench.lore.spark_bridge.replay_session import keep_session

    worst = 0
    with keep_session():
        for words in _read_lines(is_quiet=as_json):
            code = _answer_as_json(words) if as_json else _run_words(words)
            worst = max(worst, code)
    if not sys.stdin.isatty() and not as_json:
        raise typer.Exit(worst)


@take_options_from(
    "workbench.lore.replays.operator_replay:VariantOptions",
    "confs engine master driver_memory",
    {"confs": REPLAY_FLAGS["confs"]},
    defaults="model",
)
def start(option_values: OptionValues, as_json: JsonFlag = False) -> None:
    """Start Spark now, so that the next command with the same of these options does not wait for it."""
    from workbench.console.terminal import print_text
    from workbench.lore.replays.operator_replay import VariantOptions, start_spark

    with start_spark(option_values.build_model(VariantOptions)) as spark:
        finish_command(lambda: print_text(f"Spark {spark.version} runs"), {"spark": spark.version}, as_json=as_json)


def _read_lines(*, is_quiet: bool) -> Iterator[list[str]]:
    """Yield the words of each line of stdin until its end or a word that ends the session; `is_quiet`: no prompt."""
    is_terminal = sys.stdin.isatty() and not is_quiet
    while True:
        if is_terminal:
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line or line.strip() in _END_WORDS:
            return
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            words = ["help", f"the line cannot be read: {error}"]
        if words:
            yield words


def _run_words(words: list[str]) -> int:
    """Run a command of the session and return its exit code; errors are printed, and the session goes on."""
    from workbench.console.terminal import print_text
    from workbench.core.errors import WorkbenchError

    commands = build_group("Commands of a session, one a line; quit ends it.")
    for command in (replay, verify, run, bisect, start):
        commands.command(cls=ModelCommand)(command)
    for plain in (inspect, bundle):
        commands.command()(plain)
    command = typer.main.get_command(commands)
    if words[0] == "help":
        words = ["--help"]
    try:
        command.main(words, prog_name="lore")
    except SystemExit as ended:
        return int(ended.code or 0)
    except WorkbenchError as error:
        print_text(f"Error: {error}", err=True)
        return int(error.exit_code)
    return 0


def _answer_as_json(words: list[str]) -> int:
    """Run a command and print its exit code, document and messages as one JSON line; returns the exit code."""
    out, message = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(message):
        code = _run_words([*words, "--json"])
    text, document = out.getvalue(), None
    if text.lstrip().startswith(("{", "[")):
        text, document = "", json.loads(text)
    # Help is no document: it is the message.
    sys.stdout.write(json.dumps({"exit_code": code, "document": document, "message": text + message.getvalue()}) + "\n")
    sys.stdout.flush()
    return code
