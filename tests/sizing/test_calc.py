"""`workbench sizing calc`: every flag by every name, what is printed and where, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sizing.conftest import Sizing
from workbench.sizing.compat_nat import calculator
from workbench.sizing.compat_nat.calculation import CONCURRENCIES, CalcGoal, Options
from workbench.sizing.compat_nat.calculator import CalculationResult, calculate_from_levels

ASKED = ("--target_workflow_runtime", "10", "--target_users", "100", "--test_gpu_count", "8")


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


@pytest.fixture
def calc(sizing: Sizing) -> Sizing:
    return partial(sizing, "calc")


@pytest.fixture
def offline(calc: Sizing, tmp_path: Path) -> Sizing:
    """The usual question to the jobs recorded in the test's folder, without pictures."""
    return partial(calc, "--offline_mode", "--calc_output_dir", tmp_path, *ASKED, "--no-plots")


@pytest.fixture
def options_of(calc: Sizing, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Options]:
    """What a command line asks for, without doing it."""
    seen: list[Options] = []

    def kept(options: Options, *, report: Any) -> CalculationResult:
        seen.append(options)
        return calculate_from_levels({}, CalcGoal())

    def asked(*words: str) -> Options:
        calc(*words)
        return seen.pop()

    monkeypatch.setattr(calculator, "run_calculation", kept)
    return asked


@pytest.mark.parametrize("dashed", [False, True])
def test_flags_reach_the_options(dashed: bool, options_of: Callable[..., Options]) -> None:
    words = [
        *("--config_file", "w.yml", "--target_llm_latency", "2.5", "--target_workflow_runtime", "9"),
        *("--target_users", "7", "--test_gpu_count", "3", "--calc_output_dir", "out", "--concurrencies", "1,,4,2"),
        *("--num_passes", "5", "--append_calc_outputs", "--endpoint", "http://a", "--endpoint_timeout", "12"),
        *("--header_env", "X-Key=A_KEY", "--seed", "4", "--no_plots", "--remove_older_jobs", "--server_clock"),
        *("--target_confirm", "a"),
    ]
    if dashed:
        words = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    assert options_of(*words) == Options(
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


def test_the_older_names_mean_the_same(options_of: Callable[..., Options]) -> None:
    found = options_of("--config", "w.yml", "--output_dir", "out", "--append_jobs", "--remote_endpoint", "http://a")
    assert found == Options(output_dir=Path("out"), config_file=Path("w.yml"), append=True, endpoint="http://a")


def test_defaults_are_those_of_the_toolkit(options_of: Callable[..., Options]) -> None:
    found = options_of("--config_file", "w.yml")
    assert (found.num_passes, found.append, found.endpoint_timeout_s, found.goal) == (0, False, 300, CalcGoal())
    assert (found.concurrencies or CONCURRENCIES) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert options_of("--config_file", "w.yml", "--keep_order").seed is None


def test_offline_the_answer_is_printed_and_written_with_both_pictures(calc: Sizing, tmp_path: Path) -> None:
    code, out, err = calc("--offline_mode", "--calc_output_dir", recorded(tmp_path), *ASKED)
    assert code == 0
    assert "Estimated GPU count (Workflow Runtime): 73.8" in out
    job = next((tmp_path / "offline").iterdir())
    pictures = ["concurrency_vs_p95_analysis.png", "concurrency_vs_p95_simple.png"]
    assert sorted(path.name for path in job.iterdir()) == ["calc_notes.json", "calc_runner_output.json", *pictures]
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in job.glob("*.png"))
    assert f"wrote {job / 'calc_runner_output.json'}" in err


