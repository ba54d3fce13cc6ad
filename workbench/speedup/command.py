"""`workbench speedup`: the command group of the area."""

from __future__ import annotations

from workbench.console.options import ModelCommand, build_group
from workbench.speedup.commands.compare import compare
from workbench.speedup.commands.generate import generate
from workbench.speedup.commands.improve import improve
from workbench.speedup.commands.package import package
from workbench.speedup.commands.plan import plan
from workbench.speedup.commands.profile import explain, export, profile
from workbench.speedup.commands.qualify import qualify
from workbench.speedup.commands.record import record, validate
from workbench.speedup.commands.sample import sample
from workbench.speedup.commands.support import support
from workbench.speedup.commands.watch import watch
from workbench.speedup.commands.what_if import what_if

FIRST_STEPS = """\
  workbench speedup profile sample:tpch_sf0.1
  workbench speedup what-if sample:tpch_sf0.1 --executors 2 --executors 4
  workbench speedup generate sample:tpch-sf1 --output factors.json
  workbench speedup qualify sample:tpch_sf0.1 --factors factors.json
  workbench run speedup                 the report
"""

app = build_group("Measure and predict the speedup of an accelerator, operator by operator.", first_steps=FIRST_STEPS)

app.command(cls=ModelCommand)(profile)
app.command("what-if", cls=ModelCommand)(what_if)
app.command(cls=ModelCommand)(watch)
app.command()(support)
app.command(cls=ModelCommand)(improve)
app.command(cls=ModelCommand)(record)
app.command(cls=ModelCommand)(plan)
app.command(cls=ModelCommand)(sample)
app.command()(generate)
app.command()(qualify)
app.command()(package)
app.command()(validate)
app.command()(export)
app.command()(explain)
app.command()(compare)
