"""Assesses each step of a sweep: warm-up, quantiles, requests in flight, validity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.answer_profiles import AnswerProfile, profile_answers
from workbench.sizing.estimation.backlog import measure_backlog
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.estimation.point_verdicts import PointLimits as PointLimits
from workbench.sizing.estimation.point_verdicts import compare_points, decide_verdict, find_change_within
from workbench.sizing.estimation.server_bottleneck import summarize_server_metrics
from workbench.sizing.load.client_messages import LENGTH_REASON, STREAM_NOTES
from workbench.sizing.tables import FAILING_VERDICTS, OUTCOMES, POINTS, QUANTILES
from workbench.stats import quantiles, wilson_interval

BATCH_SIZE = 5
MAX_WARMUP_FRACTION = 0.25
"""Upper bound of the warm-up, as a fraction of the requests after each user's first one."""
MIN_NOTED_FRACTION = 0.05
N_WINDOW_PARTS = 10


def count_warmup_requests(runtimes: Floats, users: int) -> int:
    """Count the warm-up requests at the start of a step.

    One request per user is always dropped, because it meets a service that is filling up. MSER-5 then drops those of
    the remaining requests that increase the standard error of the mean.

    `runtimes`: Runtimes in the order the requests were sent, in s; infinite for failures.

    Returns: Number of requests to drop: at most one per user plus a quarter of the others.

    MSER runs on logarithms, so that single slow requests of a heavy tail do not move the cut. Failures count as the
    slowest success. The original rule allows a cut of up to one half. Here it is a quarter: the first request of each
    user already covers the filling, and the bound tells a running step how many requests it will keep. A drift that
    lasts to the end of the step is not detected; the cut then lies at a quarter.
    Source: White, An effective truncation heuristic for bias reduction in simulation output (1997), batches of 5.

    >>> count_warmup_requests(np.array([9.0] * 20 + [1.0, 1.1] * 40), users=0)
    20
    """
    first = min(users, len(runtimes))
    later = runtimes[first:]
    finite = later[np.isfinite(later)]
    if not len(finite):
        return first
    logs = np.log(np.maximum(np.minimum(later, finite.max()), 1e-9))
    return first + _mser_cut(logs)


def _mser_cut(values: Floats) -> int:
    """Number of first values to leave out as warm-up, by the MSER rule: least squared error of the remaining mean.

    `values`: Latencies in order of sending, averaged in batches of BATCH_SIZE. 0 with fewer than four batches.
    """
    batches = len(values) // BATCH_SIZE
    if batches < 4:
        return 0
    means = values[: batches * BATCH_SIZE].reshape(batches, BATCH_SIZE).mean(axis=1)
    # Sums from each cut to the end evaluate all cuts in one pass.
    n_left = np.arange(batches, 0, -1)
    total, squares = np.cumsum(means[::-1])[::-1], np.cumsum((means**2)[::-1])[::-1]
    scores = (squares - total**2 / n_left) / n_left**2
    return int(np.argmin(scores[: int(batches * MAX_WARMUP_FRACTION) + 1])) * BATCH_SIZE


