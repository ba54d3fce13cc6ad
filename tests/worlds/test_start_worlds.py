"""When jobs start on a real control plane, beside what was said before they came."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.scaletest.conftest import QUICK, fresh_namespace, programs, start_guarded_cluster
from tests.worlds.start_worlds import KINDS, PATIENT, POOLS, QUOTAS, play_timeline
from workbench.scaletest.scenario.scheduler_recipes import find_recipe

pytestmark = [pytest.mark.cluster, pytest.mark.live, pytest.mark.slow]
# Seeds 0 to 11 were looked at while the simulation was made.
SEEDS = range(100, 124)


def read_timelines(seeds: Iterable[int], folder: Path) -> list[dict[str, Any]]:
    """Questions of timelines, one file each; those that are not there yet are played now."""
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        path = folder / f"{seed}.json"
        if not path.exists():
            path.write_text(json.dumps(play_seed(seed)))
        rows += json.loads(path.read_text())
    return rows


def play_seed(seed: int) -> list[dict[str, Any]]:
    """The questions of one timeline, on a cluster of its own."""
    programs()
    gangs = find_recipe("gang")
    if KINDS[seed % len(KINDS)] == "quota":
        settings: dict[str, Any] = {"kueue": True, "queue_quotas": QUOTAS}
    else:
        settings = {"feature_gates": gangs.feature_gates, "api_arguments": gangs.api_arguments}
    limits = QUICK | {PATIENT.name: QUICK["kube-scheduler"]}
    with start_guarded_cluster("starts", pools=POOLS, client_limits=limits, recipes=(PATIENT,), **settings) as cluster:
        for namespace in fresh_namespace(cluster):
            rows, _ = asyncio.run(play_timeline(cluster, namespace, seed))
    return rows


@pytest.mark.timeout(40_000)
def test_starts_are_told_before(tmp_path: Path) -> None:
    rows = read_timelines(SEEDS, Path(os.environ.get("KEPT_CASES") or tmp_path))
    known = [row for row in rows if not row["doubts"] and row["true_s"] is not None]
    waited = [row for row in known if row["true_s"] > 0 or row["p90_s"] != 0]
    covered = [
        row["p10_s"] <= row["true_s"] <= (row["p90_s"] or math.inf) for row in waited if row["p10_s"] is not None
    ]
    errors = [
        abs(math.log(max(row["p50_s"], 1.0) / max(row["true_s"], 1.0))) for row in waited if row["p50_s"] is not None
    ]
    right = [row["reason"] == row["true_reason"] for row in waited if row["true_s"] > 0]
    print(f"\n{len(rows)} asked, {len(known)} known, {len(waited)} waited: covered {sum(covered) / len(covered):.3f}")
    print(f"median absolute log error {median(errors):.3f}, reason right {sum(right) / len(right):.3f}")
    assert len(known) >= 0.95 * len(rows)
    assert 0.75 <= sum(covered) / len(covered) <= 0.85
    assert median(errors) <= 0.25
    assert sum(right) >= 0.9 * len(right)
