"""One whole test, from the sampler's start to the verdict; also one that goes on after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from workbench import runs
from workbench.errors import ConfigError, RunFailedError
from workbench.scaletest import cleanup
from workbench.scaletest.connection import ApiError, AwayError, Connection
from workbench.scaletest.driving import Asked, Health, Outcome, submit
from workbench.scaletest.driving.journal import Journal, state
from workbench.scaletest.planning import Plan
from workbench.scaletest.planning.rights import kinds
from workbench.scaletest.records import Note
from workbench.scaletest.running.asking import unless_asked
from workbench.scaletest.running.caring import Care
from workbench.scaletest.running.churning import Churn
from workbench.scaletest.running.draining import ABORTED, Expected, drain, expected, outstanding
from workbench.scaletest.running.emptying import empty
from workbench.scaletest.running.following import Follower
from workbench.scaletest.running.options import Options, aborts, limits
from workbench.scaletest.running.place import Place
from workbench.scaletest.running.progress import Silence
from workbench.scaletest.running.result import RunResult
from workbench.scaletest.safety import record_run
from workbench.scaletest.times import NS, now_ns
from workbench.scaletest.watching import process

# A sampler that is still starting has nothing to write.
UNREADY_LIMIT_S = 5.0
SHOWN = ("lateness", "admission", "scheduling", "due to scheduled", "due to running")
SHARES = (0.5, 0.95, 0.99)


@dataclass
class Whole:
    """A test whose folder, plan and description are there.

    Attributes
    ----------
    others
        Pods of others may be watched.
    """

    api: Connection
    place: Place
    plan: Plan
    record: runs.Run
    options: Options
    others: bool
    asked: Asked
    watcher: Silence

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.record.folder

    async def done(self) -> RunResult:
        """Run it to its end."""
        await record_run(self.api, self.plan)
        began_ns = now_ns()
        follower = Follower(self.folder)
        async with self._sampler() as sampler:
            self._begin(follower)
            abort = self.plan.scenario.abort
            care = Care(sampler, follower, aborts(self.plan), others_evicted=abort.others_evicted)
            async with self._churn():
                outcome, drained = await self._sent_and_drained(follower, care, began_ns)
        self.record.record |= {"submission": dataclasses.asdict(outcome), "drained": drained}
        # What was measured by now is whole: Ctrl-C ends the cleanup after it, and takes nothing from the run.
        interrupted = self.asked.times > 0
        cleaned = await self._cleaned(aborted=outcome.aborted or drained.startswith(ABORTED))
        return self._concluded(outcome, drained, follower, cleaned, interrupted=interrupted)

    @property
    def _by_namespace(self) -> bool:
        """What an operator makes of a foreign kind need not carry our labels."""
        return any(entry.kind == "Template" for entry in self.plan.scenario.workloads)

    def _begin(self, follower: Follower) -> None:
        """Objects that were in the namespace before the run are not waited for."""
        before = state(self.folder)
        if before.run is None:
            follower.pass_over()
        elif self._by_namespace:
            follower.since_ns = before.origin_ns or 0

    @contextlib.asynccontextmanager
    async def _sampler(self) -> AsyncIterator[process.Sampler]:
        """The sampler, watching before the first request and until the last pod."""
        self.watcher.phase("starting the sampler: it watches before the first request goes out")
        own = self.place.own
        sampler = process.start(
            self.folder,
            run=self.plan.run,
            namespaces=self.plan.namespaces,
            kubeconfig=self.place.kubeconfig,
            context=self.place.context,
            kinds=[str(kind) for kind in kinds(self.plan.scenario)],
            by_namespace=self._by_namespace,
            foreign_pods=self.others,
            audit_log=None if own is None else own.audit_log,
        )
        try:
            await unless_asked(self.asked, asyncio.to_thread(sampler.ready))
            yield sampler
        except BaseException:
            with contextlib.suppress(ConfigError, RunFailedError):
                await asyncio.to_thread(sampler.stop)
            raise
        # One that died is trouble that submission has told already: what it saw is kept.
        with contextlib.suppress(ConfigError, RunFailedError):
            await asyncio.to_thread(sampler.stop, process.STOP_LIMIT_S if sampler.is_ready else UNREADY_LIMIT_S)

    @contextlib.asynccontextmanager
    async def _churn(self) -> AsyncIterator[None]:
        wanted = self.plan.schedule.select("index", "delete_after_s").drop_nulls()
        if not wanted.height:
            yield
            return
        churn = Churn(self.api, self.folder, dict(wanted.iter_rows()), self.plan.one)
        task = asyncio.create_task(churn.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if churn.error is not None:
            raise churn.error

    async def _sent_and_drained(self, follower: Follower, care: Care, began_ns: int) -> tuple[Outcome, str]:
        missing = len(self.plan) - len(state(self.folder).done)
        self.watcher.phase(f"submitting {missing:,} workloads as {self.plan.run}")
        outcome = await submit(
            self.api,
            self.plan.planned(),
            self.folder,
            run=self.plan.run,
            limits=limits(self.plan, self.options),
            aborts=aborts(self.plan),
            submitter=self.options.way(self.api, self.place),
            bursts=self.options.bursts,
            asked=self.asked,
            health=care,
            watcher=self.watcher,
        )
        if self.asked.times > 1:
            return outcome, "interrupted"
        if outcome.aborted:
            return outcome, await self._keep_sampling(care)
        self.watcher.phase("draining")
        wall_s, awaited = self.plan.scenario.limits.wall_clock_s, self._expected()
        drained = await drain(
            follower,
            awaited,
            settle_s=self.options.settle_s,
            until_ns=began_ns + int(wall_s * NS),
            asked=self.asked,
            health=care,
            tell=lambda: self.watcher.draining(f"draining: {follower.text}"),
            watch_lag_s=aborts(self.plan).watch_lag_s,
        )
        if not drained.startswith(ABORTED):
            if (left := outstanding(follower, awaited, drained)) is not None:
                await self._spoilt(f"{drained}, and {left}")
            return outcome, drained
        await self._spoilt(drained)
        return outcome, f"{drained}; {await self._keep_sampling(care)}"

    async def _spoilt(self, why: str) -> None:
        """Say in the journal that what the workloads became was not measured as it should have been, and why."""
        self.watcher.say(f"draining ends: {why}")
        journal = Journal(self.folder)
        try:
            await journal.durable([Note(now_ns(), f"{why} (while draining)"[:1000], spoils=True)])
        finally:
            journal.close()

    async def _keep_sampling(self, care: Care) -> str:
        """After an abort: what the cluster makes of it is part of the finding."""
        keep_s = self.plan.scenario.abort.keep_sampling_s
        self.watcher.say(f"sampling goes on for {keep_s:g} s; Ctrl-C ends that")
        before, end_ns = self.asked.times, now_ns() + int(keep_s * NS)
        while now_ns() < end_ns and self.asked.times == before:
            found: Health = care()
            self.watcher.draining(f"sampling on: {found.pending_pods} pods wait, {found.finished_pods} ended")
            await asyncio.sleep(0.2)
        return f"sampled for {keep_s:g} s more"

    def _expected(self) -> Expected:
        """What the workloads come to that the cluster has."""
        import polars as pl

        accepted = pl.Series("index", sorted(state(self.folder).acked), dtype=pl.Int64)
        rows = self.plan.schedule.filter(pl.col("index").is_in(accepted.implode()))
        return expected(rows, self.plan.scenario)

    async def _cleaned(self, *, aborted: bool) -> cleanup.Cleaned | None:
        wanted = self.plan.scenario.abort.cleanup if aborted else self.options.cleanup
        if not wanted or self.asked.times:
            return None
        self.watcher.phase("cleaning up")
        try:
            found = await unless_asked(
                self.asked, empty(self.api, self.plan, self.folder, self.place, self._tell_cleanup)
            )
        except (ApiError, AwayError, ConfigError) as error:
            # What was measured is worth more than this.
            self.watcher.say(f"cleanup did not get through: {error}")
            return None
        if found is None:
            self.watcher.say("cleanup was ended: some of the objects are still there")
        elif found.left and self.options.submit_with == "command":
            self.watcher.say("what the command made has no labels of ours: delete it with the command's own program")
        return found

    def _tell_cleanup(self, now: cleanup.Progress) -> None:
        self.watcher.draining(f"cleanup: {now.phase}, {now.left:,} of {now.total:,} are left")

    def _concluded(
        self,
        outcome: Outcome,
        drained: str,
        follower: Follower,
        cleaned: cleanup.Cleaned | None,
        *,
        interrupted: bool,
    ) -> RunResult:
        from workbench.scaletest import reducing
        from workbench.scaletest.analysing import conclude

        self.watcher.phase("working it out")
        self.record.save()
        reducing.reduce(self.folder)
        found = conclude(self.folder)
        if interrupted:
            runs.load(self.folder).end("cancelled")
        return RunResult(
            folder=self.folder,
            run=self.plan.run,
            scheduler=self.plan.scheduler,
            outcome=outcome,
            drained=drained,
            verdict="invalid" if found.reasons else "valid",
            reasons=found.reasons,
            warnings=found.warnings,
            answer=found.answer,
            figures={step: {f"p{share * 100:g}_s": found.quantile(step, share) for share in SHARES} for step in SHOWN},
            pods_seen=follower.seen,
            cleaned=cleaned,
            interrupted=interrupted,
        )
