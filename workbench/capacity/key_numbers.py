"""The few numbers below the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.capacity import binding, summing
from workbench.display import KeyNumber
from workbench.formats import number

if TYPE_CHECKING:
    from workbench.capacity.study import Study


def of_plan(found: Study) -> list[KeyNumber]:
    """GPUs of Spark and service, nodes, cost both ways, the scheduler: each with P5 and P95."""
    there = set(found.day["figure"].to_list())
    named = [
        (summing.SPARK_GPUS, "Spark at its peak", "GPUs"),
        (summing.SERVICE_GPUS, "service at its peak", "GPUs"),
        (summing.NODES, "at the peak", "nodes"),
        (summing.COST_SCALED, "cost, scaled by the hour", "a day"),
        (summing.COST_FIXED, "cost, fixed at the peak", "a day"),
    ]
    numbers: list[KeyNumber] = [
        (label, _median(found.figure(name)), unit, _ends(found.figure(name)))
        for name, label, unit in named
        if name in there
    ]
    return [*numbers, _rate(found)]


def _median(row: dict[str, Any]) -> float | int:
    value = float(row["p50"])
    return int(value) if value.is_integer() else value


def _ends(row: dict[str, Any]) -> str:
    return f"P5 {number(row['p5'])}, P95 {number(row['p95'])}"


def _rate(found: Study) -> KeyNumber:
    one = found.found.scheduler
    low = None if one is None else one.low_per_s
    said = {binding.NOT_MEASURED: "not measured what is sustained"}.get(found.kept_up, f"{number(low)} are sustained")
    return ("pods at their peak", found.pods_per_s, "pods/s", f"P95; {said}")
