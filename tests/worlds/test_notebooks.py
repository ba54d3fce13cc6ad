"""Notebooks in batch keep what a person would see, in order, and end as they ended (real kernels)."""

from __future__ import annotations

import pytest

from tests.worlds.notebooks import ENDS, judge_world

pytestmark = pytest.mark.notebook


@pytest.mark.parametrize("seed", [7, 8, 19])
def test_no_output_is_moved_or_lost_and_no_end_is_another(seed: int) -> None:
    found = judge_world(seed)
    assert found.wrong == [], ENDS[found.world.end]
