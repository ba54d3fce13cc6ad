"""How many replicas an autoscaler wants, from what it sees: fixed counts, Kubernetes' HPA, KEDA, an own function.

A policy is named as `KIND:METRIC=TARGET`; a new kind is a class with `decide` and its line in `read_policy`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.user_code import load_user_function

SYNC_S = 15.0
"""Period of the HPA controller (--horizontal-pod-autoscaler-sync-period)."""
TOLERANCE = 0.1
"""Deviation of the metric that changes nothing (--horizontal-pod-autoscaler-tolerance)."""
STABILIZATION_S = 300.0
"""Time over which the largest wish decides before replicas go (behavior.scaleDown.stabilizationWindowSeconds)."""
MAX_GROWTH_FACTOR, MAX_GROWTH = 2.0, 4
"""Replicas at most after a period: doubled, or four more (behavior.scaleUp, the default policies)."""
METRICS = ("in_flight", "waiting", "busy", "rate")
_POLICY = re.compile(
    r"(fixed|hpa|keda|function)(?::(?:([a-z_]+)=(\d+(?:\.\d+)?)|(\d+)|([\w.]+:[\w.]+|[\w./-]+\.py:\w+)))?"
)


@dataclass(frozen=True)
class Sample:
    """What an autoscaler sees.

    `ready`, `starting`: Replicas that serve, and those that do not yet.
    `in_flight`, `waiting`: Requests in all replicas, and those of them in a queue.
    `busy`: Mean share of the time since the last sample in which a replica worked.
    `rate`: Arrivals a second since then.
    """

    at_s: float
    ready: int
    starting: int
    in_flight: int
    waiting: int
    busy: float
    rate: float

    @property
    def replicas(self) -> int:
        """Those that serve, and those that will."""
        return self.ready + self.starting


class Policy(ABC):
    """An autoscaler: the replicas that it wants at a sample, which come every `every_s` seconds."""

    every_s = SYNC_S

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def decide(self, sample: Sample) -> int:
        """Replicas that it wants now; the caller keeps them within its limits."""

    def count_at_start(self, usual: int) -> int:
        """Replicas at the begin of a day, where `usual` are what its first rate needs."""
        return usual

    def restart(self) -> None:  # noqa: B027 - most have no past
        """Forget the past, for another day."""


class FixedCount(Policy):
    """Always as many."""

    def __init__(self, count: int) -> None:
        super().__init__(f"fixed:{count}")
        self._count = count

    def decide(self, sample: Sample) -> int:
        """The count."""
        del sample
        return self._count

    def count_at_start(self, usual: int) -> int:
        """The count."""
        del usual
        return self._count


class ReplicaSchedule(Policy):
    """As many as a schedule says: what is known before needs no start-up time, so `lead_s` before.

    `counts`: Replicas by slot of `slot_s` seconds.
    """

    def __init__(self, name: str, counts: Sequence[int], slot_s: float, lead_s: float) -> None:
        super().__init__(name)
        self._counts, self._slot_s, self._lead_s = counts, slot_s, lead_s

    @property
    def peak(self) -> int:
        """The most replicas."""
        return max(self._counts)

    def count_at_start(self, usual: int) -> int:
        """What the first slot needs."""
        del usual
        return self._counts[0]

    def decide(self, sample: Sample) -> int:
        """The most of the slots until what is ordered now is ready."""
        first = int(sample.at_s // self._slot_s)
        last = int((sample.at_s + self._lead_s + self.every_s) // self._slot_s)
        wanted = self._counts[first : last + 1] or self._counts[-1:]
        return max(wanted)


class HorizontalPodAutoscaler(Policy):
    """Kubernetes' HPA with the defaults of autoscaling/v2: the metric's sum over the target of a replica.

    Source: Kubernetes documentation, Horizontal Pod Autoscaling, algorithm details. A replica that starts has no
    metric: it counts as one that does nothing.

    >>> hpa = HorizontalPodAutoscaler("hpa:in_flight=8", "in_flight", 8)
    >>> hpa.decide(Sample(0, 2, 0, 40, 8, 1.0, 3.0)), hpa.decide(Sample(15, 2, 3, 17, 0, 1.0, 3.0))
    (5, 5)
    """

    def __init__(self, name: str, metric: str, target: float) -> None:
        super().__init__(name)
        self._metric, self._target = metric, target
        self._wishes: deque[tuple[float, int]] = deque()

    def decide(self, sample: Sample) -> int:
        """Within the tolerance as many as before; more at once within limits; fewer after the stabilization window."""
        total = float(getattr(sample, self._metric)) * (sample.ready if self._metric == "busy" else 1)
        current = max(1, sample.replicas)
        wish = current if abs(total / (self._target * current) - 1) <= TOLERANCE else math.ceil(total / self._target)
        wish = min(max(1, wish), max(int(MAX_GROWTH_FACTOR * current), current + MAX_GROWTH))
        self._wishes.append((sample.at_s, wish))
        while self._wishes[0][0] < sample.at_s - STABILIZATION_S:
            self._wishes.popleft()
        return max(wish, min(current, max(count for _, count in self._wishes)))

    def restart(self) -> None:
        """Forget the wishes."""
        self._wishes.clear()


class OwnFunction(Policy):
    """A function of the user's: a sample as a dictionary in, replicas out."""

    def __init__(self, name: str, function: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(name)
        self._function = function

    def decide(self, sample: Sample) -> int:
        """What the function says; it must be a whole number."""
        try:
            wanted = self._function(asdict(sample) | {"replicas": sample.replicas})
        except Exception as error:
            raise RunFailedError(f"the policy {self.name} failed", found=f"{type(error).__name__}: {error}") from error
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            raise RunFailedError(f"the policy {self.name} wants no whole number", found=repr(wanted)[:60])
        return wanted


def read_policy(text: str) -> Policy | None:
    """A policy by its name; null for `fixed` without a count, which is to be found.

    >>> read_policy("keda:waiting=2").name, read_policy("fixed:3").name, read_policy("fixed")
    ('keda:waiting=2', 'fixed:3', None)
    """
    match = _POLICY.fullmatch(text.strip())
    kind, metric, target, count, function = match.groups() if match else (None,) * 5
    if kind == "fixed" and metric is None and function is None:
        return None if count is None else FixedCount(_check_count(int(count)))
    if kind == "function" and function is not None:
        return OwnFunction(text.strip(), load_user_function(function, where="--policy"))
    if kind in ("hpa", "keda") and metric in METRICS and target is not None and float(target) > 0:
        # With at least one replica, KEDA feeds the HPA a value of a queue, and nothing else of it matters.
        return HorizontalPodAutoscaler(text.strip(), metric, float(target))
    allowed = f"fixed, fixed:N, hpa:METRIC=TARGET or keda:METRIC=TARGET with {', '.join(METRICS)}, function:MODULE:NAME"
    raise ConfigError("not a policy", where="--policy", found=text[:60], allowed=allowed)


def _check_count(count: int) -> int:
    if not 1 <= count <= 4096:
        raise ConfigError("not a number of replicas", where="--policy", found=count, allowed="1 to 4096")
    return count
