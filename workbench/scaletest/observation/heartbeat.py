"""Heartbeat: a ConfigMap updated every second to measure the watch lag."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.api_discovery import CONFIG_MAPS
from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import ApiError, Connection, UnreachableError
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.decoded_objects import Beating, ObjectDecoder
from workbench.scaletest.observation.object_ledger import Scope, Sight
from workbench.scaletest.observation.resource_watch import WatchTarget

BEAT_EVERY_S = 1.0
BEAT_TIMEOUT_S = 10.0
KEY = "beat"


@dataclass
class _SentBeat:
    sent_ns: int
    acked_ns: int = 0
    seen_ns: int = 0


class Heartbeat:
    """Updates the ConfigMap, and receives its watch events (`put`)."""

    def __init__(self, api: Connection, run: str, namespace: str, write: Callable[[run_records.Beat], None]) -> None:
        self._api, self._run, self._namespace, self._write = api, run, namespace, write
        self.object = f"workbench-heartbeat-{run}"
        self._path = CONFIG_MAPS.path(namespace)
        # Higher than the numbers of an earlier process, whose last beat may still be in the object.
        self._number = now_ns() // 1_000_000
        self._waiting: OrderedDict[int, _SentBeat] = OrderedDict()
        self._lag_s = 0.0
        self.is_made = False

    def build_target(self) -> WatchTarget:
        """Build the watch of the heartbeat's ConfigMap."""
        scope = Scope("heartbeat", "ConfigMap", self._namespace)
        return WatchTarget(scope, self._path, ObjectDecoder(Beating), fields=f"metadata.name={self.object}")

    async def create_object(self) -> None:
        """Create the object, or reuse the one of an earlier process."""
        labels = {object_names.MANAGED_BY: object_names.MANAGER, object_names.RUN: self._run}
        body = {"metadata": {"name": self.object, "labels": labels}, "data": {KEY: "0"}}
        try:
            await self._api.json("POST", self._path, body)
        except ApiError as error:
            if error.status != 409:
                raise
        self.is_made = True

    async def run(self) -> None:
        """Send a heartbeat every second until cancelled; a failed one is skipped."""
        due = now_ns()
        while True:
            due = max(due + int(BEAT_EVERY_S * NS_PER_S), now_ns())
            await self._send_beat()
            self._drop_late_beats()
            await asyncio.sleep(max(0.0, (due - now_ns()) / NS_PER_S))

    async def remove(self) -> None:
        """Delete the object; if that fails, cleanup finds it by its label."""
        with contextlib.suppress(ApiError, UnreachableError):
            await self._api.request("DELETE", f"{self._path}/{self.object}", timeout_s=5)

    def lag_s(self) -> float:
        """Current watch lag: of the last observed beat, or the age of the oldest missing one if larger."""
        oldest = next((beat for beat in self._waiting.values() if beat.acked_ns), None)
        missing = 0.0 if oldest is None else (now_ns() - oldest.acked_ns) / NS_PER_S
        return max(self._lag_s, missing)

    def end(self) -> None:
        """Write the heartbeats that were never observed."""
        for beat in self._waiting.values():
            self._write_beat(beat)
        self._waiting.clear()

    async def _send_beat(self) -> None:
        self._number += 1
        number = self._number
        self._waiting[number] = beat = _SentBeat(now_ns())
        try:
            answer = await self._api.request(
                "PATCH",
                f"{self._path}/{self.object}",
                body=b'{"data":{"%s":"%d"}}' % (KEY.encode(), number),
                content_type="application/merge-patch+json",
                timeout_s=BEAT_TIMEOUT_S,
            )
        except UnreachableError:
            self._waiting.pop(number, None)
            return
        if answer.status >= 300:
            self._waiting.pop(number, None)
            return
        beat.sent_ns, beat.acked_ns = answer.sent_ns, answer.done_ns
        self._settle_beat(number)

    def put(self, thing: Any, sight: Sight) -> int:
        """Handle a watch event: this beat and all earlier ones have arrived."""
        text = (thing.data or {}).get(KEY, "")
        number = int(text) if text.isdigit() and len(text) < 18 else 0
        for earlier in [beat_number for beat_number in self._waiting if beat_number <= number]:
            self._waiting[earlier].seen_ns = sight.arrival_ns
            self._settle_beat(earlier)
        return 0

    def _settle_beat(self, number: int) -> None:
        beat = self._waiting.get(number)
        if beat is not None and beat.acked_ns and beat.seen_ns:
            del self._waiting[number]
            self._lag_s = max(0.0, (beat.seen_ns - beat.acked_ns) / NS_PER_S)
            self._write_beat(beat)

    def _drop_late_beats(self) -> None:
        for number, beat in list(self._waiting.items()):
            if beat.acked_ns and now_ns() - beat.acked_ns > BEAT_TIMEOUT_S * NS_PER_S:
                del self._waiting[number]
                self._write_beat(beat)

    def _write_beat(self, beat: _SentBeat) -> None:
        if beat.acked_ns:
            self._write(run_records.Beat(beat.sent_ns, beat.acked_ns, beat.seen_ns or None))
