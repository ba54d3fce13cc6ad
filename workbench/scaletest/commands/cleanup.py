"""`workbench scaletest cleanup`: delete exactly what a run made, and look that nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.scaletest.cleanup import Cleaned
    from workbench.scaletest.connection import Connection, Target
    from workbench.scaletest.safety.recording import RunRecord


def cleanup(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The run's id, such as st-1f2e3d4c.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the runs whose record is in the cluster.")] = False,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The kubeconfig.", show_default="$KUBECONFIG, or the usual place"),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="A local cluster of the workbench instead.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Where to look. Repeatable.", show_default="all that are labelled for tests"),
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="The cluster's fingerprint, on first use.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Delete a run's objects, in batches, from the record that the run left in the cluster; verify that none is left.

    Nothing else is touched: objects are found by the run's label, in namespaces labelled for tests. Again is no harm.
    On a local cluster (--cluster) it is done as its administrator.

    Exit code 1 when something is left, which is told.

    Example: workbench scaletest cleanup st-1f2e3d4c --cluster local
    """
    import asyncio

    from workbench.errors import ConfigError
    from workbench.scaletest.safety import targets
    from workbench.terminal import say

    if (run is None) != show:
        raise ConfigError("give a run's id, or --list", where="RUN", do="workbench scaletest cleanup --list")
    # On a local cluster as its administrator: the measuring identity may do what the latest setup was for, no more.
    target = targets.needed(targets.chosen(context, kubeconfig, cluster, administrator=True))
    if run is None:
        records = asyncio.run(_listed(target, namespace or [], confirm))
        say(_json([_record(one) for one in records]) if as_json else _table(records))
        return
    found = asyncio.run(_cleaned(target, run, namespace or [], confirm))
    say(_json(found.document()) if as_json else _text(found))
    if not found.complete:
        raise typer.Exit(1)


async def _listed(target: Target, namespaces: list[str], confirm: str | None) -> list[RunRecord]:
    from workbench.scaletest.connection import Connection
    from workbench.scaletest.safety import recording, targets

    async with Connection(target, most=4) as api:
        await targets.confirmed_facts(api, None, confirm)
        return await recording.known_runs(api, await _spaces(api, namespaces))


async def _cleaned(target: Target, run: str, namespaces: list[str], confirm: str | None) -> Cleaned:
    from workbench import progress
    from workbench.scaletest import cleanup as cleaning
    from workbench.scaletest.connection import Connection
    from workbench.scaletest.safety import targets

    async with Connection(target, most=4) as api:
        await targets.confirmed_facts(api, None, confirm)
        spaces = await _spaces(api, namespaces)
        with progress.counter(f"cleanup of {run}") as told:
            return await cleaning.clean_known(
                api, run, spaces, lambda now: told(max(now.total - now.left, 0), max(now.total, 1))
            )


async def _spaces(api: Connection, given: list[str]) -> tuple[str, ...]:
    from workbench.errors import ConfigError
    from workbench.scaletest.connection import ApiError
    from workbench.scaletest.safety import recording

    if given:
        return tuple(given)
    try:
        found = await recording.spaces(api)
    except ApiError as error:
        if error.status != 403:
            raise
        raise ConfigError(
            "this identity may not list namespaces",
            where="--namespace",
            do="name the run's namespaces, such as --namespace workbench-scaletest; or use an administrator's context",
        ) from None
    if not found:
        raise ConfigError("no namespace of this cluster is labelled for tests", where="--namespace", do="name one")
    return found


def _json(document: Any) -> str:
    import json

    return json.dumps(document, indent=1)


def _record(one: RunRecord) -> dict[str, Any]:
    return {
        "run": one.run,
        "scenario": one.scenario,
        "created_at": one.created_at,
        "namespaces": list(one.namespaces),
        "kinds": [str(kind) for kind in one.kinds],
    }


def _table(records: list[RunRecord]) -> str:
    if not records:
        return "no run has left a record in these namespaces"
    rows = [f"{one.run}  {one.created_at}  {one.scenario:<24}  {', '.join(one.namespaces)}" for one in records]
    return "\n".join(rows)


def _text(found: Cleaned) -> str:
    lines = [f"namespace {one} is not there" for one in found.gone]
    lines += [f"namespace {one} may not be looked at: what is left there is NOT KNOWN" for one in found.unseen]
    if found.unseen:
        lines.append("do: clean up as an administrator")
    return "\n".join([_counted(found), *lines])


def _counted(found: Cleaned) -> str:
    if not found.found:
        places = ", ".join(one for one in found.namespaces if one not in (*found.gone, *found.unseen))
        return f"nothing of {found.run} is in {places}: cleaned up already, or another cluster's run"
    total = sum(found.found.values())
    lines = [f"{count:>8,}  {place}" for place, count in found.found.items()]
    if not found.left:
        return "\n".join([*lines, f"{total:,} objects of {found.run} deleted in {found.duration_s:.1f} s, 0 left"])
    left = sum(found.left.values())
    lines.append(f"{left:,} of {total:,} objects of {found.run} are LEFT after {found.duration_s:.0f} s:")
    for place, count in found.left.items():
        lines.append(f"{count:>8,}  {place}: {', '.join(found.examples[place])}{' …' if count > 5 else ''}")
    return "\n".join([*lines, "do: see what holds them (finalizers, a controller that is down), and run this again"])
