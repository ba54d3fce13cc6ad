"""Preflight checks on the target cluster: permissions, quotas, priorities, dry run and capacity."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from workbench.core.formats import format_items
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import find_kind_name
from workbench.scaletest.cluster_api.connection import THROTTLED, ApiError, Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.observation.object_ledger import Pod, read_asks
from workbench.scaletest.safety import cluster_setup, confirmation
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, Level, NodeFacts
from workbench.scaletest.safety.cluster_setup import FIELD_MANAGER, HIGH_PRIORITY_VALUE
from workbench.scaletest.safety.confirmation import check_identity
from workbench.scaletest.scenario.manifest_rules import QUEUE_LABEL, waits_for_release
from workbench.scaletest.scenario.template_pods import select_devices
from workbench.scaletest.scenario.workload_entries import HIGH_PRIORITY_CLASS, parse_quantity
from workbench.scaletest.scenario.workload_objects import DELAY, GPU, ObjectRequest, Rule, list_kinds, list_rules
from workbench.scaletest.scenario.workload_plan import Plan, PlanSummary, find_peaks, summarize_plan

_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_BESIDE = "wait until it is free, or accept less room with --beside-others"


@dataclass
class ForeignPods:
    """What others hold and wait for.

    `held`: Amounts by resource on the nodes that the test uses, places for pods included.
    `waiting`: Pods that wait for a node, by the resources that they ask for.
    `runs`: Pods of other tests in this test's namespaces, by run id.
    """

    held: dict[str, float] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod, nodes: frozenset[str], namespaces: Iterable[str]) -> None:
        """Count one pod that has not ended."""
        node = pod.spec.nodeName if pod.spec is not None else None
        asks = {**read_asks(pod), "pods": 1.0}
        if node is None:
            self.waiting.update(dict.fromkeys(asks, 1))
        elif node in nodes:
            for name, amount in asks.items():
                self.held[name] = self.held.get(name, 0.0) + amount
        run = (pod.metadata.labels or {}).get(api_discovery.RUN)
        if run is not None and pod.metadata.namespace in namespaces:
            self.runs[run] += 1


async def list_foreign_pods(
    api: Connection, run: str, nodes: frozenset[str], namespaces: tuple[str, ...]
) -> ForeignPods:
    """Count the pods of the whole cluster that have not ended and are not of this run."""
    found = ForeignPods()
    query = {"fieldSelector": _ENDED, "labelSelector": f"{api_discovery.RUN}!={run}"}
    async for item in iterate_items(api, "/api/v1/pods", **query):
        found.add(msgspec.json.decode(orjson.dumps(item), type=Pod), nodes, namespaces)
    return found


def check_foreign_pods(
    found: ForeignPods, wanted: Iterable[str], offered: Mapping[str, float], *, beside_others: bool
) -> list[Finding]:
    """Refuse a test beside others that hold or wait for the devices that its pods ask for, unless that is accepted.

    `wanted`: Extended resources that the test's pods ask for. `offered`: What the nodes offer of each resource.

    >>> others = ForeignPods(held={"nvidia.com/gpu": 12})
    >>> (finding,) = check_foreign_pods(others, ["nvidia.com/gpu"], {"nvidia.com/gpu": 16}, beside_others=False)
    >>> finding.level, finding.text
    ('refused', 'others hold 12 of 16 nvidia.com/gpu, and 0 of their pods wait for it: 4 are free')
    """
    level: Level = "warning" if beside_others else "refused"
    findings = []
    if found.runs:
        tests = format_items([f"{run} ({count:,} pods)" for run, count in sorted(found.runs.items())], 3)
        do = f"wait for its end, or `workbench scaletest cleanup {min(found.runs)}`; --beside-others runs beside it"
        findings.append(Finding(level, "other tests", f"pods of other tests are in this namespace: {tests}", do))
    for name in sorted(wanted):
        held, waiting, whole = found.held.get(name, 0.0), found.waiting[name], offered.get(name, 0.0)
        if held or waiting:
            text = f"others hold {held:g} of {whole:g} {name}, and {waiting:,} of their pods wait for it"
            free = max(0.0, whole - held)
            findings.append(Finding(level, "others", f"{text}: {free:g} are free", _BESIDE))
    return findings


SETUP_HINT = "an administrator runs: workbench scaletest setup SCENARIO --context ADMIN"
_GPUS = f"requests.{GPU}"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# etcd's default quota is 2 GiB; above it the store is read-only.
_ETCD_BYTES = 2 << 30


async def run_preflight(
    api: Connection,
    plan: Plan,
    facts: ClusterFacts,
    *,
    by_command: bool = False,
    sets_up: bool = False,
    beside_others: bool = False,
) -> list[Finding]:
    """Check everything that could make the test unsafe, impossible or meaningless.

    `by_command`: A submit command creates its own objects: they are not fenced, and the dry run is skipped.
    `sets_up`: The run sets up what it needs, as on a local cluster: missing setup and rights are no reason to refuse
    it, and permissions in namespaces that do not exist yet are not checked.

    `beside_others`: Room that others hold is accepted.

    Returns: In reading order; `raise_refusals` raises if one of them is `refused`.
    """
    findings = [*check_identity(facts), *confirmation.check_fence(plan.scenario, facts)]
    findings += confirmation.check_command_fence(plan.scenario, facts) if by_command else []
    spaces = await confirmation.check_namespaces(api, plan.namespaces, sets_up=sets_up)
    findings += spaces
    absent = await _list_absent_resources(api, plan)
    do = "install its CRD, or correct the entry's version and plural name"
    findings += [Finding("refused", "resources", f"the cluster has no {resource}", do) for resource in absent]
    rights = await _check_rights(api, plan, absent) if all(finding.level != "warning" for finding in spaces) else []
    granted_later = sets_up and any(finding.level == "refused" for finding in rights)
    findings += [Finding("ok", "rights", "some are missing, and the run grants them")] if granted_later else rights
    if all(finding.level == "ok" for finding in spaces):
        findings += [await _check_quota(api, plan, space, own=facts.own is not None) for space in plan.namespaces]
        findings += await _check_priorities(api, plan)
        findings += [] if by_command or absent or granted_later else await _check_dry_run(api, plan)
    findings += _check_suspensions(plan)
    held: Mapping[str, float] = {}
    if facts.other_pods is not None:
        nodes = list_usable_nodes(plan, facts)
        names = frozenset(node.name for node in nodes)
        foreign = await list_foreign_pods(api, plan.run, names, plan.namespaces)
        devices = {name for entry in plan.scenario.workloads for name in select_devices(entry.requests_per_pod)}
        wanted = devices | ({GPU} if summarize_plan(plan).peak_gpus else set())
        offered = {name: sum(node.offered(name) for node in nodes) for name in wanted}
        findings += check_foreign_pods(foreign, wanted, offered, beside_others=beside_others)
        held = foreign.held
    # Warn that other clusters' simulators may ignore the lifetimes of pods; a local cluster's does not.
    some = plan.schedule.get_column("lifetime_s").drop_nulls().len() > 0
    if facts.own is not None or plan.scenario.allow_real_nodes or not some:
        lifetimes = []
    else:
        text = f"lifetimes need a kwok stage pod-complete that reads the annotation {DELAY}"
        lifetimes = [
            Finding("warning", "lifetimes", f"{text}; default stages end pods of Jobs immediately and others never")
        ]
    return [*findings, *check_capacity(plan, summarize_plan(plan), facts, held), *lifetimes]


async def _list_absent_resources(api: Connection, plan: Plan) -> list[ApiResource]:
    """Which of the resources that workloads are made of does the server not know?"""
    kinds = list_kinds(plan.scenario, owned=True)
    names = await asyncio.gather(*(find_kind_name(api, kind) for kind in kinds))
    return [kind for kind, name in zip(kinds, names, strict=True) if name is None]


def _list_first_workloads(plan: Plan) -> list[tuple[int, str]]:
    """Index of the first workload of each entry, and the entry's name."""
    return plan.schedule.unique("entry", keep="first", maintain_order=True).select("index", "entry").rows()


