"""Chooses load levels adaptively around the limit of each goal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from workbench.sizing.estimation.capacity_fit import Capacity

MAX_FAULTY_RUNGS = 2


class Ladder(BaseModel):
    """How the levels of a sweep are chosen when none are given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: float = Field(default=1, gt=0, description="The lowest load.")
    growth: float = Field(default=2.0, gt=1, le=10, description="Factor to the next level until the limit is passed.")
    nearness: float = Field(default=1.2, gt=1, description="Factor from the level below the limit to the one above.")
    sharpness: float = Field(default=1.15, gt=1, description="Factor between the ends of the capacity's interval.")
    most_repeats: int = Field(default=4, ge=1, description="How often a load is measured to sharpen the answer.")
    most_levels: int = Field(default=18, ge=2, description="Levels at most, repeated ones included.")
    largest: float = Field(default=4096, gt=0, description="The largest load.")
    whole: bool = Field(default=True, description="Loads are whole numbers (users); not for rates.")


@dataclass(frozen=True)
class Rung:
    """A measured level: may the quantile of each goal be within its limit? Null where a goal's metric is unknown.

    `is_faulty`: what it measured is not the service at this load; two such levels above all others end the climb.
    """

    load: float
    within: tuple[bool | None, ...]
    is_faulty: bool = False


def next_load(rungs: Sequence[Rung], rule: Ladder) -> float | None:
    """The load to measure next; null when the limit of every goal lies between near levels, or nothing is left to do.

    `rungs`: Levels measured so far, in any order. A level whose requests failed or that the service could not take is
    `within` no limit.

    >>> rule = Ladder()
    >>> next_load([Rung(1, (True,)), Rung(2, (True,))], rule)
    4
    >>> next_load([Rung(4, (True,)), Rung(8, (False,))], rule)
    6
    >>> next_load([Rung(7, (True,)), Rung(8, (False,))], rule) is None
    True
    """
    if not rungs:
        return rule.first
    if len(rungs) >= rule.most_levels:
        return None
    ordered = sorted(rungs, key=lambda rung: rung.load)
    loads = {rung.load for rung in ordered}
    top = ordered[-1]
    n_faulty = sum(rung.is_faulty for rung in ordered[-MAX_FAULTY_RUNGS:])
    if any(within for within in top.within) and n_faulty < MAX_FAULTY_RUNGS:
        higher = _round_load(top.load * rule.growth, rule)
        higher = min(max(higher, top.load + 1) if rule.whole else higher, rule.largest)
        if higher > top.load:
            return higher
    for goal in range(len(top.within)):
        between = _load_between(ordered, goal, rule)
        if between is not None and between not in loads:
            return between
    return None


def next_repeat_load(capacities: Sequence[Capacity], loads: Sequence[float], rule: Ladder) -> float | None:
    """The load to measure once more, so that every goal's capacity is known well; null when all are.

    Where latency hardly grows with the load, an error of a few per cent in it is a wide interval of loads.

    >>> wide = Capacity(10.4, 8.0, 14.0, "monotone", 6, 1800)
    >>> [next_repeat_load([wide], loads, Ladder()) for loads in ([1, 2, 4, 8, 16, 11], [1, 2, 4, 8, 16, 11, 10])]
    [10, 14]
    """
    if len(loads) >= rule.most_levels:
        return None
    for capacity in capacities:
        if capacity.value is None:
            continue
        low, high = capacity.low or capacity.value, capacity.high or capacity.value
        if capacity.low and capacity.high and high <= rule.sharpness * low:
            continue
        places = [min(_round_load(place, rule), max(loads)) for place in (capacity.value, high, low)]
        places = [place for place in places if place > 0 and loads.count(place) < rule.most_repeats]
        if places:
            # Where the answer lies, unless that was measured more often than the ends of its interval.
            return min(places, key=lambda place: (loads.count(place), places.index(place)))
    return None


def _load_between(ordered: Sequence[Rung], goal: int, rule: Ladder) -> float | None:
    """A load within the gap around a goal's limit, or below all; null when the gap is narrow."""
    below = [rung.load for rung in ordered if rung.within[goal]]
    above = [rung.load for rung in ordered if rung.within[goal] is False]
    if not above:
        return None
    # Noise may put a miss below a hit: the gap is from the last hit to the first miss beyond it.
    low = max(below, default=None)
    beyond = [load for load in above if low is None or load > low]
    if not beyond:
        return None
    high = min(beyond)
    if low is None:
        lower = _round_load(high / rule.growth, rule)
        return lower if lower > 0 and lower < high else None
    if high / low <= rule.nearness:
        return None
    middle = _round_load(math.sqrt(low * high), rule)
    return middle if low < middle < high else None


def _round_load(load: float, rule: Ladder) -> float:
    return round(load) if rule.whole else load
