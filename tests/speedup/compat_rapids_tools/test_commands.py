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


def test_profile_with_csv_needs_its_companions(speedup: Call, cpu_log: Path) -> None:
    code, _, errors = speedup("profile", "--csv", "--eventlogs", cpu_log)
    assert code == 2
    assert "a profile folder needs three options" in errors


def test_profile_without_a_log_says_so(speedup: Call) -> None:
    code, _, errors = speedup("profile")
    assert code == 2
    assert "no event log given" in errors


def test_qualify_prints_an_estimate_and_writes_the_files(speedup: Call, cpu_log: Path, tmp_path: Path) -> None:
    arguments = ("qualify", *SEED, cpu_log, "--platform", "onprem-a100", "--local_folder", tmp_path / "out")
    code, printed, _ = speedup(*arguments)
    assert code == 0
    assert printed.startswith("made (app-1): Recommended, ")
    folder = tmp_path / "out" / "rapids_4_spark_qualification_output"
    assert len(list(folder.glob("*.csv"))) == 6


def test_qualify_wants_one_source_of_factors(speedup: Call, cpu_log: Path) -> None:
    code, _, errors = speedup("qualify", *SEED, cpu_log)
    assert (code, "give either --factors or --platform" in errors) == (2, True)


def test_an_unknown_platform_lists_the_known_ones(speedup: Call, cpu_log: Path) -> None:
    code, _, errors = speedup("qualify", *SEED, cpu_log, "--platform", "moon")
    assert code == 2
    assert "no such platform" in errors
    assert "onprem-a100" in errors


def test_a_misspelt_operator_stops_qualification(speedup: Call, cpu_log: Path, tmp_path: Path) -> None:
    factors = tmp_path / "factors.csv"
    factors.write_text("CPUOperator,Score\nFilterExce,2.0\n")
    code, _, errors = speedup("qualify", *SEED, "--eventlogs", cpu_log, "--speedup-factor-file", factors)
    assert code == 2
    assert "nearest is FilterExec" in errors


def test_an_accelerated_log_is_not_qualified(speedup: Call, gpu_log: Path) -> None:
    code, printed, _ = speedup("qualify", *SEED, gpu_log, "--platform", "onprem-a100")
    assert code == 1
    assert "an accelerated run on the CPU side" in printed


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


def test_a_factor_file_of_the_original_tools_implies_their_method(speedup: Call, cpu_log: Path, tmp_path: Path) -> None:
    factors = tmp_path / "factors.csv"
    factors.write_text("CPUOperator,Score\nFilterExec,2.5\n")
    code, printed, errors = speedup("qualify", cpu_log, "--speedup-factor-file", factors)
    assert code == 0
    assert "task factor" in printed
    assert "--method seed is used" in errors
