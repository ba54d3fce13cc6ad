"""Submit a session to a cluster, watch its pods, and collect each round as it ends."""

from __future__ import annotations

import contextlib
import copy
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core import redaction
from workbench.core.errors import ConfigError, RunFailedError, WorkbenchError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.cluster_client import (
    Cluster,
    ClusterUnreachableError,
    CreatedObject,
    ObjectExistsError,
    ObjectNotFoundError,
)
from workbench.indicators.kubernetes.cluster_plan import load_signing_key
from workbench.indicators.kubernetes.job_manifests import (
    CONTAINER,
    INSTALLER,
    Object,
    build_label_selector,
    build_object_name,
    list_pod_rounds,
)
from workbench.indicators.kubernetes.result_collection import Collection, collect_results
from workbench.indicators.measurement.rounds import Judge
from workbench.indicators.measurement.session_plan import count_max_rounds, order_runs
from workbench.indicators.measurement.session_progress import SessionWatcher, SilentWatcher
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session

Pod = dict[str, Any]
MAX_TEXT = 400
_FATAL = {
    "InvalidImageName": "the image's name is not valid",
    "ErrImageNeverPull": "the image is not on the node, and may not be pulled",
    "ImagePullBackOff": "the image cannot be pulled",
    "CreateContainerConfigError": "the container cannot be made: a Secret or ConfigMap is missing",
    "CreateContainerError": "the container cannot be made",
    "RunContainerError": "the container cannot be started",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was tainted",
    "EvictionByEvictionAPI": "it was evicted, such as by draining its node",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node shut down or ran short of something",
}
_REASONS = {
    "Evicted": "evicted, because the node ran short of something",
    "DeadlineExceeded": "it took longer than its time limit",
    "NodeLost": "its node is gone",
    "UnexpectedAdmissionError": "its node refused it",
}
_OUT_OF = re.compile(r"OutOf(\w+)")


def read_pod_name(pod: Pod) -> str:
    """The pod's name."""
    return str(pod.get("metadata", {}).get("name", ""))


def read_pod_index(pod: Pod) -> int | None:
    """The index that the pod stands for; null when it has none."""
    metadata = pod.get("metadata", {})
    for place in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        text = str(place.get("batch.kubernetes.io/job-completion-index", ""))
        if text.isdigit():
            return int(text)
    return None


def is_over(pod: Pod) -> bool:
    """It has ended, for good or bad."""
    return _get_status(pod).get("phase") in ("Succeeded", "Failed")


def has_started_measuring(pod: Pod) -> bool:
    """Its measuring container was started, so that there is a log."""
    state = _get_container_state(pod, CONTAINER)
    return "terminated" in state or "running" in state


def has_install_failure(pod: Pod) -> bool:
    """The stacks could not be installed in it."""
    ended = _get_container_state(pod, INSTALLER).get("terminated") or {}
    return bool(ended.get("exitCode"))


def find_failure_reason(pod: Pod) -> str | None:
    """Why a pod that is over did not end well; null when it did, or is not over."""
    status = _get_status(pod)
    if status.get("phase") != "Failed":
        return None
    return _redact_text(pod, next(_iterate_causes(pod), "the pod failed, and the cluster does not say why"))


def find_waiting_reason(pod: Pod) -> tuple[str, bool] | None:
    """Why a pod does not run yet, and whether waiting cannot help; null when nothing is wrong."""
    for name in (INSTALLER, CONTAINER):
        waiting = _get_container_state(pod, name).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        if reason in _FATAL:
            return _redact_text(pod, _append_detail(_FATAL[reason], waiting.get("message"))), True
        if reason == "ErrImagePull":
            return _redact_text(
                pod, _append_detail("the image could not be pulled, it is tried again", waiting.get("message"))
            ), False
    for condition in _get_status(pod).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _redact_text(pod, _append_detail("no node takes it", condition.get("message"))), False
    return None


