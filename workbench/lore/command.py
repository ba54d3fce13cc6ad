"""`workbench lore`: the commands of the area, gathered."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Dump the inputs of an operator, replay it alone, verify it bit for bit.",
)


@app.callback()
def _group() -> None:
    """Dump the inputs of an operator, replay it alone, verify it bit for bit."""
