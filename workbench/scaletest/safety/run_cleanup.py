"""Cleanup of a run's objects in batches, with a check that none is left.

Objects are selected by the run label, in the namespaces of the run. Objects that controllers created for them (pods of
Jobs, PodGroups of a pod grouper) are garbage-collected with their owners; cleanup waits for them and counts them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from workbench.core.errors import ConfigError, InputError
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import (
    CONFIG_MAPS,
    JOBS,
    KUEUE_WORKLOADS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
)
from workbench.scaletest.cluster_api.connection import Answer, ApiError, Connection, UnreachableError
from workbench.scaletest.cluster_api.list_watch import ListPage, iterate_items, list_items
from workbench.scaletest.safety import confirmation
from workbench.scaletest.scenario.workload_objects import list_kinds
from workbench.scaletest.scenario.workload_plan import Plan

RECORD_LABEL = api_discovery.PREFIX + "record"
_DATA = "record.json"
_MAX_KINDS = 50
_FORGED = "the record was changed after the run: inspect it and delete it with kubectl"

# Objects per call, and per second: each costs the server a write, and garbage collection of its dependents.
BATCH_SIZE = 100
RATE_PER_S = 100.0
_PASSES = 5
_TRIES = 8
_MAX_WAIT_S = 30.0
_LOOK_EVERY_S = 1.0
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_GONE = (404, 405)


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
        async for namespace in iterate_items(api, "/api/v1/namespaces", labelSelector=f"{api_discovery.ALLOW}=true")
    ]
    return tuple(sorted(str(namespace["metadata"]["name"]) for namespace in namespaces))


def _build_config_map(record: RunRecord, space: str) -> dict[str, Any]:
    """Build the ConfigMap that keeps the record of a run in the namespace `space`."""
    data = {
        "run": record.run,
        "scenario": record.scenario,
        "created_at": record.created_at,
        "namespaces": record.namespaces,
        "kinds": [[kind.group, kind.version, kind.plural] for kind in record.kinds],
    }
    # Without the run label: the record is deleted last, by name.
    labels = {api_discovery.MANAGED_BY: api_discovery.MANAGER, RECORD_LABEL: "true"}
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

    if not api_discovery.RUN_ID.fullmatch(run):
        raise InputError("not a run's id", where=where, found=run[:40], allowed="like st-1f2e3d4c")
    for space in namespaces:
        if not LABEL.fullmatch(space) or is_forbidden_namespace(space):
            raise InputError("not a namespace of tests", where=where, found=space[:80])
    for kind in kinds:
        parts = (kind.version, kind.plural, *((kind.group,) if kind.group else ()))
        if not all(part and part.replace("-", "").replace(".", "").isalnum() and part.isascii() for part in parts):
            raise InputError("not a resource", where=where, found=str(kind)[:120])


@dataclass(frozen=True)
class CleanupProgress:
    """Progress of a cleanup: `left` of the `total` objects at its start."""

    phase: str
    left: int
    total: int


@dataclass(frozen=True)
class CleanupResult:
    """Result of a cleanup.

    `found`: Number of objects at the start, by namespace and kind, including dependents created by controllers.
    `unseen`: Namespaces that the identity may not read; their state is unknown.
    `stuck`: Objects that wait for finalizers, as NAMESPACE/KIND NAME: by each, its finalizers.
    """

    run: str
    namespaces: tuple[str, ...]
    found: dict[str, int]
    left: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    duration_s: float = 0.0
    gone: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    stuck: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all namespaces were checked and nothing is left."""
        return not self.left and not self.unseen

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return dataclasses.asdict(self) | {"complete": self.complete}


