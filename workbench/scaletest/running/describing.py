"""What is written of a test before anything is made: who, where, with which limits, by `test.json`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from workbench.scaletest import facts, planning, scenario
from workbench.scaletest.facts import Component, Test
from workbench.scaletest.planning import Plan
from workbench.scaletest.planning.summary import summarize
from workbench.scaletest.running.options import Options
from workbench.scaletest.running.place import Place
from workbench.scaletest.safety import Finding, TargetFacts
from workbench.scaletest.scenario import Scenario


def announced(made: Scenario, schedulers: Sequence[str], repeat: int) -> str:
    """How many runs there will be, and how long each takes at least, in a sentence.

    Source of the time: from the first workload to the end of the last pod, if every pod runs at once; where some run
    until they are deleted, to the last workload. Does not show: the time until pods have room, and the cleanup.
    """
    size = summarize(planning.plan(made, scheduler=schedulers[0]))
    least_s = max(size.submission_s, size.ends_s or 0.0)
    minutes = f"{least_s / 60:.1f} min" if least_s >= 90 else f"{least_s:.0f} s"
    return (
        f"{repeat * len(schedulers)} runs, {repeat} of each of {', '.join(schedulers)}, each of at least {minutes} "
        f"and its cleanup; --scheduler {schedulers[0]} for one run of one side"
    )


def describe(
    folder: Path, plan: Plan, found: TargetFacts, place: Place, options: Options, findings: list[Finding]
) -> Test:
    """Write `test.json`; what it says."""
    own = place.own
    audited = own is not None and own.audit_log is not None
    test = Test(
        run=plan.run,
        scenario_name=plan.scenario.name,
        scenario_sha256=scenario.sha256(plan.scenario),
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        context=place.context,
        fingerprint=found.fingerprint,
        server_sha256=found.server_sha256,
        server_version=found.server_version,
        identity=found.identity,
        identity_groups=found.groups,
        namespaces=plan.namespaces,
        schedulers=(plan.scheduler,),
        simulated_nodes=not plan.scenario.allow_real_nodes or found.real_nodes == 0,
        local_cluster=None if own is None else own.name,
        provider=None if own is None else own.provider,
        components=_components(place, found),
        mode=options.submit_with,
        closed=options.closed,
        watches_pods_of_others=found.other_pods is not None,
        reads_audit_log=audited,
        in_turn=any(entry.in_turn for entry in plan.scenario.workloads),
        notes=_notes(found, findings),
    )
    facts.write(folder, test)
    return test


def _components(place: Place, found: TargetFacts) -> tuple[Component, ...]:
    """How the parts were started: known of a local cluster only."""
    if place.own is not None:
        return place.own.components
    return (Component(name="kube-apiserver", version=found.server_version),)


def _notes(found: TargetFacts, findings: list[Finding]) -> tuple[str, ...]:
    told = [f"{one.check}: {one.text}" for one in findings if one.level == "warning"]
    if found.other_pods is None:
        told.append("the identity may not see pods of others: nobody looked whether they were evicted or had to wait")
    return tuple(told)
