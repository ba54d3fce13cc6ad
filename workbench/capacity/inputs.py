"""What other areas found, as the plan takes it: durations of jobs, users per replica, a stack's ratio, a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath

import polars as pl

from workbench import stats
from workbench.capacity import needed
from workbench.capacity.day import JobClass
from workbench.capacity.opening import Opened, open_run
from workbench.capacity.quantity import Quantity
from workbench.errors import ConfigError, InputError


@dataclass(frozen=True)
class Jobs:
    """Applications that a speedup run judged, and what it takes to run each class of them."""

    opened: Opened
    applications: pl.DataFrame
    level: float

    def of(self, one: JobClass) -> pl.DataFrame:
        """The judged applications of a class.

        Raises
        ------
        InputError
            None matches, or none of those was judged.
        """
        rows = [row for row in self.applications.iter_rows(named=True) if _matches(row, one.applications)]
        judged = [row for row in rows if row["predicted_s"] is not None]
        if not judged:
            names = sorted({str(row["app_name"] or _file(row["log"])) for row in self.applications.to_dicts()})
            what = "no application of this name" if not rows else "no application of this name was judged"
            raise InputError(
                what,
                where=f"run {self.opened.run.run_id} (speedup), table applications; jobs, {one.name}",
                found=one.applications,
                allowed=[name[:80] for name in names[:12]],
                do="set applications= to a pattern that matches, such as '*'",
            )
        return pl.DataFrame(judged, schema=self.applications.schema)

    def durations(self, classes: Sequence[JobClass]) -> list[Quantity]:
        """What a job of each class takes on the candidate; classes of the same applications share one quantity."""
        logs = {one.name: frozenset(self.of(one)["log"].to_list()) for one in classes}
        alike = {one.name: [other for other in logs if logs[other] == logs[one.name]] for one in classes}
        return [self.duration(one, " and ".join(alike[one.name])) for one in classes]

    def duration(self, one: JobClass, name: str = "") -> Quantity:
        """What a job of the class takes on the candidate: the mean over its applications, in seconds.

        Ends of the mean are means of the ends: the applications were predicted with the same factors, so their errors
        are taken as common. Where one end is not known of all of them it is mirrored; without any it is a point.
        """
        found = self.of(one)
        value = _mean(found["predicted_s"])
        low, high = _mean(found["predicted_low_s"]), _mean(found["predicted_high_s"])
        if value is None:
            raise InputError("an application without a prediction", where=f"jobs, {one.name}")
        return Quantity(f"duration of {name or one.name}", value, "s", low=low, high=high, level=self.level).whole()


@dataclass(frozen=True)
class Law:
    """How what a service carries grows with its GPUs, as a sizing run on several counts found it."""

    model: str
    counts: tuple[int, ...]
    contention: float
    coherency: float

    @property
    def most(self) -> int:
        """The largest count that it is believed for: twice the largest that was measured."""
        return 2 * max(self.counts)

    @property
    def name(self) -> str:
        """The law, and over which counts."""
        return f"{self.model} over {', '.join(map(str, self.counts))} GPUs"

    def times(self, gpus: int) -> float:
        """How many times as much as one GPU do so many carry (Gunther 2007)?

        Examples
        --------
        >>> round(Law("Amdahl", (1, 2), 0.1, 0.0).times(2), 4)
        1.8182
        """
        return gpus / (1 + self.contention * (gpus - 1) + self.coherency * gpus * (gpus - 1))


@dataclass(frozen=True)
class Service:
    """What the GPUs that a sizing run measured carry at its target; `law` is null where it measured one count."""

    opened: Opened
    carried: Quantity
    test_gpus: int
    load_unit: str
    target: str
    simulated: bool
    law: Law | None = None

    @property
    def load_name(self) -> str:
        """What the service's load is counted in."""
        return "users" if self.load_unit == "users" else "requests/s"


@dataclass(frozen=True)
class Stack:
    """The recommended stack, its ratio to the baseline, and the metrics that this was measured on."""

    opened: Opened
    name: str
    baseline: str
    ratio: Quantity
    metrics: tuple[str, ...]
    predicted: bool


@dataclass(frozen=True)
class Scheduler:
    """The rate of pods that a cluster sustains."""

    opened: Opened
    side: str
    low_per_s: float | None
    high_per_s: float | None
    reason: str
    simulated_nodes: bool


def read_jobs(folder: str, *, accept_invalid: bool) -> Jobs:
    """The applications of a speedup qualification.

    Raises
    ------
    InputError
        As `open_run`, or it is a run of another mode.
    """
    opened = open_run(folder, "speedup", accept_invalid=accept_invalid)
    level = opened.run.record["config"].get("level")
    good = isinstance(level, int | float) and 0 < level < 1
    return Jobs(opened, opened.read(needed.APPLICATIONS), float(level) if good and level else stats.LEVEL)


