"""Verdict of each point: failures, shed load, overload, the client, other answers, caches, drift, saturation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.load.arrival_processes import PROCESSES
from workbench.sizing.tables import BACKLOG, FAILING_VERDICTS, OUTCOMES, USABLE_VERDICTS
from workbench.stats import quantiles, rank_difference_z
from workbench.stats.intervals import t_interval

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.config import Goal, SweepConfig

MIN_SAMPLES = 200
MAX_CLIENT_DELAY_FRACTION = 0.05
"""Largest client delay, as a fraction of the p95 or the limit, whichever is larger; else a point is client-limited."""
MAX_DISTANCE_FRACTION = 0.25
"""A longer client delay is allowed below this fraction of the distance from the p95 up to the limit."""
MAX_CLIENT_CPU = 0.95
MIN_ADMITTED_FRACTION = 0.9
MIN_SHED_FRACTION = 0.5
"""Fraction of the failures that ask to come back later, from which on the failures are an admission limit."""
MIN_REPEATED_FRACTION = 0.1
UNSTEADY_FACTOR = 1.1
PER_REQUEST_METRICS = ("runtime", "e2e", "ttft", "llm")
"""Metrics that a late client lengthens by its whole delay."""

Verdicts = dict[int, tuple[str, str | None]]
"""New verdict and reason by step."""
N_PARTS = 10
N_SAMPLES = 40
"""Moments at which the requests in flight of a step are shown."""
MIN_DEFICIT = 3
MIN_LATENCY_GROWTH = 1.1
MAX_CORRELATION_TIME = 4.0
"""Latencies that are correlated over no more requests than these do not depend on a backlog."""
MIN_FOR_SURPLUS = 200
MAX_STEADY_RANGE = 0.05
MIN_INDEPENDENT = 40
"""Independent latencies that the requests of an even stream are worth in a steady state."""
NORMAL_95 = 1.645
MAX_LENGTH_FACTOR = 3.0
MIN_ANSWERS = 20
N_STANDARD_ERRORS = 4.0
N_ERRORS_OF_NEW_TEXT = 1.5
MAX_LONG_EXCESS = 0.05
MIN_COMPARED = 8
CACHE_FACTOR = 0.8
_COLUMNS = {"tokens": "output_tokens", "bytes": "answer_bytes"}


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
    row: dict[str, Any], step: dict[str, Any], p95: float | None, limits: PointLimits, backlog: Backlog | None
) -> tuple[str, str | None]:
    """Verdict of one step by itself, and its reason; the first that applies."""
    if step["stopped"] == "lost worker":
        return "client-limited", "a load worker was lost, and its share of the load with it"
    if row["error_ratio"] > limits.max_error_ratio:
        return _describe_failures(row)
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
    if row["n_kept"] < limits.min_samples:
        return "few samples", f"{row['n_kept']} requests kept, {limits.min_samples} needed"
    return "valid", None


def _describe_failures(row: dict[str, Any]) -> tuple[str, str]:
    """Verdict and reason for a point with failures: an admission limit if most were refused by it, else interrupted."""
    n_failed = row["n_kept"] - row["n_ok"]
    if row["n_shed"] >= MIN_SHED_FRACTION * n_failed:
        served = f"{row['rate_per_s'] * (1 - row['error_ratio']):.3g} requests/s were served"
        return (
            "admission limit",
            f"{row['n_shed'] / row['n_kept']:.1%} refused (429, or 503 with Retry-After); {served}",
        )
    kinds = ", ".join(f"{row[f'n_{kind}']} {kind}" for kind in OUTCOMES[1:] if row[f"n_{kind}"])
    return "interrupted", f"{row['error_ratio']:.1%} of {row['n_kept']} failed: {kinds}"


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
        return f"a client process used {row['client_cpu_share']:.0%} of a core: use more processes"
    load = row["load"]
    in_flight = row["in_flight"] if step["loop"] == "closed" and not step["think_s"] else None
    if in_flight is not None and row["n_kept"] and in_flight < MIN_ADMITTED_FRACTION * load:
        return f"{in_flight:.1f} of {load:g} users were in flight"
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
    table: pl.DataFrame, quantiles: list[dict[str, Any]], profiles: dict[int, AnswerProfile], limits: PointLimits
) -> pl.DataFrame:
    """The points with what only a comparison of steps shows: other answers, caches, drift, saturation.

    `table`: Table POINTS. `quantiles`: Rows of table QUANTILES. `profiles`: Answers of each step.
    """

    usable = (*USABLE_VERDICTS, "server-limited")
    table = apply_verdicts(table, find_wrong_clock(table, limits), ("server-limited",))
    if not limits.any_answer:
        others = find_other_answers(table, profiles, limits.max_error_ratio)
        # What was answered does not depend on how late the client was.
        table = apply_verdicts(table, others, (*usable, "client-limited"))
    cached = find_cached_steps(table, profiles, MIN_REPEATED_FRACTION)
    table = apply_verdicts(table, cached, usable)
    table = apply_verdicts(table, find_unsteady_steps(table, quantiles), USABLE_VERDICTS)
    return apply_verdicts(table, find_saturated_steps(table, quantiles), ("valid",))


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


def find_unsteady_steps(table: pl.DataFrame, quantiles: list[dict[str, Any]]) -> Verdicts:
    """Steps that contradict a later one: more load, and yet clearly faster.

    An earlier step that was slower than a later one at no less load met a service that was still warming up. An earlier
    one that was faster at no less load shows a service that has become slower: drift. Medians, whose intervals must
    leave 10 % between them.

    `table`: Table POINTS. `quantiles`: Rows of table QUANTILES.
    """
    middle = {row["step"]: row for row in quantiles if row["metric"] == metrics.DEFAULT_METRIC and row["q"] == 0.5}
    verdicts: Verdicts = {}
    for gpus, unit in table.select("gpus", "load_unit").unique().sort("gpus", "load_unit").iter_rows():
        same = table.filter((table["gpus"] == gpus) & (table["load_unit"] == unit))
        rows = list(same.sort("step").iter_rows(named=True))
        rows = [row for row in rows if row["verdict"] in USABLE_VERDICTS and _is_known(middle.get(row["step"]))]
        for early, late in itertools.combinations(rows, 2):
            before, after = middle[early["step"]], middle[late["step"]]
            if early["load"] <= late["load"] and before["low_s"] > UNSTEADY_FACTOR * after["high_s"]:
                text = f"slower than a later step at {late['load']:g}: the service was still warming up"
                verdicts.setdefault(early["step"], ("unsteady", _compare_medians(before, after, text)))
            elif early["load"] >= late["load"] and after["low_s"] > UNSTEADY_FACTOR * before["high_s"]:
                text = f"faster than a later step at {late['load']:g}: the service became slower during the sweep"
                verdicts[early["step"]] = ("drift", _compare_medians(before, after, text))
    return verdicts


def _is_known(row: dict[str, Any] | None) -> bool:
    return row is not None and row["low_s"] is not None and row["high_s"] is not None


def _compare_medians(before: dict[str, Any], after: dict[str, Any], text: str) -> str:
    return f"median {before['value_s']:.3g} s, then {after['value_s']:.3g} s; {text}"


def find_saturated_steps(table: pl.DataFrame, quantiles: list[dict[str, Any]]) -> Verdicts:
    """Closed loops: throughput stays while latency grows; that step, the one before, and every higher load.

    `table`: Table POINTS. `quantiles`: Rows of table QUANTILES.
    """
    p50 = {
        row["step"]: row["value_s"] for row in quantiles if row["metric"] == metrics.DEFAULT_METRIC and row["q"] == 0.5
    }
    verdicts: Verdicts = {}
    for gpus in table["gpus"].unique().to_list():
        part = table.filter((table["gpus"] == gpus) & (table["load_unit"] == "users")).sort("load")
        rows = [row for row in part.iter_rows(named=True) if row["verdict"] in ("valid", "few samples")]
        first: tuple[float, float] | None = None
        for before, row in itertools.pairwise(rows):
            slower = (p50.get(row["step"]) or 0) > 1.1 * (p50.get(before["step"]) or np.inf)
            flat = row["rate_per_s"] <= 1.05 * before["rate_per_s"] and row["load"] >= 1.2 * before["load"]
            if slower and flat and first is None and row["server_in_service"] is None:
                first = before["load"], row["rate_per_s"]
        if first is not None:
            text = f"saturated at {first[1]:.3g} requests/s (queueing or an admission limit)"
            verdicts |= {row["step"]: ("saturated", text) for row in rows if row["load"] >= first[0]}
    return verdicts


@dataclass(frozen=True)
class Backlog:
    """Counts over the kept window of a step.

    `ended_per_s`, `ended_low_per_s`, `ended_high_per_s`: Successes that ended, with the 90 % interval over ten parts
    of the window.
    `first`, `last`, `peak`: Requests that were due and had not ended, at both ends of the window and at most.
    `overload`: Why the load was not sustained; null when it was.
    """

    offered_per_s: float
    begun_per_s: float
    ended_per_s: float
    ended_low_per_s: float | None
    ended_high_per_s: float | None
    first: int
    last: int
    peak: int
    overload: str | None = None


@dataclass(frozen=True)
class _Window:
    """Times of a step's requests, and the window from the first kept one to the last."""

    due: Floats
    sent: Floats
    ended: Floats
    ok: Any
    begin: float
    end: float

    def count_within(self, times: Floats) -> int:
        return int(((times > self.begin) & (times <= self.end)).sum())

    def waiting_at(self, time_s: float) -> int:
        return int((self.due <= time_s).sum() - (self.ended <= time_s).sum())


