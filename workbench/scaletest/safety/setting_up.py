"""Setup, by an administrator, as often as one likes: server-side apply, and never a label on somebody's namespace."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from workbench.errors import ConfigError, RunFailedError
from workbench.scaletest import names
from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.planning.objects import plural_of, resource_path
from workbench.scaletest.planning.plans import Plan
from workbench.scaletest.safety import manifests
from workbench.scaletest.scenario import forbidden

FIELD_MANAGER = "workbench"
_ACCOUNT_S = 60
APPLY = "application/apply-patch+yaml"
_PLURALS = {"PriorityClass": "priorityclasses"}


async def setup(api_admin: Connection, plan: Plan, *, quota: bool = True) -> list[str]:
    """Make, or bring up to date, all that a scenario needs in the cluster; the names of what was applied.

    Parameters
    ----------
    api_admin
        An administrator's connection.
    quota
        With limits on the server. Each pod then costs the API server one more write: leave it away only on a cluster
        that is for this test alone.

    Raises
    ------
    ConfigError
        A namespace is there already that nobody labelled for tests, or is the cluster's own.
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    RunFailedError
        Its controllers do not finish a new namespace.
    """
    for space in plan.namespaces:
        await _refuse_foreign(api_admin, space)
    made = []
    for one in manifests.setup_objects(plan, quota=quota):
        made.append(await apply(api_admin, one))
    for space in plan.namespaces:
        if quota and not manifests.limited(plan.scenario):
            await _drop_limits(api_admin, space)
        await _wait_account(api_admin, space)
    return made


async def apply(api: Connection, made: dict[str, Any]) -> str:
    """Apply one object; its kind and name. What others set on it stays."""
    import orjson

    kind, about = str(made["kind"]), made["metadata"]
    plural = _PLURALS.get(kind) or plural_of(kind)
    path = resource_path(str(made["apiVersion"]), plural, about.get("namespace")) + f"/{about['name']}"
    query = {"fieldManager": FIELD_MANAGER, "force": "true"}
    answer = await api.request("PATCH", path, body=orjson.dumps(made), query=query, content_type=APPLY)
    if answer.status >= 300:
        told = answer.json()
        message = str(told.get("message", ""))[:300] if isinstance(told, dict) else ""
        found = f"{answer.status} {message}"
        raise ApiError("the cluster refused what setup makes", status=answer.status, where=path, found=found)
    return f"{kind} {about['namespace'] + '/' if about.get('namespace') else ''}{about['name']}"


async def _drop_limits(api: Connection, space: str) -> None:
    """What an earlier scenario held its containers to would change those of this one."""
    path = f"/api/v1/namespaces/{space}/limitranges/{manifests.LIMITS}"
    answer = await api.request("DELETE", path)
    if answer.status not in (200, 202, 404):
        raise ApiError("the cluster refused what setup deletes", status=answer.status, where=path, found=answer.status)


async def _wait_account(api: Connection, space: str) -> None:
    """Pods of a new namespace are refused until the controller has made its service account."""
    path = f"/api/v1/namespaces/{space}/serviceaccounts/default"
    deadline = time.monotonic() + _ACCOUNT_S
    while (await api.request("GET", path)).status == 404:
        if time.monotonic() > deadline:
            do = "see whether the cluster's controller-manager runs"
            raise RunFailedError("a new namespace gets no service account", where=f"namespace {space}", do=do)
        await asyncio.sleep(0.05)


async def _refuse_foreign(api: Connection, space: str) -> None:
    if forbidden(space):
        raise ConfigError("a namespace of the cluster's own", where=space, do="name another one in the scenario")
    answer = await api.request("GET", f"/api/v1/namespaces/{space}")
    if answer.status == 404:
        return
    labels = ((answer.json().get("metadata") or {}).get("labels") or {}) if answer.status == 200 else {}
    if labels.get(names.ALLOW) != "true" and labels.get(names.MANAGED_BY) != names.MANAGER:
        raise ConfigError(
            "the namespace is there already, and was not made for tests",
            where=f"namespace {space}",
            found=f"no label {names.ALLOW}=true (status {answer.status})",
            do=f"name another one, or, if it may be tested in: kubectl label namespace {space} {names.ALLOW}=true",
        )
