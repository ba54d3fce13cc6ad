"""Verification: held, failed or undecided, by the interval and not by the point."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.sizing.making import closed, requests, steps
from workbench.core.errors import InputError
from workbench.sizing.config import Goal
from workbench.sizing.estimation.verification import verify_count, verify_goals

RUNTIMES = list(np.random.default_rng(0).lognormal(sigma=0.2, size=800))
P95 = float(np.quantile(RUNTIMES, 0.95))


def verified(
    frame: pl.DataFrame, *rows: dict[str, Any], limit_s: float = 9, gpus: int = 1, load: float = 4
) -> pl.DataFrame:
    return verify_goals(frame, steps(*rows), [Goal(limit_s=limit_s)], predicted_gpus=gpus, load=load)


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "held"), (0.8, "failed"), (1.0, "undecided")])
def test_the_interval_decides(factor: float, verdict: str) -> None:
    table = verified(closed(4, RUNTIMES), {"users": 4, "gpus": 3}, limit_s=factor * P95, gpus=3)
    row = table.row(0, named=True)
    assert (row["verdict"], row["scope"]) == (verdict, "whole load")
    assert row["low_s"] < row["value_s"] < row["high_s"]
    assert (row["reason"] is None) == (verdict == "held")


def test_fewer_gpus_than_predicted_get_their_share() -> None:
    table = verified(closed(4, RUNTIMES), {"users": 4}, gpus=3, load=12)
    assert (table["scope"][0], table["driven_load"][0], table["load"][0]) == ("per-GPU load", 4, 12)


def test_failures_fail_it() -> None:
    rows = [{"outcome": "cut" if n % 10 == 0 else "ok", "sent_s": n / 10, "ended_s": n / 10 + 1} for n in range(300)]
    rows = [row | ({"runtime_s": None} if row["outcome"] == "cut" else {}) for row in rows]
    table = verified(requests(rows), {"users": 1}, load=1)
    assert table["verdict"].to_list() == ["failed"]
    assert "failed: 29 cut" in table["reason"][0]


def test_a_busy_client_verifies_nothing() -> None:
    table = verified(closed(4, RUNTIMES), {"users": 4, "client_cpu_share": 1.0})
    assert table["verdict"].to_list() == ["invalid"]


def test_between_two_whole_loads_it_is_the_value_between() -> None:
    slow = [2 * runtime for runtime in RUNTIMES]
    frame = pl.concat([closed(6, RUNTIMES), closed(7, slow, step=1)])
    table = verified(frame, {"users": 6}, {"users": 7}, limit_s=1.7 * P95, gpus=18, load=120)
    row = table.row(0, named=True)
    assert (row["driven_load"], row["verdict"]) == (pytest.approx(120 / 18), "undecided")
    assert row["value_s"] == pytest.approx((1 / 3 + 2 * 2 / 3) * P95, rel=0.05)


def test_it_takes_one_step_or_two() -> None:
    with pytest.raises(InputError, match="one step, or two"):
        verified(closed(4, RUNTIMES))


@pytest.mark.parametrize(
    ("factors", "driven", "said"),
    [
        ((1.2,), [20], 20),
        # At its limit; with one in twenty more it holds.
        ((1.0, 1.2), [20, 21], 21),
        ((0.8, 1.0, 1.2), [20, 21, 23], 23),
        ((0.8, 0.8, 0.8), [20, 21, 23], 20),
    ],
)
def test_a_count_that_does_not_hold_is_verified_with_a_few_more(
    factors: tuple[float, ...], driven: list[int], said: int
) -> None:
    counts = []

    def verify(gpus: int) -> pl.DataFrame:
        counts.append(gpus)
        runtimes = [runtime / factors[len(counts) - 1] for runtime in RUNTIMES]
        return verified(closed(4, runtimes), {"users": 4}, limit_s=P95, gpus=gpus)

    row = verify_count(verify, 20).row(0, named=True)
    assert (counts, row["predicted_gpus"], row["estimated_gpus"]) == (driven, said, 20)
    assert (row["verdict"] == "held") == (factors[-1] == 1.2)
    if said > 20:
        assert row["reason"].startswith(f"{driven[-2]} GPUs: ")


def test_a_run_that_says_nothing_is_not_repeated_with_more() -> None:
    counts = []

    def verify(gpus: int) -> pl.DataFrame:
        counts.append(gpus)
        return verified(closed(4, RUNTIMES), {"users": 4, "client_cpu_share": 1.0}, gpus=gpus)

    assert verify_count(verify, 20)["verdict"][0] == "invalid"
    assert counts == [20]
