"""Model of a plan: from jobs and users to GPUs, whole nodes, pods per second and cost by hour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.capacity.config import HOURS_PER_DAY
from workbench.core.errors import ConfigError, InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOUR_S = 3600.0
# A smaller fraction of a job or replica is floating-point rounding.
ROUNDING = 1e-9
MAX_AT_ONCE = 10_000_000


@dataclass(frozen=True)
class Quantity:
    """A positive value with an interval; without both ends it is a point.

    `low`, `high`: Ends of its interval; null: a point.
    `mirrored`: The end that `fill_missing_end` assumed, lower or upper; empty for none.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    level: float = 0.9
    mirrored: str = ""

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(math.isfinite(number) and number > 0 for number in (self.value, *ends)):
            self._raise_invalid("not a positive value with a positive interval")
        if not self.is_point and not (self.low or 0.0) <= self.value <= (self.high or 0.0):
            self._raise_invalid("a value outside its own interval")
        if not 0 < self.level < 1:
            raise InputError("not a confidence level", where=self.name, found=self.level, allowed="between 0 and 1")

    def _raise_invalid(self, message: str) -> None:
        raise InputError(message, where=self.name, found=f"{self.value} [{self.low}, {self.high}]")

    @property
    def is_point(self) -> bool:
        """Whether it has no interval."""
        return self.low is None or self.high is None

    def fill_missing_end(self) -> Quantity:
        """Return a copy whose unknown end is as far from the value as the known one, on the log scale.

        >>> found = Quantity("users per replica", 40.0, low=25.0).fill_missing_end()
        >>> found.low, found.high, found.mirrored
        (25.0, 64.0, 'upper')
        """
        if self.low is not None and self.high is None:
            return replace(self, high=self.value**2 / self.low, mirrored="upper")
        if self.high is not None and self.low is None:
            return replace(self, low=self.value**2 / self.high, mirrored="lower")
        return self

    def value_at(self, z: Floats) -> Floats:
        """The quantity at standard normal deviates: its value at 0, the interval's ends at those of its level.

        Lognormal on each side of the value: its logarithm is normal with one spread below and another above, which
        matches value, low and high (a split normal, John 1982, on the log scale). An interval that is symmetric on the
        log scale gives the plain lognormal. Draws fall into the interval as often as the level says.

        >>> one = Quantity("users per replica", 40.0, low=30.0, high=48.0, level=0.9)
        >>> z = 1.6448536269514722
        >>> one.value_at(np.array([-z, 0.0, z])).round(6).tolist()
        [30.0, 40.0, 48.0]
        """
        if self.low is None or self.high is None:
            return np.full(np.shape(z), self.value)
        from scipy.special import ndtri

        half = float(ndtri((1 + self.level) / 2))
        below, above = math.log(self.value / self.low) / half, math.log(self.high / self.value) / half
        return np.asarray(self.value * np.exp(np.where(z < 0, below, above) * z), dtype=np.float64)

    def quantile(self, share: float) -> float:
        """Quantile of the draws."""
        from scipy.special import ndtri

        return float(self.value_at(np.array([float(ndtri(share))]))[0])

    def scale_by(self, factor: float) -> Quantity:
        """The quantity multiplied by a factor."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, value=self.value * factor, low=low, high=high)


def build_spread(name: str, factor: float) -> Quantity:
    """A factor around 1, between 1/factor and factor in 9 of 10 cases; a point for a factor of 1.

    >>> build_spread("growth", 1.5)
    Quantity(name='growth', value=1.0, unit='', low=0.6666666666666666, high=1.5, level=0.9, mirrored='')
    """
    return Quantity(name, 1.0) if factor == 1 else Quantity(name, 1.0, "", 1 / factor, factor, 0.9)


def draw_quantities(quantities: list[Quantity], draws: int, seed: int) -> dict[str, Floats]:
    """Draw each quantity independently, by its name: arrays of `draws` values.

    The random numbers of each depend on the seed and its name only, so removing or widening one input does not change
    the draws of the others.

    >>> sample = draw_quantities([build_spread("growth", 1.5)], draws=3, seed=1)
    >>> {name: len(values) for name, values in sample.items()}
    {'growth': 3}
    """
    return {quantity.name: quantity.value_at(_draw_normal(quantity.name, draws, seed)) for quantity in quantities}


def _draw_normal(name: str, draws: int, seed: int) -> Floats:
    """Standard normal numbers, one of each of `draws` equally likely parts, in an order of the seed and name only.

    A Latin hypercube (McKay, Beckman and Conover 1979): quantiles of a figure that hangs on one input are not left to
    chance.
    """
    import zlib

    from scipy.special import ndtri

    generator: Any = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.asarray(ndtri((generator.permutation(draws) + 0.5) / draws), dtype=np.float64)


def count_whole_nodes(size: int, node: int) -> int:
    """Return the number of whole nodes taken by a shape larger than a node.

    >>> count_whole_nodes(16, 8), count_whole_nodes(20, 8)
    (2, 3)
    """
    return -(-size // node)


def pack_first_fit(counts: Ints, sizes: Sequence[int], node: int, *, spanning: bool = False) -> Ints:
    """Nodes that the shapes need by first fit, largest shapes first.

    `spanning`: Give shapes larger than a node whole nodes; otherwise they are refused.

    First fit decreasing needs at most 11/9 of the minimum number of nodes plus 6/9 (Dósa 2007). Nodes with equal room
    form one group, so the run time does not depend on the number of nodes. It does not model topology, resources other
    than GPUs, or the placement of pods that come and go.

    >>> pack_first_fit(np.array([[1, 2, 2], [0, 0, 0]]), [8, 5, 3], 8).tolist()
    [3, 0]
    """
    merged, sizes = _merge_equal_sizes(np.asarray(counts, dtype=np.int64), sizes)
    distinct, which = _find_distinct_cases(merged)
    large = [column for column, size in enumerate(sizes) if size > node]
    if large and not spanning and distinct[:, large].any():
        raise ConfigError(
            "a shape is larger than a node",
            found=[f"{sizes[column]} GPUs" for column in large],
            allowed=f"up to {node} GPUs, a node",
            do="set larger nodes (gpus_per_node), or spanning=true for whole nodes",
        )
    nodes = np.zeros(len(distinct), dtype=np.int64)
    for column in large:
        nodes += distinct[:, column] * count_whole_nodes(sizes[column], node)
    fitting = [column for column in range(len(sizes)) if column not in large]
    nodes += _count_nodes(distinct[:, fitting], [sizes[column] for column in fitting], node)
    return np.asarray(nodes[which], dtype=np.int64)


def _merge_equal_sizes(counts: Ints, sizes: Sequence[int]) -> tuple[Ints, list[int]]:
    """Merge the counts of shapes of one size. `counts`: [case, shape]. `sizes`: GPUs of each shape."""
    different = sorted(set(sizes), reverse=True)
    columns = [
        sum(
            (counts[:, at] for at, other_size in enumerate(sizes) if other_size == size),
            np.zeros(len(counts), dtype=np.int64),
        )
        for size in different
    ]
    return np.stack(columns, axis=1), different


def _find_distinct_cases(counts: Ints) -> tuple[Ints, Ints]:
    """Distinct rows of `counts`, [case, shape], and for each case the index of its row among them.

    Cases are compared as one number where they fit.
    """
    spans = counts.max(axis=0, initial=0) + 1
    if counts.shape[1] == 0 or np.log2(spans.astype(np.float64)).sum() >= 62:
        distinct, which = np.unique(counts, axis=0, return_inverse=True)
        return distinct, np.asarray(which.reshape(-1), dtype=np.int64)
    weights = np.append(np.cumprod(spans[:0:-1])[::-1], 1)
    _, first, which = np.unique(counts @ weights, return_index=True, return_inverse=True)
    return counts[first], np.asarray(which, dtype=np.int64)


def _count_nodes(counts: Ints, sizes: list[int], node: int) -> Ints:
    """Nodes that each case needs, for shapes that fit on one. `counts`: [case, shape]. `node`: GPUs of a node."""
    cases = len(counts)
    # Groups of nodes with equal room, in the order of the nodes; at first enough empty nodes.
    case = np.arange(cases)
    many, room = counts.sum(axis=1) + 1, np.full(cases, node, dtype=np.int64)
    for column in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        # Place the wanted shapes of one size on the first nodes with room.
        wanted = counts[:, column]
        size = sizes[column]
        each = room // size
        fits = many * each
        taken = np.clip(wanted[case] - _sum_earlier_room(case, fits), 0, fits)
        full, remainder = np.divmod(taken, np.maximum(each, 1))
        # A group splits into filled nodes, one node with the rest, and unchanged nodes.
        parts: list[tuple[Any, Any]] = [(full, room - each * size), (remainder > 0, room - remainder * size)]
        parts.append((many - full - (remainder > 0), room))
        counted = np.stack([part for part, _ in parts], axis=1).astype(np.int64)
        new_room = np.stack([part for _, part in parts], axis=1)
        mask = counted.reshape(-1) > 0
        case, many, room = np.repeat(case, 3)[mask], counted.reshape(-1)[mask], new_room.reshape(-1)[mask]
    used = np.bincount(case, weights=many * (room < node), minlength=cases)
    return np.asarray(np.rint(used), dtype=np.int64)


def _sum_earlier_room(case: Ints, fits: Ints) -> Ints:
    """Sum for each group the room in the earlier groups of its case; `case`: Case of each group, ascending.

    >>> _sum_earlier_room(np.array([0, 0, 1]), np.array([2, 3, 4])).tolist()
    [0, 2, 0]
    """
    total = np.cumsum(fits) - fits
    first = np.searchsorted(case, case, side="left")
    return np.asarray(total - total[first], dtype=np.int64)


@dataclass(frozen=True)
class JobLoad:
    """A class of Spark jobs: arrivals by hour, shape (HOURS_PER_DAY,), and duration, GPUs and pods of one job."""

    name: str
    per_hour: Floats
    duration: Quantity
    gpus: int
    pods: int = 1
    stack_share: float = 0.0


@dataclass(frozen=True)
class ServiceLoad:
    """A service: its load by hour, shape (HOURS_PER_DAY,), and capacity, GPUs and pods of one replica.

    `grows` is the capacity of 1, 2, … replicas relative to one, as far as it is known; null: linear.
    """

    load: Floats
    per_replica: Quantity
    gpus: int
    least: int = 0
    pods: int = 1
    stack_share: float = 0.0
    grows: tuple[float, ...] | None = None

    def count_replicas(self, parts: Floats) -> Ints:
        """Count the whole replicas for a load in units of one replica's capacity; linear beyond the known range.

        >>> one = ServiceLoad(np.zeros(24), Quantity("load per replica", 40.0), 1, grows=(1.0, 1.8, 2.4))
        >>> one.count_replicas(np.array([0.0, 1.0, 1.9, 2.4, 2.5, 9.0])).tolist()
        [0, 1, 3, 3, 4, 9]
        """
        linear = _round_up(parts)
        if self.grows is None:
            return linear
        by_law = np.searchsorted(self.grows, parts - ROUNDING) + 1
        beyond = np.maximum(linear, len(self.grows) + 1)
        return np.where(linear == 0, 0, np.where(by_law > len(self.grows), beyond, by_law))

    def sum_replica_capacity(self, replicas: Ints) -> Floats:
        """Capacity of this many replicas relative to one.

        `replicas`: Numbers of replicas, in an array of any shape.
        """
        if self.grows is None:
            return replicas.astype(np.float64)
        capacities = np.array([0.0, *self.grows])
        return np.where(replicas < len(capacities), capacities[np.minimum(replicas, len(capacities) - 1)], replicas)


@dataclass(frozen=True)
class Model:
    """Inputs from which a plan is calculated; null for parts that are not covered.

    `node_price_per_h`: Price of a node per hour; null: no cost.
    `jobs_within_s`, `replicas_within_s`: Time within which the jobs of an hour arrive, and replicas start.
    """

    works: tuple[JobLoad, ...]
    serving: ServiceLoad | None
    stack: Quantity | None
    jobs_factor: Quantity
    users_factor: Quantity
    utilisation: float = 0.7
    node_gpus: int = 8
    spanning: bool = False
    node_price_per_h: float | None = None
    jobs_within_s: float = HOUR_S
    replicas_within_s: float = HOUR_S

    @cached_property
    def quantities(self) -> list[Quantity]:
        """Quantities that enter the plan and are drawn, each once."""
        quantities = list({work.duration.name: work.duration for work in self.works}.values())
        quantities += [self.jobs_factor] if self.works else []
        quantities += [self.serving.per_replica, self.users_factor] if self.serving else []
        shares = [work.stack_share for work in self.works] + ([self.serving.stack_share] if self.serving else [])
        return quantities + ([self.stack] if self.stack is not None and any(shares) else [])

    @property
    def medians(self) -> dict[str, Floats]:
        """Return every quantity at its value, as one case."""
        return {quantity.name: np.array([quantity.value]) for quantity in self.quantities}


@dataclass(frozen=True)
class Outcome:
    """Figures of a plan, arrays of shape (draws, HOURS_PER_DAY); null for parts that are not covered.

    `spark_gpus`, `service_gpus`: GPUs of the Spark jobs over the utilisation target, and of whole replicas.
    `needed`, `replicas`: Whole replicas that the load needs, and that run: at least `least`.
    """

    slots: Mapping[str, Ints]
    spark_gpus: Floats | None
    service_gpus: Floats | None
    needed: Ints | None
    replicas: Ints | None
    nodes: Ints
    pods_per_s: Floats
    node_gpus: int
    node_price_per_h: float | None

    @property
    def gpus(self) -> Floats:
        """GPUs of Spark and service together."""
        parts = [gpus for gpus in (self.spark_gpus, self.service_gpus) if gpus is not None]
        return np.asarray(sum(parts[1:], parts[0]), dtype=np.float64)

    @property
    def cost_by_hour(self) -> Floats | None:
        """Cost of each hour with its own nodes; null without a price."""
        if self.node_price_per_h is None:
            return None
        return np.asarray(self.nodes * self.node_price_per_h, dtype=np.float64)

    @property
    def cost_scaled(self) -> Floats | None:
        """Cost of the day with each hour's own nodes, shape (draws,)."""
        return None if self.cost_by_hour is None else self.cost_by_hour.sum(axis=1)

    @property
    def cost_fixed(self) -> Floats | None:
        """Cost of the day with the peak's nodes all day, shape (draws,)."""
        if self.node_price_per_h is None:
            return None
        return np.asarray(self.nodes.max(axis=1) * (HOURS_PER_DAY * self.node_price_per_h), dtype=np.float64)


