"""The commands with `--method seed`: what is written and printed, and that no failure ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools import made
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


@pytest.fixture
def profiles(speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Profile folders of the two sides, as --csv writes them."""
    for side, log in (("cpu", cpu_log), ("gpu", gpu_log)):
        folder = tmp_path / f"{side}_profile"
        assert speedup("profile", "--csv", "--eventlogs", log, "--local_folder", folder)[0] == 0
    return tmp_path / "cpu_profile/rapids_4_spark_profile", tmp_path / "gpu_profile/rapids_4_spark_profile"


def test_a_profile_folder_implies_the_seed_method(
    speedup: Call, profiles: tuple[Path, Path], cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    cpu, gpu = profiles
    inferred, named = tmp_path / "inferred.csv", tmp_path / "named.csv"
    code, _, errors = speedup("generate", "--cpu", cpu, "--gpu", gpu, "--output", inferred)
    assert code == 0
    assert "a rapids_4_spark_profile folder is for the seed method: --method seed is used" in errors
    assert speedup("generate", *SEED, "--cpu", cpu_log, "--gpu", gpu_log, "--output", named)[0] == 0
    assert inferred.read_bytes() == named.read_bytes()
    words = ("--method", "calibrated", "--cpu", cpu, "--gpu", gpu, "--output", tmp_path / "f.json")
    code, _, errors = speedup("generate", *words)
    assert (code, "no event log in this folder" in errors) == (2, True)


UNUSED = [
    ("generate", ("--level", "0.9"), "--level"),
    ("generate", ("--baseline", "a", "--candidate", "b"), "--baseline, --candidate"),
    ("generate", ("--out", "run", "--json"), "--out, --json"),
    ("generate", ("--first-runs", "auto"), "--first-runs"),
    ("validate", ("--least-ratio", "2"), "--least-ratio"),
    ("validate", ("--no-seed", "--json"), "--no-seed, --json"),
    ("validate", ("--on", "recording"), "--on"),
    ("qualify", ("--least-ratio", "1.3", "--no-cache"), "--least-ratio, --no-cache"),
    ("qualify", ("--price-cpu", "0"), "--price-cpu"),
]


@pytest.mark.parametrize(("command", "words", "flags"), UNUSED)
def test_what_the_seed_method_does_not_read_is_refused(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path, command: str, words: tuple[str, ...], flags: str
) -> None:
    out = tmp_path / "made.csv"
    needed = ("--cpu", cpu_log, "--gpu", gpu_log, "--output", out)
    needed = (cpu_log, "--platform", "onprem-a100") if command == "qualify" else needed
    code, _, errors = speedup(command, *SEED, *needed, *words)
    assert code == 2
    assert f"the seed method does not read it\n  where: {flags}\n  do: remove it" in errors
    assert not out.exists()


def test_what_only_the_seed_method_reads_is_refused_by_the_calibrated_one(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    needed = ("--cpu", cpu_log, "--gpu", gpu_log)
    code, _, errors = speedup("generate", *needed, "--output", tmp_path / "f.json", "--verbose")
    assert (code, "where: --verbose\n  do: add --method seed, or remove it" in errors) == (2, True)
    code, _, errors = speedup("validate", *needed, "--method", "calibrated", "--speedups", tmp_path / "none.csv")
    assert (code, "where: --speedups\n  do: add --method seed, or remove it" in errors) == (2, True)
    code, _, errors = speedup("qualify", cpu_log, "--factors", tmp_path / "f.json", "--platform", "onprem-a100")
    assert (code, "no built-in table\n  where: --platform" in errors) == (2, True)


@pytest.mark.parametrize(("method", "name"), [("seed", "factors.json"), ("seed", "factors"), ("calibrated", "f.txt")])
def test_an_output_of_another_kind_is_refused_before_logs_are_read(
    speedup: Call, tmp_path: Path, method: str, name: str
) -> None:
    words = ("--cpu", tmp_path / "none", "--gpu", tmp_path / "none", "--output", tmp_path / name)
    code, _, errors = speedup("generate", "--method", method, *words)
    assert code == 2
    assert f"unknown kind of output for --method {method}" in errors


def test_one_bad_log_in_a_folder_is_named_and_the_others_are_used(
    speedup: Call, cpu_log: Path, gpu_log: Path, tmp_path: Path
) -> None:
    alone, beside = tmp_path / "alone.csv", tmp_path / "beside.csv"
    assert speedup("generate", *SEED, "--cpu", cpu_log, "--gpu", gpu_log, "--output", alone)[0] == 0
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a_good").write_bytes(made.cpu())
    (folder / "b_fast").write_bytes(made.gpu())
    (folder / "c_cut").write_bytes(made.cpu()[:400])
    code, printed, _ = speedup("generate", *SEED, "--cpu", folder, "--gpu", gpu_log, "--output", beside)
    assert code == 1
    assert [line.split(": ")[1:3] for line in printed.splitlines()] == [
        [str(folder / "c_cut"), "no task ended in this log"],
        [str(folder / "b_fast"), "an accelerated run on the CPU side"],
    ]
    assert beside.read_bytes() == alone.read_bytes()


def test_a_folder_without_a_usable_log_is_refused_with_all_reasons(
    speedup: Call, gpu_log: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "logs", tmp_path / "factors.csv"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(made.gpu())
    code, _, errors = speedup("generate", *SEED, "--cpu", folder, "--gpu", gpu_log, "--output", out)
    assert code == 2
    assert errors.count("an accelerated run on the CPU side: application 'made'") == 2
    assert not out.exists()


def test_a_copy_of_a_log_is_named_and_the_folder_is_profiled(speedup: Call, cpu_log: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "logs", tmp_path / "out"
    folder.mkdir()
    for name, app_id in (("a", "app-1"), ("b", "app-1"), ("c", "app-2")):
        (folder / name).write_bytes(made.cpu(app_id=app_id))
    code, printed, _ = speedup("profile", "--csv", "--eventlogs", folder, "--local_folder", out)
    assert code == 1
    assert printed.splitlines()[-1] == (
        f"not profiled: {folder / 'b'}: two logs of the same application: app-1, also in {folder / 'a'}"
    )
    assert sorted(path.name for path in (out / "rapids_4_spark_profile").iterdir()) == ["app-1", "app-2"]


def test_an_accelerated_profile_on_the_cpu_side_is_refused_for_its_side(
    speedup: Call, profiles: tuple[Path, Path], gpu_log: Path, tmp_path: Path
) -> None:
    words = ("--cpu", profiles[1], "--gpu", gpu_log, "--output", tmp_path / "f.csv")
    code, _, errors = speedup("generate", *SEED, *words)
    assert (code, "an accelerated run on the CPU side" in errors) == (2, True)
