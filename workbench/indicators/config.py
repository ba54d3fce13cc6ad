"""Parameters of the notebooks on a session and on figures over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from workbench.core.schema import StrictModel
from workbench.indicators.measurement.session_config import SessionConfig, session_config
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest, build_request
from workbench.indicators.recommendation.unit_pipeline import RecommendationType
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup

if TYPE_CHECKING:
    from workbench.indicators.history.history_points import HistoryFilter

SAMPLE = "../data/samples/indicators/numpy"
_SESSION = Pick("session", folders=("session.json",))
HISTORY_SAMPLE = "../data/samples/indicators/history/points.parquet"
_HISTORY = Pick("source", files=("*.parquet", "*.db"))


class NotebookConfig(StrictModel):
    """Parameters of the notebook: the session to read or to measure, and the question."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Live measurement", ("stacks", "indicators", "rounds", "threads"), when="live"),
        FieldGroup("More settings", ("require", "seed")),
    )

    session: Annotated[str, _SESSION] = Field(default=SAMPLE, description="Folder of a recorded session.")
    live: bool = Field(default=False, description="Measure now, instead of reading a session.")
    stacks: list[str] = Field(default=[], description="Live: requirements, one stack each; the first is the baseline.")
    indicators: list[str] = Field(default=[], description="Live: indicators to measure, NAME:p=v,p=v.")
    rounds: list[int] = Field(default=[10, 20, 30], description="Live: rounds after which to look and stop early.")
    threads: int = Field(default=1, ge=1, le=1024, description="Live: threads that libraries may use.")
    mix: str = Field(default="", description="metric=weight,…; empty: equal weights.")
    recommendation: RecommendationType = Field(default="performance", description="How to choose among stacks.")
    require: list[str] = Field(default=[], description="Requirements that a stack must meet, such as numpy>=2.")
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers.")

    @model_validator(mode="after")
    def _check_source(self) -> NotebookConfig:
        if self.live and len(self.stacks) < 1:
            raise ValueError("live needs stacks, such as ['numpy==2.2.6', 'numpy==2.4.6']")
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

    @property
    def measured(self) -> SessionConfig:
        """The configuration of the session that is measured live.

        Raises
        ------
        ConfigError
            A setting is invalid.
        """
        return session_config(
            stack=tuple(self.stacks),
            indicators=tuple(self.indicators),
            rounds=tuple(self.rounds),
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
