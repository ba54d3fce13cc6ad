"""Delete exactly what a run made, at a pace that the API server does not notice, and look that nothing is left.

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

from workbench.errors import ConfigError
from workbench.scaletest import names
from workbench.scaletest.connection import Answer, ApiError, AwayError, Connection, Target
from workbench.scaletest.planning.objects import resource_path
from workbench.scaletest.planning.rights import CONFIG_MAPS, JOBS, POD_GROUPS, PODS, Kind
from workbench.scaletest.safety import fence
from workbench.scaletest.safety.recording import checked, known_run, object_name

# Objects of one call, and of a second: each costs the server a write, and its garbage collector what the object owns.
BATCH = 100
RATE_PER_S = 100.0
_PASSES = 5
_TRIES = 8
_LONGEST_WAIT_S = 30.0
_LOOK_EVERY_S = 1.0
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_GONE = (404, 405)


@dataclass(frozen=True)
class Progress:
    """How far a cleanup is: `left` of the `total` objects that were there at its begin."""

    phase: str
    left: int
    total: int


@dataclass(frozen=True)
class Cleaned:
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

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self) | {"complete": self.complete}


async def clean(
    api: Connection,
    run: str,
    namespaces: Sequence[str],
    kinds: Sequence[Kind],
    watcher: Callable[[Progress], None] = lambda _: None,
    *,
    rate_per_s: float = RATE_PER_S,
    stalled_s: float = 120,
) -> Cleaned:
    """Delete a run's objects and verify that none is left; again on a run that is gone does nothing.

    Parameters
    ----------
    namespaces
        The run's; each must be labelled for tests. One that is gone has nothing left; one that may not be looked at
        is told, and the others are cleaned.
    kinds
        What it made. Jobs, PodGroups, pods and ConfigMaps are looked at anyway.
    watcher
        Is told after each batch, and while what was deleted goes.
    rate_per_s
        Objects deleted a second at most.
    stalled_s
        When so long nothing more has gone, what is left is told.

    Raises
    ------
    ConfigError
        That is no run's id, or a namespace is not for tests.
    ApiError, AwayError
        The cluster refused, or stays away.
    """
    if not names.RUN_ID.fullmatch(run) or not namespaces:
        raise ConfigError("whose objects?", where="run", found=run[:40], allowed="a run's id like st-1f2e3d4c")
    checked(run, tuple(namespaces), tuple(kinds), f"cleanup of {run}")
    spaces, gone, unseen = await fence.sort_namespaces(api, tuple(namespaces))
    begun = time.monotonic()
    async with Connection(_metadata_only(api.target), most=4) as looking:
        sweep = _Sweep(looking, run, spaces, tuple(kinds), watcher, rate_per_s)
        found = await sweep.delete()
        left = await sweep.wait_gone(stalled_s)
        # What is in the others must be found by the record.
        if not left and not unseen:
            await sweep.forget()
    return Cleaned(
        run,
        tuple(namespaces),
        found,
        {place: len(some) for place, some in left.items()},
        {place: some[:5] for place, some in left.items()},
        time.monotonic() - begun,
        gone,
        unseen,
    )


async def clean_known(
    api: Connection, run: str, namespaces: Sequence[str], watcher: Callable[[Progress], None] = lambda _: None
) -> Cleaned:
    """The same from the run's record in one of these namespaces, whatever machine began it.

    Without a record (it is deleted last) pods, Jobs, PodGroups and ConfigMaps of the run are looked for.
    """
    record = await known_run(api, run, tuple(namespaces)) if names.RUN_ID.fullmatch(run) else None
    if record is None:
        return await clean(api, run, namespaces, (), watcher)
    return await clean(api, run, record.namespaces, record.kinds, watcher)


def _metadata_only(target: Target) -> Target:
    """The same target, which answers with names only: the bodies of a hundred Jobs are 300 kB."""
    return dataclasses.replace(target, headers=lambda: target.headers() | {"Accept": _METADATA})


class _Sweep:
    """One cleanup under way."""

    def __init__(
        self,
        api: Connection,
        run: str,
        namespaces: tuple[str, ...],
        kinds: tuple[Kind, ...],
        watcher: Callable[[Progress], None],
        rate_per_s: float,
    ) -> None:
        self._api, self._run, self._watcher, self._rate = api, run, watcher, rate_per_s
        self._selector = names.of_run(run)
        self._spaces = namespaces
        # Owners first: what they own goes with them. The last four may be of controllers, or of another version of us.
        others = (JOBS, POD_GROUPS, PODS, CONFIG_MAPS)
        wanted = dict.fromkeys([*(kind for kind in kinds if kind not in others), *others])
        self._own = set(kinds) | {CONFIG_MAPS}
        self._places = [(space, kind) for space in namespaces for kind in wanted]
        self._total = 0

    async def delete(self) -> dict[str, int]:
        """Ask for the deletion of all; how many there were of each."""
        counts = {place: len(await self._there(*place)) for place in self._places}
        self._total = sum(counts.values())
        for place in self._places:
            if counts[place]:
                await self._delete_all(*place)
        return {_named(*place): count for place, count in counts.items() if count}

    async def wait_gone(self, stalled_s: float) -> dict[str, list[str]]:
        """Wait while objects go; what is left when nothing more goes."""
        fewest, since = math.inf, time.monotonic()
        while True:
            found = {_named(*place): some for place in self._places if (some := await self._there(*place))}
            count = sum(len(some) for some in found.values())
            self._watcher(Progress("waiting until they are gone", count, self._total))
            if not count:
                return {}
            if count < fewest:
                fewest, since = count, time.monotonic()
            elif time.monotonic() - since > stalled_s:
                return found
            await asyncio.sleep(min(_LOOK_EVERY_S, stalled_s / 4))

    async def forget(self) -> None:
        """Delete the run's record: the last that tells of it."""
        for space in self._spaces:
            path = f"{resource_path('v1', 'configmaps', space)}/{object_name(self._run)}"
            _accepted(await self._asked("DELETE", path, {}), path, (404,))

    async def _there(self, space: str, kind: Kind) -> list[str]:
        """Names of the run's objects; none where the cluster does not know the kind."""
        made: list[str] = []
        token = ""
        while True:
            query = {"labelSelector": self._selector, "limit": "500"} | ({"continue": token} if token else {})
            path = resource_path(kind.api_version, kind.plural, space)
            answer = await self._asked("GET", path, query)
            if answer.status == 410:
                made, token = [], ""
                continue
            # A kind that is not the run's own may be none of our business.
            _accepted(answer, path, _GONE if kind in self._own else (*_GONE, 403))
            found = answer.json() if answer.status < 300 else {}
            made += [str(one["metadata"]["name"]) for one in found.get("items") or []]
            token = str((found.get("metadata") or {}).get("continue") or "")
            if not token:
                return made

    async def _delete_all(self, space: str, kind: Kind) -> None:
        """Page by page: one call for all would keep the server busy for as long as thousands of deletions take.

        `continue` goes on behind what still waits for its finalizers; without it the first page would come again.
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
            left = len(await self._there(space, kind))
            self._watcher(Progress(f"deleting {_named(space, kind)}", left, self._total))
            # More came while we were at it, or a page was lost: another pass.
            if not left or passes >= _PASSES or status != 410:
                return

    async def _delete_page(self, space: str, kind: Kind, token: str) -> tuple[int, str, int]:
        """How many were deleted, and where to go on."""
        assert self._selector  # an empty one would match everything
        query = {"labelSelector": self._selector, "limit": str(BATCH)} | ({"continue": token} if token else {})
        path = resource_path(kind.api_version, kind.plural, space)
        options = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}'
        answer = await self._asked("DELETE", path, query, options)
        _accepted(answer, path, (*_GONE, 410) if kind in self._own else (*_GONE, 403, 410))
        found = answer.json() if answer.status < 300 else {}
        return len(found.get("items") or []), str((found.get("metadata") or {}).get("continue") or ""), answer.status

    async def _asked(self, method: str, path: str, query: dict[str, str], body: bytes | None = None) -> Answer:
        """One request, again while the server is busy or away; deleting twice is no harm."""
        for attempt in range(_TRIES):
            wait_s = min(0.5 * 2**attempt, _LONGEST_WAIT_S)
            try:
                answer = await self._api.request(method, path, query=query, body=body, timeout_s=120)
            except AwayError:
                if attempt == _TRIES - 1:
                    raise
            else:
                if answer.status != 429 and answer.status < 500:
                    return answer
                told = answer.headers.get("Retry-After", "")
                wait_s = min(float(told), _LONGEST_WAIT_S) if told.isdigit() else wait_s
            await asyncio.sleep(wait_s)
        return answer


def _named(space: str, kind: Kind) -> str:
    return f"{space}/{kind.plural}"


def _accepted(answer: Answer, path: str, also: tuple[int, ...]) -> None:
    if answer.status < 300 or answer.status in also:
        return
    told = answer.json()
    message = str(told.get("message", ""))[:300] if isinstance(told, dict) else ""
    found = f"{answer.status} {message}"
    raise ApiError("the cluster refused to clean up", status=answer.status, where=path, found=found)
