"""Validity of a run: conditions for trusting its figures, each with what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.formats import format_items
from workbench.scaletest.analysis.bottlenecks import describe_stop
from workbench.scaletest.analysis.disruptions import Disruptions, NodeLosses
from workbench.scaletest.analysis.imported_clocks import find_clock_fault
from workbench.scaletest.analysis.queue_simulation import MAX_EXCESS_FRACTION, TraceFidelity
from workbench.scaletest.analysis.room_limits import ForeignRoom
from workbench.scaletest.analysis.server_pressure import count_throttled, describe_throttling
from workbench.scaletest.analysis.stage_waits import Pause
from workbench.scaletest.tables import VALIDITY

MAX_LATENESS_S = 0.05
MIN_RATE = 0.98
MAX_USABLE_LAG_S = 1.0
MAX_LAG_S = 0.1
MAX_SKEW_HALF_S = 0.005
MAX_DISTANCE_S = 0.1
# Servers end each watch after some minutes; it is reopened within milliseconds.
SHORT_GAP_S = 0.1
MAX_FAILED_FRACTION = 0.01
# A second counts as saturated above the first; so many seconds may be.
BUSY_FRACTION = 0.95
MAX_BUSY_FRACTION = 0.05
# Of a saturated machine's time: what client and sampler, and what strangers may have had.
MAX_CLIENT_FRACTION, MAX_OTHERS_FRACTION = 0.5, 0.2
MAX_THROTTLED_FRACTION = 0.01
MAX_LOST_FRACTION = 0.05
MAX_STOPPED_FRACTION = 0.05
MAX_FOREIGN_FRACTION = 0.05
MAX_LOST_PODS_FRACTION = 0.05


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
    unfinished: pl.DataFrame | None = None
    impossible: tuple[int, int] = (0, 0)  # steps that end before they begin, of so many
    replay: TraceFidelity | None = None
    stops: tuple[Pause, ...] = ()
    node_losses: NodeLosses | None = None
    disruptions: Disruptions | None = None
    others: ForeignRoom | None = None
    beside_others: bool = False


def build_validity_table(run: RunTables) -> pl.DataFrame:
    """Build a table of every condition with the value that was found and its limit.

    Returns: Table VALIDITY. Grave, so that the run is invalid: accepted workloads that were never seen, workloads
    that were never sent or failed, an aborted run, servers that disagree about the time, a stage that passed nothing
    while work waited, nodes that took no pods for a part of the run, more than a few pods that were lost, room that
    others held (unless the run was to be beside them), a saturated machine whose time client and sampler, or
    strangers, had beyond their allowance. Warnings: the submitter or the sampler was slow, the server throttled, a
    watch was away (arrivals are upper bounds then), the clock offset is large or not well known, the submission was
    interrupted, this machine was saturated by the measured components themselves.
    """
    rows = [
        *_check_silence(run),
        *_check_stops(run),
        *_check_others(run),
        *_check_nodes(run),
        *_check_losses(run.disruptions),
        *_check_order(run),
        *_check_replay(run.replay),
        *_check_coverage(run),
        *_check_submission(run),
        *_check_watches(run),
        *_check_clocks(run),
        *_check_host(run),
    ]
    return VALIDITY.frame(rows)


def list_reasons(table: pl.DataFrame) -> tuple[str, ...]:
    """List the reasons why the run is invalid; empty if it is valid. `table`: Table VALIDITY.

    >>> list_reasons(pl.DataFrame({"holds": [True, False], "grave": [True, True], "reason": [None, "pods were lost"]}))
    ('pods were lost',)
    """
    return tuple(table.filter(~pl.col("holds") & pl.col("grave"))["reason"].drop_nulls())


def list_warnings(table: pl.DataFrame) -> tuple[str, ...]:
    """List the warnings that qualify the figures of a valid run. `table`: Table VALIDITY.

    >>> list_warnings(pl.DataFrame({"holds": [True, False], "grave": [True, False], "reason": [None, "sent late"]}))
    ('sent late',)
    """
    return tuple(table.filter(~pl.col("holds") & ~pl.col("grave"))["reason"].drop_nulls())


def _build_condition(
    condition: str,
    figure: float | None,
    allowed: float | None,
    unit: str,
    reason: str | None,
    *,
    holds: bool,
    grave: bool = False,
) -> dict[str, Any]:
    """Row of table VALIDITY: the value found, the value allowed, and the reason if the condition does not hold.

    `reason`: Null where another row's says it.
    """
    row = {"condition": condition, "found": figure, "allowed": allowed, "unit": unit, "holds": holds, "grave": grave}
    return row | {"reason": None if holds else reason}


def _check_silence(run: RunTables) -> list[dict[str, Any]]:
    """Check that no stage passed nothing, or nothing more, while work waited."""
    if run.imported or run.unfinished is None:
        return []
    silent = run.unfinished.filter(pl.col("silent"))
    reason = "; ".join(silent["sentence"].to_list())
    named = "stages that passed nothing while work waited"
    return [_build_condition(named, silent.height, 0, "stages", reason, holds=not silent.height, grave=True)]


def _check_stops(run: RunTables) -> list[dict[str, Any]]:
    """Check that no stage stood still while work waited, and then went on."""
    if run.imported:
        return []
    last_s = float(run.schedule["due_s"].max() or 0.0)  # type: ignore[arg-type]
    share = sum(stop.end_s - stop.begin_s for stop in run.stops) / max(last_s, 1e-3)
    reason = "; ".join(describe_stop(stop) for stop in run.stops)
    named = "time in which a stage stood still (share)"
    holds = share <= MAX_STOPPED_FRACTION
    return [_build_condition(named, share, MAX_STOPPED_FRACTION, "share", reason, holds=holds, grave=True)]


def _check_others(run: RunTables) -> list[dict[str, Any]]:
    """Check that others held next to none of what the run's pods ask for, unless the run was to be beside them."""
    if run.imported:
        return []
    share = 0.0 if run.others is None else run.others.fraction
    reason = (
        "" if run.others is None else f"{run.others.sentence}: repeat it alone, or accept that with --beside-others"
    )
    named = "room that others held (share)"
    holds = share <= MAX_FOREIGN_FRACTION or run.beside_others
    return [_build_condition(named, share, MAX_FOREIGN_FRACTION, "share", reason, holds=holds, grave=True)]


