"""Another release of Spark lies beside the installed one: whole or not at all, on a Java that it starts on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from workbench.core import package_folder
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.spark import engines, jvm, releases
from workbench.spark.releases import RELEASES, Release


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a Java, a cache or a chosen line, with pyspark 3.5 installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(releases, "JVM_FOLDERS", (str(tmp_path / "jvm"),))
    monkeypatch.setattr(releases, "get_installed_line", lambda: "3.5")
    for name in ("JAVA_HOME", "PYTHONPATH", releases.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def add_jdk(folder: Path, version: str, *, whole: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    for program in ("java", "javac") if whole else ("java",):
        (folder / "bin" / program).touch(mode=0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


def add_release(line: str) -> Path:
    folder = RELEASES[line].folder
    (folder / "pyspark" / "jars").mkdir(parents=True)
    return folder


def test_the_installed_line_is_the_default_and_needs_nothing(machine: Path) -> None:
    assert releases.find_beside(None) is None
    assert releases.find_beside("3.5") is None
    assert releases.find_beside("4.1") is RELEASES["4.1"]


def test_the_variable_chooses_for_every_command(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(releases.VARIABLE, "4.1")
    assert releases.find_beside(None) is RELEASES["4.1"]
    monkeypatch.setenv(releases.VARIABLE, "2.4")
    with pytest.raises(ConfigError, match=r"no such line of Spark(?s:.)*2\.4(?s:.)*4\.1"):
        releases.find_beside(None)


def test_a_whole_jdk_is_taken_the_oldest_that_is_new_enough(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert releases.find_jdk(17) is None
    add_jdk(machine / "jvm" / "eight", "1.8.0_392")
    add_jdk(machine / "jvm" / "jre21", "21.0.1", whole=False)
    newest = add_jdk(machine / "jvm" / "a25", "25.0.1")
    assert releases.find_jdk(17) == newest
    fitting = add_jdk(machine / "jvm" / "z17", "17.0.9")
    assert releases.find_jdk(17) == fitting
    own = add_jdk(machine / "own", "22")
    monkeypatch.setenv("JAVA_HOME", str(own))
    assert releases.find_jdk(17) == own


def test_without_a_jdk_nothing_is_installed_and_it_says_what_to_do(machine: Path) -> None:
    with pytest.raises(MissingToolError, match="needs a JDK of 17") as told:
        jvm.build_spark_environment("4.1")
    assert "openjdk-17" in str(told.value)
    assert not RELEASES["4.1"].folder.exists()


def test_a_process_gets_release_and_java_first_and_keeps_its_own_path(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = add_jdk(machine / "jvm" / "z17", "17.0.9"), add_release("4.1")
    monkeypatch.setenv("PYTHONPATH", "mine")
    environment = jvm.build_spark_environment("4.1")
    assert environment["PYTHONPATH"].split(":") == [str(folder), "mine"]
    assert environment["SPARK_HOME"] == str(folder / "pyspark")
    assert environment["JAVA_HOME"] == str(home)
    assert environment["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("whole", [True, False])
def test_an_installation_is_whole_or_not_there(machine: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    add_jdk(machine / "jvm" / "z17", "17.0.9")
    said: list[str] = []

    def install(command: Sequence[str], **_: Any) -> SimpleNamespace:
        target = Path(command[command.index("--target") + 1])
        (target / "pyspark" / ("jars" if whole else "half")).mkdir(parents=True)
        if not whole:
            raise RunFailedError("uv failed with exit code 1", found="no index")
        return SimpleNamespace(exit_code=0)

    monkeypatch.setattr(package_folder, "run_command", install)
    release = Release("4.1.4", oldest_java=17)
    if whole:
        assert releases.build_release_environment(release, say=said.append)["PYTHONPATH"] == str(release.folder)
        assert len(said) == 1
        releases.build_release_environment(release, say=said.append)
        assert len(said) == 1
    else:
        with pytest.raises(MissingToolError, match="no index"):
            releases.build_release_environment(release, say=said.append)
    assert release.folder.exists() is whole
    assert [path.name for path in release.folder.parent.iterdir()] == ([release.version] if whole else [])


def test_a_process_that_loaded_one_spark_cannot_use_another(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("pyspark")
    loaded.__version__ = "3.5.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", loaded)
    monkeypatch.setenv(releases.VARIABLE, "4.1")
    with pytest.raises(ConfigError, match=r"another Spark is loaded(?s:.)*3\.5\.9(?s:.)*new process"):
        jvm.use_spark()


def test_an_engine_has_a_jar_for_some_lines_and_says_which(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comet = engines.ENGINES["comet"]
    versions = {line: comet.get_artifact(line).coordinate.split(":")[2] for line in ("3.5", "4.1")}  # type: ignore[union-attr]
    assert versions == {"3.5": "0.12.0", "4.1": "1.2.0"}
    assert comet.get_artifact() is comet.get_artifact("3.5")
    assert engines.ENGINES["spark"].get_artifact("4.1") is None
    monkeypatch.setattr(releases, "get_installed_line", lambda: "3.4")
    with pytest.raises(ConfigError, match=r"no jar for this Spark(?s:.)*3\.4(?s:.)*WORKBENCH_SPARK=3\.5"):
        comet.get_artifact()
