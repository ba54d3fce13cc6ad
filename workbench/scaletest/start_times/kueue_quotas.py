"""Kueue's admission in virtual time: quotas, borrowing in a cohort, order of queues, and preemption within quotas.

Source: Kueue's documentation of ClusterQueue, Cohort and Preemption. Not simulated: cohorts of cohorts (one level is
read), fair sharing, borrowing while preempting, topology-aware placement, partial admission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.scaletest.start_times.cluster_state import FlavourQuotas, QueueState, Quota

_ROUNDING = 1e-9
# Flavour of each resource, and what a workload uses of it.
Usage = dict[tuple[str, str], float]


@dataclass
class QuotaClaim:
    """A workload that asks for quota, and what it uses once it has some. `order_s`: When it was made."""

    index: int
    queue: str
    requests: Mapping[str, float]
    priority: int
    order_s: float
    usage: Usage = field(default_factory=dict)
    admitted_s: float | None = None


class QuotaLedger:
    """Quotas of all queues, and what is used of them."""

    def __init__(self, queues: Iterable[QueueState]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._used: dict[str, Usage] = {name: defaultdict(float) for name in self.queues}
        self._cohorts: dict[str, list[QueueState]] = defaultdict(list)
        for queue in self.queues.values():
            if queue.cohort:
                self._cohorts[queue.cohort].append(queue)
        self._quotas = {
            queue.name: {
                (flavour.flavour, resource): quota
                for group in queue.groups
                for flavour in group
                for resource, quota in flavour.quotas.items()
            }
            for queue in self.queues.values()
        }

    def find_usage(self, claim: QuotaClaim) -> Usage | None:
        """What a workload would use if it were let in now: of each group the first flavour with room; null without."""
        usage: Usage = {}
        for group in self.queues[claim.queue].groups:
            covered = {name for flavour in group for name in flavour.quotas}
            wanted = {name: amount for name, amount in claim.requests.items() if name in covered and amount > 0}
            if not wanted:
                continue
            fitting = (flavour for flavour in group if self._has_room(claim.queue, flavour, wanted))
            flavour = next(fitting, None)
            if flavour is None:
                return None
            usage |= {(flavour.flavour, name): amount for name, amount in wanted.items()}
        return usage

    def _has_room(self, queue: str, flavour: FlavourQuotas, wanted: Mapping[str, float]) -> bool:
        return wanted.keys() <= flavour.quotas.keys() and all(
            amount <= self.measure_room(queue, (flavour.flavour, name)) + _ROUNDING for name, amount in wanted.items()
        )

    def measure_room(self, queue: str, key: tuple[str, str]) -> float:
        """What is left to a queue of a resource of a flavour, with what it may borrow."""
        quota, used = self._quotas[queue][key], self._used[queue][key]
        cohort = self._cohorts.get(self.queues[queue].cohort or "")
        if not cohort:
            return quota.nominal - used
        shared = sum(_count_lent(self._quotas[member.name].get(key)) for member in cohort)
        shared -= sum(
            max(0.0, self._used[member.name][key] - _count_kept(self._quotas[member.name].get(key)))
            for member in cohort
        )
        room = max(0.0, _count_kept(quota) - used) + shared
        return room if quota.borrowing is None else min(room, quota.nominal + quota.borrowing - used)

    def measure_most(self, queue: str, resource: str) -> float | None:
        """Most that one workload of a queue may have of a resource, if nothing else ran; null where none is asked."""
        amounts = []
        for (flavour, name), quota in self._quotas[queue].items():
            if name == resource:
                cohort = self._cohorts.get(self.queues[queue].cohort or "", [])
                others = [member for member in cohort if member.name != queue]
                lent = sum(_count_lent(self._quotas[member.name].get((flavour, name))) for member in others)
                amounts.append(quota.nominal + (lent if quota.borrowing is None else min(lent, quota.borrowing)))
        return max(amounts, default=None)

    def assume_usage(self, claim: QuotaClaim) -> Usage:
        """What a workload that already runs uses: where it would be let in, or else of the first flavours.

        More may run than the quotas allow, such as after they were cut.
        """
        usage = self.find_usage(claim)
        if usage is None:
            groups = self.queues[claim.queue].groups
            first = {name: one.flavour for group in groups for one in reversed(group) for name in one.quotas}
            usage = {(first[name], name): amount for name, amount in claim.requests.items() if name in first}
        return usage

    def borrows(self, claim: QuotaClaim, usage: Usage) -> bool:
        """Would its queue use more than its own quota with this?"""
        return any(
            self._used[claim.queue][key] + amount > self._quotas[claim.queue][key].nominal + _ROUNDING
            for key, amount in usage.items()
        )

    def take(self, claim: QuotaClaim, usage: Usage, at_s: float) -> None:
        """Let a workload in."""
        claim.usage, claim.admitted_s = usage, at_s
        for key, amount in usage.items():
            self._used[claim.queue][key] += amount

    def give_back(self, claim: QuotaClaim) -> None:
        """A workload has ended, or has lost its quota."""
        for key, amount in claim.usage.items():
            self._used[claim.queue][key] -= amount
        claim.usage = {}

    def choose_victims(self, claim: QuotaClaim, admitted: Iterable[QuotaClaim]) -> list[QuotaClaim]:
        """Workloads that lose their quota so that this one gets its own; none where that is not allowed."""
        queue = self.queues[claim.queue]
        if self.find_usage(claim) is not None:
            return []
        candidates = [other for other in admitted if other.usage and self._may_evict(claim, other, queue)]
        # Others' first, then of lower priority, then let in last.
        candidates.sort(key=lambda one: (one.queue == claim.queue, one.priority, -(one.admitted_s or 0.0)))
        victims: list[tuple[QuotaClaim, Usage]] = []
        for other in candidates:
            if other.queue != claim.queue and not self._is_borrowing(other):
                continue
            victims.append((other, other.usage))
            self.give_back(other)
            if (usage := self.find_usage(claim)) is not None and not (
                self.borrows(claim, usage) and any(one.queue != claim.queue for one, _ in victims)
            ):
                break
        else:
            for other, usage in victims:
                self.take(other, usage, other.admitted_s or 0.0)
            return []
        chosen = []
        for other, usage in reversed(victims[:-1]):
            # Not all may be needed.
            self.take(other, usage, other.admitted_s or 0.0)
            if self.find_usage(claim) is None:
                self.give_back(other)
                chosen.append(other)
        return [*chosen, victims[-1][0]]

    def _may_evict(self, claim: QuotaClaim, other: QuotaClaim, queue: QueueState) -> bool:
        if other.queue == claim.queue:
            if queue.within == "LowerOrNewerEqualPriority":
                return (other.priority, -other.order_s) < (claim.priority, -claim.order_s)
            return queue.within == "LowerPriority" and other.priority < claim.priority
        if not queue.cohort or self.queues[other.queue].cohort != queue.cohort:
            return False
        return queue.reclaim == "Any" or (queue.reclaim == "LowerPriority" and other.priority < claim.priority)

    def _is_borrowing(self, claim: QuotaClaim) -> bool:
        return any(
            self._used[claim.queue][key] > self._quotas[claim.queue][key].nominal + _ROUNDING for key in claim.usage
        )


def _count_lent(quota: Quota | None) -> float:
    """What a queue shares with its cohort."""
    if quota is None:
        return 0.0
    return quota.nominal if quota.lending is None else min(quota.nominal, quota.lending)


def _count_kept(quota: Quota | None) -> float:
    """What a queue keeps for itself."""
    if quota is None or quota.lending is None:
        return 0.0
    return max(0.0, quota.nominal - quota.lending)
