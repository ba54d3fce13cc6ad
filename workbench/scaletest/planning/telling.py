"""A plan in words, for a terminal: what comes, what it costs, what it needs."""

from __future__ import annotations

from workbench.scaletest.planning.plans import Plan
from workbench.scaletest.planning.rights import Rule, rules
from workbench.scaletest.planning.summary import Summary

_ROWS = 6


def lines(plan: Plan, summary: Summary) -> list[str]:
    """A plan and its size."""
    scenario = plan.scenario
    entries = ", ".join(f"{count:,} {entry}" for entry, count in summary.entries.items())
    objects = ", ".join(f"{count:,} {kind}" for kind, count in summary.objects.items())
    rate = "" if summary.mean_rate_per_s is None else f", {summary.mean_rate_per_s:.4g} workloads/s on average"
    ends = "when it is deleted (some pods have no lifetime)" if summary.ends_s is None else f"{summary.ends_s:,.1f} s"
    others = [one for one in scenario.schedulers if one != plan.scheduler]
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
    ]


def schedule(plan: Plan) -> list[str]:
    """The first and last workloads."""
    frame = plan.schedule.select("index", "due_s", "step", "entry", "pods", "gpus_per_pod", "lifetime_s", "name")
    rows = frame.rows() if frame.height <= 2 * _ROWS else [*frame.head(_ROWS).rows(), None, *frame.tail(_ROWS).rows()]
    made = [f"{'index':>7} {'due s':>10} {'step':>5}  {'entry':<20} {'pods':>5} {'GPUs':>5} {'lives s':>9}  name"]
    for row in rows:
        if row is None:
            made.append(f"{'…':>7}")
            continue
        index, due, step, entry, pods, gpus, lives, name = row
        told = "" if lives is None else f"{lives:.3f}"
        made.append(f"{index:>7} {due:>10.3f} {step:>5}  {entry[:20]:<20} {pods:>5} {gpus:>5g} {told:>9}  {name}")
    return made


def needed(plan: Plan) -> list[str]:
    """Rights of the measuring identity."""
    return [_right(rule) for rule in rules(plan.scenario)]


def _right(rule: Rule) -> str:
    what = ", ".join(f"{one}.{rule.group}" if rule.group else one for one in rule.resources)
    named = f" ({', '.join(rule.names)} only)" if rule.names else ""
    place = "cluster  " if rule.cluster else "namespace"
    optional = ", optional" if rule.optional else ""
    return f"{place}  {' '.join(rule.verbs)}  {what}{named}: {rule.why}{optional}"
