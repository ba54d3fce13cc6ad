"""What the user of the notebook may set."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.live.choosing import Pick

_QUERY = Pick("query", files=("*.sql", "*.py"))
_TABLES = Pick("folder of tables", folders=("*.parquet",))
_DUMP = Pick("dump or bundle", files=("*.zip",), folders=("plan.json", "plan.meta"))
_PLACE = Pick("folder", folders=("*",))
_NUMBER = re.compile(r"\s*\d+\s*", re.ASCII)


class NotebookConfig(BaseModel):
    """Which operator of which query is replayed, under which settings; or which dump that is there already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_file: Annotated[str, _QUERY] = Field(
        description="FILE.sql, or FILE.py:FUNCTION of the session, which gives a DataFrame."
    )
    data_folder: Annotated[str, _TABLES] = Field(
        default="", description="Every *.parquet in it becomes a view of its name; none if empty."
    )
    views: list[str] = Field(default=[], description="Further views, NAME=PATH each: Parquet, ORC, JSON or CSV.")
    confs: list[str] = Field(default=[], description="Settings of the query's session, KEY=VALUE each.")
    ids: str = Field(default="", description="Operator and partitions, 10 or 10[0 2]; the study chooses when empty.")
    partition: int | None = Field(default=None, ge=0, description="Only this one; all of them when null.")
    repeat: int = Field(default=5, ge=0, le=1000, description="Timed runs of each side, after the verified one.")
    confs_a: list[str] = Field(default=[], description="Settings of side A, KEY=VALUE each.")
    confs_b: list[str] = Field(default=[], description="Settings of side B; no comparison when both are empty.")
    engine: Literal["spark", "comet"] = Field(default="spark", description="comet: side B is that engine.")
    dump_folder: Annotated[str, _DUMP] = Field(
        default="", description="loreId-N or a bundle FILE.zip: only look into it and replay it."
    )
    trust: bool = Field(default=False, description="Load a dump that you did not sign.")
    dump_path: Annotated[str, _PLACE] = Field(
        default="", description="New folder for the dump; below the run folder when empty."
    )
    level: float = Field(default=0.9, gt=0.5, lt=1, description="Confidence of the intervals.")

    @model_validator(mode="after")
    def _fits(self) -> NotebookConfig:
        if not self.dump_folder and not self.query_file:
            raise ValueError("give query_file, or dump_folder to replay a dump that is there")
        if self.partition is not None and "[" in self.ids:
            raise ValueError("give partitions in ids or as partition, not both")
        for name in ("dump_folder", "dump_path"):
            if "://" in getattr(self, name):
                raise ValueError(f"{name} must be on this machine; `workbench lore` knows URLs of Hadoop, too")
        return self

    @property
    def selection(self) -> str:
        """`ids` as the plugin's key spells them; empty when the study chooses.

        Examples
        --------
        >>> NotebookConfig(query_file="q.sql", ids="10", partition=2).selection
        '10[2]'
        """
        return spelled(int(self.ids), self.partition) if _NUMBER.fullmatch(self.ids) else self.ids.strip()

    @property
    def dump_source(self) -> Path | None:
        """The dump that is there already; null when the query is to be dumped."""
        return Path(self.dump_folder) if self.dump_folder else None


def spelled(lore_id: int, partition: int | None) -> str:
    """One operator with one partition, or all, as the plugin's key spells it."""
    return f"{lore_id}[{'*' if partition is None else partition}]"
