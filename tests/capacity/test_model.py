"""Plans worked out by hand, and what must hold for any of them."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capacity.making import hours, model, serving, work
from workbench.capacity import peak
from workbench.capacity.model import (
    Outcome,
    Quantity,
    build_spread,
    draw_quantities,
    evaluate_model,
    pack_first_fit,
    remaining_time_fraction,
)
from workbench.core.errors import ConfigError


def planned(draws: int = 4000, seed: int = 0, **more: Any) -> Outcome:
    made = model(**more)
    return evaluate_model(made, draw_quantities(made.quantities, draws, seed))


def once(**more: Any) -> Outcome:
    made = model(**more)
    return evaluate_model(made, made.medians)


def of(values: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    """What is covered, and so no null."""
    assert values is not None
    return values


def span(values: np.ndarray[Any, Any]) -> float:
    low, _, high = peak.compute_quantiles(values)
    return float(high - low)


def test_point_inputs_give_the_plan_worked_out_by_hand() -> None:
    """By hand, for 9:00, nodes of 8 GPUs:

    Spark: 7 jobs an hour x 0.5 h = 3.5 jobs at once (Little); over a utilisation of 0.7 that is 5 jobs; of 2 GPUs each
    10 GPUs, in 5 whole jobs. Service: 100 users over 40 a replica = 2.5, so 3 replicas of 3 GPUs = 9 GPUs.
    First fit, largest first: replicas 3+3 on node 1 (2 free), 3 on node 2 (5 free); jobs of 2: one on node 1, two on
    node 2 (1 free), two on node 3. 3 nodes, 24 GPUs for 19. At 60 an hour 180; that hour alone, so 180 a day scaled,
    and 3 x 24 x 60 = 4,320 fixed. Pods: 7 jobs x 4 pods in 100 s = 0.28/s, and 3 new replicas of 2 pods in 60 s =
    0.1/s: 0.38/s.
    """
    rates = {"node_price_per_h": 60.0, "jobs_within_s": 100.0, "replicas_within_s": 60.0}
    found = once(works=[work(pods=4)], serving=serving(gpus=3, pods=2), **rates)
    assert of(found.spark_gpus)[0].tolist() == pytest.approx(hours(h9=10.0).tolist())
    assert found.slots["etl"][0].tolist() == hours(h9=5).tolist()
    assert of(found.service_gpus)[0].tolist() == hours(h9=9.0).tolist()
    assert found.nodes[0].tolist() == hours(h9=3).tolist()
    assert (float(of(found.cost_scaled)[0]), float(of(found.cost_fixed)[0])) == (180.0, 4320.0)
    assert found.pods_per_s[0].tolist() == pytest.approx(hours(h9=0.38).tolist())


def test_a_ratio_multiplies_the_stated_share_and_nothing_else() -> None:
    """By hand: 40 % of the job gets twice as fast: 0.4 / 2 + 0.6 = 0.8, so 10 GPUs become 8; the other class keeps 10.

    A service with a share of 0.5: 0.5 / 2 + 0.5 = 0.75 of the time, so a replica carries 40 / 0.75 = 53.3: 2 replicas.
    """
    twice = Quantity("stack ratio", 2.0)
    shared = once(works=[work(stack_share=0.4), work("other")], stack=twice)
    assert of(shared.spark_gpus)[0, 9] == pytest.approx(8 + 10)
    untouched = once(works=[work(), work("other")], stack=twice)
    assert of(untouched.spark_gpus)[0, 9] == pytest.approx(20)
    served = once(serving=serving(stack_share=0.5), stack=twice)
    assert of(served.replicas)[0, 9] == 2
    assert remaining_time_fraction(1.0, np.array([4.0])).tolist() == [0.25]
    assert remaining_time_fraction(0.0, np.array([4.0])).tolist() == [1.0]


def test_a_ratio_that_applies_to_nothing_is_not_drawn() -> None:
    wide = Quantity("stack ratio", 2.0, low=1.0, high=4.0)
    assert "stack ratio" not in [one.name for one in model(works=[work()], stack=wide).quantities]
    assert "stack ratio" in [one.name for one in model(works=[work(stack_share=0.1)], stack=wide).quantities]


def test_twice_the_jobs_are_twice_the_spark_gpus() -> None:
    one = planned(works=[work(ends=(1500.0, 2400.0))]).spark_gpus
    two = planned(works=[work(ends=(1500.0, 2400.0), per_hour=hours(h9=14.0))]).spark_gpus
    assert np.allclose(of(two), 2 * of(one))


def test_the_plan_does_not_hang_on_the_unit_of_the_load() -> None:
    one = planned(serving=serving(ends=(35.0, 50.0)))
    thousand = planned(serving=serving(40_000.0, ends=(35_000.0, 50_000.0), load=hours(h9=100_000.0)))
    assert np.array_equal(one.nodes, thousand.nodes)


def test_hours_without_users_or_jobs_need_nothing_unless_replicas_stay() -> None:
    found = once(works=[work(per_hour=np.zeros(24))], serving=serving(load=np.zeros(24)))
    assert not found.gpus.any()
    assert not found.nodes.any()
    assert not found.pods_per_s.any()
    kept = once(serving=serving(load=np.zeros(24), least=2))
    assert (of(kept.service_gpus) == 4).all()
    assert (kept.nodes == 1).all()


def test_users_that_fill_replicas_exactly_need_no_more() -> None:
    found = once(serving=serving(0.1, load=hours(h9=0.3, h10=0.3001)))
    assert of(found.replicas)[0, 9:11].tolist() == [3, 4]


def test_a_job_that_hardly_ever_runs_still_needs_its_gpus() -> None:
    found = once(works=[work(seconds=1.0, gpus=4, per_hour=hours(h3=1.0))])
    assert found.nodes[0, 3] == 1
    assert found.slots["etl"][0, 3] == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("what", ["duration", "replica", "ratio", "users"])
def test_wider_inputs_never_narrow_the_answer(what: str, seed: int) -> None:
    wide, narrow = (_spans(what, factor, seed) for factor in (1.6, 1.2))
    assert all(more >= less - 1e-9 for more, less in zip(wide, narrow, strict=True))
    assert wide[0] > narrow[0]


def _spans(what: str, factor: float, seed: int) -> tuple[float, float, float]:
    """P95 minus P5 of GPUs, nodes and cost, with one input as wide as the factor, and the others a little uncertain."""
    rng = np.random.default_rng(seed)
    ends = dict.fromkeys(("duration", "replica", "ratio", "users"), 1.05) | {what: factor}
    seconds, carries = float(rng.uniform(600, 3000)), float(rng.uniform(10, 60))
    lasts = (seconds / ends["duration"], seconds * ends["duration"])
    bears = (carries / ends["replica"], carries * ends["replica"])
    found = planned(
        seed=seed,
        works=[work("etl", seconds, per_hour=rng.uniform(0, 300, 24), ends=lasts, stack_share=0.6)],
        serving=serving(carries, load=rng.uniform(0, 4000, 24), ends=bears),
        stack=Quantity("stack ratio", 1.5, low=1.5 / ends["ratio"], high=1.5 * ends["ratio"]),
        users_factor=build_spread("users of the day", ends["users"]),
        node_price_per_h=1.0,
    )
    return span(found.gpus.sum(axis=1)), span(found.nodes.max(axis=1)), span(of(found.cost_scaled))


@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0])
def test_with_one_uncertain_input_every_quantile_moves_outwards(factor: float) -> None:
    one, more = (
        planned(serving=serving(ends=(40 / by, 40 * by), load=np.full(24, 5000.0))) for by in (factor, 1.3 * factor)
    )
    for narrow, wide in ((one.gpus, more.gpus), (one.nodes, more.nodes)):
        low, middle, high = peak.compute_quantiles(narrow)[:, 9]
        wide_low, wide_middle, wide_high = peak.compute_quantiles(wide)[:, 9]
        assert wide_low <= low < high <= wide_high
        assert wide_middle == pytest.approx(middle, rel=0.05)


def test_the_same_seed_gives_the_same_plan() -> None:
    given: dict[str, Any] = {"works": [work(ends=(1000.0, 3000.0))], "serving": serving(ends=(30.0, 60.0))}
    assert np.array_equal(planned(seed=4, **given).nodes, planned(seed=4, **given).nodes)
    assert not np.array_equal(planned(seed=4, **given).gpus, planned(seed=5, **given).gpus)


def test_a_draw_holds_for_the_whole_day() -> None:
    found = planned(works=[work(ends=(1000.0, 3000.0), per_hour=np.full(24, 30.0))])
    assert np.allclose(of(found.spark_gpus), of(found.spark_gpus)[:, :1])


def test_replicas_that_the_first_hour_adds_to_the_last_arrive_as_pods() -> None:
    found = once(serving=serving(load=hours(h0=80.0, h23=40.0)), replicas_within_s=60.0)
    assert found.pods_per_s[0, [0, 23]].tolist() == pytest.approx([1 / 60, 1 / 60])


def test_what_is_not_covered_is_null_and_not_zero() -> None:
    alone = once(serving=serving())
    assert (alone.spark_gpus, alone.cost_scaled, alone.cost_fixed, alone.cost_by_hour) == (None, None, None, None)
    spark = once(works=[work()])
    assert (spark.service_gpus, spark.replicas) == (None, None)
    table = peak.build_hours(model(works=[work()]), spark)
    assert table["service_gpus_p50"].null_count() == table["load"].null_count() == table["cost_p5"].null_count() == 24


def test_the_peak_is_the_hour_with_most_nodes_then_most_gpus() -> None:
    found = once(works=[work(per_hour=hours(h3=7.0, h9=7.1, h15=7.0))])
    assert peak.find_peak_hour(found) == 9
    assert peak.find_peak_hour(once(works=[work(per_hour=np.zeros(24))])) == 0


def test_more_than_any_cluster_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match="too many"):
        once(serving=serving(1e-9, load=hours(h9=1e9)))


def plain(items: list[int], node: int) -> int:
    """First fit decreasing, item by item and node by node."""
    room: list[int] = []
    for size in sorted(items, reverse=True):
        place = next((index for index, left in enumerate(room) if left >= size), None)
        if place is None:
            room.append(node - size)
        else:
            room[place] -= size
    return len(room)


def best(items: tuple[int, ...], node: int) -> int:
    """The fewest nodes, by trying."""

    @cache
    def fewest(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        first, rest = left[0], left[1:]
        found = len(left)
        for count in range(len(rest) + 1):
            for chosen in set(itertools.combinations(range(len(rest)), count)):
                if first + sum(rest[index] for index in chosen) <= node:
                    found = min(found, 1 + fewest(tuple(x for i, x in enumerate(rest) if i not in chosen)))
        return found

    return fewest(tuple(sorted(items, reverse=True)))


def items_of(counts: list[int], sizes: list[int]) -> list[int]:
    return [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(
    node=st.integers(1, 16),
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    cases=st.lists(st.lists(st.integers(0, 30), min_size=4, max_size=4), min_size=1, max_size=8),
)
def test_groups_of_nodes_give_what_node_by_node_gives(node: int, sizes: list[int], cases: list[list[int]]) -> None:
    sizes = [min(size, node) for size in sizes]
    counts = np.array([case[: len(sizes)] for case in cases])
    found = pack_first_fit(counts, sizes, node).tolist()
    assert found == [plain(items_of(case, sizes), node) for case in counts.tolist()]


@settings(max_examples=40, deadline=None)
@given(node=st.integers(3, 10), items=st.lists(st.integers(1, 10), max_size=7))
def test_it_is_near_the_best_and_never_below_what_the_gpus_need(node: int, items: list[int]) -> None:
    items = [min(item, node) for item in items]
    sizes = sorted(set(items)) or [1]
    found = int(pack_first_fit(np.array([[items.count(size) for size in sizes]]), sizes, node)[0])
    fewest = best(tuple(items), node)
    assert math.ceil(sum(items) / node) <= fewest <= found <= 11 / 9 * fewest + 6 / 9


def test_a_thousand_nodes_take_no_longer_way_than_ten() -> None:
    # 3,000,000 shapes of 3 fill 1,500,000 nodes of 8 by two, with room for one of 2 in each.
    counts = np.array([[3_000_000, 1_500_000], [3_000_000, 1_500_001]])
    assert pack_first_fit(counts, [3, 2], 8).tolist() == [1_500_000, 1_500_001]


def test_counts_too_many_for_one_number_are_told_apart_all_the_same() -> None:
    large = 2**40
    counts = np.array([[large, 1], [1, large], [large, 1]])
    assert pack_first_fit(counts, [8, 8], 8).tolist() == [large + 1] * 3


def test_a_shape_larger_than_a_node_is_refused_or_gets_whole_nodes() -> None:
    counts = np.array([[2, 3], [0, 3]])
    with pytest.raises(ConfigError, match="larger than a node") as told:
        pack_first_fit(counts, [12, 2], 8)
    assert "12 GPUs" in str(told.value)
    assert "spanning" in str(told.value)
    # Two of 12 take two nodes each; what is left on them goes to nobody. Three of 2 fit on one.
    assert pack_first_fit(counts, [12, 2], 8, spanning=True).tolist() == [5, 1]


def test_a_large_shape_that_nobody_asks_for_is_no_matter() -> None:
    assert pack_first_fit(np.array([[0, 4]]), [12, 2], 8).tolist() == [1]
    assert pack_first_fit(np.zeros((3, 2), dtype=int), [1, 2], 8).tolist() == [0, 0, 0]
