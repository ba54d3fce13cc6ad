"""Plans: every workload of a run with its time, drawn once from the scenario's seed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.observation import run_conditions
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.arrival_processes import Trace
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.workload_objects import (
    Body,
    ObjectRequest,
    PlanConditions,
    PlannedWorkload,
    build_bodies,
    build_requests,
    hash_bodies,
)
from workbench.scaletest.tables import SCHEDULE

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

PLAN_FILE = "plan.json"
_TABLES = "tables"
_MAX_RECORD_BYTES = 1 << 16


@dataclass(frozen=True)
class Plan:
    """All workloads of a run.

    Attributes
    ----------
    schedule
        The table `SCHEDULE`, in order of `index`, which is the order of `due_s`.
    """

    scenario: Scenario
    run: str
    scheduler: str
    schedule: pl.DataFrame = field(repr=False)

    def __len__(self) -> int:
        return self.schedule.height

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that it makes objects in, sorted."""
        return tuple(sorted(self.schedule.get_column("namespace").unique()))

    @property
    def replay_speed(self) -> float | None:
        """Seconds of a trace in a second of the test; null where no jobs of a trace are replayed."""
        arrival = self.scenario.arrival
        return arrival.speed if isinstance(arrival, Trace) and arrival.lifetimes_s is not None else None

    @functools.cached_property
    def conditions(self) -> PlanConditions:
        """What all its objects have in common."""
        return PlanConditions(self.scenario, self.run, self.scheduler)

    @functools.cached_property
    def design_sha256(self) -> str:
        """Hash of what is planned, without the run's id, its names and its scheduler: equal for the runs of one A/B."""
        columns = [
            name for name in self.schedule.columns if name not in ("name", "queue", "object_bytes", "spec_sha256")
        ]
        rows = self.schedule.select(columns).write_csv(float_precision=9)
        return hashlib.sha256(rows.encode()).hexdigest()

    def iterate_workloads(self) -> Iterator[PlannedWorkload]:
        """All workloads in order of their time."""
        columns = ("index", "name", "namespace", "due_s", "spec_sha256", "entry", "step", "lifetime_s")
        for row in self.schedule.select(columns).iter_rows():
            yield self._build_workload(*row)

    def workload_at(self, index: int) -> PlannedWorkload:
        """The workload of this index."""
        if not 0 <= index < len(self):
            raise InputError("no such workload in the plan", found=index, allowed=f"0 to {len(self) - 1}")
        row = self.schedule.row(index, named=True)
        columns = ("index", "name", "namespace", "due_s", "spec_sha256", "entry", "step", "lifetime_s")
        return self._build_workload(*(row[column] for column in columns))

    def write(self, folder: str | Path) -> Path:
        """Write scenario.yaml, tables/schedule.parquet and plan.json, from which `read` makes the same bytes again."""
        folder = Path(folder)
        files.write_text(folder / run_conditions.SCENARIO_FILE, scenarios.format_canonical(self.scenario))
        SCHEDULE.write(self.schedule, folder / _TABLES)
        record = {
            "run": self.run,
            "scheduler": self.scheduler,
            "scenario_sha256": scenarios.hash_scenario(self.scenario),
            "design_sha256": self.design_sha256,
        }
        return files.write_text(folder / PLAN_FILE, json.dumps(record, indent=1) + "\n")

    @functools.cached_property
    def _bodies(self) -> dict[tuple[str, str], tuple[Body, ...]]:
        """Encoded objects by entry and namespace."""
        entries = {entry.display_name(at): entry for at, entry in enumerate(self.scenario.workloads)}
        pairs = self.schedule.select("entry", "namespace").unique().rows()
        return {(label, place): build_bodies(entries[label], place, self.conditions) for label, place in pairs}

    def _build_workload(
        self,
        index: int,
        name: str,
        namespace: str,
        due_s: float,
        spec_sha256: str,
        entry: str,
        step: int,
        lifetime_s: float | None,
    ) -> PlannedWorkload:
        def encode_requests() -> tuple[ObjectRequest, ...]:
            values = _build_gap_values(index, name, step, lifetime_s)
            bodies = self._bodies[entry, namespace]
            if hash_bodies(bodies, values)[0] != spec_sha256:
                raise InputError(
                    "the plan was made by another version of the workbench: its objects would differ",
                    where=f"workload {name}",
                    do="end this run with `workbench scaletest cleanup`, and start a new run",
                )
            return build_requests(bodies, values, name, spec_sha256)

        return PlannedWorkload(index, name, namespace, due_s, spec_sha256, encode_requests)


