"""The stock control plane, started by kwokctl without containers: configuration, health and component facts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from workbench.core.errors import InputError, RunFailedError
from workbench.core.files import cache_folder
from workbench.scaletest.local_cluster import component_processes
from workbench.scaletest.local_cluster.cluster_record import (
    DEFAULT_LIMITS,
    NATIVE_GANGS_API,
    ClientLimit,
    ClusterPart,
    ClusterSettings,
    StartDelay,
)
from workbench.scaletest.local_cluster.program_builds import BUILD, Binaries
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.scenario.workload_objects import DELAY

POD_STAGE, START_STAGE = "pod-complete", "pod-ready"
_DELAY_FIELD = f'.metadata.annotations["{DELAY}"]'
COMPONENT_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
"""
_DOWNLOAD_S = 900  # a kwokctl of the user's fetches its programs itself

# Rotated by the API server itself: at most a GiB of it.
_AUDIT_MIB, _AUDIT_OLD = 256, 3
_POLL_S, _GONE_POLLS = 0.1, 5


def add_lifetime_stage(configuration: str, *, start_delay: StartDelay | None = None, where: str = "kwok.yaml") -> str:
    """Change kwok's configuration so that a running pod ends after the time in its annotation, and never without one.

    `configuration`: Written by kwokctl for the kwok controller, which reads it at start.
    """
    try:
        documents = [document for document in yaml.safe_load_all(configuration) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("not a configuration of kwok", where=where, found=str(error)[:120]) from None
    if start_delay is not None:
        bounds = (round(1000 * start_delay.least_s), round(1000 * start_delay.most_s))
        names = ("durationMilliseconds", "jitterDurationMilliseconds")
        _find_stage(documents, START_STAGE, where)["delay"] = dict(zip(names, bounds, strict=True))
    spec = _find_stage(documents, POD_STAGE, where)
    spec["selector"] = {
        "matchExpressions": [
            {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
            {"key": ".status.phase", "operator": "In", "values": ["Running"]},
            {"key": _DELAY_FIELD, "operator": "Exists"},
        ]
    }
    spec["delay"] = {"durationFrom": {"expressionFrom": _DELAY_FIELD}}
    return yaml.safe_dump_all(documents, sort_keys=False)


def _find_stage(documents: list[Any], name: str, where: str) -> dict[str, Any]:
    """Return the specification of the one stage of this name."""
    stages = [
        document
        for document in documents
        if isinstance(document, dict)
        and document.get("kind") == "Stage"
        and (document.get("metadata") or {}).get("name") == name
        and isinstance(document.get("spec"), dict)
    ]
    if len(stages) != 1:
        raise InputError(f"not one stage {name} in kwok's configuration", where=where, found=len(stages))
    spec: dict[str, Any] = stages[0]["spec"]
    return spec


class PortTakenError(RunFailedError):
    """Another process took one of our ports before it was used."""


def find_workdir(folder: Path, name: str) -> Path:
    """Folder of a cluster of kwokctl."""
    return folder / "kwok" / "clusters" / name


def find_audit_log(folder: Path, name: str) -> Path:
    """Path of the API server's audit log: one JSON document per request, at level Metadata."""
    return find_workdir(folder, name) / "logs" / "audit.log"


def create_control_plane(
    folder: Path, name: str, settings: ClusterSettings, binaries: Binaries, *, timeout_s: float
) -> tuple[ClusterPart, ...]:
    """Start etcd, the API server, the controller-manager, the scheduler and kwok, and wait until they are healthy."""
    numbers = dict(
        zip((*COMPONENT_NAMES, "peer"), component_processes.find_free_ports(len(COMPONENT_NAMES) + 1), strict=True)
    )
    policy = folder / "audit-policy.yaml"
    policy.write_text(_AUDIT_POLICY, encoding="utf-8")
    config = folder / "kwokctl.json"
    config.write_text(
        json.dumps(_build_kwokctl_config(settings, binaries, numbers, policy), indent=1), encoding="utf-8"
    )
    limit_s = _DOWNLOAD_S if binaries.provider == "kwokctl" else timeout_s
    do = f"{BUILD}, then up with --provider built" if binaries.provider == "kwokctl" else None
    _run_kwokctl(folder, name, binaries.kwokctl, config, limit_s, do)
    _set_pod_stages(folder, name, settings.start_delay)
    parts = _build_parts(folder, name, numbers)
    # Once more what has ended: the controller-manager waits only 10 s for the API server.
    ended = _list_kwokctl_components(folder, name) - set(component_processes.find_processes(folder))
    for part in parts:
        if part.name in ended and part.command:
            log = find_log(folder, part.name)
            component_processes.start_component(folder, part.command, log, environment=part.environment)
    wait_until_healthy(folder, parts, timeout_s=timeout_s)
    return parts


def _build_kwokctl_config(
    settings: ClusterSettings, binaries: Binaries, numbers: Mapping[str, int], policy: Path
) -> dict[str, Any]:
    """Build the configuration of kwokctl.

    `numbers` maps a component to its port, `policy` is the audit policy's file.
    """
    programs = {
        "etcdBinary": "etcd",
        "kubeApiserverBinary": "kube-apiserver",
        "kubeControllerManagerBinary": "kube-controller-manager",
        "kubeSchedulerBinary": "kube-scheduler",
        "kwokControllerBinary": "kwok",
        "kubectlBinary": "kubectl",
    }
    audit = {"audit-log-maxsize": str(_AUDIT_MIB), "audit-log-maxbackup": str(_AUDIT_OLD)}
    api = dict(settings.api_arguments)
    if settings.native_gangs:
        api["runtime-config"] = ",".join(filter(None, (api.get("runtime-config"), NATIVE_GANGS_API)))
    extra = {"kube-apiserver": {**audit, **api}, "kube-scheduler": dict(settings.scheduler_arguments)}
    for component, limit in settings.client_limits.items():
        if component in COMPONENT_NAMES:
            limits = {"kube-api-qps": f"{limit.qps:g}", "kube-api-burst": str(limit.burst)}
            extra[component] = extra.get(component, {}) | limits
    if settings.feature_gates:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(settings.feature_gates.items()))
        for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            extra[component] = extra.get(component, {}) | {"feature-gates": gates}
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "cacheDir": str(cache_folder().absolute() / "scaletest" / "kwok"),
            "bindAddress": component_processes.LOOPBACK,
            "etcdPort": numbers["etcd"],
            "etcdPeerPort": numbers["peer"],
            "kubeApiserverPort": numbers["kube-apiserver"],
            "kubeControllerManagerPort": numbers["kube-controller-manager"],
            "kubeSchedulerPort": numbers["kube-scheduler"],
            "kwokControllerPort": numbers["kwok-controller"],
            "kubeAuditPolicy": str(policy),
            **{
                key: str(binaries.programs[program])
                for key, program in programs.items()
                if program in binaries.programs
            },
        },
        "componentsPatches": [
            {"name": component, "extraArgs": [{"key": key, "value": value} for key, value in arguments.items()]}
            for component, arguments in extra.items()
        ],
    }