def _check_nodes(run: RunTables) -> list[dict[str, Any]]:
    """Check that all nodes existed for the whole run; otherwise its figures belong to no one cluster."""
    if run.imported:
        return []
    losses = run.node_losses
    share = 0.0 if losses is None or losses.from_the_start else losses.lost_fraction
    reason = (
        "" if losses is None else f"{losses.sentence}: the cluster changed, so the figures describe no single cluster"
    )
    named = "time of the nodes in which they took no pods (share)"
    holds = share <= MAX_LOST_FRACTION
    return [_build_condition(named, share, MAX_LOST_FRACTION, "share", reason, holds=holds, grave=True)]


def _check_losses(disruptions: Disruptions | None) -> list[dict[str, Any]]:
    """Check that no pods were lost: a rate that counts their replacements is not that of the plan."""
    if disruptions is None:
        return []
    share, named = disruptions.lost_fraction, "pods that failed, were deleted or were evicted (share)"
    holds = disruptions.planned or share <= MAX_LOST_PODS_FRACTION
    reason = f"{disruptions.sentence}: rates and waits are also those of pods that were lost"
    return [_build_condition(named, share, MAX_LOST_PODS_FRACTION, "share", reason, holds=holds, grave=True)]


def _check_order(run: RunTables) -> list[dict[str, Any]]:
    """Check imported runs for impossible times, and name the clock that they are due to."""
    if not run.imported:
        return []
    lost, steps = run.impossible
    fault = find_clock_fault(run.submissions)
    cause = fault.sentence if fault is not None else "their ends are of one clock, so an object was made again"
    reason = f"{lost:,} of {steps:,} steps end before they begin and are excluded: {cause}" if lost else cause
    distorts = fault is not None and fault.distorts
    named, holds = "steps that end before they begin", not lost and fault is None
    return [_build_condition(named, lost, 0, "steps", reason, holds=holds, grave=distorts)]


def _check_replay(replay: TraceFidelity | None) -> list[dict[str, Any]]:
    """Check a trace whose time was compressed: what the control plane adds to a job must be a small part of it."""
    if replay is None or replay.speed <= 1 or replay.excess_fraction is None:
        return []
    share = replay.excess_fraction
    named = "what the control plane adds to the median job of the trace (share)"
    holds = share <= MAX_EXCESS_FRACTION
    return [_build_condition(named, share, MAX_EXCESS_FRACTION, "share", replay.reason, holds=holds, grave=True)]


