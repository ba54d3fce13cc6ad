"""Invariants: a table when all hold, an error that names the first that does not."""

from __future__ import annotations

import math

import pytest

from workbench.core.errors import BrokenInvariantError
from workbench.report.study import check_invariants


def test_each_invariant_is_a_row_with_what_was_found_and_what_is_allowed() -> None:
    checks = check_invariants([("lost", 0), ("distance, in s", 0.25, 0.5)])
    assert checks.to_dicts() == [
        {"check": "lost", "found": 0.0, "allowed": 0.0, "holds": True},
        {"check": "distance, in s", "found": 0.25, "allowed": 0.5, "holds": True},
    ]


@pytest.mark.parametrize("found", [1, 1e-9, math.inf, math.nan])
def test_a_broken_one_stops_and_is_named_with_both_figures(found: float) -> None:
    with pytest.raises(BrokenInvariantError, match="lost") as caught:
        check_invariants([("fine", 0), ("lost", found)])
    assert "at most 0" in str(caught.value)
    assert f"found: {found:g}" in str(caught.value)


def test_without_invariants_there_is_an_empty_table() -> None:
    assert check_invariants([]).columns == ["check", "found", "allowed", "holds"]
