"""Results of other areas' runs that a plan uses: jobs, service, stack, scheduler."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import polars as pl

from workbench import stats
from workbench.capacity import tables
from workbench.capacity.config import JobClass, PlanConfig
from workbench.capacity.model import JobLoad, Model, Quantity, ServiceLoad, build_spread
from workbench.capacity.tables import SOURCES
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_number
from workbench.core.tables import Table
from workbench.runs import run_folder
from workbench.stats.verdicts import UNDECIDED

# Command that makes a usable run of each input.
RUN_COMMANDS = {
    "speedup": "workbench run fleet -p logs=LOGS",
    "sizing": "workbench run sizing",
    "indicators": "workbench run indicators",
    "scaletest": "workbench run scaletest -p runs=RUN",
}
AT_LEAST = "at least"  # verdict of a sizing run's target that was met at every load
# Areas of runs that an input may have, where they are others than its name: the notebook, and `speedup qualify`.
AREAS = {"speedup": ("fleet", "speedup")}
JOBS_FACTOR, USERS_FACTOR = "jobs of the day", "users of the day"


@dataclass(frozen=True)
class InputRun:
    """An input run of a plan."""

    run: run_folder.Run
    objection: str

    @property
    def verdict(self) -> str:
        """valid, invalid, or the status of a run without a verdict."""
        return self.run.verdict or (self.run.status if self.run.status != "succeeded" else "no verdict")

    def read_table(self, table: Table, *, more: tuple[str, ...] = ()) -> pl.DataFrame:
        """A table of the run, checked for the columns that the plan needs, with the optional columns in `more`."""
        try:
            frame = table.read(self.run.tables_folder)
        except InputError as error:
            place = f"run {self.run.run_id} ({self.run.area}), table {table.name}"
            raise InputError(
                error.what,
                where=f"{place}: {error.facts['where']}",
                found=error.facts["found"],
                allowed=error.facts["allowed"],
                do=f"{RUN_COMMANDS[self.run.area]}, and give its folder",
            ) from error
        everything = pl.read_parquet(table.path(self.run.tables_folder), glob=False)
        return frame.with_columns(everything[name] for name in more if name in everything.columns)


def open_input_run(folder: str, area: str, *, accept_invalid: bool) -> InputRun:
    """Open a finished, valid run of an area.

    `accept_invalid`: Also accept invalid, failed or unfinished runs; the objection then says why.
    """
    run = run_folder.load_run(Path(folder))
    if run.area not in AREAS.get(area, (area,)):
        raise InputError(
            "a run of another area",
            where=folder,
            found=run.area,
            allowed=area,
            do=f"{RUN_COMMANDS[area]}, and give its folder",
        )
    objection = run_folder.find_objection(run.record)
    if objection and not accept_invalid:
        raise InputError(
            "this run cannot support a plan",
            where=f"run {run.run_id} ({area}), {folder}",
            found=objection,
            allowed="a finished, valid run",
            do="run it again; or set accept_invalid (--accept-invalid), which makes the plan invalid",
        )
    return InputRun(run, objection)


@dataclass(frozen=True)
class Jobs:
    """Applications of a speedup run, and the duration of each job class on the candidate."""

    opened: InputRun
    applications: pl.DataFrame
    level: float

    def select_class(self, job_class: JobClass) -> pl.DataFrame:
        """The judged applications of a class."""
        rows = [row for row in self.applications.iter_rows(named=True) if _matches_pattern(row, job_class.applications)]
        judged = [row for row in rows if row["predicted_s"] is not None]
        if not judged:
            names = sorted({str(row["app_name"] or _log_file_name(row["log"])) for row in self.applications.to_dicts()})
            message = "no application of this name" if not rows else "no application of this name was judged"
            raise InputError(
                message,
                where=f"run {self.opened.run.run_id} (speedup), table applications; jobs, {job_class.name}",
                found=job_class.applications,
                allowed=[name[:80] for name in names[:12]],
                do="set applications= to a pattern that matches, such as '*'",
            )
        return pl.DataFrame(judged, schema=self.applications.schema)

    def build_durations(self, classes: Sequence[JobClass]) -> list[Quantity]:
        """Duration of a job of each class on the candidate; classes of the same applications share one quantity."""
        logs = {job_class.name: frozenset(self.select_class(job_class)["log"].to_list()) for job_class in classes}
        alike = {
            job_class.name: [other for other in logs if logs[other] == logs[job_class.name]] for job_class in classes
        }
        return [self.build_duration(job_class, " and ".join(alike[job_class.name])) for job_class in classes]

    def build_duration(self, job_class: JobClass, name: str = "") -> Quantity:
        """Duration of a job of the class on the candidate: the mean over its applications, in seconds.

        The ends of the mean are the means of the ends, because the applications were predicted with the same factors
        and share their error. An unknown end is mirrored; with neither end it is a point.
        """
        applications = self.select_class(job_class)
        value = _complete_mean(applications["predicted_s"])
        low, high = _complete_mean(applications["predicted_low_s"]), _complete_mean(applications["predicted_high_s"])
        if value is None:
            raise InputError("an application without a prediction", where=f"jobs, {job_class.name}")
        return Quantity(
            f"duration of {name or job_class.name}", value, "s", low=low, high=high, level=self.level
        ).fill_missing_end()


@dataclass(frozen=True)
class ScalingLaw:
    """Scaling of a service's capacity with its GPUs, from a sizing run on several counts."""

    model: str
    counts: tuple[int, ...]
    contention: float
    coherency: float
    miss_cost: float = 0.0
    miss_rate: float = 0.0

    @property
    def most(self) -> int:
        """Largest count that the law is used for: twice the largest measured one."""
        return 2 * max(self.counts)

    @property
    def name(self) -> str:
        """Name of the law, with its measured counts."""
        return f"{self.model} over {', '.join(map(str, self.counts))} GPUs"

    def scale_factor(self, gpus: int) -> float:
        """Capacity of this many GPUs over that of one GPU (Gunther 2007, and fewer hits in prefix caches).

        >>> round(ScalingLaw("Amdahl", (1, 2), 0.1, 0.0).scale_factor(2), 4)
        1.8182
        """
        missed = 1 - 1 / (1 + self.miss_rate * (gpus - 1))
        others = gpus - 1
        return gpus / (1 + self.contention * others + self.coherency * gpus * others + self.miss_cost * missed)


