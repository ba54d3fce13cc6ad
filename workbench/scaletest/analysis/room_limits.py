"""Which room held pods back: a resource that is full, what others hold, a rule, or nothing that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.core.formats import format_items
from workbench.scaletest.analysis.room import GPU, NEARLY_FULL, PLACES, RULE_NAMES, Room, read_amounts, read_rules
from workbench.scaletest.observation.run_records import parse_amounts

# A cause counts if it kept out so many of the waiting pods, over their waiting time ...
MOST = 0.5
# ... and if the scheduler said so of so many of those that it called unschedulable.
TOLD = 0.2
# Others are named as the limit above this share of a resource, and beside it above the second one.
HELD_FRACTION, MENTIONED_FRACTION = 0.3, 0.01
# Where less of a resource is in use, free pieces lie on nodes with too few of them.
IDLE_FRACTION = 0.5
UNKNOWN = "a limit that is not known"
# A pod that waited less had no reason yet.
MIN_WAIT_S = 0.5
_NAMES = {
    "cpu": "CPUs",
    "memory": "memory",
    "ephemeral-storage": "local storage",
    PLACES: "places for pods",
    GPU: "GPUs",
}
_SCALES = {"memory": (1 << 30, " GiB of"), "ephemeral-storage": (1 << 30, " GiB of")}


@dataclass(frozen=True)
class RoomLimit:
    """The room that held pods back.

    `name`: For "bound by …". `resource`: The one that binds; null for rules and for what is not known.
    `figures`: What was taken of what there was, in words; empty where it is not known.
    """

    name: str
    resource: str | None = None
    figures: str = ""


def name_resource(resource: str) -> str:
    """Name a resource as its users do.

    >>> name_resource("nvidia.com/gpu"), name_resource("cpu"), name_resource("nvidia.com/mig-1g.5gb")
    ('GPUs', 'CPUs', 'nvidia.com/mig-1g.5gb')
    """
    return "GPUs" if resource.endswith("/gpu") else _NAMES.get(resource, resource)


def format_part(resource: str, part: float, whole: float) -> str:
    """Write a part of a resource.

    >>> format_part("nvidia.com/gpu", 12, 16), format_part("memory", 1 << 30, 4 << 30)
    ('12 of 16 GPUs', '1 of 4 GiB of memory')
    """
    scale, unit = _SCALES.get(resource, (1, ""))
    return f"{_format_amount(part / scale)} of {_format_amount(whole / scale)}{unit} {name_resource(resource)}"


def _format_amount(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")


def find_room_limit(room: Room, pods: pl.DataFrame, begin_s: float, end_s: float) -> RoomLimit:
    """Name what held pods back between two times.

    `pods`: `created_s, scheduled_s, unschedulable_reason` of table PODS.

    A resource binds where it alone kept out most of the waiting pods, over their waiting time, and where the scheduler
    said so, if it gave reasons. A rule binds where no resource does and the scheduler named it. Where room and reasons
    contradict each other, the limit is not known.
    """
    moments = room.slice_between(begin_s, end_s)
    weights = room.waiting[moments]
    if not len(room.resources) or not weights.sum():
        return _find_rule(_read_told(pods, begin_s, end_s)) or RoomLimit(UNKNOWN)
    blocked = (room.blocked[:, moments] * weights).sum(axis=1) / weights.sum()
    told = _read_told(pods, begin_s, end_s)
    order = np.argsort(-blocked, kind="stable")
    full = [room.resources[place] for place in order if blocked[place] >= MOST]
    agreed = [name for name in full if not told or told.get(name, 0.0) >= TOLD]
    if agreed:
        return _describe_full(room, agreed, moments, blocked)
    rule = _find_rule(told)
    if rule is not None and not full:
        return rule
    packed = float((room.packed[moments] * weights).sum() / weights.sum())
    if packed >= MOST and not full:
        names = [name for name in room.resources if told.get(name, 0.0) >= TOLD and name != PLACES]
        both = " and ".join(name_resource(name) for name in names[:2]) or "all that a pod asks for"
        return RoomLimit(f"the room on single nodes: none has free {both} at once")
    said = format_items([name_resource(name) for name, share in told.items() if share >= TOLD], 2)
    seen = format_items([name_resource(name) for name in full], 2)
    if said and seen:
        return RoomLimit(f"{UNKNOWN}: the scheduler says {said}, and the nodes are full by {seen}")
    return RoomLimit(f"{UNKNOWN}: the scheduler says {said}" if said else UNKNOWN)


def _read_told(pods: pl.DataFrame, begin_s: float, end_s: float) -> dict[str, float]:
    """Share of the waiting pods with a reason of which the scheduler named each resource and rule; most first."""
    left_s = pl.col("scheduled_s").fill_null(np.inf)
    inside = (pl.col("created_s") < end_s) & (left_s > begin_s) & (left_s - pl.col("created_s") >= MIN_WAIT_S)
    reasons = pods.filter(inside)["unschedulable_reason"].drop_nulls().value_counts()
    n = int(reasons["count"].sum())
    told: dict[str, float] = {}
    for reason, count in reasons.iter_rows():
        for name in read_amounts(reason) | read_rules(reason):
            told[name] = told.get(name, 0.0) + count / n
    return dict(sorted(told.items(), key=lambda item: (-item[1], item[0])))


def _find_rule(told: Mapping[str, float]) -> RoomLimit | None:
    """The reason that is no amount, where most pods were given it."""
    rules = [name for name, share in told.items() if share >= MOST and name in RULE_NAMES]
    return RoomLimit(rules[0]) if rules else None


def _describe_full(room: Room, names: list[str], moments: slice, blocked: np.ndarray) -> RoomLimit:
    """The limit of one resource that is full, or of two that are so equally often."""
    first = names[0]
    row = room.resources.index(first)
    # Only moments at which it kept pods out.
    weights = room.waiting[moments] * room.blocked[row, moments]
    means = {
        name: float(np.average(values[row, moments], weights=weights))
        for name, values in (("capacity", room.capacity), ("own", room.own), ("others", room.others))
    }
    whole, others = means["capacity"], means["others"]
    # What a node offers no longer may still be held.
    taken = min(means["own"] + others, whole)
    figures = f"{format_part(first, taken, whole)} were taken"
    if IDLE_FRACTION * whole <= taken < (1 - 2 * NEARLY_FULL) * whole:
        figures += ", and no node has enough free"
    if whole <= 0:
        return RoomLimit(f"its {name_resource(first)}, of which no node offers any", first, f"no node offered {first}")
    if others >= HELD_FRACTION * whole:
        share = format_part(first, others, whole)
        figures += f", {_format_amount(others)} of them by others"
        return RoomLimit(f"what others hold ({share})", first, figures)
    if means["own"] + others < IDLE_FRACTION * whole:
        free = format_part(first, whole - means["own"] - others, whole)
        return RoomLimit(f"the room on single nodes ({free} are free, too few on each)", first, figures)
    equal = [name for name in names[1:2] if blocked[room.resources.index(name)] >= blocked[row] - 0.05]
    called = " and ".join(name_resource(name) for name in (first, *equal))
    if others >= MENTIONED_FRACTION * whole:
        return RoomLimit(f"its {called}, of which others hold {format_part(first, others, whole)}", first, figures)
    return RoomLimit(f"its {called}", first, figures)


@dataclass(frozen=True)
class RoomCeiling:
    """The most pods a second that a resource allows, however fast the scheduler is.

    `amount`: Places for pods, or pieces of the resource where pods ask for different amounts.
    `held_s`: Seconds that a pod holds one of them (of pieces: times the pieces that it holds).
    """

    resource: str
    amount: float
    held_s: float
    is_places: bool

    @property
    def pods_per_s(self) -> float:
        """Highest rate at which pods can be placed, in pods/s."""
        return self.amount / self.held_s

    @property
    def text(self) -> str:
        """What the rate follows from."""
        if self.is_places:
            return f"places for {_format_amount(self.amount)} pods, each held for {self.held_s:.3g} s"
        name = name_resource(self.resource)
        return f"{_format_amount(self.amount)} {name}, {self.held_s:.3g} s of {name} per pod"


def find_ceiling(
    room: Room, schedule: pl.DataFrame, pods: pl.DataFrame, resource: str, begin_s: float, end_s: float
) -> RoomCeiling | None:
    """How many pods a second does a resource allow between two times?

    `schedule`: `index, pods, lifetime_s, delete_after_s`. `pods`: `index, asks`; what can never fit is left out.

    Null where pods never end. Takes the mean of what nodes offered beside what others held, while pods waited for it.
    """
    asked = pods.filter(pl.col("asks") != "").group_by("index").agg(pl.col("asks").first())
    lives = schedule.join(asked, on="index").select(
        "asks", "pods", lives_s=pl.min_horizontal("lifetime_s", "delete_after_s")
    )
    if resource not in room.resources or not lives.height or lives["lives_s"].null_count():
        return None
    inside = np.zeros(len(room.at_s), dtype=bool)
    inside[room.slice_between(begin_s, end_s)] = True
    # While there was room for all, what nodes offered limited nothing.
    row, moments = room.resources.index(resource), (inside & room.full if (inside & room.full).any() else inside)
    is_places = lives["asks"].n_unique() == 1
    amounts = room.slots[row, moments] if is_places else (room.capacity - room.others)[row, moments]
    pieces = {
        text: 1.0 if is_places or resource == PLACES else parse_amounts(text).get(resource, 0.0)
        for text in lives["asks"].unique()
    }
    weights = lives["asks"].replace_strict(pieces, return_dtype=pl.Float64)
    total_s = float((lives["lives_s"] * lives["pods"] * weights).sum())
    held_s = total_s / float(lives["pods"].sum())
    mean = float(amounts.mean()) if len(amounts) else 0.0
    return RoomCeiling(resource, mean, held_s, is_places) if mean > 0 and held_s > 0 and np.isfinite(mean) else None


@dataclass(frozen=True)
class ForeignRoom:
    """What others held of the resource of which they held most.

    `fraction`: Mean share of its capacity. `runs`: Other tests among them.
    """

    resource: str
    fraction: float
    held: float
    capacity: float
    runs: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What others held, and which other tests were among them."""
        tests = f", among them the test{'s' * (len(self.runs) > 1)} {format_items(self.runs, 2)}" if self.runs else ""
        return f"Others held {format_part(self.resource, self.held, self.capacity)} on average{tests}"


def find_foreign_room(
    room: Room, holdings: pl.DataFrame, pods: pl.DataFrame, until_s: float, bound: set[str]
) -> ForeignRoom | None:
    """How much did others hold of what this run's pods ask for, until the last one was due?

    `holdings`: Table HOLDINGS. `pods`: `uid` of table PODS. `bound`: Resources that held pods back.

    Of processors, memory and places for pods each cluster's own daemons hold something: they count only where they
    held pods back. Null where it is less than 1 %.
    """
    moments = room.slice_between(0.0, max(until_s, 1e-3))
    shares = {}
    for row, name in enumerate(room.resources):
        capacity, others = float(room.capacity[row, moments].mean()), float(room.others[row, moments].mean())
        if ("/" in name or name in bound) and capacity > 0 and others >= MENTIONED_FRACTION * capacity:
            shares[name] = (others / capacity, others, capacity)
    if not shares:
        return None
    name = max(shares, key=lambda each: (shares[each][0], each))
    foreign = holdings.filter(~pl.col("uid").is_in(pods["uid"].implode()) & (pl.col("state") != "gone"))
    runs = tuple(sorted(foreign["run"].drop_nulls().unique()))
    return ForeignRoom(name, *shares[name], runs)
