"""Submits a session to a cluster, watches its pods, and collects each round when it ends."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core import files, redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError, WorkbenchError
from workbench.core.formats import cut_text
from workbench.core.schema import read_model_file
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.job_manifests import (
    CONTAINER,
    INSTALLER,
    ClusterOptions,
    build_label_selector,
    build_manifests,
    build_object_name,
    list_notes,
    list_pod_rounds,
    select_image,
)
from workbench.indicators.kubernetes.result_collection import Collection, collect_results
from workbench.indicators.measurement.rounds import Judge
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_plan import (
    build_session_plan,
    build_specification,
    count_max_rounds,
    order_runs,
)
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.stack_variants import Variant, build_stack_variant, order_variants
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Hardware, Session, inspection_id
from workbench.kubernetes import manifests
from workbench.kubernetes.client import (
    Cluster,
    ClusterUnreachableError,
    CreatedObject,
    ObjectExistsError,
    ObjectNotFoundError,
    load_target,
)
from workbench.kubernetes.manifests import Object

FOLDER = "kubernetes"
OPTIONS = "options.json"
KEY = "key"
MANIFESTS = "manifests.yaml"
MEMORY_BYTES = 4 << 30
Pod = dict[str, Any]
MAX_TEXT = 400
_FATAL = {
    "InvalidImageName": "the image name is not valid",
    "ErrImageNeverPull": "the image is not on the node, and the pull policy is Never",
    "ImagePullBackOff": "the image cannot be pulled",
    "CreateContainerConfigError": "the container cannot be created: a Secret or ConfigMap is missing",
    "CreateContainerError": "the container cannot be created",
    "RunContainerError": "the container cannot be started",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "deleted because its node was tainted",
    "EvictionByEvictionAPI": "evicted, for example because its node was drained",
    "DeletionByPodGC": "deleted because its node no longer exists",
    "TerminationByKubelet": "terminated because its node shut down or ran out of a resource",
}
_REASONS = {
    "Evicted": "evicted because the node ran out of a resource",
    "DeadlineExceeded": "it exceeded its time limit",
    "NodeLost": "its node was lost",
    "UnexpectedAdmissionError": "rejected by its node",
}
_OUT_OF = re.compile(r"OutOf(\w+)")
POLL_S = 2.0
MAX_FAILURES = 15
"""Maximum number of consecutive failed polls; a control plane may be unavailable for half a minute."""
_ACCELERATOR_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")


def connect_cluster(context: str | None, confirm_context: str | None, namespace: str) -> Cluster:
    """Connect to the cluster of a kubeconfig context ($KUBECONFIG, or the default path), by default its current one.

    `confirm_context`: The same name again; required unless the cluster is on this machine.
    """
    do = "set KUBECONFIG; or apply manifests.yaml with kubectl, and collect the pod logs"
    target = load_target(None, context, takes_current=True, checks_certificate=False, do=do)
    if not target.is_local and confirm_context != target.context:
        raise ConfigError(
            "the cluster is not on this machine",
            where=f"context {target.context}, namespace {namespace}",
            found=confirm_context,
            do=f"--confirm-context {target.context}",
        )
    return Cluster(target, namespace)


def plan_session(
    folder: Path,
    session_id: str,
    config: SessionConfig,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    options: ClusterOptions,
) -> Session:
    """Plan a session for a cluster: write session.json, specifications and manifests.

    The machine is unknown, with an empty key, until the first pod reports it.

    `config`: Rounds, threads, limits, seed. The default of `memory_bytes` is 4 GiB, independent of this machine.
    """
    session, variants = build_session(session_id, config, stacks, cases, options)
    manifests = build_manifests(
        session, stacks, cases, options, key=load_signing_key(folder, create=True), processes=config.processes
    )
    archive.write_session(folder, session)
    files.write_text(folder / FOLDER / OPTIONS, options.model_dump_json(indent=1) + "\n")
    write_manifests(folder, session, manifests, options)
    by_label = {case.label: case for case in cases}
    for variant in variants:
        for planned in session.cases:
            if variant.arm.name not in planned.skipped:
                inspection = inspection_id(session.session_id, variant.arm.name, planned.label)
                specification = build_specification(session, variant, by_label[planned.label], inspection)
                specification["base"] = select_image(session, options)
                archive.write_specification(folder, inspection, specification)
    return session


def build_session(
    session_id: str, config: SessionConfig, stacks: Sequence[Stack], cases: Sequence[Case], options: ClusterOptions
) -> tuple[Session, list[Variant]]:
    """Build the plan and its variants without writing files."""
    by_name = {stack.name: stack for stack in stacks}
    names = order_variants([stack.name for stack in stacks], config.baseline)
    variants = [build_stack_variant(by_name[name], is_control=is_control) for name, is_control in names]
    notes = ["cluster: each round runs in a separate pod; values of different rounds are never compared"]
    if options.gpus:
        notes.append(
            "cluster: runs have no memory limit of their own; a run that exceeds the pod's limit ends its round"
        )
    session = build_session_plan(session_id, config, variants, cases, notes=notes, here=False)
    changed = {
        "backend": "kubernetes",
        "hardware": Hardware(key="", cpu_model="not known yet", cores=1, memory_bytes=0),
        "cpus": (),
        "memory_bytes": config.memory_bytes or MEMORY_BYTES,
        "host": {"image": select_image(session, options), "namespace": options.namespace},
    }
    return session.model_copy(update=changed), variants


def read_options(folder: Path) -> ClusterOptions:
    """Read the cluster options of a planned session."""
    return read_model_file(ClusterOptions, folder / FOLDER / OPTIONS, noun="cluster session's options")


def load_signing_key(folder: Path, *, create: bool = False) -> str:
    """Load the key that signs a session's results; the file is readable only by its owner.

    The key gives no access. It proves that a result comes from the runner and not from a script.
    """
    path = folder / FOLDER / KEY
    try:
        key = path.read_text(encoding="utf-8").strip()
        bytes.fromhex(key)
        return key
    except FileNotFoundError:
        if not create:
            raise InputError(
                "the signing key is missing, so results cannot be verified",
                where=path,
                do="collect in the folder that the session was submitted from",
            ) from None
    except (OSError, ValueError):
        raise InputError("not a key", where=path, allowed="64 hex digits") from None
    key = secrets.token_hex(32)
    _write_private_file(path, key + "\n")
    return key


def write_manifests(folder: Path, session: Session, objects: Sequence[Object], options: ClusterOptions) -> Path:
    """Write the objects as YAML; the file contains the key and is readable only by its owner."""
    path = folder / FOLDER / MANIFESTS
    comments = [f"Session {session.session_id}", *list_notes(session, options)]
    _write_private_file(path, manifests.format_yaml(objects, comments))
    return path


def _write_private_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    # A part that an earlier process left keeps the mode that it was made with.
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def read_pod_name(pod: Pod) -> str:
    """Name of the pod."""
    return str(pod.get("metadata", {}).get("name", ""))


def read_pod_index(pod: Pod) -> int | None:
    """Job index of the pod; null without one."""
    metadata = pod.get("metadata", {})
    for place in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        text = str(place.get("batch.kubernetes.io/job-completion-index", ""))
        if text.isdigit():
            return int(text)
    return None


def is_over(pod: Pod) -> bool:
    """Whether the pod has ended, successfully or not."""
    return _get_status(pod).get("phase") in ("Succeeded", "Failed")


def has_started_measuring(pod: Pod) -> bool:
    """Whether the measuring container was started, so that there is a log."""
    state = _get_container_state(pod, CONTAINER)
    return "terminated" in state or "running" in state


def has_install_failure(pod: Pod) -> bool:
    """Whether the installation of the stacks failed."""
    ended = _get_container_state(pod, INSTALLER).get("terminated") or {}
    return bool(ended.get("exitCode"))


def find_failure_reason(pod: Pod) -> str | None:
    """Reason why a pod failed; null if it succeeded or is not over."""
    status = _get_status(pod)
    if status.get("phase") != "Failed":
        return None
    return _redact_text(pod, next(_iterate_causes(pod), "the pod failed, and the cluster reports no reason"))


def find_waiting_reason(pod: Pod) -> tuple[str, bool] | None:
    """Reason why a pod does not run yet, and whether it is permanent; null if nothing is wrong."""
    for name in (INSTALLER, CONTAINER):
        waiting = _get_container_state(pod, name).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        if reason in _FATAL:
            return _redact_text(pod, _append_detail(_FATAL[reason], waiting.get("message"))), True
        if reason == "ErrImagePull":
            return _redact_text(
                pod, _append_detail("the image could not be pulled; the pull is retried", waiting.get("message"))
            ), False
    for condition in _get_status(pod).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _redact_text(pod, _append_detail("no node can run the pod", condition.get("message"))), False
    return None


def _iterate_causes(pod: Pod) -> Iterator[str]:
    """Iterate over the causes, most specific first."""
    status = _get_status(pod)
    installer = _get_container_state(pod, INSTALLER).get("terminated") or {}
    measurer = _get_container_state(pod, CONTAINER).get("terminated") or {}
    if measurer.get("reason") == "OOMKilled":
        yield "out of memory: its runs together reached the pod's limit"
    if installer.get("reason") == "OOMKilled":
        yield "out of memory while the stacks were installed"
    reason = str(status.get("reason") or "")
    if reason in _REASONS:
        yield _append_detail(_REASONS[reason], status.get("message"))
    if match := _OUT_OF.fullmatch(reason):
        yield f"its node does not have enough {match[1]}"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            cause = str(condition.get("reason", ""))
            yield _append_detail(_DISRUPTIONS.get(cause, f"it was disrupted ({cause})"), condition.get("message"))
    if installer.get("exitCode"):
        lines = [line for line in str(installer.get("message") or "").splitlines() if line.strip()]
        last = lines[-1].removeprefix("workbench: ") if lines else ""
        yield _append_detail("the stacks could not be installed", last)
    if code := measurer.get("exitCode"):
        yield "the runner was killed" if code == 137 else f"the runner ended with exit code {code}"
    if reason:
        yield _append_detail(reason, status.get("message"))


def _get_status(pod: Pod) -> dict[str, Any]:
    return pod.get("status") or {}


def _get_container_state(pod: Pod, container: str) -> dict[str, Any]:
    status = _get_status(pod)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if entry.get("name") == container:
            return entry.get("state") or {}
    return {}


def _append_detail(text: str, more: Any) -> str:
    detail = " ".join(str(more or "").split())
    return f"{text}: {detail}" if detail else text


def _redact_text(pod: Pod, text: str) -> str:
    """Shorten a text, and remove the name of the node and secrets."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    if node:
        text = text.replace(node, "(node)")
    cleaned: str = redaction.redact_value(redaction.strip_user_info(text))
    return cut_text(cleaned, MAX_TEXT)