def _check_suspensions(plan: Plan) -> list[Finding]:
    """Warn of suspended workloads that nothing releases, unless a recipe puts them into a queue."""
    # The first two requests tell: the workload itself, or a gang's PodGroup and its first pod, which stands for all.
    named = [
        entry
        for index, entry in _list_first_workloads(plan)
        if any(waits_for_release(orjson.loads(request.body)) for request in plan.workload_at(index).requests()[:2])
    ]
    if not named:
        return []
    text = f"{format_items(named, 4)}: made suspended and without a queue, so nothing makes their pods"
    return [Finding("warning", "suspended", text, f"remove `suspend: true`, or name the queue (label {QUEUE_LABEL})")]


async def _check_rights(api: Connection, plan: Plan, absent: list[ApiResource]) -> list[Finding]:
    """Check each required verb on each resource that is there with a SelfSubjectAccessReview."""
    unknown = {(kind.group, kind.plural) for kind in absent}
    rights = [
        (rule, verb, resource, space)
        for rule in list_rules(plan.scenario)
        for resource in rule.objects
        if (rule.group, resource) not in unknown
        for verb in rule.verbs
        for space in ([None] if rule.cluster else plan.namespaces)
    ]
    answers = await asyncio.gather(*(_is_allowed(api, *right) for right in rights))
    denied: dict[Rule, list[str]] = {}
    for (rule, verb, resource, space), allowed in zip(rights, answers, strict=True):
        if not allowed:
            denied.setdefault(rule, []).append(f"{verb} {resource}{f' in {space}' if space else ''}")
    findings = []
    for rule, words in denied.items():
        level: Level = "warning" if rule.optional else "refused"
        text = f"not allowed: {format_items(words, 4)} (needed for: {rule.why})"
        findings.append(Finding(level, "rights", text, "grant what `workbench scaletest plan SCENARIO --rbac` prints"))
    return findings or [Finding("ok", "rights", f"all {len(rights)} required permissions")]


