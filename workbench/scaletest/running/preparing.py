"""Before anything is made: is it the cluster that is meant, is all set up there, may we do what we are about to?"""

from __future__ import annotations

import asyncio

from workbench.scaletest.connection import Connection
from workbench.scaletest.planning import Plan
from workbench.scaletest.running.place import Place
from workbench.scaletest.safety import Finding, TargetFacts, confirm, preflight, refuse, setup
from workbench.scaletest.times import NS, now_ns

# Rights that were just granted are known to the API server a moment later.
_RIGHTS_LIMIT_S = 15.0
_AGAIN_S = 0.25


async def prepare(
    api: Connection, plan: Plan, place: Place, confirmed: str | None
) -> tuple[TargetFacts, list[Finding]]:
    """Confirm the cluster, set up what a local one of ours needs, look at everything else.

    Returns
    -------
    tuple
        What the cluster is, and what was found, none of it a reason not to begin.

    Raises
    ------
    ConfigError
        It must not begin, with all the reasons.
    ApiError, AwayError
        The cluster refused to be looked at, or cannot be reached.
    """
    found = await confirm(api, place.target, plan.scenario, confirmed)
    if place.admin is None:
        findings = await preflight(api, plan, found)
    else:
        await _set_up(place, plan)
        findings = await _settled(api, plan, found)
    refuse(findings)
    return found, findings


async def _set_up(place: Place, plan: Plan) -> None:
    assert place.admin is not None
    async with Connection(place.admin) as admin:
        # Without a quota: each pod would cost the API server one more write, and the cluster is for this alone.
        await setup(admin, plan, quota=False)
        for namespace in plan.namespaces:
            await _account(admin, namespace)


async def _account(admin: Connection, namespace: str) -> None:
    """Pods are refused until the controller has made the namespace's service account."""
    path, end_ns = f"/api/v1/namespaces/{namespace}/serviceaccounts/default", now_ns() + int(_RIGHTS_LIMIT_S * NS)
    while (await admin.request("GET", path)).status != 200 and now_ns() < end_ns:
        await asyncio.sleep(_AGAIN_S)


async def _settled(api: Connection, plan: Plan, found: TargetFacts) -> list[Finding]:
    """What is found once the API server knows the rights that setup has just granted."""
    end_ns = now_ns() + int(_RIGHTS_LIMIT_S * NS)
    while True:
        findings = await preflight(api, plan, found)
        if not any(one.level == "refused" for one in findings) or now_ns() > end_ns:
            return findings
        await asyncio.sleep(_AGAIN_S)
