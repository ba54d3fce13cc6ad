"""Run a test, check whether it could run, and resume an interrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.observation import run_conditions
from workbench.scaletest.safety import ClusterFacts, Finding, confirm_cluster
from workbench.scaletest.scenario import Plan, draw_plan, read_plan, scenario_file
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.submission import StopRequest
from workbench.scaletest.submission.submission_journal import lock_test_folder, read_journal
from workbench.scaletest.test_run.run_console import NotBegunError, SilentRunWatcher, run_in_thread, run_until_stop
from workbench.scaletest.test_run.run_lifecycle import RunLifecycle
from workbench.scaletest.test_run.run_options import ClusterAccess, RunOptions, find_cluster_access
from workbench.scaletest.test_run.run_preparation import prepare_cluster, write_run_conditions
from workbench.scaletest.test_run.run_result import RunResult

AREA = "scaletest"
TITLE = "How many workloads per second does this cluster schedule, and where does the time go?"
# Beside the workloads' own: deletions, lists, preflight.
_CONNECTIONS_BESIDE = 32


def run_test(
    source: Scenario | str | Path,
    on: ClusterAccess,
    *,
    scheduler: str | None = None,
    confirmed: str | None = None,
    options: RunOptions | None = None,
    out: str | Path | None = None,
    folder: str | Path | None = None,
    watcher: SilentRunWatcher | None = None,
    asked: StopRequest | None = None,
    command: str | None = None,
) -> RunResult:
    """Run a scenario on a cluster and analyse the result.

    `source`, `on`: The scenario or its file, and the cluster (see `find_cluster_access`).
    `confirmed`: The cluster's fingerprint, required for the first test on a cluster that is not local.
    """
    scenario = source if isinstance(source, Scenario) else scenario_file.load_scenario(source)
    if scheduler is not None and scheduler not in scenario.schedulers:
        scenario = replace_schedulers(scenario, (scheduler,))
    drawn = draw_plan(scenario, scheduler=scheduler)
    chosen, reporter = options or RunOptions(), watcher or SilentRunWatcher()

    async def body(stop_request: StopRequest) -> RunResult:
        async with Connection(on.target, max_connections=_count_connections(drawn)) as api:
            reporter.show_phase("looking at the cluster")
            facts, findings = await _check_cluster(api, drawn, on, chosen, confirmed, stop_request)
            for finding in findings:
                if finding.level == "warning":
                    reporter.say(finding.format_line())
            record = _start_run(drawn, chosen, out, folder, command)
            with lock_test_folder(record.folder):
                test = write_run_conditions(record.folder, drawn, facts, on, chosen, findings)
                reporter.say(f"run {drawn.run} in {record.folder}")
                return await _finish_run(
                    record,
                    RunLifecycle(api, on, drawn, record, chosen, test.watches_pods_of_others, stop_request, reporter),
                )

    return run_in_thread(body, asked or StopRequest(), reporter)


def check_test(
    scenario: Scenario,
    on: ClusterAccess,
    scheduler: str,
    *,
    confirmed: str | None = None,
    options: RunOptions | None = None,
    watcher: SilentRunWatcher | None = None,
    asked: StopRequest | None = None,
) -> None:
    """Run all checks of `run_test` without sending anything."""
    drawn, chosen, reporter = (
        draw_plan(scenario, scheduler=scheduler),
        options or RunOptions(),
        watcher or SilentRunWatcher(),
    )

    async def body(stop_request: StopRequest) -> None:
        async with Connection(on.target) as api:
            reporter.show_phase(f"looking at the cluster, for {scheduler}")
            await _check_cluster(api, drawn, on, chosen, confirmed, stop_request)

    run_in_thread(body, asked or StopRequest(), reporter)


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
    run_conditions.read_conditions(path)  # else there would be nothing to lock
    with lock_test_folder(path):
        return _continue_test(path, on, confirmed, cleanup, watcher or SilentRunWatcher(), asked or StopRequest())


def _continue_test(
    path: Path,
    on: ClusterAccess | None,
    confirmed: str | None,
    cleanup: bool | None,
    watcher: SilentRunWatcher,
    wish: StopRequest,
) -> RunResult:
    test, drawn, record = run_conditions.read_conditions(path), read_plan(path), run_folder.load_run(path)
    where, chosen = on or load_cluster_access(test), load_options(record)
    chosen = chosen if cleanup is None else chosen.model_copy(update={"cleanup": cleanup})

    async def body(stop_request: StopRequest) -> RunResult:
        async with Connection(where.target, max_connections=_count_connections(drawn)) as api:
            watcher.show_phase("looking at the cluster")
            facts = await confirm_same_cluster(api, where, drawn.scenario, confirmed, test)
            _check_command_fence(drawn, chosen, facts)
            before = read_journal(path)
            watcher.say(f"resuming {drawn.run}: {len(before.acked):,} of {len(drawn):,} were accepted")
            record.record |= {"status": "running", "failure": None}
            record.save()
            return await _finish_run(
                record,
                RunLifecycle(api, where, drawn, record, chosen, test.watches_pods_of_others, stop_request, watcher),
            )

    return run_in_thread(body, wish, watcher)


async def confirm_same_cluster(
    api: Connection, where: ClusterAccess, scenario: Scenario, confirmed: str | None, test: run_conditions.RunConditions
) -> ClusterFacts:
    """The cluster, confirmed, and the one that the test began on."""
    facts = await confirm_cluster(api, where.target, scenario, confirmed)
    if facts.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is another cluster than the one that the test began on",
            where=f"context {where.context}",
            found=facts.fingerprint,
            allowed=test.fingerprint,
        )
    return facts


async def _check_cluster(
    api: Connection,
    drawn: Plan,
    on: ClusterAccess,
    chosen: RunOptions,
    confirmed: str | None,
    stop_request: StopRequest,
) -> tuple[ClusterFacts, list[Finding]]:
    """What the cluster is, and what was found, none of it a reason not to begin."""
    chosen.build_submitter(api, on)
    looked = await run_until_stop(stop_request, prepare_cluster(api, drawn, on, confirmed))
    if looked is None or stop_request.times:
        raise NotBegunError
    _check_command_fence(drawn, chosen, looked[0])
    return looked


def _check_command_fence(drawn: Plan, chosen: RunOptions, facts: ClusterFacts) -> None:
    """Refuse commands on clusters with real nodes: their objects are not fenced to simulated nodes."""
    if chosen.submit_with != "command" or drawn.scenario.allow_real_nodes or facts.real_nodes == 0:
        return
    raise ConfigError(
        "what a command makes cannot be held on simulated nodes",
        where="--submit-with command",
        found=f"{facts.real_nodes:,} real node(s), {facts.real_gpu_nodes:,} of them with GPUs",
        do="test on a cluster of simulated nodes (workbench scaletest cluster up), or set allow_real_nodes: true",
    )


async def _finish_run(record: run_folder.Run, lifecycle: RunLifecycle) -> RunResult:
    """The test's result; records the failure if there is none."""
    try:
        return await lifecycle.run_to_end()
    except BaseException as error:
        message = str(error) if isinstance(error, WorkbenchError) else "see the log"
        failure = {"cell_number": None, "source": None, "error_name": type(error).__name__, "error": message[:10_000]}
        record.end("failed", failure)
        lifecycle.watcher.say(
            f"the test failed; its objects are still in the cluster.\n"
            f"  resume:   workbench scaletest run --resume {record.folder}\n"
            f"  clean up: workbench scaletest cleanup {lifecycle.plan.run}"
        )
        raise


