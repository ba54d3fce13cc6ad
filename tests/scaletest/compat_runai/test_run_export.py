from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.scaletest.compat_runai import making
from tests.scaletest.compat_runai.making import at, chain, name, seen
from workbench.scaletest.command import app
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import JOBS
from workbench.scaletest.compat_runai.run_import import import_folder
from workbench.scaletest.compat_runai.runai_files import build_view, export_run
from workbench.scaletest.observation import run_records


def exported(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    submitted, sampled = (json.loads(path.read_text()) for path in export_run(folder).paths[:2])
    return submitted, sampled


def test_the_files_have_the_old_tools_keys_and_formats(tmp_path: Path) -> None:
    submitted, sampled = exported(making.run(tmp_path, 2, chain(0) + chain(1, 3.0)))
    assert submitted[1] == {
        "jobName": name(1),
        "projectName": "a",
        "jobNamespace": "runai-a",
        "submitTimestamp": "2026-01-01T10:00:00.350000+00:00",
    }
    assert sampled[0] == {
        "jobName": name(0),
        "jobNamespace": "runai-a",
        "projectName": "a",
        "workloadCreatedTimestamp": "2026-01-01T10:00:00Z",
        "jobCreatedTimestamp": "2026-01-01T10:00:01Z",
        "firstPodCreatedTimestamp": "2026-01-01T10:00:02+00:00",
        "lastPodCreatedTimestamp": "2026-01-01T10:00:04+00:00",
        "podGroupCreatedTimestamp": "2026-01-01T10:00:05Z",
        "podSchedulingDecisionTimestamp": "2026-01-01T10:00:09+00:00",
        "firstEvictionTimestamp": "2026-01-01T10:00:09+00:00",
        "firstPVCBindRequestTimestamp": "2026-01-01T10:00:09+00:00",
        "firstPVCBindTimestamp": "2026-01-01T10:00:09+00:00",
        "backendJobCreatedTimestamp": "2026-01-01T10:00:00Z",
    }


def test_what_was_exported_and_imported_again_is_the_same_cut_to_seconds(tmp_path: Path) -> None:
    drawn = random.Random(8)
    observed = [line for index in range(40) for line in chain(index, drawn.uniform(0, 30))]
    folder = making.run(tmp_path, 40, observed)
    out = tmp_path / "old"
    before = export_run(folder, out).view.jobs
    again = import_folder(out, out=tmp_path)
    assert again.run.read_table(JOBS).equals(before)
    assert before.height == 40
    third = export_run(again.run.folder, tmp_path / "third")
    assert [path.read_bytes() for path in third.paths] == [(out / path.name).read_bytes() for path in third.paths]


def test_microseconds_of_a_late_submission_are_kept(tmp_path: Path) -> None:
    journal = [making.acked(0, 86_399.123_457)]
    submitted, _ = exported(making.run(tmp_path, 1, chain(0, 86_400.0), journal=journal))
    assert submitted[0]["submitTimestamp"] == "2026-01-02T09:59:59.373457+00:00"


@pytest.mark.parametrize("rest_ns", [0, 1, 499, 500, 501, 999])
def test_a_whole_second_stays_that_second_whenever_the_run_began(
    rest_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run begins at any nanosecond of its client's clock; the submission is cut to microseconds as `submit` does."""
    monkeypatch.setattr(making, "ORIGIN_NS", making.ORIGIN_NS + rest_ns)
    submitted, sampled = exported(making.run(tmp_path, 1, chain(0, 3_000_000.0), journal=[making.acked(0, 86_399.0)]))
    assert submitted[0]["submitTimestamp"] == "2026-01-02T09:59:59.250000+00:00"
    assert sampled[0]["jobCreatedTimestamp"] == at(3_000_001.0)
    assert sampled[0]["podSchedulingDecisionTimestamp"].removesuffix("+00:00") + "Z" == at(3_000_009.0)


def test_what_failed_was_not_submitted(tmp_path: Path) -> None:
    sent = making.ORIGIN_NS
    journal = [making.acked(0, 0.0), run_records.Failed(1, sent, sent + 1, "no room", status=403)]
    submitted, sampled = exported(making.run(tmp_path, 3, chain(0), journal=journal))
    assert [row["jobName"] for row in submitted] == [name(0)]
    assert [row["jobName"] for row in sampled] == [name(0)]


def test_an_incomplete_workload_is_left_out_and_counted(tmp_path: Path) -> None:
    without = [line for line in chain(1) if line.resource != "podgroup"]
    folder = making.run(tmp_path, 3, chain(0) + without)
    found = build_view(folder)
    assert (len(found.sent), found.jobs["name"].to_list()) == (3, [name(0)])
    assert found.incomplete["podGroupCreatedTimestamp"] == 2
    assert found.incomplete["firstPodCreatedTimestamp"] == 1
    done = CliRunner().invoke(app, ["export-upstream", str(folder)])
    assert done.exit_code == 1
    assert "2 missing from sampled.json: no podGroupCreatedTimestamp" in done.stdout


@pytest.mark.parametrize("kind", ["Pod", "Job", "Gang", "PyTorchJob", "Deployment"])
def test_a_run_whose_scheduler_makes_no_pod_groups_is_exported_all_the_same(kind: str, tmp_path: Path) -> None:
    plain = [line for line in chain(0) + chain(1) if line.resource != "podgroup"]
    folder = making.run(tmp_path, 2, plain, kind=kind)
    done = CliRunner().invoke(app, ["export-upstream", str(folder)])
    assert done.exit_code == 0
    assert "2 submitted, 2 sampled, 2 in times.csv" in done.stdout
    assert "2 have no PodGroup: the time of their first pod is used instead" in done.stdout
    _, sampled = exported(folder)
    assert {one["podGroupCreatedTimestamp"] for one in sampled} == {"2026-01-01T10:00:02Z"}


def test_pods_that_replaced_lost_ones_are_not_the_last_pod(tmp_path: Path) -> None:
    later = seen(0, "pod", "created", at(200.0), "w0-pod-9", owner="w0-job")
    _, sampled = exported(making.run(tmp_path, 1, [*chain(0), later]))
    assert sampled[0]["lastPodCreatedTimestamp"] == "2026-01-01T10:00:04+00:00"


def test_unschedulable_is_the_decision_until_the_pod_is_bound(tmp_path: Path) -> None:
    waiting = [line for line in chain(0) if line.transition != "scheduled"]
    told = seen(0, "pod", "unschedulable", at(6.4), "w0-pod-0", reason="Unschedulable")
    _, sampled = exported(making.run(tmp_path / "a", 1, [*waiting, told]))
    assert sampled[0]["podSchedulingDecisionTimestamp"] == "2026-01-01T10:00:06+00:00"
    _, sampled = exported(making.run(tmp_path / "b", 1, [told, *chain(0)]))
    assert sampled[0]["podSchedulingDecisionTimestamp"] == "2026-01-01T10:00:09+00:00"


def test_an_eviction_is_told_of_the_workload_that_it_was_for(tmp_path: Path) -> None:
    told = seen(None, "event", "evicted", at(8.0), "event-1", owner="w0-pod-0", reason="Evict by pg-w1")
    _, sampled = exported(making.run(tmp_path, 2, [*chain(0), *chain(1), told]))
    assert sampled[0]["firstEvictionTimestamp"] == sampled[0]["podSchedulingDecisionTimestamp"]
    assert sampled[1]["firstEvictionTimestamp"] == "2026-01-01T10:00:08+00:00"


def test_volumes_are_told(tmp_path: Path) -> None:
    told = [seen(0, "event", "pvc-requested", at(6.0), "event-1"), seen(0, "event", "pvc-bound", at(8.0), "event-2")]
    found = delta_chain.build_deltas(build_view(making.run(tmp_path, 1, chain(0) + told)).jobs)
    wanted = found.filter(pl.col("step").is_in(["First PVC Bind Request", "First PVC Bind"]))
    assert dict(wanted.select("step", "delta_s").iter_rows()) == {"First PVC Bind Request": 1, "First PVC Bind": 2}


def test_a_job_that_is_the_workload_itself_has_its_time(tmp_path: Path) -> None:
    plain = [line for line in chain(0) if line.resource != "job"]
    assert build_view(making.run(tmp_path / "a", 1, plain, kind="Job")).jobs["job_at_s"].to_list() == [1767261600]
    assert build_view(making.run(tmp_path / "b", 1, plain)).incomplete == {"jobCreatedTimestamp": 1}


def test_a_project_keeps_the_prefix_inside_its_name(tmp_path: Path) -> None:
    submitted, _ = exported(making.run(tmp_path, 1, chain(0), namespace="runai-my-runai-tests"))
    assert submitted[0]["projectName"] == "my-runai-tests"


def test_the_old_layout_is_given_on_request(tmp_path: Path) -> None:
    folder = making.run(tmp_path, 1, chain(0))
    done = CliRunner().invoke(app, ["export-upstream", str(folder), "--bug-compatible", "--json"])
    assert done.exit_code == 0
    lines = Path(json.loads(done.stdout)["files"][2]).read_text().splitlines()
    assert [len(line.split(",")) for line in lines] == [23, 26]


def test_the_golden_files_survive_the_way_through_a_run_folder(shared: Path, tmp_path: Path) -> None:
    old = shared / "golden" / "scaletest"
    export_run(import_folder(old, out=tmp_path).run.folder, tmp_path / "new", bug_compatible=True)
    assert (tmp_path / "new" / "times.csv").read_bytes() == (old / "times.csv").read_bytes()
    kept = json.loads((tmp_path / "new" / runai_files.SUBMITTED).read_text())
    assert kept == json.loads((old / runai_files.SUBMITTED).read_text())
    samples = json.loads((tmp_path / "new" / runai_files.SAMPLED).read_text())
    assert samples == [
        row for row in json.loads((old / runai_files.SAMPLED).read_text()) if row["jobName"] != "j-notsub"
    ]
