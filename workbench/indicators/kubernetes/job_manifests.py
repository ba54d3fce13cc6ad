"""Session as Kubernetes objects: one Indexed Job with a pod per round, all stacks in every pod.

Separate pods per stack would run on different nodes at different times, whereas compared runs must be seconds apart.
Pure functions: the same session, options and key give the same objects.

For Kubernetes 1.29 and newer (`backoffLimitPerIndex`, `podReplacementPolicy`).
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from workbench.core import formats, redaction
from workbench.core.errors import ConfigError
from workbench.core.schema import FiniteModel, validate_model
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.pod import KEY_VARIABLE, ROUNDS_A_FILE
from workbench.indicators.measurement import resource_limits
from workbench.indicators.measurement.launcher_client import GRACE_S, build_clean_environment
from workbench.indicators.measurement.run_messages import STDERR_BYTES, STDOUT_BYTES, RunLimits
from workbench.indicators.measurement.session_plan import (
    count_max_rounds,
    match_cases_to_session,
    order_runs,
)
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store.archive import Session
from workbench.kubernetes.manifests import LABEL_NAME, LABEL_VALUE, RESOURCE_NAME, Object, build_object

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
IMAGE = re.compile(r"[a-zA-Z0-9][A-Za-z0-9._/:-]{0,300}(@sha256:[0-9a-f]{64})?")
SECRET_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[-._a-zA-Z0-9]{1,253}")
TOLERATION = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")
MiB = 1 << 20
MAX_BYTES = 1 << 20
"""Of a ConfigMap, keys and texts together: what Kubernetes takes."""
MAX_MAPS = 16
_MEASUREMENT = "workbench.indicators.measurement"
_MEASUREMENT_PARTS = ("launcher.py", "machine_readings.py", "resource_limits.py", "run_isolation.py", "run_messages.py")
_SPARE_BYTES = 16 << 10
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


def _match_pattern(pattern: re.Pattern[str], allowed: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{allowed}, not {value[:80]!r}")
        return value

    return AfterValidator(check)


def _check_each(check: Callable[[str], Any]) -> AfterValidator:
    def check_all(values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            check(value)
        return values

    return AfterValidator(check_all)


def parse_toleration(text: str) -> dict[str, str]:
    """`KEY`, `KEY=VALUE`, either with `:EFFECT`, as the object that a pod has.

    >>> parse_toleration("nvidia.com/gpu:NoSchedule")
    {'key': 'nvidia.com/gpu', 'operator': 'Exists', 'effect': 'NoSchedule'}
    """
    match = TOLERATION.fullmatch(text)
    if match is None or not LABEL_NAME.fullmatch(match["key"]) or not LABEL_VALUE.fullmatch(match["value"] or ""):
        raise ValueError(f"KEY, KEY=VALUE or KEY=VALUE:NoSchedule, not {text[:80]!r}")
    operator = {"operator": "Exists"} if match["value"] is None else {"operator": "Equal", "value": match["value"]}
    return {"key": match["key"], **operator, **({"effect": match["effect"]} if match["effect"] else {})}


def parse_egress_rule(text: str) -> dict[str, Any]:
    """`PORT` or `NETWORK:PORT` (also `[NETWORK]:PORT`), as a rule of a NetworkPolicy for TCP.

    >>> parse_egress_rule("10.1.0.0/16:3141")["to"]
    [{'ipBlock': {'cidr': '10.1.0.0/16'}}]
    """
    network, _, port = text.rpartition(":")
    if not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise ValueError(f"PORT or NETWORK:PORT, not {text[:80]!r}")
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": int(port)}]}
    if network:
        try:
            rule["to"] = [{"ipBlock": {"cidr": str(ipaddress.ip_network(network.strip("[]")))}}]
        except ValueError:
            raise ValueError(
                f"an address or network before the port, like 10.1.0.0/16:443, not {text[:80]!r}"
            ) from None
    return rule


def _check_index_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s\x00-\x1f]{1,2000}", value):
        raise ValueError("an http or https URL")
    if redaction.has_user_info(value) or "?" in value:
        raise ValueError("a URL without user, password or query; put one that has them into a Secret: index_secret")
    return value


def _check_labels(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in value.items():
        if not LABEL_NAME.fullmatch(name) or not LABEL_VALUE.fullmatch(text):
            raise ValueError(f"LABEL=VALUE, not {name[:80]}={text[:80]}")
    return value


DnsLabel = Annotated[str, _match_pattern(LABEL, "lower-case letters, digits and -, at most 63")]


class ClusterOptions(FiniteModel):
    """How a session is run on a cluster, by the names of the options. Sizes are in bytes, times in seconds.

    >>> ClusterOptions(node_selector={"nvidia.com/gpu.product": "A100"}, gpus=1).cpus is None
    True
    """

    image: Annotated[str, _match_pattern(IMAGE, "an image, such as python:3.11-slim")] | None = Field(
        None, description="Image of the pods, with Python and pip or uv; a plain Python image by default."
    )
    namespace: DnsLabel = Field("default", description="Namespace; it must be there.")
    node_selector: Annotated[dict[str, str], AfterValidator(_check_labels)] = Field(
        {}, description="Labels of the node."
    )
    tolerations: Annotated[tuple[str, ...], _check_each(parse_toleration)] = Field(
        (), description="KEY[=VALUE][:EFFECT]."
    )
    gpus: Annotated[int, Field(ge=0, le=64)] = Field(0, description="GPUs of a pod.")
    gpu_resource: Annotated[str, _match_pattern(RESOURCE_NAME, "domain/name")] = Field(
        "nvidia.com/gpu", description="Resource name of a GPU."
    )
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="Whole cores of a pod; one more than the threads by default."
    )
    environments_bytes: Annotated[int, Field(ge=64 * MiB)] | None = Field(
        None, description="Disk for the environments; from the stacks' downloads by default."
    )
    scratch_bytes: Annotated[int, Field(ge=64 * MiB)] = Field(2 << 30, description="Disk for the runs.")
    runtime_class: DnsLabel | None = Field(None, description="RuntimeClass, such as gvisor or kata.")
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(None, description="When images are pulled.")
    pull_secret: DnsLabel | None = Field(None, description="Existing Secret for the image's registry.")
    egress: Annotated[tuple[str, ...], _check_each(parse_egress_rule)] = Field(
        ("443",), description="Where the pod may connect in addition to DNS: PORT or NETWORK:PORT, TCP."
    )
    index_url: Annotated[str, AfterValidator(_check_index_url)] | None = Field(
        None, description="Package index for the pods."
    )
    index_secret: Annotated[str, _match_pattern(SECRET_KEY, "NAME/KEY")] | None = Field(
        None, description="NAME/KEY of an existing Secret with the index's URL."
    )
    install_s: Annotated[int, Field(ge=10, le=86_400)] = Field(1800, description="Time to install, a round.")
    ttl_s: Annotated[int, Field(ge=0, le=30 * 86_400)] = Field(
        86_400, description="Time after which the cluster deletes a finished session."
    )

    @model_validator(mode="after")
    def _check_single_index(self) -> Self:
        if self.index_url and self.index_secret:
            raise ValueError("index_url and index_secret: one of them")
        return self


def cluster_options(**settings: Any) -> ClusterOptions:
    """The options of these settings; those that are null are left to their defaults."""
    # Values are not shown: a URL may hold a secret.
    values = {name: value for name, value in settings.items() if value is not None}
    return validate_model(
        ClusterOptions, values, noun="valid cluster option", error_type=ConfigError, show_values=False
    )


def parse_cluster_options(texts: Iterable[str]) -> ClusterOptions:
    """The options of `KEY=VALUE` texts, as a command line has them; keys that hold several are repeated.

    >>> parse_cluster_options(["gpus=1", "node-selector=nvidia.com/gpu.product=A100", "toleration=spot"]).node_selector
    {'nvidia.com/gpu.product': 'A100'}
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or not name:
            raise ConfigError("not an option of a cluster", found=text[:80], allowed="KEY=VALUE, such as gpus=1")
        if name == "node_selector":
            label, _, wanted = value.partition("=")
            options.setdefault(name, {})[label] = wanted
        elif name in ("toleration", "tolerations", "egress"):
            plural = "egress" if name == "egress" else "tolerations"
            options[plural] = (*options.get(plural, ()), value)
        elif name in options:
            raise ConfigError("an option twice", found=key[:80])
        else:
            options[name] = value
    return cluster_options(**options)


