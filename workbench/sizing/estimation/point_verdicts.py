"""Verdict of each point: failures, shed load, overload, the client, the server's clock, drift, saturation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.answer_profiles import (
    AnswerProfile,
    Verdicts,
    find_cached_steps,
    find_other_answers,
    find_wrong_steps,
)
from workbench.sizing.estimation.backlog import Backlog
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.tables import MIN_SAMPLES, OUTCOMES, USABLE_VERDICTS
from workbench.stats import quantiles

if TYPE_CHECKING:
    from workbench.sizing.config import Goal, SweepConfig

MAX_CLIENT_DELAY_FRACTION = 0.05
"""Largest client delay, as a fraction of the p95 or the limit, whichever is larger; else a point is client-limited.

Decision 0019 has the 5 %; chosen, not derived.
"""
MAX_DISTANCE_FRACTION = 0.25
"""A longer client delay is allowed below this fraction of the distance from the p95 up to the limit: it cannot move the
latency across the limit. Chosen, not derived.
"""
MAX_CLIENT_CPU = 0.95
"""Largest fraction of a core that a client process may use, else a point is client-limited; chosen, not derived."""
MIN_ADMITTED_FRACTION = 0.9
"""Smallest fraction of the requests in flight that the server works on, and of the users that are in flight.

Decision 0019 has the 0.9; chosen, not derived.
"""
MIN_SHED_FRACTION = 0.5
"""Fraction of the failures that ask to come back later, from which on the failures are an admission limit: half."""
MIN_REPEATED_FRACTION = 0.1
"""Fraction of repeated prompts above which a point may be called cached; chosen, not derived."""
UNSTEADY_FACTOR = 1.1
"""Ratio between the intervals of two medians above which steps contradict each other; chosen, not derived."""
SATURATED_LATENCY_FACTOR = 1.1
"""Growth of the median from one load to the next above which latency grows; chosen, not derived."""
SATURATED_RATE_FACTOR = 1.05
"""Growth of the rate from one load to the next up to which throughput stays; chosen, not derived."""
SATURATED_LOAD_FACTOR = 1.2
"""Smallest growth of the load that says something: a rate may stay over a smaller one. Chosen, not derived."""
CHANGED = "changed"
"""Verdict of a level whose service is another one at later levels."""
MIN_CHANGE_WITHIN = 1.25
"""Ratio between the intervals of the medians of a step's first and last third from which on the service changed."""
MIN_FOR_CHANGE = 60
"""Fewest latencies that can show it: twenty in each third. Both are chosen, not derived."""
PER_REQUEST_METRICS = ("runtime", "e2e", "ttft", "ttfo", "gap", "llm")
"""Metrics that a late client lengthens by its whole delay."""


@dataclass(frozen=True)
class PointLimits:
    """Limits that a valid point must meet; `goals` are the limits of its latencies."""

    max_error_ratio: float = 0.01
    min_samples: int = MIN_SAMPLES
    goals: tuple[Goal, ...] = ()
    any_answer: bool = False
    trusts_server_clock: bool = True

    @classmethod
    def from_config(cls, config: SweepConfig) -> PointLimits:
        """Read the limits from the settings of a sweep."""
        return cls(config.max_error_ratio, config.least_samples, tuple(config.goals), config.any_answer)

    @property
    def limit_s(self) -> float:
        """The tightest goal on a time that a late client lengthens; 0 without one."""
        return min((goal.limit_s for goal in self.goals if goal.metric in PER_REQUEST_METRICS), default=0.0)


