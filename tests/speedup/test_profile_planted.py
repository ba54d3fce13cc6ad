"""Six causes of lost time, planted in jobs that really run: the profile finds them, and how much they cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.speedup.profile_jobs import JOBS
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.application_profile import Profile, build_profile

RUNS = 2
MIN_FOUND = 5


def run_job(job: str, folder: Path, *, planted: bool) -> Profile:
    command = [
        sys.executable,
        "-m",
        "tests.speedup.profile_jobs",
        job,
        str(folder),
        *(["--planted"] if planted else []),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    return build_profile(read_event_logs(folder / "events"))


def measure_work_s(profile: Profile) -> float:
    """From the first query to the end: the start of a session differs from run to run."""
    assert profile.end_s is not None
    return float(profile.end_s - profile.queries["start_s"].min())  # type: ignore[operator, arg-type]


def judge(plain: list[Profile], planted: list[Profile], kind: str) -> tuple[bool, bool, str]:
    """Is the planted kind first in a planted run, does its interval hold what it cost, and the figures.

    What it cost is known up to the noise of both sides' runs.
    """
    first = planted[-1].findings.row(0, named=True)
    told = planted[-1].findings.filter(kind=kind)
    walls = [[measure_work_s(profile) for profile in side] for side in (plain, planted)]
    least, most = min(walls[1]) - max(walls[0]), max(walls[1]) - min(walls[0])
    low, high = (told["low_s"][0], told["high_s"][0]) if told.height else (0.0, 0.0)
    text = f"{kind}: first {first['kind']} {first['at_stake_s']:.1f} s; cost {least:.1f} to {most:.1f} s, "
    return first["kind"] == kind, low <= most and least <= high, f"{text}told {low:.1f} to {high:.1f} s"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_planted_causes_are_first_and_cost_what_is_told(tmp_path: Path) -> None:
    found: list[tuple[bool, bool, str]] = []
    for number, job in enumerate(JOBS):
        sides: dict[bool, list[Profile]] = {False: [], True: []}
        for run in range(RUNS):
            for planted in (False, True):
                sides[planted].append(run_job(job, tmp_path / f"{number}-{run}-{planted}", planted=planted))
        found.append(judge(sides[False], sides[True], job))
    report = "\n".join(text for _, _, text in found)
    print(report)
    assert sum(is_first for is_first, _, _ in found) >= MIN_FOUND, report
    assert sum(is_within for _, is_within, _ in found) >= MIN_FOUND, report
