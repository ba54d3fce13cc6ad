"""Tests, begun and gone on with: `run` and `resume`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from workbench import runs
from workbench.errors import ConfigError, InputError, WorkbenchError
from workbench.scaletest import facts, scenario
from workbench.scaletest.connection import Connection
from workbench.scaletest.driving import Asked
from workbench.scaletest.driving.journal import state
from workbench.scaletest.driving.locking import alone
from workbench.scaletest.planning import Plan, plan, read
from workbench.scaletest.running.asking import NotBegunError, in_a_thread, unless_asked
from workbench.scaletest.running.describing import describe
from workbench.scaletest.running.options import Options
from workbench.scaletest.running.place import Place, place
from workbench.scaletest.running.preparing import prepare
from workbench.scaletest.running.progress import Silence
from workbench.scaletest.running.result import RunResult
from workbench.scaletest.running.whole import Whole
from workbench.scaletest.safety import Finding, TargetFacts, confirm
from workbench.scaletest.scenario import Scenario

AREA = "scaletest"
TITLE = "How many workloads per second does this cluster schedule, and where does the time go?"
# Beside the workloads' own: deletions, lists, preflight.
_CONNECTIONS_BESIDE = 32


def run(
    given: Scenario | str | Path,
    on: Place,
    *,
    scheduler: str | None = None,
    confirmed: str | None = None,
    options: Options | None = None,
    out: str | Path | None = None,
    folder: str | Path | None = None,
    watcher: Silence | None = None,
    asked: Asked | None = None,
    command: str | None = None,
) -> RunResult:
    """Test a cluster as a scenario says, and work out what came of it.

    Parameters
    ----------
    given
        The scenario, or its file.
    on
        The cluster, see `place`.
    scheduler
        schedulerName of the pods; the scenario's first without.
    confirmed
        The cluster's fingerprint, where it was not tested before. A local cluster of ours needs none.
    out, folder
        Folder below which the run gets its own, the usual place without; or just that folder.
    asked
        How somebody ends it; Ctrl-C does, too, where this is the main thread.

    Returns
    -------
    RunResult
        Also of a test that was ended early: its verdict says so.

    Raises
    ------
    ConfigError
        It was not begun, and why.
    KeyboardInterrupt
        Somebody ended it before it was begun.
    WorkbenchError
        It broke off; the run folder says how, and can be gone on with by `resume`.
    """
    made = given if isinstance(given, Scenario) else scenario.load(given)
    if scheduler is not None and scheduler not in made.schedulers:
        made = with_schedulers(made, (scheduler,))
    drawn = plan(made, scheduler=scheduler)
    chosen, told = options or Options(), watcher or Silence()

    async def body(asked: Asked) -> RunResult:
        async with Connection(on.target, most=_connections(drawn)) as api:
            told.phase("looking at the cluster")
            found, findings = await _allowed(api, drawn, on, chosen, confirmed, asked)
            for one in findings:
                if one.level == "warning":
                    told.say(one.line())
            record = _begun(drawn, chosen, out, folder, command)
            with alone(record.folder):
                test = describe(record.folder, drawn, found, on, chosen, findings)
                told.say(f"run {drawn.run} in {record.folder}")
                return await _ended_well(
                    record, Whole(api, on, drawn, record, chosen, test.watches_pods_of_others, asked, told)
                )

    return in_a_thread(body, asked or Asked(), told)


def check(
    given: Scenario,
    on: Place,
    scheduler: str,
    *,
    confirmed: str | None = None,
    options: Options | None = None,
    watcher: Silence | None = None,
    asked: Asked | None = None,
) -> None:
    """Look at all that `run` looks at before it begins, and send nothing.

    Raises
    ------
    ConfigError
        It must not begin, with all the reasons.
    ApiError, AwayError
        The cluster refused to be looked at, or cannot be reached.
    """
    drawn, chosen, told = plan(given, scheduler=scheduler), options or Options(), watcher or Silence()

    async def body(asked: Asked) -> None:
        async with Connection(on.target) as api:
            told.phase(f"looking at the cluster, for {scheduler}")
            await _allowed(api, drawn, on, chosen, confirmed, asked)

    in_a_thread(body, asked or Asked(), told)


def resume(
    folder: str | Path,
    on: Place | None = None,
    *,
    confirmed: str | None = None,
    cleanup: bool | None = None,
    watcher: Silence | None = None,
    asked: Asked | None = None,
) -> RunResult:
    """Go on with a test that broke off: what is missing is sent, the sampler starts anew, its gap is marked.

    Parameters
    ----------
    on
        The cluster; without it the one of the run: its local cluster, else its context in the usual kubeconfig.
    cleanup
        Whether its objects are deleted at the end; as it was begun without.

    Raises
    ------
    InputError
        It is no folder of a test, or the plan in it was changed.
    ConfigError
        It is another cluster than before, or another process is at this run.
    """
    path = Path(folder).absolute()
    facts.read(path)  # else there would be nothing to lock
    with alone(path):
        return _gone_on_with(path, on, confirmed, cleanup, watcher or Silence(), asked or Asked())


def _gone_on_with(
    path: Path, on: Place | None, confirmed: str | None, cleanup: bool | None, told: Silence, asked: Asked
) -> RunResult:
    test, drawn, record = facts.read(path), read(path), runs.load(path)
    where, chosen = on or where_of(test), kept(record)
    chosen = chosen if cleanup is None else chosen.model_copy(update={"cleanup": cleanup})

    async def body(asked: Asked) -> RunResult:
        async with Connection(where.target, most=_connections(drawn)) as api:
            told.phase("looking at the cluster")
            found = await the_same(api, where, drawn.scenario, confirmed, test)
            _refuse_unfenced(drawn, chosen, found)
            before = state(path)
            told.say(f"going on with {drawn.run}: {len(before.acked):,} of {len(drawn):,} were accepted")
            record.record |= {"status": "running", "failure": None}
            record.save()
            return await _ended_well(
                record, Whole(api, where, drawn, record, chosen, test.watches_pods_of_others, asked, told)
            )

    return in_a_thread(body, asked, told)


async def the_same(
    api: Connection, where: Place, made: Scenario, confirmed: str | None, test: facts.Test
) -> TargetFacts:
    """The cluster, confirmed, and the one that the test began on.

    Raises
    ------
    ConfigError
        It is another.
    """
    found = await confirm(api, where.target, made, confirmed)
    if found.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is another cluster than the one that the test began on",
            where=f"context {where.context}",
            found=found.fingerprint,
            allowed=test.fingerprint,
        )
    return found


async def _allowed(
    api: Connection, drawn: Plan, on: Place, chosen: Options, confirmed: str | None, asked: Asked
) -> tuple[TargetFacts, list[Finding]]:
    """What the cluster is, and what was found, none of it a reason not to begin."""
    chosen.way(api, on)
    looked = await unless_asked(asked, prepare(api, drawn, on, confirmed))
    if looked is None or asked.times:
        raise NotBegunError
    _refuse_unfenced(drawn, chosen, looked[0])
    return looked


def _refuse_unfenced(drawn: Plan, chosen: Options, found: TargetFacts) -> None:
    """A command makes objects of its own: that ours would stay on simulated nodes says nothing of them."""
    if chosen.submit_with != "command" or drawn.scenario.allow_real_nodes or found.real_nodes == 0:
        return
    raise ConfigError(
        "what a command makes cannot be held on simulated nodes",
        where="--submit-with command",
        found=f"{found.real_nodes:,} real node(s), {found.real_gpu_nodes:,} of them with GPUs",
        do="test on a cluster of simulated nodes (workbench scaletest cluster up), or set allow_real_nodes: true",
    )


async def _ended_well(record: runs.Run, whole: Whole) -> RunResult:
    """The test's result; a record of what it broke off with, where there is none."""
    try:
        return await whole.done()
    except BaseException as error:
        told = str(error) if isinstance(error, WorkbenchError) else "see the log"
        failure = {"cell_number": None, "source": None, "error_name": type(error).__name__, "error": told[:10_000]}
        record.end("failed", failure)
        whole.watcher.say(
            f"the test broke off; its objects are still there.\n"
            f"  go on:    workbench scaletest run --resume {record.folder}\n"
            f"  clean up: workbench scaletest cleanup {whole.plan.run}"
        )
        raise


