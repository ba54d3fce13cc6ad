"""When was the cluster full? Of timelines whose truth is known."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workbench.scaletest.analysis.saturation import find_saturation
from workbench.scaletest.tables import GPUS


def timeline(
    allocated: list[float], waiting: list[float], stranded: float = 0.0, capacity: float = 100.0
) -> pl.DataFrame:
    n = len(allocated)
    return GPUS.frame(
        {
            "at_s": [float(second) for second in range(n)],
            "capacity": [capacity] * n,
            "allocated": allocated,
            "waiting": waiting,
            "in_partial_gangs": [0.0] * n,
            "stranded": [stranded] * n,
            "fragmentation": [None] * n,
        }
    )


def asking(*sizes: float) -> pl.DataFrame:
    """Pods that wait from the begin and for ever."""
    n = len(sizes)
    columns = {"gpus": list(sizes), "created_s": [0.0] * n, "scheduled_s": [None] * n, "ended_s": [None] * n}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))


def test_full_is_a_cluster_that_others_wait_for() -> None:
    found = find_saturation(timeline([100, 100, 98, 60, 60], [0, 40, 40, 40, 0]))
    assert found.full.tolist() == [False, True, True, False, False]


def test_what_waits_only_for_the_scheduler_has_room() -> None:
    # Nearly all is taken, and what is asked for fits.
    assert not find_saturation(timeline([98], [1])).full.any()


@pytest.mark.parametrize(("sizes", "full"), [((8.0, 8.0), True), ((8.0, 1.0), False)])
def test_the_smallest_pod_that_waits_decides(sizes: tuple[float, ...], full: bool) -> None:
    assert find_saturation(timeline([93], [sum(sizes)]), asking(*sizes)).full.tolist() == [full]


def test_gpus_on_nodes_with_too_few_are_not_free_for_pods_of_one_size() -> None:
    # 3 of 8 GPUs a pod: 2 of each node are of no use.
    assert find_saturation(timeline([75], [30], stranded=25), asking(*[3.0] * 10)).full.tolist() == [True]
    assert find_saturation(timeline([75], [30], stranded=25), asking(3.0, *[1.0] * 27)).full.tolist() == [False]


def test_where_more_is_taken_than_there_is_nothing_is_said() -> None:
    assert not find_saturation(timeline([100, 110], [50, 50])).full.any()


def test_a_run_without_gpus_always_has_room() -> None:
    for none in (None, GPUS.frame([])):
        assert find_saturation(none).full_fraction(0.0, 10.0) == 0
        assert find_saturation(none).full_fractions(np.arange(4.0)).tolist() == [0, 0, 0]


def test_a_moment_holds_until_the_next() -> None:
    found = find_saturation(timeline([0, 100, 0], [0, 50, 0]))
    assert found.full_fractions(np.array([0.2, 0.8, 1.2, 1.8, 2.2])).tolist() == [0, 0.5, 1, 0.5]
    assert found.median_gpus(1.0, 1.9) == (100, 100)
