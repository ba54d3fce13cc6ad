"""`validate --method seed`: the original's table and 26 lines, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.speedup.compat_rapids_tools import made
from tests.speedup.compat_rapids_tools.conftest import Call
from workbench.core.errors import InputError
from workbench.speedup.commands import methods
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


SIDES = ("--cpu_log", "cpu_log", "--gpu_log", "gpu_log")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--speedups", "none.csv", *SIDES, "--output", "out"), "no such factor file"),
        (("--speedups", "none.csv", *SIDES), "the seed method takes one log per side, and a new folder"),
        (("--cpu_profile", "none", *SIDES, "--output", "out"), "no such file or folder"),
        (("--gpu_profile", "none", *SIDES, "--output", "out"), "no such file or folder"),
        (("--gpu_profile", "none", "--cpu_log", "cpu_log"), "and a new folder"),
        (("--cpu_profile", "none", "--cpu_log", "cpu_log", "--output", "out"), "the accelerated side is missing"),
    ],
)
def test_an_option_of_the_seed_method_implies_it_and_a_missing_file_is_refused(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    given = [word if word.startswith("--") else tmp_path / word for word in words]
    code, _, errors = speedup("validate", *given)
    assert code == 2
    assert f"{words[0]} is for the seed method: --method seed is used" in errors
    assert told in errors


def test_a_profile_replaces_the_accelerated_log_and_what_is_not_used_is_named(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    factors, profile = tmp_path / "factors.csv", tmp_path / "profile"
    factors.write_text("CPUOperator,Score\nFilterExec,2.0\n")
    assert speedup("profile", "--csv", "--eventlogs", gpu_log, "--local_folder", profile)[0] == 0
    words = ("--cpu_log", cpu_log, "--gpu_profile", profile, "--speedups", factors)
    code, alone, errors = speedup("validate", *words, "--output", tmp_path / "alone")
    assert (code, errors) == (0, "--speedups is for the seed method: --method seed is used\n")
    more = ("--gpu_log", "none", "--cpu_profile", "none", "--verbose", "--jar", "any.jar")
    code, beside, errors = speedup("validate", *words, *more, "--output", tmp_path / "beside")
    assert (code, beside.splitlines()[3:]) == (0, alone.splitlines()[3:])
    assert errors.splitlines()[1:] == [
        "--jar is not needed: no Java runs here",
        "--cpu_profile is not used: --speedups replaces the factors that it is for",
        "--gpu_log is not read: --gpu_profile replaces it",
        "--verbose prints nothing: --speedups replaces the factors whose times it is for",
    ]


def test_one_bad_pair_of_a_folder_is_named_and_the_others_are_compared(speedup: Call, tmp_path: Path) -> None:
    sides = tmp_path / "cpu", tmp_path / "gpu"
    for side, make in zip(sides, (made.cpu, made.gpu), strict=True):
        side.mkdir()
        for number, name in enumerate(("good", "twice", "twice", f"only {side.name}")):
            (side / f"log_{number}").write_bytes(make(name=name, app_id=f"app-{number}"))
    (sides[0] / "log_4").write_bytes(made.cpu()[:400])
    words = ("--cpu_log", sides[0], "--gpu_log", sides[1], "--output", tmp_path / "out")
    code, printed, _ = speedup("validate", "--method", "seed", *words)
    assert code == 1
    assert "|  0 | good" in printed
    assert "|  1 |" not in printed
    assert printed.splitlines()[-4:] == [
        f"not compared: {sides[0] / 'log_4'}: no task ended in this log",
        "not compared: application 'twice': application names are not unique on the CPU side: 2 are called 'twice'",
        "not compared: application 'only cpu': only on the CPU side: applications are paired by name",
        "not compared: application 'only gpu': only on the accelerated side: applications are paired by name",
    ]


def test_a_pair_whose_one_common_query_read_other_data_is_refused_for_that(speedup: Call, logs: Path) -> None:
    words = ("--cpu_log", logs / "eventlog_dsv1.zstd", "--gpu_log", logs / "eventlog-gpu-dsv1.zstd")
    code, _, errors = speedup("validate", *words)
    assert code == 2
    assert errors.startswith("Error: no query can be compared\n")
    assert "csv at <console>:23 ran 1x, 0 counted (the sides read different numbers of rows)" in errors


@pytest.mark.parametrize("ratio", ["0", "-1", "nan", "inf"])
def test_a_least_ratio_that_is_none_is_refused(speedup: Call, cpu_log: Path, gpu_log: Path, ratio: str) -> None:
    code, _, errors = speedup("validate", "--cpu", cpu_log, "--gpu", gpu_log, "--least-ratio", ratio)
    assert (code, "where: --least-ratio" in errors) == (2, True)


def test_the_seed_method_that_another_recording_does_without_is_refused(speedup: Call, tmp_path: Path) -> None:
    code, _, errors = speedup("validate", tmp_path, "--on", tmp_path, "--no-seed")
    assert (code, "--on does not read it\n  where: --no-seed" in errors) == (2, True)


def test_a_seed_method_without_estimates_is_named_and_does_not_stop_the_calibrated_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise InputError("operator took no time", found="0 ms")

    pair: Any = None
    monkeypatch.setattr(methods, "estimate_seed_ratios", fail)
    assert methods.try_seed_method(pair, ["q1"]) is None
    assert capsys.readouterr().err == "note: no predictions of the seed method: operator took no time: 0 ms\n"
    monkeypatch.setattr(methods, "estimate_seed_ratios", lambda *_: None)
    assert methods.try_seed_method(pair, ["q1"]) is None
    assert "it needs logs of plain Spark and of an accelerator" in capsys.readouterr().err
