"""A session on a cluster from its configuration to its tables, as `running.starting` is for this machine.

`plan` alone leaves manifests for people to apply; `start` goes on to the verdicts; `resume` makes what is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from workbench import runs
from workbench.errors import ConfigError, WorkbenchError
from workbench.indicators import archive, effects
from workbench.indicators.config import SessionConfig, session_config
from workbench.indicators.contract import Case
from workbench.indicators.kubernetes.backend import measure_on_cluster
from workbench.indicators.kubernetes.cluster import Cluster
from workbench.indicators.kubernetes.manifests import CONTAINER, manifests, selector
from workbench.indicators.kubernetes.options import ClusterOptions
from workbench.indicators.kubernetes.planning import FOLDER, MANIFESTS, plan_session, read_options, session_of
from workbench.indicators.observations import observed
from workbench.indicators.running import starting
from workbench.indicators.running.alone import alone_in
from workbench.indicators.running.parts import STACKS
from workbench.indicators.running.progress import Silent, Watcher
from workbench.indicators.running.session import Judge
from workbench.indicators.running.solving import solved
from workbench.indicators.stacks import model
from workbench.indicators.stacks.environments import refuse_large


def plan(
    config: SessionConfig,
    options: ClusterOptions,
    *,
    cases: Sequence[Case] | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Path:
    """Plan a session for a cluster and write its manifests; nothing is installed here. Its folder is returned.

    Parameters
    ----------
    config
        What is asked for: `stacks` or `stack`, and indicators; the rest as for this machine.
    options
        What the cluster is asked for.
    cases
        Cases of classes at hand; those that `config.indicators` names without.
    out
        Folder below which the session gets its own.
    watcher
        Told how far solving is.
    command
        The command line, for run.json.

    Raises
    ------
    ConfigError
        Something that pods cannot do: environments of this machine, a specification, other platforms than Linux.
    """
    watcher = watcher or Silent()
    stacks = _stacks(config, watcher)
    given = _cases(config, cases)
    if config.baseline is not None:
        config = config.model_copy(update={"baseline": stacks.stack(config.baseline).name})
    refuse_large(stacks.stacks, config.max_download_bytes)
    # Once before there is a folder: what cannot be leaves none behind.
    session, _ = session_of("-", config, stacks.stacks, given, options)
    manifests(session, stacks.stacks, given, options, key="0" * 64)
    run = runs.start(starting.AREA, out, title=starting.TITLE, config=config.model_dump(mode="json"), command=command)
    plan_session(run.folder, run.run_id, config, stacks.stacks, given, options)
    stacks.write(run.folder / STACKS)
    return run.folder


def start(
    config: SessionConfig,
    options: ClusterOptions,
    cluster: Cluster,
    *,
    cases: Sequence[Case] | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
    keep: bool = False,
) -> starting.Outcome:
    """Plan a session, make all its rounds on a cluster, and judge it.

    Parameters
    ----------
    config, options, cases, out, watcher, command
        As of `plan`.
    cluster
        From `cluster.connect`, which asks for a confirmation where it must.
    keep
        Leave the objects on the cluster when all rounds were tried.

    Raises
    ------
    WorkbenchError
        As of `plan` and `measure_on_cluster`.
    """
    folder = plan(config, options, cases=cases, out=out, watcher=watcher, command=command)
    return resume(folder, cluster, cases=cases, watcher=watcher, keep=keep)


def resume(
    folder: str | Path,
    cluster: Cluster,
    *,
    cases: Sequence[Case] | None = None,
    watcher: Watcher | None = None,
    keep: bool = False,
) -> starting.Outcome:
    """Make the rounds of a planned session of which nothing is there, and judge it.

    Raises
    ------
    InputError
        There is no session of a cluster in the folder.
    ConfigError
        Another process measures it.
    WorkbenchError
        As of `measure_on_cluster`.
    """
    run = runs.load(folder)
    with alone_in(run.folder):
        return _measured(run, cluster, cases, watcher, keep)


def _measured(
    run: runs.Run, cluster: Cluster, cases: Sequence[Case] | None, watcher: Watcher | None, keep: bool
) -> starting.Outcome:
    config = session_config(**run.record["config"])
    read_options(run.folder)
    stacks = model.read(run.folder / STACKS)
    judge = Judge(starting.decided, starting.verdicts)
    try:
        session = measure_on_cluster(
            run.folder,
            config,
            stacks.stacks,
            _cases(config, cases),
            cluster,
            judge=judge,
            watcher=watcher,
            keep=keep,
        )
    except WorkbenchError as error:
        run.end("failed", {"error": str(error)})
        raise
    except BaseException:
        run.end("cancelled")
        raise
    outcome = starting.Outcome(run.folder, session, effects.compared(observed(run.folder)))
    starting.keep_outcome(run, outcome)
    return outcome


def instructions(folder: str | Path) -> str:
    """The commands by which a person runs a planned session, and brings its results here."""
    folder = Path(folder)
    options, session = read_options(folder), archive.read_session(folder)
    namespace = options.namespace
    wanted = selector(session.session_id)
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


def _stacks(config: SessionConfig, watcher: Watcher) -> model.StackSet:
    unfit = {"--python": config.python, "--specification": config.specification, "--network": config.network}
    if found := [name for name, value in unfit.items() if value]:
        raise ConfigError(
            "not on a cluster",
            where="--backend kubernetes",
            found=found,
            allowed="--stacks FILE or --stack REQUIREMENTS; what pods may reach is --egress",
        )
    if bool(config.stacks) == bool(config.stack):
        raise ConfigError("not one kind of stacks", allowed="--stacks FILE, or --stack REQUIREMENTS (several)")
    if config.stacks:
        return model.read(config.stacks)

    def progress(done: int, planned: int) -> None:
        watcher.preparing("solved", done, planned)

    return solved(config.stack, config.max_download_bytes, progress)


def _cases(config: SessionConfig, cases: Sequence[Case] | None) -> list[Case]:
    from workbench.indicators.shipped.registry import case_of

    given = list(cases) if cases is not None else [case_of(text) for text in config.indicators]
    if not given:
        raise ConfigError("nothing to measure", where="--indicator", do="give one, such as --indicator sort")
    return given
