"""Lifecycle of one test, from the sampler's start to the verdict; also after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from workbench.core.errors import ConfigError, InputError, RunFailedError, WorkbenchError
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.connection import NS_PER_S, ApiError, Connection, UnreachableError, now_ns
from workbench.scaletest.local_cluster import kueue_queues
from workbench.scaletest.local_cluster.component_processes import list_component_pids
from workbench.scaletest.observation import run_records, sampler_process
from workbench.scaletest.observation.run_records import Component, Note, RunConditions
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, raise_refusals
from workbench.scaletest.safety.cluster_setup import set_up_cluster
from workbench.scaletest.safety.confirmation import check_command_fence, confirm_cluster
from workbench.scaletest.safety.preflight import run_preflight
from workbench.scaletest.safety.run_cleanup import write_run_record
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.scheduler_recipes import find_recipe
from workbench.scaletest.scenario.workload_objects import list_kinds
from workbench.scaletest.scenario.workload_plan import Plan, describe_templates, draw_plan, read_plan, summarize_plan
from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest
from workbench.scaletest.submission.plan_submission import PlanSubmission, SubmissionOutcome
from workbench.scaletest.submission.submission_journal import SubmissionJournal, lock_test_folder, read_journal
from workbench.scaletest.test_run.drain import (
    ABORTED,
    DrainTarget,
    HealthCheck,
    PodFollower,
    build_drain_target,
    describe_outstanding,
    wait_for_drain,
)
from workbench.scaletest.test_run.node_changes import change_nodes, check_node_changes, restore_nodes
from workbench.scaletest.test_run.run_console import NotBegunError, SilentRunWatcher, run_in_thread, run_until_stop
from workbench.scaletest.test_run.run_options import (
    ClusterAccess,
    RunOptions,
    RunResult,
    build_limits,
    find_cluster_access,
)
from workbench.scaletest.test_run.workload_deletion import WorkloadChurn, empty_run

# A sampler that is still starting has nothing to write.
UNREADY_LIMIT_S = 5.0
SHOWN_STEPS = ("lateness", "admission", "scheduling", "due to scheduled", "due to running")
SHOWN_QUANTILES = (0.5, 0.95, 0.99)

# Rights that were just granted are known to the API server a moment later.
_RIGHTS_LIMIT_S = 15.0
_AGAIN_S = 0.25
AREA = "scaletest"
TITLE = "How many workloads per second does this cluster schedule, and where does the time go?"
# Beside the workloads' own: deletions, lists, preflight.
_CONNECTIONS_BESIDE = 32


@dataclass(frozen=True)
class RunContext:
    """Circumstances of a run: the cluster, the options, and who watches and stops it.

    `confirmed`: The cluster's fingerprint, required for the first test on a cluster that is not local.
    `command`: The command line, for the record.
    """

    place: ClusterAccess
    options: RunOptions = field(default_factory=RunOptions)
    confirmed: str | None = None
    command: str | None = None
    watcher: SilentRunWatcher = field(default_factory=SilentRunWatcher)
    asked: StopRequest = field(default_factory=StopRequest)


class RunLifecycle:
    """Lifecycle of a test whose folder, plan and conditions are written.

    `others`: Whether pods of other users are watched.
    """

    def __init__(
        self, api: Connection, plan: Plan, record: run_folder.Run, context: RunContext, *, others: bool
    ) -> None:
        self.api, self.plan, self.record, self.others = api, plan, record, others
        self.folder, self.place, self.options = record.folder, context.place, context.options
        self.asked, self.watcher = context.asked, context.watcher

    async def run_to_end(self) -> RunResult:
        """Run the test to its end."""
        await write_run_record(self.api, self.plan)
        began_ns = now_ns()
        follower = PodFollower(self.folder)
        async with self._run_sampler() as sampler:
            self._skip_existing_pods(follower)
            criteria = self.plan.scenario.abort
            if self.plan.scenario.node_changes:
                # A node that comes back is not ready at first.
                criteria = criteria.model_copy(update={"node_not_ready": False})
            care = HealthCheck(sampler, follower, criteria)
            async with self._run_churn(), self._run_node_changes():
                outcome, drained = await self._submit_and_drain(follower, care, began_ns)
        self.record.record |= {"submission": dataclasses.asdict(outcome), "drained": drained}
        # What was measured by now is whole: Ctrl-C ends the cleanup after it, and takes nothing from the run.
        interrupted = self.asked.times > 0
        cleaned = await self._clean_up(aborted=outcome.aborted or drained.startswith(ABORTED))
        return self._conclude_run(outcome, drained, follower, cleaned, interrupted=interrupted)

    @property
    def _by_namespace(self) -> bool:
        """Whether to watch whole namespaces: what an operator makes of a foreign kind need not carry our labels."""
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
        options = sampler_process.SamplerOptions(
            folder=self.folder,
            run=self.plan.run,
            namespaces=self.plan.namespaces,
            kubeconfig=self.place.kubeconfig,
            context=self.place.context,
            kinds=tuple(list_kinds(self.plan.scenario)),
            by_namespace=self._by_namespace,
            foreign_pods=self.others,
            audit_log=None if cluster is None else cluster.audit_log,
            side_pids=() if cluster is None else tuple(list_component_pids(cluster.folder)),
            metrics={} if cluster is None else dict(cluster.metrics),
        )
        sampler = sampler_process.start_sampler(options)
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
        submission = PlanSubmission(
            self.api,
            self.folder,
            run=self.plan.run,
            limits=build_limits(self.plan, self.options),
            aborts=self.plan.scenario.abort,
            submitter=self.options.build_submitter(self.api, self.place),
            burst_size=self.options.processes if self.options.closed else None,
            burst_delay_s=self.options.delay_s,
            asked=self.asked,
            health=care,
            watcher=self.watcher,
        )
        outcome = await submission.submit(self.plan.iterate_workloads())
        if self.asked.times > 1:
            return outcome, "interrupted"
        if outcome.aborted:
            return outcome, await self._keep_sampling(care)
        self.watcher.show_phase("draining")
        # Settling starts now: on a busy machine, observations of the first pods may not be written yet.
        follower.changed_ns = now_ns()
        wall_s, awaited = self.plan.scenario.limits.wall_clock_s, self._build_drain_target()

        def check_health() -> ClusterHealth:
            health = care()
            self.watcher.show_drain(f"draining: {follower.text}")
            return health

        drained = await wait_for_drain(
            follower,
            awaited,
            settle_s=self.options.settle_s,
            until_ns=began_ns + int(wall_s * NS_PER_S),
            asked=self.asked,
            health=check_health,
            watch_lag_s=self.plan.scenario.abort.watch_lag_s,
        )
        if not drained.startswith(ABORTED):
            if (outstanding := describe_outstanding(follower, awaited, drained)) is not None:
                await self._write_spoil_note(f"{drained}, and {outstanding}")
            return outcome, drained
        await self._write_spoil_note(drained)
        return outcome, f"{drained}; {await self._keep_sampling(care)}"

    async def _write_spoil_note(self, reason: str) -> None:
        """Note in the journal why the workloads' ends were not measured as they should have been."""
        self.watcher.say(f"draining ends: {reason}")
        journal = SubmissionJournal(self.folder)
        try:
            await journal.write_durably([Note(now_ns(), f"{reason} (while draining)"[:1000], spoils=True)])
        finally:
            journal.close()

    async def _keep_sampling(self, care: HealthCheck) -> str:
        """Keep sampling after an abort: the cluster's reaction is part of the finding."""
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
            self.watcher.say("cleanup was interrupted: some objects remain")
        elif cleanup.left and self.options.submit_with == "command":
            self.watcher.say(
                "objects that the command created lack our labels: delete them with the command's own program"
            )
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


