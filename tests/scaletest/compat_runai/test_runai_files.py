from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.scaletest.compat_runai import golden
from workbench.core.errors import InputError
from workbench.scaletest.compat_runai import runai_files
from workbench.scaletest.compat_runai.delta_chain import FIELDS, HEADINGS, STEPS

NAMES = {"projectName": "p", "jobNamespace": "runai-p"}


def submitted(name: str = "j-1", at: Any = "2026-01-01T10:00:00.5+00:00") -> dict[str, Any]:
    return {"jobName": name, **NAMES, "submitTimestamp": at}


def sampled(name: str = "j-1", **changed: Any) -> dict[str, Any]:
    times = {field: f"2026-01-01T10:00:{second:02d}Z" for second, field in enumerate(FIELDS.values(), 1)}
    return {"jobName": name, **NAMES, **times, **changed}


def written(folder: Path, rows: Any, samples: Any) -> Path:
    for name, content in (("submitted.json", rows), ("sampled.json", samples)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def jobs_of(folder: Path, rows: Any, samples: Any) -> pl.DataFrame:
    return runai_files.build_jobs(runai_files.read_files(written(folder, rows, samples)))


def told(folder: Path) -> list[tuple[str, int, str]]:
    return [(one.file, one.row, one.why) for one in runai_files.read_files(folder).odd]


def test_an_offset_counts_and_a_time_without_one_is_utc(tmp_path: Path) -> None:
    rows = [submitted("a", "2026-01-01T12:00:00.25+02:00"), submitted("b", "2026-01-01 10:00:00.25")]
    found = runai_files.read_files(written(tmp_path, rows, [sampled("a"), sampled("b")]))
    assert found.submitted[0].at_ns == found.submitted[1].at_ns == 1767261600_250_000_000


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (submitted(at="yesterday"), "submitTimestamp is no time: 'yesterday'"),
        (submitted(at=5), "Expected `str`, got `int` - at `$.submitTimestamp`"),
        (submitted(name="=cmd()"), "not a name of Kubernetes: '=cmd()'"),
        (submitted(at="0001-01-01T00:00:00Z"), "submitTimestamp is no time: '0001-01-01T00:00:00Z'"),
        ({"jobName": "j-1"}, "Object missing required field `projectName`"),
        (7, "Expected `object`, got `int`"),
    ],
)
def test_an_odd_row_is_told_and_the_others_are_kept(tmp_path: Path, row: Any, why: str) -> None:
    folder = written(tmp_path, [row, submitted("good")], [sampled("good")])
    assert told(folder) == [("submitted.json", 0, why)]
    assert [one.name for one in runai_files.read_files(folder).submitted] == ["good"]


def test_an_odd_sample_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    odd = [sampled("a", jobCreatedTimestamp=None), {"jobName": "b"}, sampled("c")]
    found = told(written(tmp_path, [submitted("a"), submitted("b"), submitted("c")], odd))
    assert found[0] == ("sampled.json", 0, "jobCreatedTimestamp is no time: 'None'")
    assert found[1][:2] == ("sampled.json", 1)
    assert found[1][2].startswith("missing: projectName, jobNamespace, workloadCreatedTimestamp")


def test_a_workload_counts_once(tmp_path: Path) -> None:
    rows = [submitted(at="2026-01-01T10:00:00Z"), submitted(at="2026-01-01T10:00:01Z")]
    folder = written(tmp_path, rows, [sampled(), sampled()])
    assert told(folder) == [
        ("submitted.json", 0, "submitted again later: the last one counts"),
        ("sampled.json", 1, "sampled twice: the first one counts"),
    ]
    assert [one.at_ns for one in runai_files.read_files(folder).submitted] == [1767261601_000_000_000]


def test_the_same_name_in_two_projects_is_two_workloads(tmp_path: Path) -> None:
    other = {"projectName": "q", "jobNamespace": "runai-q"}
    folder = written(tmp_path, [submitted(), submitted() | other], [sampled(), sampled() | other])
    found = runai_files.read_files(folder)
    assert (len(found.submitted), len(found.sampled), found.odd) == (2, 2, [])


def test_submitted_but_never_sampled_is_told(tmp_path: Path) -> None:
    folder = written(tmp_path, [submitted("a"), submitted("b")], [sampled("a")])
    assert told(folder) == [
        ("submitted.json", 1, "not in sampled.json: it was not complete, or gone, when it was sampled")
    ]


def test_a_time_of_the_fallback_is_not_a_measured_one(tmp_path: Path) -> None:
    at = "2026-01-01T10:00:06Z"
    same = {FIELDS[name]: at for name in ("decision", "eviction", "pvc_request", "pvc_bind")}
    found = runai_files.read_files(written(tmp_path, [submitted()], [sampled(**same)])).sampled[0]
    assert [found.at_s[name] for name in ("eviction", "pvc_request", "pvc_bind")] == [None, None, None]
    assert found.at_s["backend"] is not None


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "[1,", "\ufeff[]", '"text"'])
def test_what_is_no_json_list_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match="not a JSON list"):
        runai_files.read_files(written(tmp_path, content, []))


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, [submitted("a"), submitted("b")], [])
    monkeypatch.setattr(runai_files, "MAX_ROWS", 1)
    with pytest.raises(InputError, match="too many workloads"):
        runai_files.read_files(folder)
    monkeypatch.setattr(runai_files, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        runai_files.read_files(folder)


def test_a_file_without_one_good_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row that can be used"):
        runai_files.read_files(written(tmp_path, [{"jobName": "a"}], []))
    with pytest.raises(InputError, match="no row that can be used"):
        runai_files.read_files(written(tmp_path, [submitted()], [{"jobName": "a"}]))


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
    jobs = jobs_of(tmp_path, [submitted()], [sample])
    assert read(runai_files.format_times_csv(jobs))[0]["Workload Creation (s)"] == "-1"
    line = runai_files.format_times_csv(jobs, bug_compatible=True).splitlines()[1].split(",")
    assert dict(zip(golden.COLUMNS, line, strict=True))["Workload Creation"] == "0"


def test_what_was_not_measured_is_empty(jobs: pl.DataFrame) -> None:
    row = read(runai_files.format_times_csv(jobs))[0]
    told = ("First Evicted (UTC)", "First Eviction (s)", "Backend Job Created (UTC)", "Total Backend Job Creation (s)")
    assert [row[name] for name in told] == ["", "", "", ""]


def test_skipped_workloads_can_be_had(jobs: pl.DataFrame) -> None:
    everything = read(runai_files.format_times_csv(jobs, skip_errors=False))
    assert len(everything) == 12
    negative = next(row for row in everything if row["Job Name"] == "j-000009")
    assert int(negative["Total Pod Scheduling Decision (s)"]) < -1


def test_a_decision_exactly_a_second_early_is_kept_as_the_old_tool_keeps_it(tmp_path: Path) -> None:
    def at(second: int) -> str:
        return datetime.fromtimestamp(1767261600 + second, UTC).isoformat()

    samples = [sampled(f"j-{early}", podSchedulingDecisionTimestamp=at(-early)) for early in (0, 1, 2)]
    jobs = jobs_of(tmp_path, [submitted(f"j-{n}") for n in range(3)], samples)
    assert jobs["kept"].to_list() == [True, True, False]
