"""Sessions of several turns: each has all earlier ones before it; what counts has contexts of the usual length."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.vllm_server import vllm_server
from tests.sizing.conftest import Sizing
from workbench.core.errors import ConfigError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.step_points import select_kept_requests
from workbench.sizing.load.client_messages import Reply
from workbench.sizing.load.load_driver import Session
from workbench.sizing.load.session_plan import SessionPlan
from workbench.sizing.load.sweep_plan import SweepUsage
from workbench.sizing.load.sweep_runner import build_prompts, run_sweep

TARGET: dict[str, Any] = {"protocol": "openai", "model": "m"}
QUICK: dict[str, Any] = {"least_samples": 60, "most_samples": 60, "min_step_s": 0, "processes": 0}


def test_each_turn_has_all_earlier_ones_before_it_and_then_a_new_session_begins() -> None:
    with vllm_server(time_s=0.01) as (url, server):
        found = run_sweep(url=url, users=[3], turns=4, input_tokens=20, **TARGET, **QUICK)
        bodies = list(server.bodies)
    assert set(Counter(len(body["messages"]) for body in bodies)) == {1, 3, 5, 7}
    answer = "w0 w1 w2 w3 "
    by_first: dict[str, list[list[dict[str, str]]]] = {}
    for body in bodies:
        messages = body["messages"]
        assert [message["role"] for message in messages] == (["user", "assistant"] * 4)[: len(messages)]
        assert {message["content"] for message in messages[1::2]} <= {answer}
        by_first.setdefault(messages[0]["content"], []).append(messages)
    for session in by_first.values():
        for earlier, later in itertools.pairwise(session):
            assert later[: len(earlier)] == earlier, "a conversation only grows"
    # Three users whose first sessions have 1, 2 and 3 turns: they are not in step.
    assert sorted(len(session) for session in list(by_first.values())[:3]) == [1, 2, 3]
    assert set(found.requests["turn"].to_list()) == {1, 2, 3, 4}
    context = found.requests.group_by("turn").agg(pl.col("input_tokens").mean()).sort("turn")["input_tokens"].to_list()
    assert context == [27.0, 52.0, 77.0, 102.0], "20 tokens a turn, 5 of an answer, 7 of the template"


def test_the_first_session_of_each_user_does_not_count() -> None:
    with vllm_server(time_s=0.005) as (url, _):
        found = run_sweep(url=url, users=[3], turns=4, **TARGET, **QUICK)
    kept = select_kept_requests(found.requests, 3)
    assert found.points["n_warmup"][0] >= 12
    assert found.points["session_turns"][0] == 4
    assert kept["turn"].mean() > 2.2  # type: ignore[operator]


def test_a_failure_ends_a_session_and_no_turns_have_no_history() -> None:
    session = Session(3, first_turns=3)
    session.add_reply("a", Reply("ok", 1.0, answer=b"x"))
    assert session.history == [("a", "x")]
    session.add_reply("b", Reply("timeout", 2.0))
    assert session.history == []
    alone = Session(1, first_turns=1)
    alone.add_reply("a", Reply("ok", 1.0, answer=b"x"))
    assert alone.history == []


def plan_of(**settings: Any) -> SessionPlan | None:
    given = {"turns": 5, "think_time_s": 20, "output_tokens": 300, "users": [100]} | settings
    return build_sweep_config(url="http://127.0.0.1:9", **TARGET, **given).session_plan


@pytest.mark.parametrize(
    ("settings", "first_s", "step_s"),
    [
        ({}, 125, 175),
        ({"turns": 10}, 250, 300),
        ({"users": [10, 100]}, 125, 625),
        ({"users": None, "goals": [Goal.read("p95<=9")]}, 125, 150),
        ({"output_tokens": None}, 117, 163),
    ],
)
def test_sessions_tell_their_length_and_the_step_that_they_need(
    settings: dict[str, Any], first_s: float, step_s: float
) -> None:
    plan = plan_of(**settings)
    assert plan is not None
    assert (round(plan.first_session_s), round(plan.least_step_s)) == (first_s, step_s)
    plan.check_step(step_s + 1)
    with pytest.raises(ConfigError, match=rf"= {first_s} s") as refused:
        plan.check_step(first_s - 1)
    assert f"--max-step {10 * math.ceil(plan.least_step_s / 10)}" in str(refused.value)


def test_answers_that_nobody_has_seen_refuse_no_step_of_a_quick_service() -> None:
    """Thoughts of 0.1 s and the usual guess of 5 s for an answer: 2 s are enough for ten quick turns."""
    plan = plan_of(think_time_s=0.1, turns=10)
    assert plan is not None
    plan.check_step(2.0)
    with pytest.raises(ConfigError, match="too short for sessions"):
        plan.check_step(1.9)


def test_a_sweep_is_refused_before_it_has_a_folder_and_a_verification_is_not(tmp_path: Path) -> None:
    asked = TARGET | {"turns": 5, "think_time_s": 20.0, "url": "http://127.0.0.1:9", "users": [2], "max_step_s": 90.0}
    with pytest.raises(ConfigError, match="too short for sessions"):
        run_sweep(out=tmp_path, **asked)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="no service listens"):
        run_sweep(out=tmp_path, before=SweepUsage(), needs_listener=True, **asked)


@pytest.mark.parametrize("settings", [{"turns": 1}, {"think_time_s": 0}])
def test_without_sessions_or_think_time_there_is_no_plan(settings: dict[str, Any]) -> None:
    assert plan_of(**settings) is None


def test_the_end_of_a_sweep_of_sessions_is_told() -> None:
    plan = plan_of(users=[100, 200])
    assert plan is not None
    told = plan.describe_end(200, datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert told == "the sweep takes 325 s to 400 s and ends between 12:05:25 and 12:06:40"


@pytest.mark.parametrize(
    ("max_step", "end"), [("120", "give --max-step 180"), ("180", "the sweep takes 175 s to 180 s")]
)
def test_the_command_tells_sessions_before_anything_is_sent(sizing: Sizing, max_step: str, end: str) -> None:
    asked = "run --url http://127.0.0.1:9 --protocol openai --model m --turns 5 --think-time 20 --output-tokens 300"
    # Nobody listens at the URL: a sweep that is not refused before ends there.
    said = sizing(*asked.split(), "--users", "100", "--max-step", max_step)
    assert said.code == 2
    assert "a first session is 5 x (20 s of think time + about 5 s of an answer) = 125 s" in said.err
    assert end in said.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--users-per-hour 3000 --session-length 100", "3,000 sessions an hour x 100 s = 83.3 users at once"),
        ("--users-per-hour 3600 --turns 5 --think-time 20 --output-tokens 300", "an hour x 125 s = 125 users at once"),
        ("--users-per-hour 3000", "add --session-length S"),
        ("--session-length 100", "give --users-per-hour N"),
        ("--users-per-hour 3000 --session-length 100 --target-users 3", "give --users-per-hour N"),
    ],
)
def test_sessions_an_hour_are_converted_to_users_at_once(sizing: Sizing, options: str, told: str) -> None:
    service = "run --url http://127.0.0.1:9 --protocol openai --model m --users 100 --max-step 200 --goal p95<=9"
    said = sizing(*service.split(), *options.split())
    assert said.code == 2
    assert told in said.err


def test_without_turns_no_request_has_one() -> None:
    with vllm_server(time_s=0.005) as (url, server):
        found = run_sweep(url=url, users=[2], **TARGET, **QUICK)
        assert {len(body["messages"]) for body in server.bodies} == {1}
    assert found.requests["turn"].null_count() == found.requests.height


def test_answer_lengths_vary_as_asked_and_are_the_same_again() -> None:
    config = build_sweep_config(url="http://127.0.0.1:9", users=[1], output_tokens=100, output_cv=0.5, **TARGET)
    prompts, _ = build_prompts(config)
    lengths = pl.Series([prompts.answer_length(item) for item in range(4000)])
    assert abs(float(str(lengths.mean())) - 100) < 3
    assert abs(float(str(lengths.std())) - 50) < 4
    assert lengths.to_list() == [build_prompts(config)[0].answer_length(item) for item in range(4000)]
