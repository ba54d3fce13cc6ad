"""Charts of one test run, of several runs by variant, and of the control plane's own figures."""

from __future__ import annotations

from workbench.scaletest.charts.comparison_charts import chart_comparison, chart_league
from workbench.scaletest.charts.run_charts import (
    chart_flow,
    chart_gpus,
    chart_pressure,
    chart_ramp,
    chart_rates,
    chart_spread,
    chart_steps,
    chart_time_shares,
    compare_variants,
    find_slow_subjects,
)

__all__ = [
    "chart_comparison",
    "chart_flow",
    "chart_gpus",
    "chart_league",
    "chart_pressure",
    "chart_ramp",
    "chart_rates",
    "chart_spread",
    "chart_steps",
    "chart_time_shares",
    "compare_variants",
    "find_slow_subjects",
]
