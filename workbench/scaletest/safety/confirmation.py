"""Confirmation of the target cluster: the target named by options, and its fingerprint on first use."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.cluster_api.connection import Connection, Target, load_target
from workbench.scaletest.safety import node_fence
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, inspect_cluster, raise_refusals
from workbench.scaletest.scenario.scenario_file import Scenario

MASTERS = "system:masters"
_FILE = "scaletest-clusters.json"
_MAX_BYTES = 1 << 20


def default_allow_file() -> Path:
    """The user's file of clusters that were confirmed."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "workbench" / _FILE


async def confirm_cluster(
    api: Connection,
    target: Target,
    scenario: Scenario | None,
    confirmed: str | None = None,
    *,
    allow_file: Path | None = None,
) -> ClusterFacts:
    """Look at the cluster, and go on only if it is the one that is meant and may be tested.

    A local cluster of our own needs no confirmation. Any other needs its fingerprint: as `confirmed` on first use, from
    the user's file after that.

    Parameters
    ----------
    scenario
        What is to be tested; null for an administrator's work, which asks for the right cluster only.
    confirmed
        Fingerprint from the command line.
    allow_file
        File of the clusters that were confirmed; the user's own without.

    Raises
    ------
    ConfigError
        Not confirmed, confirmed as another cluster, or an identity or a fence that makes a test unsafe.
    """
    found = await inspect_cluster(api, target)
    file = allow_file or default_allow_file()
    if found.own is None or confirmed is not None:
        _require_confirmed_cluster(found, confirmed, file)
    if scenario is not None:
        raise_refusals([*check_identity(found), *node_fence.check_fence(scenario, found)])
    if found.own is None and confirmed is not None:
        _write_allow_list(found, file)
    return found


def check_identity(found: ClusterFacts) -> list[Finding]:
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


def is_confirmed(found: ClusterFacts, allow_file: Path | None = None) -> bool:
    """Was this cluster confirmed before, by this user?"""
    return found.fingerprint in _read_allow_list(allow_file or default_allow_file())


def _require_confirmed_cluster(found: ClusterFacts, confirmed: str | None, file: Path) -> None:
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
    if found.fingerprint in _read_allow_list(file):
        return
    raise ConfigError(
        "a cluster that was not tested before must be confirmed",
        where=f"context {found.context}",
        found="".join(f"\n    {line}" for line in found.format_lines()),
        do=f"if that is the cluster you mean, add --confirm {found.fingerprint} (in notebooks: confirm=…)",
    )


def _read_allow_list(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(files.read_up_to(file, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError("cannot read the list of confirmed clusters", where=file, found=str(error)[:120]) from None
    if not isinstance(found, dict) or not isinstance(found.get("clusters"), dict):
        raise InputError("not a list of confirmed clusters", where=file, do="delete it, and confirm again")
    return dict(found["clusters"])


def _write_allow_list(found: ClusterFacts, file: Path) -> None:
    """Written for the owner only, and without the server's address."""
    known = _read_allow_list(file)
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


def find_target(
    context: str | None, kubeconfig: str | Path | None, cluster: str | None, *, administrator: bool = False
) -> Target | None:
    """The target that a command's options name; null when they name none.

    Parameters
    ----------
    cluster
        A local cluster's name.
    administrator
        As its administrator, not as its measuring identity; with a context the context says who.

    Raises
    ------
    ConfigError
        Both were given, or there is no such context or cluster.
    """
    if cluster is not None:
        if context is not None or kubeconfig is not None:
            raise ConfigError("two clusters were given", where="--cluster", do="give --cluster, or --context")
        from workbench.scaletest.local_cluster.cluster_lifecycle import find_cluster

        local = find_cluster(cluster)
        if administrator:
            return load_target(local.kubeconfig, local.context)
        return load_target(local.measure_kubeconfig, local.measure_context)
    if context is None and kubeconfig is None:
        return None
    return load_target(kubeconfig, context)


def require_target(found: Target | None) -> Target:
    """The same, where there must be one.

    Raises
    ------
    ConfigError
        None was named.
    """
    if found is None:
        raise ConfigError(
            "which cluster?",
            where="--context, --cluster",
            do="--cluster local (after `workbench scaletest cluster up`), or --context NAME: it is never guessed",
        )
    return found


async def confirm_interactively(api: Connection, scenario: Scenario | None, given: str | None) -> ClusterFacts:
    """`confirm`, which asks a person at a terminal to type the fingerprint on first use.

    Raises
    ------
    ConfigError
        Not confirmed, or unsafe.
    """
    if given is None and sys.stdin.isatty() and sys.stderr.isatty():
        found = await inspect_cluster(api)
        if found.own is None and not is_confirmed(found):
            given = _ask_fingerprint(found)
    return await confirm_cluster(api, api.target, scenario, given)


def _ask_fingerprint(found: ClusterFacts) -> str:
    import typer

    from workbench.console.terminal import print_text

    print_text("This cluster was not tested before:\n  " + "\n  ".join(found.format_lines()), err=True)
    return str(typer.prompt("Type its fingerprint if that is the one you mean", err=True))
