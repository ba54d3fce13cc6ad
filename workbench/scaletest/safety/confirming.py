"""Was this cluster meant? A test on the wrong one is an outage.

A cluster is known by its fingerprint, a short hash of the uid of its namespace kube-system: unlike a context's name or
a server's address, it cannot be another cluster's. It is typed once; then it stands in a file of the user's.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import files
from workbench.errors import ConfigError, InputError
from workbench.scaletest.connection import Connection, Target
from workbench.scaletest.safety import fence
from workbench.scaletest.safety.findings import Finding, refuse
from workbench.scaletest.safety.looking import TargetFacts, look
from workbench.scaletest.scenario import Scenario

MASTERS = "system:masters"
_FILE = "scaletest-clusters.json"
_MOST_BYTES = 1 << 20


def default_allow_file() -> Path:
    """The user's file of clusters that were confirmed."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "workbench" / _FILE


async def confirm(
    api: Connection,
    target: Target,
    scenario: Scenario | None,
    confirmed: str | None = None,
    *,
    allow_file: Path | None = None,
) -> TargetFacts:
    """Look at the cluster, and go on only if it is the one that is meant and may be tested.

    A local cluster of our own needs no confirmation. Any other needs its fingerprint: as `confirmed` on first use, from
    the user's file after that.

    Parameters
    ----------
    scenario
        What is to be tested; null for an administrator's work, which asks for the right cluster only.
    confirmed
        Fingerprint, as somebody typed it.
    allow_file
        File of the clusters that were confirmed; the user's own without.

    Raises
    ------
    ConfigError
        Not confirmed, confirmed as another cluster, or an identity or a fence that makes a test unsafe.
    """
    found = await look(api, target)
    file = allow_file or default_allow_file()
    if found.own is None or confirmed is not None:
        _refuse_unconfirmed(found, confirmed, file)
    if scenario is not None:
        refuse([*identity_findings(found), *fence.findings(scenario, found)])
    if found.own is None and confirmed is not None:
        _remember(found, file)
    return found


def identity_findings(found: TargetFacts) -> list[Finding]:
    """Is this an identity to measure with?"""
    if MASTERS not in found.groups:
        return [Finding("ok", "identity", f"{found.identity}, which the API server may hold back")]
    if found.own is not None:
        told = "an administrator (system:masters) is never throttled: figures of the API server are better than true"
        return [Finding("warning", "identity", told, "measure with the cluster's own measuring identity")]
    return [
        Finding(
            "refused",
            "identity",
            f"{found.identity} is in group {MASTERS}: the API server never throttles it, nothing protects the cluster",
            "measure with the service account that `workbench scaletest plan SCENARIO --rbac` prints",
        )
    ]


def is_confirmed(found: TargetFacts, allow_file: Path | None = None) -> bool:
    """Was this cluster confirmed before, by this user?"""
    return found.fingerprint in _remembered(allow_file or default_allow_file())


def _refuse_unconfirmed(found: TargetFacts, confirmed: str | None, file: Path) -> None:
    if confirmed is not None:
        if confirmed.strip().lower() != found.fingerprint:
            raise ConfigError(
                "this is another cluster than the confirmed one",
                where=f"context {found.context}",
                found=f"fingerprint {found.fingerprint}",
                allowed=confirmed[:40],
                do="look which cluster the context means; nothing was sent",
            )
        return
    if found.fingerprint in _remembered(file):
        return
    raise ConfigError(
        "a cluster that was not tested before must be confirmed",
        where=f"context {found.context}",
        found="".join(f"\n    {line}" for line in found.lines()),
        do=f"if that is the cluster you mean, add --confirm {found.fingerprint} (in notebooks: confirm=…)",
    )


def _remembered(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(files.read_bounded(file, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError("cannot read the list of confirmed clusters", where=file, found=str(error)[:120]) from None
    if not isinstance(found, dict) or not isinstance(found.get("clusters"), dict):
        raise InputError("not a list of confirmed clusters", where=file, do="delete it, and confirm again")
    return dict(found["clusters"])


def _remember(found: TargetFacts, file: Path) -> None:
    """Written for the owner only, and without the server's address."""
    known = _remembered(file)
    known[found.fingerprint] = {
        "context": found.context,
        "server_sha256": found.server_sha256,
        "confirmed_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps({"clusters": known}, indent=1) + "\n"
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
