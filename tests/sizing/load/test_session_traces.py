"""Recorded sessions: turns in their order, pauses after answers, contexts that grow; or refused with what to do."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.request_traces import write_sessions
from tests.fakes.vllm_server import TEMPLATE_TOKENS, vllm_server
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import build_sweep_config
from workbench.sizing.estimation.step_points import select_kept_requests
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_driver import arrival_times
from workbench.sizing.load.load_step import StepRules, choose_trace_part
from workbench.sizing.load.request_trace import TraceReplay, read_request_trace
from workbench.sizing.load.sweep_plan import StopRule
from workbench.sizing.load.sweep_report import SweepResult
from workbench.sizing.load.sweep_runner import build_prompts, run_sweep

TARGET: dict[str, Any] = {"protocol": "openai", "model": "m", "arrivals": "trace"}


def replay(path: Path, n_requests: int, rate_per_s: float, **settings: Any) -> tuple[SweepResult, list[dict[str, Any]]]:
    """Send so many requests of a trace to a server that counts words; returns also the bodies it got."""
    sizes = {"least_samples": n_requests, "most_samples": n_requests, "min_step_s": 0, "max_step_s": 600}
    with vllm_server(time_s=settings.pop("time_s", 0.02)) as (url, server):
        found = run_sweep(**TARGET | {"url": url, "trace": path, "rates": [rate_per_s]} | sizes | settings)
        return found, list(server.bodies)


def check_sessions(rows: list[dict[str, Any]], found: SweepResult, bodies: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of sessions in order and of pauses that were kept, and how late and how exact requests were."""
    by_session: dict[tuple[int, str], list[dict[str, Any]]] = {}
    requests = found.requests.with_columns(row=pl.col("item") % 10_000_000).sort("sent_s")
    for request in requests.iter_rows(named=True):
        lap, place = divmod(request["row"], len(rows))
        by_session.setdefault((lap, rows[place]["session_id"]), []).append(request | {"place": place})
    in_order, late_s, early = [], [], 0
    for turns in by_session.values():
        in_order.append([one["turn"] for one in turns] == list(range(1, len(turns) + 1)))
        in_order[-1] &= [one["place"] for one in turns] == sorted(one["place"] for one in turns)
        for before, after in itertools.pairwise(turns):
            pause_s = rows[after["place"]]["delay"] / 1000
            early += after["sent_s"] - before["ended_s"] < pause_s - 1e-6
            late_s.append(after["sent_s"] - before["ended_s"] - pause_s)
    # The server adds the words of all earlier turns and answers, so each context is known to the word.
    exact = []
    for turns in by_session.values():
        context = 0
        for one in turns:
            context += rows[one["place"]]["input_length"]
            exact.append(one["input_tokens"] == context + TEMPLATE_TOKENS)
            context += rows[one["place"]]["output_length"] + 1
    return {
        "sessions": len(by_session),
        "in_order": float(np.mean(in_order)),
        "early": early,
        "pause_late_p99_s": float(np.quantile(late_s, 0.99)),
        "exact": float(np.mean(exact)),
        "messages": max(len(body["messages"]) for body in bodies),
    }


def test_turns_follow_one_another_with_their_pauses_and_growing_contexts(tmp_path: Path) -> None:
    rows = write_sessions(tmp_path / "trace", 30)
    trace = read_request_trace(tmp_path / "trace")
    assert sum(map(len, trace.sessions)) == trace.n_requests == len(rows)
    found, bodies = replay(tmp_path / "trace", len(rows), trace.rate_per_s, processes=0)
    facts = check_sessions(rows, found, bodies)
    assert (facts["in_order"], facts["early"], facts["exact"]) == (1.0, 0, 1.0)
    assert facts["messages"] == 11
    begun_s = found.requests.filter(pl.col("turn") == 1).sort("intended_s")["intended_s"].to_list()
    assert np.diff(begun_s[: len(trace.times_s)]) == pytest.approx(np.diff(trace.times_s), abs=1e-6)
    assert any("requests in 30 sessions" in note for note in found.notes)
    # What a turn's request has of the earlier ones, the server knew: their prompts; not yet the last answer.
    sent = found.requests.sort("item", "sent_s")
    assert sent.filter(pl.col("turn") == 1)["cached_tokens"].to_list() == [0] * len(begun_s)
    later = sent.filter(pl.col("turn") > 1)
    assert (later["cached_tokens"] > 0).all()
    assert (later["cached_tokens"] < later["input_tokens"]).all()
    assert 0.2 < found.points["cached_share"][0] < 0.9
    assert any("prefix cache" in note for note in found.notes)
    assert found.points["session_turns"][0] == pytest.approx(len(rows) / 30, rel=0.35)