def read_service(folder: str, *, accept_invalid: bool) -> Service:
    """The capacity at the binding target of a sizing estimate.

    Raises
    ------
    InputError
        As `open_run`, or the run has no number.
    """
    opened = open_run(folder, "sizing", accept_invalid=accept_invalid)
    estimates, steps = opened.read(needed.ESTIMATES), opened.read(needed.STEPS)
    binding = estimates.filter("binding")
    row = (binding if binding.height else estimates).to_dicts()[:1]
    if not row or row[0]["capacity"] is None or row[0]["test_gpus"] < 1:
        raise InputError(
            "a sizing run without a number",
            where=f"run {opened.run.run_id} (sizing), table estimates, columns capacity, test_gpus",
            found=(row[0]["reason"] or "null") if row else "no rows",
            do="size again with the levels that its report asks for",
        )
    one = row[0]
    unit = "users" if one["load_unit"] == "users" else "requests/s"
    carried = Quantity("load per replica", one["capacity"], unit, one["capacity_low"], one["capacity_high"]).whole()
    simulated = bool(steps["simulated"].any())
    target = str(one["target"])
    law = _law(opened, target)
    return Service(opened, carried, int(one["test_gpus"]), str(one["load_unit"]), target, simulated, law)


def _law(opened: Opened, target: str) -> Law | None:
    """The law that the target's answer follows; null where one GPU count was measured."""
    if not needed.SCALING.path(opened.run.tables_folder).is_file():
        return None
    rows = opened.read(needed.SCALING).filter(pl.col("target") == target).to_dicts()
    if not rows:
        return None
    last = rows[-1]
    return Law(last["model"], tuple(last["counts"]), last["contention"], last["coherency"])


def read_stack(folder: str, *, accept_invalid: bool) -> Stack:
    """The recommended stack of an indicator session.

    Raises
    ------
    InputError
        As `open_run`, or nothing was recommended.
    """
    opened = open_run(folder, "indicators", accept_invalid=accept_invalid)
    table, effects = opened.read(needed.RECOMMENDATIONS), opened.read(needed.EFFECTS)
    rows, bases = table.filter("recommended").to_dicts(), table.filter("baseline")["stack"].to_list()
    if not rows or rows[0]["ratio"] is None:
        raise InputError(
            "an indicator run that recommends nothing",
            where=f"run {opened.run.run_id} (indicators), table recommendations",
            found=f"{table.height} stack(s), none recommended with a ratio",
            do="measure on, or leave the run out",
        )
    one = rows[0]
    # The baseline against itself is 1, and not uncertain.
    low, high = (None, None) if one["baseline"] else (one["low"], one["high"])
    ratio = Quantity("stack ratio", one["ratio"], "×", low=low, high=high, level=one["level"]).whole()
    metrics = tuple(effects["metric"].unique(maintain_order=True).to_list())
    return Stack(opened, one["stack"], bases[0] if bases else "the baseline", ratio, metrics, bool(one["predicted"]))


def read_scheduler(folder: str, side: str, *, accept_invalid: bool) -> Scheduler:
    """The sustainable rate of one side of a scale test.

    Raises
    ------
    InputError
        As `open_run`.
    ConfigError
        There is no such side.
    """
    opened = open_run(folder, "scaletest", accept_invalid=accept_invalid)
    rows = opened.read(needed.SUSTAINED, more=("side",)).to_dicts()
    sides = [str(row.get("side") or "") for row in rows]
    if not rows:
        raise InputError("a scale test without a rate", where=f"run {opened.run.run_id} (scaletest), table sustained")
    if side and side not in sides:
        raise ConfigError(
            "no such side",
            where=f"scaletest_side, run {opened.run.run_id}",
            found=side,
            allowed=_named(sides),
        )
    row = rows[sides.index(side)] if side else rows[0]
    name = str(row.get("side") or "the scheduler")
    low, high = (_rate(row[end]) for end in ("low_per_s", "high_per_s"))
    return Scheduler(opened, name, low, high, str(row["reason"]), bool(row["simulated_nodes"]))


def _rate(value: float | None) -> float | None:
    """A rate that is one; else it is not known."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _named(sides: Sequence[str]) -> list[str]:
    return [side for side in sides if side] or ["nothing: the run has one side, leave it empty"]


def _matches(row: dict[str, object], pattern: str) -> bool:
    names = (str(row["app_name"] or ""), _file(str(row["log"])), str(row["log"]))
    return any(fnmatchcase(name, pattern) for name in names)


def _file(log: str) -> str:
    return PurePath(log).name


def _mean(column: pl.Series) -> float | None:
    """The mean; null where a value is missing."""
    mean = None if column.null_count() else column.mean()
    return float(mean) if isinstance(mean, int | float) else None
