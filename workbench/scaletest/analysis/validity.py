"""Validity of a run: conditions for trusting its figures, each with what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.scaletest.tables import VALIDITY

MAX_LATENESS_S = 0.05
MIN_RATE = 0.98
MAX_LAG_S = 0.1
MAX_SKEW_HALF_S = 0.005
MAX_DISTANCE_S = 0.1
# Servers end each watch after some minutes; it is reopened within milliseconds.
SHORT_GAP_S = 0.1
MAX_FAILED_FRACTION = 0.01
# A second counts as saturated above the first; so many seconds may be.
BUSY_FRACTION = 0.95
MAX_BUSY_FRACTION = 0.05


@dataclass(frozen=True)
class RunTables:
    """The tables of a run by name, and what its journal and notes say."""

    schedule: pl.DataFrame
    submissions: pl.DataFrame
    transitions: pl.DataFrame
    steps: pl.DataFrame
    gaps: pl.DataFrame
    beats: pl.DataFrame
    skew: pl.DataFrame
    load: pl.DataFrame
    stopped: str | None
    spoiled: tuple[str, ...]
    closed: bool = False
    imported: bool = False
    resumed_s: tuple[float, ...] = ()  # seconds after the start at which the submission was resumed


def build_validity_table(run: RunTables) -> pl.DataFrame:
    """Every condition with the value that was found and its limit.

    Returns
    -------
    DataFrame
        Table VALIDITY. Grave, so that the run is invalid: accepted workloads that were never seen, workloads that were
        never sent or failed, an aborted run, servers that disagree about the time. Warnings: the submitter or the
        sampler was slow, a watch was away (arrivals are upper bounds then), the clock offset is large or not well
        known, the submission was interrupted, this machine was saturated.
    """
    rows = [
        *_check_coverage(run),
        *_check_submission(run),
        *_check_watches(run),
        *_check_clocks(run),
        *_check_host(run),
    ]
    return VALIDITY.frame(rows)


def list_reasons(table: pl.DataFrame) -> tuple[str, ...]:
    """Why the run is invalid; empty if it is valid."""
    return tuple(table.filter(~pl.col("holds") & pl.col("grave"))["reason"])


def list_warnings(table: pl.DataFrame) -> tuple[str, ...]:
    """What qualifies the figures of a valid run."""
    return tuple(table.filter(~pl.col("holds") & ~pl.col("grave"))["reason"])


def _build_condition(
    condition: str,
    found: float | None,
    allowed: float | None,
    unit: str,
    reason: str,
    *,
    holds: bool,
    grave: bool = False,
) -> dict[str, Any]:
    row = {"condition": condition, "found": found, "allowed": allowed, "unit": unit, "holds": holds, "grave": grave}
    return row | {"reason": None if holds else reason}


def _check_coverage(run: RunTables) -> list[dict[str, Any]]:
    accepted = run.submissions.filter(pl.col("status").is_in(["created", "known"]))
    seen = set(run.transitions.filter(pl.col("workload").is_not_null())["workload"].to_list())
    unseen = accepted.filter(~pl.col("name").is_in(list(seen))).height
    unsent = run.submissions.filter(pl.col("status") == "unsent").height
    failed = run.submissions.filter(pl.col("status") == "failed").height
    share = failed / max(1, run.submissions.height)
    return [
        _build_condition(
            "every workload that was accepted was seen",
            unseen,
            0,
            "workloads",
            f"{unseen} of {accepted.height} accepted workloads were never seen",
            holds=not unseen,
            grave=True,
        ),
        _build_condition(
            "every workload of the plan was sent",
            unsent,
            0,
            "workloads",
            f"{unsent} workloads were not sent ({run.stopped or 'reason unknown'})",
            holds=not unsent,
            grave=True,
        ),
        _build_condition(
            "hardly any workload was refused",
            share,
            MAX_FAILED_FRACTION,
            "share",
            f"{failed} workloads were refused: {_find_first_reason(run.submissions)}",
            holds=share <= MAX_FAILED_FRACTION,
            grave=True,
        ),
        _build_condition(
            "nothing spoiled the run",
            len(run.spoiled),
            0,
            "notes",
            "; ".join(run.spoiled[:3]),
            holds=not run.spoiled,
            grave=True,
        ),
    ]


def _find_first_reason(submissions: pl.DataFrame) -> str:
    told = submissions.filter(pl.col("status") == "failed")["reason"].drop_nulls()
    return str(told[0])[:200] if len(told) else "no reason given"


def _check_submission(run: RunTables) -> list[dict[str, Any]]:
    if run.imported or run.closed:
        return []
    overdue = _find_overdue_workloads(run)
    timely = run.submissions.filter(~overdue)
    late = timely.select((pl.col("sent_s") - pl.col("due_s")).drop_nulls().quantile(0.99)).item()
    span, took = _time_span(timely["due_s"]), _time_span(timely["sent_s"])
    rate = span / took if took > 0 and span > 0 else 1.0
    waited = int(overdue.sum())
    without = f"; {waited} workloads due before the run was resumed are left out" if waited else ""
    rows = [
        _build_condition(
            "workloads were sent when they were due (p99)",
            late,
            MAX_LATENESS_S,
            "s",
            f"workloads were sent late (p99 {late or 0:.2g} s, limit {MAX_LATENESS_S:g} s): "
            f"the request window or this machine was full{without}",
            holds=late is None or late <= MAX_LATENESS_S,
        ),
        _build_condition(
            "the rate that was asked for was reached (at least)",
            min(rate, 1.0),
            MIN_RATE,
            "share",
            f"only {100 * rate:.3g} % of the planned rate was reached (minimum {100 * MIN_RATE:g} %){without}",
            holds=rate >= MIN_RATE,
        ),
    ]
    if not waited:
        return rows
    reason = (
        f"submission was interrupted: the totals of {waited} workloads due before the resume include the interruption"
    )
    return [*rows, _build_condition("submission was never interrupted", waited, 0, "workloads", reason, holds=False)]


def _find_overdue_workloads(run: RunTables) -> pl.Series:
    """Workloads that were due before a resume and sent after it; their lateness is not the submitter's."""
    due, sent = pl.col("due_s"), pl.col("sent_s")
    late = pl.any_horizontal(pl.lit(value=False), *((due < at) & (sent >= at) for at in run.resumed_s))
    return run.submissions.select(late.fill_null(value=False).alias("overdue"))["overdue"]