@dataclass(frozen=True)
class Service:
    """Capacity of the GPUs of a sizing run at its target; `law` is null if it measured one count.

    `at_least`: the target was met at all measured loads, so that `carried` is a lower bound.
    `asked`, `recommended`: the load that the run was asked for, and the GPUs that it recommends; null: not known.
    `session_s`: mean length of a session of users; null without sessions.
    `time_scale`: factor on all times of a simulated service; null: not known, or none.
    `served`: model and GPU type; empty where they are not known.
    """

    opened: InputRun
    carried: Quantity
    test_gpus: int
    load_unit: str
    target: str
    simulated: bool
    law: ScalingLaw | None = None
    at_least: bool = False
    asked: float | None = None
    recommended: int | None = None
    session_s: float | None = None
    time_scale: float | None = None
    served: str = ""

    @property
    def load_name(self) -> str:
        """Unit of the service's load."""
        return "users" if self.load_unit == "users" else "requests/s"


@dataclass(frozen=True)
class Stack:
    """The recommended stack, its ratio to the baseline, and the metrics behind it."""

    opened: InputRun
    name: str
    baseline: str
    ratio: Quantity
    metrics: tuple[str, ...]
    predicted: bool
    verdict: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether the session did not tell it from the baseline."""
        return self.verdict == UNDECIDED


@dataclass(frozen=True)
class Scheduler:
    """The pod rate that a cluster sustains."""

    opened: InputRun
    side: str
    low_per_s: float | None
    high_per_s: float | None
    reason: str
    simulated_nodes: bool
    others: tuple[tuple[str, float], ...] = ()


def load_jobs(folder: str, *, accept_invalid: bool) -> Jobs:
    """Load the applications of a speedup qualification."""
    opened = open_input_run(folder, "speedup", accept_invalid=accept_invalid)
    level = opened.run.record["config"].get("level")
    is_level = isinstance(level, int | float) and 0 < level < 1
    return Jobs(
        opened, opened.read_table(tables.INPUT_APPLICATIONS), float(level) if is_level and level else stats.LEVEL
    )


def load_service(folder: str, *, accept_invalid: bool) -> Service:
    """Load a sizing run's capacity at the binding target."""
    opened = open_input_run(folder, "sizing", accept_invalid=accept_invalid)
    estimates, steps = opened.read_table(tables.INPUT_ESTIMATES), opened.read_table(tables.INPUT_STEPS)
    binding = estimates.filter("binding")
    row = (binding if binding.height else estimates).to_dicts()[:1]
    at_least = bool(row) and row[0]["capacity"] is None and row[0]["verdict"] == AT_LEAST
    capacity = row[0]["capacity_low" if at_least else "capacity"] if row else None
    if capacity is None or row[0]["test_gpus"] < 1:
        raise InputError(
            "a sizing run without a capacity",
            where=f"run {opened.run.run_id} (sizing), table estimates, columns capacity, test_gpus",
            found=(row[0]["reason"] or "null") if row else "no rows",
            do="repeat the sizing with the load levels that its report suggests",
        )
    estimate = row[0]
    unit = "users" if estimate["load_unit"] == "users" else "requests/s"
    # A replica carries what all targets allow: each adds what it may carry least.
    low: Any = None if estimate["capacity_low"] is None else estimates["capacity_low"].min()
    recommended: Any = estimates["recommended"].max()
    counts: list[Any] = [estimates[name].max() for name in ("gpus", "gpus_high", "gpus_low")]
    if low is not None and counts[1] is not None and recommended is not None and recommended >= counts[1] + 1:
        # Fewer GPUs than this did not hold a verification: a replica carries no more than it showed.
        low, counts[1] = min(low, estimate["load"] * row[0]["test_gpus"] / recommended), recommended
    ends = () if at_least else (low, estimate["capacity_high"])
    carried = Quantity("load per replica", capacity, unit, *ends).fill_missing_end()
    simulated = bool(steps["simulated"].any())
    target, test_gpus, asked = str(estimate["target"]), int(estimate["test_gpus"]), estimate["load"]
    law = _load_scaling_law(opened, target)
    if law is not None and asked is not None and None not in counts:
        carried = _match_counts(carried, law, test_gpus, asked, [round(count) for count in counts])
    return Service(
        opened,
        carried,
        test_gpus,
        str(estimate["load_unit"]),
        target,
        simulated,
        law,
        at_least,
        asked,
        None if recommended is None else int(recommended),
        estimate["session_s"],
        next(iter(steps["time_scale"].drop_nulls()), None),
        str(estimate["served"] or ""),
    )


