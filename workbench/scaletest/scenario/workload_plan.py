"""Plans: every workload of a run with its time, drawn once from the scenario's seed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.console.tables import format_cells
from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.arrival_processes import Trace
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.scheduler_recipes import find_recipe
from workbench.scaletest.scenario.template_pods import GPU, select_devices
from workbench.scaletest.scenario.workload_entries import WorkloadEntry
from workbench.scaletest.scenario.workload_objects import (
    Body,
    ObjectRequest,
    PlanConditions,
    PlannedWorkload,
    build_bodies,
    build_requests,
    hash_bodies,
    list_rules,
)
from workbench.scaletest.tables import SCHEDULE

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

PLAN_FILE = "plan.json"
_TABLES = "tables"
_MAX_RECORD_BYTES = 1 << 16
_WORKLOAD_COLUMNS = ("index", "name", "namespace", "due_s", "spec_sha256", "entry", "step", "lifetime_s")
# A pod as the API server stores it (protobuf), and the revisions it goes through until it has ended.
_POD_BYTES, _POD_REVISIONS = 1_600, 5
# Events of a pod (scheduled, and what its controller says of it), as stored; they stay an hour.
_EVENTS, _EVENT_BYTES = 2, 800
_REVISIONS = 4
_ROWS = 6


@dataclass(frozen=True)
class Plan:
    """Plan of all workloads of a run.

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

    @property
    def pod_schedulers(self) -> tuple[str, ...]:
        """schedulerNames of its pods, sorted: the scheduler's, and those that templates name themselves."""
        own = {entry.scheduler_name for entry in self.scenario.workloads}
        return tuple(sorted(name or self.conditions.scheduler_name for name in own))

    @functools.cached_property
    def conditions(self) -> PlanConditions:
        """Conditions that all its objects have in common."""
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
        """Iterate over all workloads in order of their time."""
        return map(self._build_workload, self.schedule.select(_WORKLOAD_COLUMNS).iter_rows())

    def workload_at(self, index: int) -> PlannedWorkload:
        """The workload of this index."""
        if not 0 <= index < len(self):
            raise InputError("no such workload in the plan", found=index, allowed=f"0 to {len(self) - 1}")
        return self._build_workload(self.schedule.select(_WORKLOAD_COLUMNS).row(index))

    def write(self, folder: str | Path) -> Path:
        """Write scenario.yaml, tables/schedule.parquet and plan.json, from which `read` makes the same bytes again."""
        folder = Path(folder)
        files.write_text(folder / run_records.SCENARIO_FILE, scenarios.format_canonical(self.scenario))
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

    def _build_workload(self, row: tuple[Any, ...]) -> PlannedWorkload:
        """Build a workload whose requests are encoded only when it is sent.

        `row`: index, name, namespace, due_s, spec_sha256, place of its entry, step, lifetime_s.
        """
        index, name, namespace, due_s, spec_sha256, entry, step, lifetime_s = row

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

    run = api_discovery.new_run_id() if run is None else run
    if not api_discovery.RUN_ID.fullmatch(run):
        raise ConfigError("not a run's id", found=run[:40], allowed="like st-1f2e3d4c")
    scheduler = scenario.schedulers[0] if scheduler is None else scheduler
    # Refuse a scheduler that was chosen for a plan whose templates name another one.
    wanted = find_recipe(scheduler, scenario.recipes).pods_scheduler
    own = {entry.scheduler_name for entry in scenario.workloads} - {None, wanted}
    if own and scheduler not in scenario.schedulers:
        raise ConfigError(
            "a template names another scheduler",
            where="--scheduler",
            found=f"{scheduler}; the templates name {', '.join(sorted(map(str, own)))}",
            do="write ${scheduler} into the templates, or leave --scheduler out",
        )
    _check_rate(scenario, scheduler, run)
    arrivals, mixing, living = (np.random.default_rng([scenario.seed, stream]) for stream in range(3))
    try:
        times = scenario.arrival.draw_times(arrivals)
    except ValueError as error:
        raise ConfigError("too many workloads", where="arrival", found=str(error)) from None
    if not len(times.due_s):
        raise ConfigError("the plan is empty", where="arrival", do="raise the rate, the duration or n")
    if times.entries is None:
        # Draw the scenario entry of each workload by index: numbers in proportion to the weights, in random order.
        count = len(times.due_s)

        weights = np.array([entry.weight for entry in scenario.workloads])
        exact = weights / weights.sum() * count
        counts = np.floor(exact).astype(int)
        largest = np.argsort(-(exact - counts), kind="stable")[: count - int(counts.sum())]
        counts[largest] += 1
        entry = mixing.permutation(np.repeat(np.arange(len(weights)), counts))
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
        scenario = scenarios.load_scenario(folder / run_records.SCENARIO_FILE, kept=True)
        schedule = SCHEDULE.read(folder / _TABLES)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("no plan in this folder", where=folder, found=str(error)[:200]) from None
    plan = Plan(scenario, run, scheduler, schedule)
    if not api_discovery.RUN_ID.fullmatch(run) or plan.design_sha256 != record.get("design_sha256"):
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


