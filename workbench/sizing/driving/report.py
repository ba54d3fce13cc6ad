"""What `workbench sizing run` prints: the points, what failed, what is not good, where it lies."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from workbench.display import table
from workbench.sizing.driving import toolkit_file
from workbench.sizing.driving.outcome import Sweep

MOST_FAILURES = 5


def text(sweep: Sweep) -> str:
    """The sweep for people."""
    lines = [f"{'simulated; ' if sweep.simulated else ''}a level is {sweep.config.load_means}"]
    if sweep.points.height:
        lines.append(table(_shown(sweep), caption="Points", limit=40).text)
    for step, kinds in sweep.failures.items():
        listed = sorted(kinds.items(), key=lambda pair: -pair[1])
        lines += [f"step {step}: {count} x {what}" for what, count in listed[:MOST_FAILURES]]
        if len(listed) > MOST_FAILURES:
            lines.append(f"step {step}: and {len(listed) - MOST_FAILURES} more kinds, see sweep.json")
    lines += [f"not good: {reason}" for reason in sweep.reasons]
    if sweep.folder is not None:
        lines.append(f"written: {sweep.folder}")
        if (sweep.folder / toolkit_file.PLACE).exists():
            lines.append(f"for the toolkit's calculator: --offline_mode --calc_output_dir {sweep.folder}")
        if sweep.ended != "finished":
            lines.append(f"go on: workbench sizing run --resume {sweep.folder}")
        elif len(sweep.points) > 1:
            unit = "rate R" if sweep.config.is_open else "users N"
            goal = "" if sweep.config.goals else ' --goal "p95<=S"'
            lines.append(f"next: workbench sizing estimate {sweep.folder} --target-{unit}{goal}")
    return "\n".join(lines)


def as_json(sweep: Sweep) -> str:
    """The sweep as one JSON document."""
    found: dict[str, Any] = {
        "folder": None if sweep.folder is None else str(sweep.folder),
        "ended": sweep.ended,
        "limit": sweep.limit,
        "load_means": sweep.config.load_means,
        "simulated": sweep.simulated,
        "reasons": sweep.reasons,
        "points": sweep.points.to_dicts(),
        "quantiles": sweep.quantiles.to_dicts(),
        "failures": {str(step): kinds for step, kinds in sweep.failures.items()},
    }
    return json.dumps(found, indent=1)


def _shown(sweep: Sweep) -> pl.DataFrame:
    runtime = sweep.quantiles.filter(pl.col("metric") == "runtime")
    p50 = runtime.filter(pl.col("q") == 0.5).select("step", p50_s="value_s")
    p95 = runtime.filter(pl.col("q") == 0.95).select("step", p95_s="value_s", low_s="low_s", high_s="high_s")
    frame = sweep.points.join(p50, on="step", how="left").join(p95, on="step", how="left")
    stopped = sweep.steps.select("step", "stopped")
    return frame.join(stopped, on="step", how="left").select(
        "step",
        "load",
        kept="n_kept",
        failed=pl.col("n_kept") - pl.col("n_ok"),
        p50_s="p50_s",
        p95_s="p95_s",
        low_s="low_s",
        high_s="high_s",
        rate_per_s="rate_per_s",
        in_flight="in_flight",
        stopped="stopped",
        verdict="verdict",
    )