def _check_coverage(run: RunTables) -> list[dict[str, Any]]:
    """Check that every workload of the plan was sent, taken and seen."""
    accepted = run.submissions.filter(pl.col("status").is_in(["created", "known"]))
    seen = set(run.transitions.filter(pl.col("workload").is_not_null())["workload"].to_list())
    unseen = accepted.filter(~pl.col("name").is_in(list(seen))).height
    unsent = run.submissions.filter(pl.col("status") == "unsent").height
    failed = run.submissions.filter(pl.col("status") == "failed").height
    share = failed / max(1, run.submissions.height)
    return [
        _build_condition(
            "accepted workloads that were never seen",
            unseen,
            0,
            "workloads",
            f"{unseen} of {accepted.height} accepted workloads were never seen",
            holds=not unseen,
            grave=True,
        ),
        _build_condition(
            "workloads of the plan that were not sent",
            unsent,
            0,
            "workloads",
            f"{unsent} workloads were not sent ({run.stopped or 'reason unknown'})",
            holds=not unsent,
            grave=True,
        ),
        _build_condition(
            "workloads that were refused (share)",
            share,
            MAX_FAILED_FRACTION,
            "share",
            f"{failed} workloads were refused: {_find_first_reason(run.submissions)}",
            holds=share <= MAX_FAILED_FRACTION,
            grave=True,
        ),
        _build_condition(
            "events that spoiled the run",
            len(run.spoiled),
            0,
            "notes",
            "; ".join(run.spoiled[:3]),
            holds=not run.spoiled,
            grave=True,
        ),
    ]


def _find_first_reason(submissions: pl.DataFrame) -> str:
    reasons = submissions.filter(pl.col("status") == "failed")["reason"].drop_nulls()
    return str(reasons[0])[:200] if len(reasons) else "no reason given"


def _check_submission(run: RunTables) -> list[dict[str, Any]]:
    """Check lateness and rate of sending, and the server's throttling."""
    if run.imported or run.closed:
        return []
    # Workloads that were due before a resume and sent after it; their lateness is not the submitter's.
    due, sent = pl.col("due_s"), pl.col("sent_s")
    late = pl.any_horizontal(pl.lit(value=False), *((due < at) & (sent >= at) for at in run.resumed_s))
    overdue = run.submissions.select(late.fill_null(value=False).alias("overdue"))["overdue"]
    timely = run.submissions.filter(~overdue)
    late = timely.select((pl.col("sent_s") - pl.col("due_s")).drop_nulls().quantile(0.99)).item()
    span, took = _time_span(timely["due_s"]), _time_span(timely["sent_s"])
    rate = span / took if took > 0 and span > 0 else 1.0
    waited = int(overdue.sum())
    without = f"; {waited} workloads due before the run was resumed are excluded" if waited else ""
    throttling = describe_throttling(run.submissions)
    cause = f"the API server {throttling}" if throttling else "the request window or this machine was full"
    rows = [
        _check_throttling(run.submissions),
        _build_condition(
            "lateness of sending (p99)",
            late,
            MAX_LATENESS_S,
            "s",
            f"workloads were sent late (p99 {late or 0:.2g} s, limit {MAX_LATENESS_S:g} s): {cause}{without}",
            holds=late is None or late <= MAX_LATENESS_S,
        ),
        _build_condition(
            "planned rate that was reached (at least)",
            min(rate, 1.0),
            MIN_RATE,
            "share",
            f"only {100 * rate:.3g} % of the planned rate was reached (minimum {100 * MIN_RATE:g} %): {cause}{without}",
            holds=rate >= MIN_RATE,
        ),
    ]
    if not waited:
        return rows
    reason = (
        f"submission was interrupted: the totals of {waited} workloads due before the resume include the interruption"
    )
    return [
        *rows,
        _build_condition("workloads due while submission was interrupted", waited, 0, "workloads", reason, holds=False),
    ]


def _check_throttling(submissions: pl.DataFrame) -> dict[str, Any]:
    """Check that the server throttled few requests; `submissions`: `throttled, attempts, throttled_s`."""
    throttled, requests, _ = count_throttled(submissions)
    text = describe_throttling(submissions)
    share = throttled / max(1, requests)
    reason = f"the API server {text or 'throttled the client'}"
    named = "requests that the API server throttled (429, share)"
    return _build_condition(named, share, MAX_THROTTLED_FRACTION, "share", reason, holds=text is None)


