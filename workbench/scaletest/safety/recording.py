"""A run's record in the cluster: a ConfigMap in each of its namespaces, from which any machine can clean up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from workbench.errors import InputError
from workbench.scaletest import names
from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.planning.plans import Plan
from workbench.scaletest.planning.rights import Kind, kinds
from workbench.scaletest.safety.paging import items

RECORD = names.PREFIX + "record"
_DATA = "record.json"
_MOST_KINDS = 50
_FORGED = "somebody changed it: look at it, and delete it by kubectl"


@dataclass(frozen=True)
class RunRecord:
    """What a run makes, and where.

    Attributes
    ----------
    namespaces
        All of the run, told in each of them.
    kinds
        Resources that it makes objects of.
    """

    run: str
    scenario: str
    created_at: str
    namespaces: tuple[str, ...]
    kinds: tuple[Kind, ...]


def object_name(run: str) -> str:
    """Name of a run's record."""
    return f"workbench-run-{run}"


async def record_run(api: Connection, plan: Plan) -> RunRecord:
    """Write a run's record to its namespaces, before the first workload; again after a crash is no harm.

    Raises
    ------
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = RunRecord(plan.run, plan.scenario.name, now, plan.namespaces, kinds(plan.scenario))
    for space in made.namespaces:
        try:
            await api.json("POST", f"/api/v1/namespaces/{space}/configmaps", _object(made, space))
        except ApiError as error:
            if error.status != 409:
                raise
    return made


async def known_run(api: Connection, run: str, namespaces: tuple[str, ...]) -> RunRecord | None:
    """The record of this run alone, from the first of these namespaces that has it; null where none has.

    Raises
    ------
    InputError
        It is there, and not what was written.
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    """
    for space in namespaces:
        try:
            found = await api.json("GET", f"/api/v1/namespaces/{space}/configmaps/{object_name(run)}")
        except ApiError as error:
            # The namespace may be gone, and with it the right to look there.
            if error.status in (403, 404):
                continue
            raise
        record = _read(found)
        if record.run != run:
            where = f"ConfigMap {space}/{object_name(run)}"
            raise InputError("not the record of this run", where=where, found=record.run, allowed=run, do=_FORGED)
        return record
    return None


async def known_runs(api: Connection, namespaces: tuple[str, ...]) -> list[RunRecord]:
    """Runs whose record lies in one of these namespaces, oldest first.

    Raises
    ------
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    """
    found: dict[str, RunRecord] = {}
    for space in namespaces:
        async for one in items(api, f"/api/v1/namespaces/{space}/configmaps", labelSelector=f"{RECORD}=true"):
            record = _read(one)
            found.setdefault(record.run, record)
    return sorted(found.values(), key=lambda record: record.created_at)


async def spaces(api: Connection) -> tuple[str, ...]:
    """Namespaces of the cluster that are labelled for tests.

    Raises
    ------
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    """
    found = [one async for one in items(api, "/api/v1/namespaces", labelSelector=f"{names.ALLOW}=true")]
    return tuple(sorted(str(one["metadata"]["name"]) for one in found))


def _object(record: RunRecord, space: str) -> dict[str, Any]:
    data = {
        "run": record.run,
        "scenario": record.scenario,
        "created_at": record.created_at,
        "namespaces": record.namespaces,
        "kinds": [[kind.group, kind.version, kind.plural] for kind in record.kinds],
    }
    # Without the run's own label: it is deleted last and by its name, when all else is gone.
    labels = {names.MANAGED_BY: names.MANAGER, RECORD: "true"}
    about = {"name": object_name(record.run), "namespace": space, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {_DATA: json.dumps(data)}}


def _read(found: dict[str, Any]) -> RunRecord:
    """Anybody who may write ConfigMaps there could have changed it: every field is checked."""
    about = found.get("metadata") or {}
    where = f"ConfigMap {about.get('namespace')}/{about.get('name')}"
    try:
        data = json.loads(found["data"][_DATA])
        made = tuple(Kind(*(str(part) for part in one)) for one in data["kinds"][:_MOST_KINDS])
        record = RunRecord(
            str(data["run"]),
            str(data["scenario"])[:63],
            str(data["created_at"])[:20],
            tuple(str(one) for one in data["namespaces"]),
            made,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError("not a record of a run", where=where, found=str(error)[:120], do=_FORGED) from None
    checked(record.run, record.namespaces, record.kinds, where)
    return record


def checked(run: str, namespaces: tuple[str, ...], made: tuple[Kind, ...], where: str) -> None:
    """Refuse what could lead a deletion elsewhere.

    Raises
    ------
    InputError
        No run's id, a namespace of the cluster's own, or a kind that is none.
    """
    from workbench.scaletest.scenario import LABEL, forbidden

    if not names.RUN_ID.fullmatch(run):
        raise InputError("not a run's id", where=where, found=run[:40], allowed="like st-1f2e3d4c")
    for space in namespaces:
        if not LABEL.fullmatch(space) or forbidden(space):
            raise InputError("not a namespace of tests", where=where, found=space[:80])
    for kind in made:
        parts = (kind.version, kind.plural, *((kind.group,) if kind.group else ()))
        if not all(part and part.replace("-", "").replace(".", "").isalnum() and part.isascii() for part in parts):
            raise InputError("not a resource", where=where, found=str(kind)[:120])
