"""Spark as an engine: plain, or with an accelerator that comes in a jar of its own and is switched on by settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Artifact:
    """A jar in a Maven repository: where, which class shows that it is the one, and its known digest."""

    coordinate: str
    holds: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """Its name as Maven gives it."""
        _, name, version = self.coordinate.split(":")
        return f"{name}-{version}.jar"


@dataclass(frozen=True)
class Engine:
    """What makes a Spark this engine: settings, and a jar that it comes in."""

    settings: Mapping[str, str] = field(default_factory=dict)
    artifact: Artifact | None = None


COMET = Artifact(
    "org.apache.datafusion:comet-spark-spark3.5_2.12:0.12.0",
    "org/apache/spark/CometPlugin.class",
    "4ef25ed0da6816e18b0b7711b82e9807d62a0330a1e89aa3f09a1bbb005c9424",
)
ENGINES: dict[str, Engine] = {
    "spark": Engine(),
    "comet": Engine(
        {
            "spark.plugins": "org.apache.spark.CometPlugin",
            "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
            "spark.comet.enabled": "true",
            "spark.comet.exec.enabled": "true",
            "spark.comet.exec.shuffle.enabled": "true",
            "spark.memory.offHeap.enabled": "true",
            "spark.memory.offHeap.size": "4g",
        },
        COMET,
    ),
}


def class_paths(jar: Path) -> dict[str, str]:
    """Settings that put an engine's jar where Spark's driver and executors look for it from their start."""
    # An executor of a cluster finds the copy that spark.jars brings into its working folder, or a shared path.
    return {
        "spark.jars": str(jar),
        "spark.driver.extraClassPath": str(jar),
        "spark.executor.extraClassPath": f"{jar}:{jar.name}",
    }
