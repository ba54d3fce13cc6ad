"""Settings of a notebook over one event log, and the file patterns of such logs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from workbench.eventlog.codecs import ENDINGS
from workbench.live.file_picker import Pick

# Names of Spark and its history server; others are listed under "all files".
_NAMES = (*(f"*.{ending}" for ending in ENDINGS), "*.zip", "*.inprogress", "app-*", "application_*", "local-*")
EVENT_LOG = Pick("event log", files=_NAMES, folders=("events_[0-9]*", "eventlog-*"))
EVENT_LOGS = Pick("event log, or folder of them", files=_NAMES, folders=(*_NAMES, "events_[0-9]*", "eventlog_v2_*"))


class NotebookConfig(BaseModel):
    """Settings: the log to read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_log: Annotated[str, EVENT_LOG] = Field(min_length=1, description="File, rolling folder or URL.")
