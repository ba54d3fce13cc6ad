"""Record of a run in the cluster (a ConfigMap), so that any machine can clean up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from workbench.core.errors import InputError
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.api_discovery import ApiResource
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.scenario.rbac_rules import list_kinds
from workbench.scaletest.scenario.workload_plan import Plan

RECORD_LABEL = object_names.PREFIX + "record"
_DATA = "record.json"
_MAX_KINDS = 50
_FORGED = "the record was changed after the run: inspect it and delete it with kubectl"


@dataclass(frozen=True)
class RunRecord:
    """Namespaces and resources of a run."""

    run: str
    scenario: str
    created_at: str
    namespaces: tuple[str, ...]
    kinds: tuple[ApiResource, ...]


def build_record_name(run: str) -> str:
    """Name of a run's record."""
    return f"workbench-run-{run}"


async def write_run_record(api: Connection, plan: Plan) -> RunRecord:
    """Write the record of a run to its namespaces, before the first workload; idempotent."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = RunRecord(plan.run, plan.scenario.name, now, plan.namespaces, list_kinds(plan.scenario, owned=True))
    for space in record.namespaces:
        try:
            await api.json("POST", f"/api/v1/namespaces/{space}/configmaps", _build_config_map(record, space))
        except ApiError as error:
            if error.status != 409:
                raise
    return record


async def read_run_record(api: Connection, run: str, namespaces: tuple[str, ...]) -> RunRecord | None:
    """Read the record of a run, from the first of these namespaces that has it; None if none has it."""
    for space in namespaces:
        try:
            config_map = await api.json("GET", f"/api/v1/namespaces/{space}/configmaps/{build_record_name(run)}")
        except ApiError as error:
            # The namespace may be deleted, and the role in it too.
            if error.status in (403, 404):
                continue
            raise
        record = _parse_run_record(config_map)
        if record.run != run:
            where = f"ConfigMap {space}/{build_record_name(run)}"
            raise InputError("not the record of this run", where=where, found=record.run, allowed=run, do=_FORGED)
        return record
    return None


async def list_run_records(
    api: Connection, namespaces: tuple[str, ...], refuse_record: Callable[[InputError], None] | None = None
) -> list[RunRecord]:
    """Find the records of runs in these namespaces, oldest first.

    `refuse_record` is told of each record that is invalid, and the others are found still: everybody who may write
    ConfigMaps in one of the namespaces could hide them otherwise.
    """
    records: dict[str, RunRecord] = {}
    for space in namespaces:
        async for config_map in iterate_items(
            api, f"/api/v1/namespaces/{space}/configmaps", labelSelector=f"{RECORD_LABEL}=true"
        ):
            try:
                record = _parse_run_record(config_map)
            except InputError as error:
                if refuse_record is None:
                    raise
                refuse_record(error)
                continue
            records.setdefault(record.run, record)
    return sorted(records.values(), key=lambda record: record.created_at)


async def list_test_namespaces(api: Connection) -> tuple[str, ...]:
    """List the namespaces with the label for tests."""
    namespaces = [
        namespace
        async for namespace in iterate_items(api, "/api/v1/namespaces", labelSelector=f"{object_names.ALLOW}=true")
    ]
    return tuple(sorted(str(namespace["metadata"]["name"]) for namespace in namespaces))


def _build_config_map(record: RunRecord, space: str) -> dict[str, Any]:
    data = {
        "run": record.run,
        "scenario": record.scenario,
        "created_at": record.created_at,
        "namespaces": record.namespaces,
        "kinds": [[kind.group, kind.version, kind.plural] for kind in record.kinds],
    }
    # Without the run label: the record is deleted last, by name.
    labels = {object_names.MANAGED_BY: object_names.MANAGER, RECORD_LABEL: "true"}
    about = {"name": build_record_name(record.run), "namespace": space, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {_DATA: json.dumps(data)}}


def _parse_run_record(config_map: dict[str, Any]) -> RunRecord:
    """Parse a record; every field is validated, because other users may write ConfigMaps in the namespace."""
    about = config_map.get("metadata") or {}
    where = f"ConfigMap {about.get('namespace')}/{about.get('name')}"
    try:
        data = json.loads(config_map["data"][_DATA])
        kinds = tuple(ApiResource(*(str(part) for part in kind)) for kind in data["kinds"][:_MAX_KINDS])
        record = RunRecord(
            str(data["run"]),
            str(data["scenario"])[:63],
            str(data["created_at"])[:20],
            tuple(str(namespace) for namespace in data["namespaces"]),
            kinds,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError("not a record of a run", where=where, found=str(error)[:120], do=_FORGED) from None
    check_deletion_scope(record.run, record.namespaces, record.kinds, where)
    return record


def check_deletion_scope(run: str, namespaces: tuple[str, ...], kinds: tuple[ApiResource, ...], where: str) -> None:
    """Refuse values that could direct a deletion elsewhere."""
    from workbench.scaletest.scenario.scenario_file import LABEL, is_forbidden_namespace

    if not object_names.RUN_ID.fullmatch(run):
        raise InputError("not a run's id", where=where, found=run[:40], allowed="like st-1f2e3d4c")
    for space in namespaces:
        if not LABEL.fullmatch(space) or is_forbidden_namespace(space):
            raise InputError("not a namespace of tests", where=where, found=space[:80])
    for kind in kinds:
        parts = (kind.version, kind.plural, *((kind.group,) if kind.group else ()))
        if not all(part and part.replace("-", "").replace(".", "").isalnum() and part.isascii() for part in parts):
            raise InputError("not a resource", where=where, found=str(kind)[:120])
