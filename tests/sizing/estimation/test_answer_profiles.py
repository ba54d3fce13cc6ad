"""Prompts that were sent before count as answered by a cache where those are clearly faster."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.sizing.making import closed, steps
from workbench.sizing.estimation.step_points import assess_steps


@pytest.mark.parametrize(
    ("repeated_s", "verdict"), [(0.2, "cached"), (0.75, "cached"), (0.85, "valid"), (1.0, "valid"), (3.0, "valid")]
)
def test_a_cache_is_told_by_repeated_prompts_that_are_clearly_faster(repeated_s: float, verdict: str) -> None:
    item = np.arange(300) % 150
    runtimes = np.where(np.arange(300) < 150, 1.0, repeated_s) * np.random.default_rng(1).normal(1, 0.02, 300)
    frame = closed(1, list(runtimes)).with_columns(item=pl.Series(item))
    (found,) = assess_steps(frame, steps({"users": 1}))[0].to_dicts()
    assert found["verdict"] == verdict, found["reason"]
    if verdict == "cached":
        assert "of the prompts were sent before, and a cache answers those: median" in found["reason"]
