"""What the user of the notebook may set."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.live.choosing import Pick
from workbench.scaletest.steps import NAMES

SAMPLE = "../data/samples/scaletest/default-and-kai"
_RUNS = Pick("run, or runs by side", folders=("sides.json", "test.json", "journal.jsonl"))
_SCENARIO = Pick("scenario", files=("*.yaml", "*.yml"))


class NotebookConfig(BaseModel):
    """The question, and where its measurements come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: Annotated[str, _RUNS] = Field(default=SAMPLE, description="Folder of a run, or of runs by side.")
    live: bool = Field(default=False, description="Measure now, instead of showing runs that are there.")
    scenario: Annotated[str, _SCENARIO] = Field(default="", description="Live: the scenario's file.")
    cluster: str = Field(default="local", description="Live: name of a local cluster, made when it is not there.")
    schedulers: list[str] = Field(default=["default"], description="Live: default, kai, or both.")
    repeat: int = Field(default=1, ge=1, le=20, description="Live: runs a side.")
    step: str = Field(default="due to scheduled", description="The step whose spread is drawn.")

    @model_validator(mode="after")
    def _fits(self) -> NotebookConfig:
        if self.live and not self.scenario:
            raise ValueError("live needs a scenario, such as '../data/samples/scaletest/scenarios/first.yaml'")
        if not self.live and not self.runs:
            raise ValueError("without live, runs must name a folder")
        if self.step not in NAMES:
            raise ValueError(f"no such step; there are {', '.join(NAMES)}")
        return self
