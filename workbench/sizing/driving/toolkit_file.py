"""A sweep as the file of the toolkit's calculator, so that it can calculate with what was measured here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.sizing import points
from workbench.sizing.calculator import calcfile
from workbench.sizing.calculator.calcfile import CalcOutput, ItemMetrics, LevelData, MetricAlerts, SizingMetrics

if TYPE_CHECKING:
    import polars as pl

PLACE = Path("online") / "job_sweep" / calcfile.NAME
GOOD = ("valid", "saturated", "few samples")


def calc_output(requests: pl.DataFrame, steps: pl.DataFrame, judged: pl.DataFrame) -> CalcOutput:
    """What the calculator would have recorded at the levels of a closed loop, from the requests that count.

    Parameters
    ----------
    requests, steps, judged
        The tables `requests`, `steps` and `points` of a sweep.

    Returns
    -------
    CalcOutput
        A level by its users, the last step that held them. A point that is not valid (too many failures, or it says
        more of the client or of an admission cap than of the service) is `workflow_interrupted`, which the calculator
        leaves out. Seconds; 0 where there are no model calls, as the calculator has it.
    """
    verdicts = dict(judged.select("step", "verdict").iter_rows())
    levels = {}
    for step in steps.filter(steps["users"].is_not_null()).sort("step").iter_rows(named=True):
        kept = points.kept(requests.filter(requests["step"] == step["step"]), step["users"])
        bad = verdicts.get(step["step"]) not in GOOD or step["stopped"] in ("interrupted", "limit")
        levels[int(step["users"])] = LevelData(sizing_metrics=_metrics(kept.filter(kept["outcome"] == "ok"), bad))
    return CalcOutput(calc_data=levels)


def write(folder: Path, output: CalcOutput) -> Path:
    """Write it where both calculators look for jobs below `--calc_output_dir FOLDER`."""
    path = folder / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    return calcfile.write(path, output)


def _metrics(kept: pl.DataFrame, bad: bool) -> SizingMetrics:
    items = {}
    calls: list[float] = []
    for row in kept.iter_rows(named=True):
        calls += row["llm_s"] or []
        items[str(row["request"])] = ItemMetrics(llm_latency=_p95(row["llm_s"]), workflow_runtime=row["runtime_s"])
    span = (float(kept["intended_s"].min()), float(kept["ended_s"].max())) if kept.height else (0.0, 0.0)  # type: ignore[arg-type]
    return SizingMetrics(
        alerts=MetricAlerts(workflow_interrupted=bad or not kept.height),
        llm_latency_p95=_p95(calls),
        workflow_runtime_p95=_p95(kept["runtime_s"].to_list()),
        total_runtime=span[1] - span[0],
        per_item_metrics=items,
    )


def _p95(values: list[Any] | None) -> float:
    return float(np.percentile(values, 95)) if values else 0.0
