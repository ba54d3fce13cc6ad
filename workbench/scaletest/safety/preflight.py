"""All that is looked at before a test begins, on the real cluster and without a change to it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.planned import Request
from workbench.scaletest.planning.objects import DELAY, GPU
from workbench.scaletest.planning.plans import Plan
from workbench.scaletest.planning.rights import Rule, rules
from workbench.scaletest.planning.summary import Summary, peak_gpus, summarize
from workbench.scaletest.safety import fence, manifests
from workbench.scaletest.safety.confirming import identity_findings
from workbench.scaletest.safety.findings import Finding, Level
from workbench.scaletest.safety.looking import NodeFacts, TargetFacts
from workbench.scaletest.safety.setting_up import FIELD_MANAGER
from workbench.scaletest.templates.quantities import number

SETUP = "an administrator runs: workbench scaletest setup SCENARIO --context ADMIN"
_GPUS = f"requests.{GPU}"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# etcd's default quota is 2 GiB; a store above it takes no more writes from anybody.
_ETCD_BYTES = 2 << 30


async def preflight(
    api: Connection, plan: Plan, found: TargetFacts, *, by_command: bool = False, sets_up: bool = False
) -> list[Finding]:
    """Look at everything that could make the test unsafe, impossible or meaningless.

    Parameters
    ----------
    by_command
        The objects are made by a command of somebody's, which makes its own: ours are not tried then, and nothing
        fences those.
    sets_up
        The run that follows sets up what it needs, as it does on a local cluster of ours: what only lacks that is no
        reason to refuse it, and rights in a namespace that is not there are not asked for.

    Returns
    -------
    list of Finding
        In the order of reading; `refuse` of them raises when one is `refused`.

    Raises
    ------
    AwayError
        The cluster cannot be reached.
    """
    made = [*identity_findings(found), *fence.findings(plan.scenario, found)]
    made += fence.command_findings(plan.scenario, found) if by_command else []
    spaces = await fence.namespace_findings(api, plan.namespaces, sets_up=sets_up)
    made += spaces
    if all(one.level != "warning" for one in spaces):
        made += await _rights(api, plan)
    if all(one.level == "ok" for one in spaces):
        made += [await _limits(api, plan, space, own=found.own is not None) for space in plan.namespaces]
        made += await _priorities(api, plan)
        made += [] if by_command else await _dry_run(api, plan)
    return [*made, *capacity(plan, summarize(plan), found), *_lifetimes(plan, found)]


async def _rights(api: Connection, plan: Plan) -> list[Finding]:
    """May we do all of it? Each verb on each resource is asked for."""
    asked = [
        (rule, verb, resource, space)
        for rule in rules(plan.scenario)
        for resource in rule.resources
        for verb in rule.verbs
        for space in ([None] if rule.cluster else plan.namespaces)
    ]
    answers = await asyncio.gather(*(_may(api, *one) for one in asked))
    denied: dict[Rule, list[str]] = {}
    for (rule, verb, resource, space), allowed in zip(asked, answers, strict=True):
        if not allowed:
            denied.setdefault(rule, []).append(f"{verb} {resource}{f' in {space}' if space else ''}")
    made = []
    for rule, words in denied.items():
        more = f" and {len(words) - 4} more" if len(words) > 4 else ""
        level: Level = "warning" if rule.optional else "refused"
        text = f"not allowed: {', '.join(words[:4])}{more} (needed for: {rule.why})"
        made.append(Finding(level, "rights", text, "grant what `workbench scaletest plan SCENARIO --rbac` prints"))
    return made or [Finding("ok", "rights", f"all {len(asked)} that are needed")]


async def _may(api: Connection, rule: Rule, verb: str, resource: str, space: str | None) -> bool:
    asked: dict[str, Any] = {"verb": verb, "group": rule.group, "resource": resource}
    asked |= {"namespace": space} if space else {}
    asked |= {"name": rule.names[0]} if rule.names else {}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    told = await api.json("POST", _REVIEWS, body)
    return bool((told.get("status") or {}).get("allowed"))


async def _limits(api: Connection, plan: Plan, space: str, *, own: bool) -> Finding:
    """Is there a quota on the server that ends what goes wrong, and does the plan fit into it?"""
    try:
        quotas = (await api.json("GET", f"/api/v1/namespaces/{space}/resourcequotas")).get("items") or []
        ranges = (await api.json("GET", f"/api/v1/namespaces/{space}/limitranges")).get("items") or []
    except ApiError as error:
        return Finding("refused", "limits", f"those of {space} cannot be seen ({error.status})", SETUP)
    hard = [(one.get("spec") or {}).get("hard") or {} for one in quotas]
    counted = any("count/pods" in one or "pods" in one for one in hard)
    if not counted or (not ranges and manifests.limited(plan.scenario)):
        lacking = "no LimitRange" if counted else "no ResourceQuota that counts pods"
        if own:
            text = f"{space} has {lacking}; on a local cluster of your own that is no harm"
            return Finding("ok", "limits", text)
        return Finding("refused", "limits", f"{space} has {lacking}: the server would not end a runaway", SETUP)
    return _room(plan, space, quotas, ranges)


def _room(plan: Plan, space: str, quotas: list[dict[str, Any]], ranges: list[Any]) -> Finding:
    """Does what the plan makes in a namespace fit into its quotas?"""
    import polars as pl

    here = plan.schedule.filter(pl.col("namespace") == space).with_columns(pl.col("gpus_per_pod").floor())
    # A share of a GPU is no request of one: KAI gives those by an annotation.
    at_once = peak_gpus(dataclasses.replace(plan, schedule=here))
    needed = {
        "count/pods": float(here.get_column("pods").sum()),
        "count/jobs.batch": float((here.get_column("kind") == "Job").sum()),
        _GPUS: at_once,
    }
    short = list(_short(quotas, needed))
    if short:
        return Finding("refused", "limits", f"the quota of {space} is too small: {'; '.join(short)}", SETUP)
    all_gpus = float((here.get_column("pods") * here.get_column("gpus_per_pod")).sum())
    short = list(_short(quotas, {_GPUS: all_gpus}))
    if short:
        # Pods that have ended do not count: it fits if none has to wait.
        text = f"the quota of {space} is enough only while no pod waits: {'; '.join(short)} for all its pods at once"
        return Finding("warning", "limits", text, SETUP)
    held = ", and a LimitRange" if ranges else ""
    return Finding("ok", "limits", f"{space} has a ResourceQuota with room for the plan{held}")


def _short(quotas: list[dict[str, Any]], needed: dict[str, float]) -> Iterator[str]:
    for quota in quotas:
        hard = (quota.get("spec") or {}).get("hard") or {}
        used = (quota.get("status") or {}).get("used") or {}
        for resource, amount in needed.items():
            try:
                free = number(hard[resource]) - number(used.get(resource, 0))
            except (KeyError, ValueError):
                continue
            if free < amount:
                yield f"{resource}: {free:g} free, {amount:g} needed"


async def _priorities(api: Connection, plan: Plan) -> list[Finding]:
    made = []
    for name in sorted(plan.schedule.get_column("priority").drop_nulls().unique()):
        answer = await api.request("GET", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
        if answer.status == 404:
            made.append(
                Finding("refused", "priority", f"there is no PriorityClass {name}: pods would be refused", SETUP)
            )
        elif answer.status != 200:
            text = f"PriorityClass {name} cannot be seen ({answer.status}): do its pods give way to others?"
            made.append(Finding("warning", "priority", text))
        else:
            made.append(_priority(name, answer.json()))
    if plan.schedule.get_column("priority").null_count():
        text = "some workloads have none: the cluster's default decides who gives way"
        made.append(Finding("warning", "priority", text))
    return made


def _priority(name: str, found: dict[str, Any]) -> Finding:
    value, never = int(found.get("value", 0)), found.get("preemptionPolicy") == "Never"
    if value < 0 and never:
        return Finding("ok", "priority", f"{name} ({value}): pods give way to others and push nobody out")
    told = f"{name} has value {value}" + ("" if never else " and may push pods of others out")
    return Finding("warning", "priority", told, "leave `priority` away to use the class that setup makes")


async def _dry_run(api: Connection, plan: Plan) -> list[Finding]:
    """Have the server check one workload of each entry, admission included, as if."""
    first = plan.schedule.unique("entry", keep="first", maintain_order=True).select("index", "entry").rows()
    made = []
    for index, entry in first:
        # A gang's pods are all alike.
        for request in plan.one(index).requests()[:2]:
            if (found := await _refused(api, request, entry)) is not None:
                made.append(found)
                break
        else:
            made.append(Finding("ok", "dry run", f"the server takes a workload of {entry}"))
    return made


async def _refused(api: Connection, request: Request, entry: str) -> Finding | None:
    query = {"dryRun": "All", "fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    answer = await api.request("POST", request.path, body=request.body, query=query)
    # 409: it is there already, from before a crash.
    if answer.status in (200, 201, 202, 409):
        return None
    told = answer.json()
    message = " ".join(str(told.get("message", "") if isinstance(told, dict) else "").split())[:300]
    if answer.status == 404:
        text = f"{entry}: the cluster does not know {request.path.rsplit('/', 1)[-1]}"
        return Finding("refused", "dry run", text, "install what defines that kind, or take the entry out")
    text = f"{entry}: the server refuses it: {answer.status} {message}"
    return Finding("refused", "dry run", text, "mend the entry's template or fields, or ask who runs the cluster")


def capacity(plan: Plan, summary: Summary, found: TargetFacts) -> list[Finding]:
    """Could the pods run at all, and all at once?"""
    nodes = usable(plan, found)
    gpus, largest = sum(one.gpus for one in nodes), max((one.gpus for one in nodes), default=0)
    slots = sum(one.pods for one in nodes)
    made = []
    entries = {entry.label(at): entry for at, entry in enumerate(plan.scenario.workloads)}
    for label in summary.entries:
        if entries[label].gpus_per_pod > largest:
            text = f"a pod of {label} wants {entries[label].gpus_per_pod:g} GPUs, the largest node has {largest}"
            made.append(Finding("warning", "capacity", f"{text}: it will wait for ever"))
    text = f"{summary.peak_gpus:g} GPUs and {summary.peak_pods:,} pods at once"
    text += f", of {gpus:,} and {slots:,} on {len(nodes):,} node(s)"
    if summary.peak_gpus > gpus or summary.peak_pods > slots:
        made.append(Finding("warning", "capacity", f"{text}: pods will wait for room, which the times will show"))
    else:
        made.append(Finding("ok", "capacity", text))
    share = summary.etcd_bytes / _ETCD_BYTES
    text = f"about {summary.etcd_bytes / 2**20:,.1f} MiB in etcd, {share:.1%} of its default quota"
    do = "make fewer objects, or in several runs with a cleanup between them"
    made.append(Finding("warning", "etcd", text, do) if share > 0.25 else Finding("ok", "etcd", text))
    return made


def _lifetimes(plan: Plan, found: TargetFacts) -> list[Finding]:
    """Simulated pods end when their simulator says so; whose simulator is told to read the lifetime we know of ours."""
    some = plan.schedule.get_column("lifetime_s").drop_nulls().len() > 0
    if found.own is not None or plan.scenario.allow_real_nodes or not some:
        return []
    text = f"pods end as planned only where kwok's stage pod-complete reads their annotation {DELAY}"
    return [Finding("warning", "lifetimes", f"{text}; kwokctl's own stages end Jobs' pods at once, others never")]


def usable(plan: Plan, found: TargetFacts) -> list[NodeFacts]:
    """Nodes that the pods may go to."""
    from workbench.scaletest import names

    ready = [node for node in found.nodes if node.ready]
    if plan.scenario.allow_real_nodes:
        return ready
    return [node for node in ready if node.labels.get(names.SIMULATED) == "true"]
