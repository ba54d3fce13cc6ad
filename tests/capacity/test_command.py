"""`workbench capacity`: what is passed on, what is printed, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capacity.making import sizing_run
from workbench.cli import app
from workbench.runs import run_folder

PLAN = "users: ['100 hours=9']\nleast_replicas: 0\nusers_spread: 1.0\ndraws: 100\n"


Plan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    """The command with a plan file, for a sizing run."""
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)

    def run(sizing: Path, *words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(["capacity", "plan", "--sizing", str(sizing), "-f", str(path), *map(str, words)])
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    return run


def test_a_plan_of_a_service_alone_is_printed(tmp_path: Path, plan: Plan) -> None:
    code, out, err = plan(sizing_run(tmp_path))
    assert (code, err) == (0, "")
    assert out.startswith("Provide 1 node: the 09:00 peak needs 6 GPUs.\nP5 to P95: 6 GPUs on 1 node.\n")
    assert "note: Not covered: Spark jobs (no speedup run given)." in out
    assert "load per replica" in out


def test_an_invalid_run_ends_with_1_only_when_it_was_accepted(tmp_path: Path, plan: Plan) -> None:
    run = sizing_run(tmp_path, record={"verdict": "invalid", "reasons": ["the client was late"]})
    code, out, err = plan(run)
    assert (code, out) == (2, "")
    assert "--accept-invalid" in err
    code, out, _ = plan(run, "--accept-invalid")
    assert code == 1
    assert out.startswith("INVALID: run ")
    assert "the client was late" in out.splitlines()[0]


def test_a_run_folder_is_written_concluded_and_reads_as_a_run(tmp_path: Path, plan: Plan) -> None:
    folder = tmp_path / "out"
    code, out, _ = plan(sizing_run(tmp_path), "--out", folder)
    assert code == 0
    assert f"written: {folder}" in out
    run = run_folder.load_run(folder)
    assert (run.area, run.status, run.verdict) == ("capacity_plan", "succeeded", "valid")
    assert run.record["config"]["users"] == ["100 hours=9"]


def test_a_plan_that_cannot_be_made_leaves_no_run(tmp_path: Path, plan: Plan) -> None:
    code, _, err = plan(tmp_path / "none", "--out", tmp_path / "out")
    assert code == 2
    assert "not a run folder" in err
    assert not (tmp_path / "out").exists()


def test_the_settings_are_printed_as_a_plan_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["capacity", "settings"])
    assert not ended.value.code
    assert "gpus_per_node: 8" in capsys.readouterr().out.splitlines()