def _time_span(times: pl.Series) -> float:
    """From the first to the last."""
    known = times.drop_nulls().to_list()
    return max(known) - min(known) if known else 0.0


def _check_watches(run: RunTables) -> list[dict[str, Any]]:
    if run.imported:
        return []
    lag = run.beats["lag_s"].drop_nulls()
    unseen = run.beats["lag_s"].null_count()
    worst = lag.quantile(0.99) if len(lag) else None
    return [
        _build_condition(
            "our own watch was quick (p99 of the heartbeat's lag)",
            worst,
            MAX_LAG_S,
            "s",
            _explain_watch_lag(worst, unseen, run.beats.height),
            holds=worst is not None and worst <= MAX_LAG_S and unseen <= max(1, 0.05 * run.beats.height),
        ),
        _check_gaps(run.gaps),
    ]


def _explain_watch_lag(worst: float | None, unseen: int, beats: int) -> str:
    if worst is None:
        return "no heartbeat was seen, so the watch's lag is unknown"
    if worst > MAX_LAG_S:
        return f"the watch was slow (p99 lag {worst:.2g} s, limit {MAX_LAG_S:g} s): arrivals are later than the changes"
    return f"{unseen} of {beats} heartbeats were never seen, so the watch's lag is only partly known"


def _check_gaps(gaps: pl.DataFrame) -> dict[str, Any]:
    """Times without a watch; one that was reopened immediately and missed nothing does not count."""
    lasted = pl.col("to_s") - pl.col("from_s")
    counted = gaps.filter((lasted > SHORT_GAP_S) | pl.col("relisted"))
    whole = float(counted.select(lasted.sum()).item())
    reason = f"a watch was away {counted.height} time(s), {whole:.1f} s in all: times found afterwards are upper bounds"
    if counted["relisted"].any():
        reason += "; objects that came and went meanwhile are unknown"
    return _build_condition("the watches were never away", counted.height, 0, "gaps", reason, holds=not counted.height)


def _check_clocks(run: RunTables) -> list[dict[str, Any]]:
    if run.imported:
        return []
    low, high = run.skew["low_s"].max(), run.skew["high_s"].min()
    if low is None or high is None:
        return [
            _build_condition(
                "the clocks' distance is known",
                None,
                MAX_SKEW_HALF_S,
                "s",
                "the clock offset was not measured",
                holds=False,
            )
        ]
    widths = ((run.skew["high_s"] - run.skew["low_s"]) / 2).to_list()
    apart, distance, half = _clock_distance(run.skew)
    agree = all(one >= 0 for one in widths)
    known = f"± {half:.2g} s" if max(widths) <= half else f"± {half:.2g} s, at times only to ± {max(widths):.2g} s"
    off = f"steps between two clocks are off by the clock offset, {distance:+.3g} s, known to {known}"
    return [
        _build_condition(
            "the servers agree about the time",
            min(widths),
            0,
            "s",
            "the servers disagree about the time: several stand behind the address",
            holds=agree,
            grave=True,
        ),
        _build_condition(
            "the clocks' distance is known (half of its bounds)",
            max(widths),
            MAX_SKEW_HALF_S,
            "s",
            off,
            holds=max(widths) <= MAX_SKEW_HALF_S,
        ),
        _build_condition(
            "the clocks are close to each other (distance, at least)",
            apart,
            MAX_DISTANCE_S,
            "s",
            off,
            holds=apart <= MAX_DISTANCE_S,
        ),
    ]


def _clock_distance(skew: pl.DataFrame) -> tuple[float, float, float]:
    """Least distance of the clocks, the middle of the bounds it comes from, and half of their width.

    The narrowest bounds are used, unless others show that the clocks were far apart for a time.
    """

    def distance_between(low: float, high: float) -> float:
        return max(low, -high, 0.0)

    def rank_bounds(row: tuple[float, float]) -> tuple[float, float]:
        least = distance_between(*row)
        return least if least > MAX_DISTANCE_S else 0.0, row[0] - row[1]

    low, high = max(skew.select("low_s", "high_s").rows(), key=rank_bounds)
    return distance_between(low, high), (low + high) / 2, (high - low) / 2


def _check_host(run: RunTables) -> list[dict[str, Any]]:
    busy = run.load["host_busy"].drop_nulls()
    if not len(busy):
        return []
    share = float((busy > BUSY_FRACTION).mean())  # type: ignore[arg-type]
    return [
        _build_condition(
            "this machine had room (share of seconds at full load)",
            share,
            MAX_BUSY_FRACTION,
            "share",
            f"this machine's CPU was saturated in {100 * share:.0f} % of the seconds "
            f"(limit {100 * MAX_BUSY_FRACTION:g} %); times include that delay",
            holds=share <= MAX_BUSY_FRACTION,
        )
    ]
