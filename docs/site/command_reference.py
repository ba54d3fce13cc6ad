"""Pages of the commands, from their own `--help`: nothing about an option is written down twice."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import typer

from workbench.cli import app
from workbench.console.options import LazyGroup

# Of a terminal; the lines of a page are as long.
WIDTH = 100


def build_pages() -> dict[str, str]:
    """Text of a page for the command itself and for each group of commands, by name."""
    root: Any = typer.main.get_command(app.app)
    own: list[str] = []
    pages = {}
    for name in root.list_commands(None):
        command = load(root.get_command(None, name))
        if command.hidden:
            continue
        sections = [format_help(path, one) for path, one in walk(f"workbench {name}", command)]
        if hasattr(command, "list_commands"):
            pages[name] = "\n".join([f"# workbench {name}", "", *sections])
        else:
            own += sections
    head = ["# The command workbench", "", "As `workbench --help` says it; each area has a page of its own.", ""]
    return {"workbench": "\n".join([*head, format_help("workbench", root), *own]), **pages}


def load(command: Any) -> Any:
    """The command itself, where it is the placeholder of one that is imported on use."""
    if isinstance(command, LazyGroup):
        return typer.main.get_group(importlib.import_module(command.area.module).app)
    return command


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and all below it, in the order of their help."""
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        below = load(command.get_command(None, name))
        if not below.hidden:
            yield from walk(f"{path} {name}", below)


def format_help(path: str, command: Any) -> str:
    """The help of one command below a heading of its own."""
    context = command.context_class(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
    return f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"