def _match_counts(carried: Quantity, law: ScalingLaw, test_gpus: int, load: float, counts: Sequence[int]) -> Quantity:
    """The capacity with the ends at which the law asks for the run's own counts of GPUs at its own load.

    The run's interval of GPUs is that of laws fitted to redrawn capacities, not of a capacity with a fixed law.

    `counts`: GPUs of the run: estimate, upper and lower end.
    """
    most = max(max(counts), law.most)
    grown = [0.0, *itertools.accumulate((law.scale_factor(count) for count in range(1, most + 1)), max)]
    if carried.low is None or carried.high is None:
        return carried
    ends = []
    for capacity, count in zip((carried.value, carried.low, carried.high), counts, strict=True):
        at_count, too_few = (load * law.scale_factor(test_gpus) / max(grown[gpus], 1e-9) for gpus in (count, count - 1))
        fits = at_count <= capacity < too_few
        ends.append(capacity if fits else at_count if count == 1 else math.sqrt(at_count * too_few))
    value, low, high = ends
    return replace(carried, value=value, low=min(low, value), high=max(high, value))


def _load_scaling_law(opened: InputRun, target: str) -> ScalingLaw | None:
    """The law behind the target's answer; null if one GPU count was measured."""
    if not tables.INPUT_SCALING.path(opened.run.tables_folder).is_file():
        return None
    rows = opened.read_table(tables.INPUT_SCALING).filter(pl.col("target") == target).to_dicts()
    if not rows:
        return None
    last = rows[-1]
    misses = (last["miss_cost"] or 0.0, last["miss_rate"] or 0.0)
    return ScalingLaw(last["model"], tuple(last["counts"]), last["contention"], last["coherency"], *misses)


