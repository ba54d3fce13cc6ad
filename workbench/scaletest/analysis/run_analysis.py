"""Analysis of a test run: every table, the validity and the answer that follow from its raw tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.core.formats import format_number, format_seconds
from workbench.core.tables import Table
from workbench.runs import run_folder
from workbench.scaletest import tables
from workbench.scaletest.analysis.bottlenecks import (
    CLIENT_LIMIT,
    FULL,
    HELD_BACK,
    NO_ROOM,
    QUOTA,
    SLOW_CALLS,
    STOPPED,
    find_bottlenecks,
)
from workbench.scaletest.analysis.disruptions import Disruptions, NodeLosses, find_disruptions, find_node_losses
from workbench.scaletest.analysis.gangs import build_gang_table
from workbench.scaletest.analysis.gpu_saturation import build_gpu_timeline, find_gpu_ceiling, find_saturation
from workbench.scaletest.analysis.queue_simulation import (
    QueueComparison,
    QueueShares,
    TraceFidelity,
    compare_queue_waits,
    measure_queue_shares,
    measure_trace_fidelity,
    takes_pods_in_backoff,
)
from workbench.scaletest.analysis.server_pressure import (
    build_call_table,
    build_component_table,
    build_startup_table,
    describe_pressure,
    describe_throttling,
)
from workbench.scaletest.analysis.stage_waits import TOLD_FRACTION, describe_obstacles, find_obstacles, find_unfinished
from workbench.scaletest.analysis.sustainable_rate import (
    CONFIDENCE_LEVEL,
    SustainableRate,
    build_ramp_table,
    find_sustainable_rate,
)
from workbench.scaletest.analysis.throughput import (
    MADE,
    RELEASED,
    SCHEDULED,
    STARTED,
    StagePassages,
    build_passages,
    build_throughput_table,
)
from workbench.scaletest.analysis.time_breakdown import (
    build_milestones,
    build_pod_table,
    build_share_table,
    build_step_quantiles,
    build_step_table,
    count_impossible_steps,
)
from workbench.scaletest.analysis.validity import (
    RunTables,
    build_validity_table,
    describe_saturation,
    list_reasons,
    list_warnings,
)
from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import RunConditions
from workbench.scaletest.scenario.scenario_file import DEFAULT_SCHEDULER
from workbench.scaletest.tables import (
    CALLS,
    FLOW,
    GANGS,
    GPUS,
    LIMITS,
    MILESTONES,
    NODE_CHANGES,
    OBSTACLES,
    PODS,
    QUANTILES,
    RAMP,
    SERVERS,
    SHARES,
    STARTUP,
    STEPS,
    SUSTAINED,
    UNFINISHED,
    VALIDITY,
)

if TYPE_CHECKING:
    pass

_WHO = {MADE: "the controller that makes the pods", SCHEDULED: "the scheduler", STARTED: "the kubelets"}
_CALLS = {MADE: "pod that was created", SCHEDULED: "binding", STARTED: "status of a pod"}
_NEVER = {
    RELEASED: "never released from their queue",
    MADE: "never made",
    SCHEDULED: "never scheduled",
    STARTED: "never started",
}
RESULT_BUILDERS: tuple[tuple[Table, Callable[[Analysis], pl.DataFrame]], ...] = (
    (PODS, lambda run: run.pods),
    (MILESTONES, lambda run: run.milestones),
    (STEPS, lambda run: run.steps),
    (QUANTILES, lambda run: run.quantiles),
    (SHARES, lambda run: run.shares),
    (FLOW, lambda run: run.flow),
    (RAMP, lambda run: run.ramp),
    (SUSTAINED, lambda run: run.sustained),
    (LIMITS, lambda run: run.limits),
    (OBSTACLES, lambda run: run.obstacles),
    (UNFINISHED, lambda run: run.unfinished),
    (CALLS, lambda run: run.calls),
    (SERVERS, lambda run: run.servers),
    (STARTUP, lambda run: run.startup),
    (GPUS, lambda run: run.gpus),
    (GANGS, lambda run: run.gangs),
    (VALIDITY, lambda run: run.validity),
)


def build_headline(run: Analysis) -> str:
    """Two sentences: the rate with its bound, and the waiting with what qualifies it.

    Where nothing passed a stage, or nothing more, that comes first and there is no rate. Nodes that took no pods stand
    before all.
    """
    silent = run.unfinished.filter(pl.col("silent"))["sentence"].to_list()
    lost = f"{run.node_losses.sentence}. " if run.node_losses is not None else ""
    if silent:
        return f"{lost}No rate: {silent[0]}. {_describe_waiting(run)}{_describe_caveats(run)}."
    return f"{lost}{_describe_rate(run)}. {_describe_waiting(run)}{_describe_caveats(run)}."


def _describe_rate(run: Analysis) -> str:
    rate, bound = run.sustainable, find_bound(run)
    ceiling = find_gpu_ceiling(run.schedule, run.gpus)
    offered = run.ramp["offered_per_s"].max()
    if rate.words is None and bound == "its GPUs" and ceiling is not None and isinstance(offered, float):
        allowed = f"{ceiling.gpus:,.6g} GPUs and {ceiling.gpu_s_per_pod:.3g} GPU-seconds per pod"
        return (
            f"The GPUs allow {ceiling.pods_per_s:.3g} pods/s ({allowed}) of the {offered:.3g} offered; "
            "the scheduler's own rate is not decided, because pods waited for room"
        )
    throttled = describe_throttling(run.submissions)
    if rate.words is None and throttled and not run.limits["kind"].is_in(HELD_BACK).any():
        return f"The sustainable rate is not decided: the API server {throttled}"
    return f"{rate.text}{_describe_bound(rate, bound)}{_describe_slow_start(run)}"


def _describe_bound(rate: SustainableRate, bound: str | None) -> str:
    if bound is None:
        return ""
    return (
        f", bound by {bound}" if rate.high_per_s is not None or rate.words is None else f"; meanwhile {bound} held back"
    )


def find_bound(run: Analysis) -> str | None:
    """Find what held back the scheduling of pods, slowest first; null where nothing did."""
    limits = run.limits.filter(pl.col("kind").is_in(HELD_BACK) & pl.col("step").is_in([RELEASED, MADE, SCHEDULED]))
    if not limits.height:
        return None
    return _name_bound(run, limits.sort("rate_per_s").row(0, named=True))


def _name_bound(run: Analysis, row: dict[str, Any]) -> str:
    if row["kind"] == CLIENT_LIMIT:
        is_configured = row["configured_per_s"] is not None
        limit = f" ({format_number(row['configured_per_s'])} requests/s)" if is_configured else ""
        return f"the client limit of {row['client']}{limit}"
    if row["kind"] == SLOW_CALLS:
        cause = f": {row['cause']}" if row["cause"] else ""
        return f"the API server, which took {format_seconds(row['call_s'])} for each {_CALLS[row['step']]}{cause}"
    if row["kind"] == QUOTA:
        return f"the quota of its queue ({row['rate_per_s']:.3g} pods/s)"
    if row["kind"] == NO_ROOM:
        return "its GPUs" if run.gpus.height else "the room on its nodes"
    return f"{_WHO[row['step']]} ({row['rate_per_s']:.3g} pods/s)"


def _describe_slow_start(run: Analysis) -> str:
    """Scheduled is not started: a start that cannot follow belongs to the rate."""
    rows = run.limits.filter((pl.col("step") == STARTED) & pl.col("kind").is_in(HELD_BACK))
    return f"; pods start at {rows['rate_per_s'][0]:.3g}/s only" if rows.height else ""


def _describe_waiting(run: Analysis) -> str:
    """The highest known quantile from due to scheduled."""
    for share, text in (
        (0.95, "95 % of the workloads were scheduled"),
        (0.5, "Half of the workloads were scheduled"),
    ):
        duration_s = run.quantile("due to scheduled", share)
        if duration_s is not None:
            lost = "" if share == 0.95 else ", and more than 5 % never were"
            return f"{text} within {format_seconds(duration_s)} of being due{lost}"
    return "More than half of the workloads were never scheduled" if run.steps.height else "No workload was scheduled"


def _describe_caveats(run: Analysis) -> str:
    caveats = []
    for row in run.unfinished.filter(~pl.col("silent")).iter_rows(named=True):
        if row["waiting"] >= TOLD_FRACTION * row["came"]:
            caveats.append(f"{row['waiting']:,} of {row['came']:,} pods were {_NEVER[row['step']]}")
    for row in run.limits.filter(pl.col("kind") == STOPPED).iter_rows(named=True):
        if row["step"] not in run.unfinished["step"].to_list():
            caveats.append(f"no {row['step']} for up to {row['end_s'] - row['begin_s']:.0f} s at a time")
    if run.disruptions is not None and (lost := run.disruptions.sentence) is not None:
        caveats.append(lost)
    if run.gangs.height:
        caveats.append(f"{int(run.gangs['complete'].sum())} of {run.gangs.height} gangs were ever complete")
    busy = describe_saturation(run.read_load())
    return "".join(f"; {caveat}" for caveat in [*caveats, *([busy] if busy else [])])


@dataclass(frozen=True)
class Analysis:
    """The tables and figures of a run, computed on first use."""

    folder: Path
    test: RunConditions

    def read_raw_table(self, table: Table) -> pl.DataFrame:
        """A raw table; empty if the run does not have it."""
        path = self.folder / "tables" / f"{table.name}.parquet"
        return table.read(self.folder / "tables") if path.is_file() else table.frame([])

    def read_load(self) -> pl.DataFrame:
        """Table LOAD."""
        return self.read_raw_table(tables.LOAD)

    @cached_property
    def schedule(self) -> pl.DataFrame:
        """Table SCHEDULE."""
        return self.read_raw_table(tables.SCHEDULE)

    @cached_property
    def submissions(self) -> pl.DataFrame:
        """Table SUBMISSIONS."""
        return self.read_raw_table(tables.SUBMISSIONS)

    @cached_property
    def transitions(self) -> pl.DataFrame:
        """Table TRANSITIONS."""
        return self.read_raw_table(tables.TRANSITIONS)

    @cached_property
    def pods(self) -> pl.DataFrame:
        """Table PODS."""
        return build_pod_table(self.schedule, self.transitions)

    @property
    def imported(self) -> bool:
        """The run was imported: its milestones come from another tool."""
        return self.test.provider == run_records.IMPORTED

    @cached_property
    def milestones(self) -> pl.DataFrame:
        """Table MILESTONES."""
        if self.imported:
            return self.read_raw_table(MILESTONES)
        return build_milestones(self.schedule, self.submissions, self.transitions, self.pods)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Table STEPS."""
        return build_step_table(self.milestones, self.submissions, imported=self.imported)

    @cached_property
    def quantiles(self) -> pl.DataFrame:
        """Table QUANTILES."""
        return build_step_quantiles(self.steps)

    @cached_property
    def shares(self) -> pl.DataFrame:
        """Table SHARES."""
        return build_share_table(self.milestones)

    @cached_property
    def passages(self) -> StagePassages:
        """Times at which pods and workloads passed each stage."""
        return build_passages(self.schedule, self.submissions, self.pods, self.transitions)

    @cached_property
    def flow(self) -> pl.DataFrame:
        """Table FLOW."""
        return build_throughput_table(self.passages)

    @cached_property
    def ramp(self) -> pl.DataFrame:
        """Table RAMP."""
        in_turn = self.test.in_turn
        return build_ramp_table(self.schedule, self.passages, self.steps, self.gpus, self.pods, in_turn=in_turn)

    @cached_property
    def sustainable(self) -> SustainableRate:
        """The sustainable rate."""
        return find_sustainable_rate(self.ramp)

    @property
    def sustained(self) -> pl.DataFrame:
        """Table SUSTAINED: the sustainable rate as a table, for capacity planning."""
        rate = self.sustainable
        ends = {"low_per_s": rate.low_per_s, "high_per_s": rate.high_per_s, "level": CONFIDENCE_LEVEL}
        about = {"simulated_nodes": self.test.simulated_nodes, "reason": rate.reason}
        return SUSTAINED.frame([{"unit": "pods/s", **ends, **about}])

    @cached_property
    def limits(self) -> pl.DataFrame:
        """Table LIMITS."""
        requests, components = self.read_raw_table(tables.REQUESTS), self.test.components
        gaps, in_turn = self.read_raw_table(tables.GAPS), self.test.in_turn
        return find_bottlenecks(
            self.passages,
            requests,
            components,
            self.gpus,
            self.pods,
            gaps=gaps,
            beats=self.read_raw_table(tables.BEATS),
            pressure=self.pressure,
            in_turn=in_turn,
        )

    @cached_property
    def gpus(self) -> pl.DataFrame:
        """Table GPUS."""
        nodes, changes = self.read_raw_table(tables.NODES), self.read_raw_table(NODE_CHANGES)
        return build_gpu_timeline(self.schedule, self.pods, nodes, self.passages.end_s, changes)

    @cached_property
    def node_losses(self) -> NodeLosses | None:
        """Nodes that took no pods for a part of the run, unless the scenario had planned it."""
        if self.imported or self.test.node_changes:
            return None
        nodes, changes = self.read_raw_table(tables.NODES), self.read_raw_table(NODE_CHANGES)
        return find_node_losses(nodes, changes, self.passages.end_s)

    @cached_property
    def disruptions(self) -> Disruptions | None:
        """Pods that were lost before their work was done; null for imported runs."""
        if self.imported:
            return None
        planned = bool(self.test.node_changes)
        return find_disruptions(self.schedule, self.submissions, self.transitions, self.pods, planned=planned)

    @cached_property
    def obstacles(self) -> pl.DataFrame:
        """Table OBSTACLES."""
        return find_obstacles(self.transitions, self.submissions, self.pods)

    @cached_property
    def unfinished(self) -> pl.DataFrame:
        """Table UNFINISHED."""
        explained = {SCHEDULED} if self._waits_for_room() else set[str]()
        # Quota is room, too.
        explained |= set(self.limits.filter(pl.col("kind") == QUOTA)["step"])
        in_turn = self.test.in_turn
        return find_unfinished(self.passages, self.obstacles, explained=frozenset(explained), in_turn=in_turn)

    def _waits_for_room(self) -> bool:
        """Pods that were never bound wait for GPUs, for a node that fits, or for the rest of their gang."""
        open_pods = self.pods.filter(pl.col("scheduled_s").is_null() & pl.col("ended_s").is_null())
        room = self.limits.filter((pl.col("step") == SCHEDULED) & (pl.col("kind") == NO_ROOM)).height > 0
        last_s = self.passages.end_s
        full = find_saturation(self.gpus, self.pods).full_fraction(max(0.0, last_s - 2), last_s) > 0
        unfit = float(open_pods["unschedulable"].mean() or 0.0) if open_pods.height else 0.0  # type: ignore[arg-type]
        gangs = self.schedule.filter(pl.col("gang") & (pl.col("pods") > 1))["index"]
        in_gangs = float(open_pods["index"].is_in(gangs.implode()).mean() or 0.0) if open_pods.height else 0.0  # type: ignore[arg-type]
        return room or full or max(unfit, in_gangs) >= FULL

    @property
    def findings(self) -> list[str]:
        """Sentences on what held work back or delayed it, what the API server did, and what the cluster says."""
        pressure = (
            []
            if self.imported
            else describe_pressure(
                self.submissions,
                self.read_raw_table(tables.REQUESTS),
                self.pressure,
                saturated=describe_saturation(self.read_load()) is not None,
            )
        )
        return [
            *self._describe_node_changes(),
            *self._describe_replay(),
            *self.limits["sentence"].to_list(),
            *pressure,
            *describe_obstacles(self.obstacles),
        ]

    @cached_property
    def replay(self) -> TraceFidelity | None:
        """How true the replay of a trace is; null where none was replayed."""
        speed = self.test.replay_speed
        return None if speed is None else measure_trace_fidelity(self.schedule, self.pods, speed)

    def _describe_node_changes(self) -> list[str]:
        """Describe what was planned to happen to the nodes, and what of it was seen in their GPUs."""
        if not self.test.node_changes:
            return []
        planned = "As planned, " + "; ".join(self.test.node_changes)
        if not self.gpus.height:
            return [f"{planned}."]
        seen = self.gpus["capacity"].sort()
        return [f"{planned}: there were {seen[0]:g} to {seen[-1]:g} GPUs to place pods on."]

    def _describe_replay(self) -> list[str]:
        """Describe what a replayed trace held, and how long its pods waited beside a simulated queue."""
        if self.replay is None:
            return []
        queue = self.queue
        return [self.replay.sentence, *([] if queue is None else [queue.sentence])]

    @cached_property
    def queue(self) -> QueueComparison | None:
        """Waits beside a simulated queue; null but for replays on kube-scheduler, which takes pod by pod."""
        if self.replay is None or self.test.schedulers != (DEFAULT_SCHEDULER,):
            return None
        pops = takes_pods_in_backoff(self.test.server_version)
        return compare_queue_waits(self.pods, self.read_raw_table(tables.NODES), pops_backoff=pops)

    @cached_property
    def queues(self) -> QueueShares | None:
        """How the queues shared the GPUs; null for one queue, or where they never waited together."""
        return measure_queue_shares(self.schedule, self.pods, self.passages.end_s, self.test.queue_quotas or None)

    @property
    def calls(self) -> pl.DataFrame:
        """Table CALLS."""
        return build_call_table(self.read_raw_table(tables.REQUESTS))

    @cached_property
    def pressure(self) -> pl.DataFrame:
        """Table PRESSURE: what the control plane's own metrics said, look by look."""
        return self.read_raw_table(tables.PRESSURE)

    @property
    def servers(self) -> pl.DataFrame:
        """Table SERVERS."""
        return SERVERS.frame(build_component_table(self.pressure))

    @property
    def startup(self) -> pl.DataFrame:
        """Table STARTUP."""
        return build_startup_table(self.pods)

    @property
    def gpu_ceiling_per_s(self) -> float | None:
        """Rate that the GPUs themselves allow, in pods a second; null where nothing limits the rate in this way."""
        ceiling = find_gpu_ceiling(self.schedule, self.gpus)
        return None if ceiling is None else ceiling.pods_per_s

    @cached_property
    def gangs(self) -> pl.DataFrame:
        """Table GANGS."""
        return build_gang_table(self.schedule, self.pods, self.passages.end_s)

    @cached_property
    def validity(self) -> pl.DataFrame:
        """Table VALIDITY."""
        raw = {name: self.read_raw_table(getattr(tables, name.upper())) for name in ("gaps", "beats", "skew", "load")}
        stopped, spoiled, resumed_s = _read_run_notes(self.folder)
        return build_validity_table(
            RunTables(
                self.schedule,
                self.submissions,
                self.transitions,
                self.steps,
                **raw,
                stopped=stopped,
                spoiled=spoiled,
                closed=self.test.closed,
                imported=self.imported,
                resumed_s=resumed_s,
                unfinished=None if self.imported else self.unfinished,
                impossible=count_impossible_steps(self.milestones, self.submissions) if self.imported else (0, 0),
                replay=self.replay,
                node_losses=self.node_losses,
                disruptions=self.disruptions,
            )
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is invalid; empty if it is valid."""
        return list_reasons(self.validity)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that qualify the figures of a valid run."""
        return list_warnings(self.validity)

    @property
    def answer(self) -> str:
        """The sustainable rate with its bound, and the waiting time of the slowest workloads."""
        if self.imported:
            return f"{self._describe_decisions()}; the files do not contain a rate."
        return build_headline(self)

    def _describe_decisions(self) -> str:
        """Describe decisions of imported runs, whose files have the time of a decision but not its outcome."""
        p95_s = self.quantile("sent to decided", 0.95, "mixed")
        if p95_s is None:
            return "The sampled workloads have no time of decision"
        return (
            "95 % of the sampled workloads were decided (scheduled or unschedulable) within "
            f"{format_seconds(p95_s)} of submission"
        )

    def quantile(self, step: str, share: float, clock: str = "client") -> float | None:
        """A quantile of a step in seconds; None if it is unknown or was never reached."""
        condition = (pl.col("step") == step) & (pl.col("clock") == clock) & (pl.col("quantile") == share)
        values = self.quantiles.filter(condition)["value_s"]
        return values[0] if len(values) else None


def analyse_run(folder: str | Path) -> Analysis:
    """The analysis of a run folder that has its raw tables."""
    return Analysis(Path(folder), run_records.read_conditions(Path(folder)))


def conclude_run(folder: str | Path) -> Analysis:
    """Analyse a run, and write the result tables and the verdict into its folder."""
    analysis = analyse_run(folder)
    run = run_folder.load_run(analysis.folder)
    for table, build in RESULT_BUILDERS:
        run.write_table(table, build(analysis))
    run.conclude("invalid" if analysis.reasons else "valid", analysis.reasons, analysis.answer)
    return analysis


def _read_run_notes(folder: Path) -> tuple[str | None, tuple[str, ...], tuple[float, ...]]:
    """Reason of the submission's end, notes that invalidate the run, and times of resumes."""
    stopped, spoiled, resumed_s = None, [], []
    for line in run_records.read_lines(folder / run_records.JOURNAL, run_records.JournalLine):
        if isinstance(line, run_records.Stopped):
            stopped = line.reason
        elif isinstance(line, run_records.Begun) and line.resumed:
            resumed_s.append((line.at_ns - line.origin_ns) / NS_PER_S)
        elif isinstance(line, run_records.Note) and line.spoils:
            spoiled.append(line.text)
    notes = run_records.read_lines(folder / run_records.HEALTH, run_records.HealthLine)
    spoiled += [note.text for note in notes if isinstance(note, run_records.Note) and note.spoils]
    if stopped is not None and stopped.startswith("aborted"):
        spoiled.append(stopped)
    return stopped, tuple(spoiled), tuple(resumed_s)