@pytest.mark.live
def test_a_thousand_sessions_from_two_processes(tmp_path: Path) -> None:
    rows = write_sessions(tmp_path / "trace", 1000, rate_per_s=40, pause_s=0.5)
    rate_per_s = read_request_trace(tmp_path / "trace").rate_per_s
    found, bodies = replay(tmp_path / "trace", len(rows), rate_per_s, processes=2, time_s=0.3)
    facts = check_sessions(rows, found, bodies)
    print(facts, found.points["send_lag_p99_s"][0], found.points["verdict"][0])
    assert facts["sessions"] >= 1000
    assert (facts["in_order"], facts["early"], facts["exact"]) == (1.0, 0, 1.0)
    assert found.points["send_lag_p99_s"][0] <= 0.02
    assert found.points["verdict"][0] == "valid"


def test_an_open_loop_counts_from_the_first_late_turn_on() -> None:
    turns = [1] * 40 + [1, 2, 1, 3, 2, 5] * 20
    columns = {"request": range(len(turns)), "turn": turns, "tail": False, "outcome": "ok", "runtime_s": 1.0}
    kept = select_kept_requests(pl.DataFrame(columns), None)
    assert kept["request"][0] == turns.index(5)


FIRST = '{"session_id": 1, "timestamp": 0, "input_length": 3, "output_length": 2}\n'
NEXT = '{"session_id": 1, "delay": 5, "input_length": 3, "output_length": 2}\n'
OTHER = '{"session_id": 2, "timestamp": 9, "input_length": 3, "output_length": 2}\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NEXT + FIRST + OTHER, "first turn of a session has no timestamp"),
        (FIRST + FIRST + OTHER, "give it a delay"),
        (FIRST + NEXT.replace("5", "-5") + OTHER, "not a time in milliseconds"),
        (FIRST + NEXT.replace("5", "true") + OTHER, "not a time in milliseconds"),
        (FIRST + NEXT, "two different times"),
    ],
)
def test_sessions_that_are_wrong_are_refused_with_what_to_do(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(InputError) as refused:
        read_request_trace(tmp_path / "trace")
    assert told in str(refused.value)


def test_sessions_out_of_order_are_sorted_and_told(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(OTHER + FIRST + NEXT)
    found = read_request_trace(tmp_path / "trace")
    assert (found.sessions, found.times_s) == ([[1, 2], [0]], [0.0, 0.009])
    assert found.notes == ["1 of 2 sessions stood later in the trace than their time says: sorted"]


def test_a_window_takes_whole_sessions(tmp_path: Path) -> None:
    last = OTHER.replace("2,", "3,").replace("9", "12")
    (tmp_path / "trace").write_text(FIRST + OTHER + NEXT + NEXT.replace("1", "2") + last)
    found = read_request_trace(tmp_path / "trace", TraceReplay(from_s=0.005))
    assert (found.sessions, found.pauses_s) == ([[0, 1], [2]], [0.0, 0.005, 0.0])
    assert found.times_s == pytest.approx([0.004, 0.007])


def test_a_level_of_sessions_counts_the_requests_of_its_part() -> None:
    long, short = [[place, 100 + place] for place in range(50)], [[50 + place] for place in range(50)]
    times = [float(place) for place in range(100)]
    load = StepLoad(
        step=0,
        loop="open",
        seed=0,
        rate_per_s=4.0,
        arrivals="trace",
        trace_s=times,
        sessions=[*long, *short],
        pauses_s=[0.0] * 150,
    )
    sent, _ = choose_trace_part(load, StepRules(StopRule(min_samples=30, max_samples=30), 0.0, 60.0))
    assert (len(sent.trace_s), sent.sessions) == (20, long[:20])
    due = list(itertools.islice(arrival_times(sent), 40))
    assert 40 / due[-1] == pytest.approx(4.0 / 2, rel=0.03)


def test_sessions_need_a_protocol_with_messages(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(FIRST + NEXT + OTHER)
    config = build_sweep_config(url="http://127.0.0.1:9", arrivals="trace", trace=tmp_path / "trace", rates=[1.0])
    with pytest.raises(ConfigError, match="openai"):
        build_prompts(config)