def build_pod_files(
    session: Session,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    options: ClusterOptions,
    *,
    rounds: Sequence[int],
    processes: int = RunLimits().processes,
) -> dict[str, str]:
    """The files that a session's pods read: name to text."""
    by_key = {stack.key: stack for stack in stacks}
    if missing := [arm.name for arm in session.arms if arm.stack_key not in by_key]:
        raise ConfigError(
            "a stack of the session is not given", found=missing, allowed=[stack.name for stack in stacks]
        )
    planned_cases = list(match_cases_to_session(session, cases).values())
    files = read_pod_programs()
    texts = [(name, text) for case in planned_cases for name, text in case.sources.items()]
    files |= {_source_key(text): text for _, text in texts}
    locks = {arm.stack_key: f"lock-{by_key[arm.stack_key].lock_sha256[:16]}.txt" for arm in session.arms}
    files |= {name: by_key[key].lock for key, name in locks.items()}
    labels, arms = [case.label for case in session.cases], [arm.name for arm in session.arms]
    # Each round's runs as (position, case, arm), by numbers; a file for so many rounds.
    orders: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for slot in order_runs(session):
        of_round = orders.setdefault(f"order-{slot.round // ROUNDS_A_FILE}.json", {}).setdefault(str(slot.round), [])
        of_round.append((slot.position, labels.index(slot.case), arms.index(slot.arm)))
    files |= {name: json.dumps(order, separators=(",", ":")) + "\n" for name, order in orders.items()}
    limits = RunLimits(memory_bytes=None if options.gpus else session.memory_bytes, processes=processes)
    plan = {
        # Holds for all runs of all rounds.
        "arms": [{"name": arm.name, "environment": number} for number, arm in enumerate(session.arms)],
        "threads": session.run_threads,
        "cpus": count_pod_cores(session, options),
        "gpus": options.gpus,
        "timeout_s": session.run_timeout_s,
        "stdout_bytes": STDOUT_BYTES,
        "stderr_bytes": STDERR_BYTES,
        "isolation": _describe_isolation(options, limits),
        "limits": asdict(limits),
        "rounds": list(rounds),
        "cases": [
            {
                "label": case.label,
                "sources": {name: _source_key(text) for name, text in case.sources.items()},
                "environment": build_clean_environment(session.run_threads, case.environment),
            }
            for case in planned_cases
        ],
        "environments": [
            {
                "stack": arm.name,
                "python": arm.python_minor,
                "lock": locks[arm.stack_key],
                "packages": by_key[arm.stack_key].versions,
            }
            for arm in session.arms
        ],
    }
    files["plan.json"] = json.dumps(plan, indent=1, sort_keys=True) + "\n"
    return files


