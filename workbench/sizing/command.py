"""Command group `workbench sizing`."""

from __future__ import annotations

from workbench.console.options import ModelCommand, build_group
from workbench.sizing.commands.autoscale import autoscale
from workbench.sizing.commands.calc import calc
from workbench.sizing.commands.calibrate import calibrate
from workbench.sizing.commands.estimate import estimate, verify
from workbench.sizing.commands.import_ import import_
from workbench.sizing.commands.manifests import manifests
from workbench.sizing.commands.predict import predict
from workbench.sizing.commands.run import run
from workbench.sizing.commands.simulate import simulate

FIRST_STEPS = """\
  workbench sizing simulate --slots 8 --time-scale 0.2 --port 8400    a service whose need is known
  workbench sizing run --url http://127.0.0.1:8400 --simulated --goal "p95<=0.3" --target-users 150
  workbench run sizing                  the report, on a simulated service
"""

app = build_group(
    "How many GPUs for N users at p95 <= T: measure a service, size it, verify the answer.", first_steps=FIRST_STEPS
)

app.command(cls=ModelCommand)(calc)
app.command(cls=ModelCommand)(run)
app.command()(estimate)
app.command(cls=ModelCommand)(predict)
app.command()(verify)
app.command(cls=ModelCommand)(autoscale)
app.command(cls=ModelCommand)(simulate)
app.command(cls=ModelCommand)(calibrate)
app.command(name="import")(import_)
app.command(cls=ModelCommand)(manifests)