def _time_span(times: pl.Series) -> float:
    """Return the time from the first to the last."""
    values = times.drop_nulls().to_list()
    return max(values) - min(values) if values else 0.0


def _check_watches(run: RunTables) -> list[dict[str, Any]]:
    """Check the lag of our own watch, and the times without one."""
    if run.imported:
        return []
    lag = run.beats["lag_s"].drop_nulls()
    unseen = run.beats["lag_s"].null_count()
    worst = lag.quantile(0.99) if len(lag) else None
    return [
        _build_condition(
            "lag of our own watch (p99 of the heartbeat)",
            worst,
            MAX_LAG_S,
            "s",
            _explain_watch_lag(worst, unseen, run.beats.height),
            holds=worst is not None and worst <= MAX_LAG_S and unseen <= max(1, 0.05 * run.beats.height),
        ),
        _build_condition(
            "our own watch kept up (p99 of the heartbeat)",
            worst,
            MAX_USABLE_LAG_S,
            "s",
            f"our own watch was {worst or 0.0:.2g} s late (p99 of the heartbeat): rates and times are the watch's, not "
            "the cluster's",
            holds=worst is None or worst <= MAX_USABLE_LAG_S,
            grave=True,
        ),
        _check_gaps(run.gaps),
    ]


def _explain_watch_lag(worst: float | None, unseen: int, beats: int) -> str:
    """Reason why the lag of the watch is too large or not known; used only where the condition does not hold.

    `worst`: p99 of the heartbeats in seconds, null if none was seen. `unseen`: Heartbeats never seen, out of `beats`.
    """
    if worst is None:
        return "no heartbeat was seen, so the watch's lag is unknown"
    if worst > MAX_LAG_S:
        return f"the watch was slow (p99 lag {worst:.2g} s, limit {MAX_LAG_S:g} s): arrivals are later than the changes"
    return f"{unseen} of {beats} heartbeats were never seen, so the watch's lag is only partly known"


def _check_gaps(gaps: pl.DataFrame) -> dict[str, Any]:
    """Check the times without a watch; one that was reopened immediately and missed nothing does not count.

    A server that was away takes all watches with it: times that overlap are one.

    `gaps`: `resource, from_s, to_s, relisted`.
    """
    lasted = pl.col("to_s") - pl.col("from_s")
    counted = gaps.filter((lasted > SHORT_GAP_S) | pl.col("relisted")).sort("from_s")
    spans: list[list[float]] = []
    for from_s, to_s in counted.select("from_s", "to_s").iter_rows():
        if spans and from_s <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], to_s)
        else:
            spans.append([from_s, to_s])
    times = format_items([f"{from_s:.1f} to {to_s:.1f} s" for from_s, to_s in spans], 3)
    watches = format_items(sorted(counted["resource"].unique()), 4)
    reason = f"no watch of {watches} from {times}: times found afterwards are upper bounds"
    if counted["relisted"].any():
        reason += "; objects that existed only in between are unknown"
    return _build_condition("times that a watch was away", len(spans), 0, "gaps", reason, holds=not spans)


def _check_clocks(run: RunTables) -> list[dict[str, Any]]:
    """Check that the offset between the client's and the servers' clocks is known and small.

    No rows for imported runs.
    """
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
    # Half of the width of each measurement's bounds; below zero where servers disagree.
    half_widths = ((run.skew["high_s"] - run.skew["low_s"]) / 2).to_list()
    least_offset_s, offset_s, half_width = _clock_distance(run.skew)
    precision = f"± {half_width:.2g} s"
    if max(half_widths) > half_width:
        precision += f", at times only to ± {max(half_widths):.2g} s"
    off = f"steps between two clocks are off by the clock offset, {offset_s:+.3g} s, known to {precision}"
    return [
        _build_condition(
            "agreement of the servers about the time (at least)",
            min(half_widths),
            0,
            "s",
            "the servers' clocks disagree: several servers share the address",
            holds=all(width >= 0 for width in half_widths),
            grave=True,
        ),
        _build_condition(
            "uncertainty of the clock offset (half of its bounds)",
            max(half_widths),
            MAX_SKEW_HALF_S,
            "s",
            off,
            holds=max(half_widths) <= MAX_SKEW_HALF_S,
        ),
        _build_condition(
            "clock offset (at least)",
            least_offset_s,
            MAX_DISTANCE_S,
            "s",
            off,
            holds=least_offset_s <= MAX_DISTANCE_S,
        ),
    ]