def measure_backlog(sent: pl.DataFrame, kept_requests: pl.DataFrame, arrivals: str) -> Backlog | None:
    """Did the service end the requests that were offered? Null with too few requests to say.

    Not sustained by either of two tests. A deficit: fewer ended than were offered, by more than the interval of what
    ended, while latency grew. At exactly its capacity a service shows hardly any deficit, since a backlog then grows
    like the square root of time and often falls back; so the second test asks for evidence that the backlog clears.
    While it is above its median, a service that keeps up ends more than arrives, and the surplus is the number of
    times that the backlog fell through the median. Where that surplus is within the noise of both counts, the load is
    at or above the capacity. It is not asked for where latencies are independent of one another: nothing queues then.
    What it does not show: a service that would fall behind only after a longer time.

    `sent`: All requests of a step: `intended_s, sent_s, ended_s, outcome`. `kept_requests`: Those that count.
    """
    window = _build_window(sent, kept_requests)
    if window is None:
        return None
    width = window.end - window.begin
    ended = window.ended[window.ok]
    edges = np.linspace(window.begin, window.end, N_PARTS + 1)
    parts = np.histogram(ended, edges)[0] / (width / N_PARTS)
    _, half, _ = t_interval(parts, 0.9)
    rate = window.count_within(ended) / width
    levels = np.array([window.waiting_at(moment) for moment in np.linspace(window.begin, window.end, 200)])
    backlog = Backlog(
        offered_per_s=window.count_within(window.due) / width,
        begun_per_s=window.count_within(window.sent) / width,
        ended_per_s=rate,
        ended_low_per_s=None if half is None else max(0.0, rate - half),
        ended_high_per_s=None if half is None else rate + half,
        first=int(levels[0]),
        last=int(levels[-1]),
        peak=int(levels.max()),
    )
    latencies = (kept_requests["ended_s"] - kept_requests["intended_s"]).to_numpy()
    reason = _find_deficit(backlog, width, latencies) or _explain_unproven_surplus(window, latencies, arrivals)
    return replace(backlog, overload=reason)


