"""What a session's pods get: options of the cluster, and ConfigMaps with runner, plan, scripts and locks."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from workbench.core import formats, redaction
from workbench.core.errors import ConfigError
from workbench.core.schema import FiniteModel, validate_model
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.pod import ROUNDS_A_FILE
from workbench.indicators.measurement.launcher_client import (
    STDERR_BYTES,
    STDOUT_BYTES,
    RunLimits,
    build_clean_environment,
)
from workbench.indicators.measurement.session_plan import PreparedCase, order_runs
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store.archive import Session

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
IMAGE = re.compile(r"[a-zA-Z0-9][A-Za-z0-9._/:-]{0,300}(@sha256:[0-9a-f]{64})?")
RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SECRET_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[-._a-zA-Z0-9]{1,253}")
TOLERATION = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")


MiB = 1 << 20
MAX_BYTES = 1 << 20
"""Of a ConfigMap, keys and texts together: what Kubernetes takes."""
MAX_MAPS = 16
_SPARE_BYTES = 16 << 10
PARTS = ("pod.py", "pod_install.py")


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
    gpu_resource: Annotated[str, _match_pattern(RESOURCE, "domain/name")] = Field(
        "nvidia.com/gpu", description="What a GPU is called."
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
    pull_secret: DnsLabel | None = Field(None, description="Secret that is there, for the image's registry.")
    egress: Annotated[tuple[str, ...], _check_each(parse_egress_rule)] = Field(
        ("443",), description="Where the pod may connect to beside DNS: PORT or NETWORK:PORT, TCP."
    )
    index_url: Annotated[str, AfterValidator(_check_index_url)] | None = Field(
        None, description="Package index for the pods."
    )
    index_secret: Annotated[str, _match_pattern(SECRET_KEY, "NAME/KEY")] | None = Field(
        None, description="NAME/KEY of a Secret that is there and holds the index's URL."
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
    prepared = _match_cases_to_session(session, cases)
    files = {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in PARTS}
    texts = [(name, text) for case in prepared for name, text in case.sources.items()]
    files |= {_source_key(text): text for _, text in texts}
    locks = {arm.stack_key: f"lock-{by_key[arm.stack_key].lock_sha256[:16]}.txt" for arm in session.arms}
    files |= {name: by_key[key].lock for key, name in locks.items()}
    files |= _build_round_orders(session, [case.label for case in session.cases], [arm.name for arm in session.arms])
    limits = RunLimits(memory_bytes=None if options.gpus else session.memory_bytes, processes=processes)
    plan = {
        **_build_plan(session, options, limits),
        "rounds": list(rounds),
        "cases": [_build_case(session, case) for case in prepared],
        "environments": [
            {
                "stack": arm.name,
                "python": ".".join(arm.python.split(".")[:2]),
                "lock": locks[arm.stack_key],
                "packages": by_key[arm.stack_key].versions,
            }
            for arm in session.arms
        ],
    }
    files["plan.json"] = json.dumps(plan, indent=1, sort_keys=True) + "\n"
    return files


def _build_plan(session: Session, options: ClusterOptions, limits: RunLimits) -> dict[str, Any]:
    """What holds for all runs of all rounds."""
    return {
        "arms": [{"name": arm.name, "environment": number} for number, arm in enumerate(session.arms)],
        "threads": session.run_threads,
        "cpus": count_pod_cores(session, options),
        "gpus": options.gpus,
        "timeout_s": session.run_timeout_s,
        "stdout_bytes": STDOUT_BYTES,
        "stderr_bytes": STDERR_BYTES,
        "isolation": _describe_isolation(options, limits),
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "cpu_s": int(session.run_timeout_s * session.run_threads) + 1,
        },
    }


def count_pod_cores(session: Session, options: ClusterOptions) -> int:
    """Whole cores of a pod: one beside the threads, so that the runner never slows a run."""
    return options.cpus or session.run_threads + 1


def _match_cases_to_session(session: Session, cases: Sequence[Case]) -> list[PreparedCase]:
    by_label = {case.label: case for case in cases}
    prepared_cases = []
    for planned in session.cases:
        if planned.label not in by_label:
            raise ConfigError(
                "a case of the session is not given", where=planned.label, allowed=list(by_label) or "none"
            )
        prepared_case = PreparedCase.from_case(by_label[planned.label])
        if prepared_case.version != planned.indicator_version:
            raise ConfigError(
                "the indicator has changed since the session was planned",
                where=planned.label,
                found=f"version {prepared_case.version}",
                allowed=planned.indicator_version,
                do="begin a new session: values of two versions are not compared",
            )
        prepared_cases.append(prepared_case)
    return prepared_cases


def _build_case(session: Session, prepared: PreparedCase) -> dict[str, Any]:
    return {
        "label": prepared.case.label,
        "sources": {name: _source_key(text) for name, text in prepared.sources.items()},
        "environment": build_clean_environment(session.run_threads, prepared.environment),
    }


def _source_key(text: str) -> str:
    """One name for one text: indicators share files."""
    return f"source-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"


def _build_round_orders(session: Session, cases: list[str], arms: list[str]) -> dict[str, str]:
    """Each round's runs as (position, case, arm), by numbers; a file for so many rounds."""
    orders: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for slot in order_runs(session):
        of_round = orders.setdefault(f"order-{slot.round // ROUNDS_A_FILE}.json", {}).setdefault(str(slot.round), [])
        of_round.append((slot.position, cases.index(slot.case), arms.index(slot.arm)))
    return {name: json.dumps(rounds, separators=(",", ":")) + "\n" for name, rounds in orders.items()}


def _describe_isolation(options: ClusterOptions, limits: RunLimits) -> dict[str, str]:
    """What is in force for a run, in words; the pod says itself whether it could leave the network."""
    allowed = ", ".join(["DNS", *(f"TCP {text}" for text in options.egress)])
    memory = "no limit but the pod's"
    if limits.memory_bytes is not None:
        memory = f"at most {limits.memory_bytes / 2**30:.3g} GiB (data of each process)"
    return {
        "network": "not isolated",
        "network reason": f"a NetworkPolicy asks for {allowed} alone, for the whole pod",
        "memory": memory,
        "processes": f"at most {limits.processes} (of the user)",
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
            do="fewer stacks or indicators in one session, or smaller files beside the scripts",
        )
    return [texts for _, texts in maps]
