"""`workbench scaletest plan`: show what a scenario would do to a cluster, without writing to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from workbench.console.finish import JsonFlag
from workbench.scaletest.commands import ClusterOption, ConfirmOption, ContextOption, KubeconfigOption


def plan(
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help="A scenario's YAML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a scenario with all fields explained.")] = False,
    rbac: Annotated[
        bool, typer.Option("--rbac", help="Print the YAML for an administrator: namespaces, limits, two identities.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="schedulerName of the pods.", show_default="the scenario's first")
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    cluster: ClusterOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the plan there: scenario.yaml, tables/schedule.parquet.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a scenario would do, without writing to a cluster: schedule, objects, pods, GPUs, duration, rights.

    With --context or --cluster the cluster is inspected too: identity, nodes, rights, capacity, and a server-side dry
    run of one workload of each kind.

    Exit code 1 when a check would refuse the test.

    Example: workbench scaletest plan sample:first-test --cluster local
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import scenario_file, workload_plan
    from workbench.scaletest.scenario.workload_objects import list_rules

    if example:
        print_text(scenario_file.read_example().rstrip("\n"), wrap=False)
        return
    if scenario is None:
        raise ConfigError(
            "no scenario was given",
            where="SCENARIO",
            do="workbench scaletest plan --example > scenario.yaml writes a first one",
        )
    drawn = workload_plan.draw_plan(
        scenario_file.load_scenario(scenario), scheduler=scenario_file.expand_scheduler_name(scheduler)
    )
    if rbac:
        from workbench.scaletest.safety.cluster_setup import format_setup_yaml

        print_text(format_setup_yaml(drawn).rstrip("\n"), wrap=False)
        return
    summary = workload_plan.summarize_plan(drawn)
    document: dict[str, Any] = {
        "plan": summary.to_dict(),
        "design_sha256": drawn.design_sha256,
        "namespaces": drawn.namespaces,
        "rights": list_rules(drawn.scenario),
    }
    lines = [*workload_plan.format_plan(drawn, summary), "", *workload_plan.format_schedule(drawn)]
    lines += ["", "rights of the measuring identity (as YAML: --rbac)", *workload_plan.format_rights(drawn)]
    is_valid = True
    if any(value is not None for value in (cluster, context, kubeconfig)):
        from workbench.scaletest.cluster_api.connection import Connection
        from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, inspect_cluster
        from workbench.scaletest.safety.preflight import run_preflight
        from workbench.scaletest.test_run.run_options import find_cluster_access

        target = find_cluster_access(cluster, kubeconfig, context).target

        async def check_cluster() -> tuple[ClusterFacts, list[Finding]]:
            async with Connection(target, max_connections=16) as api:
                facts = await inspect_cluster(api)
                return facts, await run_preflight(api, drawn, facts, sets_up=cluster is not None)

        facts, findings = asyncio.run(check_cluster())
        document |= {"cluster": facts.to_dict(), "findings": findings}
        lines += ["", *facts.format_lines(), "", *(finding.format_line() for finding in findings)]
        is_valid = all(finding.level != "refused" for finding in findings)
    if out is not None:
        drawn.write(out)
        lines += ["", f"written     {out}"]
    finish_command("\n".join(lines), document, as_json=as_json, is_valid=is_valid)


def trace(
    file: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace's file, or PAI's folder.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for scenario.yaml and jobs.csv.")],
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, max=100_000, help="Jobs that are replayed.")] = 500,
    skip: Annotated[int, typer.Option(metavar="N", min=0, help="Jobs before them, by time of submission.")] = 0,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0.001,
            max=10_000,
            help="Seconds of the trace in a second of the test.",
            show_default="ten minutes of arrivals, the median job at least 2 s",
        ),
    ] = None,
    load: Annotated[
        float, typer.Option(metavar="X", min=0.001, max=10_000, help="Jobs come X times as densely.")
    ] = 1.0,
    max_run: Annotated[
        float | None, typer.Option(metavar="S", min=1, help="Cut jobs that ran longer, in seconds of the trace.")
    ] = None,
    trace_format: Annotated[
        str | None, typer.Option("--format", help="philly, pai, openb or plain.", show_default="by the content")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a scenario of the GPU jobs in a cluster's trace: tomorrow's scheduler on yesterday's jobs.

    Reads the job log of Philly (cluster_job_log, JSON), Alibaba's PAI traces of 2020 (the folder with pai_job_table.csv
    and pai_task_table.csv), its pod lists of 2023 (openb_pod_list_*.csv), and any CSV file with the columns submit_s,
    run_s and gpus_per_pod (and pods, where jobs have several). Jobs that cannot be replayed are left out and counted.

    Example: workbench scaletest trace sample:jobs --skip 100 --out replay
    """
    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import trace_scenario

    if trace_format is not None and trace_format not in get_args(trace_scenario.TraceFormat):
        allowed = ", ".join(trace_scenario.FORMATS)
        raise ConfigError("no such format", where="--format", found=trace_format[:40], allowed=allowed)
    job_trace = trace_scenario.read_job_trace(file, trace_format)  # type: ignore[arg-type]
    options = trace_scenario.ReplayOptions(n, skip, speed, load, max_run)
    replay = trace_scenario.write_trace_scenario(job_trace, out, options)
    commands = [["workbench", "scaletest", verb, replay.scenario, "--cluster", "local"] for verb in ("plan", "run")]
    finish_command(
        lambda: "\n".join(trace_scenario.format_replay(replay)),
        replay.to_dict,
        as_json=as_json,
        written=[replay.scenario],
        next_commands=commands,
    )


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

    An administrator runs it once per scenario; running it again changes nothing, and what other scenarios in the same
    namespaces need is kept: the larger quotas, all rights. `workbench scaletest plan SCENARIO
    --rbac` prints the same objects as YAML.

    Example: workbench scaletest setup sample:first-test --context admin@lab
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.scaletest.cluster_api.connection import Connection
    from workbench.scaletest.safety import cluster_setup, confirmation
    from workbench.scaletest.scenario import scenario_file
    from workbench.scaletest.scenario.workload_plan import draw_plan
    from workbench.scaletest.test_run.run_options import find_cluster_access

    plan = draw_plan(scenario_file.load_scenario(scenario))
    access = find_cluster_access(cluster, kubeconfig, context)
    target = access.admin or access.target

    async def set_up() -> cluster_setup.AppliedSetup:
        async with Connection(target, max_connections=4) as api:
            await confirmation.confirm_interactively(api, None, confirm)
            return await cluster_setup.set_up_cluster(api, plan, quota=quota)

    applied = asyncio.run(set_up())

    def print_applied() -> None:
        print_text("\n".join(f"applied  {name}" for name in applied.names))
        for note in applied.notes:
            print_text(f"note: {note}")
        if cluster is None:
            print_text("\n" + cluster_setup.format_next_steps(target.context), err=True)

    finish_command(
        print_applied,
        {"applied": applied.names, "notes": applied.notes, "namespaces": plan.namespaces},
        as_json=as_json,
    )
