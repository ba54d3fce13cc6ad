"""Cleanup of a run's objects in batches, with a check that none is left.

Objects are found by the run's label alone, in the run's own namespaces. What controllers made of them (pods of Jobs,
PodGroups of a pod grouper) belongs to them, and goes with them; that is waited for and counted too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.api_discovery import CONFIG_MAPS, JOBS, POD_GROUPS, PODS, ApiResource
from workbench.scaletest.cluster_api.connection import Answer, ApiError, Connection, Target, UnreachableError
from workbench.scaletest.cluster_api.list_watch import ListPage, list_items
from workbench.scaletest.safety import node_fence
from workbench.scaletest.safety.cleanup_record import build_record_name, check_deletion_scope, read_run_record

# Objects of one call, and of a second: each costs the server a write, and its garbage collector what the object owns.
BATCH_SIZE = 100
RATE_PER_S = 100.0
_PASSES = 5
_TRIES = 8
_MAX_WAIT_S = 30.0
_LOOK_EVERY_S = 1.0
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_GONE = (404, 405)


@dataclass(frozen=True)
class CleanupProgress:
    """How far a cleanup is: `left` of the `total` objects that were there at its begin."""

    phase: str
    left: int
    total: int


@dataclass(frozen=True)
class CleanupResult:
    """What became of a run's objects.

    Attributes
    ----------
    found
        Objects of the run by namespace and kind, at the begin; those that controllers made of ours too.
    left
        Those that are there at the end.
    examples
        Up to five of their names each.
    gone
        Namespaces that are not there.
    unseen
        Namespaces that may not be looked at: of them nothing is known.
    """

    run: str
    namespaces: tuple[str, ...]
    found: dict[str, int]
    left: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    duration_s: float = 0.0
    gone: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing is left, and that was seen."""
        return not self.left and not self.unseen

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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

    Parameters
    ----------
    namespaces
        The run's; each must be labelled for tests. One that is gone has nothing left; one that may not be looked at
        is reported, and the others are cleaned.
    kinds
        What it made. Jobs, PodGroups, pods and ConfigMaps are looked at anyway.
    watcher
        Called after each batch, and while deleted objects disappear.
    rate_per_s
        Objects deleted a second at most.
    stalled_s
        Time without progress after which the remaining objects are reported.

    Raises
    ------
    ConfigError
        That is no run's id, or a namespace is not for tests.
    ApiError, UnreachableError
        The cluster refused, or stays unreachable.
    """
    if not object_names.RUN_ID.fullmatch(run) or not namespaces:
        raise ConfigError(
            "not a run's id or no namespace", where="run", found=run[:40], allowed="a run's id like st-1f2e3d4c"
        )
    check_deletion_scope(run, tuple(namespaces), tuple(kinds), f"cleanup of {run}")
    spaces, gone, unseen = await node_fence.sort_namespaces(api, tuple(namespaces))
    begun = time.monotonic()
    async with Connection(_target_for_metadata(api.target), max_connections=4) as looking:
        sweep = _Cleanup(looking, run, spaces, tuple(kinds), watcher, rate_per_s)
        found = await sweep.delete_objects()
        left = await sweep.wait_gone(stalled_s)
        # What is in the others must be found by the record.
        if not left and not unseen:
            await sweep.delete_record()
    return CleanupResult(
        run,
        tuple(namespaces),
        found,
        {place: len(some) for place, some in left.items()},
        {place: some[:5] for place, some in left.items()},
        time.monotonic() - begun,
        gone,
        unseen,
    )


async def delete_recorded_run(
    api: Connection, run: str, namespaces: Sequence[str], watcher: Callable[[CleanupProgress], None] = lambda _: None
) -> CleanupResult:
    """The same from the run's record in one of these namespaces, whatever machine began it.

    Without a record (it is deleted last) pods, Jobs, PodGroups and ConfigMaps of the run are looked for.
    """
    record = await read_run_record(api, run, tuple(namespaces)) if object_names.RUN_ID.fullmatch(run) else None
    if record is None:
        return await delete_run_objects(api, run, namespaces, (), watcher)
    return await delete_run_objects(api, run, record.namespaces, record.kinds, watcher)


def _target_for_metadata(target: Target) -> Target:
    """The same target, which answers with names only: the bodies of a hundred Jobs are 300 kB."""
    return dataclasses.replace(target, headers=lambda: target.headers() | {"Accept": _METADATA})


class _Cleanup:
    """One cleanup under way."""

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
        self._selector = object_names.build_run_selector(run)
        self._spaces = namespaces
        # Owners first: what they own goes with them. The last four may be of controllers, or of another version of us.
        others = (JOBS, POD_GROUPS, PODS, CONFIG_MAPS)
        wanted = dict.fromkeys([*(kind for kind in kinds if kind not in others), *others])
        self._own = set(kinds) | {CONFIG_MAPS}
        self._places = [(space, kind) for space in namespaces for kind in wanted]
        self._total = 0

    async def delete_objects(self) -> dict[str, int]:
        """Ask for the deletion of all; how many there were of each."""
        counts = {place: len(await self._list_names(*place)) for place in self._places}
        self._total = sum(counts.values())
        for place in self._places:
            if counts[place]:
                await self._delete_all(*place)
        return {_format_place(*place): count for place, count in counts.items() if count}

    async def wait_gone(self, stalled_s: float) -> dict[str, list[str]]:
        """Wait while objects go; what is left when nothing more goes."""
        fewest, since = math.inf, time.monotonic()
        while True:
            found = {_format_place(*place): some for place in self._places if (some := await self._list_names(*place))}
            count = sum(len(some) for some in found.values())
            self._watcher(CleanupProgress("waiting until they are gone", count, self._total))
            if not count:
                return {}
            if count < fewest:
                fewest, since = count, time.monotonic()
            elif time.monotonic() - since > stalled_s:
                return found
            await asyncio.sleep(min(_LOOK_EVERY_S, stalled_s / 4))

    async def delete_record(self) -> None:
        """Delete the run's record: the last that tells of it."""
        for space in self._spaces:
            path = f"{CONFIG_MAPS.path(space)}/{build_record_name(self._run)}"
            _check_answer(await self._request_with_retry("DELETE", path, {}), path, (404,))

    async def _list_names(self, space: str, kind: ApiResource) -> list[str]:
        """Names of the run's objects; none where the cluster does not know the kind."""

        async def fetch(query: dict[str, str]) -> ListPage:
            answer = await self._request_with_retry("GET", kind.path(space), query)
            # Kinds beyond the run's own may be forbidden.
            _check_answer(answer, kind.path(space), _GONE if kind in self._own else (*_GONE, 403))
            found = answer.json() if answer.status < 300 else {}
            names = [str(item["metadata"]["name"]) for item in found.get("items") or []]
            return ListPage(names, "", str((found.get("metadata") or {}).get("continue") or ""), answer.done_ns)

        return await list_items(fetch, {"labelSelector": self._selector})

    async def _delete_all(self, space: str, kind: ApiResource) -> None:
        """Page by page: one call for all would keep the server busy for as long as thousands of deletions take.

        `continue` skips objects that wait for their finalizers; without it the first page would repeat.
        """
        token = ""
        passes = 0
        while True:
            begun = time.monotonic()
            count, token, status = await self._delete_page(space, kind, token)
            if status == 403:
                return  # made by controllers; deleting their owners is what we may
            self._total = max(self._total, count)
            await asyncio.sleep(max(0.0, count / self._rate - (time.monotonic() - begun)))
            if token:
                continue
            passes += 1
            left = len(await self._list_names(space, kind))
            self._watcher(CleanupProgress(f"deleting {_format_place(space, kind)}", left, self._total))
            # More came while we were at it, or a page was lost: another pass.
            if not left or passes >= _PASSES or status != 410:
                return

    async def _delete_page(self, space: str, kind: ApiResource, token: str) -> tuple[int, str, int]:
        """How many were deleted, and where to go on."""
        assert self._selector  # an empty one would match everything
        query = {"labelSelector": self._selector, "limit": str(BATCH_SIZE)} | ({"continue": token} if token else {})
        path = kind.path(space)
        options = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}'
        answer = await self._request_with_retry("DELETE", path, query, options)
        _check_answer(answer, path, (*_GONE, 410) if kind in self._own else (*_GONE, 403, 410))
        found = answer.json() if answer.status < 300 else {}
        return len(found.get("items") or []), str((found.get("metadata") or {}).get("continue") or ""), answer.status

    async def _request_with_retry(
        self, method: str, path: str, query: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """One request, again while the server is busy or away; deleting twice is no harm."""
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
                told = answer.headers.get("Retry-After", "")
                wait_s = min(float(told), _MAX_WAIT_S) if told.isdigit() else wait_s
            await asyncio.sleep(wait_s)
        return answer


def _format_place(space: str, kind: ApiResource) -> str:
    return f"{space}/{kind.plural}"


def _check_answer(answer: Answer, path: str, also: tuple[int, ...]) -> None:
    if answer.status < 300 or answer.status in also:
        return
    told = answer.json()
    message = str(told.get("message", ""))[:300] if isinstance(told, dict) else ""
    found = f"{answer.status} {message}"
    raise ApiError("the cluster refused to clean up", status=answer.status, where=path, found=found)
