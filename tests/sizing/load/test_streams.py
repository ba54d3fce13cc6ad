"""Streams as servers and proxies send them: times between tokens are right or unknown, never wrong."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from aiohttp import web

from tests.fakes.hostile import hostile
from tests.fakes.misbehaving import serve_in_thread
from workbench.sizing.config import Goal
from workbench.sizing.estimation import gpu_estimates, step_points
from workbench.sizing.estimation.sizing_answer import compute_goodput
from workbench.sizing.load.client_messages import (
    BUFFERED,
    HIDDEN,
    SEVERAL,
    UNCLEAR,
    UNCOUNTED,
    UNSTREAMED,
    CutAnswerError,
    Reply,
    TargetSpec,
)
from workbench.sizing.load.service_targets.openai_target import ChatStream
from workbench.sizing.load.service_targets.target_factory import create_target
from workbench.sizing.load.sweep_runner import run_sweep

FIRST_S, GAP_S = 0.2, 0.05
SPOKEN = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs")


@dataclass
class Stream:
    """A stream with planted truth: tokens are made at FIRST_S and then every GAP_S."""

    n_tokens: int = 20
    tokens_an_event: int = 1
    events_a_read: int = 1  # a proxy lets so many go together
    n_hidden: int = 0
    hidden_told: bool = True
    counted: bool = True
    word: Callable[[int], str] = lambda _: "t "
    finish: str | None = "stop"
    done: bool = True

    def replies(self) -> Reply:
        """What the client makes of it."""
        stream, hidden_s = ChatStream(), self.n_hidden * GAP_S
        made = [FIRST_S + hidden_s + GAP_S * place for place in range(self.n_tokens)]
        events = [
            range(i, min(i + self.tokens_an_event, self.n_tokens))
            for i in range(0, self.n_tokens, self.tokens_an_event)
        ]
        now = 0.0
        for start in range(0, len(events), self.events_a_read):
            together = events[start : start + self.events_a_read]
            now = made[together[-1][-1]]
            for event in together:
                self._add(stream, {"delta": {"content": "".join(self.word(i) for i in event)}}, now)
        self._add(stream, {"delta": {}, "finish_reason": self.finish}, now)
        if self.counted:
            details = {"completion_tokens_details": {"reasoning_tokens": self.n_hidden}} if self.hidden_told else {}
            usage = {"prompt_tokens": 9, "completion_tokens": self.n_tokens + self.n_hidden, **details}
            stream.add_line(b"data: " + json.dumps({"choices": [], "usage": usage}).encode(), now)
        if self.done:
            stream.add_line(b"data: [DONE]", now)
        return stream.build_reply(now, 200, sent=0.0)

    @staticmethod
    def _add(stream: ChatStream, choice: dict[str, Any], now: float) -> None:
        stream.add_line(b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode(), now)

    @property
    def true_ttft_s(self) -> float:
        return FIRST_S + self.n_hidden * GAP_S


def chinese(place: int) -> str:
    return "天地玄黄宇宙洪荒"[place % 8]


def code(place: int) -> str:
    return ("x[", "i]", "+=", "f(", "y)", ";")[place % 6]


def words(place: int) -> str:
    return SPOKEN[place % len(SPOKEN)] + " "


@pytest.mark.parametrize(
    ("stream", "itl_s", "note"),
    [
        (Stream(), GAP_S, None),
        (Stream(counted=False), GAP_S, None),
        (Stream(word=words), GAP_S, None),
        (Stream(tokens_an_event=10), GAP_S, SEVERAL),
        (Stream(tokens_an_event=3, word=words), GAP_S, SEVERAL),
        (Stream(tokens_an_event=10, counted=False), None, UNCOUNTED),
        (Stream(n_hidden=100), GAP_S, None),
        (Stream(n_hidden=100, tokens_an_event=5), GAP_S, SEVERAL),
        (Stream(n_hidden=15, hidden_told=False), None, HIDDEN),
        (Stream(n_hidden=100, hidden_told=False), GAP_S, UNSTREAMED),
        (Stream(word=chinese, tokens_an_event=4, counted=False), None, UNCOUNTED),
        (Stream(word=chinese, counted=False), GAP_S, None),
        (Stream(word=chinese), GAP_S, None),
        (Stream(word=code, tokens_an_event=2, counted=False), None, UNCOUNTED),
        (Stream(word=code, tokens_an_event=4), GAP_S, SEVERAL),
        (Stream(events_a_read=20, tokens_an_event=2, counted=False, n_tokens=40), None, UNCLEAR),
        (Stream(n_hidden=8, hidden_told=False, word=words), None, HIDDEN),
        (Stream(events_a_read=20), None, BUFFERED),
        (Stream(tokens_an_event=20), None, BUFFERED),
        (Stream(n_tokens=1), None, None),
    ],
    ids=lambda value: repr(value)[:70] if isinstance(value, Stream) else "",
)
def test_a_stream_tells_its_times_or_why_not(stream: Stream, itl_s: float | None, note: str | None) -> None:
    reply = stream.replies()
    assert reply.itl_s == (None if itl_s is None else pytest.approx(itl_s, rel=0.05))
    assert reply.stream == note
    is_buffered = note in (BUFFERED, UNCLEAR)
    assert reply.first_token == (None if is_buffered else pytest.approx(stream.true_ttft_s, abs=10 * GAP_S))
    is_unknown = note in (UNCOUNTED, UNCLEAR)
    assert reply.output_tokens == (None if is_unknown else stream.n_tokens + stream.n_hidden * stream.counted)
    assert reply.streamed_tokens == (None if is_unknown or note == HIDDEN else stream.n_tokens)


def test_of_forty_drawn_streams_none_has_a_wrong_time() -> None:
    rng = random.Random(3)
    wrong, known = [], 0
    for _ in range(40):
        stream = Stream(
            n_tokens=rng.randint(2, 200),
            tokens_an_event=rng.choice((1, 1, 1, 2, 5, 10, 32)),
            events_a_read=rng.choice((1, 1, 1, 2, 4, 16, 500)),
            n_hidden=rng.choice((0, 0, 0, 5, 50)),
            hidden_told=rng.random() < 0.6,
            counted=rng.random() < 0.7,
            word=rng.choice((lambda _: "t ", words, chinese, code)),
            finish=rng.choice(("stop", "length", "")),
        )
        reply = stream.replies()
        # The first tokens are seen when the first event that has some is read.
        seen_s = stream.true_ttft_s + GAP_S * (min(stream.tokens_an_event, stream.n_tokens) - 1)
        tpot_s = None
        if reply.first_token is not None and reply.later_tokens:
            tpot_s = (reply.ended - reply.first_token) / reply.later_tokens
        for name, value, true in (
            ("ttft", reply.first_token, seen_s),
            ("itl", reply.itl_s, GAP_S),
            ("tpot", tpot_s, GAP_S),
        ):
            known += value is not None
            if value is not None and value != pytest.approx(true, rel=0.05):
                wrong.append((stream, name, value, true))
    assert wrong == []
    assert known > 40


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([b"data: null", b'data: {"choices": null}', b'data: {"choices": [{"delta": {"content": "a"}}]}'], b"a"),
        ([b'data: {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]}'], b"ab"),
        ([b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]}'], b"a"),
    ],
)
def test_chunks_are_read_as_openais_own_client_reads_them(lines: list[bytes], text: bytes) -> None:
    stream = ChatStream()
    for line in [*lines, b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}', b"data: [DONE]"]:
        stream.add_line(line, 1.0)
    assert stream.build_reply(1.0, 200, 0.0).answer == text


def test_an_empty_finish_reason_is_none() -> None:
    assert Stream(finish="").replies().outcome == "ok"
    with pytest.raises(CutAnswerError):
        Stream(finish="", done=False).replies()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"answer": 1}'


def send_to(
    serve: Callable[[bytes, bytes], bytes | None], count: int, **spec: Any
) -> tuple[list[Reply], list[str], int]:
    """Replies of a service that answers (head, body) with bytes; with None first, it closes after the answer."""
    n_asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_asked
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                n_asked += 1
                answer = serve(head, body)
                writer.write(answer or OK)
                await writer.drain()
                if answer is None:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def work() -> tuple[list[Reply], list[str], int]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        target = create_target(TargetSpec(**{"protocol": "http", "url": url, "timeout_s": 60.0, **spec}))
        await target.open()
        replies = [await target.send("x") for _ in range(count)]
        await target.close()
        server.close()
        return replies, list(getattr(target, "notes", [])), n_asked

    return asyncio.run(work())


def test_a_service_that_closes_connections_without_a_word_loses_no_request() -> None:
    replies, notes, _ = send_to(lambda _head, _body: None, 20)
    assert [reply.outcome for reply in replies] == ["ok"] * 20
    assert notes == ["the service closes each connection after its answer: every request makes its own"]


def test_a_service_that_breaks_answers_off_is_not_asked_twice() -> None:
    turn = iter([OK, b"", OK, b""] * 9)

    def serve(_head: bytes, _body: bytes) -> bytes | None:
        return next(turn) or b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"

    replies, _, n_asked = send_to(serve, 4, timeout_s=0.3)
    assert [reply.outcome for reply in replies] == ["ok", "timeout", "ok", "timeout"]
    assert n_asked == 4


def test_stream_options_that_are_refused_are_left_out_and_it_is_said() -> None:
    def serve(_head: bytes, body: bytes) -> bytes:
        if b"stream_options" in body:
            detail = b'{"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}'
            return b"HTTP/1.1 422 Unprocessable\r\nContent-Length: %d\r\n\r\n%b" % (len(detail), detail)
        text = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)

    replies, notes, n_asked = send_to(serve, 3, protocol="openai", model="m")
    assert [reply.outcome for reply in replies] == ["ok"] * 3
    assert n_asked == 4
    assert len(notes) == 1
    assert notes[0].startswith("the server refuses stream_options (422)")


def test_an_answer_that_is_no_http_is_malformed() -> None:
    (reply,), _, _ = send_to(lambda _head, _body: b"\x00\x01 this is no HTTP\r\n\r\n", 1, protocol="nat")
    assert reply.outcome == "malformed"


def test_a_redirect_is_named_and_its_query_is_not_and_nobody_follows_it() -> None:
    answer = b"HTTP/1.1 307 Moved\r\nLocation: https://me:pw@there/v1/?token=s3\r\nContent-Length: 0\r\n\r\n"
    (reply,), _, n_asked = send_to(lambda _head, _body: answer, 1)
    assert (reply.outcome, reply.status, n_asked) == ("http_error", 307, 1)
    assert reply.detail is not None
    assert reply.detail.startswith(
        "redirected to https://there/v1/: if that is the service, give it as the URL (asked "
    )


def test_a_page_in_place_of_a_stream_is_named() -> None:
    page = b"<html>Sign in</html>"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
    (reply,), _, _ = send_to(lambda _head, _body: answer, 1, protocol="openai")
    assert reply.outcome == "malformed"
    assert str(reply.detail).startswith("text/html, and no stream of events (asked http://127.0.0.1:")


@pytest.mark.parametrize("processes", [0, 2])
def test_one_and_the_same_refusal_from_the_start_ends_the_sweep(processes: int) -> None:
    with hostile(cycle=["4xx"]) as server:
        found = run_sweep(url=server.url, users=[1, 2, 4, 8], processes=processes, timeout_s=60.0, min_step_s=5.0)
        assert server.total <= 20
    assert found.ended == "refused"
    assert found.reasons[0].startswith(
        "the first requests all met the same refusal, so nothing more was sent: http_error 4"
    )
    assert found.steps["stopped"].to_list() == ["refused"]


def test_a_refusal_is_the_same_whatever_the_id_in_it() -> None:
    numbers = itertools.count(10**9)

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": f"request {next(numbers)}: no such model"}, status=404)

    with serve_in_thread(refuse) as url:
        found = run_sweep(url=url, users=[4], processes=0, timeout_s=60.0, min_step_s=5.0)
    assert found.ended == "refused"
    assert found.requests.height <= 20
    assert str(found.limit).startswith('http_error 404: {"error": "request <n>: no such model"}')


THINK_S, STALL_S = 0.05, 0.2


def write_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"
    )


@pytest.mark.live
def test_stalls_reasoning_and_cut_answers_are_measured_over_http() -> None:
    numbers = itertools.count()

    async def think_and_stall(_: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(_)
        is_cut = next(numbers) % 4 == 0
        await response.write(write_chunk({"reasoning_content": "hm "}))
        await asyncio.sleep(THINK_S)
        for _place in range(2):
            await response.write(write_chunk({"content": "so "}))
            await asyncio.sleep(STALL_S if is_cut else 0.01)
        await response.write(write_chunk({"content": "on"}, "length" if is_cut else "stop") + b"data: [DONE]\n\n")
        return response

    goals = [Goal.read("gap p90<=0.15"), Goal.read("ttfo p90<=10")]
    with serve_in_thread(think_and_stall) as url:
        found = run_sweep(
            url=url, protocol="openai", model="m", users=[4], goals=goals, processes=0, timeout_s=60.0,
            least_samples=20, most_samples=20, min_step_s=0.0,
        )  # fmt: skip
    is_cut = pl.col("finish_reason") == "length"
    sent = found.requests
    assert sent.filter(is_cut).select((pl.col("longest_gap_s") >= 0.9 * STALL_S).all()).item()
    assert sent.filter(~is_cut).select((pl.col("longest_gap_s") >= 0.9 * THINK_S).all()).item()
    assert sent.select((pl.col("ttfo_s") - pl.col("ttft_s") >= 0.9 * THINK_S).all()).item()
    (point,) = found.points.to_dicts()
    n_cut = round(point["length_share"] * point["n_kept"])
    assert point["finish_reasons"] == f"stop {point['n_kept'] - n_cut}, length {n_cut}"
    assert sum("ended at their limit of tokens (finish reason length)" in note for note in found.notes) == 1
    kept_gaps = dict(found.quantiles.filter(metric="gap").select("q", "value_s").iter_rows())
    assert kept_gaps[0.5] < STALL_S <= 1.1 * kept_gaps[0.9]
    goodput = compute_goodput(sent, found.steps, found.points, found.config.goals)
    assert goodput["within_share"][0] == pytest.approx(1 - point["length_share"], abs=0.15)


def test_a_goal_on_what_was_not_measured_is_refused_and_the_others_are_answered() -> None:
    with hostile(tokens=8, token_s=0.0) as server:
        sweep = run_sweep(
            url=server.url, protocol="openai", model="m", users=[1, 2], processes=0, timeout_s=60.0,
            least_samples=40, most_samples=40, min_step_s=0.0,
        )  # fmt: skip
    requests = sweep.requests.with_columns(
        stream=pl.lit(BUFFERED), ttft_s=pl.lit(None, pl.Float64), itl_s=pl.lit(None, pl.Float64)
    )
    points, _ = step_points.assess_steps(requests, sweep.steps)
    assert all("buffers it" in note for note in points["stream_note"])
    goals = [Goal.read("itl p50<=50ms"), Goal.read("runtime p50<=60s")]
    points = points.with_columns(verdict=pl.lit("valid"), reason=pl.lit(None, pl.String))
    estimates = gpu_estimates.estimate_gpus(requests, sweep.steps, points, goals, 2.0, draws=20)
    reasons = dict(estimates.select("metric", "reason").iter_rows())
    assert reasons["itl"].startswith("itl was not measured: the stream did not come token by token")
    assert "not measured" not in (reasons["runtime"] or "")
