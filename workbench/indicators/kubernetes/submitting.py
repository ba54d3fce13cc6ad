"""A session submitted to a cluster and waited for: each round is collected as it ends."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from workbench.errors import ConfigError, RunFailedError, WorkbenchError
from workbench.indicators import archive
from workbench.indicators.archive import Session
from workbench.indicators.contract import Case
from workbench.indicators.kubernetes import conditions
from workbench.indicators.kubernetes.cluster import AwayError, Cluster, Created, GoneError, TakenError
from workbench.indicators.kubernetes.collecting import Collected, collect
from workbench.indicators.kubernetes.manifests import Object, object_name, rounds_of, selector
from workbench.indicators.kubernetes.planning import key_of
from workbench.indicators.running.progress import Silent, Watcher
from workbench.indicators.running.schedule import most_rounds, order
from workbench.indicators.running.session import Judge

POLL_S = 2.0
MOST_FAILURES = 15
"""Polls that may fail one after the other: a control plane may be away for half a minute."""
ACCELERATOR_LABELS = {
    "nvidia.com/gpu.product": "",
    "amd.com/gpu.product-name": "",
    "cloud.google.com/gke-accelerator": "",
}


def submit(cluster: Cluster, objects: Sequence[Object]) -> list[Created]:
    """Have the server check all objects, then make them; the Job begins when everything is there.

    The Job is made first, suspended, and owns the others: so the cluster deletes them with it.

    Raises
    ------
    ConfigError
        The server refuses one, or the session is there already. Nothing is left then that was made here.
    RunFailedError
        The cluster failed.
    """
    job = copy.deepcopy(next(one for one in objects if one["kind"] == "Job"))
    others = [copy.deepcopy(one) for one in objects if one["kind"] != "Job"]
    job["spec"]["suspend"] = True
    try:
        for one in (*others, job):
            cluster.create(one, dry_run=True)
    except TakenError as error:
        raise _submitted_already(cluster, job) from error
    made: list[Created] = []
    try:
        made.append(cluster.create(job))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": made[0].name, "uid": made[0].uid}
        for one in others:
            one["metadata"]["ownerReferences"] = [owner]
            made.append(cluster.create(one))
        cluster.resume(made[0])
    except BaseException:
        withdraw(cluster, made)
        raise
    return made


def withdraw(cluster: Cluster, made: Sequence[Created]) -> list[Created]:
    """Delete what was made here, by name and uid; those that could not be deleted."""
    left = []
    for one in made:
        try:
            cluster.delete(one)
        except WorkbenchError:
            left.append(one)
    return left


def _submitted_already(cluster: Cluster, job: Object) -> ConfigError:
    name = job["metadata"]["name"]
    return ConfigError(
        "this session is on the cluster already",
        where=f"context {cluster.context}, namespace {cluster.namespace}, Job {name}",
        do="collect it: workbench indicators collect, with the session's folder; or delete the Job first",
    )


@dataclass
class Waiting:
    """A session on the cluster, followed until it ends.

    Attributes
    ----------
    folder, cases
        The session's folder, and its cases with their classes.
    cluster
        Where it is.
    judge, watcher
        As of a session of this machine.
    poll_s
        Time between two looks at the cluster, in seconds.
    """

    folder: Path
    cases: Sequence[Case]
    cluster: Cluster
    judge: Judge = field(default_factory=Judge)
    watcher: Watcher = field(default_factory=Silent)
    poll_s: float = POLL_S
    sleep: Callable[[float], None] = time.sleep
    _over: set[str] = field(default_factory=set)
    _whys: dict[int, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _failures: int = 0
    _measured: bool = False

    def __post_init__(self) -> None:
        """Read what is planned."""
        self.session = archive.read_session(self.folder)
        self.key = key_of(self.folder)

    def until_over(self) -> str:
        """Collect each round as it ends; why there is nothing more to wait for.

        Raises
        ------
        RunFailedError
            The Job is gone, its pods cannot be started, or the cluster was away for too long.
        """
        slots = order(self.session)
        there = collect(self.folder, self.cases, [], key=self.key).present
        self.watcher.started(there, len(slots))
        while True:
            reason = self._looked()
            if reason is not None:
                return reason
            self.sleep(self.poll_s)

    def _looked(self) -> str | None:
        try:
            # The Job before its pods: what it says of its end is then true of all of them.
            job = self.cluster.job(object_name(self.session.session_id))
            pods = self.cluster.pods(selector(self.session.session_id))
            decided = self._seen(pods)
        except GoneError:
            raise RunFailedError("the Job is not on the cluster any more", do="run the session again") from None
        except AwayError:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise
            return None
        self._failures = 0
        return "decided" if decided else _ended(job)

    def _seen(self, pods: Sequence[Object]) -> bool:
        """Tell what is wrong with pods, collect those that are over; whether everything is decided now."""
        for pod in sorted(pods, key=lambda one: conditions.index_of(one) or 0):
            self._waits(pod)
            if conditions.is_over(pod) and conditions.name_of(pod) not in self._over and self._collected(pod):
                return True
        return False

    def _waits(self, pod: Object) -> None:
        found = conditions.why_waiting(pod)
        if found is None:
            return
        text, fatal = found
        # Once a round has been measured, it can only be a passing trouble.
        if fatal and not self._measured:
            raise RunFailedError("a pod cannot be started", where=conditions.name_of(pod), found=text)
        if text not in self._told:
            self._told.add(text)
            self.watcher.noted(f"waiting: {text}")

    def _collected(self, pod: Object) -> bool:
        """Bring a pod's round into the archive; whether everything is decided now."""
        number = round_of(pod)
        if number is not None and (why := conditions.why_failed(pod)):
            self._whys[number] = why
            if conditions.installing_failed(pod) and not self._measured:
                # It would fail in every round the same.
                raise RunFailedError("the pods cannot be prepared", where=conditions.name_of(pod), found=why)
        found = collected_from(self.folder, self.cases, self.cluster, [pod], key=self.key, whys=self._whys)
        self._over.add(conditions.name_of(pod))
        self._measured = self._measured or bool(found.new)
        for slot, status in found.new:
            self.watcher.ran(slot.arm, slot.case, status)
        if number is None or not found.new:
            return False
        done = most_rounds(self.session) - len(found.absent)
        look = done in self.session.looks
        verdicts = self.judge.verdicts(self.folder) if self.judge.verdicts and look else None
        self.watcher.round_ended(done, most_rounds(self.session), verdicts)
        return look and self.judge.decided(self.folder)


