"""Times of replays measured back from a clock that is set by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from workbench.lore import tables
from workbench.lore.replays import replay_variants
from workbench.lore.replays.replay_variants import ReplayTimings, ReplayVariant, measure_variants


@dataclass
class Clock:
    """What stands in for the machine's clock; runs are noted in order."""

    now_s: float = 0.0
    runs: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Operator:
    """Stands in for a rebuilt operator: takes known times."""

    clock: Clock
    name: str
    scan_s: float
    total_s: float

    def output_rdd(self) -> Operator:
        return self

    def count(self) -> int:
        self.clock.runs.append(self.name)
        self.clock.now_s += self.total_s
        return 1

    def read_metrics(self) -> dict[str, int]:
        return {"Sort.sortTime": 7}


def scan(made: Any) -> None:
    made.clock.runs.append(f"scan {made.name}")
    made.clock.now_s += made.scan_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(replay_variants.time, "perf_counter", found)
    monkeypatch.setattr(replay_variants, "scan_inputs", scan)
    return found


def side(clock: Clock, name: str, scan_s: float, totals_s: list[float]) -> ReplayVariant:
    # The first is made for scans alone.
    times = iter([totals_s[0], *totals_s])

    def make() -> Any:
        return Operator(clock, name, scan_s, next(times))

    return ReplayVariant(name, make, {"spark.sql.x": name})


def test_the_time_of_the_scan_is_taken_off(clock: Clock) -> None:
    found = measure_variants([side(clock, "replay", 0.5, [2.5, 3.5, 4.5])], 3)
    assert found.timings["operator_s"].to_list() == pytest.approx([2.0, 3.0, 4.0])
    row = found.sides.to_dicts()[0]
    assert (row["n"], row["operator_s"], row["scan_s"], row["total_s"]) == pytest.approx((3, 3.0, 0.5, 3.5))
    assert row["settings"] == "spark.sql.x=replay"
    assert row["accelerated"] is None
    assert (found.ratio, found.verdict) == (None, None)


def test_two_sides_take_turns_to_be_first(clock: Clock) -> None:
    measure_variants([side(clock, "A", 0.1, [1.0] * 3), side(clock, "B", 0.1, [1.0] * 3)], 3)
    assert [run for run in clock.runs if not run.startswith("scan")] == ["A", "B", "B", "A", "A", "B"]
    assert clock.runs[::2] == [f"scan {name}" for name in ["A", "B", "B", "A", "A", "B"]]


def test_the_ratio_is_that_of_operators_without_their_scans(clock: Clock) -> None:
    sides = [side(clock, "A", 1.0, [5.0, 5.1, 4.9] * 4), side(clock, "B", 0.5, [2.5, 2.52, 2.48] * 4)]
    found = measure_variants(sides, 12)
    assert found.ratio is not None
    assert found.ratio.estimate == pytest.approx(2.0, rel=0.05)
    assert found.verdict == "FASTER"


def test_sides_that_are_alike_are_not_called_faster(clock: Clock) -> None:
    times = [1.0, 1.2, 0.9, 1.1, 1.05, 0.95]
    found = measure_variants([side(clock, "A", 0.1, times), side(clock, "B", 0.1, times[::-1])], 6)
    assert found.verdict in ("SAME", "UNDECIDED")


def test_without_a_time_above_the_scan_s_there_is_no_ratio(clock: Clock) -> None:
    found = measure_variants([side(clock, "A", 1.0, [2.0, 2.0]), side(clock, "B", 1.0, [2.0, 0.9])], 2)
    assert (found.ratio, found.verdict) == (None, None)
    assert found.timings["operator_s"].min() == pytest.approx(-0.1), "shown as it was measured"


def test_one_run_has_no_interval(clock: Clock) -> None:
    row = measure_variants([side(clock, "replay", 0.1, [1.0])], 1).sides.to_dicts()[0]
    assert (row["low_s"], row["high_s"]) == (None, None)
    assert row["operator_s"] == pytest.approx(0.9)


def test_progress_is_told_run_by_run(clock: Clock) -> None:
    told: list[tuple[int, int]] = []
    measure_variants(
        [side(clock, "A", 0.1, [1.0] * 2), side(clock, "B", 0.1, [1.0] * 2)],
        2,
        on_progress=lambda *done: told.append(done),
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_tables_are_the_declared_ones_and_metrics_are_of_one_run(clock: Clock) -> None:
    found: ReplayTimings = measure_variants([side(clock, "A", 0.1, [1.0] * 3), side(clock, "B", 0.1, [1.0] * 3)], 3)
    for declared, frame in ((tables.SIDES, found.sides), (tables.TIMINGS, found.timings)):
        declared.check(frame)
    assert tables.METRICS.check(found.metrics).rows() == [("A", "Sort.sortTime", 7), ("B", "Sort.sortTime", 7)]
