"""`workbench scaletest plan`: show what a scenario would do to a cluster, without writing to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag
from workbench.scaletest.commands import ClusterOption, ContextOption, KubeconfigOption

if TYPE_CHECKING:
    from workbench.scaletest.cluster_api.connection import Target
    from workbench.scaletest.safety import ClusterFacts, Finding
    from workbench.scaletest.scenario import Plan


def plan(
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help="A scenario's YAML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a scenario with all fields explained.")] = False,
    rbac: Annotated[
        bool, typer.Option("--rbac", help="Print the YAML for an administrator: namespaces, limits, two identities.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="schedulerName of the pods.", show_default="the scenario's first")
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the plan there: scenario.yaml, tables/schedule.parquet.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a scenario would do, without writing to a cluster: schedule, objects, pods, GPUs, duration, rights.

    With --context or --cluster the cluster is inspected too: identity, nodes, rights, capacity, and a server-side dry
    run of one workload of each kind.

    Exit code 1 when a check would refuse the test.

    Example: workbench scaletest plan scenario.yaml --cluster local
    """
    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.scaletest.safety import confirmation
    from workbench.scaletest.scenario import draw_plan, scenario_file

    if example:
        print_text(scenario_file.read_example().rstrip("\n"))
        return
    if scenario is None:
        raise ConfigError(
            "no scenario was given",
            where="SCENARIO",
            do="workbench scaletest plan --example > scenario.yaml writes a first one",
        )
    drawn = draw_plan(scenario_file.load_scenario(scenario), scheduler=scenario_file.expand_scheduler_name(scheduler))
    if rbac:
        from workbench.scaletest.safety.cluster_setup import format_setup_yaml

        print_text(format_setup_yaml(drawn).rstrip("\n"))
        return
    target = confirmation.find_target(context, kubeconfig, cluster)
    checked = None if target is None else _check_cluster(target, drawn, sets_up=cluster is not None)
    if out is not None:
        drawn.write(out)
    finish_command(
        lambda: _format_plan(drawn, checked, out),
        lambda: _build_document(drawn, checked),
        as_json=as_json,
        is_valid=checked is None or all(finding.level != "refused" for finding in checked[1]),
    )


def _check_cluster(target: Target, plan: Plan, *, sets_up: bool) -> tuple[ClusterFacts, list[Finding]]:
    import asyncio

    from workbench.scaletest.cluster_api.connection import Connection
    from workbench.scaletest.safety import inspect_cluster, run_preflight

    async def check() -> tuple[ClusterFacts, list[Finding]]:
        async with Connection(target, max_connections=16) as api:
            facts = await inspect_cluster(api)
            return facts, await run_preflight(api, plan, facts, sets_up=sets_up)

    return asyncio.run(check())


def _format_plan(plan: Plan, checked: tuple[ClusterFacts, list[Finding]] | None, out: Path | None) -> str:
    from workbench.scaletest.scenario import plan_summary

    lines = [
        *plan_summary.format_plan(plan, plan_summary.summarize_plan(plan)),
        "",
        *plan_summary.format_schedule(plan),
    ]
    lines += ["", "rights of the measuring identity (as YAML: --rbac)", *plan_summary.format_rights(plan)]
    if checked is not None:
        facts, findings = checked
        lines += ["", *facts.format_lines(), "", *(finding.format_line() for finding in findings)]
    if out is not None:
        lines += ["", f"written     {out}"]
    return "\n".join(lines)


def _build_document(plan: Plan, checked: tuple[ClusterFacts, list[Finding]] | None) -> dict[str, Any]:
    from workbench.scaletest.scenario.plan_summary import summarize_plan
    from workbench.scaletest.scenario.rbac_rules import list_rules

    document: dict[str, Any] = {
        "plan": summarize_plan(plan).to_dict(),
        "design_sha256": plan.design_sha256,
        "namespaces": plan.namespaces,
        "rights": list_rules(plan.scenario),
    }
    return document if checked is None else document | {"cluster": checked[0].to_dict(), "findings": checked[1]}