def submit_objects(cluster: Cluster, objects: Sequence[Object]) -> list[CreatedObject]:
    """Validate all objects on the server, create them, and start the Job.

    The Job is created first, suspended, and owns the other objects, so the cluster deletes them with it.
    """
    job = copy.deepcopy(next(entry for entry in objects if entry["kind"] == "Job"))
    others = [copy.deepcopy(entry) for entry in objects if entry["kind"] != "Job"]
    job["spec"]["suspend"] = True
    try:
        for manifest in (*others, job):
            cluster.create_object(manifest, dry_run=True)
    except ObjectExistsError as error:
        raise ConfigError(
            "this session already exists on the cluster",
            where=f"context {cluster.context}, namespace {cluster.namespace}, Job {job['metadata']['name']}",
            do="collect it: workbench indicators collect, with the session's folder; or delete the Job first",
        ) from error
    created_objects: list[CreatedObject] = []
    try:
        created_objects.append(cluster.create_object(job))
        name, uid = created_objects[0].name, created_objects[0].uid
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        for manifest in others:
            manifest["metadata"]["ownerReferences"] = [owner]
            created_objects.append(cluster.create_object(manifest))
        cluster.resume_job(created_objects[0])
    except BaseException:
        delete_objects(cluster, created_objects)
        raise
    return created_objects


