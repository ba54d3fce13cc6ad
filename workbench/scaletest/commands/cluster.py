"""`workbench scaletest cluster`: build, start, show and stop a local control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from workbench.console.command_groups import build_group
from workbench.console.finish import JsonFlag

FIRST_STEPS = """\
  workbench scaletest cluster build     once, about ten minutes
  workbench scaletest cluster up --nodes 200
  workbench scaletest cluster down
"""

app = build_group("A real control plane on this machine; only its nodes are simulated.", first_steps=FIRST_STEPS)
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the local cluster.")]


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

    from workbench.console import terminal
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.scaletest.local_cluster import program_builds

    parts = tuple(only or program_builds.PARTS)
    if unknown := [part for part in parts if part not in get_args(program_builds.Part)]:
        raise ConfigError("unknown part", where="--only", found=unknown, allowed=program_builds.PARTS)
    folders = program_builds.build_parts(
        cast("tuple[program_builds.Part, ...]", parts),
        tell=lambda line: print_text(line, err=True),
        progress=terminal.show_progress_count,
    )
    for part, folder in folders.items():
        print_text(f"{part:5} {folder}")


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench scaletest cluster up\n"
    "  workbench scaletest cluster up --name gangs --nodes 3 --gpus 4 --scheduler kai\n"
    "  workbench scaletest cluster up --client-limit controller-manager=200:400"
)
def up(
    name: NameOption = "local",
    nodes: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Simulated nodes; with --gpus repeatable, pair by pair.", show_default="200"),
    ] = None,
    gpus: Annotated[list[int] | None, typer.Option(metavar="N", help="GPUs of each node.", show_default="8")] = None,
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="default; kai: KAI runs beside it, pods choose by their schedulerName; gang: Kubernetes' own gang "
            "scheduling is on.",
        ),
    ] = "default",
    client_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPONENT=QPS[:BURST]",
            help="Requests per second that a component may send, such as controller-manager=200:400. Repeatable.",
            show_default="Kubernetes' own",
        ),
    ] = None,
    api_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Another argument of the API server. Repeatable.")
    ] = None,
    feature_gate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=true", help="Gate of API server, controllers and scheduler. Repeatable."),
    ] = None,
    scheduler_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Another argument of the default scheduler. Repeatable."),
    ] = None,
    binaries: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the programs.", show_default="$WORKBENCH_CLUSTER_BINARIES"),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="kwokctl, folder, built or path.", show_default="the first that is available")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the cluster's data.", show_default="your cache")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a cluster: API server, etcd, controllers, a scheduler, and simulated GPU nodes.

    It listens on this machine only. A running cluster of this name is reused if it has the same settings.
    """
    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record, cluster_status, program_providers

    chosen = [_check_choice("--scheduler", one, Literal["default", "kai", "gang"]) for one in scheduler.split(",")]
    gates = dict.fromkeys(cluster_record.NATIVE_GANGS, True) if "gang" in chosen else {}
    with cluster_status.raise_on_signals():
        cluster = cluster_lifecycle.start_cluster(
            name,
            pools=cluster_record.parse_pools(nodes or [200], gpus or [8] * len(nodes or [200])),
            scheduler="kai" if "kai" in chosen else "default",
            feature_gates=gates | cluster_record.parse_feature_gates(feature_gate or []),
            scheduler_arguments=cluster_record.parse_api_arguments(scheduler_arg or []),
            client_limits=cluster_record.parse_client_limits(client_limit or []),
            api_arguments=cluster_record.parse_api_arguments(api_arg or []),
            programs=binaries,
            provider=None if provider is None else _check_choice("--provider", provider, program_providers.Provider),
            folder=folder,
            tell=lambda line: print_text(line, err=True),
        )
    finish_command(
        lambda: cluster_status.format_new_cluster(cluster),
        lambda: cluster_status.format_new_cluster_json(cluster),
        as_json=as_json,
    )


def _check_choice(flag: str, value: str, choices: Any) -> Any:
    from typing import get_args

    from workbench.core.errors import ConfigError

    if value not in get_args(choices):
        raise ConfigError("unknown choice", where=flag, found=value, allowed=get_args(choices))
    return value


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster status --json")
def status(name: NameOption = "local", as_json: JsonFlag = False) -> None:
    """Show the processes and nodes of a cluster; exit code 1 when one is unhealthy."""
    from workbench.console.finish import finish_command
    from workbench.scaletest.local_cluster import cluster_status

    found = cluster_status.read_cluster_status(name)
    finish_command(found.format_text, found.to_dict, as_json=as_json, is_valid=found.is_healthy)


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster down")
def down(name: NameOption = "local") -> None:
    """Stop a cluster and delete its data; no process, port or folder is left."""
    from workbench.console.terminal import print_text
    from workbench.scaletest.local_cluster import cluster_lifecycle

    print_text(f"{name}: stopped" if cluster_lifecycle.stop_cluster(name) else f"{name}: no such cluster was running")