async def delete_run_objects(
    api: Connection,
    run: str,
    namespaces: Sequence[str],
    kinds: Sequence[ApiResource],
    watcher: Callable[[CleanupProgress], None] = lambda _: None,
    *,
    rate_per_s: float = RATE_PER_S,
    stalled_s: float = 120,
) -> CleanupResult:
    """Delete a run's objects and verify that none is left; repeating it does nothing.

    `namespaces`: Namespaces of the run; each must be labelled for tests. A deleted namespace has nothing left; one
    that may not be read is reported, and the others are cleaned.
    `kinds`: Resources of the run's objects. Jobs, PodGroups, pods and ConfigMaps are always included.
    `stalled_s`: Time without progress after which the remaining objects are reported.
    """
    if not api_discovery.RUN_ID.fullmatch(run) or not namespaces:
        raise ConfigError(
            "invalid run id, or no namespace", where="run", found=run[:40], allowed="a run id like st-1f2e3d4c"
        )
    check_deletion_scope(run, tuple(namespaces), tuple(kinds), f"cleanup of {run}")
    spaces, gone, unseen = await confirmation.sort_namespaces(api, tuple(namespaces))
    begun = time.monotonic()
    # The target with partial object metadata as response format: the bodies of 100 Jobs are 300 kB.
    async with Connection(
        dataclasses.replace(api.target, headers=lambda: api.target.headers() | {"Accept": _METADATA}), max_connections=4
    ) as looking:
        sweep = _Cleanup(looking, run, spaces, tuple(kinds), watcher, rate_per_s)
        counts = await sweep.delete_objects()
        remains = await sweep.wait_gone(stalled_s)
        # Keep the record while a namespace is unchecked: a later cleanup needs it.
        if not remains and not unseen:
            await sweep.delete_record()
    return CleanupResult(
        run,
        tuple(namespaces),
        counts,
        {place: len(some) for place, some in remains.items()},
        {place: some[:5] for place, some in remains.items()},
        time.monotonic() - begun,
        gone,
        unseen,
        {name: finalizers for name, finalizers in sweep.finalizers.items() if finalizers} if remains else {},
    )


async def delete_recorded_run(
    api: Connection, run: str, namespaces: Sequence[str], watcher: Callable[[CleanupProgress], None] = lambda _: None
) -> CleanupResult:
    """`delete_run_objects` by the run's record in one of these namespaces; works from any machine.

    Without a record (it is deleted last) the run's pods, Jobs, PodGroups and ConfigMaps are deleted.
    """
    record = await read_run_record(api, run, tuple(namespaces)) if api_discovery.RUN_ID.fullmatch(run) else None
    if record is None:
        return await delete_run_objects(api, run, namespaces, (), watcher)
    return await delete_run_objects(api, run, record.namespaces, record.kinds, watcher)


