"""Run folders: whole records, checked tables, inputs by digest, older formats upgraded and newer refused."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from workbench.core import files, host, redaction, samples
from workbench.core.errors import ConfigError, InputError
from workbench.core.files import CHECKOUT, OUT_VARIABLE, cache_folder, default_out
from workbench.core.tables import Column, Table
from workbench.runs import run_folder

SUMS = Table("sums", "One sum.", ("label",), (Column("label", "str", "Name."), Column("total", "int", "Sum.")))


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_folder, "_live_runs", {})


def rewrite(run: run_folder.Run, **changes: Any) -> None:
    record = json.loads((run.folder / "run.json").read_text()) | changes
    (run.folder / "run.json").write_text(json.dumps(record))


def test_a_run_starts_with_a_record_of_machine_and_versions(tmp_path: Path) -> None:
    run = run_folder.start_run(
        "speedup", tmp_path, title="How fast?", notebook="01_speedup.ipynb", config={"top": 5}, command="c"
    )
    record = json.loads((run.folder / "run.json").read_text())
    assert run.folder.parent == tmp_path / "speedup"
    assert record["format_version"] == 1
    assert (record["status"], record["ended_at"], record["verdict"], record["failure"]) == ("running", None, None, None)
    assert record["config"] == {"top": 5}
    assert " ".join(record) == (
        "format_version run_id area title notebook status started_at ended_at duration_s config command "
        "package_version git_commit versions host inputs tables verdict reasons answer details conditions failure"
    )
    assert record["host"]["cores"] >= 1
    assert record["host"]["memory_bytes"] > 2**20
    assert record["versions"].keys() >= {"python", "polars", "altair"}
    assert set(record["host"]) == {
        "cpu_model", "cores", "memory_bytes", "accelerators", "container_limits", "load_1m", "os",
    }  # fmt: skip


def test_a_run_id_is_utc_time_and_six_hex_digits(tmp_path: Path) -> None:
    import re

    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", run_folder.start_run("a", tmp_path).run_id)


def test_two_runs_in_the_same_second_have_different_folders(tmp_path: Path) -> None:
    assert len({run_folder.start_run("a", tmp_path).folder for _ in range(5)}) == 5


def test_a_table_is_checked_written_and_noted(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    run.write_table(SUMS, SUMS.frame([{"label": "x", "total": 1}]))
    run.write_table(SUMS, SUMS.frame([{"label": "x", "total": 1}, {"label": "y", "total": 2}]))
    again = run_folder.load_run(run.folder)
    (entry,) = again.record["tables"]
    assert (entry["name"], entry["rows"], entry["key"], entry["units"]) == ("sums", 2, ["label"], {})
    assert (entry["meaning"], entry["meanings"]) == ("One sum.", {"label": "Name.", "total": "Sum."})
    assert again.read_table(SUMS)["total"].to_list() == [1, 2]


def test_a_frame_that_is_another_table_is_refused_and_not_noted(tmp_path: Path) -> None:
    import polars as pl

    run = run_folder.start_run("a", tmp_path)
    with pytest.raises(InputError, match="column"):
        run.write_table(SUMS, pl.DataFrame({"label": ["x"]}))
    assert run_folder.load_run(run.folder).record["tables"] == []


def test_an_input_is_noted_with_bytes_and_digest(tmp_path: Path) -> None:
    source = tmp_path / "log"
    source.write_bytes(b"events")
    run = run_folder.start_run("a", tmp_path / "out")
    run.add_input(source)
    run.add_input(source)
    digest = hashlib.sha256(b"events").hexdigest()
    assert run_folder.load_run(run.folder).record["inputs"] == [
        {"path": str(source.resolve()), "bytes": 6, "sha256": digest}
    ]


def test_a_folder_as_input_counts_its_files_and_notices_a_renamed_one(tmp_path: Path) -> None:
    folder = tmp_path / "rolling"
    folder.mkdir()
    (folder / "a").write_text("1")
    (folder / "b").write_text("22")
    run = run_folder.start_run("a", tmp_path / "out")
    run.add_input(folder)
    (folder / "b").rename(folder / "c")
    first = run.record["inputs"][0]
    run.add_input(folder)
    assert first["bytes"] == 3
    assert first["sha256"] != run.record["inputs"][0]["sha256"]


def test_an_input_of_this_checkout_is_named_alike_on_every_machine(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    run.add_input(CHECKOUT / "pyproject.toml")
    assert run.record["inputs"][0]["path"] == "pyproject.toml"


def test_an_input_url_is_noted_without_its_user(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    run.add_input("https://ann:pw@example.org/log")
    assert run.record["inputs"] == [{"path": "https://example.org/log", "bytes": None, "sha256": None}]


def test_a_run_says_that_its_inputs_are_samples(tmp_path: Path) -> None:
    run = run_folder.start_run("profile", tmp_path)
    assert run.list_conditions(["simulated nodes"]) == ["simulated nodes"]
    run.add_input(samples.FOLDER / "eventlogs" / "small" / "three_queries.zstd")
    assert run.list_conditions(["simulated nodes"]) == ["simulated nodes", "recorded sample"]
    (tmp_path / "own.zstd").write_bytes(b"")
    run.add_input(tmp_path / "*.zstd")
    assert run.record["inputs"][-1] == {"path": str(tmp_path / "*.zstd"), "bytes": None, "sha256": None}
    run.conclude("valid", answer="None.")
    assert run_folder.load_run(run.folder).record["conditions"] == ["1 of 2 inputs is a sample"]


def test_a_missing_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the input"):
        run_folder.start_run("a", tmp_path).add_input(tmp_path / "none")


def test_a_live_run_ends_with_its_conclusion(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    run.conclude("valid", ["enough samples"], "Twice as fast.")
    again = run_folder.load_run(run.folder)
    assert (again.verdict, again.answer, again.status) == ("valid", "Twice as fast.", "succeeded")
    assert again.record["duration_s"] >= 0


def test_a_headless_run_is_ended_by_its_runner_and_not_by_its_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder.start_run("a", tmp_path).folder
    monkeypatch.setenv(run_folder.RUN_DIR_VARIABLE, str(folder))
    run = run_folder.current_run("a")
    run.conclude("valid", [], "Yes.")
    assert run.folder == folder
    assert run_folder.load_run(folder).status == "running"


@pytest.mark.parametrize(("verdict", "reasons"), [("good", []), ("invalid", []), (None, [])])
def test_a_conclusion_needs_a_known_verdict_and_an_invalid_one_a_reason(
    tmp_path: Path, verdict: Any, reasons: list[str]
) -> None:
    with pytest.raises(ConfigError):
        run_folder.start_run("a", tmp_path).conclude(verdict, reasons)


def test_a_live_notebook_keeps_its_folder_until_it_has_concluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OUT_VARIABLE, str(tmp_path))
    first = run_folder.current_run("a")
    assert run_folder.current_run("a").folder == first.folder
    assert run_folder.current_run("b").folder != first.folder
    first.conclude("valid")
    assert run_folder.current_run("a").folder != first.folder


@pytest.mark.parametrize("config", [{"api_key": "s3cr3t"}, {"confs": ["a=1", "fs.s3a.secret.key=s3cr3t"]}])
def test_a_config_key_named_like_a_secret_is_refused_before_anything_is_written(
    tmp_path: Path, config: dict[str, object]
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_folder.start_run("a", tmp_path / "out", config=config)
    assert "s3cr3t" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_secrets_of_the_run_reach_neither_record_nor_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", 'can"ary/value+1')
    monkeypatch.setenv(redaction.SECRET_NAMES_VARIABLE, "SERVICE_KEY")
    run = run_folder.start_run("a", tmp_path)
    run.write_table(SUMS, SUMS.frame([{"label": 'said can"ary/value+1', "total": 1}]))
    run.conclude("invalid", ['key can"ary/value+1'], 'It is can"ary/value+1')
    assert run_folder.load_run(run.folder).answer == "It is [redacted]"
    assert run.read_table(SUMS)["label"].to_list() == ["said [redacted]"]
    assert all(b"ary/value" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unreadable run record"),
        ("{", "unreadable run record"),
        ("[]", "not a run record"),
        ("{}", "not a run record"),
        ('{"format_version": true}', "not a run record"),
        ('{"format_version": 1}', "missing: run_id"),
        ('{"format_version": 0}', "unknown format"),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=problem):
        run_folder.load_run(tmp_path)


def test_a_folder_without_a_record_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        run_folder.load_run(tmp_path)


def test_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    run = run_folder.start_run("a", tmp_path)
    rewrite(run, format_version=2)
    with pytest.raises(InputError, match="newer workbench") as caught:
        run_folder.load_run(run.folder)
    assert "pip install --upgrade" in str(caught.value)


def test_an_older_format_is_upgraded_step_by_step_when_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder.start_run("a", tmp_path)
    rewrite(run, format_version=-1)
    monkeypatch.setattr(
        run_folder, "UPGRADES", {-1: lambda old: old | {"title": "one"}, 0: lambda old: old | {"answer": old["title"]}}
    )
    before = (run.folder / "run.json").read_text()
    again = run_folder.load_run(run.folder)
    assert (again.title, again.answer, again.record["format_version"]) == ("one", "one", 1)
    assert (run.folder / "run.json").read_text() == before


def test_runs_are_found_at_any_depth_newest_first_and_unreadable_ones_are_told(tmp_path: Path) -> None:
    older, newer = run_folder.start_run("a", tmp_path), run_folder.start_run("b", tmp_path / "deep" / "er")
    rewrite(older, started_at="2026-01-01T00:00:00+00:00")
    rewrite(newer, started_at="2026-01-02T00:00:00+00:00")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    told: list[InputError] = []
    assert [run.run_id for run in run_folder.list_run_folders(tmp_path, unreadable=told.append)] == [
        newer.run_id,
        older.run_id,
    ]
    assert [error.facts["where"] for error in told] == [broken / "run.json"]
    assert run_folder.list_run_folders(tmp_path / "nowhere") == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make the run folder"):
        run_folder.start_run("a", tmp_path / "file")


def test_a_run_is_not_written_over_one_of_another_area(tmp_path: Path) -> None:
    first = run_folder.start_run("sizing", folder=tmp_path / "run")
    first.end("succeeded")
    with pytest.raises(ConfigError, match="holds a run of another area"):
        run_folder.start_run("capacity_plan", folder=tmp_path / "run")
    assert run_folder.load_run(tmp_path / "run").run_id == first.run_id
    run_folder.start_run("sizing", folder=tmp_path / "run").end("succeeded")


def test_runs_go_to_the_users_cache_where_the_checkout_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHECKOUT", tmp_path / "gone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_out() == tmp_path / "cache" / "workbench" / "runs"


def test_runs_go_to_the_checkout_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(files, "CHECKOUT", tmp_path)
    assert default_out() == tmp_path / "data" / "runs"


def test_a_user_without_a_home_has_a_cache_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    assert cache_folder().parent == tmp_path


def test_a_commit_is_null_outside_of_a_checkout(tmp_path: Path) -> None:
    assert host.read_git_commit(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert host.read_git_commit(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel\t\t: 49\nmodel name\t: A Processor @ 2 GHz\n", "A Processor @ 2 GHz"),
        ("processor\t: 0\nHardware\t: An ARM Board\n", "An ARM Board"),
    ],
)
def test_the_processors_name_is_read(tmp_path: Path, text: str, model: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert host.read_cpu_model(tmp_path / "cpuinfo") == model


def test_a_processor_without_a_name_is_told_by_its_architecture(tmp_path: Path) -> None:
    assert host.read_cpu_model(tmp_path / "none") != ""


def cgroup(root: Path, own: str, **files: str) -> dict[str, Any]:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "own").write_text(own)
    return host.read_container_limits(root, root / "own")


def test_limits_of_control_groups_version_2_are_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    limits = cgroup(
        tmp_path,
        "0::/a/b\n",
        a__cpu_dot_max="150000 100000",
        a__b__cpu_dot_max="max 100000",
        a__b__memory_dot_max="1000",
    )
    assert limits == {"cpus": 1.5, "memory_bytes": 1000}


def test_limits_of_control_groups_version_1_are_read(tmp_path: Path) -> None:
    limits = cgroup(
        tmp_path,
        "3:cpu,cpuacct:/x\n5:memory:/x\n",
        **{
            "cpu,cpuacct__x__cpu_dot_cfs_quota_us": "50000",
            "cpu,cpuacct__x__cpu_dot_cfs_period_us": "100000",
            "memory__x__memory_dot_limit_in_bytes": "9223372036854771712",
        },
    )
    assert limits == {"cpus": 0.5}


def test_no_limit_is_no_entry(tmp_path: Path) -> None:
    assert cgroup(tmp_path, "0::/\n", cpu_dot_max="max 100000", memory_dot_max="max") == {}


def test_a_failing_nvidia_smi_means_no_accelerators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.list_accelerators() == []


def test_accelerators_are_named_with_their_memory_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA T4, 15360, 550.54'\necho 'NVIDIA T4, [N/A], 550.54'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.list_accelerators() == [
        {"name": "NVIDIA T4", "memory_bytes": 15360 * 2**20, "driver": "550.54"},
        {"name": "NVIDIA T4", "memory_bytes": None, "driver": "550.54"},
    ]
