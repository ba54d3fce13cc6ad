"""What a simulated service really needs, and what the slope-based calculator would have said of it. Virtual time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.sizing import samples, slope
from workbench.sizing.config import Goal
from workbench.sizing.simulation.model import Marks
from workbench.sizing.simulation.service import Service
from workbench.sizing.simulation.virtual import Drive

REQUESTS = 1500
# Seeds far from those of sweeps: the truth must not see the same random numbers.
FIRST_SEED = 10_000
PASSES = 2
TIMES = ("runtime_s", "llm_s", "ttft_s", "itl_s")


@dataclass(frozen=True)
class Truth:
    """The least count that meets all goals; null when none of those tried does."""

    gpus: int | None
    tried: dict[int, bool]
    runs: int


def truth(
    service: Service, goals: Sequence[Goal], users: int, start: int, *, runs: int = 3, requests: int = REQUESTS
) -> Truth:
    """How many GPUs do so many users really need?

    Parameters
    ----------
    service
        What is simulated.
    goals
        Each must hold in the mean of the runs.
    users
        Users, each with one request in flight.
    start
        The count that is tried first; from there down while the goals are met, else up to twice as many.
    runs, requests
        Independent runs of each count; requests that count in each, first ones of all users and half as many more
        left out before.

    Notes
    -----
    With few runs a count at the very edge may come out one too large or too small.
    """
    tried: dict[int, bool] = {}

    def meets(gpus: int) -> bool:
        tried[gpus] = _meets(service.model_copy(update={"gpus": gpus}), goals, users, runs, requests)
        return tried[gpus]

    count, most = max(1, start), 2 * max(1, start)
    if meets(count):
        while count > 1 and meets(count - 1):
            count -= 1
        return Truth(count, tried, runs)
    while count < most:
        count += 1
        if meets(count):
            return Truth(count, tried, runs)
    return Truth(None, tried, runs)


def _meets(service: Service, goals: Sequence[Goal], users: int, runs: int, requests: int) -> bool:
    found: dict[Goal, list[float]] = {goal: [] for goal in goals}
    for run in range(runs):
        columns = _long_run(service, users, FIRST_SEED + run, requests, _marks(goals))
        for goal in goals:
            found[goal].append(float(np.nanquantile(samples.values(columns, goal.metric), goal.q)))
    return all(statistics.fmean(values) <= goal.limit_s for goal, values in found.items())


def _long_run(service: Service, users: int, seed: int, requests: int, marks: Marks) -> dict[str, list[object]]:
    drive = Drive(service, seed=seed, marks=marks)
    warm = users + users // 2
    drive.closed(users, lambda ended: "enough" if len(ended["runtime_s"]) >= requests + warm else None, most=10**9)
    columns = drive.columns(("request", "tail", *TIMES))
    keep = [place >= warm and not tail for place, tail in zip(columns["request"], columns["tail"], strict=True)]
    return {name: [value for value, kept in zip(values, keep, strict=True) if kept] for name, values in columns.items()}


def _marks(goals: Sequence[Goal]) -> Marks:
    return "first" if {goal.metric for goal in goals} & {"ttft", "itl"} else "end"


def two_passes(service: Service, goal: Goal, users: float, levels: Sequence[float], *, seed: int = 0) -> float | None:
    """GPUs by the slope-based calculator on levels that are measured as the toolkit does: two passes in one burst.

    Parameters
    ----------
    service, goal, users
        The service on the test GPUs, what must hold, the load.
    levels
        Concurrencies; each runs twice as many requests, the first ones all at once, none left out.

    Returns
    -------
    float or None
        Not rounded; null where the calculator has no number.
    """
    loads = sorted({int(level) for level in levels})
    values = [_burst(service, goal, load, seed + load) for load in loads]
    line = slope.fit_line(loads, values).line if len(loads) >= slope.MIN_POINTS else None
    if line is None:
        return None
    return slope.gpus_by_slope(line, target_s=goal.limit_s, users=users, test_gpus=service.gpus).gpus


def _burst(service: Service, goal: Goal, concurrency: int, seed: int) -> float:
    """The quantile of two passes: so many at once, the next as soon as one has ended."""
    drive = Drive(service, seed=seed, marks=_marks([goal]))

    def send(_: object = None) -> None:
        if len(drive.sent) < PASSES * concurrency:
            drive.sent.append(drive.cluster.start(send))

    for _ in range(concurrency):
        send()
    drive.cluster.run_while(lambda: any(flow.ended_s is None for flow in drive.sent))
    return float(np.nanquantile(samples.values(drive.columns(TIMES), goal.metric), goal.q))
