"""`workbench scaletest cleanup`: delete the objects of a run, or list the runs that left objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.scaletest.commands import ClusterOption, ConfirmOption, ContextOption, KubeconfigOption

if TYPE_CHECKING:
    from workbench.scaletest.cluster_api.connection import Connection
    from workbench.scaletest.safety.run_cleanup import CleanupResult


def cleanup(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The run's id, such as st-1f2e3d4c.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the runs that have a record in the cluster.")] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Namespace to search. Repeatable.", show_default="all labelled for tests"),
    ] = None,
    confirm: ConfirmOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete a run's objects in batches, by the record that the run left in the cluster, and verify that none is left.

    Only objects with the run's label are deleted, and only in namespaces labelled for tests. It is safe to repeat. On a
    local cluster (--cluster) it runs as the administrator.

    Exit code 1 when objects are left; they are listed. With --list, records that are invalid are named on stderr.

    Example: workbench scaletest cleanup st-1f2e3d4c --cluster local
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.console.tables import format_table
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.core.errors import ConfigError
    from workbench.scaletest.cluster_api.connection import Connection
    from workbench.scaletest.safety import confirmation, run_cleanup
    from workbench.scaletest.test_run.run_options import find_cluster_access

    if (run is None) != show:
        raise ConfigError("give a run's id, or --list", where="RUN", do="workbench scaletest cleanup --list")
    # The measuring identity of a local cluster only has the rights of the latest setup.
    access = find_cluster_access(cluster, kubeconfig, context)
    target = access.admin or access.target

    async def list_records() -> list[run_cleanup.RunRecord]:
        async with Connection(target, max_connections=4) as api:
            await confirmation.confirm_interactively(api, None, confirm)
            searched = await _find_namespaces(api, namespace or [])
            return await run_cleanup.list_run_records(
                api, searched, lambda error: print_text(f"left out: {error}", err=True)
            )

    async def clean_up(name: str) -> run_cleanup.CleanupResult:
        async with Connection(target, max_connections=4) as api:
            await confirmation.confirm_interactively(api, None, confirm)
            searched = await _find_namespaces(api, namespace or [])
            with show_progress_count(f"cleanup of {name}") as show_count:
                return await run_cleanup.delete_recorded_run(
                    api,
                    name,
                    searched,
                    lambda progress: show_count(max(progress.total - progress.left, 0), max(progress.total, 1)),
                )

    if run is None:
        records = asyncio.run(list_records())
        documents = [
            {
                "run": record.run,
                "scenario": record.scenario,
                "created_at": record.created_at,
                "namespaces": record.namespaces,
                "kinds": [str(kind) for kind in record.kinds],
            }
            for record in records
        ]
        rows = [(record.run, record.created_at, record.scenario, ", ".join(record.namespaces)) for record in records]
        text = "\n".join(format_table(rows)) if rows else "no run has a record in these namespaces"
        finish_command(text, documents, as_json=as_json)
    result = asyncio.run(clean_up(run))
    finish_command(format_cleanup(result), result.to_dict(), as_json=as_json, is_valid=result.complete)


async def _find_namespaces(api: Connection, namespaces: list[str]) -> tuple[str, ...]:
    from workbench.core.errors import ConfigError
    from workbench.scaletest.cluster_api.connection import ApiError
    from workbench.scaletest.safety import run_cleanup

    if namespaces:
        return tuple(namespaces)
    try:
        labelled = await run_cleanup.list_test_namespaces(api)
    except ApiError as error:
        if error.status != 403:
            raise
        raise ConfigError(
            "no right to list namespaces",
            where="--namespace",
            do="name the run's namespaces, such as --namespace workbench-scaletest; or use an administrator's context",
        ) from None
    if not labelled:
        raise ConfigError("no namespace of this cluster is labelled for tests", where="--namespace", do="name one")
    return labelled


def format_cleanup(result: CleanupResult) -> str:
    if not result.found:
        searched = ", ".join(name for name in result.namespaces if name not in (*result.gone, *result.unseen))
        lines = [f"no objects of {result.run} in {searched}: already cleaned up, or the run was on another cluster"]
    else:
        n_found, n_left = sum(result.found.values()), sum(result.left.values())
        lines = [f"{count:>8,}  {place}" for place, count in result.found.items()]
        if not result.left:
            lines.append(f"{n_found:,} objects of {result.run} deleted in {result.duration_s:.1f} s, 0 left")
        else:
            lines.append(f"{n_left:,} of {n_found:,} objects of {result.run} are LEFT after {result.duration_s:.0f} s:")
            for place, count in result.left.items():
                lines.append(f"{count:>8,}  {place}: {', '.join(result.examples[place])}{' …' if count > 5 else ''}")
            lines += _format_stuck(result.stuck) or [
                "do: look for what blocks deletion, such as a controller that is down, and run cleanup again"
            ]
    lines += [f"namespace {name} does not exist" for name in result.gone]
    lines += [f"namespace {name}: no permission to list, so what remains there is UNKNOWN" for name in result.unseen]
    return "\n".join([*lines, *(["do: clean up as an administrator"] if result.unseen else [])])


def _format_stuck(stuck: dict[str, tuple[str, ...]]) -> list[str]:
    """Name the finalizers that hold objects, each with one object and what to do."""
    holders: dict[str, list[str]] = {}
    for name, finalizers in stuck.items():
        for finalizer in finalizers:
            holders.setdefault(finalizer, []).append(name)
    lines = []
    for finalizer, names in holders.items():
        place, name = names[0].split(" ", 1)
        space, plural = place.split("/", 1)
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        lines.append(f"finalizer {finalizer} holds {names[0]}{more}: its controller has not taken it off")
        patch = """--type=merge -p '{"metadata":{"finalizers":null}}'"""
        lines.append(
            f"do: start that controller and run cleanup again; or, if it is permanently gone: "
            f"kubectl patch {plural} {name} -n {space} {patch}"
        )
    return lines
