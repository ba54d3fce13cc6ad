"""Arrival processes: exact counts, sorted, the rate that was asked for, and traces as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from workbench.scaletest.scenario.arrival_processes import Arrival, ArrivalTimes, parse_trace

READ: TypeAdapter[Any] = TypeAdapter(Arrival)
RATES = st.floats(0.01, 5000, allow_nan=False)
COUNTS = st.integers(1, 3000)


def times(seed: int = 0, **fields: Any) -> ArrivalTimes:
    """Arrivals of a process."""
    found: ArrivalTimes = READ.validate_python(fields).draw_times(np.random.default_rng(seed))
    return found


PROCESSES = st.one_of(
    st.fixed_dictionaries({"process": st.just("constant"), "rate_per_s": RATES, "n": COUNTS}),
    st.fixed_dictionaries({"process": st.just("poisson"), "rate_per_s": RATES, "n": COUNTS}),
    st.fixed_dictionaries({"process": st.just("ramp"), "from_per_s": RATES, "to_per_s": RATES, "n": COUNTS}),
    st.fixed_dictionaries(
        {"process": st.just("burst"), "size": st.integers(1, 50), "every_s": st.floats(0.01, 100), "n": COUNTS}
    ),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(PROCESSES, st.integers(0, 2**63 - 1))
def test_n_workloads_are_exactly_n_in_order_and_never_before_the_start(fields: dict[str, Any], seed: int) -> None:
    found = times(seed, **fields)
    assert len(found.due_s) == len(found.step) == len(found.rate_per_s) == fields["n"]
    assert (np.diff(found.due_s) >= 0).all()
    assert found.due_s[0] >= 0
    assert np.isfinite(found.due_s).all()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(PROCESSES, st.integers(0, 1000))
def test_the_same_seed_gives_the_same_times(fields: dict[str, Any], seed: int) -> None:
    assert times(seed, **fields).due_s.tobytes() == times(seed, **fields).due_s.tobytes()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RATES, COUNTS)
def test_a_constant_rate_is_that_rate(rate: float, count: int) -> None:
    assert times(process="constant", rate_per_s=rate, n=count).due_s == pytest.approx(np.arange(count) / rate)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 500), st.integers(1, 60))
def test_a_constant_rate_for_a_time_gives_rate_times_time(rate: int, duration_s: int) -> None:
    found = times(process="constant", rate_per_s=rate, duration_s=duration_s).due_s
    assert len(found) == rate * duration_s
    assert found[-1] < duration_s


@pytest.mark.parametrize(
    ("rate", "duration_s", "count"), [(0.1, 30, 3), (0.1, 31, 4), (3, 0.1, 1), (10, 0.3, 3), (7, 1 / 7, 1)]
)
def test_a_product_of_decimals_counts_as_it_was_meant(rate: float, duration_s: float, count: int) -> None:
    assert len(times(process="constant", rate_per_s=rate, duration_s=duration_s).due_s) == count


def test_the_gaps_of_a_poisson_process_are_exponential_with_the_mean_that_was_asked_for() -> None:
    gaps = np.diff(times(42, process="poisson", rate_per_s=25.0, n=20_000).due_s, prepend=0)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 25)).pvalue > 0.05
    assert stats.kstest(gaps, "expon", args=(0, 1 / 26)).pvalue < 0.001  # the test can tell
    # No gap knows of the one before it.
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02


def test_a_poisson_process_for_a_time_has_a_count_that_varies_as_poissons() -> None:
    counts = [len(times(seed, process="poisson", rate_per_s=10, duration_s=10).due_s) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(100, abs=2)
    assert np.var(counts) == pytest.approx(100, rel=0.25)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.integers(0, 200), st.integers(2, 100))
def test_a_ramp_reaches_its_rates_and_its_count(first: int, last: int, duration_s: int) -> None:
    due = times(process="ramp", from_per_s=first, to_per_s=last, duration_s=duration_s).due_s
    assert abs(len(due) - (first + last) / 2 * duration_s) < 1
    assert due[-1] <= duration_s * (1 + 1e-9)
    # As many until each moment as the rate's integral says.
    for moment in (duration_s / 3, duration_s / 2):
        exact = first * moment + (last - first) * moment**2 / (2 * duration_s)
        assert abs(np.searchsorted(due, moment) - exact) <= 1.001


def test_steps_follow_each_other_with_their_numbers_and_rates() -> None:
    steps = [{"rate_per_s": 2, "duration_s": 5}, {"rate_per_s": 10, "duration_s": 2}]
    found = times(process="steps", steps=steps)
    assert found.step.tolist() == [0] * 10 + [1] * 20
    assert found.rate_per_s.tolist() == [2.0] * 10 + [10.0] * 20
    assert found.due_s[10] == 5.0
    assert len(times(process="steps", steps=steps, n=12).due_s) == 12


def test_bursts_come_at_once_and_the_last_one_is_smaller() -> None:
    found = times(process="burst", size=4, every_s=10, n=10)
    assert found.due_s.tolist() == [0.0] * 4 + [10.0] * 4 + [20.0] * 2
    assert found.step.tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert np.isnan(found.rate_per_s).all()
    assert len(times(process="burst", size=4, every_s=10, duration_s=20).due_s) == 8


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 600_000, allow_nan=False), min_size=1, max_size=200).map(sorted))
def test_a_trace_is_replayed_as_it_was(recorded: list[float]) -> None:
    assert times(process="trace", times_s=recorded).due_s.tolist() == recorded
    assert times(process="trace", times_s=recorded, speed=2).due_s.tolist() == [one / 2 for one in recorded]
    assert times(process="trace", times_s=recorded, n=1).due_s.tolist() == recorded[:1]


def test_a_traces_file_is_a_number_a_line() -> None:
    assert parse_trace("# begun at noon\n0\n1.5  # second\n\n1e2\n") == {"times_s": (0.0, 1.5, 100.0)}
    with pytest.raises(ValueError, match=r"line 2 .* 'noon'"):
        parse_trace("1\nnoon\n")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"process": "constant", "rate_per_s": 1}, "never ends"),
        ({"process": "constant", "rate_per_s": 0, "n": 1}, "greater than 0"),
        ({"process": "constant", "rate_per_s": float("nan"), "n": 1}, "finite number|greater than 0"),
        ({"process": "constant", "rate_per_s": 1e9, "n": 1}, "less than or equal to 10000"),
        ({"process": "poisson", "rate_per_s": 1, "n": 10**12}, "less than or equal to 1000000"),
        ({"process": "ramp", "from_per_s": 0, "to_per_s": 0, "n": 5}, "makes no workloads"),
        ({"process": "steps", "steps": []}, "at least 1 item"),
        ({"process": "trace"}, "either times_s"),
        ({"process": "trace", "times_s": [1], "file": "x"}, "either times_s"),
        ({"process": "trace", "times_s": [2, 1]}, "must not fall"),
        ({"process": "trace", "times_s": [-1, 1]}, "within 0"),
        ({"process": "trace", "times_s": [1, float("inf")]}, "finite|within 0"),
        ({"process": "fractal", "n": 1}, "does not match any of the expected tags"),
    ],
)
def test_a_process_that_cannot_be_is_refused_with_the_reason(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        READ.validate_python(fields)


@pytest.mark.parametrize(
    ("fields", "peak"),
    [
        ({"process": "ramp", "from_per_s": 3, "to_per_s": 9, "n": 5}, 9),
        ({"process": "burst", "size": 40, "every_s": 60, "n": 80}, 40),
        ({"process": "burst", "size": 40, "every_s": 0.5, "n": 80}, 80),
        ({"process": "trace", "times_s": [0, 0.5, 0.9, 1.0, 5]}, 3),
        ({"process": "steps", "steps": [{"rate_per_s": 7, "duration_s": 1}]}, 7),
    ],
)
def test_the_highest_rate_is_known_before_anything_is_sent(fields: dict[str, Any], peak: float) -> None:
    assert READ.validate_python(fields).peak_rate_per_s == pytest.approx(peak)