def load_stack(folder: str, *, accept_invalid: bool) -> Stack:
    """Load the recommended stack of an indicator session."""
    opened = open_input_run(folder, "indicators", accept_invalid=accept_invalid)
    table, effects = opened.read_table(tables.INPUT_RECOMMENDATIONS), opened.read_table(tables.INPUT_EFFECTS)
    rows, bases = table.filter("recommended").to_dicts(), table.filter("baseline")["stack"].to_list()
    if not rows or rows[0]["ratio"] is None:
        raise InputError(
            "an indicator run without a recommendation",
            where=f"run {opened.run.run_id} (indicators), table recommendations",
            found=f"{table.height} stack(s), none recommended with a ratio",
            do="measure more rounds, or omit the run",
        )
    row = rows[0]
    # The ratio of the baseline to itself is exactly 1.
    low, high = (None, None) if row["baseline"] else (row["low"], row["high"])
    ratio = Quantity("stack ratio", row["ratio"], "×", low=low, high=high, level=row["level"]).fill_missing_end()
    metrics = tuple(effects["metric"].unique(maintain_order=True).to_list())
    base, verdict = bases[0] if bases else "the baseline", row["verdict"] or ""
    return Stack(opened, row["stack"], base, ratio, metrics, bool(row["predicted"]), verdict)


def load_scheduler(folder: str, side: str, *, accept_invalid: bool) -> Scheduler:
    """Load the sustainable rate of one side of a scale test."""
    opened = open_input_run(folder, "scaletest", accept_invalid=accept_invalid)
    rows = opened.read_table(tables.INPUT_SUSTAINED_RATES, more=("side",)).to_dicts()
    sides = [str(row.get("side") or "") for row in rows]
    if not rows:
        raise InputError("a scale test without a rate", where=f"run {opened.run.run_id} (scaletest), table sustained")
    if side and side not in sides:
        raise ConfigError(
            "no such side",
            where=f"scaletest_side, run {opened.run.run_id}",
            found=side,
            allowed=[side for side in sides if side] or ["nothing: the run has one side, leave it empty"],
        )
    row = rows[sides.index(side)] if side else rows[0]
    name = str(row.get("side") or "the scheduler")
    low, high = (_known_rate(row[end]) for end in ("low_per_s", "high_per_s"))
    rates = [(str(other.get("side")), _known_rate(other["low_per_s"])) for other in rows if other is not row]
    others = tuple((other, rate) for other, rate in rates if rate is not None)
    return Scheduler(opened, name, low, high, str(row["reason"]), bool(row["simulated_nodes"]), others)


