"""The commands with `--method seed`: what is written and printed, and that no failure ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools.conftest import Call
from workbench.speedup.compat_rapids_tools import seed_factors

SEED = ("--method", "seed")


def test_generate_writes_all_rows_and_prints_times_when_asked(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "factors.csv"
    code, printed, _ = speedup("generate", *SEED, "--cpu", cpu_log, "--gpu", gpu_log, "--output", out, "--verbose")
    assert code == 0
    assert printed.startswith("# CPU Operator Metrics\nProject = 2.0\n")
    assert printed.endswith("# Speedup Factors \nBatchScanExec = 1.0\nFileSourceScanExec = 1.0\nFilterExec = 1.0\n")
    assert seed_factors.read_factor_file(out)["SortExec"] == 2.0
    assert len(out.read_text().splitlines()) == 272


@pytest.mark.parametrize(
    ("cpu", "gpu", "message"),
    [
        ("nothing", "gpu_log", "no such file or folder"),
        ("cpu_log", "nothing", "no such file or folder"),
        ("gpu_log", "gpu_log", "an accelerated run on the CPU side"),
        ("cpu_log", "cpu_log", "a run without an accelerator plugin on the accelerated side"),
    ],
)
def test_generate_refuses_missing_and_swapped_logs_and_writes_nothing(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path, cpu: str, gpu: str, message: str
) -> None:
    out = tmp_path / "factors.csv"
    code, _, errors = speedup("generate", *SEED, "--cpu", tmp_path / cpu, "--gpu", tmp_path / gpu, "--output", out)
    assert code == 2
    assert message in errors
    assert not out.exists()


def test_generate_takes_profiles_and_logs_alike(speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    assert speedup("profile", "--csv", "--eventlogs", cpu_log, "--local_folder", profile)[0] == 0
    texts = []
    for number, cpu in enumerate((cpu_log, profile, profile / "rapids_4_spark_profile")):
        out = tmp_path / f"{number}.csv"
        assert speedup("generate", *SEED, "--cpu", cpu, "--gpu", gpu_log, "--output", out)[0] == 0
        texts.append(out.read_text())
    assert texts[0] == texts[1] == texts[2]


def test_swapped_profiles_are_refused(speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    assert speedup("profile", "--csv", "--eventlogs", cpu_log, "--local_folder", profile)[0] == 0
    code, _, errors = speedup("generate", *SEED, "--cpu", cpu_log, "--gpu", profile, "--output", tmp_path / "f.csv")
    assert code == 2
    assert "a run without an accelerator plugin on the accelerated side" in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["profile", "--csv", "--eventlogs", "cpu_log"], "a profile folder needs three options"),
        (["profile"], "no event log given"),
        (["qualify", *SEED, "cpu_log"], "give either --factors or --platform"),
        (["qualify", *SEED, "cpu_log", "--platform", "moon"], "onprem-a100"),
    ],
)
def test_options_that_do_not_fit_are_refused(speedup: Call, cpu_log: Path, arguments: list[str], told: str) -> None:
    code, _, errors = speedup(*(cpu_log if word == "cpu_log" else word for word in arguments))
    assert code == 2
    assert told in errors


def test_qualify_prints_an_estimate_and_writes_the_files(speedup: Call, cpu_log: Path, tmp_path: Path) -> None:
    platform = ("--platform", "onprem-a100")
    code, printed, _ = speedup("qualify", *SEED, cpu_log, *platform, "--local_folder", tmp_path / "out")
    assert code == 0
    assert printed.startswith("made (app-1): Recommended, ")
    folder = tmp_path / "out" / "rapids_4_spark_qualification_output"
    assert len(list(folder.glob("*.csv"))) == 6


def test_unusable_logs_are_rows_with_their_reason_beside_the_others(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    out = tmp_path / "out"
    words = (cpu_log, gpu_log, tmp_path / "empty", "--platform", "onprem-a100", "--out", out)
    code, printed, _ = speedup("qualify", *SEED, *words)
    assert code == 1
    assert "made (app-1)" in printed
    assert f"not estimated: {gpu_log}: an accelerated run on the CPU side" in printed
    status = next(out.rglob("*_status.csv")).read_text().splitlines()
    assert sorted(line.split(",")[1] for line in status[1:]) == ['"FAILURE"', '"FAILURE"', '"SUCCESS"']
