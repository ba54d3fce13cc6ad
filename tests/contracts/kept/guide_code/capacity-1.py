from workbench.capacity.config import PlanConfig
from workbench.capacity.study import plan

samples = "data/samples/capacity"
runs = {name: f"{samples}/{name}" for name in ("speedup", "sizing", "indicators", "scaletest")}
found = plan(PlanConfig(**runs, draws=1000))
assert found.check()["holds"].all()

times = found.hours