def test_no_plots_and_no_write_leave_out_what_they_say(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    assert offline("--no-write").code == 0
    assert not (tmp_path / "offline").exists()
    assert offline().code == 0
    assert list(tmp_path.glob("offline/*/*.png")) == []


def test_json_is_one_document_and_nothing_else(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    document = json.loads(offline("--json").out)
    written = json.loads((Path(document["folder"]) / "calc_runner_output.json").read_text())
    assert document["output"] == written
    assert document["answers"][0]["metric"] == "wf_runtime"
    assert document["exit_code"] == 0
    assert document["source"] == {str(level): "job_1" for level in range(1, 11)}


def test_flags_that_do_nothing_offline_say_so(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    words = ("--concurrencies", "1,2", "--num_passes", "3", "--endpoint", "http://a", "--config_file", "none.yml")
    code, _, err = offline(*words)
    assert code == 0
    assert "ignored offline: --config_file, --concurrencies, --num_passes, --endpoint (all recorded levels" in err


def test_nothing_is_deleted_unless_asked(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    said = [offline() for _ in range(3)]
    assert [one.code for one in said] == [0, 0, 0]
    assert len(list((tmp_path / "offline").iterdir())) == 3
    assert "2 older offline job(s) kept (--remove_older_jobs removes them" in said[2].err
    assert offline("--remove_older_jobs").code == 0
    assert [len(list((tmp_path / mode).iterdir())) for mode in ("offline", "online")] == [1, 1]


def test_levels_of_several_jobs_are_told_apart(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path, {1: 4.1, 2: 4.7})
    recorded(tmp_path, {2: 4.8, 4: 5.9}, job="job_2")
    code, _, err = offline()
    assert code == 0
    assert "levels of 2 jobs" in err
    assert "1 of job_1" in err


def test_a_poor_line_has_exit_code_1_and_a_reason(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path, dict.fromkeys(range(1, 5), 5.0))
    code, out, _ = offline()
    assert code == 1
    assert "No estimate (Workflow Runtime): p95 does not follow a line" in out
    assert len(list(tmp_path.glob("offline/*/calc_runner_output.json"))) == 1


def test_a_target_below_the_line_has_exit_code_2_and_is_written(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    code, out, _ = offline("--target_workflow_runtime", "3", "--target_llm_latency", "2")
    assert code == 2
    assert "No estimate (Workflow Runtime): the target of 3 s is not above" in out
    assert "Estimated GPU count (LLM Latency)" in out
    (job,) = (tmp_path / "offline").iterdir()
    estimates = json.loads((job / "calc_runner_output.json").read_text())["gpu_estimates"]
    assert estimates["gpu_estimate_by_wf_runtime"] is None
    assert estimates["gpu_estimate_by_llm_latency"] > 0
    assert "not above" in json.loads((job / "calc_notes.json").read_text())["answers"][0]["reason"]


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
        ((*OFFLINE, *ASKED, "--concurrencies", "1,two"), "whole numbers"),
        ((*OFFLINE, *ASKED, "--num_passes", "-1"), "not a number of passes"),
        ((*OFFLINE, *ASKED, "--no_write", "--remove_older_jobs"), "only removed for a new one"),
        ((*OFFLINE, *ASKED, "--target_llm_latency", "nan"), "not a target"),
        (("--config_file", "none.yml"), "config file cannot be read"),
        (("--config_file", "none.yml", "--endpoint_timeout", "0"), "not a time limit"),
        (("--config_file", "none.yml", "--header_env", "s3cret"), "where: --header_env"),
    ],
)
def test_wrong_use_is_refused_with_exit_code_2_and_one_message(
    words: tuple[str, ...], told: str, calc: Sizing, tmp_path: Path
) -> None:
    """The toolkit ends with 0 for most of these, and with a traceback for the others."""
    code, out, err = calc(*(tmp_path if word == "DIR" else word for word in words))
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert "s3cret" not in err
    assert not (tmp_path / "offline").exists()


def test_texts_of_a_file_cannot_steer_the_terminal(offline: Sizing, tmp_path: Path) -> None:
    recorded(tmp_path)
    bad = tmp_path / "online" / "job_2" / "calc_runner_output.json"
    bad.parent.mkdir()
    bad.write_text(json.dumps({"calc_data": {"\x1b]0;x": {}}}))
    code, out, err = offline()
    assert (code, "\x1b" in out + err) == (0, False)


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
