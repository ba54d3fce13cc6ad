"""Histories with a known truth: sessions of a reference, its control and a followed stack."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from workbench.indicators.history.history_points import History, HistoryFilter, build_history

START = datetime(2026, 1, 1, tzinfo=UTC)
REFERENCE_KEY, CONTROL_COPY = "a" * 64, 1
PACKAGES = {REFERENCE_KEY: {"numpy": "2.2.6"}, "b" * 64: {"numpy": "2.3.0"}, "c" * 64: {"numpy": "2.4.6"}}


def when(session: int) -> str:
    """Time of a session: one a day, at noon."""
    return (START + timedelta(days=session, hours=12)).isoformat()


def build_rows(
    n: int,
    truth: Callable[[int], float] = lambda session: 1.0,
    *,
    machine: Callable[[int], float] = lambda session: 1.0,
    noise: float = 0.01,
    rounds: int = 5,
    seed: int = 1,
    metric: str = "Sort",
    better: str = "lower",
    key: Callable[[int], str] = lambda session: "b" * 64,
    **more: Any,
) -> list[dict[str, Any]]:
    """Rows as the database gives them; in each session the followed stack is `truth` times better."""
    draw, rows = np.random.default_rng(seed), []
    for session in range(n):
        shared: dict[str, Any] = {
            "session_id": f"s{session:03d}",
            "created_at": when(session),
            "revision": f"r{session}",
        }
        shared |= {"backend": "process", "design": "rounds", "baseline": "reference", "indicator_version": "v1"}
        shared |= {"threads": 1, "hardware_key": "m1", "cpu_model": "Model X", "metric": metric, "unit": "ms"}
        shared |= {"better": better, "tolerance": 0.02, "clock": "wall", "notes": "{}", "python": ""} | more
        for round_ in range(rounds):
            slow = float(draw.normal(0, 0.3))  # of the whole round
            for arm, stack_key, copy, ratio in (
                ("reference", REFERENCE_KEY, 0, 1.0),
                ("control", REFERENCE_KEY, CONTROL_COPY, 1.0),
                (f"numpy {PACKAGES[key(session)]['numpy']}", key(session), 0, truth(session)),
            ):
                log = np.log(machine(session)) + slow + float(draw.normal(0, noise)) - np.log(ratio)
                value = float(np.exp(log if better == "lower" else -log))
                stack = "reference" if stack_key == REFERENCE_KEY else arm
                rows.append(
                    {**shared, "arm": arm, "stack": stack, "stack_key": stack_key, "copy_number": copy, "round": round_}
                    | {"value": value, "other_value": None}
                )
    return rows


def build_planted_history(n: int, *args: Any, **given: Any) -> History:
    """Points of `build_rows`."""
    return build_history(build_rows(n, *args, **given), PACKAGES, HistoryFilter())
