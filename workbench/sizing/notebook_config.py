"""What the user of the notebook may set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import ConfigError
from workbench.live.choosing import Pick
from workbench.sizing.config import Goal
from workbench.sizing.simulation.service import Service

_SWEEP = Pick("sweep", folders=("sweep.json",))
Gpus = Annotated[int, Field(ge=1, le=4096)]
# What has a parameter of its own in the notebook, or none because the study sets it.
OWN = ("protocol", "url", "function", "target_confirm", "header_env", "gpus", "goals", "seed")


class NotebookConfig(BaseModel):
    """The question, and where its measurements come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    users: float = Field(gt=0, description="Load to be served: users, or arrivals a second of open loops.")
    goals: list[str] = Field(min_length=1, description="What must hold: p95<=6, 'ttft p99<=300ms'.")
    gpu_counts: list[Gpus] = Field(default=[1], min_length=1, description="GPUs that are measured on, each once.")
    service: list[str] = Field(default=[], description="The simulated service, NAME=VALUE each.")
    live: bool = Field(default=False, description="Real time over HTTP, instead of virtual time.")
    url: str = Field(default="", description="Live: the service; the simulator when this and function are empty.")
    protocol: Literal["nat", "openai", "http"] = Field(default="nat", description="Live: how the url is spoken to.")
    function: str = Field(default="", description="Live: module:function, an async callable that takes a prompt.")
    target_confirm: str = Field(default="", description="Live: the url's host once more, unless it is this machine.")
    header_env: list[str] = Field(default=[], description="Live: HEADER=VARIABLE, an environment variable each.")
    settings: list[str] = Field(default=[], description="More of the sweep, NAME=VALUE: fields of SweepConfig.")
    time_scale: float = Field(default=0.05, gt=0, le=10, description="Live simulator: factor on its times and limits.")
    sweep: Annotated[list[str], _SWEEP] = Field(
        default=[], description="Folders of sweeps that are there; nothing is measured."
    )
    gpu_price_per_h: float | None = Field(default=None, ge=0, description="Price of a GPU for an hour.")
    truth_runs: int = Field(default=3, ge=0, le=100, description="Virtual time: runs per count that is tried.")
    seed: int = Field(default=0, ge=0, description="Start of all random numbers.")

    @model_validator(mode="after")
    def _fits(self) -> NotebookConfig:
        if not self.live and (named := [name for name in ("url", "function") if getattr(self, name)]):
            raise ValueError(f"{named[0]} is for live=true; without it the simulator runs in virtual time")
        if self.live and self.sweep:
            raise ValueError("sweep shows what was measured, live measures: give one of them")
        if self.url and self.function:
            raise ValueError("give url or function, not both")
        if len(set(self.gpu_counts)) < len(self.gpu_counts):
            raise ValueError("gpu_counts has a count twice")
        if (self.url or self.function) and len(self.gpu_counts) > 1:
            raise ValueError(
                "a service that is there has one number of GPUs: one sweep for each, then give them as sweep"
            )
        return self

    @property
    def wanted(self) -> list[Goal]:
        """The goals."""
        return [Goal.read(text) for text in self.goals]

    @property
    def simulated_service(self) -> Service:
        """The simulated service on the first GPU count.

        Raises
        ------
        ConfigError
            A field that there is not, or a value that it cannot have.
        """
        given = assigned(self.service, where="service")
        allowed = [name for name in Service.model_fields if name != "gpus"]  # gpus has a parameter of its own
        if unknown := sorted({*given} - {*allowed}):
            raise ConfigError("not a field of the simulated service", where="service", found=unknown, allowed=allowed)
        try:
            return Service(gpus=self.gpu_counts[0], **{"seed": self.seed, **given})
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
            raise ConfigError("the simulated service cannot be so", where="service", found=told) from error

    @property
    def sweep_settings(self) -> dict[str, Any]:
        """More fields of `SweepConfig`.

        Raises
        ------
        ConfigError
            One of them has a parameter of its own.
        """
        given = assigned(self.settings, where="settings")
        if own := sorted({*given} & {*OWN}):
            raise ConfigError("has a parameter of its own, or is set by the notebook", where="settings", found=own)
        return given


def assigned(texts: Sequence[str], *, where: str) -> dict[str, Any]:
    """NAME=VALUE by name; values that are JSON become what they mean, others stay texts.

    Raises
    ------
    ConfigError
        No `=`, no name, or a name twice.

    Examples
    --------
    >>> assigned(["slots=8", "router=random", "users=[1, 2]"], where="service")
    {'slots': 8, 'router': 'random', 'users': [1, 2]}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name or name in found:
            raise ConfigError(
                "not a setting, or set twice", where=where, found=text[:60], allowed="NAME=VALUE, each once"
            )
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value.strip()
    return found
