"""Copies held against each other: what failed is missing and counted, and too few rounds are refused."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from bench import bench_indicators_copies as bench
from tests.indicators.copies import comparisons, false_share

Runs = list[tuple[str, int]]
ALL: Runs = [(arm, number) for arm in "abc" for number in range(20)]


def world(failed: Runs) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Values and runs of three copies; `c` is no copy, it takes twice as long."""
    noise = np.random.default_rng(1).normal(0, 0.001, len(ALL))
    there = [
        {"arm": arm, "round": number, "metric": "Sort", "value": (2 if arm == "c" else 1) * (1 + float(more))}
        for (arm, number), more in zip(ALL, noise, strict=True)
        if (arm, number) not in failed
    ]
    return pl.DataFrame(there), pl.DataFrame(ALL, schema=["arm", "round"], orient="row")


def test_every_pair_and_window_is_compared() -> None:
    values, runs = world([])
    found = comparisons(values, runs=runs)
    assert found.select("one", "other", "begin").rows() == [
        (one, other, begin) for begin in (0, 10) for one, other in ("ab", "ac", "bc")
    ]
    assert [verdict == "SAME" for verdict in found["verdict"]] == [True, False, False] * 2
    assert false_share(values) == pytest.approx(2 / 3)


def test_a_window_with_a_failed_run_is_missing_for_its_pairs() -> None:
    values, runs = world([("a", 3)])
    for found in (comparisons(values), comparisons(values, runs=runs)):
        missing = found.filter(pl.col("verdict").is_null())
        assert missing.select("one", "other", "begin").rows() == [("a", "b", 0), ("a", "c", 0)]
        assert missing["ratio"].to_list() == [None, None]
        assert found.height == 6
    assert false_share(values) == pytest.approx(3 / 4)


def test_rounds_and_arms_without_any_value_are_missing_too() -> None:
    values, runs = world([(arm, number) for arm, number in ALL if arm == "c" or number > 14])
    found = comparisons(values, runs=runs)
    assert found.height == 6
    assert found.drop_nulls("verdict").select("one", "other", "begin").rows() == [("a", "b", 0)]


def test_the_row_counts_what_is_missing() -> None:
    mixed = bench.row("rounds", ["SAME", "FASTER", None, "UNDECIDED"], hog=False, sessions=1)
    assert mixed.values == [pytest.approx(100 / 3)]
    assert mixed.note.startswith("1 of 3 in 1 session(s)")
    assert mixed.note.endswith("; 1 missing, for runs failed")
    assert "missing" not in bench.row("rounds", ["SAME"], hog=False, sessions=1).note
    assert bench.row("blocks", [None], hog=False, sessions=1).median is None


@pytest.mark.parametrize("arguments", [["--rounds", "9"], ["--sessions", "0"]])
def test_what_gives_no_comparison_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.main(arguments)
    assert caught.value.code == 2
    assert " ".join(arguments) in capsys.readouterr().err


@pytest.fixture
def record() -> ModuleType:
    return bench.recording()


def test_the_other_process_takes_a_core_that_it_may_use(record: ModuleType) -> None:
    (line,) = [line for line in record.HOG.splitlines() if "affinity" in line]
    taken: list[set[int]] = []
    fake = SimpleNamespace(
        sched_getaffinity=lambda _: {5, 7}, sched_setaffinity=lambda _, cores: taken.append(set(cores))
    )
    exec(line, {"os": fake})
    assert taken == [{5}]


def halfway(record: ModuleType, monkeypatch: pytest.MonkeyPatch, hog: str) -> Any:
    """A watcher whose other process runs this, begun in the middle of two runs."""
    monkeypatch.setattr(record, "HOG", hog)
    watcher = record.Halfway(sys.executable)
    assert not watcher.alive()
    watcher.report_start(0, 2)
    watcher.report_run("a", "Sort", "ok")
    return watcher


def test_an_other_process_that_died_is_noticed(record: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = halfway(record, monkeypatch, "raise SystemExit(1)")
    watcher.hog.wait(timeout=60)
    assert not watcher.alive()


def test_an_other_process_lives_until_it_is_ended(record: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = halfway(record, monkeypatch, "import threading; threading.Event().wait()")
    try:
        assert watcher.alive()
    finally:
        watcher.end()
    assert not watcher.alive()