def delete_objects(cluster: Cluster, created_objects: Sequence[CreatedObject]) -> list[CreatedObject]:
    """Delete objects created here, by name and uid; returns those that could not be deleted."""
    leftovers = []
    for target in created_objects:
        try:
            cluster.delete_object(target)
        except WorkbenchError:
            leftovers.append(target)
    return leftovers


@dataclass
class SessionWatch:
    """Watches a session on the cluster until it ends."""

    folder: Path
    cases: Sequence[Case]
    cluster: Cluster
    judge: Judge = field(default_factory=Judge)
    watcher: SessionWatcher = field(default_factory=SessionWatcher)
    poll_s: float = POLL_S
    sleep: Callable[[float], None] = time.sleep
    _over: set[str] = field(default_factory=set)
    _whys: dict[int, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _failures: int = 0
    _measured: bool = False

    def __post_init__(self) -> None:
        """Read the plan."""
        self.session = archive.read_session(self.folder)
        self.key = load_signing_key(self.folder)

    def wait_until_over(self) -> str:
        """Collect each round when it ends; returns the reason why the session is over."""
        slots = order_runs(self.session)
        there = collect_results(self.folder, self.cases, [], key=self.key).present
        self.watcher.report_start(there, len(slots))
        while True:
            try:
                # The Job is read before its pods, so that its final state applies to all of them.
                job = self.cluster.get_job(build_object_name(self.session.session_id))
                pods = self.cluster.list_pods(build_label_selector(self.session.session_id))
                if self._handle_pods(pods):
                    return "decided"
            except ObjectNotFoundError:
                raise RunFailedError("the Job no longer exists on the cluster", do="run the session again") from None
            except ClusterUnreachableError:
                self._failures += 1
                if self._failures >= MAX_FAILURES:
                    raise
            else:
                self._failures = 0
                if (reason := _find_job_end(job)) is not None:
                    return reason
            self.sleep(self.poll_s)

    def _handle_pods(self, pods: Sequence[Object]) -> bool:
        """Report problems of pods and collect finished ones; true if all verdicts are decided."""
        for pod in sorted(pods, key=lambda candidate: read_pod_index(candidate) or 0):
            if (problem := find_waiting_reason(pod)) is not None:
                text, is_permanent = problem
                # After a measured round, the problem can only be temporary.
                if is_permanent and not self._measured:
                    raise RunFailedError("cannot start a pod", where=read_pod_name(pod), found=text)
                if text not in self._told:
                    self._told.add(text)
                    self.watcher.report_note(f"waiting: {text}")
            if is_over(pod) and read_pod_name(pod) not in self._over and self._collect_pod(pod):
                return True
        return False

    def _collect_pod(self, pod: Object) -> bool:
        """Store a pod's round in the archive; true if all verdicts are decided."""
        number = find_pod_round(pod)
        if number is not None and (reason := find_failure_reason(pod)):
            self._whys[number] = reason
            if has_install_failure(pod) and not self._measured:
                # The installation would fail in the same way in every round.
                raise RunFailedError("cannot install the stacks in a pod", where=read_pod_name(pod), found=reason)
        collection = collect_from_pods(self.folder, self.cases, self.cluster, [pod], key=self.key, whys=self._whys)
        self._over.add(read_pod_name(pod))
        self._measured = self._measured or bool(collection.new)
        for slot, status in collection.new:
            self.watcher.report_run(slot.arm, slot.case, status)
        if number is None or not collection.new:
            return False
        n_done = count_max_rounds(self.session) - len(collection.absent)
        look = n_done in self.session.looks
        verdicts = self.judge.verdicts(self.folder) if self.judge.verdicts and look else None
        self.watcher.report_round(n_done, count_max_rounds(self.session), verdicts)
        return look and self.judge.decided(self.folder)


def find_pod_round(pod: Object) -> int | None:
    """Round of a pod; null if unknown."""
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
    """Store the records of these pods in the archive; pods that did not measure are skipped."""
    reasons = dict(whys or {})
    products: list[str] = []
    logs = []
    for pod in pods:
        number, reason = find_pod_round(pod), find_failure_reason(pod)
        if number is not None and reason is not None:
            reasons.setdefault(number, reason)
        if has_started_measuring(pod):
            logs.append(_read_kept_log(cluster, read_pod_name(pod)))
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            labels = cluster.read_node_labels(node) if node and not products else {}
            products = products or [str(labels[name])[:100] for name in _ACCELERATOR_LABELS if name in labels]
    return collect_results(folder, cases, logs, key=key, whys=reasons, products=products)


def _read_kept_log(cluster: Cluster, pod: str) -> Iterator[bytes]:
    """The log of a pod; nothing if the pod is gone, whose rounds are then missing while the other pods' count."""
    with contextlib.suppress(ObjectNotFoundError):
        yield from cluster.read_log(pod, CONTAINER)


def _find_job_end(job: Object) -> str | None:
    """Reason why a Job is over; null while it runs."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return "all rounds"
        if condition.get("type") == "Failed":
            reason = str(condition.get("reason") or "failed")
            words = {
                "DeadlineExceeded": "the Job exceeded its time limit",
                "FailedIndexes": "all rounds were tried, some failed",
            }
            return words.get(reason, f"the Job failed: {reason}")[:200]
    return None


def record_end(folder: Path, reason: str) -> Session:
    """Record the end of a session and its reason."""
    session = archive.read_session(folder)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    session = session.model_copy(update={"ended_at": now, "stop_reason": reason})
    archive.write_session(folder, session)
    return session
