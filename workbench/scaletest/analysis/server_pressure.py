"""Pressure on the API server: whom it throttled, how long calls took, and whether clusters' usual objectives hold.

Objectives are those of Kubernetes' own scalability tests: p99 of calls that change or read one object at most 1 s, of
lists at most 30 s; p99 of a pod's start, from created to seen running, at most 5 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.core.formats import format_seconds
from workbench.scaletest.cluster_api.connection import THROTTLED
from workbench.scaletest.observation.component_metrics import ETCD, LIMITER, QUEUE_WAIT, WEBHOOK
from workbench.scaletest.tables import CALLS, STARTUP

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

# Fewer throttled requests are no finding.
TOLD_FRACTION = 0.01
CALL_LIMIT_S, LIST_LIMIT_S, STARTUP_LIMIT_S = 1.0, 30.0, 5.0
# A median time to accept a workload from which on it is a finding, over so many.
SLOW_S, MIN_ACCEPTED = 0.1, 10
_PHASES = (
    ("create to schedule", "created_s", "scheduled_s"),
    ("schedule to run", "scheduled_s", "running_s"),
    ("pod startup", "created_s", "running_s"),
)


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
    """Name what took most of a call, by the API server's own figures.

    `call_s`, `low_s`: Typical duration of a call, and the first quartile. A webhook's figures do not say for which
    resource it was called: one that takes longer than the whole call, or that the quicker calls did not wait for, was
    another's.

    `pressure`: `measure, subject, n, mean_s` of table PRESSURE, in the time in question; so for the functions below.
    """
    for measure, text in _TEXTS.items():
        for row in _sum_up(pressure, measure).iter_rows(named=True):
            fits = CAUSE_FRACTION * call_s <= row["mean_s"] <= LONGEST * call_s
            if row["n"] >= MIN_CALLS and fits and low_s >= CAUSE_FRACTION * row["mean_s"]:
                return text.format(subject=row["subject"], time=format_seconds(row["mean_s"]))
    return None


def find_limiter_wait(pressure: pl.DataFrame, component: str) -> float | None:
    """Mean seconds for which a component's requests waited for its own client limit; null where they hardly did.

    `pressure`: Table PRESSURE.
    """
    waits = _sum_up(pressure.filter(pl.col("component") == component), LIMITER)
    if not waits.height or waits["n"][0] < MIN_CALLS or waits["mean_s"][0] < SLOW_CALL_S:
        return None
    return float(waits["mean_s"][0])


def _sum_up(pressure: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Sum up the calls of one measure by subject, largest total time first: `subject, n, spent_s, mean_s`.

    `pressure`: Table PRESSURE.
    """
    calls = pressure.filter((pl.col("measure") == measure) & pl.col("n").is_not_null() & pl.col("mean_s").is_not_null())
    spent = (pl.col("n") * pl.col("mean_s")).sum().alias("spent_s")
    sums = calls.group_by("subject", maintain_order=True).agg(pl.col("n").sum(), spent)
    return sums.with_columns(mean_s=pl.col("spent_s") / pl.col("n")).sort("spent_s", descending=True)


def list_slow_parts(pressure: pl.DataFrame) -> list[str]:
    """Sentences on the queues, webhooks and etcd calls that took long over the whole run.

    `pressure`: Table PRESSURE.
    """
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


def count_throttled(submissions: pl.DataFrame) -> tuple[int, int, float]:
    """Requests that the server answered with 429, all requests, and the seconds waited because of the former.

    `submissions`: `throttled, attempts, throttled_s`, one row for each workload.

    >>> frame = pl.DataFrame({"throttled": [2, 0], "attempts": [3, 1], "throttled_s": [1.5, 0.0]})
    >>> count_throttled(frame)
    (2, 4, 1.5)
    """
    return (
        int(submissions["throttled"].sum()),
        int(submissions["attempts"].sum()),
        float(submissions["throttled_s"].sum()),
    )


def describe_throttling(submissions: pl.DataFrame) -> str | None:
    """Describe how often the server throttled the client; null for less than one request in a hundred.

    `submissions`: `throttled, attempts, throttled_s`, one row for each workload.

    >>> frame = pl.DataFrame({"throttled": [2, 0], "attempts": [3, 1], "throttled_s": [1.5, 0.0]})
    >>> describe_throttling(frame)
    'throttled the client: 2 of 4 requests, 1.5 s waited'
    """
    throttled, requests, waited_s = count_throttled(submissions)
    if throttled < max(1.0, TOLD_FRACTION * requests):
        return None
    return f"throttled the client: {throttled:,} of {requests:,} requests, {format_seconds(waited_s)} waited"