def _clock_distance(skew: pl.DataFrame) -> tuple[float, float, float]:
    """Smallest possible clock offset, the best estimate of the offset, and half of that estimate's bounds, in seconds.

    The offset lies between `low_s` and `high_s` of `skew`, so it is at least the distance of that interval from zero.
    The narrowest bounds are used, unless others show that the clocks were far apart for a time.
    """

    def distance_between(low: float, high: float) -> float:
        return max(low, -high, 0.0)

    def rank_bounds(row: tuple[float, float]) -> tuple[float, float]:
        least = distance_between(*row)
        return least if least > MAX_DISTANCE_S else 0.0, row[0] - row[1]

    low, high = max(skew.select("low_s", "high_s").rows(), key=rank_bounds)
    return distance_between(low, high), (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class MachineUse:
    """Shares of all cores, by user, in the seconds in which this machine was saturated; null if unknown."""

    saturated: float
    client: float | None
    side: float | None
    others: float | None

    @property
    def text(self) -> str:
        """Share of the seconds in which the machine was saturated, and who used its time, in words."""
        shares = [
            ("client and sampler", self.client),
            ("the measured components", self.side),
            ("strangers", self.others),
        ]
        booked = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share is not None)
        return f"this machine's CPU was saturated in {100 * self.saturated:.0f} % of the seconds" + (
            f" ({booked})" if booked else ""
        )


def measure_machine_use(load: pl.DataFrame) -> MachineUse | None:
    """Measure how busy this machine was, from table LOAD; null if it was not observed.

    `load`: `host_busy`, and the CPU shares `client, side, others`, each from 0 to 1.

    >>> load = pl.DataFrame({"host_busy": [0.2, 0.99], "client": [0.1, 0.3], "side": [0.1, 0.6], "others": [0.0, 0.1]})
    >>> measure_machine_use(load)
    MachineUse(saturated=0.5, client=0.3, side=0.6, others=0.1)
    """
    rows = load.filter(pl.col("host_busy").is_not_null())
    if not rows.height:
        return None
    full = rows.filter(pl.col("host_busy") > BUSY_FRACTION)
    shares = [full[name].mean() if full.height else None for name in ("client", "side", "others")]
    booked = [float(share) if isinstance(share, int | float) else None for share in shares]
    return MachineUse(full.height / rows.height, *booked)


def describe_saturation(load: pl.DataFrame) -> str | None:
    """Describe the saturation of this machine in a sentence; null while it had room.

    `load`: As for `measure_machine_use`.

    >>> load = pl.DataFrame({"host_busy": [0.2, 0.3], "client": [0.1, 0.3], "side": [0.1, 0.0], "others": [0.0, 0.0]})
    >>> describe_saturation(load) is None
    True
    """
    use = measure_machine_use(load)
    return use.text if use is not None and use.saturated > MAX_BUSY_FRACTION else None


def _check_host(run: RunTables) -> list[dict[str, Any]]:
    """Check whether this machine was saturated, and by which processes; one sentence says it, whatever it spoils."""
    use = measure_machine_use(run.load)
    if use is None:
        return []
    saturated = use.saturated > MAX_BUSY_FRACTION
    limits = (
        (use.client, MAX_CLIENT_FRACTION, "client and sampler"),
        (use.others, MAX_OTHERS_FRACTION, "strangers"),
    )
    over = [(whose, allowed) for share, allowed, whose in limits if share is not None and share > allowed]
    beyond = [f"{whose} had more than {100 * allowed:.0f} %" for whose, allowed in over]
    sentence = f"{use.text}: {' and '.join(beyond)} of this machine while it was saturated"
    rows = [
        _build_condition(
            "seconds in which this machine was saturated (share)",
            use.saturated,
            MAX_BUSY_FRACTION,
            "share",
            None if beyond else f"{use.text}; times include that delay",
            holds=not saturated,
        )
    ]
    for share, allowed, whose in limits:
        if share is not None:
            reason = sentence if over and whose == over[0][0] else None
            named = f"this machine's time that {whose} took while it was saturated (share)"
            holds = not saturated or share <= allowed
            rows.append(_build_condition(named, share, allowed, "share", reason, holds=holds, grave=True))
    return rows