def _start_run(
    drawn: Plan, chosen: RunOptions, out: str | Path | None, folder: str | Path | None, command: str | None
) -> run_folder.Run:
    config = {
        "run": drawn.run,
        "scenario": drawn.scenario.name,
        "scheduler": drawn.scheduler,
        "options": chosen.model_dump(mode="json"),
    }
    record = run_folder.start_run(AREA, out, folder=folder, title=TITLE, config=config, command=command)
    drawn.write(record.folder)
    return record


def replace_schedulers(scenario: Scenario, names: Sequence[str]) -> Scenario:
    """The same scenario for these schedulers: rights, checks and record are then of them."""
    try:
        return Scenario.model_validate(scenario.model_dump(mode="json") | {"schedulers": list(names)})
    except ValidationError as error:
        faults = [fault["msg"].removeprefix("Value error, ") for fault in error.errors()[:5]]
        raise ConfigError("not a scenario for these schedulers", where="--scheduler", found=faults) from None


def load_cluster_access(test: run_conditions.RunConditions) -> ClusterAccess:
    """The cluster that a test was made on, as far as its record says: a local one, else a context of that name."""
    return find_cluster_access(test.local_cluster) if test.local_cluster else find_cluster_access(context=test.context)


def load_options(record: run_folder.Run) -> RunOptions:
    """The options that the run was begun with."""
    try:
        return RunOptions.model_validate(record.record["config"]["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("not a run that can be resumed", where=record.folder, found=str(error)[:200]) from None


def _count_connections(drawn: Plan) -> int:
    return drawn.scenario.limits.in_flight + _CONNECTIONS_BESIDE
