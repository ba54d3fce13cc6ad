"""Session as Kubernetes objects: one Indexed Job with a pod per round, all stacks in every pod.

Separate pods per stack would run on different nodes at different times, whereas compared runs must be seconds apart.
Pure functions: the same session, options and key give the same objects.

For Kubernetes 1.29 and newer (`backoffLimitPerIndex`, `podReplacementPolicy`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.pod import KEY_VARIABLE
from workbench.indicators.kubernetes.pod_inputs import (
    ClusterOptions,
    build_pod_files,
    count_pod_cores,
    pack_config_maps,
    parse_egress_rule,
    parse_toleration,
)
from workbench.indicators.measurement.launcher_client import GRACE_S, RunLimits
from workbench.indicators.measurement.session_plan import count_max_rounds, order_runs
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store.archive import Session

Object = dict[str, Any]
APP = "workbench-indicators"
SESSION_LABEL = "workbench-session"
CONTAINER = "measure"
INSTALLER = "install"
KEY = "key"
ROUNDS = "workbench-rounds"
"""Annotation of a pod: rounds by index."""
RUNNER_BYTES = 256 << 20
_ARCHITECTURES = {"linux_x86_64": "amd64", "linux_aarch64": "arm64"}
_FOLDERS = {"bundle": "/bundle", "environments": "/environments", "scratch": "/scratch"}
_LOCKED: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def build_manifests(
    session: Session,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    options: ClusterOptions,
    *,
    key: str,
    rounds: Sequence[int] | None = None,
    processes: int = RunLimits().processes,
) -> list[Object]:
    """Build the objects of a session in the order of application; the Job is the last."""
    wanted = list(range(count_max_rounds(session))) if rounds is None else list(rounds)
    _check_session(session, stacks, wanted, key)
    name = build_object_name(session.session_id)
    files = build_pod_files(session, stacks, cases, options, rounds=wanted, processes=processes)
    spread = pack_config_maps(files)
    maps: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _build_metadata(f"{name}-{at}", session, options),
            "data": content,
        }
        for at, content in enumerate(spread)
    ]
    named = [config_map["metadata"]["name"] for config_map in maps]
    return [
        *maps,
        _build_secret(name, session, options, key),
        _build_network_policy(name, session, options),
        _build_job(name, session, stacks, options, wanted, named),
    ]


def _build_secret(name: str, session: Session, options: ClusterOptions, key: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _build_metadata(name, session, options),
        "type": "Opaque",
        "stringData": {KEY: key},
    }


def build_object_name(session_id: str) -> str:
    """Name of a session's objects: a DNS label with room for the index and suffix of a pod.

    >>> build_object_name("20260102T030405Z-a1b2c3")
    'workbench-20260102t030405z-a1b2c3-cfb088'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", session_id.lower()).strip("-")[:28].strip("-")
    return f"workbench-{slug or 'session'}-{hashlib.sha256(session_id.encode()).hexdigest()[:6]}"


def pod_user_id(session_id: str) -> int:
    """Unique numeric user of a session's pods, because the kernel counts the processes of a user per node."""
    return 20_000 + int(hashlib.sha256(session_id.encode()).hexdigest(), 16) % 40_000


def build_label_selector(session_id: str) -> str:
    """Label selector of a session's objects and pods."""
    return f"app.kubernetes.io/name={APP},{SESSION_LABEL}={build_object_name(session_id)}"


def select_image(session: Session, options: ClusterOptions) -> str:
    """Image of the pods: the requested one, or a plain Python image of the session's version."""
    version = ".".join(session.arms[0].python.split(".")[:2])
    return options.image or f"python:{version}-slim"


def list_pod_rounds(pod: Object) -> list[int]:
    """Rounds by index of a pod's Job; empty without the annotation."""
    try:
        rounds = json.loads(pod["metadata"]["annotations"][ROUNDS])
    except (KeyError, TypeError, ValueError):
        return []
    return rounds if isinstance(rounds, list) and all(isinstance(number, int) for number in rounds) else []


