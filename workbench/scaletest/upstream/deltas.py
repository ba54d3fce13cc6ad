"""The old tool's deltas, as it computes them and as they are: pure, from milestones to tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.scaletest.upstream.chain import FALLBACKS, FIELDS, STEPS, Milestone, Step
from workbench.scaletest.upstream.tables import DELTAS, JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.scaletest.upstream.reading import Files

EARLY_PODGROUP = "pod group earlier than the first pod: the pod was replaced"
NEGATIVE_TOTAL = "decided before it was submitted"
US = 1_000_000


def jobs(found: Files) -> pl.DataFrame:
    """The sampled workloads whose submission is known, in the order of sampled.json.

    Returns
    -------
    polars.DataFrame
        Table `upstream_jobs`.
    """
    submitted = found.by_key
    rows = []
    for one in found.sampled:
        sent = submitted.get((one.name, one.project))
        if sent is None:
            continue
        row = {"row": one.row, "name": one.name, "namespace": one.namespace, "project": one.project}
        at = {column(name): one.at_s[name] for name in FIELDS}
        rows.append({**row, "submitted_at_us": sent.at_ns // 1000, **at})
    return judged(rows)


def judged(rows: Iterable[dict[str, object]] | pl.DataFrame) -> pl.DataFrame:
    """Milestones with the old tool's word on whether they count: table `upstream_jobs`.

    Two are skipped: pod groups earlier than their first pod, and decisions more than 1 s before the submission.
    """
    schema = {name: kind for name, kind in JOBS.schema().items() if name not in ("kept", "skipped")}
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(list(rows), schema=schema, orient="row")
    why = (
        pl.when(pl.col("podgroup_at_s") < pl.col("first_pod_at_s"))
        .then(pl.lit(EARLY_PODGROUP))
        .when(pl.col("decision_at_s") - _second("submitted") < -1)
        .then(pl.lit(NEGATIVE_TOTAL))
        .otherwise(pl.lit(None, dtype=pl.String))
    )
    return JOBS.check(frame.with_columns(why.alias("skipped")).with_columns(pl.col("skipped").is_null().alias("kept")))


def deltas(jobs: pl.DataFrame) -> pl.DataFrame:
    """Each step of the chain of each workload, true and as the old tool has it.

    Parameters
    ----------
    jobs
        Table `upstream_jobs`.

    Returns
    -------
    polars.DataFrame
        Table `upstream_deltas`, workload by workload in the order of `jobs`, the steps in the chain's order.

    Notes
    -----
    Both sides are cut to whole seconds first, so a delta is true to within 1 s. How `upstream_s` differs from
    `delta_s` on purpose stands in `differences.DIFFERENCES`.
    """
    parts = [_delta(step, number) for number, step in enumerate(STEPS)]
    keys = ["row", "name", "namespace", "kept"]
    checked = JOBS.check(jobs).with_row_index("place")
    long = pl.concat([checked.select("place", *keys, *part) for part in parts])
    return DELTAS.check(long.sort("place", "number"))


def column(name: Milestone) -> str:
    """The column of a milestone in `upstream_jobs`."""
    return "submitted_at_us" if name == "submitted" else f"{name}_at_s"


def _second(name: Milestone) -> pl.Expr:
    found = pl.col(column(name))
    return found // US if name == "submitted" else found


def _told(name: Milestone) -> pl.Expr:
    """The second that the old tool has for it: its fallback where nothing was measured."""
    return pl.coalesce(_second(name), _second(FALLBACKS[name])) if name in FALLBACKS else _second(name)


def _delta(step: Step, number: int) -> list[pl.Expr]:
    printed = _told(step.at) - _told(step.at if step.name == "First PVC Bind" else step.since)
    return [
        pl.lit(number).alias("number"),
        pl.lit(step.name).alias("step"),
        pl.lit(step.reference).alias("reference"),
        (_second(step.at) - _second(step.since)).alias("delta_s"),
        pl.when(printed == -1).then(pl.lit(0, dtype=pl.Int64)).otherwise(printed).alias("upstream_s"),
        (printed == -1).alias("clamped"),
    ]
