"""Every example that asks how many GPUs gets an answer: on the service of the example, in virtual time (SIMULATED)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from workbench.core.samples import find_sample
from workbench.sizing.command import FIRST_STEPS
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.virtual_time import simulate_sweep

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs").glob("tut*/*.md")),
]
COMMAND = re.compile(r"^\s*(workbench sizing (?:simulate|run) .*)$", re.MULTILINE)
SIMULATED = {"slots": int, "gpus": int, "calls": int, "router": str, "cache_tokens": int, "prefill_tokens_per_s": float}


def list_examples() -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Questions of the pages and of the help, each with the options of the service that its page starts before."""
    found = []
    for name, text in [*((str(page.relative_to(ROOT)), read(page)) for page in PAGES), ("--help", FIRST_STEPS)]:
        services: dict[str, dict[str, str]] = {}
        for line in COMMAND.findall(text):
            options = read_options(line)
            port = options.get("port") or options.get("url", "").rpartition(":")[2]
            if " simulate " in line:
                services[port] = options
            elif port in services and options.keys() & {"target-users", "target-rate", "users-per-hour"}:
                found.append((name, services[port], options))
    return found


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


def read_options(line: str) -> dict[str, str]:
    """Options of a command by name; a flag has no value."""
    words = shlex.split(line.partition("   ")[0], comments=True)
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {word[2:]: "" if value.startswith("--") else value for word, value in pairs if word.startswith("--")}


EXAMPLES = list_examples()


@pytest.mark.parametrize(
    ("page", "service", "asked"), EXAMPLES, ids=[f"{name} {n}" for n, (name, *_) in enumerate(EXAMPLES)]
)
def test_an_example_gets_an_answer(page: str, service: dict[str, str], asked: dict[str, str]) -> None:
    scale = float(service.get("time-scale", 1))
    settings: dict[str, Any] = {
        name: kind(service[name.replace("_", "-")])
        for name, kind in SIMULATED.items()
        if name.replace("_", "-") in service
    }
    if asked.get("protocol") == "openai":
        settings["calls"] = 1
    if "output-tokens" in asked:
        settings["output_tokens"] = float(asked["output-tokens"])
    goal = Goal.read(asked["goal"])
    goals = [goal.model_copy(update={"limit_s": goal.limit_s / scale})]
    load: dict[str, Any] = {
        "turns": int(asked.get("turns", 1)),
        "think_time_s": float(asked.get("think-time", 0)) / scale,
    }
    if "users" in asked:
        load["users"] = [int(level) for level in asked["users"].split(",")]
    if "agent-tasks" in asked:
        load["agent_tasks"] = find_sample(asked["agent-tasks"])
    is_chat = load["turns"] > 1 or "agent_tasks" in load
    protocol = {"protocol": "openai", "model": "m", "url": "http://127.0.0.1:8400"} if is_chat else {}
    config = build_sweep_config(**{"protocol": "function", **protocol}, goals=goals, simulated=True, **load)
    users = float(asked.get("target-users") or asked["users-per-hour"])
    found = compute_answer(*simulate_sweep(Service(**settings), config), goals, users, draws=200)
    assert found.recommended is not None, (page, found.reasons)
    assert found.reasons == []


def test_there_are_examples_in_the_readme_the_guide_and_the_help() -> None:
    assert {page for page, *_ in EXAMPLES} >= {
        "README.md",
        "docs/guide/sizing.md",
        "docs/tutorials/launch.md",
        "--help",
    }
