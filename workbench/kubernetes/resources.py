"""Resources of the Kubernetes API: their groups, versions and plural names, and the paths of their collections."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class ApiResource:
    """A resource by group, version and plural name: `batch/v1/jobs`; the core group is empty (`v1/pods`)."""

    group: str
    version: str
    plural: str

    @property
    def root(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "") -> str:
        """Path of its collection in a namespace; of all without one."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.root}/{self.plural}"

    def __str__(self) -> str:
        return "/".join(filter(None, (self.group, self.version, self.plural)))


def find_resource(api_version: str, kind: str, plural: str | None = None) -> ApiResource:
    """The resource of a kind; its plural is the given one, or follows from the kind.

    >>> str(find_resource("v1", "Pod")), str(find_resource("scheduling.k8s.io/v1", "PriorityClass"))
    ('v1/pods', 'scheduling.k8s.io/v1/priorityclasses')
    >>> find_resource("networking.k8s.io/v1", "NetworkPolicy").path("a")
    '/apis/networking.k8s.io/v1/namespaces/a/networkpolicies'
    """
    group, _, version = api_version.rpartition("/")
    if plural is None:
        plural = re.sub(r"(?<=[^aeiou])y$", "ie", kind.lower())
        plural += "es" if plural.endswith("s") else "s"
    return ApiResource(group, version, plural)
