"""Commands around Run:ai: export-upstream, import-upstream, submit, sample, simulated-runai."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.scaletest.commands import (
    BackendParameterOption,
    BackendQueryOption,
    BackendUrlOption,
    ClusterOption,
    ConfirmOption,
    ContextOption,
    KubeconfigOption,
)

if TYPE_CHECKING:
    from workbench.scaletest.test_run.run_options import ClusterAccess

_MAX_ROWS_PRINTED = 20


def export_upstream(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of a scale test.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder.", show_default="upstream in the run folder")
    ] = None,
    bug_compatible: Annotated[
        bool, typer.Option("--bug-compatible", help="times.csv with that tool's wrong headings and fallbacks.")
    ] = False,
    backend_url_env: BackendUrlOption = None,
    backend_query: BackendQueryOption = None,
    backend_parameter: BackendParameterOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write submitted.json, sampled.json and times.csv of a run, in the format of Run:ai's scale-test tool.

    Workloads that lack a required time (of a pod group, for example) are left out of sampled.json, and counted.

    Exit code 0 when all workloads are exported, 1 when some are left out.

    Example: workbench scaletest export-upstream data/runs/scaletest/RUN --out logs
    """
    from workbench.console.finish import finish_command
    from workbench.scaletest.compat_runai.backend_query import build_backend
    from workbench.scaletest.compat_runai.runai_files import export_run

    backend = build_backend(backend_url_env, backend_query, backend_parameter or [])
    result = export_run(run, out, bug_compatible=bug_compatible, backend=backend)
    view, n_kept = result.view, int(result.view.jobs["kept"].sum())
    lines = [
        f"{len(view.sent)} submitted, {view.jobs.height} sampled, {n_kept} in times.csv",
        *(f"  {missing} missing from sampled.json: no {field}" for field, missing in view.incomplete.items()),
        *(
            [f"  {view.ungrouped} have no PodGroup: the time of their first pod is used instead"]
            if view.ungrouped
            else []
        ),
        *(f"  {path}" for path in result.paths),
    ]
    document = {
        "files": result.paths,
        "submitted": len(view.sent),
        "sampled": view.jobs.height,
        "kept": n_kept,
        "incomplete": view.incomplete,
        "ungrouped": view.ungrouped,
    }
    is_complete = bool(view.sent) and view.jobs.height >= len(view.sent)
    finish_command("\n".join(lines), document, as_json=as_json, is_valid=is_complete)


