"""Command group `workbench lore`."""

from __future__ import annotations

from workbench.console.options import ModelCommand, build_group
from workbench.lore.commands.bisect import bisect
from workbench.lore.commands.dump import dump
from workbench.lore.commands.inspect import bundle, inspect, tag
from workbench.lore.commands.replay import replay, verify
from workbench.lore.commands.run import run
from workbench.lore.commands.session import session

FIRST_STEPS = """\
  workbench lore tag sample:lore/query --data sample:lore/tables
  workbench run lore                    a dump, its replay and the report
"""

app = build_group("Dump the inputs of an operator, replay it alone, verify it bit for bit.", first_steps=FIRST_STEPS)

app.command()(tag)
app.command(cls=ModelCommand)(dump)
app.command(cls=ModelCommand)(replay)
app.command(cls=ModelCommand)(verify)
app.command(cls=ModelCommand)(run)
app.command()(session)
app.command()(inspect)
app.command()(bundle)
app.command(cls=ModelCommand)(bisect)
