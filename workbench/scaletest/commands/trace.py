"""`workbench scaletest trace`: a scenario from the jobs of a cluster's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from workbench.console.finish import JsonFlag


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

    Example: workbench scaletest trace openb_pod_list_default.csv --skip 1000 --out replay
    """
    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import job_traces, trace_scenario

    if trace_format is not None and trace_format not in get_args(job_traces.TraceFormat):
        allowed = ", ".join(job_traces.FORMATS)
        raise ConfigError("no such format", where="--format", found=trace_format[:40], allowed=allowed)
    job_trace = job_traces.read_job_trace(file, trace_format)  # type: ignore[arg-type]
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