def _draw_lifetimes(scenario: Scenario, entry: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw the seconds that each workload's pods run.

    NaN for an entry without a lifetime. `entry`: Index by workload.
    """
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
    """Build the plan from arrays with one element for a workload, in order of arrival.

    `due`, `lifetime`: Seconds. `rate`: Workloads/s. `step`: Number of the arrival step. `entry`: Index of its entry
    in the scenario. `lifetime` and `rate` are NaN where there is none.
    """
    scenario = conditions.scenario
    entries = scenario.workloads
    labels = [workload.display_name(at) for at, workload in enumerate(entries)]
    chosen = entry.tolist()
    places = [entries[at].namespace or scenario.namespaces[i % len(scenario.namespaces)] for i, at in enumerate(chosen)]
    encoded: dict[tuple[int, str], tuple[Body, ...]] = {}
    for key in set(zip(chosen, places, strict=True)):
        encoded[key] = build_bodies(entries[key[0]], key[1], conditions)
    objects = sum(len(encoded[key]) for key in zip(chosen, places, strict=True))
    workloads = len(chosen)
    if objects > scenario.limits.objects:
        raise ConfigError(
            "the scenario asks for more than its own limit",
            where="limits.objects",
            found=f"{objects:,} objects of {workloads:,} workloads",
            allowed=f"{scenario.limits.objects:,}",
            do=f"lower n, or set limits: {{objects: {objects}}} when the cluster may be asked for that many",
        )
    lifetimes = [None if seconds != seconds else seconds for seconds in lifetime.tolist()]
    rows: dict[str, list[Any]] = {
        "index": list(range(len(chosen))),
        "name": [api_discovery.build_workload_name(conditions.run, index) for index in range(len(chosen))],
        "entry": [labels[at] for at in chosen],
        "kind": [entries[at].api_kind for at in chosen],
        "namespace": places,
        "due_s": due.tolist(),
        "step": step.tolist(),
        "rate_per_s": [None if value != value else value for value in rate.tolist()],
        "pods": [entries[at].all_pods for at in chosen],
        "gpus_per_pod": [entries[at].gpus_per_pod for at in chosen],
        "cpus_per_pod": [entries[at].requests_per_pod.get("cpu", 0.0) for at in chosen],
        "memory_bytes_per_pod": [round(entries[at].requests_per_pod.get("memory", 0)) for at in chosen],
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


def _build_gap_values(index: int, name: str, step: int, lifetime_s: float | None) -> dict[str, bytes]:
    """Build the values that differ between the workloads of an entry, as they appear in their objects."""
    values = {"name": name.encode(), "index": b"%d" % index, "step": b"%d" % step}
    if lifetime_s is not None:
        values |= {"lifetime": b"%.3fs" % lifetime_s, "lifetime_s": b"%.3f" % lifetime_s}
    return values


@dataclass(frozen=True)
class PlanSummary:
    """A plan's size.

    `etcd_bytes`: Estimate of what the store grows by until it is compacted: every revision of every object, and
    events.
    `ends_s`: When the last pod ends if every pod runs at once; null where some run until they are deleted.
    `peak_gpus`, `peak_pods`: Most at one time, if every pod runs at once: what the cluster would need so that none
    waits. `peak_devices`: The same of each other extended resource that templates request.
    `mean_rate_per_s`: Workloads a second over the submission; null for one moment.
    """

    run: str
    scheduler: str
    workloads: int
    requests: int
    objects: dict[str, int]
    entries: dict[str, int]
    pods: int
    gangs: int
    sent_bytes: int
    etcd_bytes: int
    submission_s: float
    ends_s: float | None
    mean_rate_per_s: float | None
    peak_gpus: float
    peak_pods: int
    peak_devices: dict[str, float]
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return dataclasses.asdict(self)


def summarize_plan(plan: Plan) -> PlanSummary:
    """Summarise a plan's size: workloads, pods, objects, GPUs and duration.

    Source of the store's estimate: 4 revisions of each of our objects; a pod is stored 5 times at 1.6 kB (created,
    bound, running, ended, deleted), with 2 events of 0.8 kB. Does not show: what webhooks and operators add.
    """
    schedule = plan.schedule
    counts = dict(schedule.group_by("entry").len().sort("entry").iter_rows())
    objects: Counter[str] = Counter()
    for at, entry in enumerate(plan.scenario.workloads):
        count = int(counts.get(entry.display_name(at), 0))
        if entry.kind == "Gang":
            objects["Pod"] += count * entry.pods
            for gang_object in plan.conditions.recipe.gang_objects if entry.pod_group else ():
                objects[str(gang_object["kind"])] += count
        else:
            objects[entry.api_kind] += count
        for manifest in entry.owned:
            objects[str(manifest["kind"])] += count
    due = schedule.get_column("due_s")
    span = float(due[-1]) - float(due[0])
    pods, sent = int(schedule.get_column("pods").sum()), int(schedule.get_column("object_bytes").sum())
    peak_requests, peak_pods, ends_s = _find_peaks(plan)
    return PlanSummary(
        run=plan.run,
        scheduler=plan.scheduler,
        workloads=len(plan),
        requests=sum(objects.values()),
        objects={kind: count for kind, count in sorted(objects.items()) if count},
        entries=counts,
        pods=pods,
        gangs=int(schedule.get_column("gang").sum()),
        sent_bytes=sent,
        etcd_bytes=sent * _REVISIONS + pods * (_POD_BYTES * _POD_REVISIONS + _EVENTS * _EVENT_BYTES),
        submission_s=round(span, 6),
        ends_s=ends_s,
        mean_rate_per_s=None if span <= 0 else (len(plan) - 1) / span,
        peak_gpus=peak_requests[GPU],
        peak_pods=peak_pods,
        peak_devices=select_devices(peak_requests),
        steps=int(schedule.get_column("step").n_unique()),
    )


def find_peaks(plan: Plan) -> dict[str, float]:
    """Most of each resource at one time, if every pod runs at once; 0 for a plan without workloads."""
    return _find_peaks(plan)[0] if len(plan) else dict.fromkeys((GPU, "cpu", "memory"), 0.0)


def _find_peaks(plan: Plan) -> tuple[dict[str, float], int, float | None]:
    """Most of each resource and pods at one time, and the second when all ended, if no pod waits."""
    import numpy as np

    schedule = plan.schedule
    entries = {entry.display_name(at): entry for at, entry in enumerate(plan.scenario.workloads)}
    per_entry = [entries[label] for label in schedule.get_column("entry")]
    at_once = np.array([entry.pods_at_once for entry in per_entry])
    waves = np.array([-(-entry.all_pods // entry.pods_at_once) for entry in per_entry])
    begin = schedule.get_column("due_s").to_numpy()
    lifetime = schedule.get_column("lifetime_s").fill_null(float("inf")).to_numpy()
    deleted = schedule.get_column("delete_after_s").fill_null(float("inf")).to_numpy()
    end = begin + np.minimum(lifetime * waves, deleted)
    peaks = {GPU: _max_concurrent(begin, end, at_once * schedule.get_column("gpus_per_pod").to_numpy())}
    asked = {label: entry.requests_per_pod for label, entry in entries.items()}
    labels = schedule.get_column("entry").to_list()
    for name in sorted({"cpu", "memory"}.union(*asked.values()) - {GPU}):
        amounts = np.array([asked[label].get(name, 0.0) for label in labels])
        peaks[name] = _max_concurrent(begin, end, at_once * amounts)
    last = float(end.max())
    return (
        peaks,
        round(_max_concurrent(begin, end, at_once)),
        None if last == float("inf") else last,
    )


def _max_concurrent(begin: np.ndarray, end: np.ndarray, amount: np.ndarray) -> float:
    """Largest sum of `amount` over the intervals that are open at one time; `end` may be infinite.

    `begin`, `end`: Seconds, one element for each interval, as in `amount`.

    >>> import numpy as np
    >>> _max_concurrent(np.array([0.0, 1.0]), np.array([2.0, np.inf]), np.array([4, 8]))
    12.0
    """
    import numpy as np

    finite = np.isfinite(end)
    times = np.concatenate([begin, end[finite]])
    change = np.concatenate([amount, -amount[finite]]).astype(float)
    # At one moment, what ends comes before what begins.
    order = np.lexsort((change, times))
    return round(float(np.cumsum(change[order]).max()), 6)


def format_plan(plan: Plan, summary: PlanSummary) -> list[str]:
    """Format a plan and its size as lines."""
    scenario = plan.scenario
    entries = ", ".join(f"{count:,} {entry}" for entry, count in summary.entries.items())
    objects = ", ".join(f"{count:,} {kind}" for kind, count in summary.objects.items())
    rate = "" if summary.mean_rate_per_s is None else f", {summary.mean_rate_per_s:.4g} workloads/s on average"
    ends = "when it is deleted (some pods have no lifetime)" if summary.ends_s is None else f"{summary.ends_s:,.1f} s"
    changes = "; ".join(map(str, scenario.node_changes))
    others = [name for name in scenario.schedulers if name != plan.scheduler]
    wanted = "".join(f", {amount:g} {name}" for name, amount in summary.peak_devices.items())
    return [
        f"scenario    {scenario.name}, seed {scenario.seed}",
        f"run         {plan.run}, {plan.scheduler}" + (f" (the same plan for {', '.join(others)})" if others else ""),
        f"workloads   {summary.workloads:,}: {entries}",
        f"objects     {summary.requests:,} made by us: {objects}; {summary.sent_bytes / 1e6:,.2f} MB sent",
        f"pods        {summary.pods:,} in all, {summary.gangs:,} gang(s)",
        f"arrival     {scenario.arrival.process}, {summary.steps} step(s), {summary.submission_s:,.1f} s{rate}",
        f"wanted      {summary.peak_gpus:g} GPUs{wanted} and {summary.peak_pods:,} pods at once, if none had to wait",
        f"ends        {ends}",
        f"etcd        about {summary.etcd_bytes / 2**20:,.1f} MiB until it is compacted",
        f"namespaces  {', '.join(plan.namespaces)}",
        f"nodes       {'any, real ones too' if scenario.allow_real_nodes else 'simulated ones only'}",
        *([f"planned     {changes}"] if changes else []),
        *(f"template    {text}" for text in describe_templates(plan)),
    ]


def describe_templates(plan: Plan) -> list[str]:
    """Describe what was read from each entry's template, and which of its fields have no effect."""
    texts = []
    for at, entry in enumerate(plan.scenario.workloads):
        if entry.kind != "Template":
            continue
        requests = {"GPU(s)": entry.gpus_per_pod, **select_devices(entry.requests_per_pod)}
        devices = ", ".join(f"{amount:.4g} {name}" for name, amount in requests.items() if amount) or "no GPU"
        scheduler = f", scheduler {entry.scheduler_name}" if entry.scheduler_name else ""
        label = entry.display_name(at)
        texts.append(f"{label}: {entry.all_pods:,} pod(s) a workload, each {devices}{scheduler}")
        texts += [f"{label}: {note}" for note in _list_settings_without_effect(entry, plan)]
    return texts


