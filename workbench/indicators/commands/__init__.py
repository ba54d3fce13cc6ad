"""The commands of `workbench indicators`, one file each, and the options of those that measure commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Commits"
Repository = Annotated[Path, typer.Option(metavar="DIR", rich_help_panel=_PANEL, help="The repository.")]
Subfolder = Annotated[str, typer.Option(metavar="PATH", rich_help_panel=_PANEL, help="The project in it.")]
MoreRequirements = Annotated[
    list[str] | None,
    typer.Option("--with", rich_help_panel=_PANEL, metavar="REQUIREMENT", help="A further requirement. Repeatable."),
]
