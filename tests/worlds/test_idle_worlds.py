"""What an idle machine would say, beside planted neighbours, and what it says between: really measured."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.busy_sessions import play_seed

# Sessions that nothing was chosen on: seeds below 1000 were looked at.
SEEDS = range(1000, 1200)
CLOSE = math.log(1.05)


def keep_session(seed: int, kept: Path) -> dict[str, Any]:
    """A session that was measured before, or is now: hours of machine time are not lost."""
    path = kept / f"{seed}.json"
    if not path.exists():
        path.write_text(json.dumps(play_seed(seed, kept), default=str))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def judge_sessions(seeds: range, kept: Path) -> list[dict[str, Any]]:
    """Each comparison with the truth: `answered`, `covered`, `close`, `plain_close`, `is_control`."""
    judged = []
    for found in (keep_session(seed, kept) for seed in seeds):
        for row in found.pop("rows"):
            is_control = row["arm"] == "control"
            truth = 0.0 if is_control else row["truth"]
            row = {**found, **row, "is_control": is_control, "answered": row["ratio"] is not None}
            row |= {"plain_close": abs(row["plain"] - truth) <= CLOSE}
            if row["answered"]:
                row |= {"covered": math.log(row["low"]) <= truth <= math.log(row["high"])}
                row |= {"close": abs(math.log(row["ratio"]) - truth) <= CLOSE}
            judged.append(row)
    return judged


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(20_000)
def test_the_quiet_machine_agrees(tmp_path: Path) -> None:
    judged = judge_sessions(SEEDS, Path(os.environ.get("KEPT_CASES") or tmp_path))
    pairs = [row for row in judged if not row["is_control"]]
    answered = [row for row in pairs if row["answered"]]
    refused = [row for row in pairs if not row["answered"]]
    assert sum(row["close"] for row in answered) >= 0.8 * len(answered)
    assert 0.85 <= sum(row["covered"] for row in answered) / len(answered) <= 0.95
    # A refusal is right where the load tells nothing, or where the plain ratio would have been wrong.
    assert sum(not row["answerable"] or not row["plain_close"] for row in refused) >= 0.9 * len(refused)