def _list_settings_without_effect(entry: WorkloadEntry, plan: Plan) -> list[str]:
    """List what the entry or its template says without effect."""
    notes = list(entry.unused_fields)
    own = str(((entry.template or {}).get("metadata") or {}).get("namespace") or "")
    if own and own not in ("${namespace}", *plan.namespaces):
        notes.append(f"metadata.namespace: {own} is replaced by the scenario's namespaces")
    return notes


def format_schedule(plan: Plan) -> list[str]:
    """Format the first and last workloads of the schedule as lines."""
    frame = plan.schedule.select("index", "due_s", "step", "entry", "pods", "gpus_per_pod", "lifetime_s", "name")
    rows = frame.rows() if frame.height <= 2 * _ROWS else [*frame.head(_ROWS).rows(), None, *frame.tail(_ROWS).rows()]
    headers = ("index", "due s", "step", "entry", "pods", "GPUs", "lives s", "name")
    cells = [_format_workload(row) if row else ["…", *[""] * (len(headers) - 1)] for row in rows]
    numeric = [header not in ("entry", "name") for header in headers]
    return format_cells([list(column) for column in zip(*cells, strict=True)], headers, right=numeric)


def _format_workload(row: tuple[Any, ...]) -> list[str]:
    index, due, step, entry, pods, gpus, lives, name = row
    lifetime = "" if lives is None else f"{lives:.3f}"
    return [str(index), f"{due:.3f}", str(step), entry, str(pods), f"{gpus:g}", lifetime, name]


def format_rights(plan: Plan) -> list[str]:
    """Rights of the measuring identity."""
    rights = []
    for rule in list_rules(plan.scenario):
        targets = ", ".join(f"{name}.{rule.group}" if rule.group else name for name in rule.objects)
        named = f" ({', '.join(rule.names)} only)" if rule.names else ""
        place = "cluster  " if rule.cluster else "namespace"
        optional = ", optional" if rule.optional else ""
        right = f"{place}  {' '.join(rule.verbs)}  {targets}{named}: {rule.why}{optional}"
        rights.append(right)
    return rights
