"""Recorded conversations: both forms are read, and each turn is sent with what was said before, as it was."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.load.client_messages import Reply
from workbench.sizing.load.conversation_file import RecordedSession, iterate_conversations, read_conversations
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator

SHAREGPT = {
    "id": "a",
    "conversations": [
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi."},
        {"from": "human", "value": "How are you?"},
        {"from": "gpt", "value": "Well."},
    ],
}
MESSAGES = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "One"},
        {"role": "user", "content": "and two?"},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "And four?"},
    ]
}
READ = [
    [("Hello", "Hi."), ("How are you?", "Well.")],
    [("Be short.\nOne\nand two?", "Three."), ("And four?", "")],
]


@pytest.mark.parametrize("as_lines", [True, False])
def test_both_forms_are_read(tmp_path: Path, as_lines: bool) -> None:
    path = tmp_path / "talks.json"
    documents = [SHAREGPT, MESSAGES]
    path.write_text("\n".join(map(json.dumps, documents)) if as_lines else json.dumps(documents, indent=1))
    assert read_conversations(path) == READ


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"turns": []}, "not a conversation"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "not a message"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not a message"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no conversations"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, document: Any, told: str) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(document) + "\n")
    with pytest.raises(InputError, match=told):
        read_conversations(path)


def test_a_user_goes_through_conversations_turn_by_turn() -> None:
    session = RecordedSession(iterate_conversations(READ, "0"))
    seen = []
    for _ in range(4):
        item, said = session.next_message
        seen.append((item, said, session.history))
        session.add_reply(said, Reply("ok", 1.0))
    assert sorted(seen, key=lambda row: row[0]) == [
        (0, "Hello", []),
        (1, "How are you?", [("Hello", "Hi.")]),
        (2, "Be short.\nOne\nand two?", []),
        (3, "And four?", [("Be short.\nOne\nand two?", "Three.")]),
    ]
    # A failure ends a conversation: the next one begins with its first turn.
    session = RecordedSession(iterate_conversations(READ, "0"))
    session.add_reply("", Reply("failed", 1.0))
    assert session.history == []


def test_each_pass_has_all_conversations() -> None:
    firsts = [item for item, _ in itertools.islice(iterate_conversations(READ * 3, "0"), 12)]
    assert sorted(firsts[:6]) == sorted(firsts[6:]) == [0, 2, 4, 6, 8, 10]


@pytest.mark.live
def test_a_service_gets_the_turns_with_their_context(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(SHAREGPT) + "\n")
    service = Service(slots=8, input_tokens=40, input_cv=0, output_tokens=10, output_cv=0, decode_base_s=0.001)
    with run_simulator(service) as url:
        found = run_sweep(
            None, url=url, protocol="openai", model="m", users=[2], least_samples=20, most_samples=40, processes=0,
            conversations=path, goals=[Goal.read("p95<=1")],
        )  # fmt: skip
    rows = found.requests.filter(found.requests["outcome"] == "ok")
    assert set(rows["turn"]) == {1, 2}
    means = dict(rows.group_by("turn").agg(pl.col("input_tokens").mean()).rows())
    # The simulator gives each message 40 tokens, and adds what was said in the conversation.
    assert means[2] > means[1]


@pytest.mark.parametrize("changed", [{"turns": 3}, {"arrivals": "poisson", "rates": [1.0], "users": None}])
def test_what_conversations_have_of_their_own_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    settings = {"url": "http://a", "protocol": "openai", "model": "m", "users": [1], "conversations": tmp_path / "a"}
    with pytest.raises(ConfigError, match="turns and prompts of their own"):
        build_sweep_config(**settings | changed)
    with pytest.raises(ConfigError, match="conversations needs protocol"):
        build_sweep_config(url="http://a", protocol="rerank", model="m", users=[1], conversations=tmp_path / "a")