def _begun(
    drawn: Plan, chosen: Options, out: str | Path | None, folder: str | Path | None, command: str | None
) -> runs.Run:
    config = {
        "run": drawn.run,
        "scenario": drawn.scenario.name,
        "scheduler": drawn.scheduler,
        "options": chosen.model_dump(mode="json"),
    }
    record = runs.start(AREA, out, folder=folder, title=TITLE, config=config, command=command)
    drawn.write(record.folder)
    return record


def with_schedulers(made: Scenario, names: Sequence[str]) -> Scenario:
    """The same scenario for these schedulers: rights, checks and record are then of them.

    Raises
    ------
    ConfigError
        It cannot be run on one of them.
    """
    try:
        return Scenario.model_validate(made.model_dump(mode="json") | {"schedulers": list(names)})
    except ValidationError as error:
        found = [one["msg"].removeprefix("Value error, ") for one in error.errors()[:5]]
        raise ConfigError("not a scenario for these schedulers", where="--scheduler", found=found) from None


def where_of(test: facts.Test) -> Place:
    """The cluster that a test was made on, as far as its record says: a local one, else a context of that name."""
    return place(test.local_cluster) if test.local_cluster else place(context=test.context)


def kept(record: runs.Run) -> Options:
    """The options that the run was begun with."""
    try:
        return Options.model_validate(record.record["config"]["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("not a run that can be gone on with", where=record.folder, found=str(error)[:200]) from None


def _connections(drawn: Plan) -> int:
    return drawn.scenario.limits.in_flight + _CONNECTIONS_BESIDE
