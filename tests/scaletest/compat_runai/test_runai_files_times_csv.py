from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from tests.scaletest.compat_runai import golden
from tests.scaletest.compat_runai.test_runai_files import sampled, submitted, written
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import DIFFERENCES, HEADINGS, STEPS


@pytest.fixture
def old(shared: Path) -> Path:
    return shared / "golden" / "scaletest"


@pytest.fixture
def jobs(old: Path) -> pl.DataFrame:
    return delta_chain.build_jobs(runai_files.read_files(old))


def read(text: str) -> list[dict[str, str]]:
    lines = list(csv.reader(io.StringIO(text)))
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def test_the_old_layout_is_the_old_tools_byte_for_byte(old: Path, jobs: pl.DataFrame) -> None:
    assert runai_files.format_times_csv(jobs, bug_compatible=True) == (old / "times.csv").read_text()


def test_every_column_stands_under_a_heading_of_its_own_that_is_right(old: Path, jobs: pl.DataFrame) -> None:
    ours, theirs = read(runai_files.format_times_csv(jobs)), golden.rows(old)
    assert len(ours) == len(theirs) == 10
    assert len(ours[0]) == len(golden.COLUMNS) == 26
    different = {"First PVC Bind", "First Eviction", "Backend Job Creation", "Total Backend Job Creation"}
    for mine, row in zip(ours, theirs, strict=True):
        assert (mine["Job Name"], mine["Namespace"], mine["Project"]) == (row["name"], row["namespace"], row["project"])
        for name, heading in HEADINGS.items():
            assert mine[f"{heading} (UTC)"] in (row[name], "")
        for step in STEPS:
            if step.name not in different:
                assert float(mine[f"{step.name} (s)"]) == float(row[step.name])


def test_pvc_binding_is_measured_from_its_request(jobs: pl.DataFrame) -> None:
    assert {row["First PVC Bind (s)"] for row in read(runai_files.format_times_csv(jobs))} == {"4"}


def test_a_delta_of_minus_one_second_stays_what_it_is(tmp_path: Path) -> None:
    sample = sampled(workloadCreatedTimestamp="2026-01-01T09:59:59Z")
    jobs = delta_chain.build_jobs(runai_files.read_files(written(tmp_path, [submitted()], [sample])))
    assert read(runai_files.format_times_csv(jobs))[0]["Workload Creation (s)"] == "-1"
    old = dict(
        zip(
            golden.COLUMNS,
            runai_files.format_times_csv(jobs, bug_compatible=True).splitlines()[1].split(","),
            strict=True,
        )
    )
    assert old["Workload Creation"] == "0"


def test_what_was_not_measured_is_empty(jobs: pl.DataFrame) -> None:
    row = read(runai_files.format_times_csv(jobs))[0]
    told = ("First Evicted (UTC)", "First Eviction (s)", "Backend Job Created (UTC)", "Total Backend Job Creation (s)")
    assert [row[name] for name in told] == ["", "", "", ""]


def test_an_offset_is_counted(tmp_path: Path) -> None:
    rows = [submitted(at="2026-01-01T12:00:00.5+02:00")]
    jobs = delta_chain.build_jobs(runai_files.read_files(written(tmp_path, rows, [sampled()])))
    assert read(runai_files.format_times_csv(jobs))[0]["Workload Submitted (UTC)"] == "2026-01-01 10:00:00"
    assert read(runai_files.format_times_csv(jobs))[0]["Workload Creation (s)"] == "1"


def test_skipped_workloads_can_be_had(jobs: pl.DataFrame) -> None:
    everything = read(runai_files.format_times_csv(jobs, skip_errors=False))
    assert len(everything) == 12
    negative = next(row for row in everything if row["Job Name"] == "j-000009")
    assert int(negative["Total Pod Scheduling Decision (s)"]) < -1


def test_a_decision_exactly_a_second_early_is_kept_as_the_old_tool_keeps_it(tmp_path: Path) -> None:
    def at(second: int) -> str:
        return datetime.fromtimestamp(1767261600 + second, UTC).isoformat()

    samples = [sampled(f"j-{early}", podSchedulingDecisionTimestamp=at(-early)) for early in (0, 1, 2)]
    jobs = delta_chain.build_jobs(
        runai_files.read_files(written(tmp_path, [submitted(f"j-{n}") for n in range(3)], samples))
    )
    assert jobs["kept"].to_list() == [True, True, False]


def test_every_difference_is_told_with_a_reason() -> None:
    assert len({one.about for one in DIFFERENCES}) == len(DIFFERENCES) == 8
    assert all(one.old and one.ours and one.why for one in DIFFERENCES)
