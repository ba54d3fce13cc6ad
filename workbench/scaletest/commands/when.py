"""`workbench scaletest when` and `record`: when a job will start, and the record of a cluster that tells it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.scaletest.commands import ClusterOption, ContextOption, KubeconfigOption

if TYPE_CHECKING:
    from workbench.scaletest.start_times.cluster_state import ClusterState
    from workbench.scaletest.start_times.day_replay import DayReplay
    from workbench.scaletest.start_times.start_estimate import StartEstimate


def when(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Manifest of a Job, Pod, JobSet, PyTorchJob, …")],
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="State of a cluster, by `workbench scaletest record`.")
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace of the job.", show_default="the manifest's")
    ] = None,
    run_time: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAMILY=MEDIAN..P90",
            help="How long workloads run that the record does not know, such as all=2h..8h. Repeatable.",
        ),
    ] = None,
    arrivals: Annotated[bool, typer.Option(help="What comes later comes as in the record.")] = True,
    packs_gpus: Annotated[
        bool, typer.Option("--packs-gpus", help="The scheduler fills nodes up (MostAllocated by GPUs).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """When would a job start, what holds it up, and what would start it now?

    Simulates the default scheduler and Kueue over many futures of the cluster, read live (nothing is written to it) or
    from a record. Run times are those of the record; one of a day or more also tells what comes later. Where the
    simulation cannot replay the record itself, or run times are not known, the answer says so.

    Exit code 1 when the start is not known.

    Example: workbench scaletest when sample:when/job --state sample:when/day
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario.safe_yaml import read_yaml_file
    from workbench.scaletest.start_times import cluster_objects, run_times
    from workbench.scaletest.start_times.cluster_state import read_state
    from workbench.scaletest.start_times.cluster_watch import look_at_cluster
    from workbench.scaletest.start_times.start_estimate import StartStudy
    from workbench.scaletest.test_run.run_options import find_cluster_access

    given = run_times.parse_run_times(run_time or [])
    if state is not None:
        if any(value is not None for value in (context, kubeconfig, cluster)):
            raise ConfigError("a record and a cluster", where="--state, --context, --cluster", do="give one of them")
        seen = read_state(state)
    else:
        seen = asyncio.run(look_at_cluster(find_cluster_access(cluster, kubeconfig, context).target))
    wanted = cluster_objects.read_job(read_yaml_file(job).value, seen, where=str(job), namespace=namespace)
    study = StartStudy(seen, wanted, run_times=given, has_arrivals=arrivals, packs_gpus=packs_gpus)
    estimate = study.estimate()
    finish_command(
        lambda: "\n".join(_format_estimate(estimate, seen)),
        estimate.to_dict,
        as_json=as_json,
        is_valid=not estimate.doubts,
    )


def _format_estimate(estimate: StartEstimate, state: ClusterState) -> list[str]:
    from workbench.console.tables import format_table
    from workbench.core.formats import format_duration

    lines = [estimate.answer, f"verdict: {estimate.verdict}", *(f"  {doubt}" for doubt in estimate.doubts)]
    if estimate.reasons:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in estimate.reasons.items())
        lines.append(f"held up by   {shares} of the time")
    if estimate.overtakers:
        lines.append(f"overtaken by {estimate.overtakers:g} workloads that came later (median)")
    if estimate.starts_s:
        lines.append(f"rests on     {len(estimate.starts_s)} simulated futures of {len(state.nodes):,} nodes")
    if estimate.replay is not None:
        lines.append(f"the record   {format_replay(estimate.replay)}")
    if estimate.changes:
        rows = [
            (
                change.change,
                "yes" if change.starts_now else "no",
                "later than two weeks" if change.median_s is None else format_duration(change.median_s),
            )
            for change in estimate.changes
        ]
        lines += ["", *format_table(rows, ("change", "starts now", "median start"))]
    return lines


def format_replay(replay: DayReplay) -> str:
    """What a replay of the record shows, in a line."""
    import math

    if not replay.n_compared:
        return "holds no workload that waited, so that its replay shows nothing"
    order = "" if replay.order is None else f", rank correlation of starts {replay.order:.2f}"
    return (
        f"replayed: {replay.n_compared:,} workloads that waited, median factor of waits "
        f"{math.exp(replay.log_error):.3g}{order}"
    )


def record(
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, such as monday.json.")],
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long, such as 24h; 0s for a look at this moment.")
    ] = "24h",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Record what a cluster runs, for `workbench scaletest when`: nodes, workloads, queues; read only.

    Written every minute, and when it is interrupted. The file holds names, requests, node rules and times; no commands,
    variables, images or annotations.

    Example: workbench scaletest record --cluster local --for 24h --out monday.json
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.core import signals
    from workbench.core.errors import ConfigError
    from workbench.scaletest.start_times import cluster_state, cluster_watch, day_replay
    from workbench.scaletest.start_times.run_times import parse_seconds
    from workbench.scaletest.test_run.run_options import find_cluster_access

    try:
        duration_s = parse_seconds(duration)
    except ValueError:
        raise ConfigError("not a time", where="--for", found=duration[:40], allowed="such as 90m or 24h") from None
    target = find_cluster_access(cluster, kubeconfig, context).target
    last: list[cluster_state.ClusterState] = []

    def save(state: cluster_state.ClusterState) -> None:
        cluster_state.write_state(state, out)
        last[:] = [state]

    try:
        with signals.interrupt_on_termination():
            if duration_s > 0:
                asyncio.run(cluster_watch.record_cluster(target, duration_s, save))
            else:
                save(asyncio.run(cluster_watch.look_at_cluster(target)))
    except KeyboardInterrupt:
        if not last:
            raise
    state = last[0]
    replay = day_replay.replay_day(state)
    ended = sum(one.ended_s is not None for one in state.workloads)
    lines = [
        f"recorded     {state.span_s:,.0f} s: {len(state.nodes):,} nodes, {len(state.workloads):,} workloads, "
        f"{ended:,} of them ended, {len(state.queues)} queues",
        *([] if replay is None else [f"the record   {format_replay(replay)}"]),
        *(f"note: {note}" for note in state.notes),
    ]
    document = {"span_s": state.span_s, "nodes": len(state.nodes), "workloads": len(state.workloads), "ended": ended}
    finish_command(
        "\n".join(lines),
        document,
        as_json=as_json,
        written=[out],
        next_commands=[["workbench", "scaletest", "when", "JOB.yaml", "--state", out]],
    )