async def _is_allowed(api: Connection, rule: Rule, verb: str, resource: str, space: str | None) -> bool:
    attributes: dict[str, Any] = {"verb": verb, "group": rule.group, "resource": resource}
    attributes |= {"namespace": space} if space else {}
    attributes |= {"name": rule.names[0]} if rule.names else {}
    spec = (
        {"nonResourceAttributes": {"verb": verb, "path": resource}}
        if rule.paths
        else {"resourceAttributes": attributes}
    )
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    review = await api.json("POST", _REVIEWS, body)
    return bool((review.get("status") or {}).get("allowed"))


async def _check_quota(api: Connection, plan: Plan, space: str, *, own: bool) -> Finding:
    """Check that the namespace has a quota and limits, and that the plan fits into the quota."""
    try:
        quotas = (await api.json("GET", f"/api/v1/namespaces/{space}/resourcequotas")).get("items") or []
        ranges = (await api.json("GET", f"/api/v1/namespaces/{space}/limitranges")).get("items") or []
    except ApiError as error:
        return Finding("refused", "limits", f"quotas of {space} cannot be read (status {error.status})", SETUP_HINT)
    hard = [(quota.get("spec") or {}).get("hard") or {} for quota in quotas]
    counted = any("count/pods" in limits or "pods" in limits for limits in hard)
    if not counted or (not ranges and cluster_setup.has_container_limits(plan.scenario)):
        lacking = "no LimitRange" if counted else "no ResourceQuota that counts pods"
        if not own:
            return Finding("refused", "limits", f"{space} has {lacking}: nothing stops a runaway test", SETUP_HINT)
        fit = _check_quota_fit(plan, space, quotas, ranges)
        return fit if fit.level != "ok" else Finding("ok", "limits", f"{space} has {lacking}; not needed here")
    return _check_quota_fit(plan, space, quotas, ranges)


