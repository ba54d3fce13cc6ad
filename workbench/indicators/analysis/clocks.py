"""Two clocks for each metric: wall time, and CPU time (user and system) that other load hardly changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from workbench.indicators.store.archive import PlannedMetric, Result

if TYPE_CHECKING:
    from workbench.indicators.analysis.observations import Observations

Clock = Literal["wall", "cpu"]
CLOCK_NAMES: dict[str, str] = {"wall": "wall time", "cpu": "CPU time"}
MEASURED_PART = "measured part"
WHOLE_RUN = "whole run"
_PER_S = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
_RATES = ("flops", "hz", "qps", "rps", "ops")


def find_cpu_value(metric: PlannedMetric, result: Result) -> tuple[float | None, str | None]:
    """The CPU time that stands beside a metric, and what it is of; null for metrics that are no times or rates.

    Of the measured part where the script prints `@cpu`, in the metric's unit. Else of the whole run with the start of
    Python, in the metric's unit of time; for a rate its inverse, so that the same direction is better.
    """
    value = result.cpu_value(metric.field)
    if value is not None:
        return value, MEASURED_PART
    used_s = result.run_cpu_s
    if used_s is None or used_s <= 0 or result.workbench.status != "ok":
        return None, None
    if metric.unit in _PER_S and metric.better == "lower":
        return used_s * _PER_S[metric.unit], WHOLE_RUN
    unit = metric.unit.lower()
    if metric.better == "higher" and (unit.endswith(("/s", *_RATES))):
        return 1 / used_s, WHOLE_RUN
    return None, None


def select_clock(observed: Observations, clock: Clock) -> Observations:
    """The same session with its values by this clock; metrics without CPU time stay as they are.

    `select_clock(load_observations(folder), "cpu")` is what `--clock cpu` compares stacks by.
    """
    import polars as pl

    if "clock" not in observed.values.columns or not observed.values.height:
        return observed
    swap = (pl.col("clock") != clock) & pl.col("other_value").is_not_null()
    values = observed.values.with_columns(
        value=pl.when(swap).then("other_value").otherwise("value"),
        other_value=pl.when(swap).then("value").otherwise("other_value"),
        clock=pl.when(swap).then(pl.lit(clock)).otherwise("clock"),
    )
    session = observed.session.model_copy(update={"clock": clock})
    return replace(observed, session=session, values=values)
