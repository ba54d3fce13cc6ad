"""How late our own watch is: a ConfigMap that is changed every second, and seen through a watch of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.scaletest import names, records
from workbench.scaletest.connection import ApiError, AwayError, Connection
from workbench.scaletest.times import NS, now_ns
from workbench.scaletest.watching.discovery import CONFIG_MAPS
from workbench.scaletest.watching.known import Scope, Sight
from workbench.scaletest.watching.objects import Beating, Decoding
from workbench.scaletest.watching.watch import Watched

EVERY_S = 1.0
TIMEOUT_S = 10.0
KEY = "beat"


@dataclass
class _Sent:
    sent_ns: int
    acked_ns: int = 0
    seen_ns: int = 0


class Heartbeat:
    """Beats, and takes what its watch sees of it (`put`)."""

    def __init__(self, api: Connection, run: str, namespace: str, write: Callable[[records.Beat], None]) -> None:
        self._api, self._run, self._namespace, self._write = api, run, namespace, write
        self.object = f"workbench-heartbeat-{run}"
        self._path = CONFIG_MAPS.path(namespace)
        # Above those of an earlier process, whose last beat may still stand in the object.
        self._number = now_ns() // 1_000_000
        self._waiting: OrderedDict[int, _Sent] = OrderedDict()
        self._lag_s = 0.0
        self.is_made = False

    def watched(self) -> Watched:
        """The watch that sees it."""
        scope = Scope("heartbeat", "ConfigMap", self._namespace)
        return Watched(scope, self._path, Decoding(Beating), fields=f"metadata.name={self.object}")

    async def make(self) -> None:
        """Make the object; one that an earlier process left is taken.

        Raises
        ------
        ApiError, AwayError
            It cannot be made.
        """
        labels = {names.MANAGED_BY: names.MANAGER, names.RUN: self._run}
        body = {"metadata": {"name": self.object, "labels": labels}, "data": {KEY: "0"}}
        try:
            await self._api.json("POST", self._path, body)
        except ApiError as error:
            if error.status != 409:
                raise
        self.is_made = True

    async def run(self) -> None:
        """Beat every second, for ever; a server that is gone is tried again at the next beat."""
        due = now_ns()
        while True:
            due = max(due + int(EVERY_S * NS), now_ns())
            await self._beat()
            self._give_up()
            await asyncio.sleep(max(0.0, (due - now_ns()) / NS))

    async def remove(self) -> None:
        """Delete the object; what cannot be deleted now is found by its label."""
        with contextlib.suppress(ApiError, AwayError):
            await self._api.request("DELETE", f"{self._path}/{self.object}", timeout_s=5)

    def lag_s(self) -> float:
        """How late the watch is now: of the last beat that was seen, or how long one has been missing."""
        oldest = next((one for one in self._waiting.values() if one.acked_ns), None)
        missing = 0.0 if oldest is None else (now_ns() - oldest.acked_ns) / NS
        return max(self._lag_s, missing)

    def end(self) -> None:
        """Write down the beats that nobody saw."""
        for one in self._waiting.values():
            self._done(one)
        self._waiting.clear()

    async def _beat(self) -> None:
        self._number += 1
        number = self._number
        self._waiting[number] = one = _Sent(now_ns())
        try:
            answer = await self._api.request(
                "PATCH",
                f"{self._path}/{self.object}",
                body=b'{"data":{"%s":"%d"}}' % (KEY.encode(), number),
                content_type="application/merge-patch+json",
                timeout_s=TIMEOUT_S,
            )
        except AwayError:
            self._waiting.pop(number, None)
            return
        if answer.status >= 300:
            self._waiting.pop(number, None)
            return
        one.sent_ns, one.acked_ns = answer.sent_ns, answer.done_ns
        self._settle(number)

    def put(self, thing: Any, sight: Sight) -> int:
        """The watch saw a beat: it and all before it have arrived."""
        text = (thing.data or {}).get(KEY, "")
        number = int(text) if text.isdigit() and len(text) < 18 else 0
        for earlier in [one for one in self._waiting if one <= number]:
            self._waiting[earlier].seen_ns = sight.arrival_ns
            self._settle(earlier)
        return 0

    def _settle(self, number: int) -> None:
        one = self._waiting.get(number)
        if one is not None and one.acked_ns and one.seen_ns:
            del self._waiting[number]
            self._lag_s = max(0.0, (one.seen_ns - one.acked_ns) / NS)
            self._done(one)

    def _give_up(self) -> None:
        for number, one in list(self._waiting.items()):
            if one.acked_ns and now_ns() - one.acked_ns > TIMEOUT_S * NS:
                del self._waiting[number]
                self._done(one)

    def _done(self, one: _Sent) -> None:
        if one.acked_ns:
            self._write(records.Beat(one.sent_ns, one.acked_ns, one.seen_ns or None))
