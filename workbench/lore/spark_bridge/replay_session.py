"""Fresh Spark session for a replay: settings of the dump, loopback only, deserialization filter."""

from __future__ import annotations

import contextlib
import difflib
import functools
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import Sidecar
from workbench.lore.spark_bridge.spark_internals import Bridge
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"
DRIVER_MEMORY = "4g"
JVM_END_S = 30
STEADY_CLASS_NAMES_KEY = "spark.sql.codegen.useIdInClassName"
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Spark is one per process, and so is what keeps it.
_kept: _KeptSpark | None = None
CONFIG_ENTRY = "org.apache.spark.internal.config.ConfigEntry"
COMET_PREFIX = "spark.comet."
# Settings of other programs in Spark's session: their keys are not Spark's.
OTHER_PREFIXES = {
    "spark.rapids.": "the RAPIDS Accelerator, which no replay loads",
    COMET_PREFIX: "Comet, which is loaded with --engine comet only",
}
# Value of no setting.
_MARKER = "\0"
_CONVERTERS = ("valueConverter", "rawValueConverter")
MAX_NEAREST = 3
# Similarity from which an unknown key is a misspelt one.
_MISSPELT = 0.88


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
    """Start Spark for a block of code and stop it at its end.

    `serial_filter` limits the Java classes that may be read.
    """
    from workbench.spark.jvm import use_spark

    use_spark()
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
            # Add JVM options to the settings: ours for logs first, so that the caller's override them, and the filter
            # last.
            from workbench.spark.jvm import QUIET_LOGGING

            options = dict(merged)
            for key, first in (
                ("spark.driver.extraJavaOptions", QUIET_LOGGING),
                ("spark.executor.extraJavaOptions", ""),
            ):
                last = f"-Djdk.serialFilter={serial_filter}" if serial_filter else ""
                if text := " ".join(filter(None, [first, options.get(key), last])):
                    options[key] = text
            spark = _start_session(master, app_name, options)
            # PYSPARK_SUBMIT_ARGS overrides settings, and PYSPARK_GATEWAY_PORT names a running JVM.
            has = spark.sparkContext._jvm.java.lang.System.getProperty("jdk.serialFilter")
            if serial_filter is not None and has != serial_filter:
                raise ConfigError(
                    "the JVM has no deserialization filter",
                    where="jdk.serialFilter",
                    found=has or "none",
                    do="unset PYSPARK_SUBMIT_ARGS and PYSPARK_GATEWAY_PORT",
                )
            spark.sparkContext.setLogLevel("OFF")
            yield spark
        finally:
            _stop_session(jvm=is_first)


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


