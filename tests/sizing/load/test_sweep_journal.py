"""The folder of a sweep: whole steps only, resumed after any end, never a secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.hostile import Hostile, Plan, hostile
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.files import OUT_VARIABLE
from workbench.runs import run_folder
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.load.load_step import StepResult
from workbench.sizing.load.sweep_journal import lock_sweep_folder
from workbench.sizing.load.sweep_report import SweepWatcher
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.tables import POINTS, QUANTILES, REQUESTS, STEPS

pytestmark = pytest.mark.live

FEW = {"least_samples": 20, "most_samples": 20, "min_step_s": 0.0, "processes": 0, "timeout_s": 20.0}
GUARD_S = 180.0


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition; the limit only guards against a hang."""
    end = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def only_folder(out: Path) -> Path:
    return next((out / "sizing").iterdir())


@pytest.mark.smoke
def test_a_sweep_is_a_run_folder_with_its_tables(tmp_path: Path) -> None:
    with hostile() as server:
        found = run_sweep(url=server.url, users=[1, 2], out=tmp_path, **FEW)
    assert found.folder == only_folder(tmp_path)
    record = run_folder.load_run(found.folder)
    assert (record.area, record.status) == ("sizing", "succeeded")
    assert record.read_table(REQUESTS).equals(found.requests)
    assert record.read_table(STEPS).equals(found.steps)
    assert record.read_table(POINTS).equals(found.points)
    assert record.read_table(QUANTILES).equals(found.quantiles)
    assert json.loads((found.folder / "sweep.json").read_text())["finished"] is True


def test_without_a_place_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUT_VARIABLE, str(tmp_path))
    with hostile() as server:
        found = run_sweep(url=server.url, users=[1], **FEW)
    assert found.folder is None
    assert not list(tmp_path.iterdir())


def test_each_step_is_on_disk_when_it_ends(tmp_path: Path) -> None:
    seen = []

    class Look(SweepWatcher):
        def on_step_end(self, held: StepResult) -> None:
            seen.append((held.load.step, STEPS.read(only_folder(tmp_path) / "tables")["step"].to_list()))

    with hostile() as server:
        run_sweep(url=server.url, users=[1, 2, 3], out=tmp_path, watcher=Look(), **FEW)
    assert seen == [(0, [0]), (1, [0, 1]), (2, [0, 1, 2])]


def test_the_toolkits_calculator_finds_the_levels(tmp_path: Path) -> None:
    with hostile(delay_s=0.01) as server:
        many = FEW | {"least_samples": 200, "most_samples": 200}
        good = run_sweep(url=server.url, users=[2, 3], out=tmp_path, **many)
    assert good.folder is not None
    levels = calc_file.read_recorded_levels(good.folder).metrics
    assert sorted(levels) == [2, 3]
    for row in good.points.iter_rows(named=True):
        level = levels[int(row["load"])]
        p95 = good.quantiles.filter((pl.col("step") == row["step"]) & (pl.col("q") == 0.95))
        assert len(level.per_item_metrics) == row["n_ok"]
        assert level.workflow_runtime_p95 == pytest.approx(p95.filter(pl.col("metric") == "runtime")["value_s"][0])
        assert level.llm_latency_p95 == pytest.approx(p95.filter(pl.col("metric") == "llm")["value_s"][0])
        assert level.alerts.workflow_interrupted is (row["verdict"] in ("client-limited", "server-limited"))


def test_a_level_with_too_many_failures_is_interrupted_for_the_calculator(tmp_path: Path) -> None:
    with hostile(shares={"4xx": 0.25}) as server:
        found = run_sweep(url=server.url, users=[4], out=tmp_path, **FEW)
    assert found.folder is not None
    level = calc_file.read_recorded_levels(found.folder).metrics[4]
    assert level.alerts.workflow_interrupted
    assert level.workflow_runtime_p95 > 0


def test_a_sweep_that_a_limit_ended_is_gone_on_with(tmp_path: Path) -> None:
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1, 2, 3], out=tmp_path, max_requests=30, **FEW)
        assert (first.ended, server.total) == ("limit", 30)
        second = run_sweep(resume=first.folder, max_requests=100_000)
        assert server.total == second.requests.height
    assert second.ended == "finished"
    assert second.folder == first.folder
    assert second.steps.filter(pl.col("stopped") != "limit")["users"].to_list() == [1, 2, 3]
    assert second.requests.filter(pl.col("step") < first.steps.height).equals(first.requests)


def test_a_finished_sweep_has_nothing_left_to_do(tmp_path: Path) -> None:
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1], out=tmp_path, **FEW)
        total = server.total
        second = run_sweep(resume=first.folder)
        assert server.total == total
    assert second.requests.equals(first.requests)
    assert second.ended == "finished"


@pytest.mark.parametrize("other", [{"users": [5]}, {"seed": 3}, {"url": "http://127.0.0.1:1"}])
def test_a_sweep_is_not_gone_on_with_as_another(other: dict[str, Any], tmp_path: Path) -> None:
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1], out=tmp_path, **FEW)
        with pytest.raises(ConfigError, match="a resumed sweep keeps its settings"):
            run_sweep(resume=first.folder, **other)


def test_prompts_that_changed_are_noticed(tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("a\nb\n")
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1], out=tmp_path, prompts=prompts, **FEW)
        prompts.write_text("a\nc\n")
        with pytest.raises(InputError, match="no longer those of the sweep"):
            run_sweep(resume=first.folder)


