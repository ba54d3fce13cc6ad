"""The plan as a model: from jobs, users and what runs found to GPUs, nodes, pods a second and cost, by hour.

Pure: every figure is an array of shape (draws,) on its way in, and (draws, 24) on its way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workbench.capacity.packing import Ints, first_fit
from workbench.capacity.quantity import Floats, Quantity
from workbench.errors import ConfigError

HOUR_S = 3600.0
# A share of a job or of a replica below this is rounding of floats, not work.
ROUNDING = 1e-9
MOST_AT_ONCE = 10_000_000


@dataclass(frozen=True)
class Work:
    """A class of Spark jobs: how many arrive by hour, shape (24,), what one takes and holds."""

    name: str
    per_hour: Floats
    duration: Quantity
    gpus: int
    pods: int = 1
    stack_share: float = 0.0


@dataclass(frozen=True)
class Serving:
    """A service: its load by hour, shape (24,), and what one replica carries and holds.

    `grows` is what 1, 2, … replicas carry together, in that of one, as far as that is known; null: linear.
    """

    load: Floats
    per_replica: Quantity
    gpus: int
    least: int = 0
    pods: int = 1
    stack_share: float = 0.0
    grows: tuple[float, ...] | None = None

    def replicas_for(self, parts: Floats) -> Ints:
        """Whole replicas that carry so many times what one does; linear beyond what is known.

        Examples
        --------
        >>> one = Serving(np.zeros(24), Quantity("load per replica", 40.0), 1, grows=(1.0, 1.8, 2.4))
        >>> one.replicas_for(np.array([0.0, 1.0, 1.9, 2.4, 2.5, 9.0])).tolist()
        [0, 1, 3, 3, 4, 9]
        """
        linear = _whole(parts)
        if self.grows is None:
            return linear
        known = np.searchsorted(self.grows, parts - ROUNDING) + 1
        beyond = np.maximum(linear, len(self.grows) + 1)
        return np.where(linear == 0, 0, np.where(known > len(self.grows), beyond, known))

    def carried_by(self, replicas: Ints) -> Floats:
        """What so many replicas carry together, in that of one."""
        if self.grows is None:
            return replicas.astype(np.float64)
        known = np.array([0.0, *self.grows])
        return np.where(replicas < len(known), known[np.minimum(replicas, len(known) - 1)], replicas)


@dataclass(frozen=True)
class Model:
    """Everything that a plan is calculated from; null: not covered.

    Attributes
    ----------
    works, serving
        Jobs and service.
    stack
        Ratio of the chosen stack to the one that the work runs on now.
    jobs_factor, users_factor
        How far a day may be from the profile.
    utilisation
        Share of the Spark GPUs' time that jobs may fill.
    node_gpus, spanning
        GPUs of a node; larger shapes get whole nodes.
    node_price_per_h
        Price of a node for an hour; null: no cost.
    jobs_within_s, replicas_within_s
        How fast the jobs of an hour arrive, and replicas start.
    """

    works: tuple[Work, ...]
    serving: Serving | None
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
        """What is drawn: everything that enters a figure of the plan, each once."""
        found = list({work.duration.name: work.duration for work in self.works}.values())
        found += [self.jobs_factor] if self.works else []
        found += [self.serving.per_replica, self.users_factor] if self.serving else []
        shares = [work.stack_share for work in self.works] + ([self.serving.stack_share] if self.serving else [])
        return found + ([self.stack] if self.stack is not None and any(shares) else [])

    @property
    def medians(self) -> dict[str, Floats]:
        """Every quantity at its value: one case."""
        return {one.name: np.array([one.value]) for one in self.quantities}


@dataclass(frozen=True)
class Outcome:
    """What follows, shapes (draws, 24); null: not covered.

    Attributes
    ----------
    slots
        Whole jobs of each class that can run at once, by name.
    spark_gpus, service_gpus
        GPUs of Spark's work over the utilisation target, and of whole replicas.
    needed, replicas
        Whole replicas that the load needs, and those that are there: never fewer than the least.
    nodes
        Nodes by first fit of slots and replicas.
    pods_per_s
        Pods that arrive a second when it is worst in the hour.
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
        """GPUs of both."""
        parts = [one for one in (self.spark_gpus, self.service_gpus) if one is not None]
        return np.asarray(sum(parts[1:], parts[0]), dtype=np.float64)

    @property
    def cost_by_hour(self) -> Floats | None:
        """Cost of each hour when nodes follow the hour; null without a price."""
        if self.node_price_per_h is None:
            return None
        return np.asarray(self.nodes * self.node_price_per_h, dtype=np.float64)

    @property
    def cost_scaled(self) -> Floats | None:
        """Cost of the day when nodes follow the hour, shape (draws,)."""
        return None if self.cost_by_hour is None else self.cost_by_hour.sum(axis=1)

    @property
    def cost_fixed(self) -> Floats | None:
        """Cost of the day when the peak's nodes stay all day, shape (draws,)."""
        if self.node_price_per_h is None:
            return None
        return np.asarray(self.nodes.max(axis=1) * (24 * self.node_price_per_h), dtype=np.float64)