def _check_quota_fit(plan: Plan, space: str, quotas: list[dict[str, Any]], ranges: list[Any]) -> Finding:
    """Check that the plan's objects in a namespace fit into its quotas."""
    import polars as pl

    here = plan.schedule.filter(pl.col("namespace") == space).with_columns(pl.col("gpus_per_pod").floor())
    # GPU fractions are not resource requests: KAI reads them from an annotation.
    part = dataclasses.replace(plan, schedule=here)
    peaks = find_peaks(part)
    needed = {
        "count/pods": float(here.get_column("pods").sum()),
        "count/jobs.batch": float((here.get_column("kind") == "Job").sum()),
        _GPUS: peaks[GPU],
    }
    short = list(_list_shortages(quotas, needed))
    if short:
        return Finding("refused", "limits", f"the quota of {space} is too small: {'; '.join(short)}", SETUP_HINT)
    above = list(_list_above_range(plan, ranges))
    if above:
        do = "ask for less, or ask an administrator for a greater limit"
        return Finding("refused", "limits", f"pods would be refused in {space}: {'; '.join(above)}", do)
    at_once = {f"requests.{name}": amount for name, amount in peaks.items()} | {
        "pods": float(summarize_plan(part).peak_pods),
        "cpu": peaks["cpu"],
        "memory": peaks["memory"],
    }
    short = list(_list_shortages(quotas, at_once))
    if short:
        text = f"the quota of {space} has room for a part of the plan at a time: {'; '.join(short)}"
        return Finding("warning", "limits", f"{text}: pods wait for the quota, and the measured times include that")
    all_gpus = float((here.get_column("pods") * here.get_column("gpus_per_pod")).sum())
    short = list(_list_shortages(quotas, {_GPUS: all_gpus}))
    if short:
        # Pods that have ended do not count against the quota.
        text = f"the quota of {space} does not cover all pods at the same time: {'; '.join(short)}"
        return Finding("warning", "limits", text, SETUP_HINT)
    suffix = ", and a LimitRange" if ranges else ""
    return Finding("ok", "limits", f"{space} has a ResourceQuota with room for the plan{suffix}")


def _list_above_range(plan: Plan, ranges: list[dict[str, Any]]) -> Iterator[str]:
    """Describe each entry whose pods ask for more than a LimitRange lets a pod, or its only container, have."""
    for at, entry in enumerate(plan.scenario.workloads):
        # How a template's pods divide their requests among containers is not held here.
        types = ("Pod",) if entry.kind == "Template" else ("Pod", "Container")
        for limits in (limit for each in ranges for limit in (each.get("spec") or {}).get("limits") or []):
            most = (limits.get("max") or {}) if limits.get("type") in types else {}
            for name, amount in entry.requests_per_pod.items():
                if name in most and amount > parse_quantity(most[name]):
                    label = entry.display_name(at)
                    yield f"{label} asks for {_write_amount(name, amount)}, and a LimitRange allows {most[name]}"


def _write_amount(name: str, amount: float) -> str:
    """An amount of a resource with its name; memory in GiB."""
    if name in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:,.6g} GiB of {name}"
    return f"{amount:,.6g} {name}"


def _list_shortages(quotas: list[dict[str, Any]], needed: dict[str, float]) -> Iterator[str]:
    """Describe each resource of which a quota has less free than needed; `needed` maps a resource to its amount."""
    for quota in quotas:
        hard = (quota.get("spec") or {}).get("hard") or {}
        used = (quota.get("status") or {}).get("used") or {}
        for resource, amount in needed.items():
            try:
                free = parse_quantity(hard[resource]) - parse_quantity(used.get(resource, 0))
            except (KeyError, ValueError):
                continue
            if free < amount:
                yield f"{resource}: {free:g} free, {amount:g} needed"