def command(server: Hostile, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "workbench", "sizing", "run", "--url", server.url, "--out", str(out)),
        *("--samples", "20", "--most-samples", "20", "--max-step", "600", *more),
    ]


def steps_on_disk(out: Path) -> int:
    try:
        return len(json.loads((only_folder(out) / "sweep.json").read_text())["notes"])
    except (FileNotFoundError, StopIteration):
        return 0


@pytest.mark.smoke
@pytest.mark.parametrize("processes", ["0", "2"])
def test_after_a_kill_whole_steps_are_there_and_the_sweep_goes_on(processes: str, tmp_path: Path) -> None:
    # The second level never ends.
    with Hostile(Plan(delay_s=0.01, stall_above=1, stall_s=600.0)) as server:
        sweep = subprocess.Popen(command(server, tmp_path, "--users", "1,4", "--processes", processes))
        try:
            until(lambda: steps_on_disk(tmp_path) == 1, "one step on disk")
            until(lambda: server.in_flight >= 4, "all users of the second step in flight")
        finally:
            sweep.kill()
            sweep.wait(GUARD_S)
        folder = only_folder(tmp_path)
        before = REQUESTS.read(folder / "tables")
        assert STEPS.read(folder / "tables")["users"].to_list() == [1]
        server.plan.stall_above = None
        # Its client processes notice and go: nobody would stop them otherwise.
        until(lambda: not server.connected, "all connections closed")
        found = run_sweep(resume=folder)
    assert found.ended == "finished"
    assert found.steps["users"].to_list() == [1, 4]
    assert found.requests.filter(pl.col("step") == 0).equals(before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_requests_end_keeps_the_data_and_says_how_to_go_on(number: int, tmp_path: Path) -> None:
    with hostile(delay_s=0.1) as server:
        arguments = command(server, tmp_path, "--users", "4", "--samples", "100000", "--most-samples", "100000")
        sweep = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: server.total >= 20, "requests")
            os.kill(sweep.pid, number)
            out, err = sweep.communicate(timeout=GUARD_S)
        finally:
            sweep.kill()
        folder = only_folder(tmp_path)
        frame = REQUESTS.read(folder / "tables")
        assert frame.height == server.total
        assert set(frame["outcome"]) == {"ok"}
    assert sweep.returncode == 130
    assert "stopping: nothing more is sent, waiting for the requests in flight" in err
    assert f"resume: workbench sizing run --resume {folder}" in out
    assert "invalid: the sweep was interrupted" in out
    assert STEPS.read(folder / "tables")["stopped"].to_list() == ["interrupted"]
    assert run_folder.load_run(folder).status == "cancelled"


def test_no_file_of_a_sweep_holds_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "Bearer s3cr3t-0123456789"
    monkeypatch.setenv("KEY_OF_TEST", secret)
    with hostile(shares={"4xx": 0.5}, echo=True) as server:
        found = run_sweep(url=server.url, users=[2], out=tmp_path, header_env={"Authorization": "KEY_OF_TEST"}, **FEW)
        assert all(secret.encode() in head for head in server.heads)
    assert any("[redacted]" in what for what in found.failures[0])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"s3cr3t" not in path.read_bytes(), path
    assert "KEY_OF_TEST" in (only_folder(tmp_path) / "sweep.json").read_text()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON: the sweep"),
        ("[]", "not a sweep"),
        ('{"format_version": 99}', "newer workbench"),
        ('{"format_version": 1, "config": {}}', "not a sweep"),
        ('{"format_version": 1, "load_means": "", "config": {"url": "file:///etc/passwd"}}', "not a sweep's settings"),
        ("[" * 100_000, "nested too deeply for a sweep"),
    ],
)
def test_a_journal_that_is_none_is_refused(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(InputError, match=told):
        run_sweep(resume=tmp_path)


def test_steps_that_the_tables_lack_are_noticed(tmp_path: Path) -> None:
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1, 2], out=tmp_path, **FEW)
    assert first.folder is not None
    STEPS.write(first.steps.head(1), first.folder / "tables")
    with pytest.raises(InputError, match="steps of the sweep are missing"):
        run_sweep(resume=first.folder)


def test_a_sweep_whose_client_died_is_recorded_as_failed_and_can_be_gone_on_with(tmp_path: Path) -> None:
    marker = tmp_path / "die"
    (tmp_path / "mortal_for_sizing.py").write_text(
        "import asyncio, os, pathlib\n"
        "async def agent(prompt):\n"
        "    await asyncio.sleep(0.001)\n"
        f"    if pathlib.Path({str(marker)!r}).exists(): os._exit(3)\n"
    )

    class Die(SweepWatcher):
        def on_step_end(self, held: StepResult) -> None:
            marker.touch()

    settings = FEW | {"protocol": "function", "function": "mortal_for_sizing:agent", "processes": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(RunFailedError, match="a client process died with exit code 3"):
            run_sweep(users=[1, 2], out=tmp_path, watcher=Die(), **settings)
        folder = only_folder(tmp_path)
        assert run_folder.load_run(folder).status == "failed"
        marker.unlink()
        found = run_sweep(resume=folder)
    assert (found.ended, found.steps["users"].to_list()) == ("finished", [1, 2])
    assert run_folder.load_run(folder).status == "succeeded"


def test_two_sweeps_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with hostile() as server:
        first = run_sweep(url=server.url, users=[1], out=tmp_path, **FEW)
    with lock_sweep_folder(first.folder), pytest.raises(ConfigError, match="another sweep writes into this folder"):
        run_sweep(resume=first.folder)