def decide_verdict(
    row: dict[str, Any],
    step: dict[str, Any],
    p95: float | None,
    limits: PointLimits,
    backlog: Backlog | None,
    change: tuple[str, str] | None = None,
) -> tuple[str, str | None]:
    """Verdict of one step by itself, and its reason; the first that applies."""
    if step["stopped"] == "lost worker":
        return "client-limited", "a load worker was lost, and its share of the load with it"
    if row["error_ratio"] > limits.max_error_ratio:
        # Verdict and reason for a point with failures: an admission limit if most were refused by it, else interrupted.
        n_failed = row["n_kept"] - row["n_ok"]
        if row["n_shed"] >= MIN_SHED_FRACTION * n_failed:
            served = f"{row['rate_per_s'] * (1 - row['error_ratio']):.3g} requests/s were served"
            return (
                "admission limit",
                f"{100 * row['n_shed'] / row['n_kept']:.1f} % refused (429, or 503 with Retry-After); {served}",
            )
        kinds = ", ".join(f"{row[f'n_{kind}']} {kind}" for kind in OUTCOMES[1:] if row[f"n_{kind}"])
        return "interrupted", f"{100 * row['error_ratio']:.1f} % of {row['n_kept']} failed: {kinds}"
    overload = None if backlog is None else backlog.overload
    limited = _find_client_limit(row, step, p95, limits.limit_s, overloaded=overload is not None)
    if limited:
        return "client-limited", limited
    if overload is not None:
        return "not sustained", overload
    high, in_flight = row["server_in_service_high"] if limits.trusts_server_clock else None, row["in_flight"]
    if high is not None and high < in_flight and row["server_in_service"] < MIN_ADMITTED_FRACTION * in_flight:
        n = round(row["server_in_service"])
        return "server-limited", f"server admits about {n} of {in_flight:.0f} requests in flight: the rest queues"
    if change is not None:
        return change
    if row["n_kept"] < limits.min_samples:
        return "few samples", f"{row['n_kept']} requests kept, {limits.min_samples} needed"
    return "valid", None


def find_change_within(kept_requests: pl.DataFrame, step: dict[str, Any]) -> tuple[str, str] | None:
    """Verdict and sentence if latencies moved within a step of users; null otherwise.

    `kept_requests`: Requests after warm-up, in the order of sending. Their latencies have no trend while the users and
    the service stay as they are. With think time a queue may take minutes to fill: then the step was too short.
    """
    latencies = metrics.metric_values(kept_requests, metrics.DEFAULT_METRIC)
    has_sessions = "turn" in kept_requests.columns and kept_requests["turn"].count() > 0
    if step["loop"] != "closed" or has_sessions:
        return None
    medians = compare_ends(latencies, MIN_CHANGE_WITHIN)
    if medians is None:
        return None
    first, last = medians
    word = "slower" if last > first else "faster"
    found = f"median {first:.3g} s in its first third, {last:.3g} s in its last"
    if step["think_s"]:
        return "unsteady", f"{found}: the step ended before its queue had its length; use a longer --max-step"
    return CHANGED, f"{found}: the service became {word} within the level"


def compare_ends(latencies: Floats, factor: float) -> tuple[float, float] | None:
    """Medians of the first and last third, if this factor lies between their intervals; null otherwise.

    `latencies`: In the order of sending, one row a request, at least MIN_FOR_CHANGE.
    """
    if len(latencies) < MIN_FOR_CHANGE:
        return None
    third = len(latencies) // 3
    first, last = (quantiles.estimate_quantile(part, 0.5) for part in (latencies[:third], latencies[-third:]))
    for slow, fast in ((first, last), (last, first)):
        if np.isfinite(slow.low) and slow.low > factor * fast.high:
            return first.value, last.value
    return None