async def _check_priorities(api: Connection, plan: Plan) -> list[Finding]:
    findings = []
    for name in sorted(plan.schedule.get_column("priority").drop_nulls().unique()):
        answer = await api.request("GET", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
        if answer.status == 404:
            findings.append(
                Finding(
                    "refused", "priority", f"PriorityClass {name} does not exist: pods would be refused", SETUP_HINT
                )
            )
        elif answer.status != 200:
            text = f"PriorityClass {name} cannot be read (status {answer.status}): its pods may preempt others"
            findings.append(Finding("warning", "priority", text))
        else:
            findings.append(_check_priority(name, answer.json()))
    if plan.schedule.get_column("priority").null_count():
        text = "some workloads have no PriorityClass: the cluster's default applies, and they may preempt others"
        findings.append(Finding("warning", "priority", text))
    return findings


def _check_priority(name: str, priority_class: dict[str, Any]) -> Finding:
    value, never = int(priority_class.get("value", 0)), priority_class.get("preemptionPolicy") == "Never"
    if value < 0 and never:
        return Finding("ok", "priority", f"{name} ({value}): other pods preempt these pods; they preempt none")
    if (name, value) == (HIGH_PRIORITY_CLASS, HIGH_PRIORITY_VALUE):
        text = f"{name} ({value}): other pods preempt these pods; they preempt only pods below {value}"
        return Finding("ok", "priority", text)
    text = f"{name} has value {value}" + ("" if never else " and may preempt other pods")
    return Finding("warning", "priority", text, "remove `priority` to use the class that setup creates")


async def _check_dry_run(api: Connection, plan: Plan) -> list[Finding]:
    """Create one workload of each entry as a server-side dry run, admission included."""
    findings = []
    for index, entry in _list_first_workloads(plan):
        # All pods of a gang are equal.
        for request in plan.workload_at(index).requests()[:2]:
            if (refusal := await _find_dry_run_refusal(api, request, entry)) is not None:
                findings.append(refusal)
                break
        else:
            findings.append(Finding("ok", "dry run", f"the API server accepts a workload of {entry}"))
    return findings


async def _find_dry_run_refusal(api: Connection, request: ObjectRequest, entry: str) -> Finding | None:
    query = {"dryRun": "All", "fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    answer = await api.request_with_retry("POST", request.path, body=request.body, query=query)
    if answer.status == THROTTLED:
        text = f"not known whether the API server accepts a workload of {entry}: it was busy at each try (429)"
        return Finding("refused", "dry run", text, "run it again when the server has less to do")
    # 409: the object exists from before a crash.
    if answer.status in (200, 201, 202, 409):
        return None
    if answer.status == 404:
        text = f"{entry}: the cluster has no resource {request.path.rsplit('/', 1)[-1]}"
        return Finding("refused", "dry run", text, "install its CRD, or remove the entry")
    text = f"{entry}: refused by the API server: {answer.refusal}"
    return Finding("refused", "dry run", text, "fix the entry's template or fields, or ask the cluster's administrator")


def check_capacity(
    plan: Plan, summary: PlanSummary, facts: ClusterFacts, held: Mapping[str, float] | None = None
) -> list[Finding]:
    """Check that each pod fits on a node, and that all of them fit beside what others hold.

    `held`: Amounts by resource that others hold on the nodes that the test uses.
    """
    nodes, held = list_usable_nodes(plan, facts), held or {}
    findings = []
    entries = {entry.display_name(at): entry for at, entry in enumerate(plan.scenario.workloads)}
    for label in summary.entries:
        for name, amount in entries[label].largest_requests.items():
            most = max((node.offered(name) for node in nodes), default=0.0)
            if amount > most:
                text = f"a pod of {label} requests {_write_amount(name, amount)}, and no node offers more than "
                text += _write_amount(name, most).removesuffix(f" of {name}").removesuffix(f" {name}")
                findings.append(Finding("warning", "capacity", f"{text}: the pod stays pending"))
    wanted = find_peaks(plan) | {"pods": float(summary.peak_pods)}
    free = {name: sum(node.offered(name) for node in nodes) - held.get(name, 0.0) for name in wanted}
    short = [name for name in wanted if wanted[name] > free[name]]
    told = dict.fromkeys([*short, *(name for name in wanted if "/" in name and wanted[name]), "pods"])
    parts = {
        name: _write_amount(name, free[name]).removesuffix(f" of {name}").removesuffix(f" {name}") for name in told
    }
    amounts = format_items([f"{_write_amount(name, wanted[name])} ({parts[name]} are free)" for name in told], 6)
    text = f"at its peak the plan wants {amounts} on {len(nodes):,} node(s)"
    if short:
        text += f": pods wait for {format_items(short, 3)}, and the measured times include that"
    findings.append(Finding("warning" if short else "ok", "capacity", text))
    share = summary.etcd_bytes / _ETCD_BYTES
    text = f"about {summary.etcd_bytes / 2**20:,.1f} MiB in etcd, {100 * share:.1f} % of its default quota"
    do = "create fewer objects, or split the test into several runs with cleanup"
    findings.append(Finding("warning", "etcd", text, do) if share > 0.25 else Finding("ok", "etcd", text))
    return findings


def list_usable_nodes(plan: Plan, facts: ClusterFacts) -> list[NodeFacts]:
    """Nodes that take pods, and that the plan's can be bound to."""
    from workbench.scaletest.cluster_api import api_discovery

    ready = [node for node in facts.nodes if node.takes_pods]
    if plan.scenario.allow_real_nodes:
        return ready
    return [node for node in ready if node.labels.get(api_discovery.SIMULATED) == "true"]
