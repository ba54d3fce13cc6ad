"""Runs of one plan with several schedulers in turn, each on an emptied cluster.

Two take turns (A B B A …); of more, the order of each round is drawn. That spreads drift of the machine evenly over the
variants. On a local cluster only the schedulers of the turn run. The unit of replication is the run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.files import default_out
from workbench.runs import run_folder
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.variants import MAX_REPEAT, Session, VariantRun
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import second_schedulers
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.scheduler_recipes import find_recipe
from workbench.scaletest.scenario.workload_plan import read_plan
from workbench.scaletest.submission.abort_criteria import StopRequest
from workbench.scaletest.submission.submission_journal import lock_test_folder
from workbench.scaletest.test_run.run_console import SilentRunWatcher
from workbench.scaletest.test_run.run_lifecycle import (
    AREA,
    RunContext,
    check_test,
    confirm_same_cluster,
    format_announcement,
    load_cluster_access,
    load_options,
    replace_schedulers,
    run_test,
)
from workbench.scaletest.test_run.run_options import ClusterAccess, RunOptions, RunResult
from workbench.scaletest.test_run.workload_deletion import empty_run

DEFAULT_REPEAT = 5
# Pause after the last deletion, so that caches and garbage collectors settle.
TURN_PAUSE_S = 5.0
_SCENARIO = "scenario.yaml"


@dataclass(frozen=True)
class VariantTurns:
    """Results of the turns."""

    folder: Path
    session: Session
    results: tuple[RunResult, ...]
    left: int

    @property
    def invalid(self) -> tuple[run_folder.Run, ...]:
        """Completed turns that are not valid, those of earlier processes included."""
        folders = [self.folder / turn.folder for turn in self.session.runs if _is_complete(self.folder / turn.folder)]
        return tuple(run for run in map(run_folder.load_run, folders) if run.verdict != "valid")

    @property
    def exit_code(self) -> int:
        """0 when all turns are made and valid, 1 when one is not valid, 130 when a person ended it."""
        return 130 if self.left else 1 if self.invalid else 0


def order_turns(names: Sequence[str], repeat: int, seed: int = 0) -> list[str]:
    """Sides in the order of their turns: two each round the other way round than before, more in a drawn order.

    >>> "".join(order_turns("AB", 5))
    'ABBAABBAAB'
    >>> rounds = order_turns("ABC", 2)
    >>> sorted(rounds[:3]), sorted(rounds[3:])
    (['A', 'B', 'C'], ['A', 'B', 'C'])
    """
    if len(names) > 2:
        draw = random.Random(f"{seed} {' '.join(names)}")  # noqa: S311 -- an order, not a secret
        return [side for _ in range(repeat) for side in draw.sample(list(names), len(names))]
    return [side for turn in range(repeat) for side in (names if turn % 2 == 0 else names[::-1])]


def run_variants(
    source: Scenario | str | Path,
    context: RunContext,
    schedulers: Sequence[str],
    *,
    repeat: int = DEFAULT_REPEAT,
    out: str | Path | None = None,
) -> VariantTurns:
    """Run one plan on each scheduler `repeat` times, in turn.

    `schedulers`: Two or more scheduler names; the first is the baseline.
    """
    if not 1 <= repeat <= MAX_REPEAT:
        raise ConfigError("not a number of runs", where="--repeat", found=repeat, allowed=f"1 to {MAX_REPEAT}")
    scenario = source if isinstance(source, Scenario) else scenario_file.load_scenario(source)
    if len(schedulers) < 2 or len(set(schedulers)) < len(schedulers):
        raise ConfigError("an A/B needs two or more different sides", where="--scheduler", found=list(schedulers))
    scenario = replace_schedulers(scenario, schedulers)
    context = dataclasses.replace(context, options=_with_cleanup(context.options))
    context.watcher.say(format_announcement(scenario, schedulers, repeat))
    _check_variants(scenario, context, schedulers)
    # Create the folder of a session, with the scenario and the file `sides.json`.
    now = datetime.now(UTC)
    folder = Path(out or default_out()) / AREA / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    turns = tuple(
        VariantRun(side=side, position=position, folder=f"{position:02d}-{side}")
        for position, side in enumerate(order_turns(list(schedulers), repeat, scenario.seed))
    )
    session = Session(
        format_version=1,
        scenario_sha256=scenario_file.hash_scenario(scenario),
        created_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        sides=tuple(schedulers),
        repeat=repeat,
        runs=turns,
    )
    folder.mkdir(parents=True)
    (folder / _SCENARIO).write_text(scenario_file.format_canonical(scenario), encoding="utf-8")
    variants.write_session(folder, session)
    with lock_test_folder(folder):
        return _run_turns(folder.absolute(), session, scenario, context)


def resume_variants(
    folder: str | Path,
    on: ClusterAccess | None = None,
    *,
    confirmed: str | None = None,
    watcher: SilentRunWatcher | None = None,
    asked: StopRequest | None = None,
    command: str | None = None,
) -> VariantTurns:
    """Run the missing turns. An interrupted turn is cleaned up and run again from the start."""
    place = Path(folder).absolute()
    session, scenario = variants.read_session(place), scenario_file.load_scenario(place / _SCENARIO, kept=True)
    if scenario_file.hash_scenario(scenario) != session.scenario_sha256:
        raise InputError("the scenario was changed", where=place / _SCENARIO, do="start a new run")
    with lock_test_folder(place):
        begun = next(
            (
                place / turn.folder
                for turn in session.runs
                if (place / turn.folder / run_records.CONDITIONS_FILE).is_file()
            ),
            None,
        )
        if begun is None and on is None:
            raise ConfigError("no turn has begun: name the cluster", where=place, do="add --cluster or --context")
        test = None if begun is None else run_records.read_conditions(begun)
        options = RunOptions() if begun is None else load_options(run_folder.load_run(begun))
        context = RunContext(
            on or load_cluster_access(run_records.read_conditions(begun or place)),
            _with_cleanup(options),
            confirmed,
            command,
            watcher or SilentRunWatcher(),
            asked or StopRequest(),
        )
        missing = dict.fromkeys(turn.side for turn in session.runs if not _is_complete(place / turn.folder))
        if missing:
            context.watcher.show_phase("checking for leftovers of earlier turns")
            asyncio.run(_clear_earlier_turns(place, session, scenario, context, test))
        _check_variants(scenario, context, tuple(missing))
        return _run_turns(place, session, scenario, context)


def _with_cleanup(options: RunOptions) -> RunOptions:
    return options.model_copy(update={"cleanup": True})


def _check_variants(scenario: Scenario, context: RunContext, names: Sequence[str]) -> None:
    """Check all variants before the first run."""
    for side in names:
        try:
            check_test(scenario, context, side)
        except ConfigError:
            context.watcher.say(f"{side} cannot start; no side was run")
            raise


def _run_turns(folder: Path, session: Session, scenario: Scenario, context: RunContext) -> VariantTurns:
    """Run the missing turns; on a local cluster only the schedulers of each, and all of them afterwards."""
    results, cluster, watcher = list[RunResult](), context.place.own, context.watcher
    missing = [turn for turn in session.runs if not _is_complete(folder / turn.folder)]
    try:
        for number, turn in enumerate(missing):
            watcher.say(f"turn {turn.position + 1} of {len(session.runs)}: {turn.side}")
            try:
                if cluster is not None:
                    needed = second_schedulers.list_needed(find_recipe(turn.side, scenario.recipes))
                    watcher.say(f"running: {', '.join(second_schedulers.run_only(cluster.name, needed))}")
                result = run_test(scenario, context, scheduler=turn.side, folder=folder / turn.folder)
                results.append(result)
            except KeyboardInterrupt:
                context.asked.request_stop()  # before the turn had begun
            if context.asked.times:
                n_left = sum(not _is_complete(folder / missing_turn.folder) for missing_turn in missing)
                return VariantTurns(folder, session, tuple(results), n_left)
            if result.cleaned is None or not result.cleaned.complete:
                reason = result.cleaned.left if result.cleaned else f"{result.outcome.reason}; pods: {result.drained}"
                raise _build_cleanup_error(result.run, result.folder, reason)
            if number + 1 < len(missing):
                time.sleep(TURN_PAUSE_S)
        return VariantTurns(folder, session, tuple(results), 0)
    finally:
        if cluster is not None:
            second_schedulers.run_only(cluster.name, None)


def _build_cleanup_error(run_id: str, folder: Path, reason: object) -> RunFailedError:
    return RunFailedError(
        "the cluster was not emptied: the next turn would not begin like this one",
        where=folder,
        found=reason,
        do=f"workbench scaletest cleanup {run_id}, then workbench scaletest run --resume {folder.parent}",
    )


def _is_complete(folder: Path) -> bool:
    """Whether the turn came to a verdict."""
    if not (folder / run_folder.RECORD_FILE).is_file():
        return False
    record = run_folder.load_run(folder)
    return record.status == "succeeded" and record.verdict is not None


async def _clear_earlier_turns(
    folder: Path,
    session: Session,
    scenario: Scenario,
    context: RunContext,
    test: run_records.RunConditions | None,
) -> None:
    """Delete what earlier turns left in the cluster; the folder of an interrupted one is renamed.

    One with a verdict may have left something, too: it was aborted, or ended in its cleanup.
    """
    async with Connection(context.place.target) as api:
        if test is not None:
            await confirm_same_cluster(api, context, scenario, test)
        for turn in session.runs:
            place = folder / turn.folder
            if not place.exists():
                continue
            # Another process may be resuming this turn.
            with lock_test_folder(place):
                await _empty_cluster(api, place, context.place)
                if not _is_complete(place):
                    place.rename(place.with_name(f"broken-{secrets.token_hex(2)}-{place.name}"))


async def _empty_cluster(api: Connection, folder: Path, on: ClusterAccess) -> None:
    """Delete all objects of a turn from the cluster."""
    try:
        drawn = read_plan(folder)
    except InputError:
        return  # it had not come as far as making objects
    cleanup = await empty_run(api, drawn, folder, on)
    if not cleanup.complete:
        raise _build_cleanup_error(drawn.run, folder, cleanup.left)
