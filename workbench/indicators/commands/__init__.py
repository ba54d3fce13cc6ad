"""The commands of `workbench indicators`, one file each, and what several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from workbench.console.options import OptionValues

_PANEL = "Commits"
Repository = Annotated[Path, typer.Option(metavar="DIR", rich_help_panel=_PANEL, help="The repository.")]
Subfolder = Annotated[str, typer.Option(metavar="PATH", rich_help_panel=_PANEL, help="The project in it.")]
MoreRequirements = Annotated[
    list[str] | None,
    typer.Option("--with", rich_help_panel=_PANEL, metavar="REQUIREMENT", help="A further requirement. Repeatable."),
]


def refuse_resumed_settings(
    noun: str, settings: OptionValues, others: Mapping[str, object], *, allowed: str | None = None
) -> None:
    """Refuse options beside --resume that would be without effect; `others` are values by name, beside the settings."""
    from workbench.core.errors import ConfigError

    if given := [*(name for name, value in others.items() if value), *(settings.flags[name] for name in settings)]:
        do = "leave these options out"
        raise ConfigError(f"a resumed {noun} keeps its settings", where="--resume", found=given, allowed=allowed, do=do)
