"""Lifecycle of one test, from the sampler's start to the verdict; also after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import ConfigError, RunFailedError
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import ApiError, Connection, UnreachableError
from workbench.scaletest.local_cluster.component_processes import list_component_pids
from workbench.scaletest.observation import sampler_process
from workbench.scaletest.observation.run_records import Note
from workbench.scaletest.safety import run_cleanup, write_run_record
from workbench.scaletest.scenario import Plan
from workbench.scaletest.scenario.rbac_rules import list_kinds
from workbench.scaletest.submission import ClusterHealth, StopRequest, SubmissionOutcome, submit_plan
from workbench.scaletest.submission.submission_journal import SubmissionJournal, read_journal
from workbench.scaletest.test_run.drain import (
    ABORTED,
    DrainTarget,
    build_drain_target,
    describe_outstanding,
    wait_for_drain,
)
from workbench.scaletest.test_run.health_check import HealthCheck, PodFollower
from workbench.scaletest.test_run.node_changes import change_nodes, restore_nodes
from workbench.scaletest.test_run.run_console import SilentRunWatcher, run_until_stop
from workbench.scaletest.test_run.run_options import ClusterAccess, RunOptions, build_abort_limits, build_limits
from workbench.scaletest.test_run.run_result import RunResult
from workbench.scaletest.test_run.workload_deletion import WorkloadChurn, empty_run

# A sampler that is still starting has nothing to write.
UNREADY_LIMIT_S = 5.0
SHOWN_STEPS = ("lateness", "admission", "scheduling", "due to scheduled", "due to running")
SHOWN_QUANTILES = (0.5, 0.95, 0.99)


@dataclass
class RunLifecycle:
    """A test whose folder, plan and description are there."""

    api: Connection
    place: ClusterAccess
    plan: Plan
    record: run_folder.Run
    options: RunOptions
    others: bool
    asked: StopRequest
    watcher: SilentRunWatcher

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.record.folder

    async def run_to_end(self) -> RunResult:
        """Run it to its end."""
        await write_run_record(self.api, self.plan)
        began_ns = now_ns()
        follower = PodFollower(self.folder)
        async with self._run_sampler() as sampler:
            self._skip_existing_pods(follower)
            abort = self.plan.scenario.abort
            care = HealthCheck(sampler, follower, build_abort_limits(self.plan), others_evicted=abort.others_evicted)
            async with self._run_churn(), self._run_node_changes():
                outcome, drained = await self._submit_and_drain(follower, care, began_ns)
        self.record.record |= {"submission": dataclasses.asdict(outcome), "drained": drained}
        # What was measured by now is whole: Ctrl-C ends the cleanup after it, and takes nothing from the run.
        interrupted = self.asked.times > 0
        cleaned = await self._clean_up(aborted=outcome.aborted or drained.startswith(ABORTED))
        return self._conclude_run(outcome, drained, follower, cleaned, interrupted=interrupted)

    @property
    def _by_namespace(self) -> bool:
        """What an operator makes of a foreign kind need not carry our labels."""
        return any(entry.kind == "Template" for entry in self.plan.scenario.workloads)

    def _skip_existing_pods(self, follower: PodFollower) -> None:
        """Objects that were in the namespace before the run are not waited for."""
        before = read_journal(self.folder)
        if before.run is None:
            follower.skip_existing()
        elif self._by_namespace:
            follower.since_ns = before.origin_ns or 0

    @contextlib.asynccontextmanager
    async def _run_sampler(self) -> AsyncIterator[sampler_process.SamplerProcess]:
        """The sampler, watching before the first request and until the last pod."""
        self.watcher.show_phase("starting the sampler: it watches before the first request goes out")
        cluster = self.place.own
        sampler = sampler_process.start_sampler(
            self.folder,
            run=self.plan.run,
            namespaces=self.plan.namespaces,
            kubeconfig=self.place.kubeconfig,
            context=self.place.context,
            kinds=[str(kind) for kind in list_kinds(self.plan.scenario)],
            by_namespace=self._by_namespace,
            foreign_pods=self.others,
            audit_log=None if cluster is None else cluster.audit_log,
            side_pids=() if cluster is None else list_component_pids(cluster.folder),
            metrics=None if cluster is None else cluster.metrics,
        )
        try:
            await run_until_stop(self.asked, asyncio.to_thread(sampler.wait_until_ready))
            yield sampler
        except BaseException:
            with contextlib.suppress(ConfigError, RunFailedError):
                await asyncio.to_thread(sampler.stop)
            raise
        # A dead sampler was already reported by the submission; its observations are kept.
        with contextlib.suppress(ConfigError, RunFailedError):
            await asyncio.to_thread(sampler.stop, sampler_process.STOP_LIMIT_S if sampler.is_ready else UNREADY_LIMIT_S)

    @contextlib.asynccontextmanager
    async def _run_churn(self) -> AsyncIterator[None]:
        wanted = self.plan.schedule.select("index", "delete_after_s").drop_nulls()
        if not wanted.height:
            yield
            return
        churn = WorkloadChurn(self.api, self.folder, dict(wanted.iter_rows()), self.plan.workload_at)
        task = asyncio.create_task(churn.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if churn.error is not None:
            raise churn.error

    @contextlib.asynccontextmanager
    async def _run_node_changes(self) -> AsyncIterator[None]:
        changes, cluster, admin = self.plan.scenario.node_changes, self.place.own, self.place.admin
        if not changes or cluster is None or admin is None:
            yield
            return
        async with Connection(admin) as api:
            task = asyncio.create_task(change_nodes(api, self.folder, changes, cluster.pools))
            try:
                yield
            finally:
                task.cancel()
                (ended,) = await asyncio.gather(task, return_exceptions=True)
                await restore_nodes(api, cluster.pools)
        if isinstance(ended, Exception):
            raise ended

    async def _submit_and_drain(
        self, follower: PodFollower, care: HealthCheck, began_ns: int
    ) -> tuple[SubmissionOutcome, str]:
        missing = len(self.plan) - len(read_journal(self.folder).done)
        self.watcher.show_phase(f"submitting {missing:,} workloads as {self.plan.run}")
        outcome = await submit_plan(
            self.api,
            self.plan.iterate_workloads(),
            self.folder,
            run=self.plan.run,
            limits=build_limits(self.plan, self.options),
            aborts=build_abort_limits(self.plan),
            submitter=self.options.build_submitter(self.api, self.place),
            bursts=self.options.bursts,
            asked=self.asked,
            health=care,
            watcher=self.watcher,
        )
        if self.asked.times > 1:
            return outcome, "interrupted"
        if outcome.aborted:
            return outcome, await self._keep_sampling(care)
        self.watcher.show_phase("draining")
        # Settling starts now: on a busy machine, observations of the first pods may not be written yet.
        follower.changed_ns = now_ns()
        wall_s, awaited = self.plan.scenario.limits.wall_clock_s, self._build_drain_target()
        drained = await wait_for_drain(
            follower,
            awaited,
            settle_s=self.options.settle_s,
            until_ns=began_ns + int(wall_s * NS_PER_S),
            asked=self.asked,
            health=care,
            tell=lambda: self.watcher.show_drain(f"draining: {follower.text}"),
            watch_lag_s=build_abort_limits(self.plan).watch_lag_s,
        )
        if not drained.startswith(ABORTED):
            if (outstanding := describe_outstanding(follower, awaited, drained)) is not None:
                await self._write_spoil_note(f"{drained}, and {outstanding}")
            return outcome, drained
        await self._write_spoil_note(drained)
        return outcome, f"{drained}; {await self._keep_sampling(care)}"

    async def _write_spoil_note(self, reason: str) -> None:
        """Say in the journal that what the workloads became was not measured as it should have been, and why."""
        self.watcher.say(f"draining ends: {reason}")
        journal = SubmissionJournal(self.folder)
        try:
            await journal.write_durably([Note(now_ns(), f"{reason} (while draining)"[:1000], spoils=True)])
        finally:
            journal.close()

    async def _keep_sampling(self, care: HealthCheck) -> str:
        """After an abort: what the cluster makes of it is part of the finding."""
        keep_s = self.plan.scenario.abort.keep_sampling_s
        self.watcher.say(f"sampling continues for {keep_s:g} s; Ctrl-C ends it")
        before, end_ns = self.asked.times, now_ns() + int(keep_s * NS_PER_S)
        while now_ns() < end_ns and self.asked.times == before:
            health: ClusterHealth = care()
            self.watcher.show_drain(f"sampling on: {health.pending_pods} pods wait, {health.finished_pods} ended")
            await asyncio.sleep(0.2)
        return f"sampled for {keep_s:g} s more"

    def _build_drain_target(self) -> DrainTarget:
        """Expected pods of the accepted workloads."""
        import polars as pl

        accepted = pl.Series("index", sorted(read_journal(self.folder).acked), dtype=pl.Int64)
        rows = self.plan.schedule.filter(pl.col("index").is_in(accepted.implode()))
        return build_drain_target(rows, self.plan.scenario)

    async def _clean_up(self, *, aborted: bool) -> run_cleanup.CleanupResult | None:
        wanted = self.plan.scenario.abort.cleanup if aborted else self.options.cleanup
        if not wanted or self.asked.times:
            return None
        self.watcher.show_phase("cleaning up")
        try:
            cleanup = await run_until_stop(
                self.asked, empty_run(self.api, self.plan, self.folder, self.place, self._show_cleanup)
            )
        except (ApiError, UnreachableError, ConfigError) as error:
            # What was measured is worth more than this.
            self.watcher.say(f"cleanup failed: {error}")
            return None
        if cleanup is None:
            self.watcher.say("cleanup was interrupted: some objects are left")
        elif cleanup.left and self.options.submit_with == "command":
            self.watcher.say("what the command made has no labels of ours: delete it with the command's own program")
        return cleanup

    def _show_cleanup(self, now: run_cleanup.CleanupProgress) -> None:
        self.watcher.show_drain(f"cleanup: {now.phase}, {now.left:,} of {now.total:,} are left")

    def _conclude_run(
        self,
        outcome: SubmissionOutcome,
        drained: str,
        follower: PodFollower,
        cleaned: run_cleanup.CleanupResult | None,
        *,
        interrupted: bool,
    ) -> RunResult:
        from workbench.scaletest.analysis import raw_tables
        from workbench.scaletest.analysis.run_analysis import conclude_run

        self.watcher.show_phase("analysing the run")
        self.record.save()
        raw_tables.write_raw_tables(self.folder)
        analysis = conclude_run(self.folder)
        if interrupted:
            run_folder.load_run(self.folder).end("cancelled")
        return RunResult(
            folder=self.folder,
            run=self.plan.run,
            scheduler=self.plan.scheduler,
            outcome=outcome,
            drained=drained,
            verdict="invalid" if analysis.reasons else "valid",
            reasons=analysis.reasons,
            warnings=analysis.warnings,
            answer=analysis.answer,
            figures={
                step: {f"p{share * 100:g}_s": analysis.quantile(step, share) for share in SHOWN_QUANTILES}
                for step in SHOWN_STEPS
            },
            pods_seen=follower.seen,
            cleaned=cleaned,
            interrupted=interrupted,
        )
