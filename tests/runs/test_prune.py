"""Runs that may go: which these are, and what is never deleted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kept_runs import kept
from workbench.cli import app
from workbench.core import redaction
from workbench.core.errors import ConfigError
from workbench.core.files import OUT_VARIABLE
from workbench.runs import catalogue, prune, run_folder


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def on_day(run: run_folder.Run, day: int) -> run_folder.Run:
    record = json.loads((run.folder / "run.json").read_text())
    at = f"2026-11-{day:02}T12:00:00+00:00"
    (run.folder / "run.json").write_text(json.dumps(record | {"started_at": at, "ended_at": at, "duration_s": 0}))
    return run


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(list(arguments))
    return int(ended.value.code or 0)


def ids(doomed: list[prune.PruneCandidate]) -> set[str]:
    return {one.run.run_id for one in doomed if one.kept_because is None}


def test_the_newest_of_each_area_stay(tmp_path: Path) -> None:
    made = [on_day(kept(tmp_path, area=area), day) for area in ("speedup", "lore") for day in (1, 2, 3)]
    assert ids(prune.plan_pruning(tmp_path, keep=1)) == {made[0].run_id, made[1].run_id, made[3].run_id, made[4].run_id}
    assert ids(prune.plan_pruning(tmp_path, keep=2, area="lore")) == {made[3].run_id}
    assert ids(prune.plan_pruning(tmp_path, keep=0)) == {run.run_id for run in made}


def test_age_and_status_go_together(tmp_path: Path) -> None:
    old, new = on_day(kept(tmp_path), 1), on_day(kept(tmp_path), 9)
    before = datetime(2026, 11, 5, tzinfo=UTC)
    assert ids(prune.plan_pruning(tmp_path, before=before)) == {old.run_id}
    assert ids(prune.plan_pruning(tmp_path, before=before, states=["failed", "died"])) == set()
    assert ids(prune.plan_pruning(tmp_path, states=["succeeded"])) == {old.run_id, new.run_id}


def test_without_yes_it_only_tells_what_would_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = kept(tmp_path)
    for more in ([], ["--yes", "--dry-run"]):
        assert call("runs", "prune", "--out", str(tmp_path), "--keep", "0", *more) == 0
        assert "1 run, " in capsys.readouterr().out
        assert run.folder.is_dir()


def test_with_yes_folders_go_and_their_bytes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = kept(tmp_path)
    size_bytes = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    assert call("runs", "prune", "--out", str(tmp_path), "--keep", "0", "--yes", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["deleted"], document["size_bytes"]) == (True, size_bytes)
    assert [(one["run_id"], one["kept_because"]) for one in document["runs"]] == [(run.run_id, None)]
    assert list((tmp_path / "speedup").iterdir()) == []


def test_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    doomed = prune.plan_pruning(tmp_path, keep=0)
    assert [one.kept_because for one in doomed] == ["it goes on"]
    prune.delete_runs(doomed)
    assert run.folder.is_dir()
    run.end("failed")


def test_a_run_that_another_process_took_up_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(tmp_path)
    doomed = prune.plan_pruning(tmp_path, keep=0)

    def taken(folder: Path) -> None:
        raise ConfigError("another process writes into this run folder")

    monkeypatch.setattr(prune, "acquire_lock", taken)
    assert [one.kept_because for one in prune.delete_runs(doomed)] == ["another process took it up"]
    assert run.folder.is_dir()


def test_a_folder_that_has_become_another_run_stays(tmp_path: Path) -> None:
    run = kept(tmp_path)
    doomed = prune.plan_pruning(tmp_path, keep=0)
    record = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(record | {"run_id": "another"}))
    assert [one.kept_because for one in prune.delete_runs(doomed)] == ["it is another run now"]
    assert run.folder.is_dir()
    assert not (run.folder / "run.lock").exists()


def test_what_is_not_surely_a_run_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "run.json").write_text('{"name": "my notes"}')
    assert call("runs", "prune", "--out", str(tmp_path), "--keep", "0", "--yes") == 0
    assert "not a run record" in capsys.readouterr().err
    assert (tmp_path / "notes" / "run.json").is_file()


def test_the_runs_folder_itself_and_a_run_that_holds_others_stay(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs")
    assert [one.kept_because for one in prune.plan_pruning(run.folder, keep=0)] == ["it is the runs folder itself"]
    shutil.copytree(run.folder, tmp_path / "inner")
    shutil.move(tmp_path / "inner", run.folder / "inner")
    assert [one.kept_because for one in prune.plan_pruning(tmp_path, keep=0)] == ["it holds other runs"]


def test_links_go_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (run.folder / "link").symlink_to(precious, target_is_directory=True)
    (run.folder / "tables" / "other.parquet").symlink_to(precious / "file")
    prune.delete_runs(prune.plan_pruning(tmp_path / "runs", keep=0))
    assert not run.folder.exists()
    assert (precious / "file").read_text() == "x"


def test_a_half_deleted_folder_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)

    def full(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "rmtree", full)
    (left,) = prune.delete_runs(prune.plan_pruning(tmp_path, keep=0))
    assert "parts are left" in (left.kept_because or "")
    assert catalogue.list_runs(tmp_path) == []


def test_a_deletion_that_the_system_refuses_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path)

    def refused(path: Path, target: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refused)
    assert call("runs", "prune", "--out", str(tmp_path), "--keep", "0", "--yes") == 3
    assert "stays: it cannot be deleted: Read-only file system" in " ".join(capsys.readouterr().out.split())
    assert run.folder.is_dir()


def test_a_run_that_ends_while_its_folder_is_judged_is_not_taken_for_died(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    read_before = run_folder.load_run(run.folder)
    run.end("succeeded")
    assert read_before.state == "succeeded"
    seen = catalogue.open_run(run.folder)
    stale = replace(seen, record=seen.record | {"status": "running"}, state="died")
    (kept_on,) = prune.delete_runs([prune.PruneCandidate(stale, 1)])
    assert kept_on.kept_because == "it has ended meanwhile: succeeded"
    assert run.folder.is_dir()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--keep", "-1"],
        ["--status", "fine"],
        ["--older-than", "old"],
        ["--area", "lore"],
        ["--keep", "0", "--area", ""],
        ["--keep", "0", "--status", ", "],
        ["--keep", "1", "--out", "s3://b"],
    ],
)
def test_a_prune_that_makes_no_sense_is_refused(tmp_path: Path, options: list[Any]) -> None:
    assert call("runs", "prune", *(["--out", str(tmp_path)] if "--out" not in options else []), *options) == 2
