"""Room on the nodes over time: what they offer, who holds it, and what alone keeps waiting pods out.

Every resource that the run's pods ask for is an account of its own, also places for pods and extended resources. What
others hold is taken from the room as what the run's own pods hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.throughput import Floats, count_passages
from workbench.scaletest.observation.run_records import format_amounts, parse_amounts
from workbench.scaletest.tables import ROOM

PLACES = "pods"
GPU = "nvidia.com/gpu"
# Share of a resource's places that are free although pods wait: freed ones are not reused immediately, because a
# scheduler with a cycle of one second leaves some free between cycles.
NEARLY_FULL = 0.05
MAX_MOMENTS = 600
MAX_KINDS = 40
_NONE = 1e-9
# Reasons of the scheduler that are no amount of a resource.
_RULES = (
    ("the anti-affinity rules of its pods", r"anti-affinity"),
    ("the affinity rules of its pods", r"pod affinity rules"),
    ("the topology spread of its pods", r"topology spread"),
    ("taints that its pods do not tolerate", r"untolerated taint|had taint"),
    ("the nodes that its pods select", r"node affinity|node selector|didn't match Pod's node"),
    ("free ports on its nodes", r"free ports"),
    ("the volumes of its pods", r"volume|persistentvolumeclaim"),
    ("devices that its resource claims ask for", r"cannot allocate all claims|resourceclaim"),
)
RULE_NAMES = frozenset(name for name, _ in _RULES)
_AMOUNT = re.compile(r"Insufficient ([\w./-]+)")


@dataclass(frozen=True)
class Room:
    """The room at moments of a run, seconds in order; each moment's values hold until the next.

    `capacity`, `own`, `others`: [resource, moment] amounts on nodes that take pods: offered (or still held on a node
    that no longer offers them), held by the run's pods, and by all others.
    `slots`: [resource, moment] pods of the most frequent kind that would fit beside what others hold.
    `waiting`: Pods that wait for a node and could fit on one.
    `blocked`: [resource, moment] share of them that this resource alone keeps out.
    `freed`: Of `blocked`, the part that would fit if others held nothing.
    `packed`: Share that fits on no node by all resources together.
    `ruled`: Share of which the scheduler gave a reason that is no amount of a resource.
    `impossible`: Why a pod that asks for these amounts fits on no node, even if it were empty.
    """

    at_s: Floats
    resources: tuple[str, ...] = ()
    capacity: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    own: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    others: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    slots: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    waiting: Floats = field(default_factory=lambda: np.zeros(0))
    blocked: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    freed: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    packed: Floats = field(default_factory=lambda: np.zeros(0))
    ruled: Floats = field(default_factory=lambda: np.zeros(0))
    impossible: Mapping[str, str] = field(default_factory=dict)

    @property
    def full(self) -> npt.NDArray[np.bool_]:
        """Moments at which most of the waiting pods waited for room."""
        return np.asarray(np.maximum(self.packed, self.ruled) >= 0.5)

    def full_fraction(self, begin_s: float, end_s: float) -> float:
        """Share of the moments between two times at which pods waited for room."""
        moments = self.full[self.slice_between(begin_s, end_s)]
        return float(moments.mean()) if len(moments) else 0.0

    def full_fractions(self, edges_s: Floats) -> Floats:
        """Return the share of moments at which pods waited for room between each two of these times."""
        pairs = zip(edges_s[:-1].tolist(), edges_s[1:].tolist(), strict=True)
        return np.array([self.full_fraction(begin, end) for begin, end in pairs])

    def leave_out(self, spans: Sequence[tuple[float, float]]) -> Room:
        """Return the same room, of which nothing is known to have been full in these times."""
        out = np.zeros(len(self.at_s), dtype=bool)
        for begin, end in spans:
            out |= (self.at_s >= begin) & (self.at_s <= end)
        if not out.any():
            return self
        return replace(self, packed=np.where(out, 0.0, self.packed), ruled=np.where(out, 0.0, self.ruled))

    def slice_between(self, begin_s: float, end_s: float) -> slice:
        """The moment that holds at the begin, and all until the end."""
        first = int(np.searchsorted(self.at_s, begin_s, side="right")) - 1
        return slice(max(0, first), int(np.searchsorted(self.at_s, end_s, side="left")))

    def to_table(self) -> pl.DataFrame:
        """Table ROOM."""
        n = len(self.at_s)
        parts = [
            {
                "resource": [name] * n,
                "at_s": self.at_s.tolist(),
                "capacity": self.capacity[row].tolist(),
                "allocated": self.own[row].tolist(),
                "held_by_others": self.others[row].tolist(),
                "blocked": self.blocked[row].tolist(),
                "waiting": self.waiting.astype(int).tolist(),
            }
            for row, name in enumerate(self.resources)
        ]
        return pl.concat([ROOM.frame([]), *(ROOM.frame(part) for part in parts)])


def read_rules(text: str | None) -> set[str]:
    """Reasons in the scheduler's message that are no amount of a resource.

    >>> read_rules("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod anti-affinity rules.")
    {'the anti-affinity rules of its pods'}
    """
    told = (text or "").split("preemption:")[0]
    return {name for name, pattern in _RULES if re.search(pattern, told, re.IGNORECASE)}


def read_amounts(text: str | None) -> set[str]:
    """Resources of which the scheduler's message says that there is not enough.

    >>> sorted(read_amounts("0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods."))
    ['cpu', 'pods']
    """
    told = (text or "").split("preemption:")[0]
    return {name.rstrip(".") for name in _AMOUNT.findall(told)} | ({PLACES} if "Too many pods" in told else set())


def list_moments(end_s: float) -> Floats:
    """An even grid of at most 600 moments from the start to the end of a run."""
    return np.linspace(0.0, max(end_s, 1e-3), min(MAX_MOMENTS, max(2, int(end_s * 10) + 1)))


def build_asks(schedule: pl.DataFrame, pods: pl.DataFrame) -> pl.Series:
    """What each pod asks for; where it was not recorded, what the plan says of it.

    `schedule`: `index, gpus_per_pod, cpus_per_pod, memory_bytes_per_pod`. `pods`: `index, asks`.
    """
    planned = {
        index: format_amounts({"cpu": cpus, "memory": float(memory), GPU: gpus})
        for index, gpus, cpus, memory in schedule.select(
            "index", "gpus_per_pod", "cpus_per_pod", "memory_bytes_per_pod"
        ).iter_rows()
    }
    rows = pods.select("index", "asks").iter_rows()
    return pl.Series("asks", [asks or planned.get(index, "") for index, asks in rows], dtype=pl.String)


def build_room(
    pods: pl.DataFrame, nodes: pl.DataFrame, changes: pl.DataFrame, holdings: pl.DataFrame, end_s: float
) -> Room:
    """What was free for whom, and what alone kept waiting pods out?

    `pods`: `uid, asks, node, created_s, scheduled_s, ended_s, unschedulable_s, unschedulable_reason`; `asks` as
    `build_asks` gives it.
    `nodes`: `name, ready, gpus, cpus, memory_bytes, pods` of table NODES, for runs without recorded offers.
    `changes`: Table NODE_CHANGES. `holdings`: Table HOLDINGS; pods of the run among them are left out.

    A kind of pods is those that ask for the same amounts; each needs a place for a pod, also where it asks for nothing
    else. A kind is kept out by a resource where more of it wait than nodes have places for by this resource alone, and
    these are less than one, or than 5 % of all its places. Resources that no node offers in a record without offers are
    not known, and keep nothing out. Where more is held than there is, nodes came or were not seen: then that resource
    keeps nothing out either.
    """
    at = list_moments(end_s)
    offers = _NodeOffers(nodes, changes, at)
    asking = pods.filter(pl.col("created_s").is_not_null())
    if not offers.names or not asking.height:
        return Room(at, waiting=np.zeros(len(at)), packed=np.zeros(len(at)), ruled=np.zeros(len(at)))
    counts = Counter(asking["asks"].to_list())
    kinds = [{**parse_amounts(text), PLACES: 1.0} for text, _ in counts.most_common(MAX_KINDS)]
    texts = [text for text, _ in counts.most_common(MAX_KINDS)]
    resources = tuple(sorted(name for name in {name for kind in kinds for name in kind} if offers.is_known(name)))
    amounts = np.array([[kind.get(name, 0.0) for name in resources] for kind in kinds])
    largest = offers.find_largest(resources)
    impossible = {
        text: reason
        for text, row in zip(texts, amounts, strict=True)
        if (reason := _explain_impossible(row, resources, largest)) is not None
    }
    possible = np.array([text not in impossible for text in texts])
    waiting = np.array([_count_waiting(asking.filter(pl.col("asks") == text), at) for text in texts])
    waiting[~possible] = 0
    found = _Accounts(len(resources), len(at))
    found.fill(offers, resources, amounts, waiting, _Changes(asking, holdings, offers.places, resources), at)
    ruled = _read_rule_shares(asking.filter(~pl.col("asks").is_in(list(impossible))), waiting.sum(axis=0), at)
    # Ends and bindings arrive on several streams: single moments tell nothing.
    is_over = (found.own + found.others) > (1 + NEARLY_FULL) * found.capacity + _NONE
    overdrawn = is_over.mean(axis=1) > NEARLY_FULL
    found.blocked[overdrawn] = found.freed[overdrawn] = 0.0
    packed = np.zeros(len(at)) if overdrawn.any() else found.packed
    return Room(
        at,
        resources,
        found.capacity,
        found.own,
        found.others,
        found.slots,
        waiting.sum(axis=0),
        found.blocked,
        found.freed,
        packed,
        ruled,
        impossible,
    )


def _explain_impossible(asks: Floats, resources: tuple[str, ...], largest: Floats) -> str | None:
    """Why no node can take such a pod. `largest`: [node, resource] most that each node ever offered."""
    if (largest >= asks - _NONE).all(axis=1).any():
        return None
    short = [place for place in range(len(resources)) if largest[:, place].max(initial=0.0) < asks[place] - _NONE]
    if not short:
        return "no node offers everything that it requests"
    texts = [
        f"it asks for {asks[place]:,.6g} {resources[place]}, and no node offers more than "
        f"{largest[:, place].max(initial=0.0):,.6g}"
        for place in short[:2]
    ]
    return "; ".join(texts)


def _count_waiting(kind: pl.DataFrame, at: Floats) -> Floats:
    """Pods of one kind that were made and neither bound nor ended, at each moment."""
    gone = kind.select(pl.min_horizontal("scheduled_s", "ended_s").fill_null(np.inf)).to_series()
    came_s, gone_s = (np.sort(times.to_numpy().astype(float)) for times in (kind["created_s"], gone))
    return (count_passages(came_s, at) - count_passages(gone_s, at)).astype(float)


def _read_rule_shares(asking: pl.DataFrame, waiting: Floats, at: Floats) -> Floats:
    """Share of the waiting pods with a reason that is no amount, at each moment."""
    told = asking.filter(pl.col("unschedulable_s").is_not_null())
    # Without a reason nobody knows that it was an amount.
    ruled = [text for text in told["unschedulable_reason"].unique() if read_rules(text) or not read_amounts(text)]
    rows = told.filter(pl.col("unschedulable_reason").is_in(ruled, nulls_equal=True))
    gone = rows.select(pl.min_horizontal("scheduled_s", "ended_s").fill_null(np.inf)).to_series()
    came_s, gone_s = (np.sort(times.to_numpy().astype(float)) for times in (rows["unschedulable_s"], gone))
    counted = count_passages(came_s, at) - count_passages(gone_s, at)
    return np.asarray(np.divide(counted, waiting, out=np.zeros(len(at)), where=waiting > 0))


class _NodeOffers:
    """What each node offers over time; nothing while it takes no pods."""

    def __init__(self, nodes: pl.DataFrame, changes: pl.DataFrame, at: Floats) -> None:
        recorded = changes.filter(pl.col("offers").is_not_null() | ~pl.col("ready"))
        self.is_recorded = changes["offers"].is_not_null().any()
        ever_ready = nodes.filter(pl.col("ready"))
        self.names = ever_ready["name"].to_list()
        self.places = {name: place for place, name in enumerate(self.names)}
        static = {
            name: {GPU: float(gpus), "cpu": cpus, "memory": float(memory), PLACES: float(slots)}
            for name, gpus, cpus, memory, slots in ever_ready.select(
                "name", "gpus", "cpus", "memory_bytes", "pods"
            ).iter_rows()
        }
        rows = (recorded if self.is_recorded else changes).filter(pl.col("name").is_in(self.names)).sort("at_s")
        self._turns: list[tuple[float, int, dict[str, float]]] = []
        known_s = float(rows["at_s"][0]) if rows.height else 0.0
        first = dict(rows.group_by("name").agg(pl.col("at_s").min()).iter_rows())
        for name, place in self.places.items():
            # What comes later than the first list of all nodes was not there before.
            if not self.is_recorded and first.get(name, 0.0) <= known_s + 1.0:
                self._turns.append((-np.inf, place, static[name]))
        for at_s, name, ready, gpus, offers in rows.select("at_s", "name", "ready", "gpus", "offers").iter_rows():
            amounts = parse_amounts(offers) if offers else static[name] | {GPU: float(gpus)}
            is_first = at_s <= known_s + 1.0
            self._turns.append((-np.inf if is_first else at_s, self.places[name], amounts if ready else {}))
        self._known = {name for _, _, amounts in self._turns for name, amount in amounts.items() if amount}
        self._at = at

    def is_known(self, resource: str) -> bool:
        """Whether offers of this resource are part of the record."""
        return self.is_recorded or resource in self._known

    def find_largest(self, resources: tuple[str, ...]) -> Floats:
        """[node, resource] most that each node ever offered."""
        largest = np.zeros((len(self.names), len(resources)))
        for _, place, amounts in self._turns:
            row = np.array([amounts.get(name, 0.0) for name in resources])
            largest[place] = np.maximum(largest[place], row)
        return largest

    def iterate(self, resources: tuple[str, ...]) -> Iterator[tuple[Floats, npt.NDArray[np.bool_]]]:
        """Yield for each moment the offers [node, resource], and which nodes take pods; changed in place."""
        offers, takes_pods = np.zeros((len(self.names), len(resources))), np.zeros(len(self.names), dtype=bool)
        n_applied = 0
        for moment in self._at:
            while n_applied < len(self._turns) and self._turns[n_applied][0] <= moment:
                _, place, amounts = self._turns[n_applied]
                offers[place] = [amounts.get(name, 0.0) for name in resources]
                takes_pods[place] = bool(amounts)
                n_applied += 1
            yield offers, takes_pods


class _Changes:
    """Changes of what is held on nodes, in the order of time: by the run's pods, and by others."""

    def __init__(
        self, asking: pl.DataFrame, holdings: pl.DataFrame, places: dict[str, int], resources: tuple[str, ...]
    ) -> None:
        bound = asking.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_in(list(places)))
        ends = bound.select(pl.max_horizontal("scheduled_s", pl.col("ended_s").fill_null(np.inf))).to_series()
        own = list(zip(bound["scheduled_s"], ends, bound["node"], bound["asks"], strict=True))
        foreign = list_foreign_spans(holdings.filter(~pl.col("uid").is_in(asking["uid"].implode())))
        others = [(begin, end, node, asks) for begin, end, node, asks in foreign if node in places]
        vectors = {
            asks: np.array([({**parse_amounts(asks), PLACES: 1.0}).get(name, 0.0) for name in resources])
            for asks in {row[3] for row in (*own, *others)}
        }
        rows = [
            (time_s, places[node], sign * vectors[asks], whose)
            for whose, spans in enumerate((own, others))
            for begin_s, end_s, node, asks in spans
            for time_s, sign in ((begin_s, 1.0), (end_s, -1.0))
            if np.isfinite(time_s)
        ]
        rows.sort(key=lambda row: row[0])
        self.times = np.array([row[0] for row in rows])
        self.nodes = np.array([row[1] for row in rows], dtype=np.intp)
        self.whose = np.array([row[3] for row in rows], dtype=np.intp)
        self.amounts = np.array([row[2] for row in rows]) if rows else np.zeros((0, len(resources)))