def draw_plan(scenario: Scenario, run: str | None = None, *, scheduler: str | None = None) -> Plan:
    """Draw all workloads of a run.

    `scheduler`: schedulerName of the pods; the scenario's first without. All else is the same for any of them.
    """
    import numpy as np

    run = object_names.new_run_id() if run is None else run
    if not object_names.RUN_ID.fullmatch(run):
        raise ConfigError("not a run's id", found=run[:40], allowed="like st-1f2e3d4c")
    scheduler = scenario.schedulers[0] if scheduler is None else scheduler
    _check_rate(scenario, scheduler, run)
    arrivals, mixing, living = (np.random.default_rng([scenario.seed, stream]) for stream in range(3))
    try:
        times = scenario.arrival.draw_times(arrivals)
    except ValueError as error:
        raise ConfigError("too many workloads", where="arrival", found=str(error)) from None
    if not len(times.due_s):
        raise ConfigError("the plan is empty", where="arrival", do="raise the rate, the duration or n")
    if times.entries is None:
        entry = _draw_entries(scenario, len(times.due_s), mixing)
    else:
        places = {workload.display_name(at): at for at, workload in enumerate(scenario.workloads)}
        entry = np.array([places[name] for name in times.entries])
    lifetimes = _draw_lifetimes(scenario, entry, living) if times.lifetimes_s is None else times.lifetimes_s
    # To the millisecond, as it is told to the cluster.
    lifetimes = np.maximum(np.round(lifetimes, 3), 0.001)
    return _build_plan(
        PlanConditions(scenario, run, scheduler), times.due_s, times.step, times.rate_per_s, entry, lifetimes
    )


def read_plan(folder: str | Path) -> Plan:
    """The plan that was written to a run's folder."""
    folder = Path(folder)
    try:
        record = json.loads(files.read_up_to(folder / PLAN_FILE, _MAX_RECORD_BYTES))
        run, scheduler = str(record["run"]), str(record["scheduler"])
        scenario = scenarios.load_scenario(folder / run_conditions.SCENARIO_FILE)
        schedule = SCHEDULE.read(folder / _TABLES)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("no plan in this folder", where=folder, found=str(error)[:200]) from None
    plan = Plan(scenario, run, scheduler, schedule)
    if not object_names.RUN_ID.fullmatch(run) or plan.design_sha256 != record.get("design_sha256"):
        raise InputError("the plan in this folder was changed", where=folder, do="start a new run")
    return plan


def _check_rate(scenario: Scenario, scheduler: str, run: str) -> None:
    """Before anything is drawn: a rate is asked for in workloads, and limited in objects."""
    limits, conditions = scenario.limits, PlanConditions(scenario, run, scheduler)
    weights = [entry.weight for entry in scenario.workloads]
    counts = [len(build_bodies(entry, "x", conditions)) for entry in scenario.workloads]
    mean = sum(w * c for w, c in zip(weights, counts, strict=True)) / sum(weights)
    rate = scenario.arrival.peak_rate_per_s * mean
    if rate > limits.rate_per_s * (1 + 1e-9):
        raise ConfigError(
            "the scenario asks for more than its own limit",
            where="limits.rate_per_s",
            found=f"{scenario.arrival.peak_rate_per_s:g} workloads/s of {mean:g} object(s) each: {rate:g} objects/s",
            allowed=f"{limits.rate_per_s:g} objects/s",
            do=f"lower the rate, or set limits: {{rate_per_s: {rate:g}}} when the cluster may be asked for that much",
        )


