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
    """Path of the user's list of confirmed clusters."""
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
    """Read the facts of the cluster, and refuse one that is not confirmed or not safe to test.

    A local cluster of the workbench needs no confirmation. Any other needs its fingerprint: as `confirmed` on first
    use, then from the user's list.

    `scenario`: Scenario to test; None for administrative commands, which only need the confirmation.
    """
    facts = await inspect_cluster(api, target)
    file = allow_file or default_allow_file()
    if facts.own is None or confirmed is not None:
        _require_confirmed_cluster(facts, confirmed, file)
    if scenario is not None:
        raise_refusals([*check_identity(facts), *node_fence.check_fence(scenario, facts)])
    if facts.own is None and confirmed is not None:
        _write_allow_list(facts, file)
    return facts


def check_identity(facts: ClusterFacts) -> list[Finding]:
    """Check that the API server throttles the identity (no system:masters)."""
    if MASTERS not in facts.groups:
        return [Finding("ok", "identity", f"{facts.identity}, subject to priority and fairness")]
    if facts.own is not None:
        text = "the API server never throttles an administrator (system:masters): its figures look better than they are"
        return [Finding("warning", "identity", text, "use the measuring identity of the local cluster")]
    return [
        Finding(
            "refused",
            "identity",
            f"{facts.identity} is in group {MASTERS}, which the API server never throttles; the cluster is unprotected",
            "use the service account that `workbench scaletest plan SCENARIO --rbac` prints",
        )
    ]


def is_confirmed(facts: ClusterFacts, allow_file: Path | None = None) -> bool:
    """Check the cluster's fingerprint against the list of confirmed clusters."""
    return facts.fingerprint in _read_allow_list(allow_file or default_allow_file())


def _require_confirmed_cluster(facts: ClusterFacts, confirmed: str | None, file: Path) -> None:
    if confirmed is not None:
        if confirmed.strip().lower() != facts.fingerprint:
            raise ConfigError(
                "the cluster is not the confirmed one",
                where=f"context {facts.context}",
                found=f"fingerprint {facts.fingerprint}",
                allowed=confirmed[:40],
                do="check which cluster the context refers to; nothing was sent",
            )
        return
    if facts.fingerprint in _read_allow_list(file):
        return
    raise ConfigError(
        "the cluster is not confirmed",
        where=f"context {facts.context}",
        found="".join(f"\n    {line}" for line in facts.format_lines()),
        do=f"if it is the intended cluster, add --confirm {facts.fingerprint} (in notebooks: confirm=…)",
    )


def _read_allow_list(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(files.read_up_to(file, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError("cannot read the list of confirmed clusters", where=file, found=str(error)[:120]) from None
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), dict):
        raise InputError("not a list of confirmed clusters", where=file, do="delete it, and confirm again")
    return dict(document["clusters"])


def _write_allow_list(facts: ClusterFacts, file: Path) -> None:
    """Write the list, readable by its owner only, without server addresses."""
    clusters = _read_allow_list(file)
    clusters[facts.fingerprint] = {
        "context": facts.context,
        "server_sha256": facts.server_sha256,
        "confirmed_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps({"clusters": clusters}, indent=1) + "\n"
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
    """Find the target that the options name; None without options.

    `administrator`: Use the administrator of the local cluster in place of its measuring identity; a context defines
    its own user.
    """
    if cluster is not None:
        if context is not None or kubeconfig is not None:
            raise ConfigError(
                "both --cluster and --context given", where="--cluster", do="give one of --cluster and --context"
            )
        from workbench.scaletest.local_cluster.cluster_lifecycle import find_cluster

        local = find_cluster(cluster)
        if administrator:
            return load_target(local.kubeconfig, local.context)
        return load_target(local.measure_kubeconfig, local.measure_context)
    if context is None and kubeconfig is None:
        return None
    return load_target(kubeconfig, context)


def require_target(target: Target | None) -> Target:
    """`find_target` for commands that need a cluster."""
    if target is None:
        raise ConfigError(
            "which cluster?",
            where="--context, --cluster",
            do="add --cluster local (after `workbench scaletest cluster up`) or --context NAME; there is no default",
        )
    return target


async def confirm_interactively(api: Connection, scenario: Scenario | None, fingerprint: str | None) -> ClusterFacts:
    """`confirm`, with a prompt for the fingerprint on first use if stdin is a terminal."""
    if fingerprint is None and sys.stdin.isatty() and sys.stderr.isatty():
        facts = await inspect_cluster(api)
        if facts.own is None and not is_confirmed(facts):
            fingerprint = _ask_fingerprint(facts)
    return await confirm_cluster(api, api.target, scenario, fingerprint)


def _ask_fingerprint(facts: ClusterFacts) -> str:
    import typer

    from workbench.console.terminal import print_text

    print_text("This cluster is not confirmed yet:\n  " + "\n  ".join(facts.format_lines()), err=True)
    return str(typer.prompt("Type its fingerprint to confirm it", err=True))
