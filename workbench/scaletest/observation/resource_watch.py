"""Watch of one resource: list, watch events, reconnects and relists, and the gaps between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api.connection import (
    NS_PER_S,
    TOO_LONG,
    ApiError,
    Connection,
    UnreachableError,
    now_ns,
)
from workbench.scaletest.cluster_api.list_watch import (
    ListPage,
    build_watch_query,
    iterate_pages,
    pause_after_failures,
)
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.object_ledger import ObjectDecoder, Refusal, Scope, Sight

# Events that arrive this soon after a reconnect may be of changes before it.
GRACE_NS = NS_PER_S // 10
IDLE_S = 150.0  # bookmarks arrive every minute
RELIST_EVERY_NS = 60 * NS_PER_S
PATIENCE = 3  # consecutive unknown errors before a relist
MAX_LIST_PAUSE_S = 30.0
SLICE = 100


@dataclass
class _Gap:
    from_ns: int
    reason: str
    to_ns: int = 0  # 0: the watch is still disconnected
    head: int = 0  # resource version at the reconnect: changes up to it happened during the gap
    relisted: bool = False
    recovered: int = 0


class WatchAbsence:
    """Gaps of one watch: at most one is open; it is written when no further event can belong to it."""

    def __init__(self, resource: str, write: Callable[[run_records.Gap], None], since_ns: int = 0) -> None:
        self._resource, self._write = resource, write
        self._gap = _Gap(since_ns, "the sampler was not running") if since_ns else None

    @property
    def is_open(self) -> bool:
        """Whether a gap is not yet written."""
        return self._gap is not None

    def away_s(self) -> float:
        """Seconds since the watch was disconnected; 0 while it is connected."""
        gap = self._gap
        return 0.0 if gap is None or gap.to_ns else (now_ns() - gap.from_ns) / NS_PER_S

    def begin(self, from_ns: int, reason: str) -> None:
        """Begin a gap; in an open gap a further failure only replaces the reason "end of stream"."""
        gap = self._gap
        if gap is not None and gap.to_ns:
            self._write_gap(gap)  # reconnected meanwhile: this is a new gap
            gap = None
        if gap is None:
            self._gap = _Gap(from_ns, reason)
        elif gap.reason == "end of stream":
            gap.reason = reason

    def set_head_version(self, head: int) -> None:
        """Set the server's current resource version, just before the watch reconnects."""
        if self._gap is not None:
            self._gap.head = head

    def record_relist(self, recovered: int) -> None:
        """Record a relist that recovered this many transitions."""
        if self._gap is not None:
            self._gap.relisted = True
            self._gap.recovered += recovered

    def end_absence(self, at_ns: int) -> None:
        """Record the reconnect of the watch."""
        if self._gap is not None:
            self._gap.to_ns = at_ns

    def covers_arrival(self, arrival_ns: int, version: int) -> bool:
        """Whether an event that has just arrived happened during the gap."""
        gap = self._gap
        if gap is None:
            return False
        if version <= gap.head or arrival_ns <= gap.to_ns + GRACE_NS:
            return True
        self._write_gap(gap)
        return False

    def count_recovery(self, count: int) -> None:
        """Count transitions recovered after the gap."""
        if self._gap is not None:
            self._gap.recovered += count

    def settle(self) -> None:
        """Write the gap once all its events have arrived."""
        gap = self._gap
        if gap is not None and gap.to_ns and now_ns() > gap.to_ns + GRACE_NS:
            self._write_gap(gap)

    def end(self) -> None:
        """Write an open gap at the end of the watch."""
        if self._gap is not None:
            self._gap.to_ns = self._gap.to_ns or now_ns()
            self._write_gap(self._gap)

    def _write_gap(self, gap: _Gap) -> None:
        self._gap = None
        self._write(run_records.Gap(self._resource, gap.from_ns, gap.to_ns, gap.reason, gap.relisted, gap.recovered))


@dataclass(frozen=True, slots=True)
class WatchSink:
    """Handlers of a watch's objects; each returns the number of new transitions."""

    put: Callable[[Any, Sight], int]
    gone: Callable[[Any, Sight], int] | None = None
    missing: Callable[[set[str], Sight], int] | None = None


