"""Wall time, executor hours and cost of the scenarios of one application, each with an interval.

The estimate is the measured wall time times the ratio of two replays: of the scenario and of the run as it was. The
interval has two parts, both chosen on recorded runs and shown on others (docs/decisions/0060): what a run of the same
application varies by, and a share of what the scenario changes, since tasks do not take equally long elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import fit_answer, format_number
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup import tables
from workbench.speedup.attribution.executor_time import MS_PER_H
from workbench.speedup.config import ScenarioConfig
from workbench.speedup.scenarios.scenario import (
    AS_RECORDED,
    ENDLESS,
    Scenario,
    is_shuffled,
    list_scenarios,
)
from workbench.speedup.scenarios.spared_work import find_broadcast_work
from workbench.speedup.scenarios.task_graph import QUERY, START, Step, TaskGraph, build_task_graph
from workbench.speedup.scenarios.virtual_schedule import Schedule, replay_steps

# The run's own time must come out of its replay within this share.
MAX_OWN_ERROR = 0.03
# Parts of the interval, for 90 %: of the wall time, and of the seconds that a scenario changes.
RUN_SHARE, CHANGE_SHARE = 0.07, 0.15
LEVEL = 0.9
FASTER, SLOWER, NO_DIFFERENCE, UNKNOWN = "faster", "slower", "no difference shown", "not known"


@dataclass(frozen=True)
class ScenarioResult:
    """Tables SCENARIOS and CRITICAL_PATH of one application.

    `own_error`: Replayed over measured wall time, minus 1; null where the replay did not end.
    """

    scenarios: pl.DataFrame
    critical_path: pl.DataFrame
    own_error: float | None
    reasons: tuple[str, ...]
    currency: str = ""

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where the graph does not explain the run's own time, or the log has holes."""
        return "invalid" if self.reasons else "valid"

    @cached_property
    def answer(self) -> str:
        """The scenario that saves most, in one sentence."""
        recorded = self.scenarios.row(0, named=True)
        if self.reasons:
            return f"What another run would take is not known: {self.reasons[0]}."
        told = self.scenarios.filter(pl.col("verdict") == FASTER, pl.col("scenario") != ENDLESS)
        wall = f"{recorded['wall_s']:,.1f} s"
        floor = self.scenarios.filter(pl.col("scenario") == ENDLESS)["wall_s"].to_list()
        rest = f" Endless executors would leave {floor[0]:,.1f} s." if floor and floor[0] is not None else ""
        if not told.height:
            return fit_answer(f"No scenario is shown to be faster than {wall}.{rest}", f"None is faster than {wall}.")
        best = told.sort("wall_s").row(0, named=True)
        taken = f"{best['wall_s']:,.1f} s ({best['low_s']:,.1f} to {best['high_s']:,.1f})"
        opening = f"With {best['scenario']} it would take {taken} instead of {wall}."
        return fit_answer(f"{opening}{rest}", opening)

    def find_longest_steps(self) -> pl.DataFrame:
        """The critical path for display, longest steps first."""
        whole = pl.sum_horizontal("driver_s", "longest_task_s", "slots_s")
        return self.critical_path.sort(whole, descending=True, maintain_order=True)

    @property
    def details(self) -> tuple[str, ...]:
        """What the answer rests on."""
        recorded = self.scenarios.row(0, named=True)
        cost = "" if recorded["cost"] is None else f", {format_number(recorded['cost'])} {self.currency}".rstrip()
        hours = f"{recorded['executor_h']:,.3g} executor hours and {recorded['core_h']:,.3g} core hours{cost}"
        own = "" if self.own_error is None else f" Its replay takes {100 * self.own_error:+.1f} % of its wall time."
        return (f"As recorded: {recorded['executors']} executors, {hours}.{own}",)