def _known_rate(value: float | None) -> float | None:
    """The rate; null if it is not a finite number of 0 or more."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _matches_pattern(row: dict[str, object], pattern: str) -> bool:
    names = (str(row["app_name"] or ""), _log_file_name(str(row["log"])), str(row["log"]))
    return any(fnmatchcase(name, pattern) for name in names)


def _log_file_name(log: str) -> str:
    return PurePath(log).name


def _complete_mean(column: pl.Series) -> float | None:
    """The mean; null if a value is missing."""
    mean = None if column.null_count() else column.mean()
    return float(mean) if isinstance(mean, int | float) else None


@dataclass(frozen=True)
class PlanInputs:
    """Results of the input runs; null for a run that was left out."""

    jobs: Jobs | None
    service: Service | None
    stack: Stack | None
    scheduler: Scheduler | None

    @property
    def opened(self) -> list[InputRun]:
        """The input runs."""
        return [source.opened for source in (self.jobs, self.service, self.stack, self.scheduler) if source is not None]


def load_inputs(config: PlanConfig) -> PlanInputs:
    """Open the runs that the settings name."""
    accept = config.accept_invalid
    return PlanInputs(
        load_jobs(config.speedup, accept_invalid=accept) if config.speedup else None,
        load_service(config.sizing, accept_invalid=accept) if config.sizing else None,
        load_stack(config.indicators, accept_invalid=accept) if config.indicators else None,
        load_scheduler(config.scaletest, config.scaletest_side, accept_invalid=accept) if config.scaletest else None,
    )


def build_model(config: PlanConfig, inputs: PlanInputs) -> Model:
    """The model of a plan."""
    return Model(
        _build_works(config, inputs.jobs) if inputs.jobs is not None else (),
        _build_serving(config, inputs.service) if inputs.service is not None else None,
        inputs.stack.ratio if inputs.stack is not None else None,
        build_spread(JOBS_FACTOR, config.jobs_spread),
        build_spread(USERS_FACTOR, config.users_spread),
        utilisation=config.utilisation,
        node_gpus=config.gpus_per_node,
        spanning=config.spanning,
        node_price_per_h=config.node_price_per_h,
        jobs_within_s=config.jobs_arrive_within_s,
        replicas_within_s=config.replicas_start_within_s,
    )


def _build_works(config: PlanConfig, jobs: Jobs) -> tuple[JobLoad, ...]:
    """Build the load of each job class from the plan: jobs per hour of the day, durations, GPUs and pods."""
    classes = config.job_classes
    return tuple(
        JobLoad(
            job_class.name,
            np.array(job_class.per_hour, dtype=np.float64),
            duration,
            job_class.gpus,
            job_class.pods,
            job_class.stack_share,
        )
        for job_class, duration in zip(classes, jobs.build_durations(classes), strict=True)
    )


def _build_serving(config: PlanConfig, service: Service) -> ServiceLoad:
    if config.session_steps and service.load_unit != "users":
        raise ConfigError("sessions an hour for a run with arrival rates", where="users", do="give requests a second")
    law = service.law
    gpus = config.gpus_per_replica or (service.test_gpus if law is None else min(law.counts))
    load = np.array(config.users_by_hour, dtype=np.float64)
    share = gpus / service.test_gpus if law is None else law.scale_factor(gpus) / law.scale_factor(service.test_gpus)
    return ServiceLoad(
        load,
        service.carried.scale_by(share),
        gpus,
        config.least_replicas,
        config.pods_per_replica,
        config.service_stack_share,
        None if law is None else _cumulate_replica_capacity(law, gpus),
    )


def _cumulate_replica_capacity(law: ScalingLaw, gpus: int) -> tuple[float, ...]:
    """Capacity of 1, 2, … replicas relative to one, up to the largest count of the law.

    It never decreases: replicas that would reduce it could stay idle.
    """
    alone = law.scale_factor(gpus)
    together = [law.scale_factor(count) / alone for count in range(gpus, law.most + 1, gpus)]
    return tuple(itertools.accumulate(together, max))


def build_sources(model: Model, config: PlanConfig, inputs: PlanInputs) -> pl.DataFrame:
    """Table SOURCES."""
    rows: list[dict[str, Any]] = []
    if inputs.jobs is not None:
        rows += _build_duration_rows(model, config, inputs.jobs)
    if inputs.service is not None and model.serving is not None:
        service = inputs.service
        note = f"{format_count(model.serving.gpus, 'GPU')} per replica, within {service.target}"
        if model.serving.gpus != service.test_gpus:
            how = "linear scaling assumed" if service.law is None else f"scaled by {service.law.name}"
            note += f"; measured on {format_count(service.test_gpus, 'GPU')}, {how}"
        if service.at_least:
            note += "; a lower bound: the target was met at every measured load, so the GPUs are at most these"
        service_note = f"{note}; the service was simulated" if service.simulated else note
        rows.append(_build_source_row(model.serving.per_replica, inputs.service.opened, service_note))
    if inputs.stack is not None:
        rows.append(_build_source_row(inputs.stack.ratio, inputs.stack.opened, format_stack_use(model, inputs.stack)))
    if inputs.scheduler is not None:
        # Row of table SOURCES for the scheduler's sustainable rate in pods/s.
        scheduler = inputs.scheduler
        high = "never reached" if scheduler.high_per_s is None else format_number(scheduler.high_per_s)
        nodes = "; simulated nodes" if scheduler.simulated_nodes else ""
        rate_row = {
            "input": "sustainable rate",
            "value": scheduler.low_per_s,
            "low": None,
            "high": None,
            "level": None,
            "unit": "pods/s",
            **_describe_origin(scheduler.opened),
            "note": f"{scheduler.side}: the lower end is the limit (not drawn); upper end {high}{nodes}",
        }
        rows.append(rate_row)
    names = {quantity.name for quantity in model.quantities}
    factors = [
        factor for factor in (model.jobs_factor, model.users_factor) if factor.name in names and not factor.is_point
    ]
    rows += [
        _build_source_row(factor, None, "setting: 9 of 10 days are within this factor of the profile")
        for factor in factors
    ]
    return SOURCES.frame(rows)


def _build_duration_rows(model: Model, config: PlanConfig, jobs: Jobs) -> list[dict[str, Any]]:
    """Rows of table SOURCES for the durations, one each, with all job classes that have it."""
    rows: dict[str, dict[str, Any]] = {}
    for job_class, work in zip(config.job_classes, model.works, strict=True):
        size = f"{format_count(work.gpus, 'GPU')} and {format_count(work.pods, 'pod')} per job of {work.name}"
        if work.duration.name in rows:
            rows[work.duration.name]["note"] += f"; {size}"
            continue
        count = jobs.select_class(job_class).height
        note = f"the mean of {format_count(count, 'application')} that match {job_class.applications}; {size}"
        rows[work.duration.name] = _build_source_row(work.duration, jobs.opened, note)
    return list(rows.values())


def _build_source_row(quantity: Quantity, opened: InputRun | None, note: str) -> dict[str, Any]:
    """Row of table SOURCES for a quantity: value, interval (null if fixed) and the run it comes from."""
    level = None if quantity.is_point else quantity.level
    ends = {
        "low": None if quantity.is_point else quantity.low,
        "high": None if quantity.is_point else quantity.high,
        "level": level,
    }
    origin = _describe_origin(opened)
    note = f"{note}; fixed: it has no interval" if quantity.is_point else note
    note = (
        f"{note}; its {quantity.mirrored} end is not known and assumed as far from the value as the other"
        if quantity.mirrored
        else note
    )
    return {"input": quantity.name, "value": quantity.value, **ends, "unit": quantity.unit, **origin, "note": note}


def _describe_origin(opened: InputRun | None) -> dict[str, str]:
    if opened is None:
        return {"area": "parameter", "run": "–", "verdict": "–"}
    return {"area": opened.run.area, "run": opened.run.run_id, "verdict": opened.verdict}


def format_count(count: float, unit: str) -> str:
    """A count with its unit in singular or plural.

    >>> format_count(1, "GPU"), format_count(1200, "pod")
    ('1 GPU', '1,200 pods')
    """
    return f"{format_number(int(count))} {unit}{'' if count == 1 else 's'}"


def format_stack_use(model: Model, stack: Stack) -> str:
    """The times that the stack's ratio applies to, as text."""
    parts = [f"{100 * work.stack_share:.0f} % of the time of {work.name}" for work in model.works if work.stack_share]
    if model.serving is not None and model.serving.stack_share:
        parts.append(f"{100 * model.serving.stack_share:.0f} % of a request's time")
    effect = f"applies to {' and '.join(parts)}" if parts else "has no effect: no share is set"
    measured = f"{stack.name} over {stack.baseline}, measured on {', '.join(stack.metrics)}"
    caveats = ("predicted from other stacks", stack.predicted), ("not told from the baseline", stack.is_undecided)
    return "; ".join([measured, effect, *(text for text, holds in caveats if holds)])
