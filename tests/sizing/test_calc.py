"""`workbench sizing calc`: every flag by every name, what is printed and where, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from workbench.cli import app as cli_app
from workbench.sizing.command import app
from workbench.sizing.compat_nat import calculator
from workbench.sizing.compat_nat.calculation import CONCURRENCIES, CalcGoal, Options
from workbench.sizing.compat_nat.calculator import CalculationResult, calculate_from_levels

ASKED = ("--target_workflow_runtime", "10", "--target_users", "100", "--test_gpu_count", "8")
TOOLKITS = (
    "config_file",
    "offline_mode",
    "target_llm_latency",
    "target_workflow_runtime",
    "target_users",
    "test_gpu_count",
    "calc_output_dir",
    "concurrencies",
    "num_passes",
    "append_calc_outputs",
    "endpoint",
    "endpoint_timeout",
)
OLDER = ("config", "output_dir", "append_jobs", "remote_endpoint")


def recorded(folder: Path, runtime: dict[int, float] | None = None, *, job: str = "job_1") -> Path:
    """A folder with one online job: LLM latency is a fifth of the runtime."""
    runtime = runtime or {level: 3.5 + 0.6 * level for level in range(1, 11)}
    levels = {
        str(level): {
            "sizing_metrics": {
                "llm_latency_p95": value / 5,
                "workflow_runtime_p95": value,
                "total_runtime": 2 * value,
                "per_item_metrics": {"a": {"llm_latency": value / 5, "workflow_runtime": value}},
            }
        }
        for level, value in runtime.items()
    }
    path = folder / "online" / job / "calc_runner_output.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"calc_data": levels}))
    return folder


def call(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli_app.main(["sizing", "calc", *map(str, words)])
    return int(ended.value.code or 0)


def options_of(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> Options:
    """What a command line asks for, without doing it."""
    seen: list[Options] = []

    def kept(options: Options, *, report: Any) -> CalculationResult:
        del report
        seen.append(options)
        return calculate_from_levels({}, CalcGoal())

    monkeypatch.setattr(calculator, "run_calculation", kept)
    call(*words)
    return seen[0]


def test_every_flag_of_the_toolkit_is_there_with_underscores_and_with_dashes() -> None:
    command = typer.main.get_group(app).get_command(None, "calc")
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    assert {f"--{name}" for name in (*TOOLKITS, *OLDER)} <= known
    assert {f"--{name.replace('_', '-')}" for name in (*TOOLKITS, *OLDER)} <= known


@pytest.mark.parametrize("dashed", [False, True])
def test_flags_reach_the_options(dashed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        *("--config_file", "w.yml", "--target_llm_latency", "2.5", "--target_workflow_runtime", "9"),
        *("--target_users", "7", "--test_gpu_count", "3", "--calc_output_dir", "out", "--concurrencies", "1,,4,2"),
        *("--num_passes", "5", "--append_calc_outputs", "--endpoint", "http://a", "--endpoint_timeout", "12"),
        *(
            "--header_env",
            "X-Key=A_KEY",
            "--seed",
            "4",
            "--no_plots",
            "--remove_older_jobs",
            "--server_clock",
            "--target_confirm",
            "a",
        ),
    ]
    if dashed:
        words = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    assert options_of(monkeypatch, *words) == Options(
        output_dir=Path("out"),
        goal=CalcGoal(2.5, 9.0, 7, 3),
        config_file=Path("w.yml"),
        concurrencies=(1, 4, 2),
        num_passes=5,
        append=True,
        endpoint="http://a",
        endpoint_timeout_s=12,
        target_confirm="a",
        header_env={"X-Key": "A_KEY"},
        server_clock=True,
        seed=4,
        remove_older=True,
        plots=False,
    )


def test_the_older_names_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(
        monkeypatch, *["--config", "w.yml", "--output_dir", "out", "--append_jobs", "--remote_endpoint", "http://a"]
    )
    assert found == Options(output_dir=Path("out"), config_file=Path("w.yml"), append=True, endpoint="http://a")


def test_defaults_are_those_of_the_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(monkeypatch, "--config_file", "w.yml")
    assert (found.num_passes, found.append, found.endpoint_timeout_s, found.goal) == (0, False, 300, CalcGoal())
    assert (found.concurrencies or CONCURRENCIES) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert options_of(monkeypatch, "--config_file", "w.yml", "--keep_order").seed is None


def test_offline_the_answer_is_printed_and_written_with_both_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--offline_mode", "--calc_output_dir", recorded(tmp_path), *ASKED) == 0
    said = capsys.readouterr()
    assert "Estimated GPU count (Workflow Runtime): 73.8" in said.out
    job = next((tmp_path / "offline").iterdir())
    assert sorted(path.name for path in job.iterdir()) == [
        "calc_notes.json",
        "calc_runner_output.json",
        "concurrency_vs_p95_analysis.png",
        "concurrency_vs_p95_simple.png",
    ]
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in job.glob("*.png"))
    assert f"wrote {job / 'calc_runner_output.json'}" in said.err


def test_no_plots_and_no_write_leave_out_what_they_say(tmp_path: Path) -> None:
    recorded(tmp_path)
    assert call("--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots", "--no-write") == 0
    assert not (tmp_path / "offline").exists()
    assert call("--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots") == 0
    assert list(tmp_path.glob("offline/*/*.png")) == []


def test_json_is_one_document_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--offline_mode", "--calc_output_dir", recorded(tmp_path), *ASKED, "--no-plots", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    written = json.loads((Path(document["folder"]) / "calc_runner_output.json").read_text())
    assert document["output"] == written
    assert document["answers"][0]["metric"] == "wf_runtime"
    assert document["exit_code"] == 0
    assert document["source"] == {str(level): "job_1" for level in range(1, 11)}


def test_flags_that_do_nothing_offline_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--concurrencies", "1,2", "--num_passes", "3", "--endpoint", "http://a", "--config_file", "none.yml")
    assert call("--offline_mode", "--calc_output_dir", recorded(tmp_path), *ASKED, "--no-plots", *words) == 0
    said = capsys.readouterr().err
    assert "ignored offline: --config_file, --concurrencies, --num_passes, --endpoint (all recorded levels" in said


def test_nothing_is_deleted_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--offline_mode", "--calc_output_dir", recorded(tmp_path), *ASKED, "--no-plots")
    assert [call(*words) for _ in range(3)] == [0, 0, 0]
    assert len(list((tmp_path / "offline").iterdir())) == 3
    assert "2 older offline job(s) kept (--remove_older_jobs removes them" in capsys.readouterr().err
    assert call(*words, "--remove_older_jobs") == 0
    assert len(list((tmp_path / "offline").iterdir())) == 1
    assert len(list((tmp_path / "online").iterdir())) == 1


def test_levels_of_several_jobs_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, {1: 4.1, 2: 4.7})
    recorded(tmp_path, {2: 4.8, 4: 5.9}, job="job_2")
    assert call("--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots") == 0
    said = capsys.readouterr().err
    assert "levels of 2 jobs" in said
    assert "1 of job_1" in said


def test_a_poor_line_has_exit_code_1_and_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, dict.fromkeys(range(1, 5), 5.0))
    assert call("--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots") == 1
    assert "No estimate (Workflow Runtime): p95 does not follow a line" in capsys.readouterr().out
    assert len(list(tmp_path.glob("offline/*/calc_runner_output.json"))) == 1


def test_a_target_below_the_line_has_exit_code_2_and_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--target_workflow_runtime",
        "3",
        "--target_llm_latency",
        "2",
        "--target_users",
        "9",
        "--test_gpu_count",
        "1",
    )
    assert call("--offline_mode", "--calc_output_dir", recorded(tmp_path), *words, "--no-plots") == 2
    said = capsys.readouterr().out
    assert "No estimate (Workflow Runtime): the target of 3 s is not above" in said
    assert "Estimated GPU count (LLM Latency)" in said
    written = json.loads(next(tmp_path.glob("offline/*/calc_runner_output.json")).read_text())
    assert written["gpu_estimates"]["gpu_estimate_by_wf_runtime"] is None
    assert written["gpu_estimates"]["gpu_estimate_by_llm_latency"] > 0
    notes = json.loads(next(tmp_path.glob("offline/*/calc_notes.json")).read_text())
    assert "not above" in notes["answers"][0]["reason"]


OFFLINE = ("--offline_mode", "--calc_output_dir", "DIR")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "a config file is required online"),
        (("--offline_mode", *ASKED), "an output folder is required offline"),
        ((*OFFLINE, "--target_users", "9", "--test_gpu_count", "1"), "no target"),
        ((*OFFLINE, "--target_llm_latency", "1", "--target_users", "9"), "no GPU count"),
        ((*OFFLINE, "--target_llm_latency", "1", "--test_gpu_count", "9"), "no users"),
        ((*OFFLINE, *ASKED, "--append_calc_outputs"), "only appended online"),
        ((*OFFLINE, *ASKED, "--concurrencies", "1,1"), "levels given twice"),
        ((*OFFLINE, *ASKED, "--concurrencies", "1"), "at least two levels"),
        ((*OFFLINE, *ASKED, "--concurrencies", "0,1"), "not a level"),
        ((*OFFLINE, *ASKED, "--concurrencies", "-2,1"), "not a level"),
        ((*OFFLINE, *ASKED, "--concurrencies", "1,two"), "whole numbers"),
        ((*OFFLINE, *ASKED, "--concurrencies", "1,2.5"), "whole numbers"),
        ((*OFFLINE, *ASKED, "--num_passes", "-1"), "not a number of passes"),
        ((*OFFLINE, *ASKED, "--no_write", "--remove_older_jobs"), "only removed for a new one"),
        ((*OFFLINE, *ASKED, "--target_llm_latency", "-1"), "not a target"),
        ((*OFFLINE, *ASKED, "--target_llm_latency", "nan"), "not a target"),
        ((*OFFLINE, *ASKED), "no folder of recorded jobs"),
        (("--config_file", "none.yml"), "config file cannot be read"),
        (("--config_file", "none.yml", "--endpoint_timeout", "0"), "not a time limit"),
        (("--config_file", "none.yml", "--header_env", "s3cret"), "where: --header_env"),
    ],
)
def test_wrong_use_is_refused_with_exit_code_2_and_one_message(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toolkit ends with 0 for most of these, and with a traceback for the others."""
    assert call(*(tmp_path if word == "DIR" else word for word in words)) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert "Traceback" not in said.err
    assert "s3cret" not in said.err
    assert said.out == ""
    assert not (tmp_path / "offline").exists()


def test_texts_of_a_file_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path)
    bad = tmp_path / "online" / "job_2" / "calc_runner_output.json"
    bad.parent.mkdir()
    bad.write_text(json.dumps({"calc_data": {"\x1b]0;x": {}}}))
    assert call("--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots") == 0
    assert "\x1b" not in "".join(capsys.readouterr())


def test_an_offline_calculation_loads_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys; from workbench import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as ended: print(ended.code, [name for name in "
        "('polars', 'altair', 'pandas', 'scipy', 'vl_convert', 'aiohttp', 'yaml', 'rich') if name in sys.modules])"
    )
    words = ["sizing", "calc", "--offline_mode", "--calc_output_dir", str(recorded(tmp_path)), *ASKED, "--no-plots"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 []"
