"""The sampler: watches of a run, clock offset, heartbeat and the sampler's own resource use."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection, now_ns
from workbench.scaletest.observation import audit_log as observation_audit_log
from workbench.scaletest.observation import clock_skew, run_records, watch_targets
from workbench.scaletest.observation.clock_skew import Heartbeat, LoadMeter
from workbench.scaletest.observation.component_metrics import MetricsFollower, check_sources_are_local
from workbench.scaletest.observation.object_ledger import Node, ObjectDecoder, ObjectLedger
from workbench.scaletest.observation.resource_watch import ResourceWatch, WatchSink, WatchTarget
from workbench.scaletest.observation.run_records import RunFiles
from workbench.scaletest.observation.sampler_process import SamplerOptions
from workbench.scaletest.observation.watch_targets import NODE_SCOPE, ForeignPods, NodeObserver

FLUSH_S = 0.5
START_LIMIT_S = 60.0
END_LIMIT_S = 5.0
FIRST_FLIPS, LATER_FLIPS, LAST_FLIPS = 2, 4, 1
NODES_POLL_S = 60.0


@dataclass(frozen=True, slots=True)
class SamplerState:
    """State of the sampler, reported to the submitter every second.

    `away_s`: Longest time that a watch has been disconnected; 0 while all are connected.
    `nodes_not_ready`, `nodes_not_ready_at_start`: Number of nodes that are not ready: now, and when this sampler
    became ready.
    `foreign_evicted`, `foreign_pending`, `foreign_pending_at_start`: Pods of other users: evicted since the sampler
    became ready, pending now and then; 0 if they are not watched.
    """

    lag_s: float
    away_s: float
    objects: int
    nodes_not_ready: int
    nodes_not_ready_at_start: int = 0
    foreign_evicted: int = 0
    foreign_pending: int = 0
    foreign_pending_at_start: int = 0


class RunSampler:
    """One sampler: `prepare`, `begin`, `finish`, `close`."""

    def __init__(self, api: Connection, options: SamplerOptions) -> None:
        self._api, self._folder, self._options = api, options.folder, options
        self._begun_ns = now_ns()
        self._files = files = RunFiles(options.folder)
        self._ledger = ObjectLedger(files.observed.put)
        self._away_since_ns = self._ledger.restore(options.folder / run_records.OBSERVED)
        self._nodes = NodeObserver(files.observed.put)
        self._not_ready_at_start = 0
        self._heart = Heartbeat(api, options.run, options.namespaces[0], files.health.put)
        self._prober = clock_skew.build_prober(api, files.health.put)
        self._foreign = self._watch_foreign_pods() if options.foreign_pods else None
        self._audit = self._open_audit_log()
        check_sources_are_local(options.metrics)
        self._metrics = MetricsFollower(api, options.metrics, files.health.put, files.note)
        self._watches: list[ResourceWatch] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _watch_foreign_pods(self) -> ForeignPods:
        options, files = self._options, self._files
        foreign = ForeignPods(options.run, options.namespaces, files.observed.put, files.note)
        foreign.restore(options.folder / run_records.OBSERVED)
        return foreign

    def _open_audit_log(self) -> observation_audit_log.AuditFollower | None:
        path, files = self._options.audit_log, self._files
        if path is None:
            return None
        problem = observation_audit_log.find_read_problem(path)
        if problem is not None:
            files.note(f"the audit log is not read: {problem}")
            return None
        return observation_audit_log.AuditFollower(
            path, self._options.namespaces, write=files.observed.put, note=files.note
        )

    async def prepare(self) -> None:
        """Discover the resources and create a watch of each."""
        since_ns = self._away_since_ns or self._begun_ns
        for choice in await watch_targets.list_choices(self._api, self._options):
            for namespace in self._options.namespaces:
                target = watch_targets.build_watch_target(choice, namespace, self._options.run)
                sink = watch_targets.build_sink(self._ledger, target.scope, since_ns)
                self._add_watch(target, sink, optional=choice.resource in watch_targets.OPTIONAL)
        nodes = WatchTarget(NODE_SCOPE, api_discovery.NODES.path(""), ObjectDecoder(Node))
        self._add_watch(nodes, self._nodes.build_sink(), optional=True, poll_s=NODES_POLL_S)
        if self._foreign is not None:
            self._add_watch(self._foreign.build_target(), self._foreign.build_sink(), optional=True)
        try:
            await self._heart.create_object()
        except ApiError as error:
            self._files.note(f"the watch lag is unknown: creating the heartbeat failed with status {error.status}")
        else:
            self._add_watch(self._heart.build_target(), WatchSink(self._heart.put), optional=True)

    def _add_watch(self, watched: WatchTarget, sink: WatchSink, **options: Any) -> None:
        health = self._files.health
        since = self._away_since_ns if watched.scope.resource in watch_targets.TRANSITIONS_BY_RESOURCE else 0
        watch = ResourceWatch(
            self._api, watched, sink, write=health.put, note=self._files.note, away_since_ns=since, **options
        )
        self._watches.append(watch)

    async def begin(self) -> None:
        """Start all watches, and wait until each is connected and the clock offset is known."""
        for watch in self._watches:
            self.spawn(watch.run())
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self.wait_or_fail(self._prober.burst(FIRST_FLIPS))
                for watch in self._watches:
                    await self.wait_or_fail(watch.ready.wait())
        except TimeoutError:
            late = [watch.name for watch in self._watches if not watch.ready.is_set()]
            raise RunFailedError(
                "the watches are not ready", where=f"within {START_LIMIT_S:g} s", found=late or "no answers"
            ) from None
        if not self._prober.has_answers:
            self._files.note("the clock offset is unknown: no response of the API server has a Date header")
        self._not_ready_at_start = self._nodes.not_ready
        if self._foreign is not None:
            self._foreign.begin()
        if self._heart.is_made:
            self.spawn(self._heart.run())
        if self._audit is not None:
            self.spawn(self._audit.run())
        await self._metrics.look()
        self.spawn(self._metrics.run())
        self.spawn(self._prober.run(LATER_FLIPS))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it as a task; if it fails, `wait_or_fail` raises its error."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._finish_task)
        self._tasks.append(task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def wait_or_fail(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for it, or raise the error of the first task that fails."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            await task
        finally:
            task.cancel()

    async def write_periodically(self, tell: Callable[[SamplerState], None]) -> None:
        """Flush the files every half second; write gaps and load and report the state every second."""
        meter, count = LoadMeter((os.getppid(),), self._options.side_pids), 0
        while True:
            await asyncio.sleep(FLUSH_S)
            count += 1
            if count % 2 == 0:
                for watch in self._watches:
                    watch.settle()
                self._files.health.put(meter.read())
                tell(self._build_state())
            self._files.flush()

    def _build_state(self) -> SamplerState:
        away = max((watch.away_s() for watch in self._watches), default=0.0)
        foreign = self._foreign
        return SamplerState(
            lag_s=self._heart.lag_s(),
            away_s=away,
            objects=len(self._ledger),
            nodes_not_ready=self._nodes.not_ready,
            nodes_not_ready_at_start=self._not_ready_at_start,
            foreign_evicted=0 if foreign is None else foreign.evicted,
            foreign_pending=0 if foreign is None else foreign.pending,
            foreign_pending_at_start=0 if foreign is None else foreign.pending_at_start,
        )

    def flush(self) -> None:
        """Write buffered observations to disk."""
        self._files.flush()

    async def finish(self) -> None:
        """Measure the clock offset once more, and read the audit log to its end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._prober.burst(LAST_FLIPS), END_LIMIT_S)
        await self._metrics.look()
        if self._audit is not None:
            await self._audit.finish()
            self._audit.write_requests(self._folder, observation_audit_log.read_origin_ns(self._folder, self._begun_ns))

    def note_spoil(self, reason: str) -> None:
        """Note in the run's files, if they are writable, that observations are incomplete."""
        with contextlib.suppress(RunFailedError):
            self._files.note(f"the sampler ended early: {reason}", spoils=True)
            self._files.health.flush()

    async def close(self) -> None:
        """End all tasks and write the rest; safe at any time."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._failed.done():
            self._failed.cancel()
        elif not self._failed.cancelled():
            self._failed.exception()  # already reported, or another error came first
        try:
            self._write_final_notes()
        finally:
            if self._heart.is_made:
                await self._heart.remove()
            self._files.close()

    def _write_final_notes(self) -> None:
        for watch in self._watches:
            watch.end()
            if watch.garbage:
                self._files.note(f"watch of {watch.name}: {watch.garbage} lines or objects could not be read")
        if self._ledger.left_out:
            self._files.note(f"{self._ledger.left_out} transitions are missing: too many of one object, or names")
        self._heart.end()


async def run_sampler(
    api: Connection,
    options: SamplerOptions,
    *,
    stop: asyncio.Event,
    ready: Callable[[], None],
    tell: Callable[[SamplerState], None],
) -> None:
    """Watch a run until `stop` is set, and write the observations to its folder.

    `ready`: Called once, when every watch is connected and the clock offset is known.
    """
    sampling = RunSampler(api, options)
    try:
        await sampling.prepare()
        await sampling.begin()
        sampling.spawn(sampling.write_periodically(tell))
        # Callers that wait for `ready` can read the initial state.
        sampling.flush()
        ready()
        await sampling.wait_or_fail(stop.wait())
        await sampling.finish()
    except RunFailedError as error:
        sampling.note_spoil(error.what)
        raise
    finally:
        await sampling.close()