def _iterate_causes(pod: Pod) -> Iterator[str]:
    """The most telling first."""
    status = _get_status(pod)
    installer = _get_container_state(pod, INSTALLER).get("terminated") or {}
    measurer = _get_container_state(pod, CONTAINER).get("terminated") or {}
    if measurer.get("reason") == "OOMKilled":
        yield "it was killed for memory: its runs together reached the pod's limit"
    if installer.get("reason") == "OOMKilled":
        yield "it was killed for memory while the stacks were installed"
    reason = str(status.get("reason") or "")
    if reason in _REASONS:
        yield _append_detail(_REASONS[reason], status.get("message"))
    if found := _OUT_OF.fullmatch(reason):
        yield f"its node has not enough {found[1]} left"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            cause = str(condition.get("reason", ""))
            yield _append_detail(_DISRUPTIONS.get(cause, f"it was disrupted ({cause})"), condition.get("message"))
    if installer.get("exitCode"):
        yield _append_detail("the stacks could not be installed", _last_line(installer.get("message")))
    if code := measurer.get("exitCode"):
        yield "the runner was killed" if code == 137 else f"the runner ended with exit code {code}"
    if reason:
        yield _append_detail(reason, status.get("message"))


def _get_status(pod: Pod) -> dict[str, Any]:
    return pod.get("status") or {}


def _get_container_state(pod: Pod, container: str) -> dict[str, Any]:
    status = _get_status(pod)
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if one.get("name") == container:
            return one.get("state") or {}
    return {}


def _last_line(message: Any) -> str:
    lines = [line for line in str(message or "").splitlines() if line.strip()]
    return lines[-1].removeprefix("workbench: ") if lines else ""


def _append_detail(text: str, more: Any) -> str:
    told = " ".join(str(more or "").split())
    return f"{text}: {told}" if told else text


def _redact_text(pod: Pod, text: str) -> str:
    """Without the node's name, without secrets, and short."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    if node:
        text = text.replace(node, "(node)")
    cleaned: str = redaction.redact_value(redaction.strip_user_info(text))
    return cleaned if len(cleaned) <= MAX_TEXT else cleaned[: MAX_TEXT - 1] + "…"


POLL_S = 2.0
MAX_FAILURES = 15
"""Polls that may fail one after the other: a control plane may be away for half a minute."""
ACCELERATOR_LABELS = {
    "nvidia.com/gpu.product": "",
    "amd.com/gpu.product-name": "",
    "cloud.google.com/gke-accelerator": "",
}


def submit_objects(cluster: Cluster, objects: Sequence[Object]) -> list[CreatedObject]:
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
            cluster.create_object(one, dry_run=True)
    except ObjectExistsError as error:
        raise _explain_existing_job(cluster, job) from error
    made: list[CreatedObject] = []
    try:
        made.append(cluster.create_object(job))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": made[0].name, "uid": made[0].uid}
        for one in others:
            one["metadata"]["ownerReferences"] = [owner]
            made.append(cluster.create_object(one))
        cluster.resume_job(made[0])
    except BaseException:
        delete_objects(cluster, made)
        raise
    return made


def delete_objects(cluster: Cluster, created_objects: Sequence[CreatedObject]) -> list[CreatedObject]:
    """Delete what was made here, by name and uid; those that could not be deleted."""
    left = []
    for one in created_objects:
        try:
            cluster.delete_object(one)
        except WorkbenchError:
            left.append(one)
    return left


def _explain_existing_job(cluster: Cluster, job: Object) -> ConfigError:
    name = job["metadata"]["name"]
    return ConfigError(
        "this session is on the cluster already",
        where=f"context {cluster.context}, namespace {cluster.namespace}, Job {name}",
        do="collect it: workbench indicators collect, with the session's folder; or delete the Job first",
    )


@dataclass
class SessionWatch:
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
    watcher: SessionWatcher = field(default_factory=SilentWatcher)
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
        self.key = load_signing_key(self.folder)

    def wait_until_over(self) -> str:
        """Collect each round as it ends; why there is nothing more to wait for.

        Raises
        ------
        RunFailedError
            The Job is gone, its pods cannot be started, or the cluster was away for too long.
        """
        slots = order_runs(self.session)
        there = collect_results(self.folder, self.cases, [], key=self.key).present
        self.watcher.report_start(there, len(slots))
        while True:
            reason = self._check_once()
            if reason is not None:
                return reason
            self.sleep(self.poll_s)

    def _check_once(self) -> str | None:
        try:
            # The Job before its pods: what it says of its end is then true of all of them.
            job = self.cluster.get_job(build_object_name(self.session.session_id))
            pods = self.cluster.list_pods(build_label_selector(self.session.session_id))
            decided = self._handle_pods(pods)
        except ObjectNotFoundError:
            raise RunFailedError("the Job is not on the cluster any more", do="run the session again") from None
        except ClusterUnreachableError:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                raise
            return None
        self._failures = 0
        return "decided" if decided else _find_job_end(job)

    def _handle_pods(self, pods: Sequence[Object]) -> bool:
        """Tell what is wrong with pods, collect those that are over; whether everything is decided now."""
        for pod in sorted(pods, key=lambda one: read_pod_index(one) or 0):
            self._note_waiting_pod(pod)
            if is_over(pod) and read_pod_name(pod) not in self._over and self._collect_pod(pod):
                return True
        return False

    def _note_waiting_pod(self, pod: Object) -> None:
        found = find_waiting_reason(pod)
        if found is None:
            return
        text, fatal = found
        # Once a round has been measured, it can only be a passing trouble.
        if fatal and not self._measured:
            raise RunFailedError("a pod cannot be started", where=read_pod_name(pod), found=text)
        if text not in self._told:
            self._told.add(text)
            self.watcher.report_note(f"waiting: {text}")

    def _collect_pod(self, pod: Object) -> bool:
        """Bring a pod's round into the archive; whether everything is decided now."""
        number = find_pod_round(pod)
        if number is not None and (why := find_failure_reason(pod)):
            self._whys[number] = why
            if has_install_failure(pod) and not self._measured:
                # It would fail in every round the same.
                raise RunFailedError("the pods cannot be prepared", where=read_pod_name(pod), found=why)
        found = collect_from_pods(self.folder, self.cases, self.cluster, [pod], key=self.key, whys=self._whys)
        self._over.add(read_pod_name(pod))
        self._measured = self._measured or bool(found.new)
        for slot, status in found.new:
            self.watcher.report_run(slot.arm, slot.case, status)
        if number is None or not found.new:
            return False
        done = count_max_rounds(self.session) - len(found.absent)
        look = done in self.session.looks
        verdicts = self.judge.verdicts(self.folder) if self.judge.verdicts and look else None
        self.watcher.report_round(done, count_max_rounds(self.session), verdicts)
        return look and self.judge.decided(self.folder)


