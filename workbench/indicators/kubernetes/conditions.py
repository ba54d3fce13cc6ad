"""Why a pod does not run, or did not end well, in plain words: from its status, as the API gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from workbench import redaction
from workbench.indicators.kubernetes.manifests import CONTAINER, INSTALLER

Pod = dict[str, Any]
MOST_TEXT = 400
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


def name_of(pod: Pod) -> str:
    """The pod's name."""
    return str(pod.get("metadata", {}).get("name", ""))


def index_of(pod: Pod) -> int | None:
    """The index that the pod stands for; null when it has none."""
    metadata = pod.get("metadata", {})
    for place in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        text = str(place.get("batch.kubernetes.io/job-completion-index", ""))
        if text.isdigit():
            return int(text)
    return None


def is_over(pod: Pod) -> bool:
    """It has ended, for good or bad."""
    return _status(pod).get("phase") in ("Succeeded", "Failed")


def has_measured(pod: Pod) -> bool:
    """Its measuring container was started, so that there is a log."""
    state = _state(pod, CONTAINER)
    return "terminated" in state or "running" in state


def installing_failed(pod: Pod) -> bool:
    """The stacks could not be installed in it."""
    ended = _state(pod, INSTALLER).get("terminated") or {}
    return bool(ended.get("exitCode"))


def why_failed(pod: Pod) -> str | None:
    """Why a pod that is over did not end well; null when it did, or is not over."""
    status = _status(pod)
    if status.get("phase") != "Failed":
        return None
    return _told(pod, next(_causes(pod), "the pod failed, and the cluster does not say why"))


def why_waiting(pod: Pod) -> tuple[str, bool] | None:
    """Why a pod does not run yet, and whether waiting cannot help; null when nothing is wrong."""
    for name in (INSTALLER, CONTAINER):
        waiting = _state(pod, name).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        if reason in _FATAL:
            return _told(pod, _with(_FATAL[reason], waiting.get("message"))), True
        if reason == "ErrImagePull":
            return _told(pod, _with("the image could not be pulled, it is tried again", waiting.get("message"))), False
    for condition in _status(pod).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _told(pod, _with("no node takes it", condition.get("message"))), False
    return None


def _causes(pod: Pod) -> Iterator[str]:
    """The most telling first."""
    status = _status(pod)
    installer = _state(pod, INSTALLER).get("terminated") or {}
    measurer = _state(pod, CONTAINER).get("terminated") or {}
    if measurer.get("reason") == "OOMKilled":
        yield "it was killed for memory: its runs together reached the pod's limit"
    if installer.get("reason") == "OOMKilled":
        yield "it was killed for memory while the stacks were installed"
    reason = str(status.get("reason") or "")
    if reason in _REASONS:
        yield _with(_REASONS[reason], status.get("message"))
    if found := _OUT_OF.fullmatch(reason):
        yield f"its node has not enough {found[1]} left"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            cause = str(condition.get("reason", ""))
            yield _with(_DISRUPTIONS.get(cause, f"it was disrupted ({cause})"), condition.get("message"))
    if installer.get("exitCode"):
        yield _with("the stacks could not be installed", _last_line(installer.get("message")))
    if code := measurer.get("exitCode"):
        yield "the runner was killed" if code == 137 else f"the runner ended with exit code {code}"
    if reason:
        yield _with(reason, status.get("message"))


def _status(pod: Pod) -> dict[str, Any]:
    return pod.get("status") or {}


def _state(pod: Pod, container: str) -> dict[str, Any]:
    status = _status(pod)
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if one.get("name") == container:
            return one.get("state") or {}
    return {}


def _last_line(message: Any) -> str:
    lines = [line for line in str(message or "").splitlines() if line.strip()]
    return lines[-1].removeprefix("workbench: ") if lines else ""


def _with(text: str, more: Any) -> str:
    told = " ".join(str(more or "").split())
    return f"{text}: {told}" if told else text


def _told(pod: Pod, text: str) -> str:
    """Without the node's name, without secrets, and short."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    if node:
        text = text.replace(node, "(node)")
    cleaned: str = redaction.clean(redaction.without_user_info(text))
    return cleaned if len(cleaned) <= MOST_TEXT else cleaned[: MOST_TEXT - 1] + "…"