def list_foreign_spans(holdings: pl.DataFrame) -> list[tuple[float, float, str | None, str]]:
    """When pods of others were bound, until when, where, and what they hold; infinite for pods that stayed.

    `holdings`: `at_s, uid, state, node, asks` of table HOLDINGS.
    """
    spans = (
        holdings.sort("at_s")
        .group_by("uid", maintain_order=True)
        .agg(
            pl.col("at_s").filter(pl.col("state") == "bound").first().alias("begin_s"),
            pl.col("at_s").filter(pl.col("state") == "gone").first().fill_null(np.inf).alias("end_s"),
            pl.col("node").drop_nulls().first(),
            pl.col("asks").first(),
        )
    )
    return spans.filter(pl.col("begin_s").is_not_null()).select("begin_s", "end_s", "node", "asks").rows()


class _Accounts:
    """The accounts of a room, moment by moment."""

    def __init__(self, n_resources: int, n_moments: int) -> None:
        shape = (n_resources, n_moments)
        self.capacity, self.own, self.others, self.slots = (np.zeros(shape) for _ in range(4))
        self.blocked, self.freed, self.packed = np.zeros(shape), np.zeros(shape), np.zeros(n_moments)

    def fill(
        self,
        offers: _NodeOffers,
        resources: tuple[str, ...],
        amounts: Floats,
        waiting: Floats,
        changes: _Changes,
        at: Floats,
    ) -> None:
        """Fill the accounts. `amounts`: [kind, resource]. `waiting`: [kind, moment]."""
        held, largest = np.zeros((2, len(offers.names), len(resources))), offers.find_largest(resources)
        n_due, n_applied = count_passages(changes.times, at), 0
        for moment, (n_changes, (offered, takes_pods)) in enumerate(zip(n_due, offers.iterate(resources), strict=True)):
            span = slice(n_applied, n_changes)
            np.add.at(held, (changes.whose[span], changes.nodes[span]), changes.amounts[span])
            n_applied = n_changes
            there = offered[takes_pods]
            own, others = held[0][takes_pods], held[1][takes_pods]
            # What a node no longer offers is held by its pods until they end.
            kept = np.minimum(own + others, largest[takes_pods])
            self.capacity[:, moment] = np.maximum(there, kept).sum(axis=0)
            self.own[:, moment] = own.sum(axis=0)
            self.others[:, moment] = others.sum(axis=0)
            self.slots[:, moment] = _count_places(there - others, amounts[0]).sum(axis=0)
            n_waiting = waiting[:, moment].sum()
            for kind in np.flatnonzero(waiting[:, moment]):
                share = waiting[kind, moment] / n_waiting
                asks, count = amounts[kind], waiting[kind, moment]
                free = _count_places(there - own - others, asks)
                whole = _count_places(there, asks)
                without = _count_places(there - own, asks)
                blocked = _is_short(free.sum(axis=0), whole.sum(axis=0), count)
                self.blocked[:, moment] += share * blocked
                self.freed[:, moment] += share * (blocked & ~_is_short(without.sum(axis=0), whole.sum(axis=0), count))
                self.packed[moment] += (
                    share
                    * _is_short(free.min(axis=1).sum(keepdims=True), whole.min(axis=1).sum(keepdims=True), count).item()
                )


def _count_places(room: Floats, asks: Floats) -> Floats:
    """[node, resource] pods of a kind that fit, by each resource alone; infinite where it asks for none of it."""
    places = np.full(room.shape, np.inf)
    asked = asks > 0
    places[:, asked] = np.floor(np.maximum(room[:, asked], 0.0) / asks[asked] + 1e-6)
    return places


def _is_short(free: Floats, whole: Floats, waiting: float) -> npt.NDArray[np.bool_]:
    """Whether pods wait for which there is no place; `free`, `whole`: places now, and on empty nodes."""
    return np.asarray((waiting > free) & (free < np.maximum(1.0, NEARLY_FULL * whole)))
