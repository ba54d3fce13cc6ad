"""Options of the JVMs that tests start: they do seconds of work, most of it loading Spark's classes.

Without the JVM's second compiler and its large collector a session that starts, runs one query and ends takes half the
processor time; with the classes of such a session in an archive of shared classes, six tenths of what is left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.spark.jvm import build_spark_environment

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# An archive that is not there, or does not fit, as of Spark 4, is left aside without a word.
_ARCHIVED = f"{QUICK} -Xlog:disable -Xlog:all=error:stderr -XX:SharedArchiveFile="
TIMEOUT_S = 300
SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(0, 1000, 1, 2).createOrReplaceTempView("a")
spark.sql("SELECT id % 10 AS k, sum(id) FROM a GROUP BY 1 ORDER BY 1").collect()
spark.sql("SELECT * FROM a AS l JOIN a AS r ON l.id = r.id + 1 WHERE l.id % 7 = 0").collect()
spark.udf.register("more", lambda value: value + 1, "long")
spark.sql("SELECT more(id) FROM a").write.parquet("rows")
spark.read.parquet("rows").groupBy().count().collect()
process = spark.sparkContext._gateway.proc
spark.stop()
# The archive is whole when the JVM has ended.
process.stdin.close()
process.wait()
"""


def options(*, make: bool) -> str:
    """JVM options for Spark; with `make` the archive of its classes is being made where there is none (half a minute).

    The quick options alone where there is no archive, no Java or no pyspark.
    """
    try:
        variables = os.environ | build_spark_environment()
    except WorkbenchError:
        return QUICK
    archive = _place(variables)
    if " " in str(archive):
        return QUICK
    if archive.is_file():
        return f"{_ARCHIVED}{archive}"
    if not make:
        return QUICK
    # Beside the tests: a JVM that starts before the archive is there does without.
    threading.Thread(target=_make, args=(archive, variables), name="archive of classes").start()
    return f"{_ARCHIVED}{archive}"


def remember_names() -> None:
    """From here on this process asks the JVM once for each class, and not at each use of it.

    pyspark looks names up at each call, and a name that is also a package is searched for in some 300 jars first: 6 %
    of what thousands of small jobs compute. For processes whose class path never changes.
    """
    from py4j.java_gateway import JavaPackage, JVMView

    for kind in (JVMView, JavaPackage):
        ask = kind.__getattr__

        def remembered(self: Any, name: str, ask: Callable[[Any, str], Any] = ask) -> Any:
            found = ask(self, name)
            self.__dict__[name] = found
            return found

        kind.__getattr__ = remembered


def _place(variables: dict[str, str]) -> Path:
    """Where the archive of this Java and this Spark lies: the JVM wants the very files that it was made of."""
    home = variables.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    spec = find_spec("pyspark")
    jars = Path(spec.origin if spec and spec.origin else "").parent / "jars"
    files = [java.resolve(), jars, *sorted(jars.glob("*.jar"))]
    told = "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in files)
    return Path(sys.prefix) / "cache" / f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def _make(archive: Path, variables: dict[str, str]) -> None:
    """Run one session and keep its classes, whole or not at all; without it the tests only take longer."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as scratch:
        made = Path(scratch) / archive.name
        given = variables | {"SPARK_SUBMIT_OPTS": f"{QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={made}"}
        given |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(
            [sys.executable, "-c", SESSION], cwd=scratch, env=given, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        if made.is_file():
            for old in archive.parent.glob("spark-*.jsa"):
                old.unlink()  # of jars that this environment had before; a JVM that reads it keeps it
            made.rename(archive)
