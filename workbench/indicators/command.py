"""`workbench indicators`: the command group of the area."""

from __future__ import annotations

from workbench.console.options import ModelCommand, build_group
from workbench.indicators.commands.bisect import bisect
from workbench.indicators.commands.blame import blame
from workbench.indicators.commands.collect import collect
from workbench.indicators.commands.commits import commits
from workbench.indicators.commands.compare import compare
from workbench.indicators.commands.history import history
from workbench.indicators.commands.import_ import export, import_
from workbench.indicators.commands.new import new
from workbench.indicators.commands.recommend import recommend
from workbench.indicators.commands.run import run
from workbench.indicators.commands.show import show
from workbench.indicators.commands.stacks import stacks
from workbench.indicators.commands.sync import sync
from workbench.indicators.commands.time import time

FIRST_STEPS = """\
  workbench indicators run --stack numpy==2.2.6 --stack numpy==2.4.6 --indicator sort
  workbench indicators recommend sample:numpy --mix sort=0.7,matmul=0.3 --out chosen
  workbench run indicators              the report, of a recorded session
"""

app = build_group(
    "Measure library stacks against each other, and recommend one with evidence.", first_steps=FIRST_STEPS
)

app.command(cls=ModelCommand)(stacks)
app.command(cls=ModelCommand)(run)
app.command(cls=ModelCommand)(time)
app.command(cls=ModelCommand)(bisect)
app.command(cls=ModelCommand)(commits)
app.command(cls=ModelCommand)(blame)
app.command(cls=ModelCommand)(compare)
app.command()(collect)
app.command(cls=ModelCommand)(recommend)
app.command()(new)
app.command()(sync)
app.command()(show)
app.command()(history)
app.command(name="import")(import_)
app.command()(export)
