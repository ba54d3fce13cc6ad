"""`workbench speedup`: the commands of the area, gathered."""

from __future__ import annotations

import typer

from workbench.speedup.commands.compare import compare
from workbench.speedup.commands.explain import explain
from workbench.speedup.commands.export import export
from workbench.speedup.commands.generate import generate
from workbench.speedup.commands.profile import profile
from workbench.speedup.commands.qualify import qualify
from workbench.speedup.commands.record import record
from workbench.speedup.commands.validate import validate

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure and predict what an accelerator gains, operator by operator.",
)


@app.callback()
def _group() -> None:
    """Measure and predict what an accelerator gains, operator by operator."""


app.command()(profile)
app.command()(record)
app.command()(generate)
app.command()(qualify)
app.command()(validate)
app.command()(export)
app.command()(explain)
app.command()(compare)
