"""Slow calls: is a stage slow because the API server takes long for each of its requests, and what took that time?

A controller with five workers that create a pod each in 200 ms makes 25 pods a second, however fast it is itself. By
Little's law the requests in flight are their rate times their duration: where that is one and more, and each takes
long, the time is the server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.formats import format_seconds
from workbench.scaletest.observation.component_metrics import ETCD, LIMITER, QUEUE_WAIT, WEBHOOK

# A call takes long from here on, and is what is waited for from so many in flight at a time.
SLOW_CALL_S, IN_FLIGHT = 0.1, 0.8
# What took at least this share of a call is its cause; so many calls say something.
CAUSE_FRACTION, MIN_CALLS = 0.5, 10
# A mean over a median: a part may look longer than the whole by this factor.
LONGEST = 1.5
_TEXTS = {
    WEBHOOK: "admission webhook {subject} took {time} of it",
    ETCD: "etcd took {time} for each {subject}",
    QUEUE_WAIT: "priority level {subject} let it queue for {time}",
}


@dataclass(frozen=True)
class SlowCalls:
    """Calls that a stage waited for.

    `cause`: What took most of it, in words; null where it is not known.
    """

    call_s: float
    cause: str | None

    @property
    def text(self) -> str:
        """Duration and cause."""
        return f"each of these calls took {format_seconds(self.call_s)} in the API server" + (
            f": {self.cause}" if self.cause else ""
        )


def find_slow_calls(calls: pl.DataFrame, pressure: pl.DataFrame, *, over_s: float) -> SlowCalls | None:
    """Did a stage wait for its own calls to the API server?

    `calls`: Rows of table REQUESTS that do the stage's work, in the time in which it held back. Without an audit log
    it is empty, and the webhooks' own figures are used.
    """
    n, spent_s = int(calls["requests"].sum()), float((calls["requests"] * calls["duration_p50_s"]).sum())
    low_s = float(calls["duration_p50_s"].quantile(0.25) or 0.0) if n else 0.0
    if not n:
        hooks = _sum_up(pressure, WEBHOOK)
        n, spent_s = (int(hooks["n"][0]), float(hooks["spent_s"][0])) if hooks.height else (0, 0.0)
        low_s = spent_s / max(n, 1)
    if n < MIN_CALLS or spent_s / n < SLOW_CALL_S or spent_s / max(over_s, 1e-9) < IN_FLIGHT:
        return None
    return SlowCalls(spent_s / n, name_cause(pressure, spent_s / n, low_s))


def name_cause(pressure: pl.DataFrame, call_s: float, low_s: float) -> str | None:
    """What took most of a call, by the API server's own figures.

    `call_s`, `low_s`: Typical duration of a call, and the first quartile. A webhook's figures do not say for which
    resource it was called: one that takes longer than the whole call, or that the quicker calls did not wait for, was
    another's.
    """
    for measure, text in _TEXTS.items():
        for row in _sum_up(pressure, measure).iter_rows(named=True):
            fits = CAUSE_FRACTION * call_s <= row["mean_s"] <= LONGEST * call_s
            if row["n"] >= MIN_CALLS and fits and low_s >= CAUSE_FRACTION * row["mean_s"]:
                return text.format(subject=row["subject"], time=format_seconds(row["mean_s"]))
    return None


def find_limiter_wait(pressure: pl.DataFrame, component: str) -> float | None:
    """Seconds that a component's requests waited in its own client limit, on average; null where they hardly did."""
    waits = _sum_up(pressure.filter(pl.col("component") == component), LIMITER)
    if not waits.height or waits["n"][0] < MIN_CALLS or waits["mean_s"][0] < SLOW_CALL_S:
        return None
    return float(waits["mean_s"][0])


def _sum_up(pressure: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Calls, time and mean by subject, most time first."""
    calls = pressure.filter((pl.col("measure") == measure) & pl.col("n").is_not_null() & pl.col("mean_s").is_not_null())
    spent = (pl.col("n") * pl.col("mean_s")).sum().alias("spent_s")
    sums = calls.group_by("subject", maintain_order=True).agg(pl.col("n").sum(), spent)
    return sums.with_columns(mean_s=pl.col("spent_s") / pl.col("n")).sort("spent_s", descending=True)


def list_slow_parts(pressure: pl.DataFrame) -> list[str]:
    """Queues, webhooks and etcd calls that took long over the whole run, in sentences."""
    texts = {
        QUEUE_WAIT: "The API server let requests of priority level {subject} queue for {time} each, {n} in all.",
        WEBHOOK: "Admission webhook {subject} took {time} for each of {n} calls.",
        ETCD: "etcd took {time} for each of {n} calls ({subject}).",
    }
    sentences = []
    for measure, text in texts.items():
        for row in _sum_up(pressure, measure).head(3).iter_rows(named=True):
            if row["n"] >= MIN_CALLS and row["mean_s"] >= SLOW_CALL_S / 2:
                sentences.append(
                    text.format(subject=row["subject"], time=format_seconds(row["mean_s"]), n=f"{row['n']:,}")
                )
    return sentences


def build_component_table(pressure: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of table SERVERS: each subject over the whole run, by component and measure."""
    counted = pl.col("mean_s").is_not_null()
    keys = ["component", "measure", "subject"]
    grouped = pressure.group_by(keys, maintain_order=True).agg(
        pl.col("n").sum().alias("all"),
        pl.col("n").is_not_null().any().alias("counts"),
        (pl.col("n") * pl.col("mean_s")).filter(counted).sum().alias("spent_s"),
        pl.col("n").filter(counted).sum().alias("timed"),
        pl.col("p99_s").max(),
        pl.col("level").max().alias("peak"),
    )
    rows = grouped.select(
        *keys,
        pl.when("counts").then("all").alias("n"),
        pl.when(pl.col("timed") > 0).then(pl.col("spent_s") / pl.col("timed")).alias("mean_s"),
        "p99_s",
        "peak",
    )
    return rows.sort("component", "measure", "peak", "mean_s", descending=[False, False, True, True]).to_dicts()