def study_scenarios(facts: EventLogFacts, config: ScenarioConfig) -> ScenarioResult:
    """The scenarios of these settings for the application of a log."""
    if len(facts.logs) > 1:
        raise InputError(
            "several event logs, but a what-if is of one", found=f"{len(facts.logs)} logs", do="give one of the files"
        )
    graph = build_task_graph(facts)
    if config.cores and graph.executor_cores % graph.executor_slots:
        raise ConfigError(
            "cores do not tell the slots",
            where="--cores",
            found=f"{graph.executor_slots} slots on {graph.executor_cores} cores, by another resource",
            do="give --executors alone",
        )
    if config.partitions and not any(is_shuffled(tasks, graph) for tasks in graph.iterate_stages()):
        raise ConfigError(
            "no stage has the number of tasks of spark.sql.shuffle.partitions",
            where="--partitions",
            found=graph.shuffle_partitions or "adaptive execution chooses the partitions",
            do="leave it out; or record a run with spark.sql.adaptive.coalescePartitions.enabled=false",
        )
    names = ("executors", "cores", "partitions", "no_skew", "no_stragglers")
    spared = find_broadcast_work(facts) if config.broadcast else ()
    if config.broadcast and not spared:
        raise ConfigError(
            "no shuffled join has a side that can be broadcast",
            where="--broadcast",
            allowed="a sort-merge or shuffled hash join, of which one side is smaller than 256 MiB",
            do="leave it out",
        )
    scenarios = list_scenarios(graph, **{name: getattr(config, name) for name in names}, spared=spared)
    return estimate_scenarios(
        Replayer(graph), scenarios, price_per_executor_h=config.price_per_executor_h, currency=config.currency
    )


class Replayer:
    """Replays of one graph: of the run as it was, once, and of scenarios."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.own = replay_steps(graph.steps, graph.executors)
        # Advice and scenarios ask for the same; by the scenario without its name.
        self._estimates_ms: dict[tuple[Scenario, bool], float | None] = {}

    @property
    def own_error(self) -> float | None:
        """Replayed over measured wall time, minus 1; null where the replay did not end."""
        return self.own.wall_ms / self.graph.wall_ms - 1 if self.own else None

    @property
    def reasons(self) -> list[str]:
        """Why no scenario is known: those of the graph, and a replay that misses the run's own time."""
        error = self.own_error
        if error is not None and abs(error) <= MAX_OWN_ERROR:
            return list(self.graph.reasons)
        replayed = "does not end" if error is None else f"takes {100 * error:+.1f} % of its wall time"
        return [
            *self.graph.reasons,
            f"the replay of the run as it was {replayed}; at most {MAX_OWN_ERROR:.0%} may differ",
        ]

    def estimate_ms(self, scenario: Scenario, *, is_sure: bool = True) -> float | None:
        """Wall time of a scenario; null where a replay does not end. `is_sure`: As for `Scenario.change_steps`."""
        steps = scenario.change_steps(self.graph, is_sure=is_sure)
        schedule = replay_steps(steps, scenario.change_executors(self.graph))
        return (
            None if schedule is None or self.own is None else self.graph.wall_ms * schedule.wall_ms / self.own.wall_ms
        )


def estimate_scenarios(
    replayer: Replayer,
    scenarios: Sequence[Scenario],
    *,
    price_per_executor_h: float | None = None,
    currency: str = "",
) -> ScenarioResult:
    """What each scenario would take: wall time with an interval, executor hours, cost.

    `price_per_executor_h`: Of an executor as recorded; one of other cores costs as many times as much.

    Returns: The first row is the run as it was. A scenario with fewer slots than its tasks need has no times.
    """
    graph = replayer.graph
    recorded = _sum_executor_ms(graph)
    rows = [_build_row(graph, Scenario(AS_RECORDED), [graph.wall_ms], recorded, price_per_executor_h)]
    for scenario in scenarios:
        estimates = [replayer.estimate_ms(scenario)]
        if scenario.no_skew or scenario.no_stragglers or scenario.spared:
            estimates.append(replayer.estimate_ms(scenario, is_sure=False))
        if scenario.spared:
            estimates.insert(0, replayer.estimate_ms(scenario.assume_likely()))
        walls = [wall_ms for wall_ms in estimates if wall_ms is not None]
        executor_ms = None
        if walls and scenario.executors is not None:
            executor_ms = scenario.executors * max(0.0, walls[0] - graph.executors[0].added_ms)
        elif walls and not scenario.is_endless:
            executor_ms = recorded * walls[0] / graph.wall_ms
        rows.append(_build_row(graph, scenario, walls, executor_ms, price_per_executor_h))
    path = list_critical_path(graph.steps, replayer.own) if replayer.own else []
    return ScenarioResult(
        tables.SCENARIOS.frame(rows),
        tables.CRITICAL_PATH.frame([{"number": number, **row} for number, row in enumerate(path)]),
        replayer.own_error,
        tuple(replayer.reasons),
        currency,
    )


