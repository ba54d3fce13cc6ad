"""What an idle machine would say, beside planted neighbours, and what the quiet machine then says: really measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.busy_sessions import PAIRS, measure_quietly, play_seed

# Sessions that nothing was chosen on: seeds below 1000 were looked at.
SEEDS = range(1000, 1200)
CLOSE = 0.05


def keep(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A result that was measured before, or is now: a day's machine time is not lost."""
    if not path.exists():
        path.write_text(json.dumps(make(), default=str))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def judge_sessions(seeds: range, kept: Path) -> list[dict[str, Any]]:
    """Each session with the truth of its quiet twin: `truth`, `answered`, `covered`, `close`, `plain_close`."""
    truths = {
        pair: keep(kept / f"quiet-{'-'.join(pair)}.json", partial(measure_quietly, pair, kept))["ratio"]
        for pair in PAIRS
    }
    judged = []
    for seed in seeds:
        found = keep(kept / f"{seed}.json", partial(play_seed, seed, kept))
        effect, truth = found["effect"], truths[tuple(found["pair"])]
        row = {**found, "truth": truth, "answered": effect["idle_ratio"] is not None}
        if row["answered"]:
            row |= {"covered": effect["idle_low"] <= truth <= effect["idle_high"]}
            row |= {"close": abs(effect["idle_ratio"] / truth - 1) <= CLOSE}
        row |= {"plain_close": abs(effect["ratio"] / truth - 1) <= CLOSE}
        judged.append(row)
    return judged


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(20_000)
def test_the_quiet_machine_agrees(tmp_path: Path) -> None:
    judged = judge_sessions(SEEDS, Path(os.environ.get("KEPT_CASES") or tmp_path))
    answered = [row for row in judged if row["answered"]]
    refused = [row for row in judged if not row["answered"]]
    assert sum(row["close"] for row in answered) >= 0.8 * len(answered)
    assert 0.85 <= sum(row["covered"] for row in answered) / len(answered) <= 0.95
    # A refusal is right where the load tells nothing, or where the plain ratio would have been wrong.
    assert sum(not row["answerable"] or not row["plain_close"] for row in refused) >= 0.9 * len(refused)
