"""Counted instructions: nearly the same in each run, and more where more is done."""

from __future__ import annotations

import sys

import pytest

from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.contract.script_declaration import ScriptDeclaration
from workbench.indicators.measurement.instruction_counts import compare_counts, count_instructions, find_counter


def can_count() -> bool:
    try:
        return bool(find_counter())
    except MissingToolError:
        return False


def script(text: str) -> ScriptDeclaration:
    return ScriptDeclaration(name="work", sources={"script.py": text})


@pytest.mark.live
@pytest.mark.skipif(not can_count(), reason="neither perf nor valgrind counts here")
def test_work_that_is_more_counts_as_more_and_the_same_as_the_same() -> None:
    texts = ("print(sum(range(1000)))", "for _ in range(300): sum(range(10_000))")
    less, more = (count_instructions(sys.executable, script(text), 1) for text in texts)
    assert more > 1.05 * less
    assert count_instructions(sys.executable, script(texts[0]), 1) == pytest.approx(less, rel=0.005)


@pytest.mark.live
@pytest.mark.skipif(not can_count(), reason="neither perf nor valgrind counts here")
def test_a_script_that_fails_is_no_count() -> None:
    with pytest.raises(RunFailedError, match="a counted run failed"):
        count_instructions(sys.executable, script("raise SystemExit(3)"), 1)


def test_the_interval_is_that_of_the_extremes() -> None:
    found = compare_counts([100, 102, 101], [200, 202, 201])
    assert (found.estimate, found.low, found.high) == (pytest.approx(101 / 201), 100 / 202, 102 / 200)
