"""`workbench lore`: the commands of the area, gathered."""

from __future__ import annotations

import typer

from workbench.lore.commands.bisect import bisect
from workbench.lore.commands.bundle import bundle
from workbench.lore.commands.dump import dump
from workbench.lore.commands.inspect import inspect
from workbench.lore.commands.replay import replay, verify
from workbench.lore.commands.tag import tag

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Dump the inputs of an operator, replay it alone, verify it bit for bit.",
)


@app.callback()
def _group() -> None:
    """Dump the inputs of an operator, replay it alone, verify it bit for bit."""


app.command()(tag)
app.command()(dump)
app.command()(replay)
app.command()(verify)
app.command()(inspect)
app.command()(bundle)
app.command()(bisect)