def format_announcement(test_scenario: Scenario, schedulers: Sequence[str], repeat: int) -> str:
    """Announce the number of runs, and how long each takes at least.

    Source of the time: from the first workload to the end of the last pod, if every pod runs at once; where some run
    until they are deleted, to the last workload. Does not show: the time until pods have room, and the cleanup.
    """
    size = summarize_plan(draw_plan(test_scenario, scheduler=schedulers[0]))
    least_s = max(size.submission_s, size.ends_s or 0.0)
    minutes = f"{least_s / 60:.1f} min" if least_s >= 90 else f"{least_s:.0f} s"
    return (
        f"{repeat * len(schedulers)} runs, {repeat} of each of {', '.join(schedulers)}, each of at least {minutes} "
        f"and its cleanup; --scheduler {schedulers[0]} for one run of one side"
    )


def build_run_conditions(
    plan: Plan, facts: ClusterFacts, context: RunContext, findings: Sequence[Finding]
) -> RunConditions:
    """Build the document of `test.json`."""
    place, options, cluster = context.place, context.options, context.place.own
    # How the parts were started is known of a local cluster only.
    unknown = (Component(name="kube-apiserver", version=facts.server_version),)
    notes = [f"{finding.check}: {finding.text}" for finding in findings if finding.level == "warning"]
    if facts.other_pods is None:
        notes.append("the identity may not see pods of others: whether they were evicted or had to wait is unknown")
    return RunConditions(
        run=plan.run,
        scenario_name=plan.scenario.name,
        scenario_sha256=scenario_file.hash_scenario(plan.scenario),
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        context=place.context,
        fingerprint=facts.fingerprint,
        server_sha256=facts.server_sha256,
        server_version=facts.server_version,
        identity=facts.identity,
        identity_groups=facts.groups,
        namespaces=plan.namespaces,
        schedulers=(plan.scheduler, *sorted(set(plan.pod_schedulers) - {plan.conditions.scheduler_name})),
        simulated_nodes=not plan.scenario.allow_real_nodes or facts.real_nodes == 0,
        local_cluster=None if cluster is None else cluster.name,
        provider=None if cluster is None else cluster.provider,
        components=unknown if cluster is None else cluster.components,
        mode=options.submit_with,
        closed=options.closed,
        watches_pods_of_others=facts.other_pods is not None,
        reads_audit_log=cluster is not None and cluster.audit_log is not None,
        in_turn=any(entry.in_turn for entry in plan.scenario.workloads),
        replay_speed=plan.replay_speed,
        queue_quotas={} if cluster is None else dict(cluster.queue_quotas),
        node_changes=tuple(map(str, plan.scenario.node_changes)),
        beside_others=options.beside_others,
        notes=tuple(notes),
    )


