"""What to do with a scale test: which scheduler, which rate to plan with, what to turn first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.formats import number
from workbench.scaletest.limits import CLIENT_LIMIT, NO_ROOM

if TYPE_CHECKING:
    from workbench.scaletest.sides import Sides

_OWN = (
    "For your own cluster: `workbench scaletest plan --example` prints a scenario; `workbench scaletest plan"
    " scenario.yaml` shows what it would do before anything is sent."
)


def of_sides(found: Sides, comparison: pl.DataFrame) -> list[str]:
    """The decision between sides, the rate to plan with or the limit to turn, and the own cluster."""
    if found.reasons:
        return ["Conclude nothing from these runs: mend what the reasons above name, and run again.", _OWN]
    return [*_decided(found, comparison), *(_held_up(found) or _rate(found)), _OWN][:3]


def _decided(found: Sides, comparison: pl.DataFrame) -> list[str]:
    own = comparison.filter((pl.col("step") == found.total[0]) & (pl.col("quantile") == 0.5))
    if len(found.names) < 2 or not own.height or own["ratio"][0] is None:
        return []
    a, b = found.names[:2]
    faster, slower = (b, a) if own["verdict"][0] == "FASTER" else (a, b)
    if own["verdict"][0] == "UNDECIDED":
        return [f"Choose neither {a} nor {b} by this: more turns will tell, `workbench scaletest run --repeat 5`."]
    if own["verdict"][0] == "SAME":
        return [f"Choose between {a} and {b} by something else: their medians are alike."]
    whole = {name: _whole(found, name) for name in (faster, slower)}
    if whole[slower] > whole[faster]:
        gangs = f"{slower} where whole gangs count ({whole[slower]:.0%} complete against {whole[faster]:.0%})"
        return [f"Choose by your work: {faster} where waiting counts, {gangs}."]
    return [f"Prefer {faster} for a load like this one: its workloads wait less."]


def _whole(found: Sides, name: str) -> float:
    gangs = pl.concat([one.gangs for one in found.runs[name]])
    return int(gangs["complete"].sum()) / gangs.height if gangs.height else 0.0


def _held_up(found: Sides) -> list[str]:
    """A limit that somebody set, which a setting can lift; the first of all runs' first."""
    for name in found.names:
        for row in found.runs[name][0].limits.filter(pl.col("kind") == CLIENT_LIMIT).iter_rows(named=True):
            what = f"the client limit of {row['client'] or 'the client'} ({number(row['configured_per_s'])}/s)"
            return [f"Before you blame the scheduler, raise {what}: in the runs of {name} it held up {row['step']}."]
    return []


def _rate(found: Sides) -> list[str]:
    rates = {name: found.runs[name][0].sustainable.low_per_s for name in found.names}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if known:
        told = ", ".join(f"{number(rate)} pods/s with {name}" for name, rate in known.items())
        return [
            f"Plan with at most {told}: `workbench run capacity_plan -p scaletest=RUN` (RUN: this report's folder)."
        ]
    full = any((found.runs[name][0].limits["kind"] == NO_ROOM).any() for name in found.names)
    room = "more GPUs or a smaller load, for pods waited for room" if full else "a scenario with a ramp of rates"
    return [f"No rate to plan with yet: it takes {room}."]
