"""The last night against its week: what changed is found, named and booked to the second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.worlds.spark_weeks import CAUSES, write_week
from workbench.core.errors import InputError
from workbench.speedup.command import app
from workbench.speedup.config import WatchConfig
from workbench.speedup.nightly.job_runs import read_job_runs, simplify_name
from workbench.speedup.nightly.night_change import SLOWER, UNKNOWN
from workbench.speedup.nightly.watch import Watch, watch_job

RUNNER = CliRunner()


def watch(folder: Path, **settings: object) -> Watch:
    return watch_job(WatchConfig.model_validate({"logs": str(folder), **settings}))


@pytest.mark.parametrize("change", CAUSES)
def test_each_kind_of_change_is_booked_to_its_cause(change: str, tmp_path: Path) -> None:
    write_week(7, tmp_path, change, noise=0.01)
    result = watch(tmp_path)
    assert result.finding == SLOWER
    assert result.causes["cause"][0] == CAUSES[change]
    assert result.is_alarm
    # All seconds are booked, to the last.
    usual_s = result.nights.filter(role="usual")["wall_s"][0]
    assert result.last.wall_s is not None
    assert result.causes["change_s"].sum() == pytest.approx(result.last.wall_s - usual_s)


def test_a_setting_that_differs_every_night_is_no_cause(tmp_path: Path) -> None:
    write_week(3, tmp_path, noise=0.01)
    for number, log in enumerate(sorted(tmp_path.iterdir())):
        text = log.read_text(encoding="utf-8")
        log.write_text(
            text.replace('"Spark Properties":{', f'"Spark Properties":{{"spark.my.run":"r{number}",'), "utf-8"
        )
    assert "settings" not in watch(tmp_path).causes["cause"]


def test_a_run_that_is_not_whole_is_left_out_and_as_the_last_one_is_not_judged(tmp_path: Path) -> None:
    write_week(4, tmp_path)
    logs = sorted(tmp_path.iterdir())
    cut(logs[2])
    result = watch(tmp_path)
    assert result.change is not None
    assert (result.change.n, result.nights["role"].to_list().count("left out")) == (6, 1)
    cut(logs[-1])
    result = watch(tmp_path)
    assert (result.finding, result.is_alarm) == (UNKNOWN, True)
    assert result.reasons[0].startswith("the log of the last run is not whole")
    for log in logs[3:5]:
        cut(log)
    logs[-1].unlink()
    assert watch(tmp_path).reasons[0].startswith("3 earlier runs count, at least 5 are needed; left out: ")


def cut(log: Path) -> None:
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")


def test_jobs_are_told_apart_by_name_without_dates(tmp_path: Path) -> None:
    write_week(1, tmp_path / "one")
    write_week(2, tmp_path / "two", name="hourly report 2026-11-30 04:00")
    with pytest.raises(InputError, match=r"nightly load \(8 runs\)"):
        read_job_runs(str(tmp_path))
    with pytest.raises(InputError, match="no such job"):
        read_job_runs(str(tmp_path), "weekly")
    for job in ("Nightly load", "hourly*", "hourly report 2026-01-01 00:00"):
        assert len(read_job_runs(str(tmp_path), job)) == 8
    assert simplify_name("q72") == "q72"


def test_the_command_ends_with_1_for_a_slower_night_and_keeps_its_tables(tmp_path: Path) -> None:
    write_week(5, tmp_path / "quiet", noise=0.01)
    quiet = RUNNER.invoke(app, ["watch", str(tmp_path / "quiet")])
    assert quiet.exit_code == 0, quiet.output
    assert quiet.output.startswith("As usual: ")
    write_week(5, tmp_path / "slow", "volume", noise=0.01)
    out = tmp_path / "run"
    slow = RUNNER.invoke(app, ["watch", str(tmp_path / "slow"), "--json", "--out", str(out)])
    assert slow.exit_code == 1
    document = json.loads(slow.stdout)
    assert (document["finding"], document["verdict"]) == (SLOWER, "valid")
    assert "read " in document["details"][0]
    assert json.loads((out / "run.json").read_text())["answer"] == document["answer"]
    assert {path.stem for path in (out / "tables").iterdir()} == {"nights", "night_causes"}


def test_a_query_that_failed_is_an_alarm_although_the_night_was_as_long_as_usual(tmp_path: Path) -> None:
    write_week(6, tmp_path, "failed query", noise=0.05)
    result = watch(tmp_path)
    assert result.last.n_failed_queries >= 1
    assert result.is_alarm
    assert any("failed" in text for text in result.details)
