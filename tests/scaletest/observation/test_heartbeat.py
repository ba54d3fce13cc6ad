"""The heartbeat: what is sent, acknowledged and seen again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from workbench.scaletest.cluster_api.connection import NS_PER_S, Answer, ApiError, UnreachableError, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.clock_skew import BEAT_TIMEOUT_S, KEY, Heartbeat
from workbench.scaletest.observation.object_ledger import Beating, Meta, Sight

RUN = "st-00000001"


class FakeApi:
    """Takes requests, and answers as told."""

    def __init__(self, status: int = 200, *, away: bool = False) -> None:
        self.status, self.away = status, away
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes | None = None, **options: Any) -> Answer:
        if self.away:
            raise UnreachableError("gone")
        self.asked.append((method, path, None if body is None else json.loads(body)))
        return Answer(self.status, b"{}", {}, now_ns(), now_ns())

    async def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        self.asked.append((method, path, body))
        if self.status >= 300:
            raise ApiError("refused", status=self.status)
        return {}


def heart(api: FakeApi) -> tuple[Heartbeat, list[run_records.Beat]]:
    rows: list[run_records.Beat] = []
    return Heartbeat(api, RUN, "ns", rows.append), rows  # type: ignore[arg-type]


def beating(number: int) -> Beating:
    return Beating(Meta(), {KEY: str(number)})


def sent(api: FakeApi) -> list[int]:
    return [int(body["data"][KEY]) for method, _, body in api.asked if method == "PATCH"]


def test_the_object_is_the_runs_and_is_removed() -> None:
    api = FakeApi()
    found, _ = heart(api)
    asyncio.run(found.create_object())
    asyncio.run(found.remove())
    (post, path, body), (delete, gone, _) = api.asked
    assert (post, path) == ("POST", "/api/v1/namespaces/ns/configmaps")
    assert body["metadata"]["name"] == f"workbench-heartbeat-{RUN}"
    assert body["metadata"]["labels"]["workbench.local/run-id"] == RUN
    assert (delete, gone) == ("DELETE", f"{path}/workbench-heartbeat-{RUN}")
    assert found.build_target().query == {"fieldSelector": f"metadata.name=workbench-heartbeat-{RUN}"}


def test_one_that_an_earlier_sampler_left_is_taken_and_another_refusal_is_told() -> None:
    left, _ = heart(FakeApi(409))
    asyncio.run(left.create_object())
    assert left.is_made
    forbidden, _ = heart(FakeApi(403))
    with pytest.raises(ApiError):
        asyncio.run(forbidden.create_object())
    assert not forbidden.is_made


def test_a_beat_is_written_once_it_is_seen_and_tells_the_lag() -> None:
    api = FakeApi()
    found, rows = heart(api)
    asyncio.run(found._send_beat())
    assert rows == []
    seen = now_ns() + 5_000_000
    found.put(beating(sent(api)[0]), Sight(seen))
    (row,) = rows
    assert row.sent_ns <= row.acked_ns <= row.seen_ns == seen  # type: ignore[operator]
    assert found.lag_s() == pytest.approx((seen - row.acked_ns) / NS_PER_S)


def test_a_later_beat_shows_that_the_earlier_ones_came_too() -> None:
    api = FakeApi()
    found, rows = heart(api)
    for _ in range(3):
        asyncio.run(found._send_beat())
    found.put(beating(sent(api)[1]), Sight(now_ns()))
    assert len(rows) == 2
    found.put(beating(sent(api)[0]), Sight(now_ns()))
    assert len(rows) == 2


def test_a_beat_that_nobody_sees_is_written_as_such() -> None:
    found, rows = heart(FakeApi())
    asyncio.run(found._send_beat())
    next(iter(found._waiting.values())).acked_ns -= int(2 * BEAT_TIMEOUT_S * NS_PER_S)
    assert found.lag_s() > BEAT_TIMEOUT_S
    found._drop_late_beats()
    asyncio.run(found._send_beat())
    found.end()
    assert [one.seen_ns for one in rows] == [None, None]


@pytest.mark.parametrize("api", [FakeApi(away=True), FakeApi(500)])
def test_a_beat_that_was_not_accepted_is_none(api: FakeApi) -> None:
    found, rows = heart(api)
    asyncio.run(found._send_beat())
    found.end()
    assert rows == []
    assert found.lag_s() == 0
    asyncio.run(found.remove())


def test_what_an_earlier_sampler_wrote_is_no_beat_of_ours() -> None:
    api = FakeApi()
    found, rows = heart(api)
    asyncio.run(found._send_beat())
    found.put(beating(sent(api)[0] - 1), Sight(now_ns()))
    found.put(Beating(Meta(), {KEY: "text"}), Sight(now_ns()))
    found.put(Beating(Meta(), None), Sight(now_ns()))
    assert rows == []
