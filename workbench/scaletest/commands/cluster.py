"""`workbench scaletest cluster`: build, start, show and stop a local control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from workbench.console.finish import JsonFlag
from workbench.console.options import build_group

if TYPE_CHECKING:
    from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe

FIRST_STEPS = """\
  workbench scaletest cluster build     once, up to 22 minutes on two cores
  workbench scaletest cluster up --nodes 200
  workbench scaletest cluster down
"""

app = build_group("A real control plane on this machine; only its nodes are simulated.", first_steps=FIRST_STEPS)
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the local cluster.")]


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench scaletest cluster build\n"
    "  workbench scaletest cluster build --only kube --only kwok"
)
def build(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="kube, kwok, kai or kueue; repeatable.", show_default="all but kueue"),
    ] = None,
) -> None:
    """Build the control plane's programs into your cache: once for each release that changes them.

    Minutes on two cores, where Go has compiled nothing yet: kube 14 (API server, controllers, scheduler, etcd), kwok 1
    (simulated nodes), kai 8 and kueue 10 (schedulers that only tests naming them need). Parts that lie in the cache are
    not built again. An interrupted build goes on where it was.

    Needs Go 1.26 or newer and access to Go modules, about 4 GB of disk for Go's own cache and 600 MB for the programs.
    """
    from workbench.console import terminal
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.scaletest.local_cluster import program_builds

    parts = tuple(only or program_builds.PARTS)
    if (ready := program_builds.find_ready_provider()) is not None:
        print_text(f"note: `cluster up` starts without a build: provider {ready}", err=True)
    if unknown := [part for part in parts if part not in get_args(program_builds.Part)]:
        raise ConfigError("unknown part", where="--only", found=unknown, allowed=program_builds.ALL_PARTS)
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
    gpu_model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="H100, H200, A100, L40S or T4: labels only.", show_default="H100"),
    ] = None,
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="default, gang, kai, second, or a recipe's path; all run side by side, and pods choose by their "
            "schedulerName. `workbench scaletest cluster recipes` lists them.",
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
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=GPUS", help="A queue of Kueue and its quota. Repeatable.", show_default="default, all GPUs"
        ),
    ] = None,
    topology: Annotated[
        bool, typer.Option("--topology", help="Kueue places pods by block, rack and host.", show_default=False)
    ] = False,
    devices: Annotated[
        bool,
        typer.Option(
            "--devices",
            help="GPUs are devices of class gpu.workbench.local, which resource claims ask for.",
            show_default=False,
        ),
    ] = False,
    start_delay: Annotated[
        str | None,
        typer.Option(
            metavar="S[:S]",
            help="How long simulated nodes take to start a pod, or the bounds of it.",
            show_default="no time",
        ),
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
    from workbench.core.errors import ConfigError
    from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record, program_builds

    chosen = _find_startable_recipes(scheduler.split(","))
    has_kueue = any(recipe.program == "kueue" for recipe in chosen)
    if (queue or topology) and not has_kueue:
        where = "--queue" if queue else "--topology"
        raise ConfigError("only Kueue has queues here", where=where, do="add --scheduler default,kueue")
    if provider not in (None, *get_args(program_builds.Provider)):
        raise ConfigError(
            "unknown choice", where="--provider", found=provider, allowed=get_args(program_builds.Provider)
        )
    gates = {name: on for recipe in chosen for name, on in recipe.feature_gates.items()}
    extra_arguments = cluster_record.parse_api_arguments(api_arg or [])
    arguments = {
        name: value for recipe in chosen for name, value in recipe.api_arguments.items() if name != "runtime-config"
    }
    runtime_configs = [
        *(recipe.api_arguments.get("runtime-config") for recipe in chosen),
        extra_arguments.get("runtime-config"),
    ]
    served = [text for text in runtime_configs if text and text != cluster_record.NATIVE_GANGS_API]
    arguments |= extra_arguments | ({"runtime-config": ",".join(served)} if served else {})
    scheduler_arguments = {name: value for recipe in chosen for name, value in recipe.scheduler_arguments.items()}
    settings = cluster_record.ClusterSettings(
        pools=cluster_record.parse_pools(
            nodes or [200], gpus or [8] * len(nodes or [200]), gpu_model or [], as_devices=devices
        ),
        scheduler="kai" if any(recipe.program == "kai" for recipe in chosen) else "default",
        kueue=has_kueue,
        queue_quotas=cluster_record.parse_queue_quotas(queue or []),
        queue_topology=topology,
        recipes=tuple(recipe for recipe in chosen if recipe.program == "kube-scheduler"),
        feature_gates=gates | cluster_record.parse_feature_gates(feature_gate or []),
        scheduler_arguments=cluster_record.check_api_arguments(scheduler_arguments)
        | cluster_record.parse_api_arguments(scheduler_arg or []),
        start_delay=None if start_delay is None else cluster_record.parse_start_delay(start_delay),
        client_limits=cluster_record.parse_client_limits(client_limit or []),
        api_arguments=arguments,
    )
    cluster = cluster_lifecycle.start_cluster(
        name,
        settings,
        programs=binaries,
        provider=cast("program_builds.Provider | None", provider),
        folder=folder,
        tell=lambda line: print_text(line, err=True),
    )
    finish_command(
        lambda: cluster_lifecycle.format_new_cluster(cluster),
        lambda: cluster_lifecycle.format_new_cluster_json(cluster),
        as_json=as_json,
    )


def _find_startable_recipes(names: list[str]) -> list[SchedulerRecipe]:
    """Recipes that this machine can start, by names or paths."""
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import scheduler_recipes

    full, file_recipes = scheduler_recipes.resolve_schedulers(names)
    matches = [scheduler_recipes.find_recipe(name, file_recipes) for name in full]
    if elsewhere := [recipe.name for recipe in matches if recipe.program == "cluster"]:
        allowed = [
            recipe.short or recipe.name
            for recipe in scheduler_recipes.list_shipped_recipes()
            if recipe.program != "cluster"
        ]
        raise ConfigError(
            "no scheduler that is started here",
            where="--scheduler",
            found=elsewhere,
            allowed=[*allowed, "the path of a recipe with program kube-scheduler"],
            do="run on a cluster that has it: --context instead of --cluster",
        )
    return matches


@app.command(
    epilog="\b\nExamples:\n  workbench scaletest cluster recipes\n  workbench scaletest cluster recipes second"
)
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one's file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the scheduler recipes: how each is found or started, and which objects its workloads need beside pods."""
    from workbench.console.finish import finish_command
    from workbench.console.tables import format_table
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import scheduler_recipes

    shipped = scheduler_recipes.list_shipped_recipes()
    if name is None:
        rows = [(recipe.short or recipe.name, recipe.program, recipe.about) for recipe in shipped]
        finish_command(
            lambda: "\n".join(format_table(rows, ("name", "program", "what it is"))),
            lambda: scheduler_recipes.format_recipes_json(shipped),
            as_json=as_json,
        )
    match = next((recipe for recipe in shipped if name in (recipe.name, recipe.short)), None)
    if match is None:
        allowed = [recipe.short or recipe.name for recipe in shipped]
        raise ConfigError("no such recipe", where="NAME", found=name[:80], allowed=allowed)
    finish_command(lambda: scheduler_recipes.read_recipe_text(match.name), match.model_dump_json, as_json=as_json)


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster status --json")
def status(name: NameOption = "local", as_json: JsonFlag = False) -> None:
    """Show the processes and nodes of a cluster; exit code 1 when one is unhealthy."""
    from workbench.console.finish import finish_command
    from workbench.scaletest.local_cluster import cluster_lifecycle

    state = cluster_lifecycle.read_cluster_status(name)
    finish_command(state.format_text, state.to_dict, as_json=as_json, is_valid=state.is_healthy)


@app.command(epilog="\b\nExample:\n  workbench scaletest cluster down")
def down(name: NameOption = "local") -> None:
    """Stop a cluster and delete its data; no process, port or folder is left."""
    from workbench.console.terminal import print_text
    from workbench.scaletest.local_cluster import cluster_lifecycle

    print_text(f"{name}: stopped" if cluster_lifecycle.stop_cluster(name) else f"{name}: no such cluster was running")
