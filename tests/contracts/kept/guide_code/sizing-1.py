from workbench.sizing.answering import answer
from workbench.sizing.config import Goal, sweep_config
from workbench.sizing.simulation import virtual
from workbench.sizing.simulation.service import Service

goal = Goal.read("p95<=1.5")
config = sweep_config(protocol="function", simulated=True, goals=[goal])
requests, steps = virtual.sweep(Service(slots=8), config)  # virtual time: a second, and the same every time
found = answer(requests, steps, [goal], 150)
assert found.recommended >= 20  # what it needs

times = found.quantiles
