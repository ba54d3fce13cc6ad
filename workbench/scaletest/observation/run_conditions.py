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
    """A component of the control plane, as far as its configuration is known.

    `client_qps`, `client_burst`: Client-side rate limit; None if unknown. Defaults of Kubernetes: controller-manager
    20/30, scheduler 50/100.
    """

    name: str
    version: str | None = None
    client_qps: float | None = None
    client_burst: int | None = None
    arguments: dict[str, str] = {}


class RunConditions(_Strict):
    """Identity and conditions of a scale test.

    `identity_groups`: Groups of the measuring identity (priority and fairness exempts system:masters).
    `in_turn`: Some pods are created only when others of their workload end (Jobs with completions above parallelism).
    `node_changes`: Nodes that were to fail, to be drained and to come back, each in words.
    `replay_speed`: Seconds of a trace in a second of the test, where jobs of a trace are replayed.
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
    replay_speed: float | None = Field(default=None, gt=0)
    queue_quotas: dict[str, int] = Field(default={})
    node_changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def write_conditions(folder: str | Path, test: RunConditions) -> Path:
    """Write `test.json` atomically."""
    return files.write_text(Path(folder) / CONDITIONS_FILE, test.model_dump_json(indent=1) + "\n")


def read_conditions(folder: str | Path) -> RunConditions:
    """Read `test.json` of a run folder."""
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
        faults: list[Any] = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]]
        raise InputError("not a record of a scale test", where=path, found=faults) from None
