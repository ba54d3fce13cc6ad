"""`python -m workbench.spark.ivy COORDINATE FOLDER`: a JVM that only brings a package, then ends."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def main(coordinate: str, folder: str) -> None:
    """Start Spark's launcher with the package: it resolves packages before anything else; no session is made.

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