def list_notes(session: Session, options: ClusterOptions) -> list[str]:
    """Notes for applying the objects, one sentence each."""
    notes = []
    if "@sha256:" not in (image := select_image(session, options)):
        notes.append(f"image {image} has a tag, which may change: use its digest, IMAGE@sha256:…")
    notes.append("each round runs in a separate pod and installs the stacks before it measures")
    notes.append("the NetworkPolicy applies to whole pods: scripts have the same network access as the installer")
    if options.runtime_class is None:
        notes.append("scripts share the node's kernel: for untrusted scripts, set a RuntimeClass (gVisor, Kata)")
    return notes


def _check_session(session: Session, stacks: Sequence[Stack], rounds: list[int], key: str) -> None:
    if session.design != "rounds":
        raise ConfigError("a cluster supports only the design rounds", where="--design", found=session.design)
    if (
        not rounds
        or any(not 0 <= number < count_max_rounds(session) for number in rounds)
        or len(set(rounds)) < len(rounds)
    ):
        raise ConfigError(
            "not rounds of this session", found=rounds[:10], allowed=f"0 to {count_max_rounds(session) - 1}"
        )
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise ConfigError("not a key", allowed="64 hex digits")
    platforms = {stack.platform for stack in stacks}
    if len(platforms) != 1 or not platforms <= _ARCHITECTURES.keys():
        raise ConfigError(
            "the cluster does not support this platform", found=sorted(platforms), allowed=list(_ARCHITECTURES)
        )
    if len(pythons := {".".join(arm.python.split(".")[:2]) for arm in session.arms}) > 1:
        raise ConfigError("stacks need several Python versions, but an image has one", found=sorted(pythons))


def _build_labels(session: Session) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": APP,
        "app.kubernetes.io/instance": build_object_name(session.session_id),
        "app.kubernetes.io/component": "measurement",
        "app.kubernetes.io/managed-by": "workbench",
        SESSION_LABEL: build_object_name(session.session_id),
    }


def _build_metadata(name: str, session: Session, options: ClusterOptions) -> Object:
    return {"name": name, "namespace": options.namespace, "labels": _build_labels(session)}


def _build_network_policy(name: str, session: Session, options: ClusterOptions) -> Object:
    dns = {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _build_metadata(name, session, options),
        "spec": {
            "podSelector": {"matchLabels": {SESSION_LABEL: name}},
            # Ingress without a rule: no connections are allowed.
            "policyTypes": ["Ingress", "Egress"],
            "egress": [dns, *map(parse_egress_rule, options.egress)],
        },
    }


def _build_job(
    name: str,
    session: Session,
    stacks: Sequence[Stack],
    options: ClusterOptions,
    rounds: list[int],
    maps: list[str],
) -> Object:
    deadline_s = _pod_deadline_s(session, options)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _build_metadata(name, session, options),
        "spec": {
            "completionMode": "Indexed",
            "completions": len(rounds),
            # One round at a time, because two pods on one node would interfere.
            "parallelism": 1,
            # A failed round is not retried automatically and does not stop the others.
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": deadline_s * len(rounds),
            "ttlSecondsAfterFinished": options.ttl_s,
            "template": {
                "metadata": {
                    "labels": _build_labels(session),
                    "annotations": {
                        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                        "karpenter.sh/do-not-disrupt": "true",
                        ROUNDS: json.dumps(rounds),
                    },
                },
                "spec": _build_pod(name, session, stacks, options, maps) | {"activeDeadlineSeconds": deadline_s},
            },
        },
    }


def _pod_deadline_s(session: Session, options: ClusterOptions) -> int:
    """Time limit of a round: installation, and all runs at their limits."""
    runs = sum(slot.round == 0 for slot in order_runs(session))
    return math.ceil(options.install_s + runs * (session.run_timeout_s + 2) + GRACE_S)


