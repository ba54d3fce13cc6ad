"""Preparation of a run: confirm the cluster, set it up, check it, and write the run's conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from workbench.core.errors import ConfigError
from workbench.scaletest import scenario
from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import kueue_queues
from workbench.scaletest.observation import run_conditions
from workbench.scaletest.observation.run_conditions import Component, RunConditions
from workbench.scaletest.safety import (
    ClusterFacts,
    Finding,
    confirm_cluster,
    raise_refusals,
    run_preflight,
    set_up_cluster,
)
from workbench.scaletest.scenario import Plan, scenario_file
from workbench.scaletest.scenario.plan_summary import summarize_plan
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.test_run.node_changes import check_node_changes, restore_nodes
from workbench.scaletest.test_run.run_options import ClusterAccess, RunOptions

# Rights that were just granted are known to the API server a moment later.
_RIGHTS_LIMIT_S = 15.0
_AGAIN_S = 0.25


def format_announcement(test_scenario: Scenario, schedulers: Sequence[str], repeat: int) -> str:
    """How many runs there will be, and how long each takes at least, in a sentence.

    Source of the time: from the first workload to the end of the last pod, if every pod runs at once; where some run
    until they are deleted, to the last workload. Does not show: the time until pods have room, and the cleanup.
    """
    size = summarize_plan(scenario.draw_plan(test_scenario, scheduler=schedulers[0]))
    least_s = max(size.submission_s, size.ends_s or 0.0)
    minutes = f"{least_s / 60:.1f} min" if least_s >= 90 else f"{least_s:.0f} s"
    return (
        f"{repeat * len(schedulers)} runs, {repeat} of each of {', '.join(schedulers)}, each of at least {minutes} "
        f"and its cleanup; --scheduler {schedulers[0]} for one run of one side"
    )


def write_run_conditions(
    folder: Path, plan: Plan, facts: ClusterFacts, place: ClusterAccess, options: RunOptions, findings: list[Finding]
) -> RunConditions:
    """Write `test.json`; what it says."""
    cluster = place.own
    audited = cluster is not None and cluster.audit_log is not None
    test = RunConditions(
        run=plan.run,
        scenario_name=plan.scenario.name,
        scenario_sha256=scenario_file.hash_scenario(plan.scenario),
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        context=place.context,
        fingerprint=facts.fingerprint,
        server_sha256=facts.server_sha256,
        server_version=facts.server_version,
        identity=facts.identity,
        identity_groups=facts.groups,
        namespaces=plan.namespaces,
        schedulers=(plan.scheduler,),
        simulated_nodes=not plan.scenario.allow_real_nodes or facts.real_nodes == 0,
        local_cluster=None if cluster is None else cluster.name,
        provider=None if cluster is None else cluster.provider,
        components=_list_components(place, facts),
        mode=options.submit_with,
        closed=options.closed,
        watches_pods_of_others=facts.other_pods is not None,
        reads_audit_log=audited,
        in_turn=any(entry.in_turn for entry in plan.scenario.workloads),
        replay_speed=plan.replay_speed,
        queue_quotas={} if cluster is None else dict(cluster.queue_quotas),
        node_changes=tuple(map(str, plan.scenario.node_changes)),
        notes=_list_notes(facts, findings),
    )
    run_conditions.write_conditions(folder, test)
    return test


def _list_components(place: ClusterAccess, facts: ClusterFacts) -> tuple[Component, ...]:
    """How the parts were started: known of a local cluster only."""
    if place.own is not None:
        return place.own.components
    return (Component(name="kube-apiserver", version=facts.server_version),)


def _list_notes(facts: ClusterFacts, findings: list[Finding]) -> tuple[str, ...]:
    notes = [f"{finding.check}: {finding.text}" for finding in findings if finding.level == "warning"]
    if facts.other_pods is None:
        notes.append("the identity may not see pods of others: nobody looked whether they were evicted or had to wait")
    return tuple(notes)


async def prepare_cluster(
    api: Connection, plan: Plan, place: ClusterAccess, confirmed: str | None
) -> tuple[ClusterFacts, list[Finding]]:
    """Confirm the cluster, set up what a local one of ours needs, look at everything else.

    Returns: What the cluster is, and what was found, none of it a reason not to begin.
    """
    _check_scheduler_runs(plan, place)
    check_node_changes(plan, place)
    facts = await confirm_cluster(api, place.target, plan.scenario, confirmed)
    if place.admin is None:
        findings = await run_preflight(api, plan, facts)
    else:
        await _set_up_local_cluster(place, plan)
        findings = await _wait_for_rights(api, plan, facts)
    raise_refusals(findings)
    return facts, findings


def _check_scheduler_runs(plan: Plan, place: ClusterAccess) -> None:
    """A local cluster of ours has the plan's scheduler; of others nobody knows which run there."""
    if place.own is None or plan.scheduler in place.own.schedulers:
        return
    recipe = plan.conditions.recipe
    up = f"workbench scaletest cluster up --name NEW --scheduler {recipe.short or plan.scheduler}"
    raise ConfigError(
        "this scheduler does not run on the local cluster",
        where="--scheduler",
        found=plan.scheduler,
        allowed=list(place.own.schedulers),
        do="run on a cluster that has it: --context instead of --cluster" if recipe.program == "cluster" else up,
    )


async def _set_up_local_cluster(place: ClusterAccess, plan: Plan) -> None:
    assert place.admin is not None and place.own is not None  # noqa: PT018 -- one with the other
    async with Connection(place.admin) as admin:
        if plan.scenario.node_changes:
            await restore_nodes(admin, place.own.pools)
        # Without a quota: each pod would cost the API server one more write, and the cluster is for this alone.
        await set_up_cluster(admin, plan, quota=False)
        for namespace in plan.namespaces:
            await _wait_for_account(admin, namespace)
            if plan.conditions.recipe.program == "kueue":
                queues = {entry.queue for entry in plan.scenario.workloads}
                await kueue_queues.create_local_queues(admin, namespace, queues)


async def _wait_for_account(admin: Connection, namespace: str) -> None:
    """Pods are refused until the controller has made the namespace's service account."""
    path, end_ns = f"/api/v1/namespaces/{namespace}/serviceaccounts/default", now_ns() + int(_RIGHTS_LIMIT_S * NS_PER_S)
    while (await admin.request("GET", path)).status != 200 and now_ns() < end_ns:
        await asyncio.sleep(_AGAIN_S)


async def _wait_for_rights(api: Connection, plan: Plan, facts: ClusterFacts) -> list[Finding]:
    """What is found once the API server knows the rights that setup has just granted."""
    end_ns = now_ns() + int(_RIGHTS_LIMIT_S * NS_PER_S)
    while True:
        findings = await run_preflight(api, plan, facts)
        if not any(finding.level == "refused" for finding in findings) or now_ns() > end_ns:
            return findings
        await asyncio.sleep(_AGAIN_S)
