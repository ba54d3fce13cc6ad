"""The estimators: cases worked by hand, limits, properties, and coverage by simulation with fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import stats
from workbench.core.errors import ConfigError, InputError
from workbench.stats import Interval

DURATIONS = st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=2, max_size=12)
QUICK = settings(max_examples=60, deadline=None, derandomize=True)


def covers(interval: Interval, truth: float) -> bool:
    low = -math.inf if interval.low is None else interval.low
    return low <= truth <= (math.inf if interval.high is None else interval.high)


def coverage(draw: Callable[[int], Interval], truth: float, simulations: int) -> float:
    return sum(covers(draw(number), truth) for number in range(simulations)) / simulations


# paired_log_ratio


def test_the_paired_ratio_of_a_case_worked_by_hand() -> None:
    # Ratios 2, 4 and 8: mean log2 = 2, standard error 1/sqrt(3) in log2, t(0.95, 2) = 2.919986.
    interval = stats.paired_log_ratio([2.0, 4.0, 8.0], [1.0, 1.0, 1.0])
    assert interval.estimate == pytest.approx(4.0)
    assert interval.low == pytest.approx(2 ** (2 - 2.919986 / math.sqrt(3)), rel=1e-6)
    assert interval.high == pytest.approx(2 ** (2 + 2.919986 / math.sqrt(3)), rel=1e-6)
    # t = 2 / (1 / sqrt(3)) = 3.4641 with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2) = 0.0741799.
    assert interval.p_value == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-9)
    assert (interval.n, interval.level) == (3, 0.90)


def test_identical_sides_have_the_ratio_one_and_no_evidence_of_a_difference() -> None:
    interval = stats.paired_log_ratio([3.0, 5.0, 0.1], [3.0, 5.0, 0.1])
    assert (interval.estimate, interval.low, interval.high, interval.p_value) == (1.0, 1.0, 1.0, 1.0)


def test_no_pair_gives_nothing_and_one_pair_gives_a_ratio_without_interval() -> None:
    none, one = stats.paired_log_ratio([], []), stats.paired_log_ratio([3.0], [2.0])
    assert (none.estimate, none.low, none.high, none.n) == (None, None, None, 0)
    assert (one.estimate, one.low, one.high, one.p_value, one.n) == (pytest.approx(1.5), None, None, None, 1)
    assert one.reason == "1 pair(s), at least 2 needed"


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, None])
def test_values_that_are_no_durations_are_refused_by_position(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"candidate, position\(s\) 1, 3") as caught:
        stats.paired_log_ratio([1.0] * 4, [1.0, wrong, 1.0, wrong])
    assert "above 0" in str(caught.value)


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="2 and 1 values"):
        stats.paired_log_ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize("level", [0.0, 1.0, 90.0, math.nan])
def test_a_level_that_is_no_share_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="not between 0 and 1"):
        stats.paired_log_ratio([1.0], [1.0], level=level)


@QUICK
@given(pairs=DURATIONS, scale=st.floats(1e-3, 1e3))
def test_scaling_all_durations_leaves_the_ratio_alone(pairs: list[tuple[float, float]], scale: float) -> None:
    above, below = zip(*pairs, strict=True)
    plain = stats.paired_log_ratio(above, below)
    scaled = stats.paired_log_ratio([scale * value for value in above], [scale * value for value in below])
    for end in ("estimate", "low", "high"):
        assert getattr(scaled, end) == pytest.approx(getattr(plain, end), rel=1e-6)


@QUICK
@given(pairs=DURATIONS)
def test_swapping_the_sides_inverts_ratio_and_interval(pairs: list[tuple[float, float]]) -> None:
    above, below = zip(*pairs, strict=True)
    there, back = stats.paired_log_ratio(above, below), stats.paired_log_ratio(below, above)
    assert there.estimate is not None
    assert there.low is not None
    assert there.high is not None
    assert (back.estimate, back.low, back.high) == pytest.approx((1 / there.estimate, 1 / there.high, 1 / there.low))


def test_the_paired_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)

    def draw(_: int) -> Interval:
        case = rng.lognormal(0, 1, 8)
        return stats.paired_log_ratio(1.7 * case * rng.lognormal(0, 0.2, 8), case * rng.lognormal(0, 0.2, 8))

    assert 0.87 <= coverage(draw, 1.7, 1500) <= 0.93


# quantile_interval


@pytest.mark.parametrize(
    ("n", "q", "low", "high", "achieved"),
    [
        # Tables of the sign test: for the median of 10, ranks 2 and 9 have 97.85 %; of 20, ranks 6 and 15 have 95.86 %.
        (10, 0.5, 2, 9, 1 - 2 * 11 / 1024),
        (20, 0.5, 6, 15, 0.958611),
        # 0.95^59 = 0.0485 is the first power below 0.05: the 59th value is the first to bound p95 from above.
        (59, 0.95, 53, 59, None),
        (58, 0.95, 52, None, None),
        (3, 0.5, None, None, None),
    ],
)
def test_ranks_of_a_quantile_interval_are_those_of_the_binomial_tables(
    n: int, q: float, low: int | None, high: int | None, achieved: float | None
) -> None:
    interval = stats.quantile_interval(range(1, n + 1), q)
    assert (interval.low, interval.high) == (low, high)
    if achieved is not None:
        assert interval.achieved_level == pytest.approx(achieved, abs=1e-6)


def test_the_achieved_level_is_the_binomial_sum_between_the_ranks() -> None:
    interval = stats.quantile_interval(range(1, 101), 0.9)
    assert interval.low is not None
    assert interval.high is not None
    ranks = range(int(interval.low), int(interval.high))
    exact = sum(math.comb(100, k) * 0.9**k * 0.1 ** (100 - k) for k in ranks)
    assert interval.achieved_level == pytest.approx(exact)
    assert exact >= 0.90


def test_a_side_that_cannot_be_bounded_is_null_and_said() -> None:
    interval = stats.quantile_interval([1.0, 2.0, 3.0], 0.5)
    assert (interval.low, interval.high, interval.achieved_level) == (None, None, None)
    assert interval.reason == "3 value(s) cannot bound both sides at q = 0.5"
    half = stats.quantile_interval(range(1, 59), 0.95)
    assert half.high is None
    assert half.achieved_level is not None
    assert half.achieved_level >= 0.95
    assert stats.quantile_interval([], 0.5) == Interval(
        None, None, None, 0.9, 0, "order statistics, q = 0.5", reason="no values"
    )


def test_the_estimate_of_a_far_quantile_of_few_values_is_not_below_its_own_interval() -> None:
    # All three lie below p99 with 0.99^3 = 0.97: no upper end, but the largest of them is a lower end.
    interval = stats.quantile_interval([1.0, 2.0, 3.0], 0.99)
    assert (interval.low, interval.estimate, interval.high) == (3.0, 3.0, None)
    assert interval.achieved_level == pytest.approx(0.99**3)


@QUICK
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), seed=st.integers(0, 100))
def test_quantiles_are_ordered_inside_their_intervals_and_blind_to_row_order(values: list[float], seed: int) -> None:
    intervals = [stats.quantile_interval(values, q) for q in (0.5, 0.95, 0.99)]
    estimates = [interval.estimate for interval in intervals]
    assert None not in estimates
    assert estimates == sorted(estimates, key=float)
    assert all(covers(interval, float(interval.estimate or 0.0)) for interval in intervals)
    shuffled = list(np.random.default_rng(seed).permutation(values))
    assert [stats.quantile_interval(shuffled, q) for q in (0.5, 0.95, 0.99)] == intervals


@pytest.mark.parametrize(("n", "q"), [(25, 0.5), (120, 0.95)])
def test_the_quantile_interval_covers_with_the_level_that_it_reports(n: int, q: float) -> None:
    rng = np.random.default_rng(2)
    truth = math.exp(NormalDist().inv_cdf(q))
    achieved = stats.quantile_interval(range(n), q).achieved_level
    assert achieved is not None
    measured = coverage(lambda _: stats.quantile_interval(rng.lognormal(0, 1, n), q), truth, 1500)
    assert measured == pytest.approx(achieved, abs=0.025)
    assert measured >= 0.88


# cluster_bootstrap and session_t


def sessions(rng: np.random.Generator, count: int) -> list[Any]:
    return list(np.exp(rng.normal(0, 0.15, (count, 1)) + rng.normal(0, 0.3, (count, 30))))


@pytest.mark.parametrize("count", [5, 7, 10])
def test_the_cluster_interval_covers_the_true_mean_with_few_clusters(count: int) -> None:
    rng = np.random.default_rng(3)
    truth = math.exp((0.15**2 + 0.3**2) / 2)

    def draw(number: int) -> Interval:
        return stats.cluster_bootstrap(sessions(rng, count), np.mean, draws=200, seed=number)

    assert 0.85 <= coverage(draw, truth, 400) <= 0.95


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_over_session_medians_covers_the_true_median(count: int) -> None:
    rng = np.random.default_rng(4)
    assert 0.87 <= coverage(lambda _: stats.session_t(sessions(rng, count)), 1.0, 1000) <= 0.94


def test_ignoring_the_sessions_would_not_cover() -> None:
    # The reason for clusters: taken as 300 independent values, ten sessions give an interval that is far too short.
    rng = np.random.default_rng(5)
    naive = coverage(lambda _: stats.quantile_interval(np.concatenate(sessions(rng, 10)), 0.5), 1.0, 400)
    assert naive < 0.75


def test_clusters_that_are_alike_give_an_interval_of_no_width() -> None:
    interval = stats.cluster_bootstrap([[2.0, 4.0]] * 6, np.mean, draws=50)
    assert (interval.estimate, interval.low, interval.high, interval.n) == (3.0, 3.0, 3.0, 6)


def test_every_resample_has_as_many_clusters_as_there_are() -> None:
    sizes: list[int] = []

    def mean(values: Any) -> float:
        sizes.append(len(values))
        return float(values.mean())

    stats.cluster_bootstrap([[1.0, 2.0, 3.0]] * 6, mean, draws=20)
    assert sizes == [18] * 21


def test_the_same_seed_gives_the_same_interval() -> None:
    data = sessions(np.random.default_rng(6), 6)
    assert stats.cluster_bootstrap(data, np.median, seed=7) == stats.cluster_bootstrap(data, np.median, seed=7)
    assert stats.cluster_bootstrap(data, np.median, seed=7) != stats.cluster_bootstrap(data, np.median, seed=8)


def test_too_few_clusters_give_no_interval_and_say_so() -> None:
    few = stats.cluster_bootstrap([[1.0], [3.0], [5.0], [7.0]], np.mean)
    assert (few.estimate, few.low, few.high, few.reason) == (4.0, None, None, "4 cluster(s), at least 5 needed")
    none = stats.cluster_bootstrap([], np.mean)
    assert (none.estimate, none.n, none.reason) == (None, 0, "no clusters")
    single = stats.session_t([[1.0, 2.0, 9.0]])
    assert (single.estimate, single.low, single.reason) == (2.0, None, "1 session(s), at least 2 needed")
    assert stats.session_t([]).estimate is None


def test_the_session_interval_of_a_case_worked_by_hand() -> None:
    # Medians 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.95, 2) = 2.919986.
    interval = stats.session_t([[1.0, 0.0, 5.0], [2.0], [3.0, 3.0]])
    assert interval.estimate == 2.0
    assert interval.high == pytest.approx(2 + 2.919986 / math.sqrt(3), rel=1e-6)


def test_empty_clusters_and_values_that_are_no_numbers_are_refused_by_place() -> None:
    with pytest.raises(InputError, match=r"position\(s\) 1"):
        stats.cluster_bootstrap([[1.0], [], [2.0]], np.mean)
    with pytest.raises(InputError, match=r"cluster 2, position\(s\) 1"):
        stats.session_t([[1.0], [2.0], [2.0, math.nan]])


# isotonic_inversion

LOADS = np.array([8.0, 16, 24, 32, 40, 48, 56, 64])


def latency(load: Any) -> Any:
    return 100 * (1 + (load / 50) ** 4)


@pytest.mark.parametrize("runs", [3, 5])
def test_the_interval_of_the_largest_load_covers_the_true_one(runs: int) -> None:
    rng = np.random.default_rng(8)
    loads = np.repeat(LOADS, runs)

    def draw(number: int) -> Interval:
        noisy = latency(loads) * rng.lognormal(0, 0.1, len(loads))
        return stats.isotonic_inversion(loads, noisy, 200.0, draws=150, seed=number)

    assert 0.85 <= coverage(draw, 50.0, 250) <= 0.95


def test_runs_that_fall_with_the_load_are_pooled_as_by_hand() -> None:
    # Logs 0, 2, 0, 4 (base e): the middle two pool to 1, so the fit is 0, 1, 1, 4 and 2.5 lies halfway from 3 to 4.
    interval = stats.isotonic_inversion([1, 2, 3, 4], np.exp([0.0, 2, 0, 4]), math.exp(2.5))
    assert interval.estimate == pytest.approx(3.5)
    assert (interval.low, interval.high, interval.n) == (None, None, 4)
    assert interval.reason == "no load was run twice: no interval"


def test_loads_with_more_runs_weigh_more_when_pooled() -> None:
    # Load 1: mean 3 of two runs; load 2: 0 of one. Pooled with weights 2 and 1: 2 at both, 5 at load 3.
    interval = stats.isotonic_inversion([1, 1, 2, 3], np.exp([3.0, 3, 0, 5]), math.exp(3.5))
    assert interval.estimate == pytest.approx(2.5)


def test_a_target_that_is_exactly_met_counts_as_met() -> None:
    found = [stats.isotonic_inversion([1, 2, 3], [10.0, 20.0, 30.0], target).estimate for target in (10.0, 20.0)]
    assert found == [1.0, 2.0]


@pytest.mark.parametrize(
    ("target", "reason"),
    [(1e6, "the limit is at 64 or above"), (1.0, "no measured load meets the target: the limit is below 8")],
)
def test_a_target_out_of_range_has_no_answer_but_a_reason(target: float, reason: str) -> None:
    loads = np.repeat(LOADS, 2)
    interval = stats.isotonic_inversion(loads, latency(loads) * np.tile([0.99, 1.01], 8), target, draws=50)
    assert (interval.estimate, interval.low, interval.high) == (None, None, None)
    assert interval.reason is not None
    assert reason in interval.reason


def test_more_confidence_gives_a_wider_interval() -> None:
    rng = np.random.default_rng(12)
    loads = np.repeat(LOADS, 3)
    noisy = latency(loads) * rng.lognormal(0, 0.1, len(loads))
    lows, highs = zip(
        *[
            (interval.low, interval.high)
            for interval in (stats.isotonic_inversion(loads, noisy, 200.0, level=level) for level in (0.5, 0.9, 0.99))
        ],
        strict=True,
    )
    assert lows[0] > lows[1] > lows[2]
    assert highs[0] < highs[1] < highs[2]


def test_an_end_beyond_the_measured_loads_is_null() -> None:
    rng = np.random.default_rng(9)
    loads = np.repeat(LOADS, 4)
    interval = stats.isotonic_inversion(loads, latency(loads) * rng.lognormal(0, 0.2, 32), latency(63.0), draws=200)
    assert interval.low is not None
    assert interval.high is None


def test_no_runs_give_nothing_and_wrong_runs_are_refused() -> None:
    assert stats.isotonic_inversion([], [], 1.0).reason == "no runs"
    with pytest.raises(InputError, match="1 and 2 values"):
        stats.isotonic_inversion([1], [1.0, 2.0], 1.0)
    with pytest.raises(InputError, match=r"y, position\(s\) 0"):
        stats.isotonic_inversion([1], [0.0], 1.0)
    with pytest.raises(InputError, match="target"):
        stats.isotonic_inversion([1], [1.0], -1.0)


@QUICK
@given(
    ys=st.lists(st.floats(0.1, 1e3), min_size=2, max_size=12), target=st.floats(0.1, 1e3), scale=st.floats(0.01, 100)
)
def test_changing_the_unit_of_latency_or_load_moves_the_answer_with_it(
    ys: list[float], target: float, scale: float
) -> None:
    loads = [position // 2 + 1 for position in range(len(ys))]
    plain = stats.isotonic_inversion(loads, ys, target, draws=30)
    other = stats.isotonic_inversion([4 * load for load in loads], ys, target, draws=30)
    scaled = stats.isotonic_inversion(loads, [scale * y for y in ys], scale * target, draws=30)
    if plain.estimate is None:
        assert other.estimate is None
    else:
        assert other.estimate == pytest.approx(4 * plain.estimate)
        assert 1 <= plain.estimate < loads[-1]
    if plain.estimate is not None and scaled.estimate is not None:
        assert scaled.estimate == pytest.approx(plain.estimate, rel=1e-3)


# verdict, holm, decide


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.5, 1.2, 1.9, "FASTER"),
        (1.5, 0.99, 1.9, "UNDECIDED"),
        (1.5, 1.0, 1.9, "UNDECIDED"),
        (1.0, 0.99, 1.01, "SAME"),
        (1.01, 1.005, 1.015, "SAME"),
        (1.015, 1.001, 1.03, "UNDECIDED"),
        (1.0, 0.9, 1.1, "UNDECIDED"),
        (0.5, 0.4, 0.6, "SLOWER"),
        (0.99, 0.97, 0.999, "UNDECIDED"),
        (1.0, 1.0, 1.0, "SAME"),
        # 1 / 1.02 = 0.9804: 0.98 is outside, so that swapping the sides cannot change a verdict.
        (0.99, 0.9802, 1.0, "UNDECIDED"),
        (None, None, None, "UNDECIDED"),
        (2.0, None, None, "UNDECIDED"),
        (2.0, 1.5, None, "UNDECIDED"),
    ],
)
def test_the_rule_of_verdicts(ratio: float | None, low: float | None, high: float | None, expected: str) -> None:
    assert stats.ratio_verdict(ratio, low, high) == expected


@QUICK
@given(middle=st.floats(0.5, 2), below=st.floats(0, 0.2), above=st.floats(0, 0.2))
def test_swapping_the_sides_swaps_the_verdict(middle: float, below: float, above: float) -> None:
    low, high = middle / (1 + below), middle * (1 + above)
    if min(abs(end - edge) for end in (low, middle, high) for edge in (1, 1.02, 1 / 1.02)) < 1e-9:
        return  # exactly on an edge, rounding of 1 / x decides
    mirror = {"FASTER": "SLOWER", "SLOWER": "FASTER", "SAME": "SAME", "UNDECIDED": "UNDECIDED"}
    assert stats.ratio_verdict(1 / middle, 1 / high, 1 / low) == mirror[stats.ratio_verdict(middle, low, high)]


@pytest.mark.parametrize("wrong", [(2.0, 2.5, 3.0), (2.0, -1.0, 3.0), (math.nan, 1.0, 2.0)])
def test_a_ratio_outside_its_interval_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="not a ratio in its interval"):
        stats.ratio_verdict(*wrong)


def test_a_wider_margin_asks_for_more() -> None:
    assert (stats.ratio_verdict(1.08, 1.03, 1.13), stats.ratio_verdict(1.08, 1.03, 1.13, margin=0.1)) == (
        "FASTER",
        "UNDECIDED",
    )


def test_holm_gives_the_values_of_a_case_worked_by_hand() -> None:
    # Sorted 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, each at least the one before: 0.02, 0.03, 0.06, 0.06.
    assert stats.adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_keeps_missing_values_out_of_the_family() -> None:
    assert stats.adjust_holm([None, 0.02, None, 0.04]) == [None, 0.04, None, 0.04]
    assert stats.adjust_holm([]) == []
    assert stats.adjust_holm([0.6, 0.7]) == [1.0, 1.0]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_probability(wrong: float) -> None:
    with pytest.raises(InputError, match=r"position\(s\) 1"):
        stats.adjust_holm([0.5, wrong])


@QUICK
@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_value_and_keeps_their_order(values: list[float]) -> None:
    adjusted = stats.adjust_holm(values)
    assert all(after is not None and before <= after <= 1 for before, after in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [adjusted[position] for position in order] == sorted(after for after in adjusted if after is not None)


def row(p_value: float | None, ratio: float = 1.5, level: float = 0.9) -> Interval:
    return Interval(ratio, ratio / 1.1, ratio * 1.1, level, 5, "by hand", p_value=p_value)


def test_a_family_takes_back_what_holm_does_not_bear() -> None:
    family = [row(0.01), row(0.06), row(0.04), row(None), row(0.04, ratio=0.5)]
    decisions = stats.decide_verdicts(family)
    assert [decision.verdict for decision in decisions] == [
        "FASTER",
        "UNDECIDED",
        "UNDECIDED",
        "UNDECIDED",
        "UNDECIDED",
    ]
    assert [decision.adjusted_p_value for decision in decisions] == pytest.approx([0.04, 0.12, 0.12, None, 0.12])
    assert [stats.decide_verdicts([member])[0].verdict for member in family] == [
        "FASTER",
        "FASTER",
        "FASTER",
        "UNDECIDED",
        "SLOWER",
    ]


def test_same_needs_no_p_value_and_the_level_is_the_threshold() -> None:
    same = Interval(1.0, 0.99, 1.01, 0.9, 5, "by hand", p_value=0.9)
    assert stats.decide_verdicts([same])[0].verdict == "SAME"
    assert stats.decide_verdicts([row(0.1)])[0].verdict == "FASTER"
    assert stats.decide_verdicts([row(0.1, level=0.95)])[0].verdict == "UNDECIDED"


def test_rows_of_different_levels_are_no_family() -> None:
    with pytest.raises(InputError, match=r"0\.9, 0\.95"):
        stats.decide_verdicts([row(0.1), row(0.1, level=0.95)])


def test_a_family_without_differences_is_rarely_told_apart() -> None:
    # 12 cases, no true difference: without Holm about 7 families in 10 would show one, with it at most 1 in 10.
    rng = np.random.default_rng(10)
    families = [
        [stats.paired_log_ratio(rng.lognormal(0, 0.3, 6), rng.lognormal(0, 0.3, 6)) for _ in range(12)]
        for _ in range(250)
    ]
    told = [
        {decision.verdict for decision in stats.decide_verdicts(family)} & {"FASTER", "SLOWER"} for family in families
    ]
    alone = [
        {stats.ratio_verdict(one.estimate, one.low, one.high) for one in family} & {"FASTER", "SLOWER"}
        for family in families
    ]
    assert sum(map(bool, told)) / 250 <= 0.13
    assert sum(map(bool, alone)) / 250 >= 0.5


# decide_beyond


def beyond(*cases: tuple[float, float], n: int = 10, level: float = 0.95, margin: float = 0.02) -> list[stats.Decision]:
    """Verdicts of made pairs: (mean log ratio, spread of the log ratios)."""
    shape = np.resize([1.0, -1.0], n)
    shape = shape / shape.std(ddof=1)
    rows = [stats.paired_log_ratio(np.exp(mean + spread * shape), np.ones(n), level=level) for mean, spread in cases]
    return stats.decide_beyond(rows, [margin] * len(rows))


def test_beyond_the_margin_the_whole_interval_must_lie() -> None:
    # t(0.975, 9) = 2.262157: half a width of 0.0226 for a spread of 0.0316.
    half = 2.262157 * 0.0316 / math.sqrt(10)
    edge = math.log(1.02)
    assert beyond((edge + half + 1e-4, 0.0316))[0].verdict == "FASTER"
    assert beyond((edge + half - 1e-4, 0.0316))[0].verdict == "UNDECIDED"
    assert beyond((-edge - half - 1e-4, 0.0316))[0].verdict == "SLOWER"
    assert beyond((0.0, 0.02))[0].verdict == "SAME"
    assert beyond((0.0, 0.0316))[0].verdict == "UNDECIDED"


def test_the_p_value_against_the_margin_is_one_less_the_level_where_the_interval_touches_it() -> None:
    row = stats.paired_log_ratio([1.1, 1.2, 1.15, 1.13], [1.0] * 4, level=0.95)
    assert row.low is not None
    assert stats.p_beyond(row, row.low - 1) == pytest.approx(0.05)
    assert stats.p_beyond(row, 0.5) == 1.0


def test_a_family_takes_claims_beyond_the_margin_back() -> None:
    alone = beyond((0.05, 0.04))
    among = beyond((0.05, 0.04), *[(0.0, 0.5)] * 9)
    assert (alone[0].verdict, among[0].verdict) == ("FASTER", "UNDECIDED")
    assert among[0].adjusted_p_value == pytest.approx(10 * (alone[0].adjusted_p_value or 0))


def test_what_has_no_interval_is_undecided_and_steady_ratios_are_clear() -> None:
    single = stats.paired_log_ratio([4.0], [2.0])
    steady = stats.paired_log_ratio([4.0, 4.0], [2.0, 2.0])
    assert [one.verdict for one in stats.decide_beyond([single, steady], [0.02, 0.02])] == ["UNDECIDED", "FASTER"]
    with pytest.raises(InputError, match="different confidence"):
        stats.decide_beyond([single, stats.paired_log_ratio([4.0], [2.0], level=0.8)], [0.02, 0.02])


def test_values_too_far_apart_have_no_interval_and_stop_nothing() -> None:
    far = stats.paired_log_ratio([1e-300, 1e300], [1.0, 1.0])
    assert (far.low, far.high, far.reason) == (None, None, "the values are too far apart for an interval")
    clear = stats.paired_log_ratio([4.0, 4.1], [2.0, 2.0])
    assert stats.decide_beyond([far, clear], [0.02, 0.02])[0].verdict == "UNDECIDED"
    assert stats.count_required_pairs(far, 0.02) is None
    with pytest.raises(InputError, match="not pairs"):
        stats.decide_beyond([clear], [0.02, 0.02])
