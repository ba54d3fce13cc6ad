"""`workbench scaletest setup`: create namespaces, limits and rights in a cluster, as its administrator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.scaletest.commands import ClusterOption, ConfirmOption, ContextOption, KubeconfigOption


def setup(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario's YAML file.")],
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    confirm: ConfirmOption = None,
    quota: Annotated[
        bool, typer.Option(help="Create a ResourceQuota; it costs the server one more write per pod.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Create what a scenario's test needs: namespaces with limits, a PriorityClass, and the measuring identity.

    An administrator runs it once per cluster; running it again changes nothing. `workbench scaletest plan SCENARIO
    --rbac` prints the same objects as YAML.

    Example: workbench scaletest setup scenario.yaml --context admin@lab
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.scaletest.cluster_api.connection import Connection
    from workbench.scaletest.safety import cluster_setup, confirmation
    from workbench.scaletest.scenario import draw_plan, scenario_file

    plan = draw_plan(scenario_file.load_scenario(scenario))
    target = confirmation.require_target(confirmation.find_target(context, kubeconfig, cluster, administrator=True))

    async def set_up() -> list[str]:
        async with Connection(target, max_connections=4) as api:
            await confirmation.confirm_interactively(api, None, confirm)
            return await cluster_setup.set_up_cluster(api, plan, quota=quota)

    applied = asyncio.run(set_up())

    def print_applied() -> None:
        print_text("\n".join(f"applied  {name}" for name in applied))
        if cluster is None:
            print_text("\n" + cluster_setup.format_next_steps(target.context), err=True)

    finish_command(print_applied, {"applied": applied, "namespaces": plan.namespaces}, as_json=as_json)
