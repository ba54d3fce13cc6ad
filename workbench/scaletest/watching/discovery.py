"""Which resources there are in a cluster: those that are always watched, those of the plan, those of its scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.errors import ConfigError
from workbench.scaletest.connection import ApiError, Connection


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource by group, version and plural name: `batch/v1/jobs`; the core group is empty (`v1/pods`)."""

    group: str
    version: str
    plural: str

    @property
    def root(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str) -> str:
        """Path of its collection in a namespace; of all without one."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.root}/{self.plural}"

    def __str__(self) -> str:
        return "/".join(filter(None, (self.group, self.version, self.plural)))


PODS, JOBS, NODES = Kind("", "v1", "pods"), Kind("batch", "v1", "jobs"), Kind("", "v1", "nodes")
CLAIMS, CONFIG_MAPS = Kind("", "v1", "persistentvolumeclaims"), Kind("", "v1", "configmaps")
EVENTS = Kind("events.k8s.io", "v1", "events")
# Groups whose scheduler makes objects of its own: (group, plural, resource as in records.Seen).
OF_SCHEDULERS = (
    ("scheduling.run.ai", "podgroups", "podgroup"),
    ("scheduling.run.ai", "bindrequests", "bindrequest"),
    ("scheduling.x-k8s.io", "podgroups", "podgroup"),
    ("scheduling.volcano.sh", "podgroups", "podgroup"),
    ("kueue.x-k8s.io", "workloads", "podgroup"),
)
# What Run:ai's operator makes of its workloads.
_RUNAI, _RUNAI_JOBS = "run.ai", "runaijobs"
_OF_RUNAI = ((_RUNAI, _RUNAI_JOBS, "job"), ("kubeflow.org", "pytorchjobs", "job"))


def kind(text: str) -> Kind:
    """A resource as it is written on a command line.

    Raises
    ------
    ConfigError
        It is none.

    Examples
    --------
    >>> kind("batch/v1/jobs"), str(kind("v1/pods"))
    (Kind(group='batch', version='v1', plural='jobs'), 'v1/pods')
    """
    parts = text.split("/")
    good = len(parts) in (2, 3) and all(part and part.replace("-", "").replace(".", "").isalnum() for part in parts)
    if not good or not text.isascii():
        raise ConfigError(
            "not a resource", where="--kind", found=text[:200], allowed="GROUP/VERSION/PLURAL, such as batch/v1/jobs"
        )
    return Kind(*parts) if len(parts) == 3 else Kind("", *parts)


def made_by_others(own: Iterable[Kind]) -> list[tuple[str, str, str]]:
    """What schedulers, and Run:ai's operator where its workloads are among our own kinds, make: as `OF_SCHEDULERS`.

    Examples
    --------
    >>> [plural for _, plural, resource in made_by_others([kind("run.ai/v2alpha1/trainingworkloads")])
    ...  if resource == "job"]
    ['runaijobs', 'pytorchjobs']
    """
    kinds = {(one.group, one.plural) for one in own}
    operated = any(group == _RUNAI and plural != _RUNAI_JOBS for group, plural in kinds)
    wanted = (*OF_SCHEDULERS, *(_OF_RUNAI if operated else ()))
    return [one for one in wanted if one[:2] not in kinds]


async def name_of(api: Connection, wanted: Kind) -> str | None:
    """The kind's name (`Job`) where the cluster has the resource; null where it has not.

    Raises
    ------
    ApiError, AwayError
        The cluster does not say.
    """
    try:
        found = await api.json("GET", wanted.root)
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    for one in found.get("resources") or []:
        if one.get("name") == wanted.plural:
            return str(one.get("kind", ""))[:100] or None
    return None


async def of_group(api: Connection, group: str, plural: str) -> tuple[Kind, str] | None:
    """A resource of a group in the newest version that has it, and its kind's name; null where there is none."""
    try:
        found = await api.json("GET", f"/apis/{group}")
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    for version in found.get("versions") or []:
        wanted = Kind(group, str(version.get("version", "")), plural)
        if name := await name_of(api, wanted):
            return wanted, name
    return None
