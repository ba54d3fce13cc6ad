"""Engines of Spark, one record each: how a log shows that one ran, its settings, and its jar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.core.errors import ConfigError


@dataclass(frozen=True)
class Artifact:
    """A jar in a Maven repository: coordinates, a class that it must contain, known digest."""

    coordinate: str
    holds: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """File name in Maven."""
        _, name, version = self.coordinate.split(":")
        return f"{name}-{version}.jar"


@dataclass(frozen=True)
class Engine:
    """An engine of Spark.

    `nodes`: Names of its plan nodes. `classes`: Its classes in the properties of a session. `switch`, `mode`: The
    properties that turn it off, or let it explain only.
    `settings`, `artifacts`: To run with it here: its settings (null: it cannot be had), and its jar by line of Spark.
    """

    nodes: re.Pattern[str] = re.compile(r"(?!)")
    classes: tuple[str, ...] = ()
    switch: str = ""
    mode: str = ""
    settings: Mapping[str, str] | None = None
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)

    def get_artifact(self, line: str | None = None) -> Artifact | None:
        """Jar for a line of Spark (by default that of $WORKBENCH_SPARK, else the installed one)."""
        from workbench.spark import releases

        if not self.artifacts:
            return None
        line = line or releases.get_chosen_line() or releases.get_installed_line()
        if line is None or line not in self.artifacts:
            raise ConfigError(
                "the engine has no jar for this Spark",
                found=line or "no pyspark installed",
                allowed=list(self.artifacts),
                do=f"choose a line: {releases.VARIABLE}={next(iter(self.artifacts))}",
            )
        return self.artifacts[line]


COMET_PLUGIN = "org/apache/spark/CometPlugin.class"
COMET = {
    "3.5": Artifact(
        "org.apache.datafusion:comet-spark-spark3.5_2.12:0.12.0",
        COMET_PLUGIN,
        "4ef25ed0da6816e18b0b7711b82e9807d62a0330a1e89aa3f09a1bbb005c9424",
    ),
    "4.1": Artifact(
        "org.apache.datafusion:comet-spark-spark4.1_2.13:1.2.0",
        COMET_PLUGIN,
        "5055c43dca9e8cce83c33b1ff25646d1436c94698ca48beb3475bf60843b8d37",
    ),
}
# In this order: the first whose pattern has a node's name.
ENGINES: dict[str, Engine] = {
    "spark": Engine(settings={}),
    "rapids": Engine(
        re.compile(r"Gpu[A-Z]"), ("com.nvidia.spark.SQLPlugin",), "spark.rapids.sql.enabled", "spark.rapids.sql.mode"
    ),
    "comet": Engine(
        re.compile(r"Comet[A-Z]"),
        ("org.apache.spark.CometPlugin", "org.apache.comet.CometSparkSessionExtensions"),
        "spark.comet.enabled",
        settings={
            "spark.plugins": "org.apache.spark.CometPlugin",
            "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
            "spark.comet.enabled": "true",
            "spark.comet.exec.enabled": "true",
            "spark.comet.exec.shuffle.enabled": "true",
            "spark.memory.offHeap.enabled": "true",
            "spark.memory.offHeap.size": "4g",
        },
        artifacts=COMET,
    ),
    "photon": Engine(re.compile(r"Photon[A-Z]")),
    # Its names hold "Transformer" or the name of its native library; of columnar nodes only one is Spark's.
    "gluten": Engine(
        re.compile(
            r"\w*Transformer\b|Columnar(?!ToRow)[A-Z]|Velox[A-Z]|RowToVelox|CHColumnar|RowToCHNative|NativeFileScan"
        ),
        (".GlutenPlugin",),
        "spark.gluten.enabled",
    ),
    # Called Blaze before.
    "auron": Engine(
        re.compile(r"Native[A-Z]|ConvertToNative|ConvertToUnsafeRow|Auron[A-Z]|Blaze[A-Z]"),
        ("AuronSparkSessionExtension", "BlazeSparkSessionExtension"),
        "spark.auron.enabled",
    ),
}
RUNNABLE = {name: engine for name, engine in ENGINES.items() if engine.settings is not None}
