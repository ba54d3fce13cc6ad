"""Help that teaches: whole sentences in every list of commands, and first steps that can be pasted."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.test_documents import parse
from workbench.cli import app as cli_app
from workbench.console.options import CommandGroup, build_group


def groups() -> Iterator[tuple[str, Any]]:
    """Every group of commands by what one types to see its help."""
    yield "", typer.main.get_command(cli_app.app)
    for name, area in (cli_app.OWN_GROUPS | cli_app.AREAS).items():
        found = typer.main.get_group(importlib.import_module(area.module).app)
        yield name, found
        for inner, command in found.commands.items():
            if hasattr(command, "commands"):
                yield f"{name} {inner}", command


GROUPS = dict(groups())
MANY_OPTIONS = 20


@pytest.mark.parametrize("words", GROUPS)
def test_a_list_of_commands_says_whole_sentences(words: str) -> None:
    assert isinstance(GROUPS[words], CommandGroup)
    shown = CliRunner().invoke(cli_app.app, [*words.split(), "--help"]).output
    listed = shown.partition("Commands:")[2]
    assert listed
    assert "..." not in listed.replace("[ARGS]...", "")


def list_commands() -> Iterator[tuple[str, Any]]:
    for words, group in GROUPS.items():
        for name, command in group.commands.items():
            # A group's stand-in is listed under its own name.
            if not hasattr(command, "commands"):
                yield f"{words} {name}".strip(), command


COMMANDS = dict(list_commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_help_names_values_by_what_is_typed_and_groups_many_options(words: str) -> None:
    command = COMMANDS[words]
    context = typer.main.get_command(cli_app.app).context_class(command, info_name=words)
    shown = command.get_help(context)
    assert not re.search(r"<(str|int|float|path|list\[|%|\w+ range)", shown)
    assert "default: (" not in shown
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    groups = {parameter.rich_help_panel for parameter in options} - {None}
    assert len(options) < MANY_OPTIONS or len(groups) >= 2
    for group in groups:
        assert f"\n{group}:\n" in shown


@pytest.mark.parametrize("area", cli_app.AREAS)
def test_an_area_says_how_to_begin_with_commands_that_there_are(area: str) -> None:
    steps = (GROUPS[area].epilog or "").partition("Begin with:\n")[2]
    lines = [line for line in steps.splitlines() if line.strip()]
    assert lines
    for line in lines:
        # A note stands behind some spaces.
        words = shlex.split(re.split(r"\s{3,}", line.strip())[0])
        assert words[0] == "workbench"
        parse(words)


def test_a_group_of_one_command_stays_a_group_and_empty_help_shows_it() -> None:
    app = build_group("Does one thing.")

    @app.command()
    def only() -> None:
        """Do a thing that takes a long sentence to say, longer than a terminal of eighty columns is wide, and more."""

    shown = CliRunner().invoke(app, []).output
    assert " ".join(shown.split()).count("wide, and more.") == 1
    assert CliRunner().invoke(app, ["only"]).exit_code == 0