def remaining(share: float, ratio: Floats) -> Floats:
    """The part of a time that is left when a share of it gets so many times faster, and nothing else does (Amdahl).

    Examples
    --------
    >>> remaining(0.2, np.array([2.0, 1.0])).round(6).tolist()
    [0.9, 1.0]
    """
    return np.asarray(share / ratio + (1 - share), dtype=np.float64)


def evaluate(model: Model, given: Mapping[str, Floats]) -> Outcome:
    """The plan for each draw of the quantities.

    Parameters
    ----------
    model
        What is planned.
    given
        Every one of `model.quantities` by name, shapes (draws,).

    Notes
    -----
    Little's law (1961): jobs that run at once = arrivals per second times duration. Spark GPUs = their GPUs over the
    utilisation target; slots are whole jobs of the same, per class. Replicas = load over what one carries, in whole
    ones, or as many as carry it by the service's law. Hours do not carry over: a job that runs into the next hour
    counts in its own.

    Raises
    ------
    ConfigError
        A shape fits on no node, or there are more of them than can be planned.
    """
    draws = len(next(iter(given.values())))
    left = {name: remaining(share, given[model.stack.name]) for name, share in _shares(model)} if model.stack else {}
    at_once = {
        work.name: _at_once(model, work, given) * left.get(work.name, np.ones(draws))[:, None] for work in model.works
    }
    slots = {name: _whole(jobs) for name, jobs in at_once.items()}
    spark = sum((at_once[work.name] * work.gpus for work in model.works), np.zeros((draws, 24)))
    needed = _needed(model, given, left.get("", np.ones(draws)))
    serving = model.serving
    replicas = None if needed is None or serving is None else np.maximum(needed, serving.least)
    return Outcome(
        slots,
        spark if model.works else None,
        None if replicas is None or serving is None else np.asarray(replicas * serving.gpus, dtype=np.float64),
        needed,
        replicas,
        _nodes(model, slots, replicas, draws),
        _pods_per_s(model, given, replicas, draws),
        model.node_gpus,
        model.node_price_per_h,
    )


def _shares(model: Model) -> list[tuple[str, float]]:
    """Shares that the stack applies to; the service goes without a name."""
    found = [(work.name, work.stack_share) for work in model.works]
    found += [("", model.serving.stack_share)] if model.serving else []
    return [(name, share) for name, share in found if share]


def _at_once(model: Model, work: Work, given: Mapping[str, Floats]) -> Floats:
    """Jobs of a class that run at once, over the utilisation target."""
    busy = given[work.duration.name] * given[model.jobs_factor.name] / HOUR_S
    return np.asarray(busy[:, None] * work.per_hour[None, :] / model.utilisation, dtype=np.float64)


def _whole(parts: Floats) -> Ints:
    """Rounded up; refuses what no cluster holds and integers cannot count safely."""
    most = float(parts.max(initial=0.0))
    if most > MOST_AT_ONCE:
        raise ConfigError(
            "more jobs or replicas at once than can be planned",
            found=f"{most:.3g}",
            allowed=f"up to {MOST_AT_ONCE:,}",
            do="check durations, jobs an hour, and users",
        )
    return np.asarray(np.ceil(parts - ROUNDING), dtype=np.int64)


def _needed(model: Model, given: Mapping[str, Floats], left: Floats) -> Ints | None:
    serving = model.serving
    if serving is None:
        return None
    carried = given[serving.per_replica.name] / left
    load = given[model.users_factor.name][:, None] * serving.load[None, :]
    return serving.replicas_for(load / carried[:, None])


def _nodes(model: Model, slots: Mapping[str, Ints], replicas: Ints | None, draws: int) -> Ints:
    shapes = [(work.gpus, slots[work.name]) for work in model.works]
    shapes += [(model.serving.gpus, replicas)] if model.serving is not None and replicas is not None else []
    counts = np.stack([count.reshape(-1) for _, count in shapes], axis=1)
    nodes = first_fit(counts, [size for size, _ in shapes], model.node_gpus, spanning=model.spanning)
    return nodes.reshape(draws, 24)


def _pods_per_s(model: Model, given: Mapping[str, Floats], replicas: Ints | None, draws: int) -> Floats:
    """Pods that arrive a second while an hour's jobs arrive and its replicas start."""
    found = np.zeros((draws, 24))
    for work in model.works:
        found += given[model.jobs_factor.name][:, None] * work.per_hour[None, :] * work.pods / model.jobs_within_s
    if replicas is not None and model.serving is not None:
        # The day comes round: what the first hour adds, it adds to the last.
        more = np.clip(replicas - np.roll(replicas, 1, axis=1), 0, None)
        found += more * model.serving.pods / model.replicas_within_s
    return found