def _stop_session(*, jvm: bool) -> None:
    """Stop Spark in this process, and its JVM when `jvm` is set."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        if (spark := SparkSession._instantiatedSession) is not None:
            spark.stop()
        elif SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    except (Py4JError, OSError):
        # A JVM without memory or one that died cannot be told to stop; what it failed at is the error to report.
        SparkSession._instantiatedSession = SparkContext._active_spark_context = None
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
                do="omit it, or give a value that Spark accepts",
            ) from error


def list_known_keys(bridge: Bridge, *, engine: str = "spark") -> list[str]:
    """Keys that this Spark, and the engine beside it, know."""
    keys = [str(key) for key in bridge.scala_object(CONFIG_ENTRY).knownConfigs().keySet()]
    if engine == "comet":
        entries = bridge.scala_object("org.apache.comet.CometConf").allConfs()
        keys += [str(entry.key()) for entry in bridge.to_list(entries.toList())]
    return sorted(keys)


def check_known_keys(bridge: Bridge, keys: Iterable[str], *, where: str, engine: str = "spark") -> None:
    """Refuse a key that nothing in this Spark reads."""
    spark_keys = set(list_known_keys(bridge, engine=engine))
    for key in keys:
        if key in spark_keys:
            continue
        for prefix, program in OTHER_PREFIXES.items():
            if key.startswith(prefix) and not (engine == "comet" and prefix == COMET_PREFIX):
                raise ConfigError(f"a setting of {program}", where=where, found=key, do="leave it out")
        near = difflib.get_close_matches(key, sorted(spark_keys), MAX_NEAREST, 0.6)
        raise ConfigError(
            "Spark has no such setting",
            where=where,
            found=key,
            allowed=near or "keys of Spark's documentation, such as spark.sql.shuffle.partitions",
            do="correct the key" if near else "look the key up in Spark's documentation",
        )


def refuse_misspelt_keys(bridge: Bridge, keys: Iterable[str], *, where: str = "--conf") -> None:
    """Refuse keys of Spark SQL that are unknown and nearly a known one; Spark takes them without a word.

    Keys of catalogs and of programs beside Spark are left alone.
    """
    spark_keys = list_known_keys(bridge)
    for key in set(keys) - set(spark_keys):
        if not key.startswith("spark.sql.") or key.startswith("spark.sql.catalog."):
            continue
        if near := difflib.get_close_matches(key, spark_keys, MAX_NEAREST, _MISSPELT):
            raise ConfigError("Spark has no such setting", where=where, found=key, allowed=near, do="correct the key")


def find_entry(bridge: Bridge, key: str) -> Any:
    """Spark's declaration of a setting; null for an unknown key."""
    return bridge.scala_object(CONFIG_ENTRY).findEntry(key)


def read_effective_value(bridge: Bridge, key: str) -> str:
    """The value of a setting in a session, in Spark's own form, so that texts of one value are equal.

    Examples: `TRUE` and `true`; `10MB` and `10485760`.
    """
    entry = find_entry(bridge, key)
    if entry is None:
        return str(bridge.spark.conf.get(key, None))
    # Without a second argument, the default of Spark.
    try:
        text = bridge.spark.conf.get(key)
    except Exception:  # noqa: BLE001 - py4j's class depends on the version: a setting without value and default
        return "None"
    some = bridge.jvm.scala.Option.apply(text)
    return str(some.map(entry.valueConverter()).toString())


@dataclass
class SettingWatch:
    """Which of some settings were read with a given text.

    `records`: By key, a Java map in order of access: its text, and a marker that is touched by `forget_reads`.
    """

    records: dict[str, Any] = field(default_factory=dict)

    def forget_reads(self) -> None:
        """Forget what was read so far."""
        for record in self.records.values():
            record.get(_MARKER)

    def list_read_keys(self) -> list[str]:
        """Keys that were read since `forget_reads`."""
        return [key for key, record in self.records.items() if list(record.keySet())[-1] != _MARKER]


@contextlib.contextmanager
def watch_settings(bridge: Bridge, texts: Mapping[str, str]) -> Iterator[SettingWatch]:
    """Watch the reads of settings (key: text) in this JVM inside the block.

    Keys that Spark does not declare, such as an engine's own, are not watched.
    """
    watch = SettingWatch()
    restored: list[tuple[Any, str, Any]] = []
    scala_maps = bridge.scala_object("scala.collection.JavaConverters")
    same = getattr(bridge.scala_object("scala.Predef"), "$conforms")()
    try:
        for key, text in texts.items():
            entry = find_entry(bridge, key)
            if entry is None:
                continue
            record = bridge.jvm.java.util.LinkedHashMap(16, 0.75, True)
            record.put(text, text)
            record.put(_MARKER, _MARKER)
            watch.records[key] = record
            listener = scala_maps.mapAsScalaMap(record).withDefault(same)
            for name in _CONVERTERS:
                converter = bridge.find_field(entry, name)
                if converter is not None:
                    restored.append((entry, name, converter))
                    bridge.set_field(entry, name, converter.compose(listener))
        yield watch
    finally:
        for entry, name, converter in reversed(restored):
            bridge.set_field(entry, name, converter)