def _run_kwokctl(folder: Path, name: str, kwokctl: Path, config: Path, limit_s: float, do: str | None) -> None:
    log = folder / "kwokctl.log"
    # Through a link below our folder, so that it is found and ended with all else when we are killed.
    link = folder / "kwokctl"
    link.unlink(missing_ok=True)
    link.symlink_to(kwokctl.absolute())
    command = [str(link), "--config", str(config), "--name", name, "create", "cluster"]
    command += ["--kubeconfig", str(folder / "kwok.kubeconfig")]
    # KWOK_ variables would override the file; keep only those that name a user's mirrors of programs.
    suffixes = ("_PREFIX", "_BINARY", "_VERSION")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("KWOK_") or key.endswith(suffixes)
    }
    environment |= {"KWOK_WORKDIR": str(folder / "kwok"), component_processes.MARK: str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
        )
        try:
            _wait_for_kwokctl(process, folder, name, time.monotonic() + limit_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    (folder / "kwok.kubeconfig").unlink(missing_ok=True)  # replaced by a kubeconfig with the workbench's context names
    if process.returncode != 0:
        gave_up = process.returncode < 0
        # The error with the end of the log of what failed: a component that is not there, else kwokctl.
        started = _list_kwokctl_components(folder, name)
        names = [
            component
            for component in COMPONENT_NAMES
            if component in started - set(component_processes.find_processes(folder))
        ]
        if not names and gave_up and "kube-apiserver" in started:
            names = ["kube-apiserver"]  # it is what kwokctl waits for
        logs = [find_log(folder, component) for component in names]
        texts = {log.stem: component_processes.read_last_lines(log) for log in (*logs, folder / "kwokctl.log")}
        log_end = next(((stem, text) for stem, text in texts.items() if text), ("kwokctl", "it said nothing"))
        kind = PortTakenError if any("address already in use" in text for text in texts.values()) else RunFailedError
        raise kind(
            "the control plane did not start", where=log_end[0], found=f"the end of its log:\n    {log_end[1]}", do=do
        )


def _wait_for_kwokctl(process: subprocess.Popen[bytes], folder: Path, name: str, deadline: float) -> None:
    """Wait for kwokctl, or until etcd or the API server has ended: kwokctl would wait two more minutes."""
    missing: dict[str, int] = {}
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        gone = _list_kwokctl_components(folder, name) - set(component_processes.find_processes(folder))
        missing = {
            component: missing.get(component, 0) + 1 for component in gone if component in ("etcd", "kube-apiserver")
        }
        if any(count >= _GONE_POLLS for count in missing.values()):
            return


def _set_pod_stages(folder: Path, name: str, start_delay: StartDelay | None) -> None:
    """Stages that end pods after their lifetime; kwokctl's own end a Job's pods immediately. kwok reads them at start.

    Before there are nodes: a kwok that is started again later leaves them to the leases of the one before.
    """
    path = find_workdir(folder, name) / "kwok.yaml"
    # A user's own kwokctl may have other stages: its pods then live as it says, but start as they were asked to.
    with contextlib.suppress(*(() if start_delay else (InputError,))):
        text = add_lifetime_stage(path.read_text(encoding="utf-8"), start_delay=start_delay, where=str(path))
        path.write_text(text, encoding="utf-8")
        component_processes.end_processes(component_processes.find_processes(folder).get("kwok-controller", []))


def _list_kwokctl_components(folder: Path, name: str) -> set[str]:
    """Components that kwokctl has started, by its pid files; they may have ended since."""
    return {path.stem for path in find_workdir(folder, name).glob("pids/*.pid")}


def _read_components(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Read kwokctl's configuration of each component."""
    try:
        with (find_workdir(folder, name) / "kwok.yaml").open(encoding="utf-8") as file:
            first = next(iter(yaml.safe_load_all(file)))
        return {str(component["name"]): component for component in first["components"]}
    except (OSError, yaml.YAMLError, StopIteration, KeyError, TypeError):
        return {}


def _build_parts(folder: Path, name: str, numbers: Mapping[str, int]) -> tuple[ClusterPart, ...]:
    """List the cluster's components with their commands and health URLs; `numbers` maps a component to its port."""
    paths = {"kube-apiserver": "https /readyz", "etcd": "http /health", "kwok-controller": "http /healthz"}
    components = _read_components(folder, name)
    parts = []
    for component in COMPONENT_NAMES:
        scheme, path = paths.get(component, "https /healthz").split()
        found = components.get(component, {})
        command = (str(found["binary"]), *map(str, found["args"])) if found else ()
        environment = {str(variable["name"]): str(variable["value"]) for variable in found.get("envs") or []}
        health = f"{scheme}://{component_processes.LOOPBACK}:{numbers[component]}{path}"
        parts.append(ClusterPart(name=component, command=command, health=health, environment=environment))
    return tuple(parts)


def wait_until_healthy(folder: Path, parts: tuple[ClusterPart, ...], *, timeout_s: float) -> None:
    """Wait until every component is healthy."""
    deadline = time.monotonic() + timeout_s
    for part in parts:
        gone = 0
        # Check the process too: another program may answer on its port.
        while not (
            (alive := part.name in component_processes.find_processes(folder))
            and component_processes.is_healthy(part.health)
        ):
            gone = 0 if alive else gone + 1
            if gone >= _GONE_POLLS or time.monotonic() > deadline:
                text = component_processes.read_last_lines(find_log(folder, part.name)) or "it said nothing"
                message = "a component ended" if gone else "a component is not healthy"
                kind = PortTakenError if "address already in use" in text else RunFailedError
                raise kind(message, where=part.name, found=f"the end of its log:\n    {text}")
            time.sleep(_POLL_S)


def find_log(folder: Path, part: str) -> Path:
    """Find where a part writes its log; ours for parts that kwokctl does not know."""
    log = next(folder.glob(f"kwok/clusters/*/logs/{part}.log"), None)
    return log or folder / "logs" / f"{part}.log"


def list_metrics(parts: Sequence[ClusterPart]) -> dict[str, str]:
    """URL of the metrics of each part that decides or limits something; the API server's are read by its clients."""
    urls = {}
    for part in parts:
        if part.name not in ("kube-apiserver", "etcd", "kwok-controller", "kueue"):
            metrics = next((word for word in part.command if word.startswith("--metrics-bind-address=")), None)
            health_url = urlsplit(part.health)
            place = health_url.netloc if metrics is None else metrics.partition("=")[2]
            urls[part.name] = f"{health_url.scheme if metrics is None else 'http'}://{place}/metrics"
    return urls


def read_versions(folder: Path, name: str) -> dict[str, str | None]:
    """Version of each component, as kwokctl read it from the program."""
    return {
        key: str(component["version"])
        for key, component in _read_components(folder, name).items()
        if component.get("version")
    }


def describe_component(
    part: ClusterPart, folder: Path, version: str | None, limit: ClientLimit | None = None
) -> Component:
    """Describe a part by its command line: client limit (else the given one), and differences from defaults."""
    flags = dict(word.lstrip("-").split("=", 1) for word in part.command[1:] if word.startswith("-") and "=" in word)
    qps, burst = (flags.get("kube-api-qps", flags.get("qps")), flags.get("kube-api-burst", flags.get("burst")))
    default = limit or DEFAULT_LIMITS.get(part.name)
    # Addresses and paths differ from cluster to cluster, and change nothing.
    own_names = ("name", "initial-cluster", "node-ip", "node-name", "service-account-issuer")
    here = {
        key: value
        for key, value in flags.items()
        if str(folder) not in value
        and key not in own_names
        and not key.endswith(("-address", "-port", "-urls", "-servers"))
    }
    return Component(
        name=part.name,
        version=version,
        client_qps=float(qps) if qps else default.qps if default else None,
        client_burst=int(burst) if burst else default.burst if default else None,
        arguments=here,
    )
