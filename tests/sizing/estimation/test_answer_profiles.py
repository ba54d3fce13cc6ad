"""Prompts sent before count as cached where those are clearly faster; answers are compared with the lowest load's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from tests.sizing.making import closed, steps
from workbench.sizing.estimation.answer_profiles import AnswerProfile, find_other_answers
from workbench.sizing.estimation.step_points import assess_steps


@pytest.mark.parametrize(
    ("repeated_s", "verdict"), [(0.2, "cached"), (0.75, "cached"), (0.85, "valid"), (1.0, "valid"), (3.0, "changed")]
)
def test_a_cache_is_told_by_repeated_prompts_that_are_clearly_faster(repeated_s: float, verdict: str) -> None:
    item = np.arange(300) % 150
    runtimes = np.where(np.arange(300) < 150, 1.0, repeated_s) * np.random.default_rng(1).normal(1, 0.02, 300)
    frame = closed(1, list(runtimes)).with_columns(item=pl.Series(item))
    (found,) = assess_steps(frame, steps({"users": 1}))[0].to_dicts()
    assert found["verdict"] == verdict, found["reason"]
    if verdict == "cached":
        assert "of the prompts were sent before, and a cache answers those: median" in found["reason"]


def test_answers_are_compared_with_the_lowest_load_in_the_same_unit() -> None:
    """Four users are not compared with half a request a second, whose answers may be others."""
    table = pl.DataFrame(
        {
            "step": [0, 1, 2, 3],
            "gpus": [1, 1, 1, 1],
            "load": [0.5, 4.0, 8.0, 2.0],
            "load_unit": ["requests/s", "users", "users", "requests/s"],
            "verdict": ["valid"] * 4,
        }
    )
    lengths = {0: 100.0, 1: 10.0, 2: 10.0, 3: 10.0}
    profiles = {step: AnswerProfile(np.full(50, length), "tokens", Counter(), {}) for step, length in lengths.items()}
    assert find_other_answers(table, profiles, 0.01) == {
        3: ("other answers", "answers of 10 tokens (median), 100 at the lowest load of 0.5")
    }