def remaining_time_fraction(share: float, ratio: Floats) -> Floats:
    """Remaining fraction of a time if a share of it gets faster by a ratio (Amdahl).

    >>> remaining_time_fraction(0.2, np.array([2.0, 1.0])).round(6).tolist()
    [0.9, 1.0]
    """
    return np.asarray(share / ratio + (1 - share), dtype=np.float64)


def evaluate_model(model: Model, samples: Mapping[str, Floats]) -> Outcome:
    """Compute the plan for each draw of the quantities; arrays are [draw, hour].

    `samples`: Draws of all `model.quantities` by name, arrays of shape (draws,).

    Little's law (1961): concurrent jobs = arrivals per second times duration. Spark GPUs = GPUs of the concurrent jobs
    over the utilisation target; slots round these jobs up per class. Replicas = load over the capacity of one, rounded
    up, or the number that carries it by the service's law. A job that runs into the next hour counts in the hour of its
    arrival.
    """
    draws = len(next(iter(samples.values())))
    time_fractions = (
        {name: remaining_time_fraction(share, samples[model.stack.name]) for name, share in _list_stack_shares(model)}
        if model.stack
        else {}
    )
    at_once = {
        work.name: _jobs_at_once(model, work, samples) * time_fractions.get(work.name, np.ones(draws))[:, None]
        for work in model.works
    }
    slots = {name: _round_up(jobs) for name, jobs in at_once.items()}
    spark = sum((at_once[work.name] * work.gpus for work in model.works), np.zeros((draws, HOURS_PER_DAY)))
    # Replicas needed, [draw, hour]; null without a service.
    time_fraction = time_fractions.get("", np.ones(draws))
    serving, needed, replicas = model.serving, None, None
    if serving is not None:
        carried = samples[serving.per_replica.name] / time_fraction
        load = samples[model.users_factor.name][:, None] * serving.load[None, :]
        needed = serving.count_replicas(load / carried[:, None])
        replicas = np.maximum(needed, serving.least)
    # Nodes needed, [draw, hour], after packing the jobs and replicas first-fit.
    shapes = [(work.gpus, slots[work.name]) for work in model.works]
    shapes += [(serving.gpus, replicas)] if serving is not None and replicas is not None else []
    counts = np.stack([count.reshape(-1) for _, count in shapes], axis=1)
    nodes = pack_first_fit(counts, [size for size, _ in shapes], model.node_gpus, spanning=model.spanning)
    # Pods per second, [draw, hour], while an hour's jobs arrive and its replicas start.
    rate = np.zeros((draws, HOURS_PER_DAY))
    for work in model.works:
        rate += samples[model.jobs_factor.name][:, None] * work.per_hour[None, :] * work.pods / model.jobs_within_s
    if replicas is not None and serving is not None:
        # The day is cyclic: the first hour follows the last.
        more = np.clip(replicas - np.roll(replicas, 1, axis=1), 0, None)
        rate += more * serving.pods / model.replicas_within_s
    return Outcome(
        slots,
        spark if model.works else None,
        None if replicas is None or serving is None else np.asarray(replicas * serving.gpus, dtype=np.float64),
        needed,
        replicas,
        nodes.reshape(draws, HOURS_PER_DAY),
        rate,
        model.node_gpus,
        model.node_price_per_h,
    )


