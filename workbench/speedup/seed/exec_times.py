"""Times that the original lists beside an operator, in ms; its estimate does not use them."""

from __future__ import annotations

from collections.abc import Callable

from workbench.eventlog.plans import Node
from workbench.speedup.seed.log import NS_PER_MS, SeedLog


def _metric(node: Node, matches: Callable[[str], bool]) -> int | None:
    return next((metric.accumulator_id for metric in node.metrics if matches(metric.name)), None)


def task_time(log: SeedLog, node: Node, name: str) -> int | None:
    metric = _metric(node, lambda text: text == name)
    found = None if metric is None else log.accumulators.get(metric)
    return max(found.stages.values(), default=None) if found else None


def driver_time(log: SeedLog, node: Node, part: str, *, whole: bool = False) -> int | None:
    metric = _metric(node, lambda text: text == part if whole else part in text)
    values = [] if metric is None else log.driver.get(metric, [])
    return max((value for _, value in values), default=None)


def shuffle_time(log: SeedLog, node: Node) -> int | None:
    write, fetch = task_time(log, node, "shuffle write time"), task_time(log, node, "fetch wait time")
    times = [time for time in (None if write is None else write // NS_PER_MS, fetch) if time is not None]
    return sum(times) if times else None


def plain_time(log: SeedLog, node: Node, name: str) -> int | None:
    if name == "SubqueryBroadcast":
        return driver_time(log, node, "time to collect")
    if name != "BroadcastExchange":
        return None
    parts = ("time to collect", "time to build", "time to broadcast")
    times = [time for part in parts if (time := driver_time(log, node, part, whole=True)) is not None]
    return sum(times) if times else None
