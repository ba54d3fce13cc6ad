"""Times of replays measured back from a clock that is set by hand."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lore.local_spark import dumped, local, lore_command
from workbench import stats
from workbench.lore import tables
from workbench.lore.replays import replay_variants
from workbench.lore.replays.operator_replay import ReplayResult
from workbench.lore.replays.replay_variants import (
    ReplayTimings,
    ReplayVariant,
    engine_settings,
    estimate_ratio,
    is_enough,
    summarize_differences,
    variant_settings,
)
from workbench.lore.replays.run_costs import RunCost


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

    @property
    def bridge(self) -> Operator:
        return self

    def propagate_settings(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def read_metrics(self) -> dict[str, tuple[int, str]]:
        return {"Sort.sortTime": (7, "ms")}


@dataclass
class Meter:
    """Stands in for the meter: half of the elapsed time is CPU time, where there is one."""

    clock: Clock
    has_cpu: bool = True

    def measure_run(self, body: Callable[[], object]) -> RunCost:
        begun = self.clock.now_s
        body()
        wall_s = self.clock.now_s - begun
        return RunCost(wall_s, wall_s / 2 if self.has_cpu else None)


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


def measure_variants(sides: list[ReplayVariant], repeat: int, **options: Any) -> ReplayTimings:
    clock = replay_variants.time.perf_counter
    return replay_variants.measure_variants(sides, repeat, **{"meter": Meter(clock), "budget_s": 1e9} | options)


def test_the_time_of_the_scan_is_taken_off(clock: Clock) -> None:
    found = measure_variants([side(clock, "replay", 0.5, [2.5, 3.5, 4.5])], 3)
    assert found.timings["operator_s"].to_list() == pytest.approx([2.0, 3.0, 4.0])
    row = found.sides.to_dicts()[0]
    assert (row["n"], row["operator_s"], row["scan_s"], row["total_s"]) == pytest.approx((3, 3.0, 0.5, 3.5))
    assert row["settings"] == "spark.sql.x=replay"
    assert row["accelerated"] is None
    assert (found.ratio, found.verdict) == (None, None)
    # One run has no interval.
    row = measure_variants([side(clock, "replay", 0.1, [1.0])], 1).sides.to_dicts()[0]
    assert (row["operator_s"], row["low_s"], row["high_s"]) == (pytest.approx(0.9), None, None)


def test_two_sides_take_turns_to_be_first(clock: Clock) -> None:
    told: list[tuple[int, int]] = []
    sides = [side(clock, "A", 0.1, [1.0] * 3), side(clock, "B", 0.1, [1.0] * 3)]
    found = measure_variants(sides, 3, on_progress=lambda *done: told.append(done))
    assert told == [(number, 6) for number in range(1, 7)]
    # The first turn warms up.
    assert clock.runs[:4] == ["scan A", "A", "scan B", "B"]
    assert clock.runs[5::2] == ["A", "B", "B", "A", "A", "B"]
    assert clock.runs[4::2] == [f"scan {name}" for name in ["A", "B", "B", "A", "A", "B"]]
    for declared, frame in ((tables.SIDES, found.sides), (tables.TIMINGS, found.timings)):
        declared.check(frame)
    one = ("Sort.sortTime", 7, "ms")
    assert tables.METRICS.check(found.metrics).rows() == [("A", *one), ("B", *one)], "of one run"


def test_before_many_timed_runs_the_operator_runs_untimed(clock: Clock) -> None:
    assert measure_variants([side(clock, "replay", 0.1, [1.0] * 20)], 10).timings.height == 5
    # Two turns of 1.1 s are more than the 2 s of a warm-up.
    assert clock.runs.count("replay") == 7


def test_a_side_whose_earlier_run_was_long_is_not_warmed_up(clock: Clock) -> None:
    sides = [side(clock, "A", 0.1, [1.0] * 12), replace(side(clock, "B", 0.1, [9.0] * 12), earlier_run_s=9.0)]
    found = measure_variants(sides, 6)
    n_turns = found.timings.height // 2
    assert clock.runs.count("A") - n_turns == 2
    assert clock.runs.count("B") == n_turns


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


def test_a_time_that_is_not_resolved_is_null_with_its_upper_end_and_never_below_0(clock: Clock) -> None:
    totals = [1.0 + delta for delta in (0.01, -0.01, 0.015, -0.02, 0.012, -0.005, 0.01, -0.01, 0.004, 0.0)]
    row = measure_variants([side(clock, "replay", 1.0, totals)], 10).sides.to_dicts()[0]
    assert row["n"] == 10
    assert (row["operator_s"], row["low_s"], row["high_s"]) == (None, None, None)
    assert row["operator_cpu_s"] is None
    assert 0.01 <= row["below_s"] <= 0.015
    below = summarize_differences([-0.3, -0.2, -0.1, -0.1, -0.2, -0.3])
    assert below == {"value": None, "low": None, "high": None, "below": 0.0}


def test_cpu_and_elapsed_time_are_separate_and_the_ratio_is_that_of_elapsed_times(clock: Clock) -> None:
    class Constant(Meter):
        """The same CPU time in each run of an operator, as where its tasks wait."""

        def measure_run(self, body: Callable[[], object]) -> RunCost:
            before = len([run for run in self.clock.runs if not run.startswith("scan")])
            cost = super().measure_run(body)
            after = len([run for run in self.clock.runs if not run.startswith("scan")])
            return RunCost(cost.wall_s, 0.7 * (after - before))

    sides = [side(clock, "A", 1.0, [3.0] * 6), side(clock, "B", 1.0, [2.0] * 6)]
    found = measure_variants(sides, 6, meter=Constant(clock))
    row = found.sides.to_dicts()[0]
    assert (row["operator_s"], row["operator_cpu_s"]) == pytest.approx((2.0, 0.7))
    assert found.ratio is not None
    assert found.ratio.estimate == pytest.approx(2.0)
    clock.now_s = 0.0
    sides = [side(clock, "A", 1.0, [3.0] * 6), side(clock, "B", 1.0, [2.0] * 6)]
    without = measure_variants(sides, 6, meter=Meter(clock, has_cpu=False))
    assert without.sides["operator_cpu_s"].to_list() == [None, None]
    assert without.ratio is not None


def test_runs_end_as_soon_as_the_interval_is_tight_and_at_the_number_or_the_budget(clock: Clock) -> None:
    steady = [2.0 + 0.001 * (number % 3) for number in range(200)]
    assert measure_variants([side(clock, "replay", 1.0, steady)], 11).sides["n"].item() == 5
    shaky = [2.0 + 0.9 * (-1) ** (number // 2) for number in range(200)]
    assert measure_variants([side(clock, "replay", 1.0, shaky)], 11).sides["n"].item() == 11
    assert measure_variants([side(clock, "replay", 1.0, steady)], 4, budget_s=0.0).sides["n"].item() == 4, "exact"
    # An untimed turn of 3 s, then three timed ones.
    slow = measure_variants([side(clock, "replay", 1.0, [2.0] * 9)], 11, budget_s=12.0)
    assert slow.sides["n"].item() == 3
    sides = [side(clock, "A", 1.0, steady), side(clock, "B", 1.0, steady)]
    assert measure_variants(sides, 11).sides["n"].to_list() == [3, 3], "the same within the margin"
    sides = [side(clock, "A", 1.0, steady), side(clock, "B", 1.0, shaky)]
    assert measure_variants(sides, 11).sides["n"].to_list() == [11, 11], "a ratio that is not decided needs them all"


ENGINE = ("--master", "local[2]", "--driver-memory", "1g", "--engine", "comet")


def test_an_engine_is_off_on_the_side_of_plain_spark_which_needs_no_settings() -> None:
    assert engine_settings("spark") == variant_settings("spark", "spark") == {}
    assert variant_settings("spark", "comet")["spark.comet.exec.enabled"] == "false"
    assert variant_settings("comet", "comet")["spark.comet.exec.enabled"] == "true"


@pytest.mark.network
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
class TestComet:
    """With the jar."""

    @pytest.fixture(scope="class")
    def folders(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
        home = tmp_path_factory.mktemp("comet")
        with local() as spark:
            spark.range(0, 400_000, 1, 2).selectExpr("id % 9999 AS k", "id AS v").createOrReplaceTempView("wide")
            join = spark.sql("SELECT x.v FROM wide x JOIN b ON x.k = b.k")
            exploded = spark.sql("SELECT k, explode(array(k, k + 1)) AS e FROM (SELECT /*+ REPARTITION(2) */ k FROM a)")
            yield {
                "join": dumped(join, "SortMergeJoin", home / "join"),
                "generate": dumped(exploded, "Generate", home / "generate"),
            }

    def test_a_sort_merge_join_runs_in_comet_and_gives_the_same_rows(self, folders: dict[str, Path]) -> None:
        accelerated = lore_command("replay", folders["join"], *ENGINE, "--repeat", "5", "--json")
        assert accelerated.returncode == 0, accelerated.stderr
        found = ReplayResult.model_validate_json(accelerated.stdout)
        assert found.passed
        assert found.comparison is not None
        assert found.comparison["equal"]
        assert "CometSortMergeJoin" in found.plans["B"]
        assert "Comet" not in found.plans["A"]
        sides = [(side["side"], side["accelerated"], side["n"]) for side in found.sides]
        assert sides == [("A", None, 5), ("B", True, 5)]
        positive = all(row["operator_s"] > 0 for row in found.timings)
        assert (found.ratio is not None) is (found.verdict is not None) is positive

    def test_an_operator_that_comet_leaves_to_spark_has_a_reason_and_no_ratio(self, folders: dict[str, Path]) -> None:
        done = lore_command("replay", folders["generate"], *ENGINE, "--repeat", "2")
        assert done.returncode == 1, done.stderr
        assert "PASS" in done.stdout, "plain Spark gave the expected rows"
        reason = next(line for line in done.stdout.splitlines() if line.startswith("not accelerated: "))
        assert len(reason) > len("not accelerated: ") + 10
        assert "A's time by B's" not in done.stdout
        assert "plan of B" in done.stdout


@pytest.mark.parametrize(("n_sides", "n_turns", "ends"), [(1, 1, True), (2, 1, False), (2, 2, False), (2, 3, True)])
def test_a_spent_budget_ends_no_comparison_before_its_first_look(n_sides: int, n_turns: int, ends: bool) -> None:
    turns = [[1.0, 2.0, 3.0][:n_turns]] * n_sides
    assert is_enough(turns, repeat=11, tight=0.1, elapsed_s=9.0, budget_s=1.0) == ends


def play(ratio: float, spread: float, rng: np.random.Generator) -> tuple[int, stats.Interval]:
    """Turns and ratio of a session of A/B whose log ratios have this standard deviation."""
    logs = math.log(ratio) + rng.normal(0, spread, 11)
    for n in range(1, 12):
        turns = [np.exp(logs[:n]).tolist(), [1.0] * n]
        if is_enough(turns, repeat=11, tight=0.1, elapsed_s=0.0, budget_s=1.0):
            break
    found = estimate_ratio(*turns, level=0.9, repeat=11)
    assert found is not None
    return n, found


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.15])
@pytest.mark.parametrize("ratio", [1.0, 1.03, 1.1, 2.0, 15.0])
def test_sessions_that_end_early_err_no_more_often_than_they_say(ratio: float, spread: float) -> None:
    rng = np.random.default_rng(round(1000 * ratio + 100 * spread))
    sessions = [play(ratio, spread, rng) for _ in range(400)]
    missed = sum(not found.low <= ratio <= found.high for _, found in sessions)  # type: ignore[operator]
    wrong = sum(stats.decide_verdicts([found])[0].verdict == "SLOWER" for _, found in sessions)
    # 10 % with three standard errors of the simulation.
    assert missed / len(sessions) <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / len(sessions))
    assert wrong <= 0.1 * len(sessions) if ratio == 1 else wrong <= 2
    if ratio >= 2 and spread <= 0.05:
        assert np.median([n for n, _ in sessions]) <= 4
