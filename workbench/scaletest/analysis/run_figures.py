"""Figures of a test run: every table and the validity that follow from its raw tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from workbench.core.tables import Table
from workbench.scaletest import tables
from workbench.scaletest.analysis.bottlenecks import (
    FULL,
    NO_ROOM,
    QUOTA,
    ServerEvidence,
    describe_pause,
    find_bottlenecks,
    find_stops,
)
from workbench.scaletest.analysis.disruptions import (
    Disruptions,
    NodeLosses,
    correct_closed_nodes,
    find_disruptions,
    find_losses_of_any,
)
from workbench.scaletest.analysis.gangs import build_gang_table
from workbench.scaletest.analysis.gpu_saturation import build_gpu_timeline
from workbench.scaletest.analysis.queue_simulation import (
    QueueComparison,
    QueueShares,
    TraceFidelity,
    compare_queue_waits,
    measure_queue_shares,
    measure_trace_fidelity,
    takes_pods_in_backoff,
)
from workbench.scaletest.analysis.room import Room, build_asks, build_room
from workbench.scaletest.analysis.room_limits import ForeignRoom, RoomCeiling, find_ceiling, find_foreign_room
from workbench.scaletest.analysis.server_pressure import (
    build_call_table,
    build_component_table,
    build_startup_table,
    describe_pressure,
)
from workbench.scaletest.analysis.stage_waits import (
    DENIED,
    Pause,
    classify_reason,
    describe_obstacles,
    find_obstacles,
    list_unfinished_stages,
    shorten_reason,
)
from workbench.scaletest.analysis.sustainable_rate import (
    CONFIDENCE_LEVEL,
    SustainableRate,
    build_ramp_table,
    find_sustainable_rate,
)
from workbench.scaletest.analysis.throughput import (
    SCHEDULED,
    StagePassages,
    build_passages,
    build_throughput_table,
    find_end,
    select_own_transitions,
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


@dataclass(frozen=True)
class RunFigures:
    """The tables, figures and validity of a run, computed on first use."""

    folder: Path
    conditions: RunConditions

    def read_raw_table(self, table: Table) -> pl.DataFrame:
        """Read a raw table of the run; empty if the run does not have it."""
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
        """Table TRANSITIONS, of this run's objects and of nodes only."""
        transitions = self.read_raw_table(tables.TRANSITIONS)
        return transitions if self.imported else select_own_transitions(self.schedule, transitions)

    @cached_property
    def pods(self) -> pl.DataFrame:
        """Table PODS."""
        return build_pod_table(self.schedule, self.transitions)

    @cached_property
    def asking(self) -> pl.DataFrame:
        """Table PODS with what each pod asks for, also where that was not recorded."""
        return self.pods.with_columns(build_asks(self.schedule, self.pods))

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """Table NODES, of the nodes that the run's pods may go to: simulated ones only, unless it allows others."""
        nodes = self.read_raw_table(tables.NODES)
        fenced = nodes.filter(pl.col("simulated"))
        return fenced if self.conditions.simulated_nodes and fenced.height else nodes

    def _read_nodes(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Tables NODES, NODE_CHANGES and HOLDINGS; nodes that took pods of the run were open to them."""
        changes = correct_closed_nodes(self.read_raw_table(tables.NODE_CHANGES), self.pods)
        return self.nodes, changes, self.read_raw_table(tables.HOLDINGS)

    @cached_property
    def room(self) -> Room:
        """The room on the nodes over time."""
        nodes, changes, holdings = self._read_nodes()
        end_s = find_end(self.schedule, self.submissions, self.transitions)
        return build_room(self.asking, nodes, changes, holdings, end_s)

    @property
    def ceiling_per_s(self) -> float | None:
        """Rate that the resource allows that bound, in pods a second; null where no single one did."""
        return None if self.ceiling is None else self.ceiling.pods_per_s

    @cached_property
    def possible(self) -> pl.DataFrame:
        """Table SCHEDULE without the workloads of which a pod can never fit on a node, or whose pods were refused."""
        indexes = self.asking.filter(pl.col("asks").is_in(list(self.room.impossible)))["index"]
        possible = self.schedule.filter(~pl.col("index").is_in(indexes.implode()))
        return possible.join(self.refused, on="index", how="anti")

    @cached_property
    def refused(self) -> pl.DataFrame:
        """Workloads none of whose pods the API server let their controller make: `index, pods, reason`.

        A quota lets them be made later. Empty where all were refused: then nothing passed.
        """
        told = self._list_pod_refusals().filter(
            pl.col("reason").map_elements(classify_reason, return_dtype=pl.String) == DENIED
        )
        rows = (
            self.schedule.join(self.pods, on="index", how="anti")
            .join(told.unique("workload").rename({"workload": "name"}), on="name")
            .select("index", "pods", "reason")
        )
        return rows if rows.height < self.schedule.height else rows.clear()

    def describe_refused(self) -> str | None:
        """How many pods were refused when their controllers made them, and why; null for none."""
        if not self.refused.height:
            return None
        pods, whole, reason = int(self.refused["pods"].sum()), int(self.schedule["pods"].sum()), self.refused["reason"]
        why = shorten_reason(reason[0])
        return f"{pods:,} of {whole:,} pods were refused at creation and do not count in the rate ({why})"

    def describe_impossible(self) -> str | None:
        """How many pods can never fit on a node, and why; null for none."""
        asks = self.asking["asks"]
        n_pods = int(asks.is_in(list(self.room.impossible)).sum())
        if not n_pods:
            return None
        reason = next(iter(self.room.impossible.values()))
        return f"{n_pods:,} of {len(asks):,} pods can never fit and do not count in the rate ({reason})"

    @cached_property
    def others(self) -> ForeignRoom | None:
        """Room that the run's pods asked for and others held; null where it was next to nothing."""
        last_s = float(self.schedule["due_s"].max() or 0.0)  # type: ignore[arg-type]
        bound = set(self.limits["resource"].drop_nulls())
        return find_foreign_room(self.room, self.read_raw_table(tables.HOLDINGS), self.pods, last_s, bound)

    @cached_property
    def ceiling(self) -> RoomCeiling | None:
        """The rate that the resource allows that bound; null where no single one did."""
        rows = self.limits.filter(pl.col("resource").is_not_null())
        if not rows.height:
            return None
        row = rows.row(0, named=True)
        return find_ceiling(self.room, self.possible, self.asking, row["resource"], row["begin_s"], row["end_s"])

    @property
    def imported(self) -> bool:
        """Whether the run was imported, so that its milestones come from another tool."""
        return self.conditions.provider == run_records.IMPORTED

    @cached_property
    def milestones(self) -> pl.DataFrame:
        """Table MILESTONES."""
        if self.imported:
            return self.read_raw_table(tables.MILESTONES)
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
        pods = self.pods.filter(pl.col("index").is_in(self.possible["index"].implode()))
        return build_passages(self.possible, self.submissions, pods, self.transitions)

    @cached_property
    def flow(self) -> pl.DataFrame:
        """Table FLOW."""
        return build_throughput_table(self.passages)

    @cached_property
    def ramp(self) -> pl.DataFrame:
        """Table RAMP."""
        in_turn = self.conditions.in_turn
        stops = [(stop.begin_s, stop.through_s) for stop in self.stops]
        return build_ramp_table(self.possible, self.passages, self.steps, self.room, stops=stops, in_turn=in_turn)

    @cached_property
    def sustainable(self) -> SustainableRate:
        """Pod rate that the cluster sustains."""
        return find_sustainable_rate(self.ramp)

    @property
    def sustained(self) -> pl.DataFrame:
        """Table SUSTAINED: the sustainable rate as a table, for capacity planning."""
        rate = self.sustainable
        ends = {"low_per_s": rate.low_per_s, "high_per_s": rate.high_per_s, "level": CONFIDENCE_LEVEL}
        about = {"simulated_nodes": self.conditions.simulated_nodes, "reason": rate.reason}
        return tables.SUSTAINED.frame([{"unit": "pods/s", **ends, **about}])

    @cached_property
    def stops(self) -> list[Pause]:
        """Times in which a stage, or the API server, let nothing through and then all that had come."""
        if self.imported:
            return []
        return find_stops(
            self.passages,
            self.submissions,
            self.room,
            refusals=self._list_pod_refusals(),
            gaps=self.read_raw_table(tables.GAPS),
            beats=self.read_raw_table(tables.BEATS),
            in_turn=self.conditions.in_turn,
        )

    @cached_property
    def limits(self) -> pl.DataFrame:
        """Table LIMITS."""
        return find_bottlenecks(
            self.passages,
            ServerEvidence(self.read_raw_table(tables.REQUESTS), self.pressure, self.conditions.components),
            self.room,
            self.pods,
            refusals=self._list_pod_refusals(),
            gaps=self.read_raw_table(tables.GAPS),
            beats=self.read_raw_table(tables.BEATS),
            stops=self.stops,
            in_turn=self.conditions.in_turn,
        )

    def _list_pod_refusals(self) -> pl.DataFrame:
        """Pods that a controller was refused: `workload, reason`, one row per event about a job of this run."""
        jobs = self.transitions.filter((pl.col("resource") != "event") & pl.col("workload").is_not_null())
        owners = jobs.select(owner="uid", of_owner="workload").unique("owner")
        told = self.transitions.filter(pl.col("transition") == "failed-create").drop("workload")
        return told.join(owners, on="owner").select(workload="of_owner", reason="reason")

    @cached_property
    def gpus(self) -> pl.DataFrame:
        """Table GPUS."""
        nodes, changes, holdings = self._read_nodes()
        return build_gpu_timeline(self.schedule, self.pods, nodes, self.passages.end_s, changes, holdings)

    @cached_property
    def node_losses(self) -> NodeLosses | None:
        """Nodes that took no pods for a part of the run, unless the scenario had planned it."""
        if self.imported or self.conditions.node_changes:
            return None
        nodes, changes, _ = self._read_nodes()
        devices = [name for name in self.room.resources if "/" in name]
        return find_losses_of_any(nodes, changes, self.passages.end_s, devices)

    @cached_property
    def disruptions(self) -> Disruptions | None:
        """Pods that were lost before their work was done; null for imported runs."""
        if self.imported:
            return None
        planned = bool(self.conditions.node_changes)
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
        in_turn = self.conditions.in_turn
        return list_unfinished_stages(self.passages, self.obstacles, explained=frozenset(explained), in_turn=in_turn)

    def _waits_for_room(self) -> bool:
        """Pods that were never bound wait for GPUs, for a node that fits, or for the rest of their gang."""
        open_pods = self.pods.filter(pl.col("scheduled_s").is_null() & pl.col("ended_s").is_null())
        room = self.limits.filter((pl.col("step") == SCHEDULED) & (pl.col("kind") == NO_ROOM)).height > 0
        last_s = self.passages.end_s
        full = self.room.full_fraction(max(0.0, last_s - 2), last_s) > 0
        unfit = float(open_pods["unschedulable"].mean() or 0.0) if open_pods.height else 0.0  # type: ignore[arg-type]
        gangs = self.schedule.filter(pl.col("gang") & (pl.col("pods") > 1))["index"]
        in_gangs = float(open_pods["index"].is_in(gangs.implode()).mean() or 0.0) if open_pods.height else 0.0  # type: ignore[arg-type]
        return room or full or max(unfit, in_gangs) >= FULL

    @property
    def findings(self) -> list[str]:
        """Sentences on what held work back or delayed it, what the API server did, and what the cluster says."""
        sentences = []
        if self.conditions.node_changes:
            planned = "As planned, " + "; ".join(self.conditions.node_changes)
            if self.gpus.height:
                seen = self.gpus["capacity"].sort()
                planned += f": there were {seen[0]:g} to {seen[-1]:g} GPUs to place pods on"
            sentences.append(f"{planned}.")
        sentences += [part.sentence for part in (self.replay, self.queue) if part is not None]
        sentences += dict.fromkeys([*(f"{describe_pause(stop)}." for stop in self.stops), *self.limits["sentence"]])
        if not self.imported:
            saturated = describe_saturation(self.read_load()) is not None
            requests = self.read_raw_table(tables.REQUESTS)
            sentences += describe_pressure(self.submissions, requests, self.pressure, saturated=saturated)
        return [*sentences, *describe_obstacles(self.obstacles)]

    @cached_property
    def replay(self) -> TraceFidelity | None:
        """How true the replay is to its trace; null if no trace was replayed."""
        speed = self.conditions.replay_speed
        return None if speed is None else measure_trace_fidelity(self.schedule, self.pods, speed)

    @cached_property
    def queue(self) -> QueueComparison | None:
        """Waits beside a simulated queue; null but for replays on kube-scheduler, which takes pod by pod."""
        if self.replay is None or self.conditions.schedulers != (DEFAULT_SCHEDULER,):
            return None
        pops = takes_pods_in_backoff(self.conditions.server_version)
        return compare_queue_waits(self.pods, self.nodes, pops_backoff=pops)

    @cached_property
    def queues(self) -> QueueShares | None:
        """Division of the GPUs between the queues; null for one queue, or if they never waited together."""
        return measure_queue_shares(self.schedule, self.pods, self.passages.end_s, self.conditions.queue_quotas or None)

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
        return tables.SERVERS.frame(build_component_table(self.pressure))

    @property
    def startup(self) -> pl.DataFrame:
        """Table STARTUP."""
        return build_startup_table(self.pods)

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
                closed=self.conditions.closed,
                imported=self.imported,
                resumed_s=resumed_s,
                unfinished=None if self.imported else self.unfinished,
                impossible=count_impossible_steps(self.milestones, self.submissions) if self.imported else (0, 0),
                replay=self.replay,
                stops=tuple(self.stops),
                node_losses=self.node_losses,
                disruptions=self.disruptions,
                others=self.others,
                beside_others=self.conditions.beside_others,
            )
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the run is invalid; empty if it is valid."""
        return list_reasons(self.validity)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that qualify the figures of a valid run."""
        return list_warnings(self.validity)

    @property
    def simulated(self) -> tuple[str, ...]:
        """What was not real."""
        return ("simulated nodes",) if self.conditions.simulated_nodes else ()

    def quantile(self, step: str, share: float, clock: str = "client") -> float | None:
        """A quantile of a step in seconds; None if it is unknown or was never reached."""
        condition = (pl.col("step") == step) & (pl.col("clock") == clock) & (pl.col("quantile") == share)
        values = self.quantiles.filter(condition)["value_s"]
        return values[0] if len(values) else None


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