def _draw_entries(scenario: Scenario, count: int, random: np.random.Generator) -> np.ndarray:
    """Which entry each workload comes from: shares as the weights ask, to the nearest whole, in random order."""
    import numpy as np

    weights = np.array([entry.weight for entry in scenario.workloads])
    exact = weights / weights.sum() * count
    counts = np.floor(exact).astype(int)
    largest = np.argsort(-(exact - counts), kind="stable")[: count - int(counts.sum())]
    counts[largest] += 1
    return random.permutation(np.repeat(np.arange(len(weights)), counts))


def _draw_lifetimes(scenario: Scenario, entry: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Seconds that each workload's pods run; nan for those of an entry without lifetime."""
    import numpy as np

    lifetimes = np.full(len(entry), np.nan)
    for at, workload in enumerate(scenario.workloads):
        chosen = entry == at
        if workload.lifetime is not None:
            lifetimes[chosen] = workload.lifetime.draw_lifetimes(int(chosen.sum()), random)
    return lifetimes


def _build_plan(
    conditions: PlanConditions,
    due: np.ndarray,
    step: np.ndarray,
    rate: np.ndarray,
    entry: np.ndarray,
    lifetime: np.ndarray,
) -> Plan:
    scenario = conditions.scenario
    entries = scenario.workloads
    labels = [workload.display_name(at) for at, workload in enumerate(entries)]
    chosen = entry.tolist()
    places = [entries[at].namespace or scenario.namespaces[i % len(scenario.namespaces)] for i, at in enumerate(chosen)]
    encoded: dict[tuple[int, str], tuple[Body, ...]] = {}
    for key in set(zip(chosen, places, strict=True)):
        encoded[key] = build_bodies(entries[key[0]], key[1], conditions)
    _check_object_count(scenario, sum(len(encoded[key]) for key in zip(chosen, places, strict=True)), len(chosen))
    lifetimes = [None if seconds != seconds else seconds for seconds in lifetime.tolist()]
    rows: dict[str, list[Any]] = {
        "index": list(range(len(chosen))),
        "name": [object_names.build_workload_name(conditions.run, index) for index in range(len(chosen))],
        "entry": [labels[at] for at in chosen],
        "kind": [entries[at].api_kind for at in chosen],
        "namespace": places,
        "due_s": due.tolist(),
        "step": step.tolist(),
        "rate_per_s": [None if value != value else value for value in rate.tolist()],
        "pods": [entries[at].all_pods for at in chosen],
        "gpus_per_pod": [entries[at].gpus_per_pod for at in chosen],
        "cpus_per_pod": [entries[at].cpus for at in chosen],
        "memory_bytes_per_pod": [entries[at].memory for at in chosen],
        "gang": [entries[at].is_gang for at in chosen],
        "priority": [entries[at].priority for at in chosen],
        "queue": [entries[at].queue for at in chosen],
        "lifetime_s": lifetimes,
        "delete_after_s": [entries[at].delete_after_s for at in chosen],
    }
    digests = [
        hash_bodies(encoded[at, place], _build_gap_values(index, name, number, life))
        for index, (at, place, name, number, life) in enumerate(
            zip(chosen, places, rows["name"], rows["step"], lifetimes, strict=True)
        )
    ]
    rows["spec_sha256"] = [digest[0] for digest in digests]
    rows["object_bytes"] = [digest[1] for digest in digests]
    return Plan(scenario, conditions.run, conditions.scheduler, SCHEDULE.frame(rows))


def _check_object_count(scenario: Scenario, objects: int, workloads: int) -> None:
    if objects > scenario.limits.objects:
        raise ConfigError(
            "the scenario asks for more than its own limit",
            where="limits.objects",
            found=f"{objects:,} objects of {workloads:,} workloads",
            allowed=f"{scenario.limits.objects:,}",
            do=f"lower n, or set limits: {{objects: {objects}}} when the cluster may be asked for that many",
        )


def _build_gap_values(index: int, name: str, step: int, lifetime_s: float | None) -> dict[str, bytes]:
    """What differs between the workloads of an entry, as it stands in their objects."""
    values = {"name": name.encode(), "index": b"%d" % index, "step": b"%d" % step}
    if lifetime_s is not None:
        values |= {"lifetime": b"%.3fs" % lifetime_s, "lifetime_s": b"%.3f" % lifetime_s}
    return values