def _build_pod(
    name: str, session: Session, stacks: Sequence[Stack], options: ClusterOptions, maps: list[str]
) -> Object:
    user = pod_user_id(session.session_id)
    architecture = _ARCHITECTURES[stacks[0].platform]
    environments = _format_size(options.environments_bytes or _estimate_environments_bytes(session, stacks))
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture, **options.node_selector},
        "initContainers": [_build_installer(session, options, environments)],
        "containers": [_build_measurer(name, session, options, environments)],
        "volumes": [
            {"name": "bundle", "projected": {"sources": [{"configMap": {"name": map_name}} for map_name in maps]}},
            {"name": "environments", "emptyDir": {"sizeLimit": environments}},
            {"name": "scratch", "emptyDir": {"sizeLimit": _format_size(options.scratch_bytes)}},
        ],
    }
    tolerations = [parse_toleration(text) for text in options.tolerations]
    if options.gpus and not any(toleration["key"] == options.gpu_resource for toleration in tolerations):
        tolerations.append({"key": options.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    if tolerations:
        pod["tolerations"] = tolerations
    if options.runtime_class:
        pod["runtimeClassName"] = options.runtime_class
    if options.pull_secret:
        pod["imagePullSecrets"] = [{"name": options.pull_secret}]
    return pod


def _estimate_environments_bytes(session: Session, stacks: Sequence[Stack]) -> int:
    """Disk for all environments; unpacked and compiled packages are several times the size of wheels."""
    by_key = {stack.key: stack for stack in stacks}
    unknown = 1 << 30
    total_bytes = sum(by_key[arm.stack_key].download_bytes or unknown for arm in session.arms)
    return (2 << 30) + 8 * total_bytes


def _format_size(count: int) -> str:
    return f"{math.ceil(count / 2**20)}Mi"


def _build_container(session: Session, options: ClusterOptions, script: str, environments: str) -> Object:
    folders = [f"{_FOLDERS[name]}" for name in ("bundle", "environments", "scratch")]
    disk = f"{int(environments[:-2]) + math.ceil(options.scratch_bytes / 2**20)}Mi"
    amounts = {
        "cpu": str(count_pod_cores(session, options)),
        "memory": _format_size((session.memory_bytes or 4 << 30) + RUNNER_BYTES),
        "ephemeral-storage": disk,
    }
    container: Object = {
        "image": select_image(session, options),
        "command": ["python3", "-s", "-B", f"{_FOLDERS['bundle']}/{script}", *folders],
        "workingDir": _FOLDERS["scratch"],
        # Equal requests and limits with whole cores give the pod exclusive cores under the static CPU manager policy.
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {**_LOCKED, "capabilities": {"drop": ["ALL"]}},
    }
    if options.pull_policy:
        container["imagePullPolicy"] = options.pull_policy
    return container


def _build_installer(session: Session, options: ClusterOptions, environments: str) -> Object:
    index: list[Object] = []
    if options.index_url:
        index = [{"name": name, "value": options.index_url} for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")]
    if options.index_secret:
        name, _, key = options.index_secret.partition("/")
        source = {"secretKeyRef": {"name": name, "key": key}}
        index = [{"name": variable, "valueFrom": source} for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")]
    return {
        "name": INSTALLER,
        **_build_container(session, options, "pod_install.py", environments),
        "env": [{"name": "HOME", "value": _FOLDERS["scratch"]}, *index],
        # Shows the failure in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _build_mounts(writable=("environments", "scratch")),
    }


def _build_measurer(name: str, session: Session, options: ClusterOptions, environments: str) -> Object:
    container = _build_container(session, options, "pod.py", environments)
    if options.gpus:
        for amounts in container["resources"].values():
            amounts[options.gpu_resource] = str(options.gpus)
    secret = {"name": KEY_VARIABLE, "valueFrom": {"secretKeyRef": {"name": name, "key": KEY}}}
    return {
        "name": CONTAINER,
        **container,
        "env": [{"name": "HOME", "value": _FOLDERS["scratch"]}, secret],
        # Environments are read-only, so that a script cannot slow down another stack.
        "volumeMounts": _build_mounts(writable=("scratch",)),
    }


def _build_mounts(writable: Sequence[str]) -> list[Object]:
    return [{"name": name, "mountPath": path, "readOnly": name not in writable} for name, path in _FOLDERS.items()]
