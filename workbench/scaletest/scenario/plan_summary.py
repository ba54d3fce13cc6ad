"""Size of a plan (objects, bytes, pods, GPUs, time), and the plan as text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.scaletest.scenario.rbac_rules import Rule, list_rules
from workbench.scaletest.scenario.workload_plan import Plan

if TYPE_CHECKING:
    import numpy as np

# A pod as the API server stores it (protobuf), and the revisions it goes through until it has ended.
_POD_BYTES, _POD_REVISIONS = 1_600, 5
# Events of a pod (scheduled, and what its controller says of it), as stored; they stay an hour.
_EVENTS, _EVENT_BYTES = 2, 800
_REVISIONS = 4


_ROWS = 6


@dataclass(frozen=True)
class PlanSummary:
    """A plan's size.

    `etcd_bytes`: Estimate of what the store grows by until it is compacted: every revision of every object, and
    events.
    `ends_s`: When the last pod ends if every pod runs at once; null where some run until they are deleted.
    `peak_gpus`, `peak_pods`: Most at one time, if every pod runs at once: what the cluster would need so that none
    waits.
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
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def summarize_plan(plan: Plan) -> PlanSummary:
    """A plan's size.

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
    peak_gpus, peak_pods, ends_s = _find_peaks(plan)
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
        peak_gpus=peak_gpus,
        peak_pods=peak_pods,
        steps=int(schedule.get_column("step").n_unique()),
    )


def find_peak_gpus(plan: Plan) -> float:
    """Most GPUs at one time, if every pod runs at once; 0 for a plan without workloads."""
    return _find_peaks(plan)[0] if len(plan) else 0.0


def _find_peaks(plan: Plan) -> tuple[float, int, float | None]:
    """Most GPUs and pods at one time, and the end of all, when every pod starts as soon as its workload is sent."""
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
    gpus = at_once * schedule.get_column("gpus_per_pod").to_numpy()
    last = float(end.max())
    return (
        _max_concurrent(begin, end, gpus),
        round(_max_concurrent(begin, end, at_once)),
        None if last == float("inf") else last,
    )


def _max_concurrent(begin: np.ndarray, end: np.ndarray, amount: np.ndarray) -> float:
    import numpy as np

    finite = np.isfinite(end)
    times = np.concatenate([begin, end[finite]])
    change = np.concatenate([amount, -amount[finite]]).astype(float)
    # At one moment, what ends comes before what begins.
    order = np.lexsort((change, times))
    return round(float(np.cumsum(change[order]).max()), 6)


def format_plan(plan: Plan, summary: PlanSummary) -> list[str]:
    """A plan and its size."""
    scenario = plan.scenario
    entries = ", ".join(f"{count:,} {entry}" for entry, count in summary.entries.items())
    objects = ", ".join(f"{count:,} {kind}" for kind, count in summary.objects.items())
    rate = "" if summary.mean_rate_per_s is None else f", {summary.mean_rate_per_s:.4g} workloads/s on average"
    ends = "when it is deleted (some pods have no lifetime)" if summary.ends_s is None else f"{summary.ends_s:,.1f} s"
    changes = "; ".join(map(str, scenario.node_changes))
    others = [name for name in scenario.schedulers if name != plan.scheduler]
    return [
        f"scenario    {scenario.name}, seed {scenario.seed}",
        f"run         {plan.run}, {plan.scheduler}" + (f" (the same plan for {', '.join(others)})" if others else ""),
        f"workloads   {summary.workloads:,}: {entries}",
        f"objects     {summary.requests:,} made by us: {objects}; {summary.sent_bytes / 1e6:,.2f} MB sent",
        f"pods        {summary.pods:,} in all, {summary.gangs:,} gang(s)",
        f"arrival     {scenario.arrival.process}, {summary.steps} step(s), {summary.submission_s:,.1f} s{rate}",
        f"wanted      {summary.peak_gpus:g} GPUs and {summary.peak_pods:,} pods at once, if none had to wait",
        f"ends        {ends}",
        f"etcd        about {summary.etcd_bytes / 2**20:,.1f} MiB until it is compacted",
        f"namespaces  {', '.join(plan.namespaces)}",
        f"nodes       {'any, real ones too' if scenario.allow_real_nodes else 'simulated ones only'}",
        *([f"planned     {changes}"] if changes else []),
    ]


def format_schedule(plan: Plan) -> list[str]:
    """The first and last workloads."""
    frame = plan.schedule.select("index", "due_s", "step", "entry", "pods", "gpus_per_pod", "lifetime_s", "name")
    rows = frame.rows() if frame.height <= 2 * _ROWS else [*frame.head(_ROWS).rows(), None, *frame.tail(_ROWS).rows()]
    lines = [f"{'index':>7} {'due s':>10} {'step':>5}  {'entry':<20} {'pods':>5} {'GPUs':>5} {'lives s':>9}  name"]
    for row in rows:
        if row is None:
            lines.append(f"{'…':>7}")
            continue
        index, due, step, entry, pods, gpus, lives, name = row
        lifetime = "" if lives is None else f"{lives:.3f}"
        lines.append(f"{index:>7} {due:>10.3f} {step:>5}  {entry[:20]:<20} {pods:>5} {gpus:>5g} {lifetime:>9}  {name}")
    return lines


def format_rights(plan: Plan) -> list[str]:
    """Rights of the measuring identity."""
    return [_format_right(rule) for rule in list_rules(plan.scenario)]


def _format_right(rule: Rule) -> str:
    targets = ", ".join(f"{name}.{rule.group}" if rule.group else name for name in rule.objects)
    named = f" ({', '.join(rule.names)} only)" if rule.names else ""
    place = "cluster  " if rule.cluster else "namespace"
    optional = ", optional" if rule.optional else ""
    return f"{place}  {' '.join(rule.verbs)}  {targets}{named}: {rule.why}{optional}"