def _build_window(sent: pl.DataFrame, kept_requests: pl.DataFrame) -> _Window | None:
    """Times of a step's requests and the span of those that count; null if they are too few.

    `sent`: All requests of the step, with intended_s, sent_s, ended_s, outcome. `kept_requests`: Those that count.
    """
    if kept_requests.height < 2 * N_PARTS:
        return None
    begin, end = float(str(kept_requests["intended_s"].min())), float(str(kept_requests["intended_s"].max()))
    if not end > begin:
        return None
    due, begun, ended = (sent[name].to_numpy() for name in ("intended_s", "sent_s", "ended_s"))
    return _Window(due, begun, ended, (sent["outcome"] == "ok").to_numpy(), begin, end)


def _find_deficit(backlog: Backlog, width: float, latencies: Floats) -> str | None:
    """Sentence if fewer requests ended than were offered, beyond the interval, while latencies grew; null otherwise.

    `width`: Length of the window in seconds. `latencies`: Seconds, in order of sending.
    """
    grown = backlog.last - backlog.first
    if backlog.ended_high_per_s is None or grown < max(MIN_DEFICIT, 0.01 * backlog.offered_per_s * width):
        return None
    third = len(latencies) // 3
    if backlog.ended_high_per_s >= backlog.offered_per_s:
        return None
    if np.median(latencies[-third:]) < MIN_LATENCY_GROWTH * np.median(latencies[:third]):
        return None
    low = backlog.ended_low_per_s or 0.0
    return (
        f"{backlog.ended_per_s:.3g} requests/s [{low:.3g}, {backlog.ended_high_per_s:.3g}] ended of "
        f"{backlog.offered_per_s:.3g} offered; {backlog.first} were waiting at first, {backlog.last} at the end"
    )


