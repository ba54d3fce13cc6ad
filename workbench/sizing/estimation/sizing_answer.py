"""Answer of a sweep: GPUs per goal with intervals, goodput, reasons, one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.core.books import describe_broken_books
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import fit_answer, format_ends, format_number
from workbench.sizing.config import Goal
from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.gpu_estimates import (
    AT_LEAST,
    MAX_GPU_EXTRAPOLATION,
    MAX_UNKNOWN_FRACTION,
    estimate_gpus_and_scaling,
)
from workbench.sizing.estimation.level_books import build_level_books
from workbench.sizing.estimation.point_verdicts import CHANGED
from workbench.sizing.estimation.server_bottleneck import find_first_bottleneck
from workbench.sizing.estimation.serving_costs import compute_costs, joules_per_token
from workbench.sizing.estimation.step_points import (
    PointLimits,
    assess_steps,
    describe_time_scale,
    name_load_unit,
    select_kept_requests,
)
from workbench.sizing.tables import ESTIMATES, GOODPUT, USABLE_VERDICTS
from workbench.stats.littles_law import count_sessions_per_hour

if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]


def compute_goodput(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    *,
    gpu_price_per_hour: float | None = None,
) -> pl.DataFrame:
    """How much of each load was served as the targets ask?

    `goals`: A request is within when every metric of its own is at or below the limits; each LLM call counts. An
    answer of one token has no time between tokens.

    Returns: The table `goodput`. Requests that lack a metric that a goal is on, and miss no other, are left out; where
    they are more than one in ten, what was within and its cost are null. Costs are null without a price, too, or where
    nothing was within; energy without a reading of the GPUs' power.
    """
    users = dict(steps.select("step", "users").iter_rows())
    rows = []
    for point in points.iter_rows(named=True):
        step = point["step"]
        sent = requests.filter(requests["step"] == step)
        counted = select_kept_requests(sent, users[step])
        share, unknown_share = _fraction_within_goals(counted, goals)
        # Of what was not probed, as much is right.
        right_share = point["right_share"]
        counting = 1.0 if right_share is None else right_share
        served = None if share is None else share * point["rate_per_s"] * counting
        within, unknown = find_within_goals(sent, goals)
        # Of what is not known, as much is within as of the others.
        amounts = None if share is None else np.where(within & unknown, share, within) * counting
        rows.append(
            {
                "step": step,
                "load": point["load"],
                "within_share": share,
                "right_share": right_share,
                "unknown_share": unknown_share,
                "goodput_per_s": served,
                "goodput_per_gpu": None if served is None else served / point["gpus"],
                "tokens_per_s_per_gpu": None
                if point["tokens_per_s"] is None
                else point["tokens_per_s"] / point["gpus"],
                **compute_costs(sent, counted, amounts, point, gpu_price_per_hour),
                "joules_per_token": joules_per_token(point),
            }
        )
    return GOODPUT.frame(rows)


def _fraction_within_goals(requests: pl.DataFrame, goals: Sequence[Goal]) -> tuple[float | None, float]:
    """Fraction of the known requests that succeeded and met every goal, null where too few are known; and of unknown.

    `requests`: Column outcome and those of the goals' metrics.
    """
    within, unknown = find_within_goals(requests, goals)
    if not len(within):
        return 0.0, 0.0
    # What misses another goal is late, whatever the unknown metric was.
    undecided = within & unknown
    unknown_share = float(undecided.mean())
    if unknown_share > MAX_UNKNOWN_FRACTION:
        return None, unknown_share
    return float(within[~undecided].mean()), unknown_share


def find_within_goals(requests: pl.DataFrame, goals: Sequence[Goal]) -> tuple[Flags, Flags]:
    """Find the requests that succeeded and miss no goal, and those that lack a metric that a goal is on.

    `requests`: Column outcome and those of the goals' metrics.
    """
    within = np.array(requests["outcome"] == "ok", dtype=bool)
    unknown = np.zeros(len(within), dtype=bool)
    for goal in goals if len(within) else ():
        values = metrics.metric_values(requests, goal.metric)
        with np.errstate(invalid="ignore"):
            within &= ~(values > goal.limit_s).any(axis=1)
        unknown |= np.isnan(values).all(axis=1) & metrics.metric_applies(requests, goal.metric)
    return within, unknown


def find_recommended_gpus(estimates: pl.DataFrame) -> int | None:
    """GPUs that meet every target of table ESTIMATES: the largest upper end; null when a target has none.

    A target that no measured load misses does not stand in the way, where its lower bound is above what the others
    allow.
    """
    rows = estimates.to_dicts()
    counts = [row["recommended"] for row in rows if row["verdict"] != AT_LEAST or row["recommended"] is not None]
    if not counts or None in counts or any(_is_open(row, max(counts)) for row in rows):
        return None
    return int(max(counts))


def find_carried_point(points: pl.DataFrame, row: dict[str, Any]) -> dict[str, Any] | None:
    """The point of the largest measured load within the capacity, at which the test GPUs should run; null: none.

    `points`: Table POINTS. `row`: One of table ESTIMATES.
    """
    capacity = row["capacity"] or row["capacity_low"] or 0.0
    carried = points.filter((points["gpus"] == row["test_gpus"]) & (points["load"] <= capacity))
    return carried.sort("load").row(-1, named=True) if carried.height else None


def _add_session_lengths(estimates: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Table ESTIMATES with the length of a session at each capacity. `points`: Table POINTS."""
    carried = [find_carried_point(points, row) for row in estimates.iter_rows(named=True)]
    lengths = [None if point is None else point["session_s"] for point in carried]
    return ESTIMATES.frame(estimates.to_dict(as_series=False) | {"session_s": lengths})