def measure_flow(sent: pl.DataFrame, counted: pl.DataFrame) -> dict[str, Any]:
    """Measure mean requests in flight and in service, throughput, and tokens per second.

    Returns: `in_flight` measured by the client, `rate_per_s`, `server_in_service` with its 90 % interval (null unless
    every successful request has a server runtime), `tokens_per_s` that users get (null where counts are missing).

    The window reaches from the first to the last kept send time, which excludes filling and draining. By Little's law,
    the number of requests in service is throughput times server runtime; it is computed as the mean overlap of
    requests with the window. Requests are aligned at their ends, because only durations of the server's clock are used.
    The interval is a t interval over ten parts of the window.

    `sent`: All requests of a step: `sent_s, ended_s, outcome, server_runtime_s`, and its tokens.
    `counted`: Those after warm-up.
    """
    nothing = {
        "in_flight": 0.0,
        "rate_per_s": 0.0,
        "tokens_per_s": None,
        **_estimate_in_service(None, None, None, 0, 0),
    }
    if counted.height < 2:
        return nothing
    begin, end = float(counted["sent_s"].min()), float(counted["sent_s"].max())  # type: ignore[arg-type]
    if end <= begin:
        return nothing
    starts, ends = sent["sent_s"].to_numpy(), sent["ended_s"].to_numpy()
    within = (ends >= begin) & (ends < end)
    # Tokens that users got; null where more than one success in twenty has no count, or none has.
    ended = sent.filter(within)
    is_ok = (ended["outcome"] == "ok").to_numpy()
    tokens = metrics.count_user_tokens(ended)[is_ok]
    n_known = int(np.isfinite(tokens).sum())
    if not n_known or len(tokens) - n_known > MIN_NOTED_FRACTION * len(tokens):
        tokens = None
    else:
        tokens = float(np.nanmean(tokens) * len(tokens))
    return {
        "in_flight": float(_mean_overlap(starts, ends, begin, end)),
        "rate_per_s": float(within.sum() / (end - begin)),
        "tokens_per_s": None if tokens is None else tokens / (end - begin),
        **_estimate_in_service(sent, starts, ends, begin, end),
    }


def _estimate_in_service(
    sent: pl.DataFrame | None, starts: Floats | None, ends: Floats | None, begin: float, end: float
) -> dict[str, float | None]:
    """Mean number of requests in service by the server's times, with its 90 % interval; null if times are unknown.

    `starts`, `ends`: Seconds of all requests in `sent`. `begin`, `end`: Window that is averaged over.
    """
    names = ("server_in_service", "server_in_service_low", "server_in_service_high")
    if sent is None or starts is None or ends is None:
        return dict.fromkeys(names)
    ok = sent["outcome"] == "ok"
    if not ok.any() or sent.filter(ok)["server_runtime_s"].null_count():
        return dict.fromkeys(names)
    from scipy.special import stdtrit

    # The server time of a failed request is unknown. Its whole duration is the conservative choice.
    spans = np.where(ok.to_numpy(), sent["server_runtime_s"].fill_null(0).to_numpy(), ends - starts)
    edges = np.linspace(begin, end, N_WINDOW_PARTS + 1)
    parts = np.array([_mean_overlap(ends - spans, ends, *edges[i : i + 2]) for i in range(N_WINDOW_PARTS)])
    half = float(stdtrit(N_WINDOW_PARTS - 1, 0.95) * parts.std(ddof=1) / np.sqrt(N_WINDOW_PARTS))
    mean = float(parts.mean())
    return dict(zip(names, (mean, mean - half, mean + half), strict=True))


def _mean_overlap(starts: Floats, ends: Floats, begin: float, end: float) -> float:
    """Mean number of spans that cover a point of the window.

    `starts`, `ends`: Seconds of each span.

    >>> float(_mean_overlap(np.array([0.0, 1.0]), np.array([2.0, 3.0]), 0.0, 4.0))
    1.0
    """
    return float(np.maximum(0.0, np.minimum(ends, end) - np.maximum(starts, begin)).sum() / (end - begin))


def select_kept_requests(requests: pl.DataFrame, users: int | None) -> pl.DataFrame:
    """Kept requests of one step, without warm-up and tail, in the order they were sent.

    `requests`: Table `requests` of one step. `users`: Of a closed loop; null for an open one.

    >>> import polars as pl
    >>> columns = {"request": range(300), "tail": [False] * 290 + [True] * 10, "outcome": "ok", "runtime_s": 1.0}
    >>> kept = select_kept_requests(pl.DataFrame(columns), 4)
    >>> int(kept["request"].min()), int(kept["request"].max())
    (4, 289)
    """
    main = requests.filter(~requests["tail"]).sort("request")
    runtimes = metrics.metric_values(main, metrics.DEFAULT_METRIC)[:, 0]
    if "turn" not in main.columns or not main["turn"].count():
        return main[count_warmup_requests(runtimes, users or 0) :]
    # With sessions each user's whole first one is dropped: contexts have their usual lengths only after it. In an open
    # loop they have them from the first request of a late turn on, one of the last tenth.
    turns = main["turn"]
    n_early = int((turns < turns.quantile(0.9, "higher")).arg_min() or 0) if users is None else 0
    return main[max(n_early, count_warmup_requests(runtimes, (users or 0) * int(str(turns.max())))) :]


