"""How command groups look: every command with its whole first sentence, and how to begin; groups loaded when named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

# More than any first sentence has: lines are wrapped, never cut.
_WHOLE = 1000


@dataclass(frozen=True)
class Area:
    """A sub-app that is imported only when it is called: `module` holds it as `app`.

    `needs`: abilities without which it does nothing; `uses`: those that parts of it want; `checks`: a module of the
    area whose `checks()` looks at one of them for `workbench doctor`.
    """

    module: str
    help: str
    needs: tuple[str, ...] = ("base",)
    uses: tuple[str, ...] = ()
    checks: str | None = None

    @property
    def present(self) -> bool:
        """Is it part of this installation? Looked up on disk: importing is what we avoid."""
        return Path(__file__).parents[1].joinpath(*self.module.split(".")).with_suffix(".py").is_file()


class Commands(TyperGroup):
    """A group whose help lists its commands with whole sentences, where typer would cut them at the line's end."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, found.get_short_help_str(_WHOLE)) for name, found in commands if found and not found.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Lazy(TyperGroup):
    """Stands in for a sub-app in lists and help; becomes the sub-app itself when a command line enters it."""

    def __init__(self, *, area: Area, **options: Any) -> None:
        super().__init__(**options)
        self.area = area

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        import importlib

        module = importlib.import_module(self.area.module)
        return typer.main.get_group(module.app).make_context(info_name, args, parent, **extra)


def _group() -> None:
    """Nothing: it keeps a group of one command a group."""


def group(text: str, *, first_steps: str = "") -> typer.Typer:
    """An empty group of commands.

    Parameters
    ----------
    text
        What it is for, in a sentence.
    first_steps
        Lines that a newcomer can paste, which stand below its help.
    """
    return typer.Typer(
        cls=Commands,
        help=text,
        epilog=f"\b\nBegin with:\n{first_steps.rstrip()}" if first_steps else None,
        no_args_is_help=True,
        # Drawing help with rich would double the time until it is there.
        rich_markup_mode=None,
        callback=_group,
    )
