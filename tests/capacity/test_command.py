"""`workbench capacity`: what is passed on, what is printed, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.capacity.making import SAMPLES, sizing_run
from workbench.cli import app
from workbench.runs import run_folder

PLAN = "users: ['100 hours=9']\nleast_replicas: 0\nusers_spread: 1.0\ndraws: 100\n"


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app.main(["capacity", *words])
    found = capsys.readouterr()
    return int(ended.value.code or 0), found.out, found.err


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return str(path)


def test_a_plan_of_a_service_alone_is_printed(tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "plan", "--sizing", str(sizing_run(tmp_path)), "-f", plan)
    assert (code, err) == (0, "")
    assert out.startswith("The peak hour needs 6 GPUs on 1 node ")
    assert "note: Not covered: Spark jobs (no speedup run given)." in out
    assert "load per replica" in out


def test_as_json_one_document_is_printed_and_nothing_else(
    tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ran(capsys, "plan", "--sizing", str(sizing_run(tmp_path)), "-f", plan, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["verdict"], told["peak_hour"], told["folder"]) == ("valid", 9, None)


def test_an_invalid_run_ends_with_1_only_when_it_was_accepted(
    tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(sizing_run(tmp_path, record={"verdict": "invalid", "reasons": ["the client was late"]}))
    code, out, err = ran(capsys, "plan", "--sizing", run, "-f", plan)
    assert (code, out) == (2, "")
    assert "--accept-invalid" in err
    code, out, _ = ran(capsys, "plan", "--sizing", run, "-f", plan, "--accept-invalid")
    assert code == 1
    assert out.startswith("INVALID: run ")
    assert "the client was late" in out.splitlines()[0]


def test_a_run_folder_is_written_concluded_and_reads_as_a_run(
    tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    code, out, _ = ran(capsys, "plan", "--sizing", str(sizing_run(tmp_path)), "-f", plan, "--out", str(folder))
    assert code == 0
    assert f"written: {folder}" in out
    run = run_folder.load_run(folder)
    assert (run.area, run.status, run.verdict) == ("capacity_plan", "succeeded", "valid")
    assert run.record["config"]["users"] == ["100 hours=9"]


def test_a_plan_that_cannot_be_made_leaves_a_run_that_failed(
    tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    code, _, err = ran(capsys, "plan", "--sizing", str(tmp_path / "none"), "-f", plan, "--out", str(folder))
    assert code == 2
    assert "not a run folder" in err
    assert not folder.exists()


def test_nothing_given_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "plan")
    assert (code, out) == (2, "")
    assert "nothing to plan for" in err


def test_texts_of_a_run_do_not_steer_the_terminal(
    tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(sizing_run(tmp_path, target="p95\x1b[2J <= 2 s"))
    _, out, _ = ran(capsys, "plan", "--sizing", run, "-f", plan)
    assert "\x1b" not in out


def test_the_settings_are_printed_as_a_plan_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "settings")
    assert code == 0
    assert "gpus_per_node: 8" in out.splitlines()


def test_the_samples_answer_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        word for name in ("speedup", "sizing", "indicators", "scaletest") for word in (f"--{name}", str(SAMPLES / name))
    ]
    code, out, _ = ran(capsys, "plan", *words)
    assert code == 0
    assert "Bound by service replicas; the scheduler keeps up" in out