def _find_client_limit(
    row: dict[str, Any], step: dict[str, Any], p95: float | None, limit_s: float, *, overloaded: bool
) -> str | None:
    """Reason why the client distorts the point; null if it does not.

    A delay of sending matters where it could move the latency across the limit: it is compared with the larger of both,
    and with their distance. In an open loop that the service does not sustain, late sending comes from the limit of
    requests in flight and is no fault of the client.
    """
    if p95:
        distance_s = limit_s - p95 if limit_s else 0.0
        allowed_s = max(MAX_CLIENT_DELAY_FRACTION * max(p95, limit_s), MAX_DISTANCE_FRACTION * distance_s)
        of = "p95" if p95 >= limit_s else f"limit of {limit_s:g} s"
        for name, lag in (("event loop", row["loop_lag_p99_s"]), ("sending", row["send_lag_p99_s"])):
            if lag is not None and lag > allowed_s and not (overloaded and name == "sending"):
                allowed = f"{allowed_s * 1e3:.1f} ms, what the {of} allows"
                return f"client {name} lag of {lag * 1e3:.1f} ms (p99) exceeds {allowed}"
    if (row["client_cpu_share"] or 0) > MAX_CLIENT_CPU:
        return f"a client process used {100 * row['client_cpu_share']:.0f} % of a core: use more processes"
    load = row["load"]
    in_flight = row["in_flight"] if step["loop"] == "closed" and not step["think_s"] else None
    if in_flight is not None and row["n_kept"] and in_flight < MIN_ADMITTED_FRACTION * load:
        return f"{in_flight:.1f} of {load:g} users were in flight"
    if step["loop"] == "closed" and row["in_flight"] > load / MIN_ADMITTED_FRACTION:
        return f"{row['in_flight']:.1f} requests were in flight, more than the {load:g} users of this level"
    return None


def apply_verdicts(table: pl.DataFrame, verdicts: Verdicts, replaced: Sequence[str]) -> pl.DataFrame:
    """Replace the verdicts of points, where the present one is in `replaced`, by those found by comparing steps.

    `table`: `step, verdict, reason` of table POINTS. `verdicts`: New verdict and reason by step.

    >>> import polars as pl
    >>> points = pl.DataFrame({"step": [0, 1], "verdict": ["valid", "few samples"], "reason": [None, "9 requests"]})
    >>> apply_verdicts(points, {0: ("cached", "repeated prompts"), 1: ("cached", None)}, ["valid"]).rows()
    [(0, 'cached', 'repeated prompts'), (1, 'few samples', '9 requests')]
    """
    import polars as pl

    old = zip(table["step"], table["verdict"], table["reason"], strict=True)
    new = [
        verdicts[step] if step in verdicts and verdict in replaced else (verdict, reason)
        for step, verdict, reason in old
    ]
    return table.with_columns(
        pl.Series("verdict", [verdict for verdict, _ in new], dtype=pl.String),
        pl.Series("reason", [reason for _, reason in new], dtype=pl.String),
    )


def compare_points(
    table: pl.DataFrame, quantile_rows: list[dict[str, Any]], profiles: dict[int, AnswerProfile], limits: PointLimits
) -> pl.DataFrame:
    """The points with what only a comparison of steps shows: other answers, caches, drift, saturation.

    `table`: Table POINTS. `quantile_rows`: Rows of table QUANTILES. `profiles`: Answers of each step.
    """

    usable = (*USABLE_VERDICTS, "server-limited")
    table = apply_verdicts(table, find_wrong_clock(table, limits), ("server-limited",))
    others = {} if limits.any_answer else find_other_answers(table, profiles, limits.max_error_ratio)
    # What was answered does not depend on how late the client was.
    table = apply_verdicts(table, others | find_wrong_steps(table), (*usable, "client-limited"))
    cached = find_cached_steps(table, profiles, MIN_REPEATED_FRACTION)
    table = apply_verdicts(table, cached, (*usable, CHANGED))
    table = apply_verdicts(table, find_unsteady_steps(table, quantile_rows), USABLE_VERDICTS)
    return apply_verdicts(table, find_saturated_steps(table, quantile_rows), ("valid",))


def find_wrong_clock(table: pl.DataFrame, limits: PointLimits) -> Verdicts:
    """Find steps that only the server's clock calls server-limited, wrongly: with one user nothing can queue.

    `table`: `step, load, load_unit, verdict, n_kept` of table POINTS. Returns: New verdict and reason by step.
    """
    alone = table.filter((table["load"] <= 1) & (table["load_unit"] == "users"))
    if "server-limited" not in alone["verdict"].to_list():
        return {}
    limited = table.filter(table["verdict"] == "server-limited").select("step", "n_kept").rows()
    few = {step: n for step, n in limited if n < limits.min_samples}
    return {
        step: ("few samples", f"{n} requests kept, {limits.min_samples} needed") if step in few else ("valid", None)
        for step, n in limited
    }


