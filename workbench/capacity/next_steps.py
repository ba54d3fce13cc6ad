"""What to do with a plan: what to provide, what would make it smaller, and which input to know better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.capacity import binding, summing
from workbench.capacity.model import ROUNDING
from workbench.formats import number

if TYPE_CHECKING:
    from workbench.capacity.study import Study

_OWN = (
    "Inputs are simulated: put in your own runs, `workbench run capacity_plan -p sizing=RUN -p scaletest=RUN`;"
    " day, nodes and prices: `workbench capacity settings`."
)


def of_plan(found: Study) -> list[str]:
    """What to provide, what binds and would relax it, and what to measure again."""
    if found.reasons:
        return ["Order nothing by this plan: make the runs again that the reasons above name.", *_bound(found)]
    return [_provide(found), *_bound(found), *_better_known(found)]


def _provide(found: Study) -> str:
    nodes = found.figure(summing.NODES)
    middle, high = (math.ceil(float(nodes[end]) - ROUNDING) for end in ("p50", "p95"))
    if not high:
        return "Provide nothing: no hour asks for a node."
    if middle == high:
        return f"Provide {number(high)} node{'' if high == 1 else 's'} for the peak: enough in 19 of 20 draws."
    return (
        f"Provide {number(high)} nodes for the peak to be sure in 19 of 20 draws; {number(middle)} do in half of them."
    )


def _bound(found: Study) -> list[str]:
    rows = found.constraints.filter("binding").to_dicts()
    if not rows:
        return []
    what = "make the scheduler keep up first" if rows[0]["constraint"] == binding.RATE else "need fewer nodes"
    return [f"To {what}: {rows[0]['relief']}."]


def _better_known(found: Study) -> list[str]:
    service, scheduler = found.found.service, found.found.scheduler
    if (service is not None and service.simulated) or (scheduler is not None and scheduler.simulated_nodes):
        return [_OWN]
    if not found.tornado.height:
        return []
    row = found.tornado.row(0, named=True)
    return [f"Know {row['input']} better: alone it moves the peak by {number(row['swing_gpus'])} GPUs."]
