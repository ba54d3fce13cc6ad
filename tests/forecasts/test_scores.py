"""Scores of planted ledgers: what is counted, what is missing, and verdicts on honest, narrow and wide intervals."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.forecasts.conftest import DAY, make_forecast, make_outcome
from workbench.forecasts.ledger import Entry, Forecast, Ledger, Outcome, read_ledger
from workbench.forecasts.scores import Scores, build_cases, score_cases
from workbench.stats import compute_interval_score


def keep(*entries: Entry) -> Ledger:
    forecasts = {entry.id: entry for entry in entries if isinstance(entry, Forecast)}
    return Ledger(forecasts, tuple(entry for entry in entries if isinstance(entry, Outcome)))


def score(*entries: Entry, **options: Any) -> Scores:
    return score_cases(build_cases(keep(*entries), **options))


def test_a_case_worked_by_hand() -> None:
    scored = score(make_forecast(1), make_outcome(1, 20.0), make_forecast(2), make_outcome(2, 10.0))
    row = scored.overall
    assert (row["n_matched"], row["n_intervals"], row["n_covered"], row["coverage"]) == (2, 2, 1, 0.5)
    assert row["mean_absolute_log_error"] == pytest.approx(math.log(2) / 2)
    width = math.log(12.5 / 8)
    assert row["mean_log_width"] == pytest.approx(width)
    assert row["mean_interval_score"] == pytest.approx(width + 20 * math.log(20 / 12.5) / 2)
    assert scored.forecasts["covered"].to_list() == [False, True]
    assert scored.forecasts["log_error"].to_list() == pytest.approx([-math.log(2), 0.0])


def test_what_is_open_failed_or_invalid_is_counted_and_is_no_zero() -> None:
    scored = score(
        make_forecast(1),
        make_forecast(2),
        make_outcome(2, None, failure="out of memory"),
        make_forecast(3),
        make_outcome(3, 99.0, verdict="invalid"),
        make_forecast(4),
        make_outcome(4, 11.0, verdict="valid"),
    )
    row = scored.overall
    counts = [row[f"n_{name}"] for name in ("forecasts", "open", "matched", "failed", "invalid")]
    assert (counts, row["n_intervals"], row["n_covered"]) == ([4, 1, 1, 1, 1], 1, 1)
    assert scored.forecasts["state"].to_list() == ["open", "failed", "invalid", "matched"]
    assert scored.forecasts["log_error"].null_count() == 3
    empty = score(make_forecast(1)).overall
    assert [empty[name] for name in ("coverage", "level", "mean_absolute_log_error", "mean_interval_score")] == [
        None
    ] * 4
    assert empty["verdict"] == "UNDECIDED"
    assert score(make_forecast(1)).reasons
    assert score().overall["n_forecasts"] == 0


def test_intervals_without_an_end_and_values_that_are_not_positive_count_where_they_can() -> None:
    row = score(
        make_forecast(1, low=None, high=None), make_outcome(1),
        make_forecast(2, low=8.0, high=None), make_outcome(2),
        make_forecast(3, value=0.0, low=0.0, high=1.0), make_outcome(3, 0.5),
    ).overall  # fmt: skip
    assert (row["n_matched"], row["n_intervals"], row["n_covered"], row["n_errors"]) == (3, 1, 1, 2)
    assert (row["mean_log_width"], row["mean_interval_score"]) == (None, None)


def test_areas_have_a_row_each_and_all_the_last_one() -> None:
    scored = score(make_forecast(1), make_forecast(2, area="sizing"), make_outcome(2), make_forecast(3, area="sizing"))
    assert scored.scores["area"].to_list() == ["sizing", "speedup", "all"]
    assert scored.scores["n_forecasts"].to_list() == [2, 1, 3]


def test_the_newest_outcome_counts() -> None:
    late = DAY + timedelta(days=5)
    outcomes = [make_outcome(1, 20.0), make_outcome(1, 10.0, kept_at=late)]
    for order in (outcomes, outcomes[::-1]):
        assert score(make_forecast(1), *order).forecasts["outcome"].to_list() == [10.0]


@pytest.mark.parametrize(
    ("forecast", "outcome", "is_retrospective"),
    [
        ({}, {}, False),
        ({"retrospective": True}, {}, True),
        ({}, {"measured_at": DAY}, True),
        ({}, {"measured_at": DAY + timedelta(seconds=1)}, False),
        ({}, {"measured_at": None}, True),
        ({"inputs_sha256": "a" * 64}, {"inputs_sha256": "a" * 64}, True),
        ({"inputs_sha256": "a" * 64}, {"inputs_sha256": "b" * 64}, False),
    ],
)
def test_a_forecast_whose_outcome_may_have_been_known_is_told_apart(
    forecast: dict[str, Any], outcome: dict[str, Any], is_retrospective: bool
) -> None:
    entries = (make_forecast(1, **forecast), make_outcome(1, **outcome))
    assert score(*entries).overall["n_retrospective"] == is_retrospective
    assert score(*entries, in_time=True).overall["n_matched"] == (not is_retrospective)


def test_forecasts_of_one_run_or_seen_by_one_run_are_one_group() -> None:
    made = [make_forecast(number, run_id=f"made-{number // 2}") for number in range(8)]
    seen = [make_outcome(number, run_id=f"seen-{number % 2}" if number < 4 else None) for number in range(8)]
    # Runs 0 and 1 were seen by the same runs; 2 and 3 by hand.
    assert score(*made, *seen).overall["n_runs"] == 3
    assert (
        score(*(make_forecast(number) for number in range(8)), *(make_outcome(n) for n in range(8))).overall["n_runs"]
        == 8
    )


def plant(width: float, *, n_runs: int = 60, n_each: int = 4, seed: int = 0) -> str:
    """Verdict on a ledger of log-normal outcomes whose intervals are `width` times the honest ones."""
    rng = np.random.default_rng(seed)
    entries: list[Entry] = []
    for run in range(n_runs):
        shared = 0.1 * rng.normal()
        for _ in range(n_each):
            number, half = len(entries), 1.6449 * math.sqrt(0.1**2 + 0.2**2) * width
            ends = {"low": 10 * math.exp(-half), "high": 10 * math.exp(half)}
            entries.append(make_forecast(number, run_id=f"run-{run}", **ends))
            entries.append(make_outcome(number, 10 * math.exp(shared + 0.2 * rng.normal())))
    return str(score(*entries).overall["verdict"])


def test_honest_narrow_and_wide_intervals_are_told_apart() -> None:
    assert [plant(width) for width in (1.0, 0.5, 2.0)] == ["VALID", "OVERCONFIDENT", "UNDERCONFIDENT"]
    assert plant(1.0, n_runs=1, n_each=20) == plant(0.5, n_runs=1, n_each=20) == "UNDECIDED"


def test_the_interval_score_rewards_the_honest_width() -> None:
    outcomes = np.random.default_rng(1).normal(size=4000)
    means = [
        float(np.mean([compute_interval_score(-half, half, value, 0.9) for value in outcomes]))
        for half in (0.8, 1.6449, 3.3)
    ]
    assert means[1] == min(means)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_order_of_lines_does_not_change_a_score_and_scale_does_not_change_errors(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(0.1, 1000), min_size=1, max_size=8))
    entries: list[Entry] = [make_forecast(number, run_id=f"run-{number % 3}") for number in range(len(values))]
    entries += [make_outcome(number, value) for number, value in enumerate(values)]
    expected, turned = score(*entries), score(*data.draw(st.permutations(entries)))
    assert turned.scores.equals(expected.scores)
    assert turned.forecasts.equals(expected.forecasts)
    scaled = score(
        *(
            entry.model_copy(
                update={name: end * 7 for name in ("value", "low", "high") if (end := getattr(entry, name)) is not None}
            )
            for entry in entries
        )
    )
    for name in ("n_covered", "mean_absolute_log_error", "mean_log_width", "mean_interval_score"):
        assert scaled.overall[name] == pytest.approx(expected.overall[name])


def test_the_shipped_ledger_says_what_its_script_says() -> None:
    scored = score_cases(build_cases(read_ledger(SAMPLES / "forecasts" / "ledger.jsonl")))
    counts = {row["area"]: row["n_matched"] for row in scored.scores.iter_rows(named=True)}
    assert counts == {"sizing": 1, "speedup": 46, "all": 47}
    assert (scored.overall["n_open"], scored.overall["n_retrospective"], scored.overall["n_runs"]) == (1, 47, 3)
    assert scored.overall["verdict"] == "UNDECIDED"
    notes = set(scored.forecasts["note"])
    assert notes == {
        "left out, same recording (tpch-sf1)", "factors of tpch-sf1 carried over to tpcds-sf0.05",
        "simulated service, 2 GPUs measured", "one H100 measured, linear scaling assumed",
    }  # fmt: skip
    for line in (SAMPLES / "forecasts" / "ledger.jsonl").read_text().splitlines():
        assert "/" not in str(json.loads(line).get("folder"))
