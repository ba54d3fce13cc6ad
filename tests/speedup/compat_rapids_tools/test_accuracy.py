"""`validate --method seed`: the original's table and 26 lines, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools import made
from tests.speedup.compat_rapids_tools.conftest import Call
from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools import seed_factors
from workbench.speedup.compat_rapids_tools.accuracy import compare_estimates, format_validation_report
from workbench.speedup.compat_rapids_tools.profile_tables import build_seed_application
from workbench.speedup.compat_rapids_tools.qualification_output import estimate_applications
from workbench.speedup.compat_rapids_tools.seed_log import read_seed_logs
from workbench.speedup.rapids_facts import get_operator_scores

PAIRS = [("join", "rp_sql_eventlog", "rapids_join_eventlog"), ("dsv1", "eventlog_dsv1", "eventlog-gpu-dsv1")]


@pytest.mark.parametrize(("case", "cpu", "gpu"), PAIRS)
def test_table_and_error_lines_are_the_golden_ones(golden: Path, logs: Path, case: str, cpu: str, gpu: str) -> None:
    estimates = estimate_applications(
        [logs / f"{cpu}.zstd"], seed_factors.read_factor_file(golden / case / "generatedScores.csv")
    )
    measured = [build_seed_application(log) for log in read_seed_logs(logs / f"{gpu}.zstd")]
    expected = (golden / case / "validate_stdout.txt").read_text()
    printed = format_validation_report(compare_estimates(estimates, measured))
    assert printed == expected[expected.index("=====") :]
    assert sum("error (" in line and " = " in line for line in printed.splitlines()) == 26


def test_several_applications_give_means_medians_and_extremes(tmp_path: Path) -> None:
    for name, end in (("a", 9000), ("b", 17_000)):
        (tmp_path / f"cpu_{name}").write_bytes(made.cpu(name=name, end_ms=end))
        (tmp_path / f"gpu_{name}").write_bytes(made.gpu(name=name))
    factors = get_operator_scores("onprem-a100")
    estimates = estimate_applications([tmp_path / "cpu_a", tmp_path / "cpu_b"], factors)
    measured = [build_seed_application(read_seed_logs(tmp_path / f"gpu_{name}")[0]) for name in "ba"]
    rows = compare_estimates(estimates, measured)
    assert [row.name for row in rows] == ["a", "b"]
    errors = [row.duration_error_s for row in rows]
    text = format_validation_report(rows)
    assert f"Average duration error (seconds)  = {round(sum(errors) / 2, 2)}" in text
    assert f"Max duration error (seconds)      = {round(max(errors), 2)}" in text
    assert len({len(line) for line in text.splitlines() if line.startswith(("|", "+"))}) == 1


def test_one_name_twice_is_refused_where_the_original_multiplied_rows(cpu_log: Path, gpu_log: Path) -> None:
    estimates = estimate_applications([cpu_log], {"FilterExec": 2.0})
    measured = [build_seed_application(read_seed_logs(gpu_log)[0])] * 2
    with pytest.raises(InputError, match="not unique on the accelerated side"):
        compare_estimates(estimates, measured)


def test_no_common_name_is_refused_where_the_original_printed_nan(cpu_log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(made.gpu(name="other"))
    with pytest.raises(InputError, match="no application is on both sides"):
        compare_estimates(
            estimate_applications([cpu_log], {"FilterExec": 2.0}), [build_seed_application(read_seed_logs(other)[0])]
        )


def test_the_command_generates_estimates_and_compares(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, printed, errors = speedup(
        "validate", "--method", "seed", "--cpu_log", cpu_log, "--gpu_log", gpu_log, "--output", out, "--jar", "any.jar"
    )
    assert code == 0
    assert printed.startswith(f"Output folder = {out}\nCPU event log = {cpu_log}\nGPU event log = {gpu_log}\n=====")
    assert "--jar is not needed" in errors
    assert (out / "generatedScores.csv").is_file()
    assert (out / "cpu" / "rapids_4_spark_qualification_output").is_dir()


def test_a_folder_with_something_in_it_is_never_deleted(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "out" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("keep")
    code, _, errors = speedup(
        "validate", "--method", "seed", "--cpu_log", cpu_log, "--gpu_log", gpu_log, "--output", mine.parent
    )
    assert (code, mine.read_text()) == (2, "keep")
    assert "the output folder is not empty" in errors


def test_given_factors_and_profiles_are_used(speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path) -> None:
    factors = tmp_path / "factors.csv"
    factors.write_text("CPUOperator,Score\nFilterExec,2.0\n")
    for side, log in (("cpu", cpu_log), ("gpu", gpu_log)):
        assert speedup("profile", "--csv", "--eventlogs", log, "--local_folder", tmp_path / side)[0] == 0
    code, printed, _ = speedup(
        "validate",
        *("--method", "seed", "--cpu_log", cpu_log, "--gpu_log", gpu_log, "--output", tmp_path / "out"),
        *("--speedups", factors, "--cpu_profile", tmp_path / "cpu", "--gpu_profile", tmp_path / "gpu"),
    )
    assert code == 0
    assert "Duration Error Metrics" in printed
    assert not (tmp_path / "out" / "generatedScores.csv").exists()
