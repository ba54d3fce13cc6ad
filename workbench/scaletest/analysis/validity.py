"""Validity of a run: conditions for trusting its figures, each with what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.formats import format_items
from workbench.scaletest.analysis.bottlenecks import describe_pause
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
        *_check_cluster(run),
        *_check_losses(run.disruptions),
        *_check_order(run),
        *_check_replay(run.replay),
        *_check_sent_workloads(run),
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
    found: float | None,
    allowed: float,
    unit: str,
    reason: str | None,
    *,
    holds: bool | None = None,
    grave: bool = False,
) -> dict[str, Any]:
    """Row of table VALIDITY: the value found, the value allowed, and the reason if the condition does not hold.

    `holds`: By default, whether no more than the allowed value was found; what is unknown holds.
    `reason`: Null where another row's says it.
    """
    holds = (found is None or found <= allowed) if holds is None else holds
    row = {"condition": condition, "found": found, "allowed": allowed, "unit": unit, "holds": holds, "grave": grave}
    return row | {"reason": None if holds else reason}


def _check_cluster(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check that all stages went on while work waited, and that the cluster was the run's own and stayed the same."""
    if run.imported:
        return
    if run.unfinished is not None:
        silent = run.unfinished.filter(pl.col("silent"))["sentence"].to_list()
        named = "stages that passed nothing while work waited"
        yield _build_condition(named, len(silent), 0, "stages", "; ".join(silent), grave=True)
    last_s = float(run.schedule["due_s"].max() or 0.0)  # type: ignore[arg-type]
    share = sum(stop.end_s - stop.begin_s for stop in run.stops) / max(last_s, 1e-3)
    reason = "; ".join(describe_pause(stop) for stop in run.stops)
    named = "time in which a stage stood still (share)"
    yield _build_condition(named, share, MAX_STOPPED_FRACTION, "share", reason, grave=True)
    share, reason = 0.0, ""
    if run.others is not None:
        share = run.others.fraction
        reason = f"{run.others.sentence}: repeat it alone, or accept that with --beside-others"
    named, holds = "room that others held (share)", share <= MAX_FOREIGN_FRACTION or run.beside_others
    yield _build_condition(named, share, MAX_FOREIGN_FRACTION, "share", reason, holds=holds, grave=True)
    share, reason = 0.0, ""
    if run.node_losses is not None:
        share = 0.0 if run.node_losses.from_the_start else run.node_losses.lost_fraction
        reason = f"{run.node_losses.sentence}: the cluster changed, so the figures describe no single cluster"
    named = "time of the nodes in which they took no pods (share)"
    yield _build_condition(named, share, MAX_LOST_FRACTION, "share", reason, grave=True)


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
    named, share = "what the control plane adds to the median job of the trace (share)", replay.excess_fraction
    return [_build_condition(named, share, MAX_EXCESS_FRACTION, "share", replay.reason, grave=True)]