def _sum_executor_ms(graph: TaskGraph) -> float:
    """Time of all executors of the run together."""
    return sum(
        (graph.wall_ms if life.removed_ms is None else life.removed_ms) - life.added_ms for life in graph.executors
    )


def _build_row(
    graph: TaskGraph, scenario: Scenario, walls: Sequence[float], executor_ms: float | None, price: float | None
) -> dict[str, object]:
    """Row of table SCENARIOS. `walls`: In ms, sure changes first; empty if unknown."""
    cores = scenario.cores or graph.executor_cores
    executor_h = None if executor_ms is None else executor_ms / MS_PER_H
    n_executors = None if scenario.is_endless else scenario.executors or graph.n_executors
    row: dict[str, object] = {
        "scenario": scenario.name,
        "executors": n_executors,
        "executor_cores": cores,
        "executor_h": executor_h,
        "core_h": None if executor_h is None else executor_h * cores,
        "cost": None if executor_h is None or price is None else executor_h * price * cores / graph.executor_cores,
    }
    if not walls:
        return row | {"verdict": UNKNOWN}
    if scenario.name == AS_RECORDED:
        return row | {"wall_s": graph.wall_ms / 1e3, "verdict": AS_RECORDED}
    low, high = find_interval(graph.wall_ms, walls)
    verdict = FASTER if high < graph.wall_ms else SLOWER if low > graph.wall_ms else NO_DIFFERENCE
    return row | {
        "wall_s": walls[0] / 1e3,
        "low_s": low / 1e3,
        "high_s": high / 1e3,
        "saved_s": (graph.wall_ms - walls[0]) / 1e3,
        "verdict": verdict,
    }


def find_interval(measured: float, estimates: Sequence[float]) -> tuple[float, float]:
    """Interval around estimates of a wall time, by the measured one, all in one unit.

    >>> low, high = find_interval(100, [50])
    >>> round(low, 1), round(high, 1)
    (39.0, 61.0)
    """
    lows, highs = [], []
    for estimate in estimates:
        reach = RUN_SHARE * estimate + CHANGE_SHARE * abs(measured - estimate)
        lows.append(max(0.0, estimate - reach))
        highs.append(estimate + reach)
    return min(lows), max(highs)


def list_critical_path(steps: Sequence[Step], schedule: Schedule) -> list[dict[str, object]]:
    """Rows of table CRITICAL_PATH: the steps that the end waited for, in order; their times add up to the whole."""
    rows: list[dict[str, object]] = []
    place = len(steps) - 1
    while place >= 0:
        step = steps[place]
        span_ms = schedule.ends_ms[place] - schedule.begins_ms[place]
        longest_ms = max(step.tasks.times_ms, default=0.0) if step.tasks else 0.0
        row: dict[str, object] = {
            "step": step.kind,
            "query": step.query or None,
            "sql_id": step.sql_id,
            "stage_id": step.tasks.stage_id if step.tasks else None,
            "driver_s": step.delay_ms / 1e3,
            "longest_task_s": longest_ms / 1e3,
            "slots_s": max(0.0, span_ms - longest_ms) / 1e3,
        }
        if step.kind not in (START, QUERY) or step.delay_ms:
            rows.append(row)
        place = schedule.released[place]
    return rows[::-1]