def _explain_unproven_surplus(window: _Window, latencies: Floats, arrivals: str) -> str | None:
    """Reason why the step does not show that the service has capacity to spare; null where it does, or need not.

    `latencies` in seconds, in the order of sending. Latencies that are independent of one another need no surplus.
    """
    middle_s = float(np.median(latencies))
    correlated_requests = quantiles.estimate_correlation_time(latencies[:, None], middle_s)
    if correlated_requests <= MAX_CORRELATION_TIME:
        return None
    process = PROCESSES.get(arrivals)
    dispersion = None if process is None else process.dispersion
    if dispersion is None:
        dispersion = _estimate_dispersion(window)
    elif dispersion == 0:
        return _explain_unsteady_latencies(latencies, middle_s, correlated_requests)
    times, levels, spans = _trace_backlog(window)
    order = np.argsort(levels)
    # The median over time: the level below which the backlog was for half of the window.
    half = np.searchsorted(np.cumsum(spans[order]), spans.sum() / 2)
    median_level = int(levels[order][min(half, len(order) - 1)])
    above = levels > median_level
    falls = int((above[:-1] & ~above[1:]).sum())
    arrived = float(np.histogram(window.due, np.append(times, window.end))[0][above].sum()) if above.any() else 0.0
    if not arrived or falls >= NORMAL_95 * np.sqrt((1 + dispersion) * arrived):
        return None
    peaks = [int(part.max()) for part in np.array_split(levels, 4) if len(part)]
    if len(latencies) < MIN_FOR_SURPLUS and max(peaks[2:], default=0) <= max(peaks[:2]):
        return None  # few requests cannot show a surplus; at least the peak does not grow
    return (
        f"no sign that the backlog clears: at most {', '.join(map(str, peaks))} requests were waiting in the quarters "
        f"of the step, and it fell to its median {falls} times in {len(latencies)} requests"
    )


def _explain_unsteady_latencies(latencies: Floats, middle_s: float, correlated_requests: float) -> str | None:
    """Reason why latencies of evenly spaced arrivals reached no steady state; null if they did, or hardly vary.

    `latencies`: Seconds, whose median is `middle_s`. `correlated_requests`: Requests over which they move together.
    A backlog falls between any two such arrivals, so that only the latencies tell.
    """
    if len(latencies) >= MIN_INDEPENDENT * correlated_requests or np.ptp(latencies) <= MAX_STEADY_RANGE * middle_s:
        return None
    return (
        f"latencies still moved together over {correlated_requests:.0f} of {len(latencies)} requests: no steady state"
    )


def _trace_backlog(window: _Window) -> tuple[Floats, Floats, Floats]:
    """Moments at which the backlog changes, the backlog after each, and how long that lasted."""
    due = window.due[(window.due > window.begin) & (window.due <= window.end)]
    ended = window.ended[(window.ended > window.begin) & (window.ended <= window.end)]
    times = np.concatenate([[window.begin], due, ended])
    changes = np.concatenate([[window.waiting_at(window.begin)], np.ones(len(due)), -np.ones(len(ended))])
    order = np.argsort(times, kind="stable")
    times = times[order]
    return times, np.cumsum(changes[order]), np.diff(np.append(times, window.end))


def _estimate_dispersion(window: _Window) -> float:
    """Variance of the arrivals in twenty parts of the window, over their mean."""
    counts = np.histogram(window.due, np.linspace(window.begin, window.end, 21))[0]
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean else 1.0