def describe_throttled_clients(requests: pl.DataFrame) -> list[str]:
    """Clients of the audit log, other than the load's, that got answers of 429.

    `requests`: `client, code, requests` of table REQUESTS.
    """
    by_client = requests.group_by("client").agg(
        pl.col("requests").sum().alias("all"),
        pl.col("requests").filter(pl.col("code") == THROTTLED).sum().alias("throttled"),
    )
    rows = by_client.filter(pl.col("throttled") >= (TOLD_FRACTION * pl.col("all")).clip(1.0)).sort("client")
    return [f"{client} got 429 for {throttled:,} of {n:,} requests" for client, n, throttled in rows.iter_rows()]


def describe_pressure(
    submissions: pl.DataFrame, requests: pl.DataFrame, pressure: pl.DataFrame, *, saturated: bool = False
) -> list[str]:
    """Describe what the API server did to the load and to others: throttled, queued, or was slow to accept.

    `submissions`: `sent_s, acked_s, throttled, attempts, throttled_s`.
    `requests`, `pressure`: Tables of these names. `saturated`: Whether this machine was.
    """
    throttled = describe_throttling(submissions)
    sentences = [f"The API server {throttled}."] if throttled else []
    sentences += [f"{line}." for line in describe_throttled_clients(requests)]
    free = submissions.filter((pl.col("throttled") == 0) & pl.col("acked_s").is_not_null())
    took = (free["acked_s"] - free["sent_s"]).drop_nulls()
    if len(took) >= MIN_ACCEPTED and (median_s := float(took.median() or 0.0)) >= SLOW_S:  # type: ignore[arg-type]
        low, high = (float(took.quantile(share) or 0.0) for share in (0.05, 0.95))
        cause = name_cause(pressure, median_s, float(took.quantile(0.25) or 0.0))
        where = (
            f"{cause}."
            if cause
            else "this machine was saturated meanwhile."
            if saturated
            else "look at admission webhooks, etcd and its queues; the submitter does not wait for them."
        )
        sentences.append(
            f"The API server took {format_seconds(median_s)} to accept a workload at the median (9 of 10: "
            f"{format_seconds(low)} to {format_seconds(high)}): {where}"
        )
    return sentences + list_slow_parts(pressure)


def build_call_table(requests: pl.DataFrame) -> pl.DataFrame:
    """How long did API calls take, by verb and resource?

    Returns: Table CALLS, slowest first; `p99_s` is the 99th percentile of the seconds' own p99, weighted by their
    requests: an upper estimate, because the single durations are not kept.
    """
    rows = []
    for (verb, resource, sub), calls in requests.group_by(["verb", "resource", "subresource"], maintain_order=True):
        limit_s = LIST_LIMIT_S if verb in ("list", "deletecollection") else CALL_LIMIT_S
        weights = calls["requests"].to_numpy().astype(float)
        p50, p99 = (
            _weighted_quantile(calls[name].to_numpy().astype(float), weights, share)
            for name, share in (("duration_p50_s", 0.5), ("duration_p99_s", 0.99))
        )
        failed = int(calls.filter(pl.col("code") >= 400)["requests"].sum())
        row: dict[str, Any] = {"verb": verb, "resource": resource, "subresource": sub, "requests": int(weights.sum())}
        rows.append(row | {"failed": failed, "p50_s": p50, "p99_s": p99, "allowed_s": limit_s, "holds": p99 <= limit_s})
    return CALLS.frame(sorted(rows, key=lambda row: -float(row["p99_s"])))


def _weighted_quantile(values: Any, weights: Any, share: float) -> float:
    """The smallest value up to which this share of the weights lies. `values`, `weights`: One of each for a row."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) >= share * weights.sum()
    return float(values[order][int(np.argmax(reached))])


def build_startup_table(pods: pl.DataFrame) -> pl.DataFrame:
    """How long did pods take to start, by phase, as clusterloader2 counts?

    Returns: Table STARTUP. All times are arrivals at our watch; a pod that never got there is infinitely slow, so a
    quantile may be null.
    """
    rows = []
    for phase, begin, end in _PHASES:
        phase_pods = pods.filter(pl.col(begin).is_not_null())
        if not phase_pods.height:
            continue
        took = (phase_pods[end] - phase_pods[begin]).fill_null(np.inf).to_numpy().astype(float)
        quantiles = [float(np.quantile(took, share, method="higher")) for share in (0.5, 0.9, 0.99)]
        values = [value if np.isfinite(value) else None for value in quantiles]
        limit = STARTUP_LIMIT_S if phase == "pod startup" else None
        holds = None if limit is None else quantiles[2] <= limit
        row = {
            "phase": phase,
            "n": phase_pods.height,
            "never": int(np.isinf(took).sum()),
            "allowed_s": limit,
            "holds": holds,
        }
        rows.append(row | dict(zip(("p50_s", "p90_s", "p99_s"), values, strict=True)))
    return STARTUP.frame(rows)