@dataclass(frozen=True)
class WatchTarget:
    """Scope, API path (such as /api/v1/namespaces/ns/pods), decoder and selectors of a watch."""

    scope: Scope
    path: str
    decoding: ObjectDecoder
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        """Selectors as query parameters."""
        named = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in named.items() if value}


class ResourceWatch:
    """Lists and watches a resource until cancelled.

    `away_since_ns`: End of the watch of an earlier process; the first list then closes that gap.
    `optional`: A missing or forbidden resource gives a note instead of an error.
    `poll_s`: Interval of lists where the verb `watch` is forbidden; 0 for none.
    """

    def __init__(
        self,
        api: Connection,
        watched: WatchTarget,
        sink: WatchSink,
        *,
        write: Callable[[run_records.Gap], None],
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
        self._absence = WatchAbsence(resource, write, away_since_ns)
        self._last_ns = now_ns()
        self._failures = self._errors = self._unreadable = 0
        self._opened_ns = self._relisted_ns = 0
        self.garbage = 0
        self.ready = asyncio.Event()

    @property
    def name(self) -> str:
        """Name of the watch in notes."""
        scope = self._watched.scope
        return f"{scope.resource} ({scope.kind})" + (f" in {scope.namespace}" if scope.namespace else "")

    def away_s(self) -> float:
        """Seconds since the watch was disconnected; 0 while it is connected."""
        return self._absence.away_s()

    async def run(self) -> None:
        """Watch until cancelled; returns only if watching is not allowed."""
        while True:
            try:
                if not self._version:
                    await self._list_objects()
                await self._follow_stream()
                self._record_absence(now_ns(), "end of stream")
            except ApiError as error:
                if error.status in (403, 404) and not self.ready.is_set():
                    await self._handle_first_refusal(error)
                    return
                self._handle_refusal(error)
            except UnreachableError:
                self._record_absence(self._last_ns, "server gone")
            except msgspec.MsgspecError:
                self._note_garbage("a list that cannot be read")
                self._record_absence(self._last_ns, "garbage")
            await pause_after_failures(self._failures)

    async def _handle_first_refusal(self, error: ApiError) -> None:
        """Handle a first answer of 403 or 404: poll, report an error, or skip an optional resource."""
        if self._version and self._poll_s:
            self._note(f"{self.name} may only be listed: this is done every {self._poll_s:g} s")
            self.ready.set()
            await self._poll_list()
        if not self._optional:
            raise ConfigError(
                "not allowed to watch",
                where=self.name,
                found=f"status {error.status} of {self._watched.path}",
                do="`workbench scaletest plan --rbac` prints the rights that measuring needs",
            )
        self._note(f"{self.name} is not watched: the cluster answers with status {error.status}")
        self.ready.set()

    async def _poll_list(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            with contextlib.suppress(ApiError, UnreachableError, msgspec.MsgspecError):
                await self._list_objects()

    def settle(self) -> None:
        """Write the gap once all its events have arrived; called periodically."""
        self._absence.settle()

    def end(self) -> None:
        """Write an open gap at the end of the watch."""
        self._absence.end()

    async def _list_objects(self) -> None:
        """List all objects, page by page; known objects that are missing were deleted."""
        present: set[str] = set()
        recovered, version, self._unreadable = 0, "", 0
        async for page in iterate_pages(self._fetch_page, self._watched.query):
            # Listed objects changed at an unknown earlier time.
            sight = Sight(page.arrival_ns, self._session, gap=True)
            for thing in page.items:
                present.add(thing.metadata.uid)
                recovered += self._sink.put(thing, sight)
            version = page.version
            await asyncio.sleep(0)
        if self._unreadable:
            self._note_garbage(f"{self._unreadable} listed objects that cannot be read", count=self._unreadable)
        elif self._sink.missing is not None:
            recovered += self._sink.missing(present, Sight(now_ns(), self._session, gap=True))
        self._version = version
        self._relisted_ns = now_ns()
        self._absence.record_relist(recovered)

    async def _fetch_page(self, query: dict[str, str]) -> ListPage:
        answer = await self._api.request("GET", self._watched.path, query=query)
        if answer.status != 200:
            if answer.status == 429:
                # 0 is no pause.
                pause_s = answer.retry_after_s
                await asyncio.sleep(1.0 if pause_s is None else min(pause_s, MAX_LIST_PAUSE_S))
            raise ApiError(
                "the API server refused the list request",
                status=answer.status,
                where=self._watched.path,
                found=answer.status,
            )
        things, meta, unreadable = self._watched.decoding.decode_page(answer.body)
        self._unreadable += unreadable
        return ListPage(things, meta.resourceVersion, meta.continue_, answer.done_ns)

    async def _follow_stream(self) -> None:
        """Handle watch events until the stream ends."""
        if self._absence.is_open:
            # Changes up to this resource version happened during the gap.
            head = await self._fetch_page(self._watched.query | {"limit": "1"})
            self._absence.set_head_version(_parse_version(head.version))
        query = build_watch_query(self._watched.query, self._version)
        count = 0
        # aclosing: an early exit must close the connection.
        async with contextlib.aclosing(
            self._api.stream(self._watched.path, query, opened=self._record_open, idle_s=IDLE_S, marks_long=True)
        ) as stream:
            async for arrived, text in stream:
                self._last_ns = arrived
                if not self._apply_line(arrived, text):
                    return
                count += 1
                if count % SLICE == 0:
                    await asyncio.sleep(0)

    def _record_open(self) -> None:
        self._session += 1
        self._opened_ns = self._last_ns = now_ns()
        self._absence.end_absence(self._opened_ns)
        self.ready.set()

    def _apply_line(self, arrived: int, text: bytes) -> bool:
        """Handle a line; False if the watch must be reopened."""
        try:
            if text is TOO_LONG:
                raise msgspec.DecodeError("too long")
            kind, thing = self._watched.decoding.decode_line(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return self._skip_line(arrived)
        if kind == "ERROR":
            return self._handle_error_line(arrived, thing)
        self._errors = 0
        version = thing.metadata.resourceVersion
        gap = self._absence.covers_arrival(arrived, _parse_version(version))
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            do = self._sink.gone if kind == "DELETED" else self._sink.put
            new = 0 if do is None else do(thing, Sight(arrived, self._session, gap))
            if gap:
                self._absence.count_recovery(new)
        if version:
            self._version = version
        return True

    def _skip_line(self, arrived: int) -> bool:
        """Relist after an invalid line, which may hide a change; at most once a minute."""
        self._note_garbage("a line that cannot be read")
        if arrived - self._relisted_ns < RELIST_EVERY_NS:
            return True
        self._version = ""
        self._record_absence(arrived, "garbage")
        return False

    def _handle_error_line(self, arrived: int, refusal: Refusal) -> bool:
        if refusal.code == 410 or refusal.reason in ("Expired", "Gone"):
            self._version = ""
            self._record_absence(arrived, "expired")
            return False
        self._errors += 1
        if self._errors >= PATIENCE:
            self._version, self._errors = "", 0
        self._record_absence(arrived, f"error {refusal.code}"[:80])
        return False

    def _handle_refusal(self, error: ApiError) -> None:
        if error.status == 410:
            self._version = ""
            self._record_absence(self._last_ns, "expired")
            return
        self._errors += 1
        if self._errors % PATIENCE == 0 and error.status < 500 and error.status not in (401, 403, 429):
            self._version = ""
        if self._errors == PATIENCE:
            self._note(f"watch of {self.name} is refused with status {error.status}; retrying")
        self._record_absence(self._last_ns, f"status {error.status}")

    def _record_absence(self, from_ns: int, reason: str) -> None:
        lived = self._opened_ns and now_ns() - self._opened_ns > NS_PER_S
        ended_well = bool(lived) and reason in ("end of stream", "expired")
        self._failures = (0 if lived else self._failures) + (0 if ended_well else 1)
        self._opened_ns = 0
        if self.ready.is_set() or self._absence.is_open:
            self._absence.begin(from_ns, reason)

    def _note_garbage(self, subject: str, count: int = 1) -> None:
        if not self.garbage:
            self._note(f"watch of {self.name} received {subject}; transitions may be missing")
        self.garbage += count


def _parse_version(version: str) -> int:
    """Resource version as a number, which it is in practice; 0 otherwise."""
    return int(version) if version.isdigit() and len(version) < 20 else 0
