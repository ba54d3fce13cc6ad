"""A jar comes from the cache, from Ivy, from Maven or from the user; never unchecked, never half."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.core.errors import InputError, MissingToolError
from workbench.spark import engine_jars
from workbench.spark.engines import Artifact


def jar(name: str = "org/some/Plugin.class") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"class")
    return content.getvalue()


SOME = Artifact("org.some:plugin:1.0", "org/some/Plugin.class", hashlib.sha256(jar()).hexdigest())
Bringing = Callable[..., list[str]]


@pytest.fixture
def bringing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bringing:
    """Puts fakes in place of Ivy and Maven: what each brings, or why it cannot; gives back who was asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def bring(*, ivy: bytes | str, maven: bytes | str = "not asked") -> list[str]:
        asked: list[str] = []

        def way(name: str, brought: bytes | str) -> engine_jars.Fetcher:
            def fetch(artifact: Artifact, scratch: Path) -> str | None:
                asked.append(name)
                if isinstance(brought, str):
                    return brought
                (scratch / "deep").mkdir()
                (scratch / "deep" / f"org.some_{artifact.file_name}").write_bytes(brought)
                return None

            return fetch

        monkeypatch.setattr(engine_jars, "_fetch_with_ivy", way("ivy", ivy))
        monkeypatch.setattr(engine_jars, "_fetch_with_maven", way("maven", maven))
        return asked

    return bring


def silent(_: str) -> None:
    """Nobody listens."""


def test_ivy_brings_it_once_and_the_cache_after(bringing: Bringing) -> None:
    asked = bringing(ivy=jar())
    first = engine_jars.resolve_jar(SOME, say=silent)
    assert first.read_bytes() == jar()
    assert first.name == "plugin-1.0.jar"
    assert engine_jars.resolve_jar(SOME, say=silent) == first
    assert asked == ["ivy"]


def test_maven_is_asked_when_ivy_cannot(bringing: Bringing) -> None:
    asked = bringing(ivy="no repository", maven=jar())
    assert engine_jars.resolve_jar(SOME, say=silent).read_bytes() == jar()
    assert asked == ["ivy", "maven"]


@pytest.mark.parametrize(
    ("brought", "why"),
    [
        (b"<html>log in first</html>", "no jar"),
        (jar("org/other/Thing.class"), "is not in it"),
        (jar() + b"\0", "not the known"),
    ],
)
def test_what_is_not_the_jar_is_never_kept(bringing: Bringing, brought: bytes, why: str) -> None:
    bringing(ivy=brought, maven="mvn is not on PATH")
    with pytest.raises(MissingToolError) as error:
        engine_jars.resolve_jar(SOME, say=silent)
    assert why in str(error.value)
    assert "mvn is not on PATH" in str(error.value)
    assert "--comet-jar" in str(error.value)
    bringing(ivy=jar())
    assert engine_jars.resolve_jar(SOME, say=silent).read_bytes() == jar()


@pytest.mark.parametrize("damage", ["cut", "changed", "no digest", "gone"])
def test_a_damaged_jar_in_the_cache_is_fetched_again(bringing: Bringing, damage: str) -> None:
    bringing(ivy=jar())
    kept = engine_jars.resolve_jar(SOME, say=silent)
    if damage == "cut":
        kept.write_bytes(jar()[:-4])
    elif damage == "changed":
        kept.write_bytes(jar() + b"\0")
    elif damage == "no digest":
        kept.with_name(kept.name + ".sha256").unlink()
    else:
        kept.unlink()
    asked = bringing(ivy=jar())
    assert engine_jars.resolve_jar(SOME, say=silent).read_bytes() == jar()
    assert asked == ["ivy"]


def test_a_given_file_is_used_where_it_lies_when_it_is_the_jar(bringing: Bringing, tmp_path: Path) -> None:
    asked = bringing(ivy=jar())
    own = tmp_path / "own.jar"
    own.write_bytes(jar() + b"\0")
    assert engine_jars.resolve_jar(SOME, given=own, say=silent) == own
    own.write_bytes(jar("org/other/Thing.class"))
    for path in (own, tmp_path / "none.jar"):
        with pytest.raises(InputError, match="not the engine's jar"):
            engine_jars.resolve_jar(SOME, given=path, say=silent)
    assert asked == []


def test_a_command_that_fails_gives_its_telling_line(tmp_path: Path) -> None:
    script = "import sys; print('fine'); print('[ERROR] unresolved dependency: x'); sys.exit(1)"
    assert engine_jars._run_command([sys.executable, "-c", script], tmp_path) == "[ERROR] unresolved dependency: x"
    assert engine_jars._run_command([sys.executable, "-c", "print('fine')"], tmp_path) is None
    assert str(engine_jars._run_command([str(tmp_path / "none")], tmp_path)).startswith("cannot start none")
