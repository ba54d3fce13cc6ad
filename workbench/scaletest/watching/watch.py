"""One watch: a list, then its changes, and the way back after whatever breaks it off.

Nothing is lost: a watch goes on from the last version that was seen; where the server has forgotten that one (410),
everything is listed anew and held against what is known. What happened meanwhile is marked, and a `Gap` is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from workbench.errors import ConfigError
from workbench.scaletest import records
from workbench.scaletest.connection import ApiError, AwayError, Connection
from workbench.scaletest.splitting import TOO_LONG
from workbench.scaletest.times import NS, now_ns
from workbench.scaletest.watching.absence import Absence
from workbench.scaletest.watching.known import Scope, Sight
from workbench.scaletest.watching.objects import Decoding, Refusal

PAGE = 500
SHORTEST_WATCH_S, LONGEST_WATCH_S = 240, 420
IDLE_S = 150.0  # a bookmark comes every minute
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0
RELIST_EVERY_NS = 60 * NS
PATIENCE = 3  # errors without a reason in a row, until all is listed anew
SLICE = 100


@dataclass(frozen=True, slots=True)
class Sink:
    """What is done with the objects of a watch; each says how many transitions were new.

    Attributes
    ----------
    put
        It was listed, added or changed.
    gone
        It was deleted.
    missing
        These are the uids of all that there are: a list is complete.
    """

    put: Callable[[Any, Sight], int]
    gone: Callable[[Any, Sight], int] | None = None
    missing: Callable[[set[str], Sight], int] | None = None


@dataclass(frozen=True)
class Watched:
    """What a watch is about, and where it is: `path` such as /api/v1/namespaces/ns/pods."""

    scope: Scope
    path: str
    decoding: Decoding
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        """Its selectors."""
        named = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in named.items() if value}


class Watch:
    """Follows what it is about until it is cancelled.

    Parameters
    ----------
    write
        Takes the gaps.
    note
        Takes what a reader must know.
    away_since_ns
        An earlier process watched until then: what the first list holds came later.
    optional
        May be absent or forbidden: it is said, and not watched then.
    poll_s
        Where watching is forbidden, list so often.

    Raises
    ------
    ConfigError
        From `run`: something that must be watched is forbidden.
    """

    def __init__(
        self,
        api: Connection,
        watched: Watched,
        sink: Sink,
        *,
        write: Callable[[records.Gap], None],
        note: Callable[[str], None],
        away_since_ns: int = 0,
        optional: bool = False,
        poll_s: float = 0,
    ) -> None:
        self._api, self._watched, self._sink = api, watched, sink
        self._note = note
        self._optional, self._poll_s = optional, poll_s
        self._session = 0
        self._version = ""
        scope = watched.scope
        resource = scope.resource if scope.resource != "workload" else f"workload {scope.kind}"
        self._absence = Absence(resource, write, away_since_ns)
        self._last_ns = now_ns()
        self._failures = self._errors = 0
        self._opened_ns = self._relisted_ns = 0
        self.garbage = 0
        self.ready = asyncio.Event()

    @property
    def name(self) -> str:
        """For notes."""
        scope = self._watched.scope
        return f"{scope.resource} ({scope.kind})" + (f" in {scope.namespace}" if scope.namespace else "")

    def away_s(self) -> float:
        """How long it has been away; 0 while it is there."""
        return self._absence.away_s()

    async def run(self) -> None:
        """Watch, for ever; ends only where there is nothing that may be watched."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                self._away(now_ns(), "end of stream")
            except ApiError as error:
                if error.status in (403, 404) and not self.ready.is_set():
                    await self._forbidden(error)
                    return
                self._refused(error)
            except AwayError:
                self._away(self._last_ns, "server gone")
            except msgspec.MsgspecError:
                self._spoilt("a list that cannot be read")
                self._away(self._last_ns, "garbage")
            await self._wait()

    async def _forbidden(self, error: ApiError) -> None:
        """It is not allowed, or not there, from the start."""
        if self._version and self._poll_s:
            self._note(f"{self.name} may only be listed: this is done every {self._poll_s:g} s")
            self.ready.set()
            await self._poll()
        if not self._optional:
            raise ConfigError(
                "not allowed to watch",
                where=self.name,
                found=f"status {error.status} of {self._watched.path}",
                do="`workbench scaletest plan --rbac` prints the rights that measuring needs",
            )
        self._note(f"{self.name} is not watched: the cluster answers with status {error.status}")
        self.ready.set()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            with contextlib.suppress(ApiError, AwayError, msgspec.MsgspecError):
                await self._list()

    def settle(self) -> None:
        """Write the gap once all that happened meanwhile has come; called now and then, and with each line."""
        self._absence.settle()

    def end(self) -> None:
        """Write the gap that is still open: nothing more will come."""
        self._absence.end()

    async def _list(self) -> None:
        """List all, page by page; what is known and not there was deleted."""
        present: set[str] = set()
        query, recovered, odd = self._watched.query | {"limit": str(PAGE)}, 0, 0
        while True:
            body, arrived = await self._page(query)
            things, meta, bad = self._watched.decoding.page(body)
            odd += bad
            # Nobody saw when these came to be.
            sight = Sight(arrived, self._session, gap=True)
            for thing in things:
                present.add(thing.metadata.uid)
                recovered += self._sink.put(thing, sight)
            if not meta.continue_:
                break
            query["continue"] = meta.continue_
            await asyncio.sleep(0)
        if odd:
            self._spoilt(f"{odd} listed objects that cannot be read", count=odd)
        if self._sink.missing is not None and not odd:
            recovered += self._sink.missing(present, Sight(now_ns(), self._session, gap=True))
        self._version = meta.resourceVersion
        self._relisted_ns = now_ns()
        self._absence.relisted(recovered)

    async def _page(self, query: dict[str, str]) -> tuple[bytes, int]:
        answer = await self._api.request("GET", self._watched.path, query=query)
        if answer.status != 200:
            if answer.status == 429:
                await asyncio.sleep(_retry_after_s(answer.headers))
            raise ApiError("the list was refused", status=answer.status, where=self._watched.path, found=answer.status)
        return answer.body, answer.done_ns

    async def _follow(self) -> None:
        """Take changes until the stream ends."""
        if self._absence.is_open:
            # Whatever is not newer than this happened while the watch was away.
            body, _ = await self._page(self._watched.query | {"limit": "1"})
            _, meta, _ = self._watched.decoding.page(body)
            self._absence.aim(_number(meta.resourceVersion))
        query = self._watched.query | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(SHORTEST_WATCH_S, LONGEST_WATCH_S)),  # noqa: S311 -- only spreads load
        }
        count = 0
        # Closed at once when it is left in the middle: a connection that nobody reads would stay open.
        async with contextlib.aclosing(
            self._api.stream(self._watched.path, query, opened=self._opened, idle_s=IDLE_S, marks_long=True)
        ) as stream:
            async for arrived, text in stream:
                self._last_ns = arrived
                if not self._take(arrived, text):
                    return
                count += 1
                if count % SLICE == 0:
                    await asyncio.sleep(0)

    def _opened(self) -> None:
        self._session += 1
        self._opened_ns = self._last_ns = now_ns()
        self._absence.back(self._opened_ns)
        self.ready.set()

    def _take(self, arrived: int, text: bytes) -> bool:
        """One line; false where the watch must be opened anew."""
        try:
            if text is TOO_LONG:
                raise msgspec.DecodeError("too long")
            kind, thing = self._watched.decoding.line(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return self._unreadable(arrived)
        if kind == "ERROR":
            return self._error(arrived, thing)
        self._errors = 0
        version = thing.metadata.resourceVersion
        gap = self._absence.holds(arrived, _number(version))
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            do = self._sink.gone if kind == "DELETED" else self._sink.put
            new = 0 if do is None else do(thing, Sight(arrived, self._session, gap))
            if gap:
                self._absence.recovered(new)
        if version:
            self._version = version
        return True

    def _unreadable(self, arrived: int) -> bool:
        """A line that is no change of an object: it may have hidden one, so all is listed anew, now and then."""
        self._spoilt("a line that cannot be read")
        if arrived - self._relisted_ns < RELIST_EVERY_NS:
            return True
        self._version = ""
        self._away(arrived, "garbage")
        return False

    def _error(self, arrived: int, refusal: Refusal) -> bool:
        if refusal.code == 410 or refusal.reason in ("Expired", "Gone"):
            self._version = ""
            self._away(arrived, "expired")
            return False
        self._errors += 1
        if self._errors >= PATIENCE:
            self._version, self._errors = "", 0
        self._away(arrived, f"error {refusal.code}"[:80])
        return False

    def _refused(self, error: ApiError) -> None:
        if error.status == 410:
            self._version = ""
            self._away(self._last_ns, "expired")
            return
        self._errors += 1
        if self._errors % PATIENCE == 0 and error.status < 500 and error.status not in (401, 403, 429):
            self._version = ""
        if self._errors == PATIENCE:
            self._note(f"watch of {self.name} is refused with status {error.status}: tried again and again")
        self._away(self._last_ns, f"status {error.status}")

    def _away(self, from_ns: int, reason: str) -> None:
        lived = self._opened_ns and now_ns() - self._opened_ns > NS
        ended_well = bool(lived) and reason in ("end of stream", "expired")
        self._failures = (0 if lived else self._failures) + (0 if ended_well else 1)
        self._opened_ns = 0
        if self.ready.is_set() or self._absence.is_open:
            self._absence.begin(from_ns, reason)

    async def _wait(self) -> None:
        if self._failures:
            most = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures, 10))
            await asyncio.sleep(most * random.uniform(0.5, 1))  # noqa: S311 -- spreads the watches

    def _spoilt(self, what: str, count: int = 1) -> None:
        if not self.garbage:
            self._note(f"watch of {self.name} met {what}; what it said is lost unless a later state tells it")
        self.garbage += count


def _retry_after_s(headers: dict[str, str]) -> float:
    found = next((value for key, value in headers.items() if key.lower() == "retry-after"), "")
    return min(float(found), 30.0) if found.isdigit() else 1.0


def _number(version: str) -> int:
    """Versions are numbers in all servers that there are; one that is none is newer than nothing."""
    return int(version) if version.isdigit() and len(version) < 20 else 0
