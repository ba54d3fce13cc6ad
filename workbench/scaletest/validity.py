"""Do the figures mean what they say? Conditions of a run, each with what was found; a grave one makes it invalid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.scaletest.result_tables import VALIDITY

MOST_LATENESS_S = 0.05
LEAST_RATE = 0.98
MOST_LAG_S = 0.1
MOST_SKEW_HALF_S = 0.005
MOST_DISTANCE_S = 0.1
# A server ends each watch after some minutes, and it is opened again within milliseconds.
SHORT_GAP_S = 0.1
MOST_FAILED = 0.01
BUSY = 0.95


@dataclass(frozen=True)
class Run:
    """The tables of a run, by name of their declaration; and what stood in its journal and notes."""

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
    resumed_s: tuple[float, ...] = ()  # when later processes went on with the submission, after the start


def validity(run: Run) -> pl.DataFrame:
    """Every condition, with what was found and what may be.

    Returns
    -------
    DataFrame
        Table VALIDITY. Grave: a workload that the server accepted and nobody saw, a workload that was never sent, an
        aborted run, clocks that disagree. A warning: the submitter or the sampler was the slow part, requests failed,
        a watch was away (arrivals are upper bounds then), the clocks are far apart, submission was interrupted.
    """
    rows = [*_coverage(run), *_sending(run), *_watching(run), *_clocks(run), *_host(run)]
    return VALIDITY.frame(rows)


def reasons(table: pl.DataFrame) -> tuple[str, ...]:
    """Why the run is invalid; empty when it is valid."""
    broken = table.filter(~pl.col("holds") & pl.col("grave"))
    return tuple(f"{row['condition']}: {row['reason']}" for row in broken.iter_rows(named=True))


def warnings(table: pl.DataFrame) -> tuple[str, ...]:
    """What a reader must know although the run is valid."""
    broken = table.filter(~pl.col("holds") & ~pl.col("grave"))
    return tuple(f"{row['condition']}: {row['reason']}" for row in broken.iter_rows(named=True))


def _condition(
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


def _coverage(run: Run) -> list[dict[str, Any]]:
    accepted = run.submissions.filter(pl.col("status").is_in(["created", "known"]))
    seen = set(run.transitions.filter(pl.col("workload").is_not_null())["workload"].to_list())
    unseen = accepted.filter(~pl.col("name").is_in(list(seen))).height
    unsent = run.submissions.filter(pl.col("status") == "unsent").height
    failed = run.submissions.filter(pl.col("status") == "failed").height
    share = failed / max(1, run.submissions.height)
    return [
        _condition(
            "every workload that was accepted was seen",
            unseen,
            0,
            "workloads",
            f"{unseen} of {accepted.height} were not",
            holds=not unseen,
            grave=True,
        ),
        _condition(
            "every workload of the plan was sent",
            unsent,
            0,
            "workloads",
            f"{unsent} were not ({run.stopped or 'nobody knows why'})",
            holds=not unsent,
            grave=True,
        ),
        _condition(
            "hardly any workload was refused",
            share,
            MOST_FAILED,
            "share",
            f"{failed} were: {_first_reason(run.submissions)}",
            holds=share <= MOST_FAILED,
            grave=True,
        ),
        _condition(
            "nothing spoiled the run",
            len(run.spoiled),
            0,
            "notes",
            "; ".join(run.spoiled[:3]),
            holds=not run.spoiled,
            grave=True,
        ),
    ]


def _first_reason(submissions: pl.DataFrame) -> str:
    told = submissions.filter(pl.col("status") == "failed")["reason"].drop_nulls()
    return str(told[0])[:200] if len(told) else "no reason was told"


def _sending(run: Run) -> list[dict[str, Any]]:
    if run.imported or run.closed:
        return []
    overdue = _overdue(run)
    timely = run.submissions.filter(~overdue)
    late = timely.select((pl.col("sent_s") - pl.col("due_s")).drop_nulls().quantile(0.99)).item()
    span, took = _span(timely["due_s"]), _span(timely["sent_s"])
    rate = span / took if took > 0 and span > 0 else 1.0
    waited = int(overdue.sum())
    without = f"; {waited} that were due before the run was resumed are left out" if waited else ""
    rows = [
        _condition(
            "workloads were sent when they were due (p99)",
            late,
            MOST_LATENESS_S,
            "s",
            f"the submitter was late: its window or this machine was full{without}",
            holds=late is None or late <= MOST_LATENESS_S,
        ),
        _condition(
            "the rate that was asked for was reached (at least)",
            min(rate, 1.0),
            LEAST_RATE,
            "share",
            f"less was sent a second than planned{without}",
            holds=rate >= LEAST_RATE,
        ),
    ]
    if not waited:
        return rows
    reason = f"{waited} were due before the run was resumed, and sent then at once: their totals hold the interruption"
    return [*rows, _condition("submission was never interrupted", waited, 0, "workloads", reason, holds=False)]


def _overdue(run: Run) -> pl.Series:
    """Which workloads were due before a process went on with the run, and sent by it: no submitter was slow."""
    due, sent = pl.col("due_s"), pl.col("sent_s")
    late = pl.any_horizontal(pl.lit(value=False), *((due < at) & (sent >= at) for at in run.resumed_s))
    return run.submissions.select(late.fill_null(value=False).alias("overdue"))["overdue"]


def _span(times: pl.Series) -> float:
    """From the first to the last."""
    known = times.drop_nulls().to_list()
    return max(known) - min(known) if known else 0.0


def _watching(run: Run) -> list[dict[str, Any]]:
    if run.imported:
        return []
    lag = run.beats["lag_s"].drop_nulls()
    unseen = run.beats["lag_s"].null_count()
    worst = lag.quantile(0.99) if len(lag) else None
    return [
        _condition(
            "our own watch was quick (p99 of the heartbeat's lag)",
            worst,
            MOST_LAG_S,
            "s",
            "sampler-limited: arrivals are later than the changes" if worst is not None else "no heartbeat was seen",
            holds=worst is not None and worst <= MOST_LAG_S and unseen <= max(1, 0.05 * run.beats.height),
        ),
        _away(run.gaps),
    ]


def _away(gaps: pl.DataFrame) -> dict[str, Any]:
    """Times without a watch; not counted is one that was reopened at once and missed nothing."""
    lasted = pl.col("to_s") - pl.col("from_s")
    counted = gaps.filter((lasted > SHORT_GAP_S) | pl.col("relisted"))
    whole = float(counted.select(lasted.sum()).item())
    told = f"{counted.height} gap(s), {whole:.1f} s in all: times found afterwards are upper bounds"
    if counted["relisted"].any():
        told += "; what came and went meanwhile is not known"
    return _condition("the watches were never away", counted.height, 0, "gaps", told, holds=not counted.height)


def _clocks(run: Run) -> list[dict[str, Any]]:
    if run.imported:
        return []
    low, high = run.skew["low_s"].max(), run.skew["high_s"].min()
    if low is None or high is None:
        return [_condition("the clocks' distance is known", None, MOST_SKEW_HALF_S, "s", "not measured", holds=False)]
    widths = ((run.skew["high_s"] - run.skew["low_s"]) / 2).to_list()
    apart, distance, half = _distance(run.skew)
    agree = all(one >= 0 for one in widths)
    known = f"± {half:.2g} s" if max(widths) <= half else f"± {half:.2g} s, at times only to ± {max(widths):.2g} s"
    off = f"mixed steps are off by the clocks' distance, {distance:+.3g} s, which is known to {known}"
    return [
        _condition(
            "the servers agree about the time",
            min(widths),
            0,
            "s",
            "answers cannot come from one clock: several servers stand behind the address",
            holds=agree,
            grave=True,
        ),
        _condition(
            "the clocks' distance is known (half of its bounds)",
            max(widths),
            MOST_SKEW_HALF_S,
            "s",
            off,
            holds=max(widths) <= MOST_SKEW_HALF_S,
        ),
        _condition(
            "the clocks are close to each other (distance, at least)",
            apart,
            MOST_DISTANCE_S,
            "s",
            off,
            holds=apart <= MOST_DISTANCE_S,
        ),
    ]


def _distance(skew: pl.DataFrame) -> tuple[float, float, float]:
    """By how much the clocks are apart at least; the middle of these bounds, and half of their width.

    The narrowest bounds are taken, unless others show that the clocks were far apart for a time.
    """

    def apart(low: float, high: float) -> float:
        return max(low, -high, 0.0)

    def told(row: tuple[float, float]) -> tuple[float, float]:
        least = apart(*row)
        return least if least > MOST_DISTANCE_S else 0.0, row[0] - row[1]

    low, high = max(skew.select("low_s", "high_s").rows(), key=told)
    return apart(low, high), (low + high) / 2, (high - low) / 2


def _host(run: Run) -> list[dict[str, Any]]:
    busy = run.load["host_busy"].drop_nulls()
    if not len(busy):
        return []
    share = float((busy > BUSY).mean())  # type: ignore[arg-type]
    return [
        _condition(
            "this machine had room (share of seconds at full load)",
            share,
            0.05,
            "share",
            "what runs on this machine, also a local control plane, was slowed down by it",
            holds=share <= 0.05,
        )
    ]
