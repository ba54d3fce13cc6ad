"""What the user of the notebook may set."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.indicators.config import SessionConfig, session_config
from workbench.indicators.recommending.request import Request, request
from workbench.indicators.recommending.units import RecommendationType
from workbench.live.choosing import Pick

SAMPLE = "../data/samples/indicators/numpy"
_SESSION = Pick("session", folders=("session.json",))


class NotebookConfig(BaseModel):
    """The question, and where its measurements come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session: Annotated[str, _SESSION] = Field(default=SAMPLE, description="Folder of a session that is there.")
    live: bool = Field(default=False, description="Measure now, instead of showing a session.")
    stacks: list[str] = Field(default=[], description="Live: requirements, a stack each; the first is the baseline.")
    indicators: list[str] = Field(default=[], description="Live: what is measured, NAME:p=v,p=v.")
    rounds: list[int] = Field(default=[10, 20, 30], description="Live: looks, rounds after which it may stop.")
    threads: int = Field(default=1, ge=1, le=1024, description="Live: threads that libraries may use.")
    mix: str = Field(default="", description="metric=weight,…; empty: all weigh the same.")
    recommendation: RecommendationType = Field(default="performance", description="How to choose among stacks.")
    require: list[str] = Field(default=[], description="Requirements that a stack must meet, numpy>=2.")
    seed: int = Field(default=0, ge=0, description="Start of all random numbers.")

    @model_validator(mode="after")
    def _fits(self) -> NotebookConfig:
        if self.live and len(self.stacks) < 1:
            raise ValueError("live needs stacks, such as ['numpy==2.2.6', 'numpy==2.4.6']")
        if not self.live and not self.session:
            raise ValueError("without live, session must name a folder")
        return self

    @property
    def request(self) -> Request:
        """What is asked of the recommendation.

        Raises
        ------
        ConfigError
            It cannot be asked for.
        """
        return request(mix=self.mix or None, type=self.recommendation, require=tuple(self.require), seed=self.seed)

    @property
    def measured(self) -> SessionConfig:
        """The session that is measured live.

        Raises
        ------
        ConfigError
            It cannot be like that.
        """
        return session_config(
            stack=tuple(self.stacks),
            indicators=tuple(self.indicators),
            rounds=tuple(self.rounds),
            threads=self.threads,
            seed=self.seed,
        )
