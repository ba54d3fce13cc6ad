"""`workbench sizing`: the commands of the area, gathered."""

from __future__ import annotations

from workbench.commands import group
from workbench.sizing.commands.calc import calc
from workbench.sizing.commands.estimate import estimate
from workbench.sizing.commands.import_ import import_
from workbench.sizing.commands.manifests import manifests
from workbench.sizing.commands.run import run
from workbench.sizing.commands.simulate import simulate
from workbench.sizing.commands.verify import verify

FIRST_STEPS = """\
  workbench sizing simulate --port 8400      a service that needs known many GPUs
  workbench sizing run --url http://127.0.0.1:8400 --goal "p95<=0.8" --target-users 100 --verify
  workbench run sizing                  the report, without a service
"""

app = group(
    "How many GPUs for N users at p95 <= T: load a service, size it, verify the answer.", first_steps=FIRST_STEPS
)

app.command()(calc)
app.command()(run)
app.command()(estimate)
app.command()(verify)
app.command()(simulate)
app.command(name="import")(import_)
app.command()(manifests)
