"""Tokens of a stream: counted by what came, held against what the server tells, and null with a note where unsure."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from workbench.sizing.estimation.metrics import METRICS, count_user_tokens, explain_missing, metric_values
from workbench.sizing.estimation.step_points import measure_flow
from workbench.sizing.load.client_messages import (
    BURSTS,
    CHOICES,
    FEWER,
    HIDDEN,
    SEVERAL,
    STREAM_NOTES,
    UNCLEAR_NOTES,
    UNCOUNTED,
    UNSTREAMED,
    MalformedAnswerError,
    Reply,
)
from workbench.sizing.load.service_targets.event_times import EventTimes
from workbench.sizing.load.service_targets.http_target import LineSplitter
from workbench.sizing.load.service_targets.openai_target import ChatStream

FIRST_S, GAP_S, N_EVENTS = 0.2, 0.05, 12
WORDS = [" ab", " cd", " ef", " gh"]


def write_event(delta: dict[str, Any], index: int = 0, **more: Any) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": more.pop("finish", None)}]
    return b"data: " + json.dumps({"choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"


def write_usage(count: Any, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": count, **more}}).encode() + b"\n\n"


def read_stream(reads: list[tuple[float, bytes]]) -> Reply:
    """What the client makes of bytes that it reads at these times."""
    lines, stream = LineSplitter(1 << 20), ChatStream()
    for now, part in reads:
        for line in lines.add_chunk(part):
            stream.add_line(line, now)
    return stream.build_reply(reads[-1][0], 200, sent=0.0)


def time_events(parts: list[bytes], *ends: bytes) -> list[tuple[float, bytes]]:
    """A part at a time, and all ends with the last one."""
    reads = [(FIRST_S + GAP_S * place, part) for place, part in enumerate(parts)]
    return [*reads, (reads[-1][0], b"".join([write_event({}, finish="stop"), *ends, b"data: [DONE]\n\n"]))]


def read_texts(texts: list[str], *ends: bytes) -> Reply:
    return read_stream(time_events([write_event({"content": text}) for text in texts], *ends))


SHORT = [WORDS[place % 4] for place in range(N_EVENTS)]
TOLD_REASONING = {"completion_tokens_details": {"reasoning_tokens": 48}}


@pytest.mark.parametrize(
    ("texts", "ends", "streamed", "note"),
    [
        (SHORT, [], 12, None),
        (SHORT, [write_usage(12)], 12, None),
        (SHORT, [write_usage(13)], 13, None),
        (["天地玄黄"] * 3, [], None, UNCOUNTED),
        (["こんにちは"] * 3, [], None, UNCOUNTED),
        (["สวัสดี"] * 3, [], None, UNCOUNTED),
        (["안녕하세요"] * 3, [], None, UNCOUNTED),
        (["x[i]+=f(y);"] * 3, [], None, UNCOUNTED),
        (["foo(bar)\n"] * 3, [], None, UNCOUNTED),
        (["the quick brown"] * 3, [], None, UNCOUNTED),
        (["Donaudampfschifffahrt"] * 3, [], None, UNCOUNTED),
        (["天", "地", "玄"], [], 3, None),
        (["The", " quick", " fox", ",", " don", "'t", "\n\n", "    ", " return", "(", "x1", "):"], [], 12, None),
        (["天地玄黄"] * 3, [write_usage(3)], 3, None),
        (["天地玄黄"] * 3, [write_usage(12)], None, HIDDEN),
        (["the quick brown"] * 3, [write_usage(9)], 9, SEVERAL),
        (["the quick brown fox"] * 3, [write_usage(3)], None, FEWER),
        (SHORT, [write_usage(6)], None, FEWER),
        (SHORT, [write_usage(0)], None, FEWER),
        (SHORT, [write_usage(18)], None, HIDDEN),
        (SHORT, [write_usage(60)], 12, UNSTREAMED),
        (SHORT, [write_usage(78, completion_tokens_details={"reasoning_tokens": 0})], 12, UNSTREAMED),
        (["天地玄黄"] * 3, [write_usage(500)], None, HIDDEN),
        (SHORT, [write_usage(60, **TOLD_REASONING)], 12, None),
        (SHORT, [write_usage(60, reasoning_tokens=48)], 12, None),
        (SHORT, [write_usage(60, completion_tokens_details={"reasoning_tokens": "48"})], 12, None),
        (SHORT, [write_usage(12, completion_tokens_details=[], prompt_tokens_details="")], 12, None),
        (SHORT, [write_usage(12, completion_tokens_details={"reasoning_tokens": 5})], 12, None),
        (SHORT, [write_usage(15, completion_tokens_details={"rejected_prediction_tokens": 3})], 12, None),
    ],
)  # fmt: skip
def test_tokens_are_what_came_and_a_count_is_held_against_it(
    texts: list[str], ends: list[bytes], streamed: int | None, note: str | None
) -> None:
    reply = read_texts(texts, *ends)
    assert (reply.streamed_tokens, reply.stream) == (streamed, note)
    assert reply.first_token == pytest.approx(FIRST_S)
    span_s = GAP_S * (len(texts) - 1)
    later = None if streamed is None else streamed - (streamed / len(texts) if note == SEVERAL else 1)
    assert reply.itl_s == (None if later is None else pytest.approx(span_s / later))


@pytest.mark.parametrize(
    "places",
    [{0: 0}, {0: 1}, {3: 4, 7: 8}, {place: place + 1 for place in range(N_EVENTS - 1)}],
    ids=["zero", "first", "between", "all but the last"],
)
def test_a_count_before_the_last_token_is_none(places: dict[int, int]) -> None:
    usages = {place: {"usage": {"prompt_tokens": 40, "completion_tokens": count}} for place, count in places.items()}
    parts = [write_event({"content": text}, **usages.get(place, {})) for place, text in enumerate(SHORT)]
    reply = read_stream(time_events(parts))
    assert (reply.output_tokens, reply.input_tokens, reply.itl_s) == (12, 40, pytest.approx(GAP_S))
    later = read_stream(time_events(parts, write_usage(13)))
    assert later.output_tokens == 13
    with_last = [*parts[:-1], write_event({"content": " z"}, usage={"completion_tokens": 13})]
    assert read_stream(time_events(with_last)).output_tokens == 13


@pytest.mark.parametrize("written", [12, 12.0, "12", "12.0"])
def test_counts_are_read_as_floats_and_as_texts_of_digits(written: Any) -> None:
    reply = read_texts(SHORT, write_usage(written, prompt_tokens=written))
    assert (reply.output_tokens, reply.input_tokens, reply.stream) == (12, 12, None)


@pytest.mark.parametrize("written", ["many", -3, 12.5, True, {}, [12], None])
def test_what_is_no_count_is_none(written: Any) -> None:
    reply = read_texts(SHORT, write_usage(written))
    assert (reply.outcome, reply.output_tokens, reply.stream) == ("ok", 12, None)


@pytest.mark.parametrize(
    ("delta", "answer"),
    [
        ({"content": None, "function_call": {"arguments": "x"}}, b""),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}, b""),
        ({"tool_calls": [{"index": 0, "type": "custom", "custom": {"input": "x"}}]}, b""),
        ({"refusal": " no"}, b" no" * 12),
        ({"audio": {"id": "a", "data": "AAAA+BBBB/" * 30}}, b""),
        ({"audio": {"id": "a", "transcript": " hm"}}, b" hm" * 12),
        ({"reasoning": " so"}, b" so" * 12),
    ],
)
def test_deltas_of_every_kind_are_output(delta: dict[str, Any], answer: bytes) -> None:
    reply = read_stream(time_events([write_event(delta)] * N_EVENTS, write_usage(12)))
    assert (reply.outcome, reply.answer, reply.output_tokens) == ("ok", answer, 12)
    assert (reply.itl_s, reply.stream) == (pytest.approx(GAP_S), None)


def test_sound_that_nothing_counts_has_no_known_tokens() -> None:
    reply = read_stream(time_events([write_event({"audio": {"data": "AAAA"}})] * N_EVENTS))
    assert (reply.output_tokens, reply.itl_s, reply.stream) == (None, None, UNCOUNTED)


@pytest.mark.parametrize("comment", [b"", b": alive\n", b"event: message\nid: 7\n"])
def test_an_event_of_several_data_lines_is_one(comment: bytes) -> None:
    parts = []
    for text in SHORT:
        body = write_event({"content": text})[6:-2]
        first, second = body.index(b",") + 1, body.index(b"}") + 1
        lines = (body[:first], body[first:second], body[second:])
        parts.append(comment + b"".join(b"data: " + line + b"\n" for line in lines) + b"\n")
    reply = read_stream(time_events(parts, write_usage(12)))
    assert (reply.answer, reply.output_tokens, reply.stream) == ("".join(SHORT).encode(), 12, None)
    assert reply.itl_s == pytest.approx(GAP_S)


def test_an_event_of_several_lines_is_bounded() -> None:
    stream, part = ChatStream(max_bytes=100), b'data: {"a": "' + b"x" * 60
    stream.add_line(part, 1.0)
    with pytest.raises(MalformedAnswerError, match="an event of more than 100 bytes"):
        stream.add_line(part, 1.0)


def test_the_texts_of_a_completion_that_is_no_chat_are_output() -> None:
    parts = [b"data: " + json.dumps({"choices": [{"index": 0, "text": text}]}).encode() + b"\n\n" for text in SHORT]
    reply = read_stream(time_events(parts, write_usage(12)))
    assert (reply.answer, reply.itl_s, reply.stream) == ("".join(SHORT).encode(), pytest.approx(GAP_S), None)


@pytest.mark.parametrize("n_choices", [2, 3])
def test_the_times_of_several_choices_are_those_of_one(n_choices: int) -> None:
    parts = [
        b"".join(write_event({"content": text}, index) for index in range(n_choices)) for text in SHORT
    ]  # fmt: skip
    reply = read_stream(time_events(parts, write_usage(12 * n_choices)))
    assert (reply.first_token, reply.itl_s) == (pytest.approx(FIRST_S), pytest.approx(GAP_S))
    assert (reply.streamed_tokens, reply.later_tokens, reply.stream) == (12 * n_choices, 11, CHOICES)


@pytest.mark.parametrize("sizes", [[3, 1, 4, 2, 2], [2, 3, 1, 1, 4], [4, 2, 5, 1]])
def test_bursts_of_speculative_decoding_are_named_and_have_a_first_token(sizes: list[int]) -> None:
    events = EventTimes()
    made = [sum(sizes[:place]) for place in range(len(sizes))]
    for size, before in zip(sizes, made, strict=True):
        for _ in range(size):
            events.add_event(" ab", FIRST_S + GAP_S * before)
    timing = events.measure(0.0, sum(sizes))
    assert (timing.first, timing.note) == (FIRST_S, BURSTS)
    assert timing.itl_s == pytest.approx(GAP_S * made[-1] / (sum(sizes) - sizes[0]))
    assert "buffers" not in STREAM_NOTES[BURSTS]


def build_requests(replies: list[Reply]) -> pl.DataFrame:
    """Columns of table REQUESTS of these answers, one a second."""
    rows = [
        {
            "sent_s": float(place), "ended_s": place + reply.ended, "runtime_s": reply.ended, "outcome": "ok",
            "output_tokens": reply.output_tokens, "streamed_tokens": reply.streamed_tokens, "stream": reply.stream,
            "event_tokens": reply.event_tokens, "server_runtime_s": None,
        }
        for place, reply in enumerate(replies)
    ]  # fmt: skip
    whole = {"output_tokens": pl.Int64, "streamed_tokens": pl.Int64, "stream": pl.String, "event_tokens": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=whole)


@pytest.mark.parametrize(
    ("reply", "n_tokens"),
    [
        (read_texts(SHORT, write_usage(60, **TOLD_REASONING)), 12),
        (read_texts(SHORT, write_usage(78)), 12),
        (read_texts(SHORT), 12),
        (read_texts(SHORT, write_usage(6)), None),
        (read_texts(SHORT, write_usage(18)), None),
        (read_texts(["天地玄黄"] * 3), None),
        (Reply("ok", 0.75, output_tokens=12), 12),
        (Reply("ok", 0.75, output_tokens=60, streamed_tokens=12), 12),
    ],
)
def test_figures_per_token_are_over_the_tokens_that_a_user_gets(reply: Reply, n_tokens: int | None) -> None:
    requests = build_requests([reply] * 40)
    values = metric_values(requests, "token")[:, 0]
    assert values.tolist() == pytest.approx(
        [float("nan") if n_tokens is None else reply.ended / n_tokens] * 40, nan_ok=True
    )
    tokens_per_s = measure_flow(requests, requests)["tokens_per_s"]
    assert tokens_per_s == (None if n_tokens is None else pytest.approx(n_tokens, rel=0.03))


def test_few_answers_in_doubt_by_few_tokens_leave_the_tokens_of_a_level_known() -> None:
    clear, doubtful = read_texts(SHORT, write_usage(12)), read_texts(SHORT, write_usage(15))
    assert doubtful.stream == HIDDEN
    few = build_requests([*[clear] * 95, *[doubtful] * 5])
    assert count_user_tokens(few).sum() == 95 * 12 + 5 * 15
    many = build_requests([*[clear] * 50, *[doubtful] * 50])
    assert measure_flow(many, many)["tokens_per_s"] is None


def test_a_goal_on_tokens_that_are_not_known_says_why() -> None:
    assert METRICS["token"].needs_stream
    assert not METRICS["token"].needs_first_token
    assert explain_missing("token", "why") == "token was not measured: why"
    for note in UNCLEAR_NOTES:
        assert "unknown" in STREAM_NOTES[note]


THOUGHT = {"reasoning_content": " hm"}


def read_deltas(*events: tuple[float, dict[str, Any]], finish: str = "stop") -> Reply:
    """A stream with an event at each of these times, and its end with the last one."""
    reads = [(now, write_event(delta)) for now, delta in events]
    return read_stream([*reads, (events[-1][0], write_event({}, finish=finish) + b"data: [DONE]\n\n")])


@pytest.mark.parametrize(
    ("times", "gap_s"),
    [
        ([0.2, 0.25, 1.5, 1.6], 1.25),
        ([9.0, 9.25], 0.25),  # what came before the first event is no gap
        ([0.5], None),
        ([0.5, 0.5, 0.5], None),
        ([0.5, 0.5, 1.0, 1.0], 0.5),
    ],
)
def test_the_longest_gap_is_between_events_that_hold_some_of_the_answer(times: list[float], gap_s: float) -> None:
    events: list[tuple[float, dict[str, Any]]] = [(now, {"content": " ab"}) for now in times]
    assert read_deltas(*events).longest_gap_s == gap_s
    # A role, an empty text and the end hold none of it.
    assert read_deltas((0.0, {"role": "assistant", "content": ""}), *events, (99.0, {})).longest_gap_s == gap_s


def test_gaps_are_those_of_one_choice() -> None:
    parts = [(1.0, 0), (1.5, 1), (2.0, 0), (2.5, 1)]
    reply = read_stream([*((now, write_event({"content": " ab"}, index)) for now, index in parts), *time_events([b""])])
    assert reply.longest_gap_s == 1.0


@pytest.mark.parametrize(
    ("deltas", "first_output"),
    [
        ([{"content": " a"}, {"content": " b"}], 1.0),
        ([THOUGHT, THOUGHT, {"content": " a"}, {"content": " b"}], 3.0),
        ([{"reasoning": " hm"}, {"reasoning": "", "content": " a"}], 2.0),
        ([THOUGHT, THOUGHT | {"content": " a"}], 2.0),
        ([THOUGHT, {"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}], 2.0),
        ([THOUGHT, {"refusal": " no"}], 2.0),
        ([THOUGHT, {"content": [{"type": "text", "text": " a"}]}], 2.0),
        ([THOUGHT, {"content": ""}, THOUGHT], None),
    ],
)
def test_the_first_output_comes_after_the_reasoning(deltas: list[dict[str, Any]], first_output: float | None) -> None:
    reply = read_deltas(*((1.0 + place, delta) for place, delta in enumerate(deltas)))
    assert (reply.first_token, reply.first_output) == (1.0, first_output)


def test_of_a_stream_that_something_buffers_the_first_output_is_unknown() -> None:
    reply = read_deltas(*[(3.0, THOUGHT)] * 6, *[(3.0, {"content": " a"})] * 6)
    assert (reply.first_token, reply.first_output, reply.longest_gap_s) == (None, None, None)


@pytest.mark.parametrize(
    ("told", "kept"), [("stop", "stop"), ("length", "length"), ("eos " * 1000, "other"), ("", None)]
)
def test_a_finish_reason_is_one_of_few(told: str, kept: str | None) -> None:
    assert read_deltas((1.0, {"content": " a"}), finish=told).finish_reason == kept


def test_a_goal_on_gaps_of_unknown_streams_says_why() -> None:
    assert explain_missing("gap", "why") == "gap was not measured: why"
    assert explain_missing("ttfo").endswith("anthropic or function reports it for streamed answers")
