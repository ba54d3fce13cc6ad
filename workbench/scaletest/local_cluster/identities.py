"""Two identities of a local cluster: its administrator, and one for measuring that the API server may throttle."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from workbench.kubernetes.manifests import RBAC, Object, build_object
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.safety.cluster_setup import OURS, ROLE, build_role_objects

NAMESPACE, ACCOUNT = api_discovery.SYSTEM_NAMESPACE, api_discovery.MEASURING_ACCOUNT
_TOKEN_S = 365 * 24 * 3600


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
    look = ["get", "list", "watch"]
    rules: list[Object] = [
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": look},
        {"apiGroups": [""], "resources": ["pods"], "verbs": look},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    objects = [
        build_object("v1", "Namespace", NAMESPACE, labels=OURS),
        build_object("v1", "ServiceAccount", ACCOUNT, NAMESPACE, OURS),
        *build_role_objects(ROLE, rules),
    ]
    return await _create_account(api, ACCOUNT, objects, "the measuring identity was refused")


async def create_component_account(api: Connection, name: str) -> str:
    """An account with an administrator's rights for a component of a local cluster, by whose name it is audited."""
    objects = [
        build_object("v1", "ServiceAccount", name, NAMESPACE, OURS),
        build_object(
            f"{RBAC}/v1",
            "ClusterRoleBinding",
            f"workbench-{name}",
            labels=OURS,
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        ),
    ]
    return await _create_account(api, name, objects, "a component's account was refused")


async def _create_account(api: Connection, name: str, objects: list[Object], refusal: str) -> str:
    """Make the objects of an account; its token."""
    for manifest in objects:
        await api.create_object(manifest, refusal=refusal)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_S}}
    return str((await api.json("POST", path, wanted))["status"]["token"])
