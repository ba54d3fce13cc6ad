"""`workbench sizing`: the commands of the area, gathered."""

from __future__ import annotations

import typer

from workbench.sizing.commands.calc import calc
from workbench.sizing.commands.estimate import estimate
from workbench.sizing.commands.import_ import import_
from workbench.sizing.commands.manifests import manifests
from workbench.sizing.commands.run import run
from workbench.sizing.commands.simulate import simulate
from workbench.sizing.commands.verify import verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="How many GPUs for N users at p95 <= T: load a service, size it, verify the answer.",
)


@app.callback()
def _group() -> None:
    """How many GPUs for N users at p95 <= T: load a service, size it, verify the answer."""


app.command()(calc)
app.command()(run)
app.command()(estimate)
app.command()(verify)
app.command()(simulate)
app.command(name="import")(import_)
app.command()(manifests)