def _is_open(row: dict[str, Any], count: int) -> bool:
    """Whether a lower bound leaves it open if this number of GPUs meets its target."""
    return row["verdict"] == AT_LEAST and (row["gpus_high"] is None or row["gpus_high"] > count + 1e-9)


@dataclass(frozen=True)
class SizingAnswer:
    """How many GPUs, and why.

    `before_change`: GPUs by the levels before the service changed; null without a change, or where they do not say.
    `left_out`: Levels that the answer does not rest on, in words; empty without any.
    `books`: Table BOOKS of the levels.
    `gpu_price_per_hour`: Price of a GPU for an hour; null when none was given.
    `currency`: Of that price and all costs; empty for any.
    `scale_note`: What the simulator's time scale does to the figures; empty without one.
    """

    load: float
    load_unit: str
    points: pl.DataFrame
    quantiles: pl.DataFrame
    estimates: pl.DataFrame
    goodput: pl.DataFrame
    scaling: pl.DataFrame
    simulated: bool
    gpu_price_per_hour: float | None = None
    verification: pl.DataFrame | None = None
    left_out: str = ""
    scale_note: str = ""
    currency: str = ""
    before_change: int | None = None
    books: pl.DataFrame | None = None

    def with_verification(self, table: pl.DataFrame) -> SizingAnswer:
        """Copy of the answer with its verification; what more GPUs than the estimate's held is recommended."""
        estimates, count = self.estimates, self.recommended
        if count is not None and table.height and table["verdict"].eq("held").all():
            held = int(table["predicted_gpus"][0])
            raised = [held if count == own < held else own for own in estimates["recommended"]]
            estimates = ESTIMATES.frame(estimates.to_dict(as_series=False) | {"recommended": raised})
        return replace(self, verification=table, estimates=estimates)

    @property
    def notes(self) -> list[str]:
        """Levels that were left out, and the time scale of the simulator."""
        return [note for note in (self.left_out, self.scale_note) if note]

    @cached_property
    def binding(self) -> dict[str, Any] | None:
        """The estimate that asks for the most GPUs; null when there is none."""
        bound = self.estimates.filter(self.estimates["binding"])
        return bound.row(0, named=True) if bound.height else None

    @property
    def recommended(self) -> int | None:
        """GPUs that meet every target: the largest upper end; null when a target has none."""
        return find_recommended_gpus(self.estimates)

    @property
    def served(self) -> str:
        """Model and GPU type; empty where they are not known."""
        return next(iter(self.estimates["served"].drop_nulls()), "")

    @property
    def session_s(self) -> float | None:
        """Mean length of a session of users; null without sessions."""
        row = self.binding or (self.estimates.row(0, named=True) if self.estimates.height else {})
        return row.get("session_s")

    @property
    def sessions_per_hour(self) -> float | None:
        """Sessions an hour that the load is, by Little's law; null without sessions of users."""
        return None if self.session_s is None else count_sessions_per_hour(self.load, self.session_s)

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the recommended GPUs for an hour."""
        if self.recommended is None or self.gpu_price_per_hour is None:
            return None
        return self.recommended * self.gpu_price_per_hour

    @property
    def cost_caption(self) -> str:
        """Caption of the costs by step."""
        return f"Cost of what is served within all targets{f', in {self.currency}' if self.currency else ''}"

    @property
    def sentence(self) -> str:
        """The answer in one sentence: GPUs, load, goal, how many are needed at the ends of the interval."""
        served, targets = self._served_text(), self._targets_text()
        if self.recommended is None:
            why = self.reasons[0] if self.reasons else "nothing was measured"
            return fit_answer(
                f"No GPU count for {served} at {targets}: {why}.",
                f"No GPU count for {served} at {targets}.",
                f"No GPU count for {served}.",
            )
        count = f"{self.recommended} {'GPU serves' if self.recommended == 1 else 'GPUs serve'} {served}"
        claim = f"{count} at {targets}{self._needed_text()}"
        return fit_answer(f"{claim}{self._checked_text()}.", f"{claim}.", f"{count}{self._needed_text()}.", f"{count}.")

    def _targets_text(self) -> str:
        targets = self.estimates["target"].to_list()
        return targets[0] if len(targets) == 1 else f"all {len(targets)} goals"

    def _needed_text(self) -> str:
        """How many GPUs the ends of the interval are; empty where it has no ends."""
        row = self.binding
        if row is None or row["gpus_high"] is None:
            return ""
        high = math.ceil(row["gpus_high"] - 1e-9)
        low = high if row["gpus_low"] is None else math.ceil(row["gpus_low"] - 1e-9)
        if row["gpus_low"] is None:
            return f": at most {high} needed"
        return f": {low} needed" if low == high else f": {low} to {high} needed"

    def _checked_text(self) -> str:
        if self.verification is None:
            return ", not verified"
        verdicts = set(self.verification["verdict"].to_list())
        return ", verified" if verdicts == {"held"} else ", verification failed" if "failed" in verdicts else ""

    @property
    def conditions(self) -> list[str]:
        """What was not real."""
        return ["simulated service"] if self.simulated else []

    @property
    def details(self) -> list[str]:
        """Sentences below the answer: estimate with its interval, what binds, the law, the verification."""
        loose = (
            []
            if self.recommended is None
            else [f"No measured load misses {row['target']}: {_format_lower_bound(row)}." for row in self._loose_rows]
        )
        rows = [self._describe_binding(), *loose, f"Served: {self.served}." if self.served else ""]
        return [text for text in (*rows, self._session_text(), self._describe_verification()) if text]

    def _describe_binding(self) -> str:
        row = self.binding
        if self.recommended is None or row is None:
            return ""
        low, high = row["gpus_low"], row["gpus_high"]
        ends = f"fewer to {format_number(high)}" if low is None else format_ends(low, high)
        bound = f", bound by {row['target']}" if self.estimates.height > 1 else ""
        parts = [f"Estimate {format_number(row['gpus'])} GPUs, 90 % interval {ends}{bound}"]
        parts += [row["bound"].partition(": ")[0]] if row["bound"] else []
        cause = find_first_bottleneck(self.points, row["test_gpus"])
        return f"{'; '.join([*parts, *([cause] if cause else []), row['verdict']])}."

    @property
    def question(self) -> str:
        """The question with its load and goals filled in."""
        targets = " and ".join(self.estimates["target"].to_list())
        return f"How many GPUs do {self._served_text()} need, so that {targets}?"

    def _served_text(self) -> str:
        return f"{self.load:g} {name_load_unit(self.load_unit)}"

    @property
    def _loose_rows(self) -> list[dict[str, Any]]:
        """Estimates whose target no measured load misses."""
        return [row for row in self.estimates.iter_rows(named=True) if row["verdict"] == AT_LEAST]

    @property
    def reasons(self) -> list[str]:
        """Reasons why the answer is not valid; empty when it is."""
        reasons = []
        if self.recommended is None:
            reasons += [f"{row['target']}: {_format_lower_bound(row)}; {row['reason']}" for row in self._loose_rows]
        reasons += [] if self.books is None else describe_broken_books(self.books)
        changed = self.points.filter(self.points["verdict"] == CHANGED).sort("step")
        for row in changed.tail(1).iter_rows(named=True):
            alone = f"; the levels up to it alone say {self.before_change} GPUs" if self.before_change else ""
            do = "measure with a fixed number of replicas, and without changes of the service"
            return [
                f"the service changed: {row['load']:g} {name_load_unit(row['load_unit'])}: {row['reason']}{alone}; {do}"
            ]
        drifted = self.points.filter(self.points["verdict"] == "drift").sort("load")
        reasons += [f"drift at {row['load']:g}: {row['reason']}" for row in drifted.head(1).iter_rows(named=True)]
        for row in self.estimates.iter_rows(named=True):
            if row["verdict"] == AT_LEAST:
                continue
            if row["gpus"] is None:
                reasons.append(f"{row['target']}: {row['reason']}")
            elif row["recommended"] is None:
                detail = f": {row['reason']}" if row["reason"] else self._explain_open_end(row["target"])
                reasons.append(f"{row['target']}: its interval has no upper end{detail}")
        if not self.points.filter(self.points["verdict"].is_in(USABLE_VERDICTS)).height:
            worst = self.points.row(0, named=True) if self.points.height else None
            reasons.append("no usable point" + (f": {worst['reason']}" if worst else ""))
        if self.verification is not None:
            wrong = self.verification.filter(self.verification["verdict"] != "held")
            reasons += [f"verification of {row['target']}: {row['reason']}" for row in wrong.iter_rows(named=True)]
        return reasons

    def _explain_open_end(self, target: str) -> str:
        """Why an interval has no upper end, and what to measure."""
        counts = self.scaling.filter(self.scaling["target"] == target)["counts"].to_list()
        if not counts:
            lowest = self.points["load"].min() if self.points.height else None
            is_one = isinstance(lowest, int | float) and lowest <= 1
            return "; raise the limit, or speed the service up" if is_one else "; measure lower loads"
        max_gpus = MAX_GPU_EXTRAPOLATION * max(counts[0])
        return f" up to {max_gpus} GPUs, twice the largest measured count; measure a larger one"

    @property
    def session_turns(self) -> float | None:
        """Turns of a session; null without sessions."""
        turns = self.points["session_turns"].median() if "session_turns" in self.points.columns else None
        return None if turns is None else float(str(turns))

    def _session_text(self) -> str:
        mean_turns = self.session_turns
        if mean_turns is None:
            return ""
        if self.load_unit == "users":
            return f"Users come in sessions of {mean_turns:.2g} turns."
        return f"That load is {self.load / mean_turns:.3g} sessions a second, of {mean_turns:.2g} turns."

    def _describe_verification(self) -> str:
        if self.verification is None:
            return "" if self.recommended is None else "The count was not verified by driving the load."
        verdicts = sorted(set(self.verification["verdict"].to_list()))
        row = self.verification.row(0, named=True)
        fewer = row["estimated_gpus"]
        more = f", and did not hold with {fewer}" if fewer is not None and fewer < row["predicted_gpus"] else ""
        return f"Verification {', '.join(verdicts)} ({row['scope']}){more}."


def _format_lower_bound(row: dict[str, Any]) -> str:
    unit = name_load_unit(row["load_unit"])
    gpus = "a GPU" if row["test_gpus"] == 1 else f"on {row['test_gpus']} GPUs"
    return f"at least {row['capacity_low']:g} {unit} {gpus}"


def compute_answer(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    limits: PointLimits | None = None,
    gpu_price_per_hour: float | None = None,
    currency: str = "",
    draws: int = 500,
    seed: int = 0,
    server_metrics: pl.DataFrame | None = None,
    served: str = "",
) -> SizingAnswer:
    """How many GPUs does the load need, so that every goal is met?

    Parameters
    ----------
    requests, steps
        The raw tables of a sweep, or of several on different GPU counts (`joined`).
    goals
        What must hold; at least one.
    load
        Users, or arrivals a second where the steps are open loops.
    limits
        From when on a point is not valid.
    gpu_price_per_hour, currency
        Price of a GPU for an hour, for costs, and its currency, which is shown beside them.
    draws, seed
        Resamples of the intervals, start of the random numbers.
    server_metrics
        Table of that name; it names what binds, and changes no number.
    served
        Model and GPU type, for the ledger of forecasts; empty where they are not known.

    Raises
    ------
    ConfigError
        No goal, or a load that is not positive.
    InputError
        Closed and open loops are mixed, or there is no step.
    """
    if not goals:
        raise ConfigError("no goal", allowed="such as p95<=2 or 'ttft p99<=300ms'")
    if not load > 0:
        raise ConfigError("the load to serve is not positive", found=load)
    if not steps.height:
        raise InputError("no steps", do="run a sweep first: workbench sizing run")
    import polars as pl

    limits = replace(limits or PointLimits(), goals=tuple(goals))
    table, quantiles = assess_steps(
        requests,
        steps,
        limits=limits,
        qs=sorted({*metrics.REPORTED_QUANTILES, *(goal.q for goal in goals)}),
        server_metrics=server_metrics,
    )
    units = table["load_unit"].unique().to_list()
    if len(units) > 1:
        raise InputError("closed and open loops are mixed", found=sorted(steps["loop"].unique().to_list()))
    estimate = partial(estimate_gpus_and_scaling, requests, steps, goals=goals, load=load, draws=draws, seed=seed)
    changed = table.filter(table["verdict"] == CHANGED)
    before_change = None
    if changed.height:
        # Levels of two services have no law in common: no number, but what those before the change say.
        before = table.filter(table["step"] <= changed["step"].max())
        before = before.with_columns(verdict=before["verdict"].replace(CHANGED, "valid"))
        counts = estimate(points=before)[0]["recommended"].to_list()
        before_change = None if None in counts else max(counts, default=None)
        table_of_estimates, laws = estimate(points=table.with_columns(verdict=pl.lit(CHANGED)))
    else:
        table_of_estimates, laws = estimate(points=table)
    return SizingAnswer(
        load=float(load),
        load_unit=units[0],
        points=table,
        quantiles=quantiles,
        estimates=_add_session_lengths(table_of_estimates.with_columns(served=pl.lit(served or None)), table),
        goodput=compute_goodput(requests, steps, table, goals, gpu_price_per_hour=gpu_price_per_hour),
        scaling=laws,
        simulated=bool(steps["simulated"].any()),
        gpu_price_per_hour=gpu_price_per_hour,
        before_change=before_change,
        books=build_level_books(requests, steps, table),
        scale_note=describe_time_scale(steps),
        currency=currency,
    )


def concat_sweeps(sweeps: Sequence[tuple[pl.DataFrame, ...]]) -> tuple[pl.DataFrame, ...]:
    """Join the tables of several sweeps, table by table; steps are numbered on. `requests` and `steps` come first.

    >>> import polars as pl
    >>> first = (pl.DataFrame({"step": [0, 0]}), pl.DataFrame({"step": [0]}))
    >>> [table["step"].to_list() for table in concat_sweeps([first, first])]
    [[0, 0, 1, 1], [0, 1]]
    """
    import polars as pl

    groups: list[list[pl.DataFrame]] = [[] for _ in sweeps[0]]
    offset = 0
    for tables in sweeps:
        for place, table in enumerate(tables):
            groups[place].append(table.with_columns(step=pl.col("step") + offset))
        steps = tables[1]
        offset += (int(str(steps["step"].max())) + 1) if steps.height else 0
    return tuple(pl.concat(parts) for parts in groups)
