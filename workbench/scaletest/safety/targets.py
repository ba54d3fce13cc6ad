"""Which cluster a command means: a context, or a local cluster of ours; and the question on first use."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.errors import ConfigError
from workbench.scaletest.connection import Connection, Target, target
from workbench.scaletest.safety.confirming import confirm, is_confirmed
from workbench.scaletest.safety.looking import TargetFacts, look
from workbench.scaletest.scenario import Scenario


def chosen(
    context: str | None, kubeconfig: str | Path | None, cluster: str | None, *, administrator: bool = False
) -> Target | None:
    """The target that a command's options name; null when they name none.

    Parameters
    ----------
    cluster
        A local cluster's name.
    administrator
        As its administrator, not as its measuring identity; with a context the context says who.

    Raises
    ------
    ConfigError
        Both were given, or there is no such context or cluster.
    """
    if cluster is not None:
        if context is not None or kubeconfig is not None:
            raise ConfigError("one cluster, please", where="--cluster", do="give --cluster, or --context")
        from workbench.scaletest.localcluster.cluster import find

        local = find(cluster)
        if administrator:
            return target(local.kubeconfig, local.context)
        return target(local.measure_kubeconfig, local.measure_context)
    if context is None and kubeconfig is None:
        return None
    return target(kubeconfig, context)


def needed(found: Target | None) -> Target:
    """The same, where there must be one.

    Raises
    ------
    ConfigError
        None was named.
    """
    if found is None:
        raise ConfigError(
            "which cluster?",
            where="--context, --cluster",
            do="--cluster local (after `workbench scaletest cluster up`), or --context NAME: it is never guessed",
        )
    return found


async def confirmed_facts(api: Connection, scenario: Scenario | None, given: str | None) -> TargetFacts:
    """`confirm`, which asks a person at a terminal to type the fingerprint on first use.

    Raises
    ------
    ConfigError
        Not confirmed, or unsafe.
    """
    if given is None and sys.stdin.isatty() and sys.stderr.isatty():
        found = await look(api)
        if found.own is None and not is_confirmed(found):
            given = _typed(found)
    return await confirm(api, api.target, scenario, given)


def _typed(found: TargetFacts) -> str:
    import typer

    from workbench.terminal import say

    say("This cluster was not tested before:\n  " + "\n  ".join(found.lines()), err=True)
    return str(typer.prompt("Type its fingerprint if that is the one you mean", err=True))