def over(pods: Sequence[Object]) -> list[Object]:
    """Those pods that have ended, for good or bad."""
    return [pod for pod in pods if conditions.is_over(pod)]


def round_of(pod: Object) -> int | None:
    """The round that a pod makes; null when it does not say."""
    index, rounds = conditions.index_of(pod), rounds_of(pod)
    return rounds[index] if index is not None and index < len(rounds) else None


def collected_from(
    folder: Path,
    cases: Sequence[Case],
    cluster: Cluster,
    pods: Sequence[Object],
    *,
    key: str,
    whys: dict[int, str] | None = None,
) -> Collected:
    """Bring what these pods told into the archive; pods that did not measure tell nothing."""
    told = dict(whys or {})
    products: list[str] = []
    logs = []
    for pod in pods:
        number, why = round_of(pod), conditions.why_failed(pod)
        if number is not None and why is not None:
            told.setdefault(number, why)
        if conditions.has_measured(pod):
            logs.append(cluster.log(conditions.name_of(pod)))
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            products = products or (cluster.accelerators(node, ACCELERATOR_LABELS) if node else [])
    with contextlib.suppress(GoneError):
        return collect(folder, cases, logs, key=key, whys=told, products=products)
    return collect(folder, cases, [], key=key, whys=told)


def _ended(job: Object) -> str | None:
    """Why a Job is over; null while it is not."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return "all rounds"
        if condition.get("type") == "Failed":
            reason = str(condition.get("reason") or "failed")
            words = {
                "DeadlineExceeded": "the Job took longer than its time limit",
                "FailedIndexes": "all rounds were tried, not all ended well",
            }
            return words.get(reason, f"the Job failed: {reason}")[:200]
    return None


def ended(folder: Path, reason: str) -> Session:
    """Write into a session that it is over, and why."""
    session = archive.read_session(folder)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    session = session.model_copy(update={"ended_at": now, "stop_reason": reason})
    archive.write_session(folder, session)
    return session
