"""Parameters of the notebooks on a session and on figures over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from workbench.core.schema import StrictModel
from workbench.indicators.measurement.session_config import SessionConfig, session_config
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest, build_request
from workbench.indicators.recommendation.unit_pipeline import RecommendationType
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup, added_field

if TYPE_CHECKING:
    from workbench.indicators.history.history_points import HistoryFilter

SAMPLE = "../data/samples/indicators/numpy"
_SESSION = Pick("session", folders=("session.json",))
_STACKS = Pick("stacks", files=("*.json", "*.yaml", "*.yml"))
_SCRIPT = Pick("script", files=("*.py",))
DEFAULT_ROUNDS = (10, 20, 30)
# Intervals hold at every number of rounds, so that looking often costs nothing.
QUICK_ROUNDS = (6, 7, 8, 9, 10)
HISTORY_SAMPLE = "../data/samples/indicators/history/points.parquet"
_HISTORY = Pick("source", files=("*.parquet", "*.db"))


class NotebookConfig(StrictModel):
    """Parameters of the notebook: the session to read or to measure, and the question."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Live: stacks", ("stacks", "stack_files", "environments"), when="live"),
        FieldGroup("Live: measurement", ("indicators", "rounds", "threads"), when="live"),
        FieldGroup("Live: own scripts and suites", ("script", "pytest", "pyperf"), when="live"),
        FieldGroup("More settings", ("require", "seed")),
    )

    session: Annotated[str, _SESSION] = Field(default=SAMPLE, description="Folder of a recorded session.")
    live: bool = Field(default=False, description="Measure now, instead of reading a session.")
    stacks: list[str] = Field(default=[], description="Live: requirements, one stack each; the first is the baseline.")
    stack_files: Annotated[list[str], _STACKS] = added_field([], "Live: stacks files or matrices.")
    environments: list[str] = added_field([], "Live: existing environments, NAME=PATH each.")
    indicators: list[str] = Field(default=[], description="Live: indicators to measure, NAME:p=v,p=v.")
    script: Annotated[list[str], _SCRIPT] = added_field([], "Live: scripts that print a document.")
    pytest: Annotated[list[str], _SCRIPT] = added_field([], "Live: suites of pytest-benchmark.")
    pyperf: Annotated[list[str], _SCRIPT] = added_field([], "Live: scripts that run pyperf.Runner.")
    rounds: list[int] = Field(default=[], description="Live: rounds after which to look and stop early; empty: chosen.")
    threads: int = Field(default=1, ge=1, le=1024, description="Live: threads that libraries may use.")
    mix: str = Field(default="", description="metric=weight,…; empty: equal weights.")
    recommendation: RecommendationType = Field(default="performance", description="How to choose among stacks.")
    require: list[str] = Field(default=[], description="Requirements that a stack must meet, such as numpy>=2.")
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers.")

    @model_validator(mode="after")
    def _check_source(self) -> NotebookConfig:
        if not self.live and not self.session:
            raise ValueError("without live, session must name a folder")
        return self

    @property
    def request(self) -> RecommendationRequest:
        """The settings of the recommendation.

        Raises
        ------
        ConfigError
            A setting is invalid.
        """
        return build_request(
            mix=self.mix or None, type=self.recommendation, require=tuple(self.require), seed=self.seed
        )

    @classmethod
    def measures_by_default(cls) -> bool:
        """Whether a live session takes less than half a minute here and needs no package index."""
        from workbench.indicators.stacks.found_environments import can_compare_environments

        return can_compare_environments()

    def build_session_config(self, folder: Path) -> SessionConfig:
        """The configuration of the session that is measured live.

        Where no stacks are named, those environments are compared that are there: `folder` gets their matrix.

        Raises
        ------
        ConfigError
            A setting is invalid.
        """
        from workbench.indicators.stacks.found_environments import write_environment_matrix

        is_named = bool(self.stacks or self.stack_files or self.environments)
        files = self.stack_files if is_named else [str(write_environment_matrix(folder))]
        return session_config(
            stack=tuple(self.stacks),
            stacks=tuple(files),
            python=tuple(self.environments),
            indicators=tuple(self.indicators),
            script=tuple(self.script),
            pytest=tuple(self.pytest),
            pyperf=tuple(self.pyperf),
            rounds=tuple(self.rounds) or (DEFAULT_ROUNDS if is_named else QUICK_ROUNDS),
            threads=self.threads,
            seed=self.seed,
        )


class HistoryConfig(StrictModel):
    """Parameters of the notebook on figures over time."""

    FORM_GROUPS: ClassVar = (FieldGroup("More settings", ("reference", "clock", "absolute")),)

    source: Annotated[str, _HISTORY] = Field(
        default=HISTORY_SAMPLE, description="Database or table of points; empty: the default database."
    )
    indicator: str = Field(default="", description="Only this indicator or metric; empty: all.")
    stack: str = Field(default="", description="Only this stack, without versions; empty: all.")
    since: str = Field(default="", description="Compare the sessions since this date with those before; empty: do not.")
    reference: str = Field(default="", description="Start of the reference's key; empty: that of most sessions.")
    clock: Literal["wall", "cpu"] = Field(default="wall", description="Time that is compared: wall or cpu.")
    absolute: bool = Field(default=False, description="Also sessions without a reference, by their own values.")

    @property
    def filter(self) -> HistoryFilter:
        """Which figures are wanted."""
        from workbench.indicators.history.history_points import HistoryFilter

        return HistoryFilter(
            self.indicator or None, self.stack or None, self.reference or None, self.clock, self.absolute
        )
