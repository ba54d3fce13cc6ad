"""Answer of a run in one sentence, and its explanation: rate, bound, waits of the slowest, and what qualifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.core.formats import fit_answer, format_number, format_seconds
from workbench.scaletest.analysis.bottlenecks import (
    CLIENT_LIMIT,
    HELD_BACK,
    NO_ROOM,
    QUOTA,
    SLOW_CALLS,
    STOPPED,
    describe_pause,
)
from workbench.scaletest.analysis.room_limits import name_resource
from workbench.scaletest.analysis.server_pressure import describe_throttling
from workbench.scaletest.analysis.stage_waits import TOLD_FRACTION
from workbench.scaletest.analysis.sustainable_rate import SustainableRate
from workbench.scaletest.analysis.throughput import MADE, RELEASED, SCHEDULED, STARTED
from workbench.scaletest.analysis.validity import describe_saturation

if TYPE_CHECKING:
    from workbench.scaletest.analysis.run_figures import RunFigures

_WHO = {MADE: "the controller that makes the pods", SCHEDULED: "the scheduler", STARTED: "the kubelets"}
_CALLS = {MADE: "pod that was created", SCHEDULED: "binding", STARTED: "status of a pod"}
_NEVER = {
    RELEASED: "never released from their queue",
    MADE: "never made",
    SCHEDULED: "never scheduled",
    STARTED: "never started",
}


def build_answer(analysis: RunFigures) -> str:
    """One sentence: the rate with its bound and the wait of the slowest workloads, or why there is no rate."""
    for found in (analysis.others, analysis.node_losses):
        if found is not None:
            sentence = found.sentence.partition(", among them")[0]
            return fit_answer(f"{sentence}: no rate of this cluster alone.", f"{sentence}.")
    if silent := analysis.unfinished.filter(pl.col("silent"))["sentence"].to_list():
        return fit_answer(f"No rate: {silent[0]}.", f"No rate: {silent[0].partition(';')[0].partition(' (')[0]}.")
    rate, bound = analysis.sustainable, find_bound(analysis)
    wait, _ = _describe_waiting(analysis)
    if rate.words is not None:
        claim = f"{rate.words[0].upper()}{rate.words[1:]} sustained"
        # The bound without its figures and causes.
        cause = (bound or "").partition(" (")[0].partition(", which")[0].partition(": ")[0]
        cause = f", bound by {cause}" if cause and rate.high_per_s is not None else ""
        return fit_answer(f"{claim}{cause}; {wait}.", f"{claim}; {wait}.", f"{claim}.")
    if allowed := _describe_ceiling(analysis):
        return fit_answer(f"{allowed}; the scheduler's own rate is not known.", f"{allowed}.")
    reason = rate.reason.partition(": ")[0].partition("; ")[0]
    return fit_answer(f"No sustained rate: {reason}; {wait}.", f"No sustained rate: {reason}.", f"No rate; {wait}.")


def build_explanation(analysis: RunFigures) -> str:
    """Two sentences: the rate with its bound, and the waiting with what qualifies it.

    Where nothing passed a stage, or nothing more, that comes first and there is no rate. What others held, nodes that
    took no pods, and stages that stood still stand before all.
    """
    silent = analysis.unfinished.filter(pl.col("silent"))["sentence"].to_list()
    first = [found.sentence for found in (analysis.others, analysis.node_losses) if found is not None]
    stopped = [describe_pause(stop) for stop in analysis.stops]
    lost = "".join(f"{sentence}. " for sentence in [*first, *stopped])
    rate = f"No rate: {silent[0]}" if silent else _describe_rate(analysis)
    return f"{lost}{rate}. {_describe_waiting(analysis)[1]}{_describe_caveats(analysis)}."


def _describe_rate(analysis: RunFigures) -> str:
    rate, bound = analysis.sustainable, find_bound(analysis)
    ceiling = _describe_ceiling(analysis)
    if rate.words is None and ceiling is not None and analysis.ceiling is not None:
        return (
            f"{ceiling} ({analysis.ceiling.text}){_describe_bound(rate, bound)}; "
            "the scheduler's own rate is not decided, because pods waited for room"
        )
    throttled = describe_throttling(analysis.submissions)
    if rate.words is None and throttled and not analysis.limits["kind"].is_in(HELD_BACK).any():
        return f"The sustainable rate is not decided: the API server {throttled}"
    # Scheduled is not started: a start that cannot follow belongs to the rate.
    rows = analysis.limits.filter((pl.col("step") == STARTED) & pl.col("kind").is_in(HELD_BACK))
    slow_start = f"; pods start at {rows['rate_per_s'][0]:.3g}/s only" if rows.height else ""
    return f"{rate.text}{_describe_bound(rate, bound)}{slow_start}"


def _describe_ceiling(analysis: RunFigures) -> str | None:
    """What the room of the cluster allows; null above what was offered: it limited nothing over the whole test."""
    ceiling, offered = analysis.ceiling, analysis.ramp["offered_per_s"].max()
    if ceiling is None or not isinstance(offered, float) or ceiling.pods_per_s >= offered:
        return None
    name = name_resource(ceiling.resource)
    allows = f"{name} allow{'' if name.endswith('s') else 's'}"
    return f"The {allows} {ceiling.pods_per_s:.3g} pods/s of the {offered:.3g} offered"


def _describe_bound(rate: SustainableRate, bound: str | None) -> str:
    if bound is None:
        return ""
    return (
        f", bound by {bound}" if rate.high_per_s is not None or rate.words is None else f"; meanwhile {bound} held back"
    )


def find_bound(analysis: RunFigures) -> str | None:
    """Find what held back the scheduling of pods, slowest first; null where nothing did."""
    limits = analysis.limits.filter(pl.col("kind").is_in(HELD_BACK) & pl.col("step").is_in([RELEASED, MADE, SCHEDULED]))
    if not limits.height:
        return None
    # Name the part that limits the run, with its rate; `row` is one of table LIMITS.
    row = limits.sort("rate_per_s").row(0, named=True)
    if row["kind"] == CLIENT_LIMIT:
        is_configured = row["configured_per_s"] is not None
        limit = f" ({format_number(row['configured_per_s'])} requests/s)" if is_configured else ""
        return f"the client limit of {row['client']}{limit}"
    if row["kind"] == SLOW_CALLS:
        cause = f": {row['cause']}" if row["cause"] else ""
        return f"the API server, which took {format_seconds(row['call_s'])} for each {_CALLS[row['step']]}{cause}"
    if row["kind"] == QUOTA:
        return row["cause"] or f"the quota of its queue ({row['rate_per_s']:.3g} pods/s)"
    if row["kind"] == NO_ROOM:
        return str(row["cause"])
    return f"{_WHO[row['step']]} ({row['rate_per_s']:.3g} pods/s)"


def _describe_waiting(analysis: RunFigures) -> tuple[str, str]:
    """The highest known quantile from due to scheduled, for the answer and for the explanation."""
    for share, who, lost in ((0.95, "95 %", ""), (0.5, "half", ", and more than 5 % never were")):
        duration_s = analysis.quantile("due to scheduled", share)
        if duration_s is not None:
            within, whole = f"within {format_seconds(duration_s)}", who.capitalize()
            return f"{who} scheduled {within}", f"{whole} of the workloads were scheduled {within} of being due{lost}"
    if not analysis.steps.height:
        return "nothing was scheduled", "No workload was scheduled"
    return "most were never scheduled", "More than half of the workloads were never scheduled"


def _describe_caveats(analysis: RunFigures) -> str:
    """Caveats of the headline, each after a semicolon: pods that never came, stops, losses, gangs, this machine.

    Silent stages are left out: they make the run invalid, and stand among its reasons. A stage that left pods waiting
    is not told again for its stops.
    """
    caveats = []
    for row in analysis.unfinished.filter(~pl.col("silent")).iter_rows(named=True):
        if row["waiting"] >= TOLD_FRACTION * row["came"]:
            caveats.append(f"{row['waiting']:,} of {row['came']:,} pods were {_NEVER[row['step']]}")
    told = [stop.step for stop in analysis.stops]
    for row in analysis.limits.filter((pl.col("kind") == STOPPED) & ~pl.col("step").is_in(told)).iter_rows(named=True):
        if row["step"] not in analysis.unfinished["step"].to_list():
            caveats.append(f"no {row['step']} for up to {row['end_s'] - row['begin_s']:.0f} s at a time")
    caveats += [text for text in (analysis.describe_impossible(), analysis.describe_refused()) if text is not None]
    if analysis.disruptions is not None and (lost := analysis.disruptions.sentence) is not None:
        caveats.append(lost)
    if analysis.gangs.height:
        caveats.append(f"{int(analysis.gangs['complete'].sum())} of {analysis.gangs.height} gangs became complete")
    busy = describe_saturation(analysis.read_load())
    return "".join(f"; {caveat}" for caveat in [*caveats, *([busy] if busy else [])])


def describe_decisions(analysis: RunFigures) -> str:
    """Describe decisions of imported runs, whose files have the time of a decision but not its outcome."""
    p95_s = analysis.quantile("sent to decided", 0.95, "mixed")
    if p95_s is None:
        return "The sampled workloads have no time of decision"
    return (
        "95 % of the sampled workloads were decided (scheduled or unschedulable) within "
        f"{format_seconds(p95_s)} of submission"
    )
