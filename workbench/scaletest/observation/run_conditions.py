"""Conditions of a run (test.json): cluster, plan and components, written before anything is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.core import files
from workbench.core.errors import InputError

CONDITIONS_FILE = "test.json"
SCENARIO_FILE = "scenario.yaml"
# `provider` of an imported run, which has its own milestones and no observations.
IMPORTED = "imported"
_MAX_BYTES = 4 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Component(_Strict):
    """A part of the control plane, as far as its configuration is known.

    Attributes
    ----------
    client_qps, client_burst
        Limit on its own requests; None if unknown. Kubernetes' defaults: controller-manager 20/30,
        scheduler 50/100.
    arguments
        What was set beyond the defaults.
    """

    name: str
    version: str | None = None
    client_qps: float | None = None
    client_burst: int | None = None
    arguments: dict[str, str] = {}


class RunConditions(_Strict):
    """A scale test's identity and conditions.

    Attributes
    ----------
    fingerprint
        Short hash of the uid of namespace kube-system.
    server_sha256
        Hash of the server's URL, which itself is not recorded.
    identity_groups
        Groups that the measuring identity has (system:masters is never throttled).
    schedulers
        schedulerName of the pods of this plan.
    simulated_nodes
        All nodes that the pods may go to exist in the API only.
    in_turn
        Workloads may have pods that are made only when others of theirs have ended (completions above parallelism).
    """

    run: str
    scenario_name: str
    scenario_sha256: str
    created_at: str
    context: str
    fingerprint: str
    server_sha256: str
    server_version: str
    identity: str = ""
    identity_groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...]
    schedulers: tuple[str, ...]
    simulated_nodes: bool
    local_cluster: str | None = None
    provider: str | None = None
    components: tuple[Component, ...] = ()
    mode: str = Field("api", pattern="^(api|kubectl|command)$")
    closed: bool = False
    watches_pods_of_others: bool = False
    reads_audit_log: bool = False
    in_turn: bool = False
    notes: tuple[str, ...] = ()


def write_conditions(folder: str | Path, test: RunConditions) -> Path:
    """Write `test.json`, whole or not at all."""
    return files.write_text(Path(folder) / CONDITIONS_FILE, test.model_dump_json(indent=1) + "\n")


def read_conditions(folder: str | Path) -> RunConditions:
    """Read `test.json` of a run folder.

    Raises
    ------
    InputError
        It is not there, too large, or something else.
    """
    path = Path(folder) / CONDITIONS_FILE
    if not path.is_file():
        raise InputError(
            "not a folder of a scale test",
            where=folder,
            found=f"no {CONDITIONS_FILE}",
            do="name the folder that `workbench scaletest run` wrote",
        )
    try:
        return RunConditions.model_validate_json(files.read_up_to(path, _MAX_BYTES))
    except ValidationError as error:
        found: list[Any] = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise InputError("not a record of a scale test", where=path, found=found) from None
