"""What the user may set: for the profile of one application, and for the notebook."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.eventlog.notebook_config import EVENT_LOG, EVENT_LOGS
from workbench.live.choosing import Pick

_RECORDING = Pick("recording", folders=("recording.json",))
_FACTORS = Pick("factor model", files=("*.json",))


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


class NotebookConfig(BaseModel):
    """What the notebook shows: a pair and its factors, a fleet ranked by them, or the profile of one log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["pair", "fleet", "profile"] = Field(
        default="pair",
        description="What to show. Where it is left at pair, `event_log` means profile, and `logs` mean fleet.",
    )
    recording_folder: Annotated[str, _RECORDING] = Field(
        min_length=1, description="Folder of `workbench speedup record`; also makes the factors."
    )
    baseline: str = Field(default="", description="Side that the factors start from; the recording's first if empty.")
    candidate: str = Field(default="", description="Side that they lead to; the recording's second if empty.")
    query: str = Field(default="", description="Query whose steps are shown first; the longest if empty.")
    set_factors: list[str] = Field(default=[], description="Factors set by hand, Operator=1.5 each.")
    logs: Annotated[list[str], EVENT_LOGS] = Field(default=[], description="Fleet: event logs, folders or URLs.")
    factors_file: Annotated[str, _FACTORS] = Field(
        default="", description="Fleet: factor model, a JSON file; that of the recording if empty."
    )
    price_baseline_per_h: float | None = Field(default=None, ge=0, description="Fleet: price of the baseline per hour.")
    price_candidate_per_h: float | None = Field(default=None, ge=0, description="Fleet: price of the candidate.")
    event_log: Annotated[str, EVENT_LOG] = Field(
        default="", description="Profile: event log, a file, a rolling folder or a URL."
    )
    sql_ids: list[int] = Field(default=[], description="Profile: SQL executions to look at; all when empty.")
    top_operators: int = Field(default=12, ge=1, le=100, description="Rows of operator tables, bars of charts.")
    level: float = Field(default=0.9, gt=0.5, lt=1, description="Confidence of the intervals.")

    @model_validator(mode="before")
    @classmethod
    def _mode_by_input(cls, given: Any) -> Any:
        """An event log alone says what is wanted; so do logs."""
        if not isinstance(given, dict) or given.get("mode", "pair") != "pair":
            return given
        mode = "profile" if given.get("event_log") else "fleet" if given.get("logs") else "pair"
        return given | {"mode": mode}

    @model_validator(mode="after")
    def _inputs_of_mode(self) -> NotebookConfig:
        if self.mode == "profile" and not self.event_log:
            raise ValueError("mode profile needs event_log")
        if self.mode == "fleet" and not self.logs:
            raise ValueError("mode fleet needs logs")
        return self
