"""`workbench scaletest setup`: what an administrator makes once in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def setup(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario's YAML file.")],
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of an administrator in the kubeconfig.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The kubeconfig.", show_default="$KUBECONFIG, or the usual place"),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="A local cluster of the workbench instead.")
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="The cluster's fingerprint, on first use.")
    ] = None,
    quota: Annotated[bool, typer.Option(help="Limits on the server; each pod then costs it one more write.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Make what a scenario's test needs: its namespaces with limits, a PriorityClass, and the measuring identity.

    For an administrator, once; again is no harm. The same as YAML: workbench scaletest plan SCENARIO --rbac.

    Example: workbench scaletest setup scenario.yaml --context admin@lab
    """
    import asyncio
    import json

    from workbench.scaletest import planning
    from workbench.scaletest import scenario as scenarios
    from workbench.scaletest.connection import Connection
    from workbench.scaletest.safety import manifests, setting_up, targets
    from workbench.terminal import say

    made = planning.plan(scenarios.load(scenario))
    target = targets.needed(targets.chosen(context, kubeconfig, cluster, administrator=True))

    async def work() -> list[str]:
        async with Connection(target, most=4) as api:
            await targets.confirmed_facts(api, None, confirm)
            return await setting_up.setup(api, made, quota=quota)

    applied = asyncio.run(work())
    if as_json:
        say(json.dumps({"applied": applied, "namespaces": list(made.namespaces)}, indent=1))
        return
    say("\n".join(f"applied  {one}" for one in applied))
    if cluster is None:
        say("\n" + manifests.next_steps(target.context), err=True)
