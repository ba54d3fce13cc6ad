"""What the client can drive, from levels of planted lateness, and on a real loopback service."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from tests.sizing.conftest import Sizing
from workbench.sizing.load import client_calibration
from workbench.sizing.load.client_calibration import ClientCalibration


def judge(*levels: tuple[int, float | None, str]) -> ClientCalibration:
    """Calibration of levels (users, median in s, verdict) on a service that answers after 1 s."""
    points = {
        "step": range(len(levels)),
        "load": [float(users) for users, _, _ in levels],
        "rate_per_s": [float(users) for users, _, _ in levels],
        "loop_lag_p99_s": 0.01,
        "client_cpu_share": 0.2,
        "verdict": [verdict for _, _, verdict in levels],
        "reason": None,
    }
    medians = {
        "step": range(len(levels)),
        "metric": "runtime",
        "q": 0.5,
        "value_s": [median for _, median, _ in levels],
    }
    config = SimpleNamespace(workers=None, processes=1, protocol="nat")
    sweep: Any = SimpleNamespace(
        points=pl.DataFrame(points), quantiles=pl.DataFrame(medians).drop_nulls(), config=config
    )
    return ClientCalibration(sweep, 1.0, client_calibration._judge_levels(sweep, 1.0))


@pytest.mark.parametrize(
    ("levels", "max_users"),
    [
        ([(100, 1.01, "valid"), (200, 1.02, "valid")], 200),
        ([(100, 1.01, "valid"), (200, 1.04, "client-limited")], 100),
        # A late service and a late client look alike: neither is driven.
        ([(100, 1.01, "valid"), (200, 1.3, "valid"), (400, 1.01, "valid")], 100),
        ([(400, 1.01, "valid"), (100, 1.01, "valid"), (200, 1.01, "interrupted")], 100),
        ([(100, 1.01, "few samples")], None),
        ([(100, 1.01, "client-limited"), (100, 1.01, "valid")], 100),
        ([(100, 1.01, "valid"), (200, None, "interrupted"), (400, 1.01, "valid")], 100),
    ],
)
def test_a_level_above_one_that_was_not_driven_does_not_count(
    levels: list[tuple[int, float | None, str]], max_users: int | None
) -> None:
    found = judge(*levels)
    assert found.max_users == max_users
    assert ("cannot drive" in found.answer) == (max_users is None)
    assert ("the highest level that was tried" in found.answer) == (max_users == max(users for users, _, _ in levels))


def test_nothing_measured_is_said() -> None:
    assert judge().answer == "nothing was measured"


@pytest.mark.live
def test_the_command_says_what_two_processes_drive(sizing: Sizing) -> None:
    said = sizing(*["calibrate", "--users", "20", "--processes", "2", "--answer", "0.1", "--max-step", "2", "--json"])
    document = json.loads(said.out)
    assert (said.code, document["simulated"], document["max_users"]) == (0, True, 20)
    assert document["answer"].startswith("2 client processes can drive 20 requests in flight")
    assert document["levels"][0]["rate_per_s"] == pytest.approx(200, rel=0.1)
