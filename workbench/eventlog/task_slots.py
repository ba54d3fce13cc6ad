"""Task slots: how many tasks executors run at a time, by the resources of their profile and of a stage's tasks.

Source of the rule: Spark's scheduler runs as many tasks on an executor as its scarcest resource allows; of a resource
that tasks share (an amount below 1) each address takes the whole number of tasks that fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan

import polars as pl

from workbench.eventlog.reader import EventLogFacts

Amounts = Mapping[str, float]


@dataclass(frozen=True)
class ExecutorSlots:
    """An executor with the slots that tasks of its own profile have, from when to when (epoch ms).

    Slots are null where its cores, or what a task takes of them, are not known.
    """

    executor_id: str
    profile_id: int
    cores: int | None
    slots: int | None
    added_ms: int | None
    removed_ms: int | None

    def clip_life(self, start_ms: int, end_ms: int) -> tuple[int, int]:
        """Its life within two instants."""
        first = start_ms if self.added_ms is None else max(self.added_ms, start_ms)
        last = end_ms if self.removed_ms is None else min(self.removed_ms, end_ms)
        return first, max(first, last)


class TaskSlots:
    """Slots of the executors of a log, and of its stages on them."""

    def __init__(self, facts: EventLogFacts, log_id: int) -> None:
        of_log = pl.col("log_id") == log_id
        self._settings = dict(
            facts.environment.filter(of_log, pl.col("section") == "spark").select("name", "value").iter_rows()
        )
        self._amounts: dict[tuple[int, str], dict[str, float]] = {}
        resources = facts.resources.filter(of_log)
        for profile, of, resource, amount in resources.select(
            "resource_profile_id", "of", "resource", "amount"
        ).iter_rows():
            self._amounts.setdefault((profile, of), {})[resource] = amount
        self.executors = [
            ExecutorSlots(
                name, profile or 0, cores, self.count_slots(cores, profile or 0, profile or 0), added, removed
            )
            for name, profile, cores, added, removed in facts.executors.filter(of_log)
            .select("executor_id", "resource_profile_id", "total_cores", "added_time_ms", "removed_time_ms")
            .iter_rows()
        ]

    def count_slots(self, cores: int | None, executor_profile: int, task_profile: int) -> int | None:
        """Tasks of one profile that an executor of another, or the same, runs at a time; null if unknown."""
        tasks = self._read_task_amounts(task_profile)
        cpus = tasks.get("cpus")
        if not cores or not cpus or any(map(isnan, tasks.values())):
            return None
        slots = int(cores // cpus)
        for resource, amount in tasks.items():
            there = self._read_executor_amount(executor_profile, resource)
            if there is not None and isnan(there):
                return None
            if resource != "cpus" and amount > 0 and there:
                slots = min(slots, int(there // amount) if amount >= 1 else int(there) * int(1 / amount))
        return max(slots, 1)

    def select_stage_executors(self, profile: int | None) -> list[tuple[ExecutorSlots, int | None]]:
        """The executors that run tasks of a profile, with its slots on each.

        A profile without executors of its own asks only for other tasks on those of the default profile.
        """
        wanted = profile or 0
        own = [executor for executor in self.executors if executor.profile_id == wanted]
        chosen = own or [executor for executor in self.executors if executor.profile_id == 0]
        return [(each, self.count_slots(each.cores, each.profile_id, wanted)) for each in chosen]

    def find_peak(self, profile: int | None = None) -> tuple[int | None, int | None]:
        """Largest number of executors, and of slots, at one time: of all, or of those that run a profile's tasks."""
        if profile is None:
            chosen = [(executor, executor.slots) for executor in self.executors]
        else:
            chosen = self.select_stage_executors(profile)
        if not chosen:
            return None, None
        is_known = all(slots is not None for _, slots in chosen)
        moves: list[tuple[int, int, int]] = []
        for executor, slots in chosen:
            moves.append((executor.added_ms or 0, 1, slots or 0))
            if executor.removed_ms is not None:
                moves.append((executor.removed_ms, -1, -(slots or 0)))
        count = slots_now = peak_count = most_slots = 0
        for _, step, slots in sorted(moves):
            count, slots_now = count + step, slots_now + slots
            peak_count, most_slots = max(peak_count, count), max(most_slots, slots_now)
        return peak_count, most_slots if is_known and most_slots else None

    def sum_slot_seconds(self, start_ms: int, end_ms: int) -> float | None:
        """Slot time between two instants, summed over all slots, in s; null if no slots are known.

        Each executor counts from its registration to its removal.
        """
        total_ms = 0
        if any(executor.slots is None for executor in self.executors):
            return None
        for executor in self.executors:
            first, last = executor.clip_life(start_ms, end_ms)
            total_ms += (last - first) * (executor.slots or 0)
        return total_ms / 1e3 or None

    def measure_use(self, stages: pl.DataFrame, start_ms: int, end_ms: int) -> float | None:
        """Share of the executors' time that tasks took, by the slots that each stage's tasks had; null if unknown.

        `stages`: `resource_profile_id, task_duration_total_ms` by stage attempt. Executors of different size that run
        the same profile count as their mean.
        """
        lives = {id(executor): executor.clip_life(start_ms, end_ms) for executor in self.executors}
        life_ms = {executor: last - first for executor, (first, last) in lives.items()}
        busy_ms = 0.0
        by_profile = stages.group_by("resource_profile_id").agg(pl.col("task_duration_total_ms").sum())
        for profile, task_ms in by_profile.iter_rows():
            chosen = self.select_stage_executors(profile)
            slot_ms = sum((slots or 0) * life_ms[id(executor)] for executor, slots in chosen)
            its_life_ms = sum(life_ms[id(executor)] for executor, _ in chosen)
            if task_ms and (not slot_ms or any(slots is None for _, slots in chosen)):
                return None
            busy_ms += (task_ms or 0) * its_life_ms / slot_ms if slot_ms else 0.0
        total_ms = sum(life_ms.values())
        return busy_ms / total_ms if total_ms else None

    def _read_task_amounts(self, profile: int) -> Amounts:
        """What a task of a profile takes, by resource; without `cpus` where it is not known."""
        told = self._amounts.get((profile, "task"))
        if told and "cpus" in told:
            return told
        amounts = told or ({} if profile else _read_settings(self._settings, "spark.task.resource."))
        cpus = self._settings.get("spark.task.cpus", "1").strip()
        return dict(amounts) | ({"cpus": float(cpus)} if cpus.isdigit() and int(cpus) else {})

    def _read_executor_amount(self, profile: int, resource: str) -> float | None:
        told = self._amounts.get((profile, "executor"))
        amounts = told if told is not None else _read_settings(self._settings, "spark.executor.resource.")
        return amounts.get(resource)


def _read_settings(settings: Mapping[str, str], prefix: str) -> dict[str, float]:
    """Amounts of resources in the settings, by resource; NaN for those that are no numbers, as redacted ones."""
    amounts = {}
    for name, value in settings.items():
        if name.startswith(prefix) and name.endswith(".amount"):
            try:
                amounts[name[len(prefix) : -len(".amount")]] = float(value)
            except ValueError:
                amounts[name[len(prefix) : -len(".amount")]] = nan
    return amounts
