"""A fresh Spark for a replay: settings of the dump, loopback only, a filter on what may be deserialized."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, InputError
from workbench.lore import trust

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.lore.sidecar import Sidecar

MASTER = "local[*]"
DRIVER_MEMORY = "4g"
LOG_SETTINGS = Path(__file__).parents[1] / "spark" / "log4j2.properties"
JVM_END_S = 30
STEADY = "spark.sql.codegen.useIdInClassName"
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextlib.contextmanager
def fresh(
    *,
    master: str = MASTER,
    settings: Mapping[str, str] | None = None,
    filtered: bool = True,
    also_allowed: str = "",
    app_name: str = "workbench lore",
) -> Iterator[SparkSession]:
    """A Spark of this process, ended with the block.

    Parameters
    ----------
    master
        Where it runs; on a local master it listens on loopback only.
    settings
        Settings that must be there from the start: an engine's.
    filtered
        Put `trust.JDK_SERIAL_FILTER` on the whole JVM: a replay loads classes that a file names.
    also_allowed
        Patterns before those of the filter: classes of an engine that was asked for.

    Raises
    ------
    ConfigError
        A Spark runs in this process already, whose JVM has no filter; or Spark does not start with these settings.
    MissingToolError
        There is no pyspark or no Java.
    """
    from workbench.spark.java import environment

    os.environ.update(environment())
    from pyspark import SparkContext

    is_first = SparkContext._gateway is None
    # A JVM outlives its Spark, and takes its options at its own start only.
    if SparkContext._active_spark_context is not None or (filtered and not is_first):
        raise ConfigError(
            "a Spark runs in this process already, and a replay needs one of its own",
            do="workbench lore replay DIR in a process of its own, or workbench.lore.replay, which starts one",
        )
    with tempfile.TemporaryDirectory(prefix="workbench-lore-", ignore_cleanup_errors=True) as scratch:
        merged = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": Path(scratch, "warehouse").as_uri(),
            **(_LOOPBACK if master.startswith("local") else {}),
            **(settings or {}),
        }
        serial_filter = also_allowed + trust.JDK_SERIAL_FILTER if filtered else None
        try:
            spark = _started(master, app_name, _with_java_options(merged, serial_filter))
            _require_filter(spark, serial_filter)
            spark.sparkContext.setLogLevel("OFF")
            yield spark
        finally:
            _end(jvm=is_first)


def _with_java_options(settings: Mapping[str, str], serial_filter: str | None) -> dict[str, str]:
    """The same with options of the JVM: our log's before the caller's, so that the caller's win; the filter last."""
    found = dict(settings)
    quiet = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    for key, first in (("spark.driver.extraJavaOptions", quiet), ("spark.executor.extraJavaOptions", "")):
        last = f"-Djdk.serialFilter={serial_filter}" if serial_filter else ""
        if text := " ".join(filter(None, [first, found.get(key), last])):
            found[key] = text
    return found


def _started(master: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        java = getattr(error, "java_exception", None)
        raise ConfigError(
            "Spark does not start with these settings",
            where="--master, --conf, --driver-memory",
            found=str(java.toString() if java is not None else error).splitlines()[0][:300],
            do="see what Java said above, if anything, and mend the setting that is named",
        ) from error


def _require_filter(spark: SparkSession, serial_filter: str | None) -> None:
    # PYSPARK_SUBMIT_ARGS wins over settings, and PYSPARK_GATEWAY_PORT names a JVM that runs already.
    has = spark.sparkContext._jvm.java.lang.System.getProperty("jdk.serialFilter")
    if serial_filter is not None and has != serial_filter:
        raise ConfigError(
            "the JVM has no filter on what may be loaded",
            where="jdk.serialFilter",
            found=has or "none",
            do="unset PYSPARK_SUBMIT_ARGS and PYSPARK_GATEWAY_PORT",
        )


def _end(*, jvm: bool) -> None:
    """End the Spark of this process, and its JVM when it was started for it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if (spark := SparkSession._instantiatedSession) is not None:
        spark.stop()
    elif SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if not jvm or gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    if gateway.proc is None:
        return
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JVM_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def like_the_dump(spark: SparkSession, sidecar: Sidecar, extra: Mapping[str, str] | None = None) -> None:
    """Set what the dump's session had set, then what the caller asks for.

    Raises
    ------
    InputError
        The dump is of another Spark, whose classes this one cannot load.
    ConfigError
        A setting of the caller's that cannot be changed in a session.
    """
    if sidecar.versions.spark != spark.version:
        raise InputError(
            "the dump was made by another Spark, and plan.meta is loaded by exactly the same one only",
            found=spark.version,
            allowed=sidecar.versions.spark,
            do=f"pip install pyspark=={sidecar.versions.spark} in an environment of its own, and replay it there; "
            "workbench lore inspect reads any dump",
        )
    for key, value in sidecar.confs.items():
        # A static setting cannot be taken over; none of them changes what an operator gives.
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    # Generated code keeps its name from run to run and is compiled once. With the number of its stage in its name no
    # timed run would ever be warm: a join of 50 ms then took 370.
    spark.conf.set(STEADY, "false")
    spark.conf.set("spark.sql.session.timeZone", sidecar.time_zone)
    spark.conf.set("spark.sql.ansi.enabled", str(sidecar.ansi).lower())
    for key, value in (extra or {}).items():
        try:
            spark.conf.set(key, value)
        except Exception as error:
            raise ConfigError("cannot be set for a replay", where="--conf", found=f"{key}={value}") from error