class _Cleanup:
    """A cleanup in progress."""

    def __init__(
        self,
        api: Connection,
        run: str,
        namespaces: tuple[str, ...],
        kinds: tuple[ApiResource, ...],
        watcher: Callable[[CleanupProgress], None],
        rate_per_s: float,
    ) -> None:
        self._api, self._run, self._watcher, self._rate = api, run, watcher, rate_per_s
        self._selector = api_discovery.build_run_selector(run)
        self._spaces = namespaces
        # Owners first: dependents are garbage-collected. Controllers or other versions may have created the last four.
        others = (JOBS, POD_GROUPS, NATIVE_POD_GROUPS, PODS, CONFIG_MAPS)
        wanted = dict.fromkeys([*(kind for kind in kinds if kind not in others), *others])
        self._own = set(kinds) | {CONFIG_MAPS}
        self._places = [(space, kind) for space in namespaces for kind in wanted]
        self._total = 0
        # Of objects that are being deleted, at the last look.
        self.finalizers: dict[str, tuple[str, ...]] = {}

    async def delete_objects(self) -> dict[str, int]:
        """Delete all objects; returns the number of each kind."""
        counts = {place: len(await self._list_names(*place)) for place in self._places}
        self._total = sum(counts.values())
        for place in self._places:
            if counts[place]:
                await self._delete_all(*place)
        return {_format_place(*place): count for place, count in counts.items() if count}

    async def wait_gone(self, stalled_s: float) -> dict[str, list[str]]:
        """Wait until no object is left, or until there is no more progress; returns the rest."""
        fewest, since = math.inf, time.monotonic()
        while True:
            self.finalizers = {}
            remains = {
                _format_place(*place): some for place in self._places if (some := await self._list_names(*place))
            }
            count = sum(len(some) for some in remains.values())
            self._watcher(CleanupProgress("waiting for garbage collection", count, self._total))
            if not count:
                return {}
            if count < fewest:
                fewest, since = count, time.monotonic()
            elif time.monotonic() - since > stalled_s:
                return remains
            else:
                for space in self._spaces:
                    if remains.get(_format_place(space, PODS)):
                        await self._release_gangs(space)
            await asyncio.sleep(min(_LOOK_EVERY_S, stalled_s / 4))

    async def _release_gangs(self, space: str) -> None:
        """Delete the Workloads that Kueue made of the run's gangs.

        Deleted pods of a gang that has not ended wait for it. Kueue gives it the gang's name, and none of our labels.
        """
        for name in await self._list_names(space, KUEUE_WORKLOADS, selector=""):
            if name.startswith(f"{self._run}-"):
                path = f"{KUEUE_WORKLOADS.path(space)}/{name}"
                _check_answer(await self._request_with_retry("DELETE", path, {}), path, (*_GONE, 403))
                await asyncio.sleep(1 / self._rate)

    async def delete_record(self) -> None:
        """Delete the record of the run."""
        for space in self._spaces:
            path = f"{CONFIG_MAPS.path(space)}/{build_record_name(self._run)}"
            _check_answer(await self._request_with_retry("DELETE", path, {}), path, (404,))

    async def _list_names(self, space: str, kind: ApiResource, *, selector: str | None = None) -> list[str]:
        """Names of the run's objects, or by another selector; none if the cluster has no such resource."""

        async def fetch(query: dict[str, str]) -> ListPage:
            answer = await self._request_with_retry("GET", kind.path(space), query)
            # Resources that the run does not use may be forbidden.
            _check_answer(answer, kind.path(space), _GONE if kind in self._own else (*_GONE, 403))
            document = answer.json() if answer.status < 300 else {}
            heads = [item["metadata"] for item in document.get("items") or []]
            names = [str(head["name"]) for head in heads]
            self.finalizers |= {
                f"{_format_place(space, kind)} {head['name']}": tuple(head.get("finalizers") or ())
                for head in heads
                if head.get("deletionTimestamp") and selector is None
            }
            return ListPage(names, "", str((document.get("metadata") or {}).get("continue") or ""), answer.done_ns)

        return await list_items(fetch, {"labelSelector": self._selector if selector is None else selector})

    async def _delete_all(self, space: str, kind: ApiResource) -> None:
        """Delete page by page, because one call for thousands of objects would keep the server busy.

        `continue` skips objects that wait for finalizers; without it the first page would repeat.
        """
        token = ""
        passes = 0
        while True:
            begun = time.monotonic()
            count, token, status = await self._delete_page(space, kind, token)
            if status == 403:
                return  # created by controllers; deleting their owners is enough
            self._total = max(self._total, count)
            await asyncio.sleep(max(0.0, count / self._rate - (time.monotonic() - begun)))
            if token:
                continue
            passes += 1
            n_left = len(await self._list_names(space, kind))
            self._watcher(CleanupProgress(f"deleting {_format_place(space, kind)}", n_left, self._total))
            # New objects appeared, or a page was lost: another pass.
            if not n_left or passes >= _PASSES or status != 410:
                return

    async def _delete_page(self, space: str, kind: ApiResource, token: str) -> tuple[int, str, int]:
        """Delete one page; returns the number of objects and the continue token."""
        assert self._selector  # an empty selector would match everything
        query = {"labelSelector": self._selector, "limit": str(BATCH_SIZE)} | ({"continue": token} if token else {})
        path = kind.path(space)
        options = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}'
        answer = await self._request_with_retry("DELETE", path, query, options)
        _check_answer(answer, path, (*_GONE, 410) if kind in self._own else (*_GONE, 403, 410))
        document = answer.json() if answer.status < 300 else {}
        return (
            len(document.get("items") or []),
            str((document.get("metadata") or {}).get("continue") or ""),
            answer.status,
        )

    async def _request_with_retry(
        self, method: str, path: str, query: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """Send a request, with retries while the server is overloaded or unreachable; deletions are idempotent."""
        for attempt in range(_TRIES):
            wait_s = min(0.5 * 2**attempt, _MAX_WAIT_S)
            try:
                answer = await self._api.request(method, path, query=query, body=body, timeout_s=120)
            except UnreachableError:
                if attempt == _TRIES - 1:
                    raise
            else:
                if answer.status != 429 and answer.status < 500:
                    return answer
                asked_s = answer.retry_after_s
                wait_s = wait_s if asked_s is None else min(asked_s, _MAX_WAIT_S)
            await asyncio.sleep(wait_s)
        return answer


def _format_place(space: str, kind: ApiResource) -> str:
    return f"{space}/{kind.plural}"


def _check_answer(answer: Answer, path: str, also: tuple[int, ...]) -> None:
    if answer.status >= 300 and answer.status not in also:
        message = "the API server refused a request of the cleanup"
        raise ApiError(message, status=answer.status, where=path, found=answer.refusal)