def read_pod_programs() -> dict[str, str]:
    """The programs that run in pods, name to text; a pod has no package, so there they import each other by name."""
    folder = Path(__file__).parent
    paths = [folder / "pod.py", folder / "pod_install.py"]
    paths += [folder.parent / "measurement" / name for name in _MEASUREMENT_PARTS]
    texts = {path.name: path.read_text(encoding="utf-8") for path in paths}
    return {
        name: text.replace(f"from {_MEASUREMENT} import ", "import ").replace(f"from {_MEASUREMENT}.", "from ")
        for name, text in texts.items()
    }


def count_pod_cores(session: Session, options: ClusterOptions) -> int:
    """Count the whole cores of a pod: one in addition to the threads, so that the runner never slows a run."""
    return options.cpus or session.run_threads + 1


def _source_key(text: str) -> str:
    """One name for one text: indicators share files."""
    return f"source-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"


def _describe_isolation(options: ClusterOptions, limits: RunLimits) -> dict[str, str]:
    """Describe the isolation in force for a run, in words; the pod itself says whether it could leave the network."""
    allowed = ", ".join(["DNS", *(f"TCP {text}" for text in options.egress)])
    inside = resource_limits.describe_limits(limits, resource_limits.ControlGroups(None, None), bound_by_user=True)
    if limits.memory_bytes is None:
        inside["memory"] = "no limit but the pod's"
    return {
        "network": "not isolated",
        "network reason": f"a NetworkPolicy asks for {allowed} alone, for the whole pod",
        **inside,
        "user": "unprivileged, of its own",
        "container": f"{options.runtime_class or 'the default'} runtime, read-only root, no capabilities",
    }


