"""What was lost, how much of it, and nothing that was not: logs made by hand, and the samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from workbench.core.formats import MAX_ANSWER_CHARS
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.application_profile import Profile, build_profile
from workbench.speedup.attribution.profile_findings import BY_NAME, KINDS, MIN_S, MIN_SHARE, iterate_wordings

LOGS = ["tpch_sf0.1.zstd", "failing.zstd", "rolled", "small/three_queries.lz4"]
Make = Callable[..., Profile]


@pytest.fixture
def profile(tmp_path: Path) -> Make:
    def make(*events: Any) -> Profile:
        (tmp_path / "log").write_bytes(made.small(*events))
        return build_profile(read_event_logs(tmp_path / "log"))

    return make


def one_stage(*durations_ms: int, metrics: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """A job of one stage from second 1 to 5 of 8, its tasks from second 1 on, on 4 slots."""
    tasks = [
        made.task_end(
            0,
            0,
            number,
            launch_ms=2000,
            finish_ms=2000 + ms,
            metrics={"Executor Run Time": ms} | (metrics or {}),
            **more,
        )
        for number, ms in enumerate(durations_ms)
    ]
    n = len(durations_ms)
    return [made.job_start(), made.stage_submitted(tasks=n), *tasks, made.stage_completed(tasks=n), made.job_end()]


def find_stakes(result: Profile, kind: str) -> tuple[float, float, float] | None:
    rows = result.findings.filter(kind=kind)
    return rows.select("low_s", "at_stake_s", "high_s").row(0) if rows.height else None


@pytest.mark.parametrize("name", LOGS)
def test_findings_lie_between_the_threshold_and_the_wall_time_and_slot_time_adds_up(name: str) -> None:
    result = build_profile(read_event_logs(SAMPLES / "eventlogs" / name))
    overview = result.overview.row(0, named=True)
    wall_s = overview["wall_time_s"]
    assert result.findings.height
    for row in result.findings.iter_rows(named=True):
        assert 0 <= row["low_s"] <= row["at_stake_s"] <= row["high_s"] <= wall_s
        assert row["at_stake_s"] >= max(MIN_S, MIN_SHARE * wall_s)
    stakes = result.findings["at_stake_s"].to_list()
    assert stakes == sorted(stakes, reverse=True)
    assert result.wall_parts["slot_s"].sum() == pytest.approx(wall_s * overview["n_task_slots"], rel=1e-12)
    assert result.wall_parts["slot_s"].min() >= 0  # type: ignore[operator]
    assert len(result.answer) <= MAX_ANSWER_CHARS


def test_even_tasks_without_any_cost_have_no_finding_but_the_time_around_them(profile: Make) -> None:
    found = profile(*one_stage(4000, 4000, 4000, 4000)).findings
    # Start-up 0.5 s is half at stake; the end, and the driver's time outside SQL, are left.
    assert found["kind"].to_list() == ["end"]
    assert found.select("low_s", "high_s").row(0) == (1.9, 2.0)


def test_skew_costs_what_even_work_spares_and_at_most_the_longest_task_over_the_median(profile: Make) -> None:
    assert find_stakes(profile(*one_stage(*[500] * 7, 4000)), "skew") == pytest.approx((1.0625, 2.125, 3.5))
    assert find_stakes(profile(*one_stage(*[1000] * 7, 1900)), "skew") is None


@pytest.mark.parametrize(
    ("kind", "metrics", "expected"),
    [
        ("garbage collection", {"JVM GC Time": 2000, "Executor CPU Time": 2_000_000_000}, (1.88, 2.0, 2.0)),
        ("garbage collection", {"JVM GC Time": 2000, "Executor CPU Time": 1_000_000_000}, (1.88, 2.0, 3.0)),
        ("garbage collection", {"JVM GC Time": 300}, None),
        ("spill", {"Memory Bytes Spilled": 500_000_000, "Disk Bytes Spilled": 1}, (0.5, 2.0, 4.0)),
        ("spill", {"Memory Bytes Spilled": 500_000_000, "Disk Bytes Spilled": 0}, None),
        ("scheduler delay", {"Executor Run Time": 3000}, (0.5, 1.0, 1.0)),
        ("scheduler delay", {"Executor Run Time": 3000, "Executor Deserialize Time": 900}, None),
    ],
)
def test_task_time_at_stake_is_told_as_wall_time(
    kind: str, metrics: dict[str, Any], expected: tuple[float, float, float] | None, profile: Make
) -> None:
    found = find_stakes(profile(*one_stage(*[4000] * 4, metrics=metrics)), kind)
    assert found == (None if expected is None else pytest.approx(expected))


def test_failed_tasks_and_too_few_tasks_are_told(profile: Make) -> None:
    job = one_stage(*[4000] * 3)
    copy = made.task_end(0, 0, 9, launch_ms=2000, finish_ms=6000, killed=True)
    assert find_stakes(profile(*job[:-2], copy, *job[-2:]), "failed work") == pytest.approx((0.5, 1.0, 1.0))
    assert find_stakes(profile(*one_stage(4000)), "idle slots") == pytest.approx((0, 1.5, 3.0))
    assert find_stakes(profile(*one_stage(*[4000] * 4)), "idle slots") is None


def test_a_stage_without_tasks_waits_for_executors(profile: Make) -> None:
    late = made.task_end(launch_ms=5000, finish_ms=6000)
    result = profile(made.job_start(), made.stage_submitted(), late, made.stage_completed(), made.job_end())
    assert find_stakes(result, "waiting for executors") == (3.0, 3.0, 3.0)
    assert result.answer == "Waiting for executors takes 3.0 s of 8.0 s: keep executors ready."


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_every_kind_has_an_answer_of_one_line(kind: str) -> None:
    columns = {"kind": [kind], "low_s": [123_456.7], "high_s": [234_567.8], "at_stake_s": [200_000.0]}
    wordings = list(iterate_wordings(pl.DataFrame(columns), 987_654.3))
    assert len(wordings[-1]) <= MAX_ANSWER_CHARS
    assert BY_NAME[kind].advice.endswith(".")