async def _prepare_cluster(api: Connection, plan: Plan, context: RunContext) -> tuple[ClusterFacts, list[Finding]]:
    """Confirm the cluster, set up what a local one of ours needs, look at everything else."""
    place = context.place
    _check_scheduler_runs(plan, place)
    check_node_changes(plan, place)
    facts = await confirm_cluster(api, plan.scenario, context.confirmed)
    if place.admin is not None:
        assert place.admin is not None and place.own is not None  # noqa: PT018 -- one with the other
        async with Connection(place.admin) as admin:
            if plan.scenario.node_changes:
                await restore_nodes(admin, place.own.pools)
            # Without a quota: each pod would cost the API server one more write, and the cluster is for this alone.
            await set_up_cluster(admin, plan, quota=False)
            if plan.conditions.recipe.program == "kueue":
                queues = {entry.queue for entry in plan.scenario.workloads}
                for namespace in plan.namespaces:
                    await kueue_queues.create_local_queues(admin, namespace, queues)
    beside = context.options.beside_others
    return facts, await check_cluster(api, plan, facts, patient=place.admin is not None, beside_others=beside)


def _check_scheduler_runs(plan: Plan, place: ClusterAccess) -> None:
    """Refuse a scheduler that the local cluster does not run; other clusters' schedulers are not known."""
    if place.own is None:
        return
    if plan.scheduler in place.own.schedulers:
        # Refuse a template's own schedulerName that none of the local cluster's schedulers has.
        running = {find_recipe(name, plan.scenario.recipes).pods_scheduler for name in place.own.schedulers}
        if missing := sorted(set(plan.pod_schedulers) - running):
            raise ConfigError(
                "a template names a scheduler that does not run on the local cluster: its pods would wait forever",
                where="schedulerName",
                found=missing,
                allowed=sorted(running),
                do="write ${scheduler} into the template, or run on a cluster that has it: --context",
            )
        return
    recipe = plan.conditions.recipe
    up = f"workbench scaletest cluster up --name NEW --scheduler {recipe.short or plan.scheduler}"
    raise ConfigError(
        "this scheduler does not run on the local cluster",
        where="--scheduler",
        found=plan.scheduler,
        allowed=list(place.own.schedulers),
        do="run on a cluster that has it: --context instead of --cluster" if recipe.program == "cluster" else up,
    )


