"""Command groups: unabridged help of commands, and sub-commands imported on use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

# Longer than any first sentence: lines wrap, never truncate.
_MAX_HELP_CHARS = 1000


@dataclass(frozen=True)
class Area:
    """A sub-app that is imported on use, as `app` of `module`.

    `needs`: abilities it requires; `uses`: abilities of some of its commands; `checks`: a module whose `checks()` tests
    one of them for `workbench doctor`.
    """

    module: str
    help: str
    needs: tuple[str, ...] = ("base",)
    uses: tuple[str, ...] = ()
    checks: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the module is installed; looked up on disk, without importing it."""
        place = Path(__file__).parents[2].joinpath(*self.module.split("."))
        return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


class CommandGroup(TyperGroup):
    """A group whose help shows whole sentences, which typer would truncate."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_MAX_HELP_CHARS))
            for name, command in commands
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(TyperGroup):
    """Placeholder of a sub-app in lists and help; loads the sub-app when a command line enters it."""

    def __init__(self, *, area: Area, **options: Any) -> None:
        super().__init__(**options)
        self.area = area

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        import importlib

        module = importlib.import_module(self.area.module)
        return typer.main.get_group(module.app).make_context(info_name, args, parent, **extra)


def _group() -> None:
    """Does nothing; without a callback typer would turn a group of one command into a command."""


def build_group(text: str, *, first_steps: str = "") -> typer.Typer:
    """An empty group of commands."""
    return typer.Typer(
        cls=CommandGroup,
        help=text,
        epilog=f"\b\nBegin with:\n{first_steps.rstrip()}" if first_steps else None,
        no_args_is_help=True,
        # Rich would double the time of the help.
        rich_markup_mode=None,
        callback=_group,
    )
