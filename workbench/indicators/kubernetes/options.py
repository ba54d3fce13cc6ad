"""What a cluster is asked for: image, place, sizes, network. Checked before anything is written or submitted."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench import redaction
from workbench.errors import ConfigError

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
IMAGE = re.compile(r"[a-zA-Z0-9][A-Za-z0-9._/:-]{0,300}(@sha256:[0-9a-f]{64})?")
RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SECRET_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[-._a-zA-Z0-9]{1,253}")
TOLERATION = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")


def _like(pattern: re.Pattern[str], allowed: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{allowed}, not {value[:80]!r}")
        return value

    return AfterValidator(check)


def _each(check: Callable[[str], Any]) -> AfterValidator:
    def checked(values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            check(value)
        return values

    return AfterValidator(checked)


def toleration(text: str) -> dict[str, str]:
    """`KEY`, `KEY=VALUE`, either with `:EFFECT`, as the object that a pod has.

    Examples
    --------
    >>> toleration("nvidia.com/gpu:NoSchedule")
    {'key': 'nvidia.com/gpu', 'operator': 'Exists', 'effect': 'NoSchedule'}
    """
    found = TOLERATION.fullmatch(text)
    if found is None or not LABEL_NAME.fullmatch(found["key"]) or not LABEL_VALUE.fullmatch(found["value"] or ""):
        raise ValueError(f"KEY, KEY=VALUE or KEY=VALUE:NoSchedule, not {text[:80]!r}")
    operator = {"operator": "Exists"} if found["value"] is None else {"operator": "Equal", "value": found["value"]}
    return {"key": found["key"], **operator, **({"effect": found["effect"]} if found["effect"] else {})}


def egress_rule(text: str) -> dict[str, Any]:
    """`PORT` or `NETWORK:PORT` (also `[NETWORK]:PORT`), as a rule of a NetworkPolicy for TCP.

    Examples
    --------
    >>> egress_rule("10.1.0.0/16:3141")["to"]
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


def _index(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s\x00-\x1f]{1,2000}", value):
        raise ValueError("an http or https URL")
    if redaction.holds_user_info(value) or "?" in value:
        raise ValueError("a URL without user, password or query; put one that has them into a Secret: index_secret")
    return value


def _labels(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in value.items():
        if not LABEL_NAME.fullmatch(name) or not LABEL_VALUE.fullmatch(text):
            raise ValueError(f"LABEL=VALUE, not {name[:80]}={text[:80]}")
    return value


DnsLabel = Annotated[str, _like(LABEL, "lower-case letters, digits and -, at most 63")]
MiB = 1 << 20


class ClusterOptions(BaseModel):
    """How a session is run on a cluster, by the names of the options. Sizes are in bytes, times in seconds.

    Examples
    --------
    >>> ClusterOptions(node_selector={"nvidia.com/gpu.product": "A100"}, gpus=1).cpus is None
    True
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    image: Annotated[str, _like(IMAGE, "an image, such as python:3.11-slim")] | None = Field(
        None, description="Image of the pods, with Python and pip or uv; a plain Python image by default."
    )
    namespace: DnsLabel = Field("default", description="Namespace; it must be there.")
    node_selector: Annotated[dict[str, str], AfterValidator(_labels)] = Field({}, description="Labels of the node.")
    tolerations: Annotated[tuple[str, ...], _each(toleration)] = Field((), description="KEY[=VALUE][:EFFECT].")
    gpus: Annotated[int, Field(ge=0, le=64)] = Field(0, description="GPUs of a pod.")
    gpu_resource: Annotated[str, _like(RESOURCE, "domain/name")] = Field(
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
    egress: Annotated[tuple[str, ...], _each(egress_rule)] = Field(
        ("443",), description="Where the pod may connect to beside DNS: PORT or NETWORK:PORT, TCP."
    )
    index_url: Annotated[str, AfterValidator(_index)] | None = Field(None, description="Package index for the pods.")
    index_secret: Annotated[str, _like(SECRET_KEY, "NAME/KEY")] | None = Field(
        None, description="NAME/KEY of a Secret that is there and holds the index's URL."
    )
    install_s: Annotated[int, Field(ge=10, le=86_400)] = Field(1800, description="Time to install, a round.")
    ttl_s: Annotated[int, Field(ge=0, le=30 * 86_400)] = Field(
        86_400, description="Time after which the cluster deletes a finished session."
    )

    @model_validator(mode="after")
    def _one_index(self) -> Self:
        if self.index_url and self.index_secret:
            raise ValueError("index_url and index_secret: one of them")
        return self


def cluster_options(**given: Any) -> ClusterOptions:
    """The options of these settings; those that are null are left to their defaults.

    Raises
    ------
    ConfigError
        A name is unknown, or a value out of bounds: all of them in one error.
    """
    try:
        return ClusterOptions(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        # Without the values: a URL may hold what nobody should see.
        found = [
            f"{'.'.join(map(str, one['loc'][:1]))}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(
            "no cluster can be asked for that", found=[text.removeprefix(": ")[:300] for text in found[:10]]
        ) from None


def options_of(texts: Iterable[str]) -> ClusterOptions:
    """The options of `KEY=VALUE` texts, as a command line has them; keys that hold several are repeated.

    Raises
    ------
    ConfigError
        A text is not of this form, a key that holds one value comes twice, or what `cluster_options` refuses.

    Examples
    --------
    >>> options_of(["gpus=1", "node-selector=nvidia.com/gpu.product=A100", "toleration=spot"]).node_selector
    {'nvidia.com/gpu.product': 'A100'}
    """
    given: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or not name:
            raise ConfigError("not an option of a cluster", found=text[:80], allowed="KEY=VALUE, such as gpus=1")
        if name == "node_selector":
            label, _, wanted = value.partition("=")
            given.setdefault(name, {})[label] = wanted
        elif name in ("toleration", "tolerations", "egress"):
            plural = "egress" if name == "egress" else "tolerations"
            given[plural] = (*given.get(plural, ()), value)
        elif name in given:
            raise ConfigError("an option twice", found=key[:80])
        else:
            given[name] = value
    return cluster_options(**given)
