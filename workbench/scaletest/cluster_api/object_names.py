"""Names and labels of the objects of a run."""

from __future__ import annotations

import re
import secrets

PREFIX = "workbench.local/"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "workbench"
RUN = PREFIX + "run-id"
# Name of the workload: also on the pods of its template, whose own names are the controllers'.
WORKLOAD = PREFIX + "workload"
STEP = PREFIX + "step"
ALLOW = PREFIX + "allow"
SIMULATED = PREFIX + "sim"
SPEC_HASH = PREFIX + "spec-hash"  # an annotation
# Namespace of a local cluster's own accounts: the measuring identity, and one for each added component by its name.
SYSTEM_NAMESPACE, MEASURING_ACCOUNT = "workbench-system", "measure"
RUN_ID = re.compile(r"st-[0-9a-f]{8}")


def keeps_pods_off(taint: str, effect: str) -> bool:
    """Whether Kubernetes itself put this taint on a node: cordoned, not ready, short of memory or disk."""
    return taint.startswith("node.kubernetes.io/") and effect in ("NoSchedule", "NoExecute")


def new_run_id() -> str:
    """A new run's id, such as `st-1f2e3d4c`."""
    return f"st-{secrets.token_hex(4)}"


def build_workload_name(run: str, index: int) -> str:
    """Name of the run's workload of this index: the same after a crash, so that nothing is made twice.

    >>> build_workload_name("st-1f2e3d4c", 42)
    'st-1f2e3d4c-0000042'
    """
    return f"{run}-{index:07d}"


def build_labels(run: str, name: str, step: int) -> dict[str, str]:
    """Labels of a workload, and of the pods that it makes."""
    return {MANAGED_BY: MANAGER, RUN: run, WORKLOAD: name, STEP: str(step)}


def build_run_selector(run: str) -> str:
    """Label selector of all that belongs to a run; never empty."""
    if not RUN_ID.fullmatch(run):
        raise ValueError(f"not a run's id: {run[:40]!r}")
    return f"{MANAGED_BY}={MANAGER},{RUN}={run}"