def import_upstream(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Its output folder: submitted.json and sampled.json.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the new run folder.")] = None,
    workload_type: Annotated[
        str | None,
        typer.Option(
            "--workload-type",
            "-t",
            help="What was submitted: training, distributed or interactive. The files do not contain it.",
        ),
    ] = None,
    num_gpus: Annotated[float, typer.Option("--num-gpus", "-g", help="GPUs of each pod, with --workload-type.")] = 1.0,
    num_workers: Annotated[int, typer.Option(help="Workers of each distributed workload.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Read submitted.json and sampled.json of Run:ai's scale-test tool into a run folder.

    The table upstream_deltas holds its chain of deltas twice: as that tool prints them, and as they are. Rows that are
    left out are listed. Times of the cluster are whole seconds in these files.

    Exit code 0 when every submitted workload was sampled, 1 when some were not.

    Example: workbench scaletest import-upstream logs -t training
    """
    from workbench.console.finish import finish_command
    from workbench.scaletest.compat_runai.run_import import SubmissionDetails, import_folder

    details = None if workload_type is None else SubmissionDetails(workload_type, num_gpus, num_workers)
    result = import_folder(folder, out=out, details=details)
    run = result.run
    document = {
        "folder": run.folder,
        "submitted": result.submitted,
        "sampled": result.sampled,
        "kept": result.kept,
        "verdict": run.verdict,
        "odd": [{"file": row.file, "row": row.row, "left_out": row.left_out, "why": row.why} for row in result.odd],
        "reasons": run.record["reasons"],
    }
    lines = [f"{run.answer}", f"  {run.verdict}: {run.record['reasons'][0]}"]
    for row in result.odd[:_MAX_ROWS_PRINTED]:
        lines.append(f"  {row.file}, row {row.row} ({row.name or 'no name'}): {row.why}")
    if len(result.odd) > _MAX_ROWS_PRINTED:
        lines.append(f"  … and {len(result.odd) - _MAX_ROWS_PRINTED} more: table upstream_odd")
    lines.append(f"  run folder: {run.folder}")
    finish_command("\n".join(lines), document, as_json=as_json, is_valid=run.verdict == "valid")


@take_options_from(
    "workbench.scaletest.compat_runai.runai_submission:SubmitFlags",
    options={
        "workload_type": FieldOption(flags=("--workload-type", "-t")),
        "num_workloads": FieldOption(flags=("--num-workloads", "-n")),
        "num_processes": FieldOption(flags=("--num-processes", "-p")),
        "num_gpus": FieldOption(flags=("--num-gpus", "-g")),
        "delay": FieldOption(metavar="S"),
        "template": FieldOption(metavar="FILE"),
    },
    groups={
        "Workloads": "workload_type num_workloads num_gpus num_workers project pvc template",
        "Pace": "num_processes delay closed max_rate",
        "Cluster": "scheduler allow_real_nodes submit_with kubectl command cluster context kubeconfig confirm",
    },
    defaults="model",
)
def submit(
    settings: OptionValues,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Folder of submitted.json and our journal.")
    ] = Path("logs"),
    closed: Annotated[
        bool,
        typer.Option(
            "--closed", help="Each burst waits for the one before it, then for the delay: that tool's timing."
        ),
    ] = False,
    submit_with: Annotated[str, typer.Option(help="api, kubectl (one process per workload), or command.")] = "api",
    kubectl: Annotated[Path | None, typer.Option(metavar="FILE", help="kubectl.", show_default="on PATH")] = None,
    command: Annotated[
        str | None,
        typer.Option(help="With --submit-with command: words with {name}, {namespace}, {gpus}, {file}. No shell."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the submission in the folder, with its own flags.")
    ] = False,
    cluster: ClusterOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    confirm: ConfirmOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit Run:ai workloads by the flags of its scale-test tool: exactly -n workloads, in bursts of -p.

    Open loop: each burst is due --delay seconds after the previous one. Every workload is journaled before it is sent,
    so --resume continues after a kill; submitted.json is updated meanwhile.

    On a local cluster the namespace and the rights are created too, and simulated-runai makes jobs and pods. On other
    clusters an administrator does this, with the label workbench.local/allow=true.

    Exit code 0 when all workloads were accepted, 1 when some were not.

    Example: workbench scaletest submit --cluster local -t training -n 100 -p 8 --delay 1 -o logs
    """
    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.scaletest.compat_runai import runai_submission
    from workbench.scaletest.compat_runai.runai_submission import SubmitFlags
    from workbench.scaletest.submission.object_creation import parse_command
    from workbench.scaletest.test_run.run_lifecycle import RunContext

    flags = settings.build_model(SubmitFlags)
    if not resume:
        # Refuses flags that cannot be, before any cluster is looked for.
        runai_submission.build_scenario(flags)
    words = tuple(parse_command(command or "", "--command"))
    options = runai_submission.build_run_options(submit_with, kubectl, words, closed=closed)
    run_context = RunContext(_find_access(cluster, context, kubeconfig), options, confirm)
    result = runai_submission.run_submission(
        run_context, flags, output_dir, resume=resume, tell=lambda line: print_text(line, err=True)
    )
    is_complete = result.sent == result.outcome.planned
    finish_command(result.format_text, result.to_dict, as_json=as_json, is_valid=is_complete)


def _find_access(cluster: str | None, context: str | None, kubeconfig: Path | None) -> ClusterAccess:
    """The cluster; without options the only context of the usual kubeconfig."""
    from workbench.kubernetes.client import load_target
    from workbench.scaletest.test_run.run_options import ClusterAccess, find_cluster_access

    if cluster is None:
        return ClusterAccess(kubeconfig, load_target(kubeconfig, context).context)
    return find_cluster_access(cluster, kubeconfig, context)


def sample(
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Folder of the submission and of sampled.json.")
    ] = Path("logs"),
    workload_type: Annotated[
        str, typer.Option("--workload-type", "-t", help="training, distributed or interactive.")
    ] = "training",
    project: Annotated[str, typer.Option("--project", "-p", help="Project; its namespace is runai-PROJECT.")] = (
        "project-0"
    ),
    follow: Annotated[
        float | None, typer.Option(metavar="S", help="Sample again every S seconds until all workloads are complete.")
    ] = None,
    for_: Annotated[float, typer.Option("--for", metavar="S", help="Follow for at most S seconds.")] = 3600.0,
    no_events: Annotated[bool, typer.Option("--no-events", help="Skip evictions and volumes.")] = False,
    backend_url_env: BackendUrlOption = None,
    backend_query: BackendQueryOption = None,
    backend_parameter: BackendParameterOption = None,
    cluster: ClusterOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List the state of a project's workloads and write sampled.json, with the cluster's times in whole seconds.

    It can run repeatedly while a submission is in progress; --follow repeats it and prints the progress. For
    milliseconds use `workbench scaletest run`, which watches.

    Exit code 0 when all submitted workloads are complete, 1 when some are not (yet).

    Example: workbench scaletest sample --cluster local -t training -o logs --follow 5
    """
    import asyncio

    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.scaletest.compat_runai import runai_sampler, runai_submission
    from workbench.scaletest.compat_runai.backend_query import build_backend

    runai_submission.check_workload(workload_type, project, "1", 1)
    backend = build_backend(backend_url_env, backend_query, backend_parameter or [])
    target = _find_access(cluster, context, kubeconfig).target
    options = runai_sampler.SampleOptions(
        output_dir, workload_type, f"runai-{project}", events=not no_events, backend=backend
    )
    result = asyncio.run(
        runai_sampler.follow_workloads(
            target, options, every_s=follow, for_s=for_, tell=lambda line: print_text(line, err=True)
        )
    )
    finish_command(result.format_text, result.to_dict, as_json=as_json, is_valid=result.is_complete)


def simulated_runai(
    cluster: ClusterOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="schedulerName of the pods.", show_default="KAI's if it is installed, else the default one"),
    ] = None,
) -> None:
    """Simulate Run:ai's operator until Ctrl-C: make jobs, pods, pod groups and volumes of its workloads.

    For local clusters only. Installs the kinds TrainingWorkload, InteractiveWorkload, DistributedWorkload
    (run.ai/v2alpha1), RunaiJob (run.ai/v1), PyTorchJob (kubeflow.org/v1), PodGroup (scheduling.run.ai/v1) with open
    schemas, and a storage class. Pods run on simulated nodes only. Its speed says nothing about Run:ai; the API server,
    the garbage collector and the scheduler are real.

    Where KAI is installed, PodGroup is KAI's own (another version) and KAI makes the pod groups; the sampler.py of
    Run:ai's tool, which reads version v1, does not work there.

    Example: workbench scaletest simulated-runai --cluster local
    """
    import asyncio

    from workbench.console.terminal import print_text
    from workbench.kubernetes.client import load_target
    from workbench.scaletest.local_cluster.cluster_lifecycle import find_cluster
    from workbench.scaletest.simulated_runai import NAME, controller

    if cluster is not None:
        local = find_cluster(cluster)
        kubeconfig, context = local.kubeconfig, local.context
    target = load_target(kubeconfig, context)
    asyncio.run(
        controller.run_in_foreground(
            target, scheduler=scheduler, tell=lambda: print_text(f"{NAME} is running, context {target.context}")
        )
    )
