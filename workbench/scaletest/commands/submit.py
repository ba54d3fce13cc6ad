"""`workbench scaletest submit`: the older scale-test tool's submitter, by its flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.scaletest.connection import Target
    from workbench.scaletest.upstream.submitting import Submitted


def submit(
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where submitted.json and our journal go.")
    ] = Path("logs"),
    workload_type: Annotated[
        str | None, typer.Option("--workload-type", "-t", help="training, distributed or interactive.")
    ] = None,
    num_workloads: Annotated[int | None, typer.Option("--num-workloads", "-n", help="Workloads, exactly.")] = None,
    num_processes: Annotated[int, typer.Option("--num-processes", "-p", help="Workloads of a burst.")] = 8,
    num_gpus: Annotated[str, typer.Option("--num-gpus", "-g", help="GPUs of each pod; 0.5 for a share.")] = "1",
    num_workers: Annotated[int, typer.Option(help="Workers of a distributed workload, besides its master.")] = 1,
    delay: Annotated[float, typer.Option(metavar="S", help="Between bursts, in seconds.")] = 0.0,
    project: Annotated[str, typer.Option(help="Project; its namespace is runai-PROJECT.")] = "project-0",
    pvc: Annotated[bool, typer.Option("--pvc", help="With a small volume each.")] = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="A burst waits for the one before it, then for the delay: the old timing.")
    ] = False,
    template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One of the old tool's YAML templates, or one like it.")
    ] = None,
    submit_with: Annotated[str, typer.Option(help="api, kubectl (one process a workload), or command.")] = "api",
    kubectl: Annotated[Path | None, typer.Option(metavar="FILE", help="kubectl.", show_default="on PATH")] = None,
    command: Annotated[
        str | None,
        typer.Option(help="With --submit-with command: words with {name}, {namespace}, {gpus}, {file}. No shell."),
    ] = None,
    max_rate: Annotated[float, typer.Option(help="Most workloads a second.")] = 20.0,
    scheduler: Annotated[str, typer.Option(help="default or kai: who places the pods.")] = "default",
    allow_real_nodes: Annotated[
        bool, typer.Option("--allow-real-nodes", help="Pods may go to nodes that exist.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was begun in the folder, by its flags.")
    ] = False,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="A local cluster of `cluster up`.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; never guessed.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(metavar="FILE", help="The kubeconfig.")] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="Of the cluster, on first use: it is told.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Submit Run:ai workloads by the flags of its scale-test tool: bursts of -p, and exactly -n of them.

    Open loop: each burst goes out when it is due, --delay seconds after the begin of the one before it. What is sent is
    in the journal before it goes out, so --resume goes on after a kill; submitted.json is kept fresh meanwhile.

    On a local cluster (--cluster) the namespace and the rights are made, too; simulated-runai makes jobs and pods of
    the workloads there. On others an administrator does it, and labels the namespace workbench.local/allow=true.

    Exit code 0 when all were accepted, 1 when some were not.

    Example: workbench scaletest submit --cluster local -t training -n 100 -p 8 --delay 1 -o logs
    """
    import asyncio

    from workbench.scaletest.driving.by_command import words_of
    from workbench.scaletest.upstream import submitting
    from workbench.scaletest.upstream.flags import Flags
    from workbench.terminal import say

    flags = Flags(
        workload_type=workload_type,
        num_workloads=num_workloads,
        num_processes=num_processes,
        num_gpus=num_gpus,
        num_workers=num_workers,
        delay=delay,
        project=project,
        pvc=pvc,
        template=template,
        max_rate=max_rate,
        allow_real_nodes=allow_real_nodes,
        scheduler=scheduler,
    )
    submitting.check(flags, resume=resume)
    words = words_of(command or "", "--command")
    target, admin, file = targets(cluster, context, kubeconfig)
    way = submitting.Way(submit_with, kubectl, words, file)
    done = asyncio.run(
        submitting.run(
            target,
            flags,
            output_dir,
            way=way,
            closed=closed,
            confirmed=confirm,
            resume=resume,
            admin=admin,
            tell=lambda line: say(line, err=True),
        )
    )
    _tell(done, as_json)
    raise typer.Exit(0 if done.sent == done.outcome.planned else 1)


def targets(
    cluster: str | None, context: str | None, kubeconfig: Path | None
) -> tuple[Target, Target | None, Path | None]:
    """Who measures, the administrator of a cluster of our own, and the measuring kubeconfig's file."""
    from workbench.errors import ConfigError
    from workbench.scaletest.connection import target
    from workbench.scaletest.localcluster.cluster import find

    if cluster is None:
        return target(kubeconfig, context), None, kubeconfig
    if context is not None or kubeconfig is not None:
        raise ConfigError("one cluster or the other", where="--cluster, --context, --kubeconfig", do="give one")
    known = find(cluster)
    file = known.measure_kubeconfig
    return target(file, known.measure_context), target(known.kubeconfig, known.context), file


def _tell(done: Submitted, as_json: bool) -> None:
    import json

    from workbench.terminal import say

    outcome = done.outcome
    rate = None if outcome.rate_per_s is None else round(outcome.rate_per_s, 3)
    if as_json:
        counts = {"planned": outcome.planned, "submitted": done.sent, "failed": outcome.failed}
        told = {"folder": str(done.folder), "file": str(done.file), **counts, "rate_per_s": rate}
        say(json.dumps({**told, "reason": outcome.reason, "first_failure": outcome.first_failure}, indent=1))
        return
    say(f"{done.sent} of {outcome.planned} submitted, {outcome.failed} failed: {outcome.reason}")
    if rate is not None:
        say(f"  {rate:g} a second")
    if outcome.first_failure:
        say(f"  first failure: {outcome.first_failure}")
    say(f"  {done.file}")
