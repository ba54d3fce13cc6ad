"""What a local cluster is asked to be: its nodes, its schedulers, its limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import ConfigError

Scheduler = Literal["default", "kai"]
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
MOST_NODES = 20_000
MOST_GPUS = 64
_KEY = re.compile(r"[a-z][a-z0-9-]{0,80}")
_VALUE = re.compile(r"[\x20-\x7e]{0,400}")
_LIMIT = re.compile(r"(?P<component>[a-z-]{1,40})=(?P<qps>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?::(?P<burst>[0-9]{1,7}))?")
# What makes a cluster local and private, or is told in another way.
_OURS = re.compile(
    r"(bind-address|secure-port|etcd-.*|tls-.*|client-ca-.*|service-account-.*|audit-.*|authorization-mode)"
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limit(_Strict):
    """How many requests a second a component may send to the API server, and how many at once after a rest."""

    qps: float = Field(gt=0, le=1_000_000)
    burst: int = Field(ge=1, le=10_000_000)


class Pool(_Strict):
    """So many nodes with so many GPUs each."""

    nodes: int = Field(ge=0, le=MOST_NODES)
    gpus: int = Field(ge=0, le=MOST_GPUS)


# What a component limits itself to when nothing is said. Kubernetes 1.36: client-connection defaults of the two;
# KAI 0.12: the flags' defaults. etcd, kwok and the API server itself limit nothing on this side.
DEFAULT_LIMITS = {
    "kube-controller-manager": Limit(qps=20, burst=30),
    "kube-scheduler": Limit(qps=50, burst=100),
    "kai-scheduler": Limit(qps=50, burst=300),
    "kai-podgrouper": Limit(qps=50, burst=300),
    "kai-binder": Limit(qps=50, burst=300),
    "kai-podgroupcontroller": Limit(qps=50, burst=300),
    "kai-queuecontroller": Limit(qps=50, burst=300),
}
_SHORT = {"controller-manager": "kube-controller-manager", "scheduler": "kube-scheduler"}


class Settings(_Strict):
    """All that makes two clusters the same."""

    pools: tuple[Pool, ...] = (Pool(nodes=200, gpus=8),)
    scheduler: Scheduler = "default"
    client_limits: dict[str, Limit] = {}
    api_arguments: dict[str, str] = {}

    @property
    def nodes(self) -> int:
        """Nodes of all pools."""
        return sum(pool.nodes for pool in self.pools)


def checked_name(name: str) -> str:
    """The cluster's name, when it can be one: it becomes a folder, a context and a part of commands.

    Raises
    ------
    ConfigError
        Not small letters, digits and dashes, at most 40.

    Examples
    --------
    >>> checked_name("local")
    'local'
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            "not a name for a cluster",
            where="--name",
            found=repr(name[:60]),
            allowed="small letters, digits and dashes, at most 40, such as local",
        )
    return name


def checked_pools(nodes: Sequence[int], gpus: Sequence[int]) -> tuple[Pool, ...]:
    """Pools of nodes from the two lists of options, pair by pair.

    Raises
    ------
    ConfigError
        The lists do not fit together, or a number is out of range.

    Examples
    --------
    >>> checked_pools([3, 2], [4, 8])
    (Pool(nodes=3, gpus=4), Pool(nodes=2, gpus=8))
    """
    if len(nodes) != len(gpus):
        raise ConfigError(
            "each --nodes needs its --gpus",
            where="--nodes, --gpus",
            found=f"{len(nodes)} and {len(gpus)}",
            do="for two kinds of nodes: --nodes 3 --gpus 4 --nodes 2 --gpus 8",
        )
    for what, values, most in (("--nodes", nodes, MOST_NODES), ("--gpus", gpus, MOST_GPUS)):
        for value in values:
            if not 0 <= value <= most:
                raise ConfigError("out of range", where=what, found=value, allowed=f"0 to {most}")
    if sum(nodes) > MOST_NODES:
        raise ConfigError("too many nodes", where="--nodes", found=sum(nodes), allowed=f"at most {MOST_NODES} in all")
    return tuple(Pool(nodes=n, gpus=g) for n, g in zip(nodes, gpus, strict=True))


def parsed_limits(texts: Iterable[str]) -> dict[str, Limit]:
    """Client limits from `COMPONENT=QPS[:BURST]`; without a burst it is twice the rate.

    Raises
    ------
    ConfigError
        Not of that form, or a component that has no such limit.

    Examples
    --------
    >>> parsed_limits(["controller-manager=200:400"])
    {'kube-controller-manager': Limit(qps=200.0, burst=400)}
    """
    made = {}
    for text in texts:
        found = _LIMIT.fullmatch(text)
        if found is None or float(found["qps"]) <= 0 or found["burst"] in ("0", "00"):
            raise ConfigError(
                "not a client limit", where="--client-limit", found=text[:100], allowed="COMPONENT=QPS[:BURST]"
            )
        qps = float(found["qps"])
        burst = int(found["burst"]) if found["burst"] else max(1, round(2 * qps))
        made[_SHORT.get(found["component"], found["component"])] = Limit(qps=qps, burst=max(1, burst))
    return made


def checked_limits(limits: Mapping[str, Limit], scheduler: Scheduler) -> dict[str, Limit]:
    """Client limits of components that this cluster has.

    Raises
    ------
    ConfigError
        No such component.
    """
    known = [name for name in DEFAULT_LIMITS if scheduler == "kai" or not name.startswith("kai-")]
    for name in limits:
        if name not in known:
            raise ConfigError("no component with a client limit", where="--client-limit", found=name, allowed=known)
    return dict(limits)


def parsed_arguments(texts: Iterable[str]) -> dict[str, str]:
    """Arguments of the API server from `KEY=VALUE`.

    Raises
    ------
    ConfigError
        Not of that form, or one that would open the cluster to others.

    Examples
    --------
    >>> parsed_arguments(["max-mutating-requests-inflight=2"])
    {'max-mutating-requests-inflight': '2'}
    """
    made = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError("not an argument", where="--api-arg", found=text[:100], allowed="KEY=VALUE")
        made[key] = value
    return checked_arguments(made)


def checked_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Arguments of the API server that leave the cluster private.

    Raises
    ------
    ConfigError
        One that this tool sets itself.
    """
    for key, value in arguments.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError("not an argument", where="--api-arg", found=f"{key}={value}"[:100], allowed="KEY=VALUE")
        if _OURS.fullmatch(key):
            raise ConfigError(
                "this argument is set by the tool",
                where="--api-arg",
                found=key,
                do="leave it out: the cluster listens on this machine only, and keeps its audit log",
            )
    return dict(arguments)
