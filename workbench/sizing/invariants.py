"""Do a sweep, its points and its answer agree? Each invariant with what was found; a broken one stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.report.study import check_invariants
from workbench.sizing.tables import USABLE_VERDICTS

if TYPE_CHECKING:
    from workbench.sizing.estimation.sizing_answer import SizingAnswer
    from workbench.sizing.load.measurement_sources import Measurements

MAX_UNHELD_FRACTION = 0.02
"""How far the requests in flight of a valid point may be from the users in virtual time."""
MIN_HELD_FRACTION = 0.9


def check_answer(measured: Measurements, answer: SizingAnswer) -> pl.DataFrame:
    """Is every request counted once, was the load held, does every figure lie in its interval?

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.
    """
    return check_invariants(
        [
            *_check_points(measured, answer),
            *_check_intervals(answer),
            *_check_goodput(answer),
            *_check_reproducibility(measured),
        ]
    )


def _check_points(measured: Measurements, answer: SizingAnswer) -> list[tuple[str, float]]:
    """Count the violations of each rule for steps and requests: pairs of rule and count."""
    points = answer.points
    tails = measured.requests.group_by("step").agg(n_sent=pl.len(), n_tail=pl.col("tail").sum())
    counted = points.join(tails, on="step", how="left")
    parts = pl.col("n_warmup") + pl.col("n_kept") + pl.col("n_tail")
    failures = sum(pl.col(f"n_{kind}") for kind in ("timeout", "refused", "http_error", "malformed", "cut", "failed"))
    late = measured.requests.filter(
        (pl.col("sent_s") < pl.col("intended_s") - 1e-9) | (pl.col("ended_s") < pl.col("sent_s"))
    )
    timed = measured.requests.filter((pl.col("outcome") != "ok") & pl.col("runtime_s").is_not_null())
    # Count steps of closed loops without think time whose requests in flight are not the number of users.
    closed = measured.steps.filter((pl.col("loop") == "closed") & (pl.col("think_s") == 0)).select("step", "clock")
    both = points.filter(pl.col("verdict").is_in(USABLE_VERDICTS)).join(closed, on="step")
    share = pl.col("in_flight") / pl.col("load")
    least = pl.when(pl.col("clock") == "virtual").then(1 - MAX_UNHELD_FRACTION).otherwise(MIN_HELD_FRACTION)
    steps_below_load = both.filter((share < least) | (share > 1 + MAX_UNHELD_FRACTION)).height
    return [
        (
            "steps whose requests are not warm-up, kept and tail together",
            counted.filter(pl.col("n_sent") != parts).height,
        ),
        (
            "steps whose kept requests are not successes and failures together",
            points.filter(pl.col("n_kept") != pl.col("n_ok") + failures).height,
        ),
        ("requests sent before their time, or ended before they were sent", late.height),
        ("failed requests with a latency", timed.height),
        ("valid steps with another number in flight than users", steps_below_load),
    ]


def _check_intervals(answer: SizingAnswer) -> list[tuple[str, float]]:
    """Count the violations of each rule for quantiles and estimates: pairs of rule and count."""
    by_metric = ["step", "metric"]
    values = answer.quantiles.with_columns(at=pl.col("value_s").fill_null(float("inf"))).sort("step", "metric", "q")
    falling = values.filter(pl.col("at") < pl.col("at").shift(1).over(by_metric))
    rows: list[tuple[str, float]] = [
        ("quantiles that fall as q rises", falling.height),
        (
            "quantiles outside of their own interval",
            _count_outside_interval(answer.quantiles, "value_s", "low_s", "high_s"),
        ),
        (
            "estimates outside of their own interval",
            _count_outside_interval(answer.estimates, "gpus", "gpus_low", "gpus_high"),
        ),
    ]
    short = answer.estimates.filter(pl.col("recommended") < pl.col("gpus_high") - 1e-6)
    rows.append(("recommended counts below the end of the interval", short.height))
    if answer.verification is not None:
        table: Any = answer.verification
        wrong = table.filter((pl.col("verdict") == "held") & ~(pl.col("high_s") <= pl.col("limit_s")))
        rows.append(("targets called held whose interval passes the limit", wrong.height))
    return rows


def _check_goodput(answer: SizingAnswer) -> list[tuple[str, float]]:
    """Count steps whose goodput exceeds their throughput: pairs of rule and count."""
    both = answer.goodput.join(answer.points.select("step", "rate_per_s"), on="step")
    more = both.filter((pl.col("within_share") > 1) | (pl.col("goodput_per_s") > pl.col("rate_per_s") + 1e-9))
    return [("steps with more served in time than served", more.height)]


def _check_reproducibility(measured: Measurements) -> list[tuple[str, float]]:
    """Count differences when the first step is simulated once more in virtual time: pairs of rule and count."""
    if measured.service is None or measured.config is None or not measured.steps.height:
        return []
    from workbench.sizing.simulation import virtual_time

    first = measured.steps.row(0, named=True)
    service = measured.service.model_copy(update={"gpus": first["gpus"]})
    load = first["rate_per_s"] if measured.config.is_open else first["users"]
    again, _ = virtual_time.simulate_step(
        service, measured.config.model_copy(update={"gpus": first["gpus"]}), float(load), number=0
    )
    same = again.equals(measured.requests.filter(pl.col("step") == 0))
    return [("first step measured again with another result", int(not same))]


def _count_outside_interval(frame: pl.DataFrame, value: str, low: str, high: str) -> int:
    """Count the rows whose figure lies outside the known ends of its interval."""
    below = pl.col(value) < pl.col(low) - 1e-9
    above = pl.col(value) > pl.col(high) + 1e-9
    return frame.filter(below.fill_null(False) | above.fill_null(False)).height
