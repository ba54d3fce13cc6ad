"""What the user may set: the runs that a plan rests on, a day of jobs and users, nodes, prices, the draws."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.capacity.day import JobClass, job_class, load_by_hour
from workbench.errors import ConfigError
from workbench.live.choosing import Pick

SAMPLES = "../data/samples/capacity"
_RUN = Pick("run folder", folders=("run.json",))
Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
JOBS = [
    "reports applications='tpch spark*' gpus=1 pods=2 per_hour=720 hours=8-18",
    "nightly applications='tpch spark*' gpus=4 pods=5 per_hour=360 hours=1-5 stack_share=0.2",
]
USERS = ["60 hours=22-6", "400 hours=6-8,18-22", "1000 hours=8-9,12-13,16-18", "1200 hours=9-12,13-16"]


class PlanConfig(BaseModel):
    """The question, the runs that it is answered from, and everything that the plan assumes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speedup: Annotated[str, _RUN] = Field(
        default=f"{SAMPLES}/speedup", description="Run folder of a speedup qualification; empty: no jobs."
    )
    sizing: Annotated[str, _RUN] = Field(
        default=f"{SAMPLES}/sizing", description="Run folder of a sizing estimate; empty: no service."
    )
    indicators: Annotated[str, _RUN] = Field(
        default=f"{SAMPLES}/indicators", description="Run folder of a recommended stack; empty: no stack."
    )
    scaletest: Annotated[str, _RUN] = Field(
        default=f"{SAMPLES}/scaletest", description="Run folder of a scale test; empty: the rate is not checked."
    )
    scaletest_side: str = Field(default="", description="Side of the scale test; the first when empty.")
    accept_invalid: bool = Field(default=False, description="Plan with runs that are not valid, too, and say so.")
    jobs: list[str] = Field(
        default=JOBS, max_length=20, description="Job classes: NAME applications= gpus= pods= per_hour= hours=."
    )
    users: list[str] = Field(
        default=USERS, max_length=100, description="Users of the service: N hours=9-17; texts add up, or 24 numbers."
    )
    utilisation: float = Field(default=0.7, gt=0, le=1, description="Share of the Spark GPUs' time that jobs may fill.")
    gpus_per_replica: int = Field(
        default=0, ge=0, le=1024, description="GPUs of a replica; 0: as many as the sweep was measured on."
    )
    least_replicas: int = Field(default=1, ge=0, le=10_000, description="Replicas that are always there.")
    pods_per_replica: int = Field(default=1, ge=1, le=1024, description="Pods of a replica.")
    service_stack_share: Share = Field(
        default=0.0, description="Share of a request's time that is the work which the stack was measured on."
    )
    gpus_per_node: int = Field(default=8, ge=1, le=1024, description="GPUs of a node.")
    spanning: bool = Field(default=False, description="Jobs and replicas larger than a node get whole nodes.")
    price_per_node_h: Price | None = Field(default=20.0, description="Price of a node for an hour, any currency.")
    price_per_gpu_h: Price | None = Field(default=None, description="The same by GPU of a node; give one of the two.")
    jobs_arrive_within_s: float = Field(
        default=600.0, gt=0, le=3600, description="Seconds of an hour in which its jobs arrive."
    )
    replicas_start_within_s: float = Field(
        default=60.0, gt=0, le=3600, description="Seconds in which replicas start or stop when an hour begins."
    )
    jobs_spread: float = Field(
        default=1.1, ge=1, le=100, description="Days differ: 9 of 10 have jobs within this factor of the plan; 1: none."
    )
    users_spread: float = Field(default=1.1, ge=1, le=100, description="The same for users.")
    draws: int = Field(default=10_000, ge=100, le=50_000, description="Draws of the inputs.")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Start of all random numbers.")

    @model_validator(mode="after")
    def _fits(self) -> PlanConfig:
        if not self.speedup and not self.sizing:
            raise ValueError("nothing to plan for: name a speedup run, a sizing run, or both")
        if self.price_per_node_h is not None and self.price_per_gpu_h is not None:
            raise ValueError("two prices: give price_per_node_h or price_per_gpu_h, and null for the other")
        if self.speedup and not self.jobs:
            raise ValueError("a speedup run and no jobs: give a class, or leave the run out")
        return self

    @property
    def job_classes(self) -> tuple[JobClass, ...]:
        """The job classes; none without a speedup run.

        Raises
        ------
        ConfigError
            One cannot be read, or two have one name.
        """
        found = tuple(job_class(text) for text in self.jobs) if self.speedup else ()
        names = [one.name for one in found]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError("two job classes of one name", where="jobs", found=twice)
        return found

    @property
    def users_by_hour(self) -> list[float]:
        """Users by hour, from midnight.

        Raises
        ------
        ConfigError
            They cannot be read.
        """
        return load_by_hour(self.users)

    @property
    def node_price_per_h(self) -> float | None:
        """Price of a node for an hour; null without prices."""
        if self.price_per_gpu_h is not None:
            return self.price_per_gpu_h * self.gpus_per_node
        return self.price_per_node_h


def plan_config(given: dict[str, Any], *, where: str) -> PlanConfig:
    """The settings from names and values, all problems told at once.

    Raises
    ------
    ConfigError
        An unknown name, or a value that cannot be.

    Examples
    --------
    >>> plan_config({"gpus_per_node": 0}, where="plan.yaml")
    Traceback (most recent call last):
    ...
    workbench.errors.ConfigError: the plan cannot be like that
      where: plan.yaml
      found: gpus_per_node: Input should be greater than or equal to 1
      do: workbench capacity settings tells what each setting means
    """
    try:
        return PlanConfig(**given)
    except ValidationError as error:
        told = [_problem(one) for one in error.errors(include_url=False, include_input=False, include_context=False)]
        known = list(PlanConfig.model_fields) if any("Extra inputs" in line for line in told) else None
        do = "workbench capacity settings tells what each setting means"
        raise ConfigError("the plan cannot be like that", where=where, found=told, allowed=known, do=do) from None


def _problem(one: Any) -> str:
    place = ".".join(str(part)[:60] for part in one["loc"])
    return f"{place}: {one['msg']}" if place else str(one["msg"]).removeprefix("Value error, ")
