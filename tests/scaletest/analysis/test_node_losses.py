"""Nodes that took no pods for a part of a run are named with what was left; planned and late ones are not."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from workbench.scaletest.analysis.disruptions import correct_closed_nodes, find_losses_of_any, find_node_losses
from workbench.scaletest.tables import NODE_CHANGES, NODES

Change = tuple[float, str, bool]
ALL_AT_ONCE: list[Change] = [(0.0, name, True) for name in "abcd"]


def tables(*changes: Change, gpus: int = 4) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = sorted({name for _, name, _ in changes})
    offers: dict[str, Any] = {"ready": True, "simulated": True, "gpus": gpus, "cpus": 1.0, "memory_bytes": 1, "pods": 9}
    rows = [{"at_s": at_s, "name": name, "ready": ready, "gpus": gpus} for at_s, name, ready in changes]
    return NODES.frame([{"name": name, **offers} for name in names]), NODE_CHANGES.frame(rows)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (ALL_AT_ONCE, None),
        # Three of four are cordoned after eight seconds.
        (
            [*ALL_AT_ONCE, (8.0, "b", False), (8.1, "c", False), (8.2, "a", False)],
            (("b", "c", "a"), 8.0, False, (4, 16)),
        ),
        # And before the test began: less room, but the same all the time.
        ([(0.0, "a", True), *((0.0, name, False) for name in "bcd")], (("b", "c", "d"), 0.0, True, (4, 4))),
        ([*ALL_AT_ONCE, (5.0, "d", False), (7.0, "d", True)], (("d",), 5.0, False, (12, 16))),
        # A node that comes while the test runs.
        ([*ALL_AT_ONCE, (9.0, "e", True)], None),
        ([*ALL_AT_ONCE, (9.0, "e", False), (9.5, "e", True)], None),
    ],
    ids=["none", "in the middle", "from the start", "for a time", "one more", "one more that was not ready at first"],
)
def test_nodes_that_took_no_pods_are_found(
    changes: list[Change], expected: tuple[tuple[str, ...], float, bool, tuple[int, int]] | None
) -> None:
    found = find_node_losses(*tables(*changes), end_s=40.0)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.names, found.first_s, found.from_the_start, found.gpus) == expected


def test_the_share_is_of_the_gpus_time_and_the_sentence_says_what_was_left() -> None:
    found = find_node_losses(*tables(*ALL_AT_ONCE, *((10.0, name, False) for name in "abc")), end_s=40.0)
    assert found is not None
    assert found.lost_fraction == pytest.approx(0.75 * 30 / 40)
    assert found.sentence == (
        "3 of 4 nodes took no pods from 10 s on, for a time at least "
        "(cordoned, tainted, not ready, deleted or without their GPUs: a, b, c): "
        "there were 4 to 16 GPUs to place pods on"
    )


def test_without_gpus_the_nodes_count() -> None:
    found = find_node_losses(*tables(*ALL_AT_ONCE, (20.0, "a", False), gpus=0), end_s=40.0)
    assert found is not None
    assert (found.lost_fraction, found.gpus) == (pytest.approx(0.125), None)


def test_a_device_of_any_name_that_nodes_no_longer_offer_is_told() -> None:
    nodes, changes = tables(*ALL_AT_ONCE, (10.0, "a", True), (10.0, "b", True))
    offers = ["nvidia.com/gpu=4,example.com/fpga=8"] * 4 + ["nvidia.com/gpu=4"] * 2
    found = find_losses_of_any(nodes, changes.with_columns(offers=pl.Series(offers)), 40.0, ["example.com/fpga"])
    assert found is not None
    assert found.names == ("a", "b")
    assert "from 10 s on" in found.sentence
    assert found.sentence.endswith("there were 16 to 32 example.com/fpga to place pods on")


def test_a_node_that_took_pods_of_the_run_was_open_to_them() -> None:
    _, changes = tables(*ALL_AT_ONCE, (10.0, "a", False), (10.4, "b", False), (30.0, "c", False))
    pods = pl.DataFrame({"node": ["a", "c"], "scheduled_s": [20.0, 30.2]})
    corrected = correct_closed_nodes(changes, pods)
    assert corrected.filter(~pl.col("ready"))["name"].to_list() == ["c"]
