"""`workbench scaletest sample`: the older scale-test tool's sampler, by its flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.scaletest.upstream.sampling import Sample


def sample(
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="The submission's; sampled.json goes there.")
    ] = Path("logs"),
    workload_type: Annotated[
        str, typer.Option("--workload-type", "-t", help="training, distributed or interactive.")
    ] = "training",
    project: Annotated[str, typer.Option("--project", "-p", help="Project; its namespace is runai-PROJECT.")] = (
        "project-0"
    ),
    follow: Annotated[
        float | None, typer.Option(metavar="S", help="Sample again every so many seconds until all are complete.")
    ] = None,
    for_: Annotated[float, typer.Option("--for", metavar="S", help="Follow at most so long.")] = 3600.0,
    no_events: Annotated[bool, typer.Option("--no-events", help="Without evictions and volumes.")] = False,
    backend_url_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Variable that holds the backend's PostgreSQL URL.")
    ] = None,
    backend_query: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="SELECT name, time …; %(project)s and %(namespace)s are bound."),
    ] = None,
    backend_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Another parameter of the query. Repeatable.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="A local cluster of `cluster up`.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; never guessed.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(metavar="FILE", help="The kubeconfig.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List what a project's workloads have become, and write sampled.json: times in whole seconds, of the cluster.

    Can be run again and again while a submission is running; with --follow it does so by itself and tells how far it
    is. For milliseconds use `workbench scaletest run`, which watches.

    Exit code 0 when all that was submitted is complete, 1 when some is not (yet).

    Example: workbench scaletest sample --cluster local -t training -o logs --follow 5
    """
    import asyncio

    from workbench.scaletest.commands.submit import targets
    from workbench.scaletest.upstream import sampling, workloads
    from workbench.scaletest.upstream.backend import from_options
    from workbench.terminal import say

    workloads.checked(workload_type, project, "1", 1)
    backend = from_options(backend_url_env, backend_query, backend_parameter or [])
    target, _, _ = targets(cluster, context, kubeconfig)
    found = asyncio.run(
        sampling.follow(
            target,
            output_dir,
            workload_type,
            project,
            every_s=follow,
            for_s=for_,
            events=not no_events,
            backend=backend,
            tell=lambda line: say(line, err=True),
        )
    )
    _tell(found, as_json)
    complete = found.sampled >= found.submitted if found.submitted is not None else not found.snapshot.lacking
    raise typer.Exit(0 if complete and found.sampled else 1)


def _tell(found: Sample, as_json: bool) -> None:
    import json

    from workbench.terminal import say

    shot = found.snapshot
    if as_json:
        told: dict[str, object] = {"file": str(found.file), "submitted": found.submitted, "sampled": found.sampled}
        told |= {"others": found.others, "counts": shot.counts}
        say(
            json.dumps(
                {**told, "measured": shot.measured, "lacking": shot.lacking, "foreign": dict(shot.foreign)}, indent=1
            )
        )
        return
    say(found.line())
    for field, missing in shot.lacking.items():
        say(f"  {missing} have no {field} yet")
    if found.others:
        say(f"  {found.others} others in the namespace are not of this submission: left out")
    for what, count in shot.foreign.items():
        say(f"  {count} of no workload here: {what}")
    say(f"  {found.file}")