def find_unsteady_steps(table: pl.DataFrame, quantile_rows: list[dict[str, Any]]) -> Verdicts:
    """Steps that contradict a later one: more load, and yet clearly faster.

    The first step, when it was slower than a later one at no less load, met a service that was still warming up. Any
    other such step shows a service that can do more than it could: it changed, as by another replica. An earlier one
    that was faster at no less load shows a service that has become slower: drift. Medians, whose intervals must leave
    the factor between them.

    `table`: Table POINTS. `quantile_rows`: Rows of table QUANTILES.
    """
    middle = {row["step"]: row for row in quantile_rows if row["metric"] == metrics.DEFAULT_METRIC and row["q"] == 0.5}
    verdicts: Verdicts = {}
    for gpus, unit in table.select("gpus", "load_unit").unique().sort("gpus", "load_unit").iter_rows():
        same = table.filter((table["gpus"] == gpus) & (table["load_unit"] == unit))
        rows = list(same.sort("step").iter_rows(named=True))
        first = rows[0]["step"]
        rows = [row for row in rows if row["verdict"] in USABLE_VERDICTS and _is_known(middle.get(row["step"]))]
        for early, late in itertools.combinations(rows, 2):
            before, after = middle[early["step"]], middle[late["step"]]
            if early["load"] <= late["load"] and before["low_s"] > UNSTEADY_FACTOR * after["high_s"]:
                is_first = early["step"] == first
                cause = "was still warming up" if is_first else "can do more since then"
                text = f"slower than a later step at {late['load']:g}: the service {cause}"
                kind = "unsteady" if is_first else CHANGED
                verdicts.setdefault(early["step"], (kind, _compare_medians(before, after, text)))
            elif early["load"] >= late["load"] and after["low_s"] > UNSTEADY_FACTOR * before["high_s"]:
                text = f"faster than a later step at {late['load']:g}: the service became slower during the sweep"
                verdicts[early["step"]] = ("drift", _compare_medians(before, after, text))
    return verdicts


def _is_known(row: dict[str, Any] | None) -> bool:
    return row is not None and row["low_s"] is not None and row["high_s"] is not None


def _compare_medians(before: dict[str, Any], after: dict[str, Any], text: str) -> str:
    return f"median {before['value_s']:.3g} s, then {after['value_s']:.3g} s; {text}"


def find_saturated_steps(table: pl.DataFrame, quantile_rows: list[dict[str, Any]]) -> Verdicts:
    """Closed loops: throughput stays while latency grows; that step, the one before, and every higher load.

    `table`: Table POINTS. `quantile_rows`: Rows of table QUANTILES.
    """
    medians = [row for row in quantile_rows if row["metric"] == metrics.DEFAULT_METRIC and row["q"] == 0.5]
    p50 = {row["step"]: row["value_s"] for row in medians}
    verdicts: Verdicts = {}
    for gpus in table["gpus"].unique().to_list():
        part = table.filter((table["gpus"] == gpus) & (table["load_unit"] == "users")).sort("load")
        rows = [row for row in part.iter_rows(named=True) if row["verdict"] in ("valid", "few samples")]
        first: tuple[float, float] | None = None
        for before, row in itertools.pairwise(rows):
            slower = (p50.get(row["step"]) or 0) > SATURATED_LATENCY_FACTOR * (p50.get(before["step"]) or np.inf)
            has_more_load = row["load"] >= SATURATED_LOAD_FACTOR * before["load"]
            flat = has_more_load and row["rate_per_s"] <= SATURATED_RATE_FACTOR * before["rate_per_s"]
            if slower and flat and first is None and row["server_in_service"] is None:
                first = before["load"], row["rate_per_s"]
        if first is not None:
            text = f"saturated at {first[1]:.3g} requests/s (queueing or an admission limit)"
            verdicts |= {row["step"]: ("saturated", text) for row in rows if row["load"] >= first[0]}
    return verdicts