async def check_cluster(
    api: Connection,
    plan: Plan,
    facts: ClusterFacts,
    *,
    patient: bool,
    by_command: bool = False,
    beside_others: bool = False,
) -> list[Finding]:
    """Check the cluster before a run, and refuse one that is not fit for it.

    `patient`: Check again for some seconds: the API server is still to learn of the rights that setup has granted.
    """
    end_ns = now_ns() + int(_RIGHTS_LIMIT_S * NS_PER_S if patient else 0)
    while True:
        findings = await run_preflight(api, plan, facts, by_command=by_command, beside_others=beside_others)
        if not any(finding.level == "refused" for finding in findings) or now_ns() > end_ns:
            raise_refusals(findings)
            return findings
        await asyncio.sleep(_AGAIN_S)


def run_test(
    source: Scenario | str | Path,
    context: RunContext,
    *,
    scheduler: str | None = None,
    out: str | Path | None = None,
    folder: str | Path | None = None,
) -> RunResult:
    """Run a scenario on a cluster and analyse the result.

    `source`: The scenario or its file.
    `out`, `folder`: Folder for the new run folder; the run folder itself.
    """
    scenario = source if isinstance(source, Scenario) else scenario_file.load_scenario(source)
    if scheduler is not None and scheduler not in scenario.schedulers:
        scenario = replace_schedulers(scenario, (scheduler,))
    plan, watcher = draw_plan(scenario, scheduler=scheduler), context.watcher

    async def body() -> RunResult:
        async with _connect(context.place, plan) as api:
            watcher.show_phase("looking at the cluster")
            for text in describe_templates(plan):
                watcher.say(f"template    {text}")
            facts, findings = await _check_cluster(api, plan, context)
            for finding in findings:
                if finding.level == "warning":
                    watcher.say(finding.format_line())
            config = {
                "run": plan.run,
                "scenario": plan.scenario.name,
                "scheduler": plan.scheduler,
                "options": context.options.model_dump(mode="json"),
            }
            record = run_folder.start_run(AREA, out, folder=folder, title=TITLE, config=config, command=context.command)
            plan.write(record.folder)
            with lock_test_folder(record.folder):
                test = build_run_conditions(plan, facts, context, findings)
                run_records.write_conditions(record.folder, test)
                watcher.say(f"run {plan.run} in {record.folder}")
                return await _finish_run(RunLifecycle(api, plan, record, context, others=test.watches_pods_of_others))

    return run_in_thread(body, context.asked, watcher)


def check_test(scenario: Scenario, context: RunContext, scheduler: str) -> None:
    """Run all checks of `run_test` without sending anything."""
    plan = draw_plan(scenario, scheduler=scheduler)

    async def body() -> None:
        async with Connection(context.place.target) as api:
            context.watcher.show_phase(f"looking at the cluster, for {scheduler}")
            await _check_cluster(api, plan, context)

    run_in_thread(body, context.asked, context.watcher)


