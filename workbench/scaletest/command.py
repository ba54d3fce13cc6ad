"""Command group `workbench scaletest`."""

from __future__ import annotations

from workbench.console.options import ModelCommand, build_group
from workbench.scaletest.commands import cluster
from workbench.scaletest.commands.cleanup import cleanup
from workbench.scaletest.commands.plan import plan, setup, trace
from workbench.scaletest.commands.report import compare, report, show
from workbench.scaletest.commands.run import run
from workbench.scaletest.commands.runai_commands import (
    export_upstream,
    import_upstream,
    sample,
    simulated_runai,
    submit,
)
from workbench.scaletest.commands.when import record, when

FIRST_STEPS = """\
  workbench scaletest plan sample:first-test
  workbench scaletest cluster up        a real control plane on this machine
  workbench scaletest run sample:first-test --cluster local
  workbench run scaletest               the report, of recorded runs
"""

app = build_group(
    "How many workloads per second a cluster schedules, and where the time goes.", first_steps=FIRST_STEPS
)

app.command()(plan)
app.command()(trace)
app.command()(setup)
app.command(cls=ModelCommand)(run)
app.command()(show)
app.command()(compare)
app.command()(cleanup)
app.command()(when)
app.command()(record)
app.command()(import_upstream)
app.command()(export_upstream)
app.command(cls=ModelCommand)(submit)
app.command()(sample)
app.command()(report)
app.command()(simulated_runai)
app.add_typer(cluster.app, name="cluster")
