"""Search over versions by simulation: the planted version is found, with few probes, and noise is not called a step."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from workbench.core.errors import InputError
from workbench.indicators.analysis.version_search import (
    SearchResult,
    Step,
    build_level,
    choose_next_probe,
    choose_series_probe,
    decide_by_interval,
    estimate_step_ratio,
    evaluate_levels,
    list_log_levels,
)
from workbench.stats import SEQUENCE, Interval, sequential_log_ratio

MARGIN = 0.02
ROUNDS = 10


def simulated_level(truth: float, noise: float, source: np.random.Generator, rounds: int = ROUNDS) -> Interval:
    """The ratio of a version to the oldest one, as a session of so many rounds finds it."""
    times = truth * np.exp(source.normal(0, noise, rounds))
    return sequential_log_ratio(np.ones(rounds), times, level=0.95)


def search(
    times: Sequence[float], *, noise: float = 0.0, seed: int = 0, broken: Collection[int] = ()
) -> tuple[SearchResult, int]:
    """Measure both ends and then what is chosen, as the command does; the number of probes comes second."""
    source = np.random.default_rng(seed)
    last = len(times) - 1
    levels = {last: simulated_level(times[last], noise, source)}
    skipped: set[int] = set()
    probes = 0
    while (position := choose_next_probe(list_log_levels(levels), skipped)) is not None:
        assert position not in levels
        assert position not in skipped
        probes += 1
        if position in broken:
            skipped.add(position)
        else:
            levels[position] = simulated_level(times[position], noise, source)
    return evaluate_levels(levels, margin=MARGIN, n_compared=last), probes


def planted(*steps: tuple[int, float], count: int = 8) -> list[float]:
    """Times by version: from each position on, so many times longer."""
    return [math.prod(factor for begin, factor in steps if place >= begin) for place in range(count)]


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
@pytest.mark.parametrize("begin", range(1, 8))
def test_one_step_among_eight_versions_takes_at_most_three_probes(begin: int, factor: float, noise: float) -> None:
    found, probes = search(planted((begin, factor)), noise=noise, seed=begin)
    assert (found.step.before, found.step.after, found.between) == (begin - 1, begin, ())
    assert found.step.verdict == ("SLOWER" if factor > 1 else "FASTER")
    assert probes <= 3
    assert found.step.ratio.low is not None
    assert found.step.ratio.high is not None
    assert found.step.ratio.low <= 1 / factor <= found.step.ratio.high
    assert found.others == ()
    assert found.share == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("count", [2, 3, 20, 64])
def test_probes_grow_with_the_logarithm_of_the_versions(count: int) -> None:
    for begin in range(1, count):
        found, probes = search(planted((begin, 1.5), count=count))
        assert found.step.after == begin
        assert probes <= math.ceil(math.log2(count))


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_one_step_among_64_versions_takes_at_most_eight_sessions(noise: float) -> None:
    """One of both ends, one a probe, and one of the step itself where the probes leave it open."""
    for begin in range(1, 64):
        found, probes = search(planted((begin, 1.5), count=64), noise=noise, seed=begin)
        assert (found.step.before, found.step.after) == (begin - 1, begin)
        assert 1 + probes + (found.step.verdict == "UNDECIDED") <= 8


def test_of_two_steps_the_larger_one_is_found_and_the_other_one_told() -> None:
    found, _ = search(planted((2, 1.2), (6, 1.6)), noise=0.01, seed=3)
    assert (found.step.before, found.step.after, found.step.verdict) == (5, 6, "SLOWER")
    assert found.share == pytest.approx(math.log(1.6) / math.log(1.92), abs=0.05)
    (other,) = found.others
    assert (other.before, other.after, other.verdict) == (0, 5, "SLOWER")


def test_a_step_that_is_partly_taken_back_is_more_than_the_whole_change() -> None:
    found, _ = search(planted((3, 1.6), (6, 1 / 1.2)))
    assert (found.step.after, found.step.verdict) == (3, "SLOWER")
    assert found.share == pytest.approx(math.log(1.6) / math.log(1.6 / 1.2))
    assert [(one.before, one.after, one.verdict) for one in found.others] == [(3, 7, "FASTER")]


@pytest.mark.parametrize("begin", range(1, 8))
@pytest.mark.parametrize("broken", [{3}, {1, 2, 3}, {1, 2, 3, 4, 5, 6}])
def test_versions_that_cannot_be_measured_stay_possible(begin: int, broken: set[int]) -> None:
    found, probes = search(planted((begin, 1.5)), noise=0.01, seed=begin, broken=broken)
    assert found.step.before < begin <= found.step.after
    assert set(found.between) <= broken
    assert found.step.verdict == "SLOWER"
    assert probes <= 6
    if begin not in broken and begin - 1 not in broken:
        assert (found.step.before, found.step.after) == (begin - 1, begin)


def test_the_nearest_version_to_the_middle_is_next() -> None:
    assert choose_next_probe({0: 0.0, 7: 0.4}) == 3
    assert choose_next_probe({0: 0.0, 7: 0.4}, {3}) == 4
    assert choose_next_probe({0: 0.0, 7: 0.4}, {3, 4}) == 2
    assert choose_next_probe({0: 0.0, 7: 0.4}, range(1, 7)) is None
    assert choose_next_probe({0: 0.0, 1: 0.3}) is None
    # The largest step decides, whatever its direction.
    assert choose_next_probe({0: 0.0, 3: 0.5, 6: -0.1}) == 4
    with pytest.raises(InputError, match="fewer than two"):
        choose_next_probe({0: 0.0})


def test_a_step_below_the_margin_is_none() -> None:
    found, _ = search(planted((4, 1.015)))
    assert (found.step.after, found.step.verdict) == (4, "SAME")
    found, _ = search(planted((4, 1.015)), noise=0.02, seed=1)
    assert found.step.verdict not in ("FASTER", "SLOWER")


def test_a_slow_change_over_all_versions_is_no_step() -> None:
    found, _ = search([1.01**place for place in range(8)], noise=0.002, seed=5)
    assert found.step.verdict == "SAME"
    assert found.others


def test_noise_is_rarely_called_a_step_and_never_another_version() -> None:
    """The whole error, over all versions and probes, is at most 5 %; a small step is undecided rather than wrong."""
    wrong = {"no change": 0, "small step": 0}
    for seed in range(200):
        found, _ = search(planted(), noise=0.05, seed=seed)
        wrong["no change"] += found.step.verdict in ("FASTER", "SLOWER")
        found, _ = search(planted((4, 1.1)), noise=0.05, seed=seed)
        wrong["small step"] += found.step.verdict in ("FASTER", "SLOWER") and found.step.after != 4
    assert max(wrong.values()) <= 10, wrong


def test_a_level_without_an_interval_is_used_to_search_and_not_to_decide() -> None:
    clear = sequential_log_ratio([1.0] * 10, [1.5 + 0.001 * place for place in range(10)], level=0.95)
    open_ = Interval(1.0, None, None, 0.95, 3, SEQUENCE, reason="3 pairs")
    found = evaluate_levels({1: open_, 2: clear}, margin=MARGIN, n_compared=2)
    assert (found.step.before, found.step.after, found.step.verdict) == (1, 2, "UNDECIDED")
    # A wide interval around the right level does not lead astray, but leaves the step open.
    wide = Interval(1.0, 0.5, 2.0, 0.95, 10, SEQUENCE)
    found = evaluate_levels({1: wide, 2: clear}, margin=MARGIN, n_compared=2)
    assert (found.step.after, found.step.verdict) == (2, "UNDECIDED")
    direct = Step(1, 2, clear, "SLOWER")
    found = evaluate_levels({1: wide, 2: clear}, margin=MARGIN, n_compared=2, direct={(1, 2): direct})
    assert (found.step, found.share) == (direct, pytest.approx(1))


def test_the_interval_of_a_step_grows_with_the_versions_and_with_both_sides() -> None:
    one, other = Interval(0.9, 0.85, 0.953, 0.95, 10, SEQUENCE), Interval(0.6, 0.57, 0.632, 0.95, 10, SEQUENCE)
    alone = estimate_step_ratio(None, other, n_compared=1)
    assert (alone.low, alone.high) == (pytest.approx(0.57, rel=1e-3), pytest.approx(0.632, rel=1e-3))
    among = estimate_step_ratio(None, other, n_compared=7)
    both = estimate_step_ratio(one, other, n_compared=7)
    assert both.estimate == pytest.approx(0.6 / 0.9)
    spans = [math.log(found.high / found.low) for found in (alone, among, both) if found.high and found.low]
    assert spans == sorted(spans)
    assert len(set(spans)) == 3
    few = Interval(0.6, 0.3, 1.2, 0.95, 5, SEQUENCE)
    assert estimate_step_ratio(None, few, n_compared=100).low is None
    equal = Interval(0.6, 0.6, 0.6, 0.95, 5, SEQUENCE)
    assert estimate_step_ratio(None, equal, n_compared=100).high == pytest.approx(0.6)
    assert estimate_step_ratio(None, Interval(None, None, None, 0.95, 0, ""), n_compared=1).estimate is None


def test_a_verdict_takes_the_whole_interval_beyond_the_margin() -> None:
    given = [(1.03, 1.2), (1.01, 1.2), (0.5, 0.97), (0.99, 1.01), (0.9, 1.1)]
    said = [decide_by_interval(Interval((low + high) / 2, low, high, 0.95, 10, ""), MARGIN) for low, high in given]
    assert said == ["FASTER", "UNDECIDED", "SLOWER", "SAME", "UNDECIDED"]
    assert decide_by_interval(Interval(1.5, None, None, 0.95, 1, ""), MARGIN) == "UNDECIDED"


def test_a_level_is_a_row_of_effects() -> None:
    row = {"ratio": 0.7, "low": 0.65, "high": 0.75, "level": 0.95, "n": 12, "verdict": "SLOWER"}
    found = build_level(row, is_sequence=True)
    assert (found.estimate, found.low, found.n, found.method) == (0.7, 0.65, 12, SEQUENCE)


@pytest.mark.parametrize("seed", range(20))
def test_a_series_finds_both_of_two_steps_by_halving(seed: int) -> None:
    """Simulated, without noise."""
    draw = random.Random(seed)
    n = draw.randint(20, 200)
    first, second = sorted(draw.sample(range(1, n), 2))
    truth = [0.0 if place < first else -0.4 if place < second else -0.7 for place in range(n + 1)]
    levels = {0: truth[0], n: truth[n]}
    ends = {first - 1, first, second - 1, second}
    while not ends <= levels.keys():
        probe = choose_series_probe(levels, margin=0.02)
        assert probe is not None
        levels[probe] = truth[probe]
    assert len(levels) - 2 <= 4 * math.log2(n) + 2


def test_a_series_without_a_step_is_looked_at_in_even_parts() -> None:
    levels = {0: 0.0, 64: 0.0}
    for _ in range(7):
        probe = choose_series_probe(levels, margin=0.02)
        assert probe is not None
        levels[probe] = 0.0
    assert sorted(levels) == list(range(0, 65, 8))
