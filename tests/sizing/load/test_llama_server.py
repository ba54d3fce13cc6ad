"""A real server with all doors: llama.cpp's, with made models (skipped where `llama-server` is not installed)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import llama_server
from workbench.sizing.config import Goal
from workbench.sizing.load.sweep_runner import run_sweep

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.skipif(llama_server.PROGRAM is None, reason="no llama-server: WORKBENCH_LLAMA_SERVER=PATH"),
]
QUICK: dict[str, Any] = {
    "users": [1, 4], "least_samples": 20, "most_samples": 40, "min_step_s": 0.0, "model": "m",
    "goals": [Goal.read("p95<=9")],
}  # fmt: skip
N_TOKENS = 20


@pytest.mark.parametrize(
    ("kind", "protocol", "path"),
    [
        ("chat", "openai", ""),
        ("chat", "openai", "/v1/completions"),
        ("chat", "responses", ""),
        ("chat", "anthropic", ""),
        ("embeddings", "embeddings", ""),
        ("rerank", "rerank", ""),
    ],
)
def test_each_door_is_driven(kind: str, protocol: str, path: str, tmp_path: Path) -> None:
    has_tokens = kind == "chat"
    with llama_server.serving(tmp_path, kind) as url:
        length = {"output_tokens": N_TOKENS} if has_tokens else {}
        found = run_sweep(None, url=url + path, protocol=protocol, input_tokens=60.0, **QUICK, **length)
    rows = found.requests
    assert set(rows["outcome"]) == {"ok"}
    assert rows["input_tokens"].min() > 60  # type: ignore[operator]
    assert rows["ttft_s"].null_count() < rows.height or not has_tokens
    assert set(rows["output_tokens"]) == ({N_TOKENS} if has_tokens else {None})
    # Tokens that are halves of signs are hidden: what cannot be told of them is not told.
    assert rows.filter(rows["stream"] == "hidden tokens")["itl_s"].count() == 0


def request(t: float, blocks: list[int]) -> dict[str, Any]:
    return {"t": t, "type": "s", "in": 64 * len(blocks), "out": N_TOKENS, "hash_ids": blocks, "api_time": 0.1}


def test_tasks_of_agents_are_driven_and_share_their_prompts(tmp_path: Path) -> None:
    searcher = {"t": 0.2, "type": "subagent", "duration_ms": 300, "requests": [request(0.2, [8]), request(0.4, [8, 9])]}
    trace = {"block_size": 64, "requests": [request(0, [1, 2]), searcher, request(0.6, [1, 2, 3])]}
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(trace) + "\n")
    settings = QUICK | {"users": [2], "exact_output": True}
    with llama_server.serving(tmp_path, "chat") as url:
        found = run_sweep(None, url=url, protocol="openai", agent_tasks=tasks, **settings)
    rows = found.requests
    assert set(rows["outcome"]) == {"ok"}
    assert set(rows["llm_s"].list.len()) == {4}
    assert set(rows["output_tokens"]) == {4 * N_TOKENS}
    # The second calls of both agents begin with what the first ones sent.
    assert rows["cached_tokens"].median() > 300
