"""`run --backend kubernetes` in one call: planned, submitted, waited for, collected, tidied up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.indicators import archive
from workbench.indicators.archive import Session
from workbench.indicators.config import SessionConfig
from workbench.indicators.contract import Case
from workbench.indicators.kubernetes.cluster import Cluster
from workbench.indicators.kubernetes.collecting import collect
from workbench.indicators.kubernetes.manifests import manifests
from workbench.indicators.kubernetes.planning import key_of, read_options, write_manifests
from workbench.indicators.kubernetes.submitting import POLL_S, Waiting, ended, submit, withdraw
from workbench.indicators.running.progress import Silent, Watcher
from workbench.indicators.running.session import Judge
from workbench.indicators.stacks.model import Stack


def measure_on_cluster(
    folder: Path,
    config: SessionConfig,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    cluster: Cluster,
    *,
    judge: Judge | None = None,
    watcher: Watcher | None = None,
    keep: bool = False,
    poll_s: float = POLL_S,
) -> Session:
    """Make all rounds of a planned session that are not there yet on a cluster; the session as it stands at the end.

    Ctrl-C deletes what was made on the cluster, and keeps what was collected; asked again, it goes on with the rounds
    of which nothing is there.

    Parameters
    ----------
    folder
        The session's folder, as `planning.plan_session` left it.
    config
        As it was planned with.
    stacks, cases
        What is measured.
    cluster
        From `cluster.connect`.
    judge, watcher
        As of `running.session.measure`; asked when as many rounds are there as a look has.
    keep
        Leave the objects on the cluster when all rounds were tried; the cluster deletes them itself, after `ttl_s`.
    poll_s
        Time between two looks at the cluster, in seconds.

    Raises
    ------
    ConfigError
        The cluster refuses it, or the session is there already.
    RunFailedError
        Pods cannot be started, or the cluster went away. What was made is deleted.
    """
    judge, watcher = judge or Judge(), watcher or Silent()
    session, options, key = archive.read_session(folder), read_options(folder), key_of(folder)
    # A round that is there in part stays so: its runs and those of another pod must not become pairs.
    rounds = collect(folder, cases, [], key=key).absent
    if not rounds:
        return session
    made = manifests(session, stacks, cases, options, key=key, rounds=rounds, processes=config.processes)
    write_manifests(folder, session, made, options)
    watcher.noted(f"cluster: context {cluster.context}, namespace {cluster.namespace}")
    created = submit(cluster, made)
    reason = "interrupted"
    try:
        waiting = Waiting(folder, cases, cluster, judge, watcher, poll_s)
        reason = waiting.until_over()
        keep = keep and reason != "decided"
    except KeyboardInterrupt:
        keep = False
    except BaseException:
        keep = False
        raise
    finally:
        left = [] if keep else withdraw(cluster, created)
        if left:
            names = ", ".join(f"{one.kind} {one.name}" for one in left)
            watcher.noted(f"still on the cluster, could not be deleted: {names}")
    return ended(folder, reason)
