from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.scaletest.compat_runai import golden
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest.analysis import time_breakdown
from workbench.scaletest.command import app
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import DELTAS, JOBS, ODD, STEPS
from workbench.scaletest.compat_runai.run_import import SubmissionDetails, import_folder
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import MILESTONES, SCHEDULE, SUBMISSIONS, TRANSITIONS


@pytest.fixture
def old(shared: Path) -> Path:
    return shared / "golden" / "scaletest"


def test_every_delta_of_every_kept_workload_is_the_old_tools_own(old: Path) -> None:
    ours = delta_chain.build_deltas(runai_files.build_jobs(runai_files.read_files(old))).filter("kept")
    theirs = golden.rows(old)
    assert ours["name"].unique(maintain_order=True).to_list() == [row["name"] for row in theirs]
    assert len(theirs) == 10
    for row in theirs:
        mine = dict(ours.filter(pl.col("name") == row["name"]).select("step", "upstream_s").iter_rows())
        assert mine == {step.name: float(row[step.name]) for step in STEPS}


def test_true_deltas_differ_from_the_old_tools_only_where_that_is_meant(old: Path) -> None:
    ours = delta_chain.build_deltas(runai_files.build_jobs(runai_files.read_files(old)))
    differing = ours.filter(pl.col("delta_s").ne_missing(pl.col("upstream_s")))
    meant = {"First PVC Bind", "First Eviction", "Backend Job Creation", "Total Backend Job Creation"}
    assert set(differing.filter("kept")["step"]) == meant
    assert set(ours.filter(pl.col("step") == "First PVC Bind")["delta_s"]) == {4}


def test_skipped_workloads_are_the_old_tools_with_the_reason(old: Path) -> None:
    jobs = runai_files.build_jobs(runai_files.read_files(old))
    assert dict(jobs.filter(~pl.col("kept")).select("name", "skipped").iter_rows()) == {
        "j-000009": delta_chain.NEGATIVE_TOTAL,
        "j-00000a": delta_chain.EARLY_PODGROUP,
    }


def test_a_run_folder_holds_what_the_files_hold_and_no_more(old: Path, tmp_path: Path) -> None:
    made = import_folder(old, out=tmp_path, details=SubmissionDetails("training"))
    run = run_folder.load_run(made.run.folder)
    assert (made.submitted, made.sampled, made.kept, run.verdict) == (12, 12, 10, "valid")
    assert run.read_table(SCHEDULE)["name"].to_list()[:2] == ["j-000000", "j-000001"]
    submissions = run.read_table(SUBMISSIONS)
    assert submissions["sent_s"].to_list()[:3] == [0.331, 0.931, 0.846]
    assert submissions["acked_s"].null_count() == 12
    transitions = run.read_table(TRANSITIONS)
    assert transitions["arrival_s"].null_count() == transitions.height
    first = transitions.filter(pl.col("workload") == "j-000000")
    assert dict(first.filter(pl.col("resource") == "pod").group_by("transition").len().iter_rows()) == {
        "created": 2,
        "scheduled": 1,
    }
    assert first.filter(pl.col("transition") == "evicted").is_empty()
    assert run.read_table(JOBS).height == 12
    assert run.read_table(DELTAS).height == 12 * len(STEPS)
    assert run.read_table(ODD)["name"].to_list() == ["j-notsub"]
    assert run_records.read_conditions(run.folder).closed


def test_our_own_steps_come_from_an_imported_run(old: Path, tmp_path: Path) -> None:
    run = import_folder(old, out=tmp_path).run
    found = time_breakdown.build_step_table(run.read_table(MILESTONES), run.read_table(SUBMISSIONS))
    shown = found.filter((pl.col("index") == 0) & pl.col("duration_s").is_not_null())
    assert dict(shown.select("step", "duration_s").iter_rows()) == {
        "job creation": 0.0,
        "first pod": 0.0,
        "last pod": 2.0,
        "podgroup": 0.0,
        "decision": 12.0,
        "volume request": 1.0,
        "volume": 4.0,
    }
    assert set(shown["clock"]) == {"server"}
    assert set(shown["resolution_s"]) == {1.0}


def test_what_was_asked_for_is_written_only_when_it_is_told(old: Path, tmp_path: Path) -> None:
    assert not SCHEDULE.path(import_folder(old, out=tmp_path).run.tables_folder).exists()
    told = import_folder(old, out=tmp_path, details=SubmissionDetails("distributed", gpus=2, workers=4))
    schedule = told.run.read_table(SCHEDULE)
    assert (set(schedule["pods"]), set(schedule["gpus_per_pod"]), set(schedule["gang"])) == ({5}, {2.0}, {True})
    with pytest.raises(ConfigError, match="no such type"):
        import_folder(old, out=tmp_path, details=SubmissionDetails("general"))


def test_the_command_tells_each_row_that_is_left_out(old: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["import-upstream", str(old), "--out", str(tmp_path), "--json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert told["odd"] == [
        {"file": "sampled.json", "row": 12, "left_out": True, "why": "not in submitted.json: no time of submission"}
    ]


def test_a_folder_without_the_files_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no submitted\.json"):
        import_folder(tmp_path, out=tmp_path)


@pytest.mark.parametrize(
    ("shift_s", "verdict", "told"),
    [
        (0, "valid", None),
        (7200, "invalid", "submission times are 2 h later than the cluster's for 12 of 12 workloads"),
        (-19_800, "invalid", "submission times are 5.5 h earlier than the cluster's"),
        (40, "invalid", "the submission's clock is about 40 s ahead of the cluster's (all 12 delays"),
    ],
)
def test_a_clock_that_is_off_is_named(old: Path, tmp_path: Path, shift_s: int, verdict: str, told: str | None) -> None:
    """`shift_s`: Seconds that the submission's clock is ahead of the cluster's."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "sampled.json").write_bytes((old / "sampled.json").read_bytes())
    jobs = json.loads((old / "submitted.json").read_text())
    for job in jobs:
        moved = datetime.fromisoformat(job["submitTimestamp"]) + timedelta(seconds=shift_s)
        job["submitTimestamp"] = moved.isoformat()
    (folder / "submitted.json").write_text(json.dumps(jobs))
    run = import_folder(folder, out=tmp_path / "runs").run
    assert run_folder.load_run(run.folder).verdict == verdict
    reasons = " ".join(run_folder.load_run(run.folder).record["reasons"])
    assert told is None or told in reasons
    assert ("clock is about" in reasons or "time zone" in reasons) is (told is not None)
