"""`workbench scaletest plan`: what a scenario would do to a cluster, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.scaletest.connection import Target
    from workbench.scaletest.planning import Plan
    from workbench.scaletest.safety import Finding, TargetFacts


def plan(
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help="A scenario's YAML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a scenario with all fields explained.")] = False,
    rbac: Annotated[
        bool, typer.Option("--rbac", help="Print what an administrator applies: namespaces, limits, two identities.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="schedulerName of the pods.", show_default="the scenario's first")
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Look at this kubeconfig context too.")] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The kubeconfig.", show_default="$KUBECONFIG, or the usual place"),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this local cluster of the workbench instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the plan there: scenario.yaml, tables/schedule.parquet.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Show what a scenario would do: schedule, objects, bytes, pods, GPUs, time, rights. No cluster is written to.

    With --context or --cluster the cluster is looked at as well: who we are to it, what it is, whether every right is
    there, whether the server would take one workload of each sort (a dry run), and whether the pods would find room.

    Exit code 1 when something there would keep the test from being begun.

    Example: workbench scaletest plan scenario.yaml --cluster local
    """
    from workbench.errors import ConfigError
    from workbench.scaletest import planning
    from workbench.scaletest import scenario as scenarios
    from workbench.scaletest.safety import targets
    from workbench.terminal import say

    if example:
        say(scenarios.example().rstrip("\n"))
        return
    if scenario is None:
        raise ConfigError(
            "which scenario?",
            where="SCENARIO",
            do="workbench scaletest plan --example > scenario.yaml makes a first one",
        )
    made = planning.plan(scenarios.load(scenario), scheduler=scenarios.scheduler_name(scheduler))
    if rbac:
        from workbench.scaletest.safety.manifests import as_yaml

        say(as_yaml(made).rstrip("\n"))
        return
    found = targets.chosen(context, kubeconfig, cluster)
    looked = None if found is None else _looked(found, made, sets_up=cluster is not None)
    if out is not None:
        made.write(out)
    say(_json(made, looked) if as_json else _text(made, looked, out))
    if looked is not None and any(one.level == "refused" for one in looked[1]):
        raise typer.Exit(1)


def _looked(found: Target, made: Plan, *, sets_up: bool) -> tuple[TargetFacts, list[Finding]]:
    import asyncio

    from workbench.scaletest.connection import Connection
    from workbench.scaletest.safety import look, preflight

    async def work() -> tuple[TargetFacts, list[Finding]]:
        async with Connection(found, most=16) as api:
            facts = await look(api)
            return facts, await preflight(api, made, facts, sets_up=sets_up)

    return asyncio.run(work())


def _text(made: Plan, looked: tuple[TargetFacts, list[Finding]] | None, out: Path | None) -> str:
    from workbench.scaletest.planning import telling
    from workbench.scaletest.planning.summary import summarize

    lines = [*telling.lines(made, summarize(made)), "", *telling.schedule(made)]
    lines += ["", "rights of the measuring identity (as YAML: --rbac)", *telling.needed(made)]
    if looked is not None:
        facts, findings = looked
        lines += ["", *facts.lines(), "", *(one.line() for one in findings)]
    if out is not None:
        lines += ["", f"written     {out}"]
    return "\n".join(lines)


def _json(made: Plan, looked: tuple[TargetFacts, list[Finding]] | None) -> str:
    import dataclasses
    import json

    from workbench.scaletest.planning.rights import rules
    from workbench.scaletest.planning.summary import summarize

    document: dict[str, Any] = {
        "plan": summarize(made).document(),
        "design_sha256": made.design_sha256,
        "namespaces": list(made.namespaces),
        "rights": [dataclasses.asdict(rule) for rule in rules(made.scenario)],
    }
    if looked is not None:
        document["cluster"] = looked[0].document()
        document["findings"] = [dataclasses.asdict(one) for one in looked[1]]
    return json.dumps(document, indent=1)
