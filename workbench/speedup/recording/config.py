"""What the user may set for a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MEMORY = r"^[1-9]\d{0,6}[kmgt]$"


class RecordConfig(BaseModel):
    """Which queries on which sides, how often, where to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    out: Path = Field(description="Folder of the recording.")
    engines: list[str] = Field(default=[], description="Engines to record, each under its own name.")
    labels: list[str] = Field(default=[], description="Names in place of the engines', one for each.")
    sides: list[str] = Field(default=[], description="Further sides, each LABEL[:ENGINE][,key=value...].")
    conf: list[str] = Field(default=[], description="Spark settings of all sides, each key=value.")
    queries: str = Field(default="tpch", min_length=1, description="tpch, FILE.sql, FILE.py or a module.")
    data: str | None = Field(default=None, description="Folder or URL of Parquet tables; TPC-H is made without.")
    scale: float = Field(default=1.0, gt=0, le=1000, description="TPC-H scale factor.")
    sessions: int = Field(default=5, ge=1, le=100, description="Sessions a side: fresh JVMs.")
    passes: int = Field(default=3, ge=1, le=100, description="Passes a session; the first is cold.")
    seed: int = Field(default=0, ge=0, description="Of the order of sessions and queries.")
    master: str = Field(default="local[*]", min_length=1, description="Spark master.")
    driver_memory: Annotated[str, StringConstraints(to_lower=True, pattern=MEMORY)] = Field(
        default="4g", description="Heap of the driver, as Spark spells it."
    )
    shuffle_partitions: int | None = Field(
        default=None, ge=1, le=1_000_000, description="4 on a local master, else Spark's own."
    )
    comet_jar: Path | None = Field(default=None, description="A jar of Comet in place of the one from Maven.")
    scrub: bool = Field(default=False, description="Take paths, host and user out of the logs.")
    session_timeout_s: float = Field(default=7200, gt=0, description="A session that takes longer is killed.")
    fresh: bool = Field(default=False, description="Refuse to go on with an earlier recording.")

    @property
    def local(self) -> bool:
        """Does Spark run inside this machine's driver?"""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")
