"""`workbench scaletest cluster`: a real control plane on this machine, built once, up in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands import group

FIRST_STEPS = """\
  workbench scaletest cluster build     once, about ten minutes
  workbench scaletest cluster up --nodes 200
  workbench scaletest cluster down
"""

app = group("A real control plane on this machine; only its nodes are simulated.", first_steps=FIRST_STEPS)
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Which local cluster.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster build")
def build(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="kube, kwok or kai; repeatable.", show_default="all three"),
    ] = None,
) -> None:
    """Build the control plane's programs into your cache: once, about ten minutes on two cores.

    Needs Go 1.26 or newer and access to Go modules, about 4 GB of disk for Go's own cache and 600 MB for the programs.
    """
    from typing import cast, get_args

    from workbench import progress
    from workbench.errors import ConfigError
    from workbench.scaletest.localcluster import building
    from workbench.terminal import say

    parts = tuple(only or building.PARTS)
    if wrong := [part for part in parts if part not in get_args(building.Part)]:
        raise ConfigError("no such part", where="--only", found=wrong, allowed=building.PARTS)
    made = building.build(
        cast("tuple[building.Part, ...]", parts), tell=lambda line: say(line, err=True), progress=progress.counter
    )
    for part, folder in made.items():
        say(f"{part:5} {folder}")


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench scaletest cluster up\n"
    "  workbench scaletest cluster up --name gangs --nodes 3 --gpus 4 --scheduler kai\n"
    "  workbench scaletest cluster up --client-limit controller-manager=200:400"
)
def up(
    name: Name = "local",
    nodes: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Simulated nodes; with --gpus repeatable, pair by pair.", show_default="200"),
    ] = None,
    gpus: Annotated[list[int] | None, typer.Option(metavar="N", help="GPUs of each.", show_default="8")] = None,
    scheduler: Annotated[
        str, typer.Option(help="default, or kai: KAI beside it, and pods choose by their schedulerName.")
    ] = "default",
    client_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPONENT=QPS[:BURST]",
            help="Requests a second that a component may send, such as controller-manager=200:400. Repeatable.",
            show_default="Kubernetes' own",
        ),
    ] = None,
    api_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A further argument of the API server. Repeatable.")
    ] = None,
    binaries: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the programs.", show_default="$WORKBENCH_CLUSTER_BINARIES"),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="kwokctl, folder, built or path.", show_default="the first that is there")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where its data goes.", show_default="your cache")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a cluster up: an API server, etcd, the controllers, a scheduler, and simulated GPU nodes.

    It listens on this machine only. One of this name that is up already is given back when the settings agree.
    """
    from typing import cast, get_args

    from workbench.errors import ConfigError
    from workbench.scaletest.localcluster import binaries as found
    from workbench.scaletest.localcluster import cluster, reporting, settings
    from workbench.terminal import say

    for where, value, kind in (
        ("--scheduler", scheduler, settings.Scheduler),
        ("--provider", provider, found.Provider),
    ):
        if value is not None and value not in get_args(kind):
            raise ConfigError("no such choice", where=where, found=value, allowed=get_args(kind))
    with reporting.ended_by_signals():
        made = cluster.up(
            name,
            pools=settings.checked_pools(nodes or [200], gpus or [8] * len(nodes or [200])),
            scheduler=cast("settings.Scheduler", scheduler),
            client_limits=settings.parsed_limits(client_limit or []),
            api_arguments=settings.parsed_arguments(api_arg or []),
            programs=binaries,
            provider=cast("found.Provider | None", provider),
            folder=folder,
            tell=lambda line: say(line, err=True),
        )
    say(reporting.as_json(made) if as_json else reporting.as_text(made))


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster status --json")
def status(name: Name = "local", as_json: Json = False) -> None:
    """Show each process of a cluster and how it is, and the nodes; exit code 1 when something is wrong."""
    from workbench.scaletest.localcluster import reporting
    from workbench.terminal import say

    found = reporting.status(name)
    say(found.as_json() if as_json else found.as_text())
    if not found.well:
        raise typer.Exit(1)


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster down")
def down(name: Name = "local") -> None:
    """End a cluster: no process, port or folder of it is left. All that was in it is lost."""
    from workbench.scaletest.localcluster import cluster
    from workbench.terminal import say

    say(f"{name}: gone" if cluster.down(name) else f"{name}: there was nothing of it")
