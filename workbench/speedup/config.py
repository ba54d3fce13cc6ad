"""What the user may set for the profile of one application."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ProfileConfig(BaseModel):
    """Which log, which of its queries, how much to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_log: str = Field(
        min_length=1, description="Event log: a file, a rolling folder or a URL; the first application in it."
    )
    sql_ids: list[int] = Field(default=[], description="SQL executions to look at; all of them when empty.")
    top_operators: int = Field(
        default=12, ge=1, le=100, description="Rows of the operator table and bars of its chart."
    )
