"""A fresh Spark for a replay: settings of the dump, loopback only, a filter on what may be deserialized."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.lore.sidecar import Sidecar

MASTER = "local[*]"
DRIVER_MEMORY = "4g"
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
        A Spark runs in this process already: its JVM has no filter.
    MissingToolError
        There is no pyspark or no Java.
    """
    from workbench.lore import trust
    from workbench.spark.java import environment

    for name, value in environment().items():
        os.environ[name] = value
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
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
        if filtered:
            for side in ("driver", "executor"):
                key = f"spark.{side}.extraJavaOptions"
                merged[key] = (
                    f"{merged.get(key, '')} -Djdk.serialFilter={also_allowed}{trust.JDK_SERIAL_FILTER}".strip()
                )
        builder = SparkSession.builder.master(master).appName(app_name)
        for key, value in merged.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            spark.sparkContext.setLogLevel("OFF")
            yield spark
        finally:
            spark.stop()


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
    spark.conf.set("spark.sql.session.timeZone", sidecar.time_zone)
    spark.conf.set("spark.sql.ansi.enabled", str(sidecar.ansi).lower())
    for key, value in (extra or {}).items():
        try:
            spark.conf.set(key, value)
        except Exception as error:
            raise ConfigError("cannot be set for a replay", where="--conf", found=f"{key}={value}") from error
