"""Settings of the scale-test notebook."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from workbench.core.schema import StrictModel
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES

SAMPLE = "../data/samples/scaletest/league"
_RUNS = Pick("run, or runs by variant", folders=("sides.json", "test.json", "journal.jsonl"))
_SCENARIO = Pick("scenario", files=("*.yaml", "*.yml"))


class NotebookConfig(StrictModel):
    """Parameters of the notebook: recorded runs, or a live test."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Live measurement", ("scenario", "cluster", "schedulers", "repeat"), when="live"),
    )

    runs: Annotated[str, _RUNS] = Field(default=SAMPLE, description="Folder of a run, or of runs by variant.")
    live: bool = Field(default=False, description="Measure now instead of showing recorded runs.")
    scenario: Annotated[str, _SCENARIO] = Field(default="", description="Live: the scenario file.")
    cluster: str = Field(default="local", description="Live: name of the local cluster; created if it does not exist.")
    schedulers: list[str] = Field(default=["default"], description="Live: default, kai, or both.")
    repeat: int = Field(default=1, ge=1, le=20, description="Live: runs per variant.")
    step: str = Field(default="due to scheduled", description="The step whose distribution is drawn.")

    @model_validator(mode="after")
    def _check_sources(self) -> NotebookConfig:
        if self.live and not self.scenario:
            raise ValueError("live needs a scenario, such as '../data/samples/scaletest/scenarios/first.yaml'")
        if not self.live and not self.runs:
            raise ValueError("without live, runs must name a folder")
        if self.step not in STEP_NAMES:
            raise ValueError(f"unknown step; known are {', '.join(STEP_NAMES)}")
        return self
