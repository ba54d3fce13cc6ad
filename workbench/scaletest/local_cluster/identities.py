"""Two identities of a local cluster: its administrator, and one for measuring that the API server may throttle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import yaml

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection

NAMESPACE, ACCOUNT, ROLE = api_discovery.SYSTEM_NAMESPACE, api_discovery.MEASURING_ACCOUNT, "workbench-measure"
_ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
_TOKEN_S = 365 * 24 * 3600
Json = dict[str, Any]


def admin_context(cluster: str) -> str:
    """Name of the administrator's context."""
    return f"workbench-{cluster}"


def measure_context(cluster: str) -> str:
    """Name of the measuring identity's context."""
    return f"workbench-{cluster}-measure"


def write_kubeconfig(path: Path, *, server: str, authority: Path, context: str, user: dict[str, str]) -> None:
    """A kubeconfig of one context, readable by its owner only from its first byte on."""
    text = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": context, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        },
        sort_keys=False,
    )
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)


async def create_measuring_identity(api: Connection) -> str:
    """Make the measuring identity; its token.

    It may see the nodes, the pods of everybody, and the namespace whose uid identifies the cluster. What it may do in
    the namespaces of a test is granted there.
    """
    return await _create_account(api, ACCOUNT, _build_identity_objects(), "the measuring identity was refused")


async def create_component_account(api: Connection, name: str) -> str:
    """An account with an administrator's rights for a component of a local cluster, by whose name it is audited."""
    rbac, labels = "rbac.authorization.k8s.io", {api_discovery.MANAGED_BY: api_discovery.MANAGER}
    binding = {
        "metadata": {"name": f"workbench-{name}", "labels": labels},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    objects: list[tuple[str, Json]] = [
        (_ACCOUNTS, {"metadata": {"name": name, "labels": labels}}),
        (f"/apis/{rbac}/v1/clusterrolebindings", binding),
    ]
    return await _create_account(api, name, objects, "a component's account was refused")


async def _create_account(api: Connection, name: str, objects: list[tuple[str, Json]], refusal: str) -> str:
    """Make the objects of an account; its token."""
    for path, body in objects:
        answer = await api.request("POST", path, body=orjson.dumps(body))
        if answer.status not in (201, 409):
            raise RunFailedError(refusal, where=path, found=answer.status)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_S}}
    return str((await api.json("POST", f"{_ACCOUNTS}/{name}/token", wanted))["status"]["token"])


def _build_identity_objects() -> list[tuple[str, dict[str, Any]]]:
    """Objects of the measuring identity, in order of creation: pairs of API path and manifest."""
    labels = {api_discovery.MANAGED_BY: api_discovery.MANAGER}
    rbac = "rbac.authorization.k8s.io"
    return [
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}}),
        (_ACCOUNTS, {"metadata": {"name": ACCOUNT, "labels": labels}}),
        (
            f"/apis/{rbac}/v1/clusterroles",
            {
                "metadata": {"name": ROLE, "labels": labels},
                "rules": [
                    {
                        "apiGroups": [""],
                        "resources": ["namespaces"],
                        "resourceNames": ["kube-system"],
                        "verbs": ["get"],
                    },
                    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
                    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
                ],
            },
        ),
        (
            f"/apis/{rbac}/v1/clusterrolebindings",
            {
                "metadata": {"name": ROLE, "labels": labels},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": ROLE},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            },
        ),
    ]