def sample_backlog(requests: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Table `backlog`: offered, begun, ended and in flight over the time of each step, at forty moments.

    `requests`: `step, intended_s, sent_s, ended_s`. `steps`: `step`.

    >>> import polars as pl
    >>> requests = pl.DataFrame({"step": [0, 0], "intended_s": [0.0, 1.0], "sent_s": [0.0, 1.0], "ended_s": [2.0, 4.0]})
    >>> sample_backlog(requests, pl.DataFrame({"step": [0]})).row(20)
    (0, 2.051282051282051, 2, 2, 1, 1, 1)
    """
    rows = []
    for step in steps.iter_rows(named=True):
        sent = requests.filter(requests["step"] == step["step"])
        if not sent.height:
            continue
        due, begun, ended = (np.sort(sent[name].to_numpy()) for name in ("intended_s", "sent_s", "ended_s"))
        for moment in np.linspace(0.0, float(ended[-1]), N_SAMPLES):
            counts = [int(np.searchsorted(times, moment, side="right")) for times in (due, begun, ended)]
            rows.append([step["step"], float(moment), *counts, counts[1] - counts[2], counts[0] - counts[2]])
    names = [column.name for column in BACKLOG.columns]
    return BACKLOG.frame([dict(zip(names, row, strict=True)) for row in rows])


@dataclass(frozen=True)
class AnswerProfile:
    """Answers of the successes of one step.

    `lengths`: In `unit`: tokens where the service counts them, else bytes; empty when unknown.
    `texts`: How many answers have the same checksum, the most frequent first; empty when unknown.
    `fresh_p50_s`, `repeated_p50_s`: Median runtime of prompts sent for the first time and of repeated ones; null
    unless they differ clearly.
    """

    lengths: Floats
    unit: str | None
    texts: Counter[int]
    bytes_by_text: dict[int, int]
    fresh_p50_s: float | None = None
    repeated_p50_s: float | None = None

    @property
    def median(self) -> float | None:
        """Median length; null when unknown."""
        return float(np.median(self.lengths)) if len(self.lengths) else None


def profile_answers(counted: pl.DataFrame, sent: pl.DataFrame, again: pl.Series) -> AnswerProfile:
    """Profile of the kept successes; `again` says of all requests sent whether their prompt was sent before.

    `sent`, `counted`: Requests of a step, all and those after warm-up, with the columns of table REQUESTS.
    """
    successes = counted.filter(counted["outcome"] == "ok")
    unit = next((unit for unit in ("tokens", "bytes") if _has_unit(successes, unit)), None)
    lengths = successes[_COLUMNS[unit]].drop_nulls().to_numpy().astype(np.float64) if unit else np.empty(0)
    pairs = successes.select("answer_hash", "answer_bytes").drop_nulls().rows()
    fresh, repeated = _compare_repeated(sent, again)
    return AnswerProfile(lengths, unit, Counter(text for text, _ in pairs), dict(pairs), fresh, repeated)


def _has_unit(successes: pl.DataFrame, unit: str) -> bool:
    return successes.height > 0 and successes[_COLUMNS[unit]].null_count() <= 0.1 * successes.height


def _compare_repeated(sent: pl.DataFrame, again: pl.Series) -> tuple[float | None, float | None]:
    """Median seconds of first and of repeated prompts; null unless the repeated ones are clearly faster (rank test).

    `sent`: Requests of a step. `again`: For each, whether its prompt was sent before.
    """
    is_success = (sent["outcome"] == "ok") & ~sent["tail"]
    fresh = sent.filter(is_success & ~again)["runtime_s"].drop_nulls().to_numpy()
    repeated = sent.filter(is_success & again)["runtime_s"].drop_nulls().to_numpy()
    if min(len(fresh), len(repeated)) < MIN_COMPARED:
        return None, None
    before, after = float(np.median(fresh)), float(np.median(repeated))
    if after >= CACHE_FACTOR * before:
        return None, None
    return (before, after) if rank_difference_z(repeated, fresh) > N_STANDARD_ERRORS else (None, None)


def find_other_answers(
    table: pl.DataFrame, profiles: dict[int, AnswerProfile], max_ratio: float
) -> dict[int, tuple[str, str | None]]:
    """Steps whose answers are not those of the lowest load: much shorter or longer, or one text again and again.

    `table`: Table POINTS. `profiles`: Answers of each step. Returns: New verdict and reason by step.
    """
    differences: dict[int, tuple[str, str | None]] = {}
    for gpus in table["gpus"].unique().to_list():
        rows = table.filter(table["gpus"] == gpus).sort("load", "step").select("step", "load", "verdict").rows()
        rows = [(step, load) for step, load, verdict in rows if verdict not in FAILING_VERDICTS]
        candidates = [(step, load) for step, load in rows if len(profiles[step].lengths) >= MIN_ANSWERS]
        if not candidates:
            continue
        lowest = profiles[candidates[0][0]]
        for step, _ in candidates[1:]:
            if text := describe_other_answers(profiles[step], lowest, max_ratio):
                differences[step] = ("other answers", f"{text} at the lowest load of {candidates[0][1]:g}")
    return differences


def describe_other_answers(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    """Describe how answers differ from those of the lowest load; null unless by more than `max_ratio` and chance."""
    return _find_other_length(profile, lowest, max_ratio) or _find_one_text(profile, lowest, max_ratio)


def _find_other_length(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    usual, here = lowest.median, profile.median
    if profile.unit != lowest.unit or not usual or here is None:
        return None
    if here * MAX_LENGTH_FACTOR < usual or here > MAX_LENGTH_FACTOR * usual:
        return f"answers of {here:.4g} {profile.unit} (median), {usual:.4g}"
    short = usual / MAX_LENGTH_FACTOR
    if _exceeds(profile.lengths < short, lowest.lengths < short, max_ratio):
        share, before = np.mean(profile.lengths < short), np.mean(lowest.lengths < short)
        return f"{share:.1%} of the answers are shorter than {short:.4g} {profile.unit}, {before:.1%}"
    long = usual * MAX_LENGTH_FACTOR
    if _exceeds(profile.lengths > long, lowest.lengths > long, MAX_LONG_EXCESS):
        share, before = np.mean(profile.lengths > long), np.mean(lowest.lengths > long)
        return f"{share:.1%} of the answers are longer than {long:.4g} {profile.unit}, {before:.1%}"
    return None


def _exceeds(here: Any, before: Any, allowed: float, n_errors: float = N_STANDARD_ERRORS) -> bool:
    """Whether a fraction grew by more than is allowed, and by more than a number of standard errors."""
    share, old = float(np.mean(here)), float(np.mean(before))
    error = np.sqrt(share * (1 - share) / len(here) + old * (1 - old) / len(before))
    return bool(share - old - n_errors * error > allowed)


def _find_one_text(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    n, before = profile.texts.total(), lowest.texts.total()
    if min(n, before) < MIN_ANSWERS:
        return None
    text, count = profile.texts.most_common(1)[0]
    old = lowest.texts[text]
    here, then = np.arange(n) < count, np.arange(before) < old
    # A text that never came at the lowest load needs less evidence than one that came more often.
    if not _exceeds(here, then, max_ratio, N_STANDARD_ERRORS if old else N_ERRORS_OF_NEW_TEXT):
        return None
    return f"{count / n:.1%} of the answers are one text of {profile.bytes_by_text[text]} bytes, {old / before:.1%}"


def find_cached_steps(
    table: pl.DataFrame, profiles: dict[int, AnswerProfile], min_repeated: float
) -> dict[int, tuple[str, str | None]]:
    """Steps with repeated prompts, where some step shows that those are answered faster than new ones.

    `table`: Table POINTS. `profiles`: Answers of each step. Returns: New verdict and reason by step.
    """
    shown = [
        profile
        for profile in profiles.values()
        if profile.fresh_p50_s is not None and profile.repeated_p50_s is not None
    ]
    if not shown:
        return {}
    clear = max(shown, key=lambda profile: (profile.fresh_p50_s or 0) / (profile.repeated_p50_s or 1))
    text = (
        f"of the prompts were sent before, and a cache answers those: median {clear.repeated_p50_s:.3g} s, new ones "
        f"{clear.fresh_p50_s:.3g} s; measure with more prompts, or --unique-prefix"
    )
    rows = table.select("step", "repeated_prompts").rows()
    return {step: ("cached", f"{share:.0%} {text}") for step, share in rows if share > min_repeated}
