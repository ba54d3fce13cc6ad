"""Fresh Spark session for a replay: settings of the dump, loopback only, deserialization filter."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.errors import ConfigError, InputError
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.lore.dumps.dump_sidecar import Sidecar

MASTER = "local[*]"
DRIVER_MEMORY = "4g"
LOG_SETTINGS = Path(__file__).parents[2] / "spark" / "log4j2.properties"
JVM_END_S = 30
STEADY_CLASS_NAMES_KEY = "spark.sql.codegen.useIdInClassName"
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass
class _KeptSpark:
    """A Spark that stays between `fresh_session` blocks, what it was started with, and what ends it."""

    spark: SparkSession | None = None
    started_with: tuple[object, ...] = ()
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def end(self) -> None:
        """Stop Spark and its JVM; nothing when none runs."""
        self.spark = None
        self.stack.close()


# Spark is one per process, and so is what keeps it.
_kept: _KeptSpark | None = None


@contextlib.contextmanager
def keep_session() -> Iterator[None]:
    """Inside the block `fresh_session` starts Spark once, and gives each caller a session of its own.

    A caller who asks for other settings at the start (an engine, memory) gets a new Spark. A block inside another one
    changes nothing.
    """
    global _kept
    if _kept is not None:
        yield
        return
    _kept = _KeptSpark()
    try:
        yield
    finally:
        spark, _kept = _kept, None
        spark.end()


@contextlib.contextmanager
def fresh_session(
    *,
    master: str = MASTER,
    settings: Mapping[str, str] | None = None,
    filtered: bool = True,
    also_allowed: str = "",
    app_name: str = "workbench lore",
) -> Iterator[SparkSession]:
    """A Spark of this process, ended with the block; inside `keep_session` a new session of the one that stays.

    `settings`: Settings that must be set at the start, such as those of an engine.
    `filtered`: Set `allow_lists.JDK_SERIAL_FILTER` for the whole JVM, since a replay loads classes that a file names.
    """
    serial_filter = also_allowed + trust_check.JDK_SERIAL_FILTER if filtered else None
    started_with = (master, dict(settings or {}), serial_filter)
    start = functools.partial(_run_spark, master, dict(settings or {}), serial_filter, app_name)
    if _kept is None:
        with start() as spark:
            yield spark
        return
    if _kept.spark is None or _kept.started_with != started_with:
        _kept.end()
        _kept.spark, _kept.started_with = _kept.stack.enter_context(start()), started_with
    yield _kept.spark.newSession()


@contextlib.contextmanager
def _run_spark(
    master: str, settings: Mapping[str, str], serial_filter: str | None, app_name: str
) -> Iterator[SparkSession]:
    from workbench.spark.jvm import build_spark_environment

    os.environ.update(build_spark_environment())
    from pyspark import SparkContext

    is_first = SparkContext._gateway is None
    # A JVM outlives its Spark and takes options only at its start.
    if SparkContext._active_spark_context is not None or (serial_filter is not None and not is_first):
        raise ConfigError(
            "Spark already runs in this process, and a replay needs a fresh one",
            do="workbench lore replay DIR, or workbench.lore.replay, which starts a process",
        )
    with tempfile.TemporaryDirectory(prefix="workbench-lore-", ignore_cleanup_errors=True) as scratch:
        merged = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": Path(scratch, "warehouse").as_uri(),
            **(_LOOPBACK if master.startswith("local") else {}),
            **settings,
        }
        try:
            spark = _start_session(master, app_name, _with_java_options(merged, serial_filter))
            _check_filter(spark, serial_filter)
            spark.sparkContext.setLogLevel("OFF")
            yield spark
        finally:
            _stop_session(jvm=is_first)


def _with_java_options(settings: Mapping[str, str], serial_filter: str | None) -> dict[str, str]:
    """The settings with JVM options: our log settings first, so that the caller's override them; the filter last."""
    options = dict(settings)
    quiet = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    for key, first in (("spark.driver.extraJavaOptions", quiet), ("spark.executor.extraJavaOptions", "")):
        last = f"-Djdk.serialFilter={serial_filter}" if serial_filter else ""
        if text := " ".join(filter(None, [first, options.get(key), last])):
            options[key] = text
    return options


def _start_session(master: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
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
            do="see the messages of Java above, and correct the setting that they name",
        ) from error


def _check_filter(spark: SparkSession, serial_filter: str | None) -> None:
    # PYSPARK_SUBMIT_ARGS overrides settings, and PYSPARK_GATEWAY_PORT names a running JVM.
    has = spark.sparkContext._jvm.java.lang.System.getProperty("jdk.serialFilter")
    if serial_filter is not None and has != serial_filter:
        raise ConfigError(
            "the JVM has no deserialization filter",
            where="jdk.serialFilter",
            found=has or "none",
            do="unset PYSPARK_SUBMIT_ARGS and PYSPARK_GATEWAY_PORT",
        )


def _stop_session(*, jvm: bool) -> None:
    """Stop Spark in this process, and its JVM when `jvm` is set."""
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


def apply_dump_settings(spark: SparkSession, sidecar: Sidecar, extra: Mapping[str, str] | None = None) -> None:
    """Apply the settings of the dump's session, then those of the caller."""
    if sidecar.versions.spark != spark.version:
        raise InputError(
            "the dump was made by another Spark version, and plan.meta needs exactly the same one",
            found=spark.version,
            allowed=sidecar.versions.spark,
            do=f"pip install pyspark=={sidecar.versions.spark} in a separate environment, and replay it there; "
            "workbench lore inspect reads any dump",
        )
    for key, value in sidecar.confs.items():
        # Static settings cannot be changed; none of them affects the output of an operator.
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    # Generated code keeps its class name and is compiled once. With the stage number in the name no timed run would be
    # warm: a join of 50 ms took 370 ms.
    spark.conf.set(STEADY_CLASS_NAMES_KEY, "false")
    spark.conf.set("spark.sql.session.timeZone", sidecar.time_zone)
    spark.conf.set("spark.sql.ansi.enabled", str(sidecar.ansi).lower())
    for key, value in (extra or {}).items():
        try:
            spark.conf.set(key, value)
        except Exception as error:
            raise ConfigError(
                "cannot be set for a replay",
                where="--conf",
                found=f"{key}={value}",
                do="leave it out, or give a value that Spark takes",
            ) from error
