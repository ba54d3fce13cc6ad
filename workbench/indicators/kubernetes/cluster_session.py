"""Plan a session for a cluster and make its missing rounds, from its configuration to its tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.job_manifests import (
    CONTAINER,
    ClusterOptions,
    build_label_selector,
    build_manifests,
)
from workbench.indicators.kubernetes.job_submission import (
    FOLDER,
    MANIFESTS,
    POLL_S,
    SessionWatch,
    build_session,
    delete_objects,
    load_signing_key,
    plan_session,
    read_options,
    record_end,
    submit_objects,
    write_manifests,
)
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.rounds import Judge
from workbench.indicators.measurement.session_config import SessionConfig, session_config
from workbench.indicators.measurement.session_inputs import STACKS, load_cases, solve_stacks
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import SessionOutcome
from workbench.indicators.stacks import stack_sets
from workbench.indicators.stacks.environments import refuse_large_downloads
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session
from workbench.kubernetes.client import Cluster
from workbench.runs import run_folder


def measure_on_cluster(
    folder: Path,
    config: SessionConfig,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    cluster: Cluster,
    *,
    judge: Judge | None = None,
    watcher: SessionWatcher | None = None,
    keep: bool = False,
    poll_s: float = POLL_S,
) -> Session:
    """Make all missing rounds of a planned session on a cluster, and return the session with how it ended.

    Ctrl-C deletes the objects on the cluster and keeps what was collected; a further call continues with the rounds
    that have no runs.

    `folder`, `config`, `stacks`, `cases`: The session's folder, and what it was planned with (`plan_session`).
    `keep`: Whether to leave the objects after the last round; the cluster deletes them after `ttl_s`.
    """
    judge, watcher = judge or Judge(), watcher or SessionWatcher()
    session, options, key = archive.read_session(folder), read_options(folder), load_signing_key(folder)
    # An incomplete round stays incomplete: its runs must not be paired with those of another pod.
    rounds = collect_results(folder, cases, [], key=key).absent
    if not rounds:
        return session
    objects = build_manifests(session, stacks, cases, options, key=key, rounds=rounds, processes=config.processes)
    write_manifests(folder, session, objects, options)
    watcher.report_note(f"cluster: context {cluster.context}, namespace {cluster.namespace}")
    created = submit_objects(cluster, objects)
    reason, is_kept = "interrupted", False
    try:
        reason = SessionWatch(folder, cases, cluster, judge, watcher, poll_s).wait_until_over()
        is_kept = keep and reason != "decided"
    except KeyboardInterrupt:
        pass
    finally:
        if leftovers := [] if is_kept else delete_objects(cluster, created):
            names = ", ".join(f"{leftover.kind} {leftover.name}" for leftover in leftovers)
            watcher.report_note(f"could not be deleted from the cluster: {names}")
    return record_end(folder, reason)


def plan_cluster_session(
    config: SessionConfig,
    options: ClusterOptions,
    *,
    cases: Sequence[Case] | None = None,
    out: str | Path | None = None,
    watcher: SessionWatcher | None = None,
    command: str | None = None,
) -> Path:
    """Plan a session for a cluster, write its manifests, and return its folder; nothing is installed here.

    `cases`: Cases of classes defined in a notebook; by default those that `config.indicators` names.
    """
    watcher = watcher or SessionWatcher()
    # The stacks of a session on a cluster; refuses settings that only this machine can honour.
    unfit = ("python", "specification", "network", "script", "pytest", "pyperf", "better", "reference")
    if conflicts := [f"--{name}" for name in unfit if getattr(config, name)]:
        raise ConfigError(
            "not on a cluster",
            where="--backend kubernetes",
            found=conflicts,
            allowed="--stacks FILE or --stack REQUIREMENTS; --cluster egress=… sets what pods may reach",
        )
    stacks = solve_stacks(config, watcher.report_preparation)
    if stacks is None or stacks.variations:
        raise ConfigError("a stack matrix is measured on this machine only", where="--stacks", do="leave out --backend")
    planned_cases = load_cases(config, cases)
    if config.baseline is not None:
        config = config.model_copy(update={"baseline": stacks.get_stack(config.baseline).name})
    refuse_large_downloads(stacks.stacks, config.max_download_bytes)
    # Plan once before the folder exists, so that an invalid plan leaves none behind.
    session, _ = build_session("-", config, stacks.stacks, planned_cases, options)
    build_manifests(session, stacks.stacks, planned_cases, options, key="0" * 64)
    run = run_folder.start_run(
        sessions.AREA, out, title=sessions.TITLE, config=config.model_dump(mode="json"), command=command
    )
    plan_session(run.folder, run.run_id, config, stacks.stacks, planned_cases, options)
    stacks.write(run.folder / STACKS)
    return run.folder


def resume_cluster_session(
    folder: str | Path,
    cluster: Cluster,
    *,
    cases: Sequence[Case] | None = None,
    watcher: SessionWatcher | None = None,
) -> SessionOutcome:
    """Make the rounds of a planned session that have no runs, and judge it.

    `cluster`: From `connect_cluster`, which checks that the context is confirmed.
    """
    run = run_folder.load_run(folder)
    config = session_config(**run.record["config"])
    read_options(run.folder)
    stacks = stack_sets.read_stack_set(run.folder / STACKS).stacks

    def measure(judge: Judge) -> Session:
        session_cases = load_cases(config, cases)
        return measure_on_cluster(run.folder, config, stacks, session_cases, cluster, judge=judge, watcher=watcher)

    return sessions.measure_and_judge(run, measure)


def format_instructions(folder: str | Path) -> str:
    """The commands that run a planned session and collect its results."""
    folder = Path(folder)
    options, session = read_options(folder), archive.read_session(folder)
    namespace = options.namespace
    wanted = build_label_selector(session.session_id)
    job = wanted.rpartition("=")[2]
    objects, logs = (shlex.quote(str(folder / FOLDER / name)) for name in (MANIFESTS, "pods.log"))
    return "\n".join(
        [
            f"kubectl apply -f {objects}",
            f"kubectl get -n {namespace} job/{job} --watch",
            f"# when it is complete or failed, and before it is deleted {options.ttl_s / 3600:g} h later:",
            f"kubectl logs -n {namespace} -l {wanted} -c {CONTAINER} --tail=-1 --ignore-errors > {logs}",
            f"workbench indicators collect {shlex.quote(str(folder))} {logs}",
        ]
    )