def _check_sent_workloads(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check that every workload of the plan was sent, taken and seen."""
    status = pl.col("status")
    accepted = run.submissions.filter(status.is_in(["created", "known"]))
    seen = set(run.transitions.filter(pl.col("workload").is_not_null())["workload"].to_list())
    unseen = accepted.filter(~pl.col("name").is_in(list(seen))).height
    reason = f"{unseen} of {accepted.height} accepted workloads were never seen"
    yield _build_condition("accepted workloads that were never seen", unseen, 0, "workloads", reason, grave=True)
    unsent = run.submissions.filter(status == "unsent").height
    reason = f"{unsent} workloads were not sent ({run.stopped or 'reason unknown'})"
    yield _build_condition("workloads of the plan that were not sent", unsent, 0, "workloads", reason, grave=True)
    failed = run.submissions.filter(status == "failed")
    share = failed.height / max(1, run.submissions.height)
    first = next(iter(failed["reason"].drop_nulls()), "no reason given")[:200]
    reason = f"{failed.height} workloads were refused: {first}"
    named = "workloads that were refused (share)"
    yield _build_condition(named, share, MAX_FAILED_FRACTION, "share", reason, grave=True)
    reason = "; ".join(run.spoiled[:3])
    yield _build_condition("events that spoiled the run", len(run.spoiled), 0, "notes", reason, grave=True)


def _check_submission(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check lateness and rate of sending, and the server's throttling."""
    if run.imported or run.closed:
        return
    throttled, requests, _ = count_throttled(run.submissions)
    throttling = describe_throttling(run.submissions)
    share, reason = throttled / max(1, requests), f"the API server {throttling}"
    named = "requests that the API server throttled (429, share)"
    yield _build_condition(named, share, MAX_THROTTLED_FRACTION, "share", reason, holds=throttling is None)
    # Workloads that were due before a resume and sent after it; their lateness is not the submitter's.
    due, sent = pl.col("due_s"), pl.col("sent_s")
    late = pl.any_horizontal(pl.lit(value=False), *((due < at) & (sent >= at) for at in run.resumed_s))
    overdue = run.submissions.select(late.fill_null(value=False).alias("overdue"))["overdue"]
    timely, waited = run.submissions.filter(~overdue), int(overdue.sum())
    cause = reason if throttling else "the request window or this machine was full"
    cause += f"; {waited} workloads due before the run was resumed are excluded" if waited else ""
    late_s = timely.select((sent - due).drop_nulls().quantile(0.99)).item()
    reason = f"workloads were sent late (p99 {late_s or 0:.2g} s, limit {MAX_LATENESS_S:g} s): {cause}"
    yield _build_condition("lateness of sending (p99)", late_s, MAX_LATENESS_S, "s", reason)
    span, took = _time_span(timely["due_s"]), _time_span(timely["sent_s"])
    rate = span / took if took > 0 and span > 0 else 1.0
    reason = f"only {100 * rate:.3g} % of the planned rate was reached (minimum {100 * MIN_RATE:g} %): {cause}"
    named = "planned rate that was reached (at least)"
    yield _build_condition(named, min(rate, 1.0), MIN_RATE, "share", reason, holds=rate >= MIN_RATE)
    if waited:
        reason = (
            f"submission was interrupted: the totals of {waited} workloads due before the resume include the "
            "interruption"
        )
        yield _build_condition("workloads due while submission was interrupted", waited, 0, "workloads", reason)


def _time_span(times: pl.Series) -> float:
    """Return the time from the first to the last."""
    values = times.drop_nulls().to_list()
    return max(values) - min(values) if values else 0.0


def _check_watches(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check the lag of our own watch, and the times without one."""
    if run.imported:
        return
    beats = run.beats["lag_s"]
    unseen, worst = beats.null_count(), beats.drop_nulls().quantile(0.99)
    if worst is None:
        reason = "no heartbeat was seen, so the watch's lag is unknown"
    elif worst > MAX_LAG_S:
        reason = (
            f"the watch was slow (p99 lag {worst:.2g} s, limit {MAX_LAG_S:g} s): arrivals are later than the changes"
        )
    else:
        reason = f"{unseen} of {len(beats)} heartbeats were never seen, so the watch's lag is only partly known"
    holds = worst is not None and worst <= MAX_LAG_S and unseen <= max(1, 0.05 * len(beats))
    yield _build_condition("lag of our own watch (p99 of the heartbeat)", worst, MAX_LAG_S, "s", reason, holds=holds)
    reason = (
        f"our own watch was {worst or 0.0:.2g} s late (p99 of the heartbeat): rates and times are the watch's, not the "
        "cluster's"
    )
    named = "our own watch kept up (p99 of the heartbeat)"
    yield _build_condition(named, worst, MAX_USABLE_LAG_S, "s", reason, grave=True)
    yield _check_gaps(run.gaps)


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
    return _build_condition("times that a watch was away", len(spans), 0, "gaps", reason)


def _check_clocks(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check that the offset between the client's and the servers' clocks is known and small.

    No rows for imported runs.
    """
    if run.imported:
        return
    if not run.skew.height:
        reason = "the clock offset was not measured"
        yield _build_condition("the clocks' distance is known", None, MAX_SKEW_HALF_S, "s", reason, holds=False)
        return
    # Half of the width of each measurement's bounds; below zero where servers disagree.
    half_widths = ((run.skew["high_s"] - run.skew["low_s"]) / 2).to_list()
    reason = "the servers' clocks disagree: several servers share the address"
    named, holds = "agreement of the servers about the time (at least)", all(width >= 0 for width in half_widths)
    yield _build_condition(named, min(half_widths), 0, "s", reason, holds=holds, grave=True)
    least_offset_s, offset_s, half_width = _clock_distance(run.skew)
    reason = f"steps between two clocks are off by the clock offset, {offset_s:+.3g} s, known to ± {half_width:.2g} s"
    if max(half_widths) > half_width:
        reason += f", at times only to ± {max(half_widths):.2g} s"
    named = "uncertainty of the clock offset (half of its bounds)"
    yield _build_condition(named, max(half_widths), MAX_SKEW_HALF_S, "s", reason)
    yield _build_condition("clock offset (at least)", least_offset_s, MAX_DISTANCE_S, "s", reason)


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


def _check_host(run: RunTables) -> Iterator[dict[str, Any]]:
    """Check whether this machine was saturated, and by which processes; one sentence says it, whatever it spoils."""
    use = measure_machine_use(run.load)
    if use is None:
        return
    limits = (
        (use.client, MAX_CLIENT_FRACTION, "client and sampler"),
        (use.others, MAX_OTHERS_FRACTION, "strangers"),
    )
    over = [(whose, allowed) for share, allowed, whose in limits if share is not None and share > allowed]
    beyond = " and ".join(f"{whose} had more than {100 * allowed:.0f} %" for whose, allowed in over)
    named = "seconds in which this machine was saturated (share)"
    reason = None if over else f"{use.text}; times include that delay"
    yield _build_condition(named, use.saturated, MAX_BUSY_FRACTION, "share", reason)
    for share, allowed, whose in limits:
        if share is not None:
            first = bool(over) and whose == over[0][0]
            reason = f"{use.text}: {beyond} of this machine while it was saturated" if first else None
            named = f"this machine's time that {whose} took while it was saturated (share)"
            holds = share <= allowed or use.saturated <= MAX_BUSY_FRACTION
            yield _build_condition(named, share, allowed, "share", reason, holds=holds, grave=True)