def pack_config_maps(files: Mapping[str, str]) -> list[dict[str, str]]:
    """The files spread over as few ConfigMaps as they fit into, in order of size."""
    sizes = {name: len(name) + len(text.encode()) for name, text in files.items()}
    max_bytes = MAX_BYTES - _SPARE_BYTES
    ordered = sorted(files, key=lambda name: (-sizes[name], name))
    largest = [f"{name}: {formats.format_bytes(sizes[name])}" for name in ordered[:5]]
    if sizes[ordered[0]] > max_bytes:
        raise ConfigError(
            "too large for a ConfigMap", found=largest, allowed=f"up to {formats.format_bytes(max_bytes)} a file"
        )
    maps: list[tuple[int, dict[str, str]]] = []
    for name in ordered:
        place = next((at for at, (used, _) in enumerate(maps) if used + sizes[name] <= max_bytes), None)
        if place is None:
            maps.append((0, {}))
            place = len(maps) - 1
        used, content = maps[place]
        maps[place] = (used + sizes[name], content | {name: files[name]})
    if len(maps) > MAX_MAPS:
        raise ConfigError(
            "a session too large for ConfigMaps",
            found=[f"{formats.format_bytes(sum(sizes.values()))} in all", *largest],
            allowed=f"up to {MAX_MAPS} of 1 MiB",
            do="use fewer stacks or indicators in one session, or smaller files with the scripts",
        )
    return [texts for _, texts in maps]


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
    labels = {
        "app.kubernetes.io/name": APP,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "measurement",
        "app.kubernetes.io/managed-by": "workbench",
        SESSION_LABEL: name,
    }
    files = build_pod_files(session, stacks, cases, options, rounds=wanted, processes=processes)
    build = partial(build_object, namespace=options.namespace, labels=labels)
    maps = [
        build("v1", "ConfigMap", f"{name}-{at}", data=content) for at, content in enumerate(pack_config_maps(files))
    ]
    dns = {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}
    policy = {
        "podSelector": {"matchLabels": {SESSION_LABEL: name}},
        # Ingress without a rule: no connections are allowed.
        "policyTypes": ["Ingress", "Egress"],
        "egress": [dns, *map(parse_egress_rule, options.egress)],
    }
    runs = sum(slot.round == 0 for slot in order_runs(session))
    # Of a round: installation, and all runs at their limits.
    deadline_s = math.ceil(options.install_s + runs * (session.run_timeout_s + 2) + GRACE_S)
    pod = _build_pod(name, session, stacks, options, [config_map["metadata"]["name"] for config_map in maps])
    annotations = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        ROUNDS: json.dumps(wanted),
    }
    job = {
        "completionMode": "Indexed",
        "completions": len(wanted),
        # One round at a time, because two pods on one node would interfere.
        "parallelism": 1,
        # A failed round is not retried automatically and does not stop the others.
        "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": deadline_s * len(wanted),
        "ttlSecondsAfterFinished": options.ttl_s,
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": pod | {"activeDeadlineSeconds": deadline_s},
        },
    }
    return [
        *maps,
        build("v1", "Secret", name, type="Opaque", stringData={KEY: key}),
        build("networking.k8s.io/v1", "NetworkPolicy", name, spec=policy),
        build("batch/v1", "Job", name, spec=job),
    ]


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
    return options.image or f"python:{session.arms[0].python_minor}-slim"


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
    """Refuse what a cluster cannot measure: blocks, unknown rounds, other platforms, several Pythons."""
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
    if len(pythons := {arm.python_minor for arm in session.arms}) > 1:
        raise ConfigError("stacks need several Python versions, but an image has one", found=sorted(pythons))


def _build_pod(
    name: str, session: Session, stacks: Sequence[Stack], options: ClusterOptions, maps: list[str]
) -> Object:
    """Specification of a pod: it installs the stacks, then measures its round as a user without rights."""
    user = pod_user_id(session.session_id)
    architecture = _ARCHITECTURES[stacks[0].platform]
    # Unpacked and compiled packages are several times the size of wheels; an unknown one counts as 1 GiB.
    downloads = {stack.key: stack.download_bytes or 1 << 30 for stack in stacks}
    estimate_bytes = (2 << 30) + 8 * sum(downloads[arm.stack_key] for arm in session.arms)
    environments = _format_size(options.environments_bytes or estimate_bytes)
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


def _format_size(count: int) -> str:
    return f"{math.ceil(count / 2**20)}Mi"


def _build_container(session: Session, options: ClusterOptions, script: str, environments: str) -> Object:
    """Fields that both containers share; `environments` is the size of the volume of stacks, such as 900Mi."""
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
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if options.pull_policy:
        container["imagePullPolicy"] = options.pull_policy
    return container


def _build_installer(session: Session, options: ClusterOptions, environments: str) -> Object:
    """The container that installs the stacks; it alone knows the package index."""
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
    """The container that measures; it alone has the signing key and the GPUs."""
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