def list_finished_pods(pods: Sequence[Object]) -> list[Object]:
    """Those pods that have ended, for good or bad."""
    return [pod for pod in pods if is_over(pod)]


def find_pod_round(pod: Object) -> int | None:
    """The round that a pod makes; null when it does not say."""
    index, rounds = read_pod_index(pod), list_pod_rounds(pod)
    return rounds[index] if index is not None and index < len(rounds) else None


def collect_from_pods(
    folder: Path,
    cases: Sequence[Case],
    cluster: Cluster,
    pods: Sequence[Object],
    *,
    key: str,
    whys: dict[int, str] | None = None,
) -> Collection:
    """Bring what these pods told into the archive; pods that did not measure tell nothing."""
    told = dict(whys or {})
    products: list[str] = []
    logs = []
    for pod in pods:
        number, why = find_pod_round(pod), find_failure_reason(pod)
        if number is not None and why is not None:
            told.setdefault(number, why)
        if has_started_measuring(pod):
            logs.append(cluster.read_log(read_pod_name(pod)))
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            products = products or (cluster.list_accelerators(node, ACCELERATOR_LABELS) if node else [])
    with contextlib.suppress(ObjectNotFoundError):
        return collect_results(folder, cases, logs, key=key, whys=told, products=products)
    return collect_results(folder, cases, [], key=key, whys=told)


def _find_job_end(job: Object) -> str | None:
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


def record_end(folder: Path, reason: str) -> Session:
    """Write into a session that it is over, and why."""
    session = archive.read_session(folder)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    session = session.model_copy(update={"ended_at": now, "stop_reason": reason})
    archive.write_session(folder, session)
    return session