def resume_test(
    folder: str | Path,
    on: ClusterAccess | None = None,
    *,
    confirmed: str | None = None,
    cleanup: bool | None = None,
    watcher: SilentRunWatcher | None = None,
    asked: StopRequest | None = None,
) -> RunResult:
    """Resume a test: the missing workloads are sent, and the sampler restarts with its gap marked.

    `on`: The cluster; without it the one of the run: its local cluster, else its context in the usual kubeconfig.
    `cleanup`: Whether its objects are deleted at the end; by default as when it was started.
    """
    path = Path(folder).absolute()
    run_records.read_conditions(path)  # else there would be nothing to lock
    with lock_test_folder(path):
        test, plan, record = run_records.read_conditions(path), read_plan(path), run_folder.load_run(path)
        options = load_options(record)
        options = options if cleanup is None else options.model_copy(update={"cleanup": cleanup})
        place, reporter = on or load_cluster_access(test), watcher or SilentRunWatcher()
        context = RunContext(place, options, confirmed, watcher=reporter, asked=asked or StopRequest())

        async def body() -> RunResult:
            async with _connect(place, plan) as api:
                reporter.show_phase("looking at the cluster")
                facts = await confirm_same_cluster(api, context, plan.scenario, test)
                _check_command_fence(plan, options, facts)
                reporter.say(f"resuming {plan.run}: {len(read_journal(path).acked):,} of {len(plan):,} were accepted")
                record.record |= {"status": "running", "failure": None}
                record.save()
                return await _finish_run(RunLifecycle(api, plan, record, context, others=test.watches_pods_of_others))

        return run_in_thread(body, context.asked, reporter)


def _connect(place: ClusterAccess, plan: Plan) -> Connection:
    return Connection(place.target, max_connections=plan.scenario.limits.in_flight + _CONNECTIONS_BESIDE)


async def confirm_same_cluster(
    api: Connection, context: RunContext, scenario: Scenario, test: RunConditions
) -> ClusterFacts:
    """Confirm the cluster, and that it is the one that the test began on."""
    facts = await confirm_cluster(api, scenario, context.confirmed)
    if facts.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is not the cluster on which the test began",
            where=f"context {context.place.context}",
            found=facts.fingerprint,
            allowed=test.fingerprint,
        )
    return facts


async def _check_cluster(api: Connection, plan: Plan, context: RunContext) -> tuple[ClusterFacts, list[Finding]]:
    """Return the cluster's facts and all findings, none of which blocks the run."""
    context.options.build_submitter(api, context.place)
    looked = await run_until_stop(context.asked, _prepare_cluster(api, plan, context))
    if looked is None or context.asked.times:
        raise NotBegunError
    _check_command_fence(plan, context.options, looked[0])
    return looked


def _check_command_fence(plan: Plan, options: RunOptions, facts: ClusterFacts) -> None:
    """Refuse commands on clusters with real nodes: their objects are not fenced to simulated nodes."""
    if options.submit_with == "command":
        raise_refusals(check_command_fence(plan.scenario, facts))


async def _finish_run(lifecycle: RunLifecycle) -> RunResult:
    """Run to the end, and record a failure."""
    try:
        return await lifecycle.run_to_end()
    except BaseException as error:
        message = str(error) if isinstance(error, WorkbenchError) else "see the log"
        lifecycle.record.end("failed", run_folder.build_failure(type(error).__name__, message[:10_000]))
        lifecycle.watcher.say(
            f"the test failed; its objects are still in the cluster.\n"
            f"  resume:   workbench scaletest run --resume {lifecycle.folder}\n"
            f"  clean up: workbench scaletest cleanup {lifecycle.plan.run}"
        )
        raise


def replace_schedulers(scenario: Scenario, names: Sequence[str]) -> Scenario:
    """Replace the schedulers of a scenario, so that its rights, checks and record are of these."""
    try:
        given = scenario.model_dump(mode="json", exclude_unset=True)
        return Scenario.model_validate(given | {"schedulers": list(names)})
    except ValidationError as error:
        faults = [fault["msg"].removeprefix("Value error, ") for fault in error.errors()[:5]]
        raise ConfigError("not a scenario for these schedulers", where="--scheduler", found=faults) from None


def load_cluster_access(test: RunConditions) -> ClusterAccess:
    """The cluster that a test was made on, as far as its record says: a local one, else a context of that name."""
    return find_cluster_access(test.local_cluster) if test.local_cluster else find_cluster_access(context=test.context)


def load_options(record: run_folder.Run) -> RunOptions:
    """The options that the run was begun with."""
    try:
        return RunOptions.model_validate(record.record["config"]["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("not a run that can be resumed", where=record.folder, found=str(error)[:200]) from None
