"""Settings of a plan: input runs, the day's jobs and users, nodes, prices; plan files."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from workbench.core.errors import ConfigError, refuse_os_errors
from workbench.core.samples import find_sample
from workbench.core.schema import StrictModel, validate_model
from workbench.execution import parameters
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup, added_field
from workbench.stats.littles_law import count_users_at_once

HOURS_PER_DAY = 24
MAX_LOAD = 1e9
MAX_SESSION_S = 1e6
Jobs = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
JOB_CLASS_FORM = "NAME applications='etl *' gpus=1 pods=2 per_hour=60 hours=8-18 stack_share=0"
_JOB_FIELDS = ("applications", "gpus", "pods", "per_hour", "hours", "stack_share")
SAMPLES = "../data/samples/capacity"
_RUN = Pick("run folder", folders=("run.json",))
Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
JOBS = [
    "reports applications='tpch spark*' gpus=1 pods=2 per_hour=720 hours=8-18",
    "nightly applications='tpch spark*' gpus=4 pods=5 per_hour=360 hours=1-5 stack_share=0.2",
]
USERS = ["60 hours=22-6", "400 hours=6-8,18-22", "1000 hours=8-9,12-13,16-18", "1200 hours=9-12,13-16"]
SAMPLE_PRICE = 20.0
MAX_BYTES = 1_000_000
RUNS = ("speedup", "sizing", "indicators", "scaletest")


class JobClass(StrictModel):
    """A class of similar jobs: its applications, GPUs and pods of one job, and arrivals by hour."""

    name: str = Field(min_length=1, max_length=60)
    applications: str = Field(default="*", max_length=300)
    gpus: int = Field(default=1, ge=1, le=1024)
    pods: int = Field(default=1, ge=1, le=10_000)
    per_hour: list[Jobs] = Field(min_length=HOURS_PER_DAY, max_length=HOURS_PER_DAY)
    stack_share: float = Field(default=0.0, ge=0, le=1)


LOAD_FORM = "400 hours=9-17, or sessions an hour and their length in seconds: 3000/h session=125 hours=9-17"


def parse_load_by_hour(texts: Sequence[str]) -> list[float]:
    """Load of a service by hour, from midnight, from texts that add up.

    A text is a number of users and their hours, such as `400 hours=9-17`, or 24 numbers with commas. With `/h` the
    numbers are sessions that begin in an hour, and `session` is their length in seconds.

    >>> parse_load_by_hour(["20", "380 hours=9-11"])[8:12]
    [20.0, 400.0, 400.0, 20.0]
    >>> parse_load_by_hour(["3000/h session=120 hours=9"])[8:11]
    [0.0, 100.0, 0.0]
    """
    total = [0.0] * HOURS_PER_DAY
    for text in texts:
        values, _ = _parse_load(text)
        total = [before + more for before, more in zip(total, values, strict=True)]
    if not all(0 <= value <= MAX_LOAD for value in total):
        raise ConfigError("not a load", where="users", found=max(total, key=abs), allowed="0 to 1,000,000,000")
    return total


def describe_sessions(texts: Sequence[str]) -> list[str]:
    """How sessions an hour became users at once, a step for each text that has them; of several hours the busiest.

    >>> describe_sessions(["20", "3000/h session=125 hours=9-17"])
    ["3,000 sessions an hour x 125 s = 104 users at once (Little's law), hours 9-17"]
    """
    return [step for _, step in map(_parse_load, texts) if step]


def _parse_load(text: str) -> tuple[list[float], str]:
    """Users by hour of one text, and the step from sessions an hour to them; empty without one."""
    counts, *words = re.sub(r"\s*([,=])\s*", r"\1", text).split() or [""]
    pairs = [word.partition("=") for word in words]
    settings = {key: value for key, _, value in pairs}
    per_hour = counts.removesuffix("/h")
    allowed = {"hours"} if per_hour == counts else {"hours", "session"}
    if not settings.keys() <= allowed or len(settings) < len(words) or not all(value for _, _, value in pairs):
        raise ConfigError("not a load by hour", where="users", found=text[:80], allowed=LOAD_FORM)
    values = _parse_counts_by_hour(per_hour, settings.get("hours", "0-24"), "users")
    if per_hour == counts:
        return values, ""
    length_s = _parse_seconds(settings.get("session", ""))
    if length_s is None:
        raise ConfigError("sessions of unknown length", where="users, session", found=text[:80], allowed=LOAD_FORM)
    _, step = count_users_at_once(max(values), length_s)
    hours = f", hours {settings['hours']}" if "hours" in settings else ""
    return [count_users_at_once(value, length_s)[0] for value in values], step + hours


def _parse_seconds(text: str) -> float | None:
    """A length in seconds, with or without its unit; null if it is none."""
    try:
        length_s = float(text.removesuffix("s"))
    except ValueError:
        return None
    return length_s if 0 < length_s <= MAX_SESSION_S else None


def parse_job_class(text: str) -> JobClass:
    """Parse a job class: a name, then NAME=VALUE, values with blanks in quotes.

    `per_hour` is one number, or 24 numbers with commas. With one number, `hours` selects its hours: 8-18 from 8:00 to
    18:00, 22-4 over midnight, several with commas; all day without it.

    >>> one = parse_job_class("etl applications='etl *' gpus=2 per_hour=60 hours=22-2,12")
    >>> one.applications, one.gpus, [hour for hour, jobs in enumerate(one.per_hour) if jobs]
    ('etl *', 2, [0, 1, 12, 22, 23])
    """
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise ConfigError("not a job class", where="jobs", found=text[:80], allowed=JOB_CLASS_FORM) from None
    fields: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in _JOB_FIELDS or key in fields:
            message = "not a setting of a job class, or set twice"
            raise ConfigError(message, where=f"jobs, {name[:60]}", found=word[:60], allowed=_JOB_FIELDS)
        fields[key] = value
    if "=" in name:
        raise ConfigError("a job class has no name", where="jobs", found=text[:80], allowed=JOB_CLASS_FORM)
    if "per_hour" not in fields:
        raise ConfigError("a job class has no per_hour", where=f"jobs, {name[:60]}", allowed=JOB_CLASS_FORM)
    place = f"jobs, {name[:60]}"
    counts, hours = fields.pop("per_hour"), fields.pop("hours", "0-24")
    values = {"name": name, "per_hour": _parse_counts_by_hour(counts, hours, place), **fields}
    return validate_model(JobClass, values, noun="job class", where=place, error_type=ConfigError)


def _parse_counts_by_hour(counts: str, hours: str, place: str) -> list[float]:
    """Parse jobs by hour of the day: one number for the given hours, or a number for each hour."""
    try:
        values = [float(part) for part in counts.split(",")]
    except ValueError:
        values = []
    if not values or not all(map(math.isfinite, values)):
        raise ConfigError(
            "not a number", where=place, found=counts[:60], allowed=f"one number, or {HOURS_PER_DAY} with commas"
        )
    if len(values) == HOURS_PER_DAY:
        return values
    if len(values) != 1:
        raise ConfigError(
            "not one number per hour",
            where=place,
            found=f"{len(values)} numbers",
            allowed=f"one number, or {HOURS_PER_DAY}",
        )
    chosen = {hour for part in hours.split(",") for hour in _parse_hour_span(part, f"{place}, hours")}
    return [values[0] if hour in chosen else 0.0 for hour in range(HOURS_PER_DAY)]


def _parse_hour_span(part: str, where: str) -> list[int]:
    """Parse hours of a day, such as 8, 8-18 or 22-4; the end is exclusive.

    >>> _parse_hour_span("22-2", "hours"), _parse_hour_span("8", "hours")
    ([22, 23, 0, 1], [8])
    """
    first, sign, last = part.strip().partition("-")
    try:
        begin, end = int(first), int(last) if sign else int(first) + 1
    except ValueError:
        begin, end = -1, -1
    if not (0 <= begin < HOURS_PER_DAY and 0 < end <= HOURS_PER_DAY) or begin == end:
        raise ConfigError("not hours of a day", where=where, found=part[:40], allowed="8, 8-18, 22-4")
    return [hour % HOURS_PER_DAY for hour in range(begin, end if end > begin else end + HOURS_PER_DAY)]


class PlanConfig(StrictModel):
    """Settings of a plan: input runs, jobs and users of the day, nodes, prices and assumptions."""

    FORM_GROUPS: ClassVar = (
        FieldGroup(
            "The service's replicas",
            (
                "gpus_per_replica",
                "least_replicas",
                "pods_per_replica",
                "service_stack_share",
                "replicas_start_within_s",
            ),
        ),
        FieldGroup(
            "More settings",
            (
                "scaletest_side",
                "accept_invalid",
                "utilisation",
                "spanning",
                "jobs_arrive_within_s",
                "jobs_spread",
                "users_spread",
                "shortage_factor",
                "draws",
                "seed",
            ),
        ),
    )

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
    accept_invalid: bool = Field(
        default=False, description="Also plan with runs that are not valid; the plan is then invalid."
    )
    jobs: list[str] = Field(
        default=JOBS, max_length=20, description="Job classes: NAME applications= gpus= pods= per_hour= hours=."
    )
    users: list[str] = Field(
        default=USERS,
        max_length=100,
        description="Users of the service: N hours=9-17, or N/h session=S hours=9-17; texts add up, or 24 numbers.",
    )
    utilisation: float = Field(default=0.7, gt=0, le=1, description="Share of the Spark GPUs' time that jobs may use.")
    gpus_per_replica: int = Field(
        default=0, ge=0, le=1024, description="GPUs of a replica; 0: as many as in the sizing run."
    )
    least_replicas: int = Field(default=1, ge=0, le=10_000, description="Replicas that always run.")
    pods_per_replica: int = Field(default=1, ge=1, le=1024, description="Pods of a replica.")
    service_stack_share: Share = Field(
        default=0.0, description="Share of a request's time to which the stack's ratio applies."
    )
    gpus_per_node: int = Field(default=8, ge=1, le=1024, description="GPUs of a node.")
    spanning: bool = Field(
        default=False, description="Give jobs and replicas larger than a node whole nodes; otherwise they are refused."
    )
    price_per_node_h: Price | None = Field(default=SAMPLE_PRICE, description="Price of a node per hour, any currency.")
    price_per_gpu_h: Price | None = Field(
        default=None, description="Price of a GPU of a node per hour; give one of the two."
    )
    currency: str = added_field("", "Currency of the prices, shown with costs; empty: none.", max_length=12)
    jobs_arrive_within_s: float = Field(
        default=600.0, gt=0, le=3600, description="Seconds within which the jobs of an hour arrive."
    )
    replicas_start_within_s: float = Field(
        default=60.0, gt=0, le=3600, description="Seconds within which replicas start when an hour begins."
    )
    jobs_spread: float = Field(
        default=1.1,
        ge=1,
        le=100,
        description="Variation of days: 9 of 10 have jobs within this factor of the plan; 1: no variation.",
    )
    users_spread: float = Field(default=1.1, ge=1, le=100, description="The same for users.")
    shortage_factor: float = added_field(
        19.0, "Cost of a node that is missing at the peak over that of an idle one; 19: nodes at P95.", gt=0, le=1e6
    )
    draws: int = Field(default=10_000, ge=100, le=50_000, description="Draws of the inputs.")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of all random numbers.")

    @model_validator(mode="after")
    def _check_inputs(self) -> PlanConfig:
        if not self.speedup and not self.sizing:
            raise ValueError("nothing to plan for: give a speedup run, a sizing run, or both")
        if self.price_per_node_h is not None and self.price_per_gpu_h is not None:
            raise ValueError("two prices: give price_per_node_h or price_per_gpu_h, and null for the other")
        if self.speedup and not self.jobs:
            raise ValueError("a speedup run without jobs: give a job class, or omit the run")
        return self

    @property
    def job_classes(self) -> tuple[JobClass, ...]:
        """The job classes; none without a speedup run."""
        classes = tuple(parse_job_class(text) for text in self.jobs) if self.speedup else ()
        names = [job_class.name for job_class in classes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError("two job classes of the same name", where="jobs", found=twice)
        return classes

    @property
    def users_by_hour(self) -> list[float]:
        """Users by hour, from midnight."""
        return parse_load_by_hour(self.users)

    @property
    def has_sample_day(self) -> bool:
        """Whether jobs or users are those of the sample, which nobody measured."""
        return (bool(self.speedup) and self.jobs == JOBS) or (bool(self.sizing) and self.users == USERS)

    @property
    def has_sample_price(self) -> bool:
        """Whether the price is that of the sample."""
        return self.price_per_node_h == SAMPLE_PRICE and not self.currency

    @property
    def session_steps(self) -> list[str]:
        """How sessions an hour became users at once; empty without any."""
        return describe_sessions(self.users)

    @property
    def node_price_per_h(self) -> float | None:
        """Price of a node per hour; null without prices."""
        if self.price_per_gpu_h is not None:
            return self.price_per_gpu_h * self.gpus_per_node
        return self.price_per_node_h


def build_plan_config(values: dict[str, Any], *, where: str) -> PlanConfig:
    """The settings from names and values; an error lists all problems.

    >>> build_plan_config({"gpus_per_node": 0}, where="plan.yaml")
    Traceback (most recent call last):
    ...
    workbench.core.errors.ConfigError: not a capacity plan
      where: plan.yaml, gpus_per_node
      found: 0
      allowed: greater than or equal to 1
      do: workbench capacity settings explains each setting
    """
    do = "workbench capacity settings explains each setting"
    return validate_model(PlanConfig, values, noun="capacity plan", where=where, do=do, error_type=ConfigError)


def read_plan_file(path: Path | None, overrides: Mapping[str, Any]) -> PlanConfig:
    """Settings of a plan file (or the defaults), overridden by the given ones; only named runs are used.

    Paths of runs in the file are relative to its folder.
    """
    values: dict[str, Any] = dict.fromkeys(RUNS, "")
    if path is not None:
        values |= _read_values(path)
    if not any(values.get(name) or overrides.get(name) for name in ("speedup", "sizing")):
        raise ConfigError(
            "nothing to plan for",
            where="--speedup, --sizing",
            found="neither",
            allowed="a run folder of one or both",
            do="for an example: workbench capacity plan --sizing sample:capacity/sizing",
        )
    return build_plan_config(values | dict(overrides), where="the plan" if path is None else str(path))


def _read_values(path: Path) -> dict[str, Any]:
    with refuse_os_errors("cannot read the plan", path, error_type=ConfigError):
        size_bytes = path.stat().st_size
    if size_bytes > MAX_BYTES:
        raise ConfigError("too large for a plan", where=path, found=f"{size_bytes:,} bytes", allowed="up to 1 MB")
    values = parameters.read_values_file(path)
    for name in RUNS:
        if isinstance(values.get(name), str) and values[name]:
            values[name] = str(path.parent / find_sample(values[name]))
    return values


def format_example_plan() -> str:
    """A plan file with all settings at their defaults and their descriptions; runs are empty.

    >>> "# GPUs of a node." in format_example_plan()
    True
    """
    lines = []
    for name, field in PlanConfig.model_fields.items():
        value = "" if name in RUNS else field.get_default()
        lines += [f"# {field.description}", f"{name}: {json.dumps(value)}"]
    return "\n".join(lines)