def assess_steps(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    limits: PointLimits | None = None,
    qs: Sequence[float] = metrics.REPORTED_QUANTILES,
    server_metrics: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assess the steps of a sweep: kept requests, quantiles, validity.

    `limits`: Maximum error ratio and minimum number of samples of a valid point.
    `server_metrics`: Table `server_metrics` of the sweep; null without one.

    Returns: Tables `points` and `quantiles` of `workbench.sizing.tables`. Metrics without values in a step have no
    rows.

    The verdict is the first that applies, with its thresholds in `point_verdicts.decide_verdict`: a load worker was
    lost; interrupted or admission limit (too many failures); client-limited (client delays exceed 5 % of the p95 or of
    the limit, or a quarter of the distance up to the limit; a client process used 95 % of a core; fewer than 0.9 of the
    users were in flight); not sustained (an open loop that ended less than it was offered); server-limited (fewer than
    0.9 of the requests in flight are in service); unsteady or changed (latencies moved within the step); few samples;
    valid. What only a comparison of steps shows replaces "valid" and its like: other answers, cached, unsteady, drift,
    saturated. Estimates use the points whose verdict is among `tables.USABLE_VERDICTS`; few samples is one of them.
    """
    limits = limits or PointLimits()
    groups = {key[0]: frame for key, frame in requests.partition_by("step", as_dict=True).items()}
    # Per GPU count: each count is a separate deployment with its own caches.
    earlier: dict[int, pl.Series] = {}
    assessments = []
    samples = server_metrics if server_metrics is not None and server_metrics.height else None
    for step in steps.sort("step").iter_rows(named=True):
        sent, gpus = groups.get(step["step"], requests.clear()), step["gpus"]
        step_samples = None if samples is None else samples.filter(samples["step"] == step["step"])
        assessments.append(assess_step(sent, step, limits, qs, earlier.get(gpus), step_samples))
        items = sent["item"].unique()
        earlier[gpus] = items if gpus not in earlier else earlier[gpus].append(items).unique()
    points, table = combine_assessments(assessments, limits)
    return points, _widen_intervals(table, points, groups, steps)


def _widen_intervals(
    table: pl.DataFrame, points: pl.DataFrame, groups: dict[Any, pl.DataFrame], steps: pl.DataFrame
) -> pl.DataFrame:
    """Table QUANTILES in which intervals of open loops take the queue's correlation, where its capacity is known.

    A level shows too little of it: where no long wait fell into the level, neighbours look independent.

    `groups`: Requests of each step.
    """
    import polars as pl

    overloaded = points.filter(pl.col("verdict").is_in(FAILING_VERDICTS), pl.col("ended_per_s") > 0)
    capacities = dict(overloaded.group_by("gpus").agg(pl.col("ended_per_s").max()).iter_rows())
    rows = {row["step"]: row for row in steps.iter_rows(named=True)}
    widened = []
    for point in points.drop_nulls("offered_per_s").iter_rows(named=True):
        correlation = quantiles.estimate_queue_correlation(
            point["offered_per_s"], capacities.get(point["gpus"], np.inf)
        )
        if correlation > 1:
            step = rows[point["step"]]
            counted = select_kept_requests(groups[point["step"]], step["users"])
            qs = sorted(table["q"].unique())
            widened += _build_quantile_rows(counted, step, qs, correlation)
    if not widened:
        return table
    frame = QUANTILES.frame(widened)
    return pl.concat([table.join(frame, on=["step", "metric", "q"], how="anti"), frame]).sort(
        "step", maintain_order=True
    )


@dataclass(frozen=True)
class StepAssessment:
    """One step by itself: its row of `points`, its rows of `quantiles`, its answers."""

    point: dict[str, Any]
    quantiles: list[dict[str, Any]]
    answers: AnswerProfile


def assess_step(
    sent: pl.DataFrame,
    step: dict[str, Any],
    limits: PointLimits,
    qs: Sequence[float],
    earlier: pl.Series | None = None,
    samples: pl.DataFrame | None = None,
) -> StepAssessment:
    """Assess one step from its requests and its row of `steps`.

    `earlier` holds the items sent by earlier steps, `samples` the server's own metrics of this one.

    `sent`: The step's rows of table REQUESTS.
    """
    counted = select_kept_requests(sent, step["users"])
    quantile_rows = _build_quantile_rows(counted, step, sorted({*qs, metrics.DEFAULT_QUANTILE}))
    # Find, for each request of a step, whether its prompt was sent before, in this step or in an earlier one.
    first = sent.sort("request").unique("item", keep="first")["request"]
    again = ~sent["request"].is_in(first.implode())
    again = again if earlier is None else again | sent["item"].is_in(earlier.implode())
    answers = profile_answers(counted, sent, again)
    repeated = counted["request"].is_in(sent.filter(again)["request"].implode()).mean() if counted.height else 0.0
    extra = {
        "repeated_prompts": float(str(repeated)),
        "cached_share": _cached_fraction(counted),
        "session_turns": (turns := _session_turns(counted, step["users"])),
        "session_s": _session_length_s(counted, step, turns),
        "answer_p50": answers.median,
        "answer_unit": answers.unit,
        **_count_finish_reasons(counted),
        **_count_right_answers(sent),
        "ttft_known": _known_fraction(counted),
        "stream_note": _describe_streams(counted),
    }
    backlog = measure_backlog(sent, counted, step["arrivals"]) if step["loop"] == "open" else None
    names = ("offered_per_s", "begun_per_s", "ended_per_s", "ended_low_per_s", "ended_high_per_s")
    counts = ("first", "last", "peak")
    columns = {name: getattr(backlog, name, None) for name in names} | {
        f"backlog_{name}": getattr(backlog, name, None) for name in counts
    }
    point = _build_point(sent, counted, step) | extra | columns
    # First and last send time of the kept requests in seconds; an empty window if there is none.
    if not counted.height:
        window = float("inf"), float("-inf")
    else:
        window = float(str(counted["sent_s"].min())), float(str(counted["sent_s"].max()))
    point |= summarize_server_metrics(samples, *window, point["in_flight"])
    p95 = _runtime_quantiles(quantile_rows, metrics.DEFAULT_QUANTILE).get(step["step"])
    verdict, reason = decide_verdict(point, step, p95, limits, backlog, find_change_within(counted, step))
    return StepAssessment(
        point | {"verdict": verdict, "reason": reason}, [row for row in quantile_rows if row["q"] in qs], answers
    )


def combine_assessments(
    steps: Sequence[StepAssessment], limits: PointLimits | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Build the tables of `assess_steps` from single steps, and compare the steps with one another."""
    import polars as pl

    rows = [row for assessment in steps for row in assessment.quantiles]
    table = pl.DataFrame([assessment.point for assessment in steps], schema=POINTS.schema(), orient="row")
    profiles = {assessment.point["step"]: assessment.answers for assessment in steps}
    return POINTS.check(compare_points(table, rows, profiles, limits or PointLimits())), QUANTILES.frame(rows)


def _count_right_answers(sent: pl.DataFrame) -> dict[str, Any]:
    """Right answers among those of a step's probes, warm-up and tail too; null without probes."""
    right: list[bool] = sent["right"].drop_nulls().to_list() if "right" in sent.columns else []
    if not right:
        return dict.fromkeys(("n_probed", "right_share", "right_low", "right_high"))
    share = sum(right) / len(right)
    low, high = wilson_interval(share, len(right))
    return {"n_probed": len(right), "right_share": share, "right_low": low, "right_high": high}


def _known_fraction(counted: pl.DataFrame) -> float | None:
    """Fraction of the successes whose time to first token is known; null without successes."""
    successes = counted.filter(counted["outcome"] == "ok")
    n_known = successes["ttft_s"].count()
    return n_known / successes.height if n_known else None


def _count_finish_reasons(counted: pl.DataFrame) -> dict[str, Any]:
    """Why the answers of a step ended, and the fraction that was cut at its limit of tokens; null where none says.

    `counted`: Requests after warm-up.
    """
    reasons = Counter(counted.filter(counted["outcome"] == "ok")["finish_reason"].drop_nulls())
    listed = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    share = reasons[LENGTH_REASON] / reasons.total() if reasons else None
    return {"finish_reasons": listed or None, "length_share": share}


def _describe_streams(counted: pl.DataFrame) -> str | None:
    """Note on what a step's streams do not tell, if this concerns more than one success in twenty; null otherwise.

    `counted`: Requests after warm-up.
    """
    successes = counted.filter(counted["outcome"] == "ok")
    notes = []
    for note, text in STREAM_NOTES.items():
        those = successes.filter(successes["stream"] == note)
        if those.height > MIN_NOTED_FRACTION * successes.height:
            share = (
                ""
                if those.height == successes.height
                else f" (in {100 * those.height / successes.height:.0f} % of the answers)"
            )
            notes.append(text.format(n=those["event_tokens"].median() or 0) + share)
    return "; ".join(notes) or None


def step_load(step: dict[str, Any]) -> tuple[float, str]:
    """Load of a step and its unit: users, or arrivals per second."""
    return (float(step["users"]), "users") if step["loop"] == "closed" else (float(step["rate_per_s"]), "1/s")


def describe_time_scale(steps: pl.DataFrame) -> str:
    """What a simulator's time scale does to the figures of its steps (table STEPS); empty without one.

    >>> import polars as pl
    >>> describe_time_scale(pl.DataFrame({"time_scale": [None, 0.2, 0.2]}))
    'the simulator ran at 0.2 of its times: goals, rates and costs are of that scaled service'
    """
    known = steps["time_scale"].drop_nulls().unique().sort().to_list()
    if not known:
        return ""
    scales = ", ".join(f"{scale:g}" for scale in known)
    return f"the simulator ran at {scales} of its times: goals, rates and costs are of that scaled service"


def name_load_unit(load_unit: str) -> str:
    """The unit of a load in words.

    >>> name_load_unit("users"), name_load_unit("1/s")
    ('users', 'requests a second')
    """
    return "users" if load_unit == "users" else "requests a second"


def _build_point(sent: pl.DataFrame, counted: pl.DataFrame, step: dict[str, Any]) -> dict[str, Any]:
    """Row of table POINTS for a step, without its verdict.

    `sent` are all its requests, `counted` those after warm-up.
    """
    load, unit = step_load(step)
    outcomes = counted["outcome"].to_list()
    window = measure_flow(sent, counted)
    n, n_ok = counted.height, outcomes.count("ok")
    shed = (counted["status"] == 429) | ((counted["status"] == 503) & counted["retry_after_s"].is_not_null())
    # Number of neighbouring requests that are correlated, by run time; `counted` are the requests after warm-up.
    if not counted.height:
        block_length = 1
    else:
        runtimes = metrics.metric_values(counted, metrics.DEFAULT_METRIC)
        block_length = quantiles.choose_block_length(runtimes, metrics.DEFAULT_QUANTILE)
    return {
        "step": step["step"],
        "load": load,
        "load_unit": unit,
        "gpus": step["gpus"],
        "n_requests": sent.height,
        "n_warmup": int((~sent["tail"]).sum()) - n,
        "n_kept": n,
        "n_ok": n_ok,
        **{f"n_{kind}": outcomes.count(kind) for kind in OUTCOMES[1:]},
        "n_shed": int(shed.fill_null(False).sum()),
        "n_retries": int(counted["retries"].sum()),
        "error_ratio": (n - n_ok) / n if n else 0.0,
        **window,
        "send_lag_p99_s": float(np.quantile(counted["sent_s"] - counted["intended_s"], 0.99)) if n else 0.0,
        "loop_lag_p99_s": step["loop_lag_p99_s"],
        "client_cpu_share": step["client_cpu_share"],
        "clock_gap_s": _median_or_none(counted["runtime_s"] - counted["server_runtime_s"]),
        "block": block_length,
    }


def _runtime_quantiles(rows: Sequence[dict[str, Any]], q: float) -> dict[int, float | None]:
    """Runtime quantile by step."""
    return {row["step"]: row["value_s"] for row in rows if row["metric"] == metrics.DEFAULT_METRIC and row["q"] == q}


def _build_quantile_rows(
    counted: pl.DataFrame, step: dict[str, Any], qs: Sequence[float], min_correlation_time: float = 1.0
) -> list[dict[str, Any]]:
    """Rows of table QUANTILES for a step: each known metric at each of `qs`.

    `counted` are the requests after warm-up.
    """
    rows = []
    for metric in metrics.METRICS:
        values = metrics.metric_values(counted, metric)
        if not np.isfinite(values).any() and metric != metrics.DEFAULT_METRIC:
            continue
        for q in qs:
            quantile = quantiles.estimate_quantile(values, q, min_correlation_time=min_correlation_time)
            failed = bool(np.isinf(quantile.value))
            limit = f"> timeout of {step['timeout_s']:g} s" if failed and step["timeout_s"] else None
            rows.append(
                {
                    "step": step["step"],
                    "load": step_load(step)[0],
                    "metric": metric,
                    "q": q,
                    "n": quantile.n,
                    "value_s": _finite_or_none(quantile.value),
                    "low_s": _finite_or_none(quantile.low),
                    "high_s": _finite_or_none(quantile.high),
                    "ok_only_s": _finite_or_none(quantile.ok_only),
                    "note": limit or ("falls among failures" if failed else None),
                }
            )
    return rows


def mean_session_turns(requests: pl.DataFrame) -> float | None:
    """Mean number of turns of a session: requests for each that began one; null without sessions.

    `requests`: Column turn, of table `requests`; those after the warm-up, in which long sessions are as frequent as
    they should be.
    """
    turns = requests["turn"] if "turn" in requests.columns else None
    n_begun = 0 if turns is None else int((turns == 1).sum())
    return requests.height / n_begun if n_begun else None


def _session_turns(counted: pl.DataFrame, users: int | None) -> float | None:
    """Turns of a session: in a closed loop without failures all have as many, else as they are on average."""
    if users is None or "turn" not in counted.columns or not (counted["outcome"] == "ok").all():
        return mean_session_turns(counted)
    most = counted["turn"].max()
    return None if most is None else float(str(most))


def _session_length_s(counted: pl.DataFrame, step: dict[str, Any], turns: float | None) -> float | None:
    """Mean length of a session of users: turns, each with its think time and its answer; null without sessions."""
    answer_s = counted.filter(counted["outcome"] == "ok")["runtime_s"].mean()
    if step["loop"] != "closed" or turns is None or answer_s is None:
        return None
    return turns * (float(step["think_s"]) + float(str(answer_s)))


def _cached_fraction(counted: pl.DataFrame) -> float | None:
    """Fraction of the prompt tokens that came from a prefix cache, over the requests of which both are known."""
    if "cached_tokens" not in counted.columns:
        return None
    known = counted.select("cached_tokens", "input_tokens").drop_nulls()
    n_prompt = int(known["input_tokens"].sum())
    return int(known["cached_tokens"].sum()) / n_prompt if n_prompt else None


def _median_or_none(values: pl.Series) -> float | None:
    middle = values.drop_nulls().median()
    return None if middle is None else float(middle)  # type: ignore[arg-type]


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