def _list_stack_shares(model: Model) -> list[tuple[str, float]]:
    """Shares that the stack applies to, by job class; the service has an empty name."""
    shares = [(work.name, work.stack_share) for work in model.works]
    shares += [("", model.serving.stack_share)] if model.serving else []
    return [(name, share) for name, share in shares if share]


def _jobs_at_once(model: Model, work: JobLoad, samples: Mapping[str, Floats]) -> Floats:
    """Concurrent jobs of a class, over the utilisation target.

    `samples`: Draws by quantity. Returns: [draw, hour].
    """
    busy = samples[work.duration.name] * samples[model.jobs_factor.name] / HOUR_S
    return np.asarray(busy[:, None] * work.per_hour[None, :] / model.utilisation, dtype=np.float64)


def _round_up(parts: Floats) -> Ints:
    """Round up to whole numbers; refuses numbers that no cluster can hold."""
    largest = float(parts.max(initial=0.0))
    if largest > MAX_AT_ONCE:
        raise ConfigError(
            "too many concurrent jobs or replicas",
            found=f"{largest:.3g}",
            allowed=f"up to {MAX_AT_ONCE:,}",
            do="check durations, jobs per hour and users",
        )
    return np.asarray(np.ceil(parts - ROUNDING), dtype=np.int64)
