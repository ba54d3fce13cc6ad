"""A sweep: loads held one after the other on a service, each written as it ends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from workbench import files
from workbench.errors import ConfigError
from workbench.sizing.config import SweepConfig, confirm_target, sweep_config
from workbench.sizing.driving import journal as journals
from workbench.sizing.driving import toolkit_file, wire
from workbench.sizing.driving.arrivals import read_trace
from workbench.sizing.driving.crew import Crew
from workbench.sizing.driving.journal import Journal, StepNote
from workbench.sizing.driving.levels import following
from workbench.sizing.driving.limits import Limits, Prices
from workbench.sizing.driving.prompts import Prompts, read_prompts
from workbench.sizing.driving.rows import requests_frame, step_frame
from workbench.sizing.driving.step import Asked, Held, Rules, Step
from workbench.sizing.driving.targets.function import Workflow, checked
from workbench.sizing.driving.targets.opening import secret_headers
from workbench.sizing.points import Limits as PointLimits
from workbench.sizing.points import points
from workbench.sizing.stopping import StopRule
from workbench.sizing.tables import POINTS, QUANTILES

if TYPE_CHECKING:
    import polars as pl

GOOD_VERDICTS = ("valid", "saturated")
# Connections that are made in a second when nothing is known of the service yet.
RAMP_PER_S = 500.0
LONGEST_RAMP_S = 10.0


class Watcher(Protocol):
    """Is told how far a sweep is."""

    def begun(self, load: wire.Load) -> None:
        """A step begins."""

    def going(self, held: Held) -> None:
        """A few times a second: what there is so far."""

    def ended(self, held: Held) -> None:
        """A step is over and written."""

    def stopping(self, times: int) -> None:
        """The user asked it to end, for the first or second time."""


class Silence:
    """Says nothing."""

    def begun(self, load: wire.Load) -> None:
        """Nothing."""

    def going(self, held: Held) -> None:
        """Nothing."""

    def ended(self, held: Held) -> None:
        """Nothing."""

    def stopping(self, times: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep gave.

    Attributes
    ----------
    config
        Its settings.
    requests, steps, points, quantiles
        The tables of those names.
    folder
        Where they were written; null for nowhere.
    ended
        Why it ended: finished, interrupted, limit.
    failures
        Of each step: outcome, status and words of the service, to how many.
    limit
        The limit that ended it, in words.
    """

    config: SweepConfig
    requests: pl.DataFrame
    steps: pl.DataFrame
    points: pl.DataFrame
    quantiles: pl.DataFrame
    folder: Path | None
    ended: str
    failures: dict[int, dict[str, int]]
    limit: str | None = None

    @property
    def reasons(self) -> list[str]:
        """Why it is not all good; empty when it is."""
        found = [] if self.steps.height else ["no level was measured"]
        if self.ended == "interrupted":
            found.append("it was interrupted")
        if self.limit is not None:
            found.append(f"it ended at its limit, {self.limit}")
        for row in self.points.iter_rows(named=True):
            if row["verdict"] not in GOOD_VERDICTS:
                unit = "/s" if row["load_unit"] == "1/s" else " users"
                found.append(f"{row['load']:g}{unit}: {row['verdict']}, {row['reason']}")
        return found

    @property
    def answer(self) -> str:
        """What was measured, in one sentence."""
        loads = [float(load) for load in self.points["load"].to_list()]
        if not loads:
            return "nothing was measured"
        simulated = "simulated: " if self.config.simulated else ""
        count = f"{self.points.height} level{'s' if self.points.height > 1 else ''}"
        return f"{simulated}{count} from {min(loads):g} to {max(loads):g} {self.config.load_means}"


def run(
    workflow: Workflow | None = None,
    *,
    out: Path | None = None,
    keep: bool = False,
    resume: Path | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
    **settings: Any,
) -> Sweep:
    """Drive a service through a sweep, from plain Python or from a notebook whose event loop is running.

    Parameters
    ----------
    workflow
        An async callable that takes a prompt; runs in a thread of its own with its own event loop. Without it the
        settings say what is driven.
    out
        Folder below which the sweep gets its own; with `keep` and without it the usual place.
    keep
        Write the sweep into a folder; done with `out`, too.
    resume
        Folder of a sweep to go on with, with its settings; only limits may be given anew.
    watcher
        Told how far it is.
    **settings
        Fields of `SweepConfig`.

    Returns
    -------
    Sweep
        Its tables; Ctrl-C ends it early and keeps what there is.

    Raises
    ------
    ConfigError, InputError
        The settings are wrong or contradict each other, or the target is not confirmed.
    RunFailedError
        A client process died.

    Examples
    --------
    >>> async def workflow(prompt: str) -> str:
    ...     return prompt.upper()
    >>> found = run(workflow, users=[2], least_samples=50, most_samples=50, min_step_s=0)
    >>> found.ended, found.steps["stopped"].to_list(), set(found.requests["outcome"])
    ('finished', ['samples'], {'ok'})
    """
    asked = Asked()
    work = _prepared(workflow, out, keep, resume, command, settings)
    return _in_a_thread(work, asked, watcher or Silence())


async def drive(
    workflow: Workflow | None = None,
    *,
    asked: Asked | None = None,
    watcher: Watcher | None = None,
    out: Path | None = None,
    keep: bool = False,
    resume: Path | None = None,
    **settings: Any,
) -> Sweep:
    """As `run`, in the event loop that is running: for a workflow that is bound to it.

    Parameters
    ----------
    asked
        Its `stop()` ends the sweep early.
    """
    work = _prepared(workflow, out, keep, resume, None, settings)
    return await work.done(asked or Asked(), watcher or Silence())


def _prepared(
    workflow: Workflow | None,
    out: Path | None,
    keep: bool,
    resume: Path | None,
    command: str | None,
    settings: dict[str, Any],
) -> _Work:
    if workflow is not None:
        checked(workflow, "the function")
        settings = {"protocol": "function", **settings, "processes": 0}
    if resume is not None:
        journal, config = journals.resume(resume)
        config = _with_new_limits(config, settings)
        prompts, _ = _prompts(config)
        return _Work(config, journal, prompts, workflow)
    config = sweep_config(**settings)
    if config.protocol == "function" and workflow is None and not config.function:
        raise ConfigError("no function to drive", where="function", allowed="module:function")
    confirm_target(config)
    secret_headers(config.header_env)
    prompts, described = _prompts(config)
    journal = journals.create(config, out=out, keep=keep or out is not None, prompts=described, command=command)
    return _Work(config, journal, prompts, workflow)


LIMIT_NAMES = ("max_requests", "max_duration_s", "max_tokens", "max_cost")


def _with_new_limits(config: SweepConfig, settings: dict[str, Any]) -> SweepConfig:
    given = {name: value for name, value in settings.items() if value is not None}
    if others := sorted(set(given) - {*LIMIT_NAMES, "target_confirm", "protocol", "processes"}):
        raise ConfigError(
            "a sweep is gone on with as it was begun", where="--resume", found=others, allowed=list(LIMIT_NAMES)
        )
    new = {name: value for name, value in given.items() if name in (*LIMIT_NAMES, "target_confirm")}
    return sweep_config(**(config.model_dump(mode="python", exclude_defaults=True) | new))


def _prompts(config: SweepConfig) -> tuple[Prompts, dict[str, Any]]:
    if config.prompts is None:
        described: dict[str, Any] = {"made": True, "tokens": config.input_tokens, "cv": config.input_cv}
        texts = []
    else:
        texts = read_prompts(config.prompts, config.prompt_key)
        different = len(set(texts))
        described = {"made": False, "rows": len(texts), "different": different, "sha256": files.sha256(config.prompts)}
    return Prompts(texts, config.input_tokens, config.input_cv, config.unique_prefix, config.seed), described


class _Work:
    """A sweep that is ready to be driven."""

    def __init__(self, config: SweepConfig, journal: Journal, prompts: Prompts, workflow: Workflow | None) -> None:
        self.config = config
        self.journal = journal
        self._prompts = prompts
        self._workflow = workflow
        self._trace = read_trace(config.trace) if config.trace is not None else []
        self._last_runtime_s: float | None = None

    async def done(self, asked: Asked, watcher: Watcher) -> Sweep:
        config, journal = self.config, self.journal
        spent = journal.spent()
        rules = _rules(config)
        ended, limit = "finished", rules.limits.reached(spent)
        with journals.alone_in(journal.folder):
            async with Crew(wire.Open(_target(config), self._prompts), config.processes, self._workflow) as crew:
                while limit is None and (load := following(config, journal.requests, journal.steps)) is not None:
                    held = await self._step(crew, self._load(load), rules, spent, asked, watcher)
                    limit = held.limit
                    if held.stopped == "interrupted":
                        ended = "interrupted"
                        break
            if limit is not None:
                ended = "limit"
            if ended == "finished":
                journal.finish()
        return self._concluded(ended, limit)

    def _concluded(self, ended: str, limit: str | None) -> Sweep:
        """The sweep with its points judged; they are written beside the raw tables, for the toolkit too."""
        config, journal = self.config, self.journal
        judged, quantiles = points(
            journal.requests, journal.steps, limits=PointLimits(config.max_error_ratio, config.least_samples)
        )
        failures = {note.step: note.failures for note in journal.record.notes if note.failures}
        sweep = Sweep(
            config, journal.requests, journal.steps, judged, quantiles, journal.folder, ended, failures, limit
        )
        if journal.run is not None:
            journal.run.write_table(POINTS, judged)
            journal.run.write_table(QUANTILES, quantiles)
            toolkit_file.write(journal.run.folder, toolkit_file.calc_output(sweep.requests, sweep.steps, judged))
            reasons = sweep.reasons
            journal.run.conclude("invalid" if reasons else "valid", reasons, sweep.answer)
            if ended == "interrupted":
                journal.run.end("cancelled")
        return sweep

    async def _step(
        self, crew: Crew, load: wire.Load, rules: Rules, spent: Any, asked: Asked, watcher: Watcher
    ) -> Held:
        watcher.begun(load)
        held = await Step(crew, load, rules, spent, asked, watcher.going).run()
        runtimes = sorted(row.ended_s - row.sent_s for row in held.requests if row.outcome == "ok")
        self._last_runtime_s = runtimes[len(runtimes) // 2] if runtimes else self._last_runtime_s
        note = StepNote(
            step=load.step,
            failures=dict(held.failures.most_common()),
            limit=held.limit,
            broken_off=held.broken_off,
        )
        self.journal.add(requests_frame(held), step_frame(held, self.config), note)
        watcher.ended(held)
        return held

    def _load(self, load: float) -> wire.Load:
        config = self.config
        users = 0 if config.is_open else int(load)
        return wire.Load(
            step=self.journal.next_step,
            loop="open" if config.is_open else "closed",
            seed=config.seed,
            users=users,
            think_s=config.think_time_s,
            ramp_s=0.0 if config.is_open else self._ramp_s(users),
            rate_per_s=load if config.is_open else 0.0,
            arrivals=config.arrivals,
            trace_s=self._trace,
            max_in_flight=config.max_in_flight,
            retries=config.retries,
        )

    def _ramp_s(self, users: int) -> float:
        """Over about one runtime, so that users come back evenly spread; not faster than connections are made."""
        if self.config.ramp_s is not None:
            return self.config.ramp_s
        if users == 1:
            return 0.0
        cycle_s = (self._last_runtime_s or 0.0) + self.config.think_time_s
        return min(max(cycle_s, users / RAMP_PER_S), LONGEST_RAMP_S)


def _rules(config: SweepConfig) -> Rules:
    goal = config.goals[0] if config.goals else None
    stop = StopRule(
        least=config.least_samples,
        most=config.most_samples,
        tight=config.tight,
        q=0.95 if goal is None else goal.q,
        metric="runtime" if goal is None else goal.metric,
    )
    prices = Prices(config.price_request, config.price_million_input, config.price_million_output)
    limits = Limits(config.max_requests, config.max_duration_s, config.max_tokens, config.max_cost, prices)
    return Rules(stop, config.min_step_s, config.max_step_s, limits)


def _target(config: SweepConfig) -> wire.Target:
    return wire.Target(
        protocol=config.protocol,
        url=config.url,
        function=config.function,
        timeout_s=config.timeout_s,
        header_env=config.header_env,
        max_answer_bytes=config.max_answer_bytes,
        model=config.model,
        output_tokens=config.output_tokens,
        extra_body=orjson.dumps(config.extra_body),
        method=config.method,
        body=None if config.body is None else orjson.dumps(config.body),
        answer_at=config.answer_at,
        input_tokens_at=config.input_tokens_at,
        output_tokens_at=config.output_tokens_at,
    )


def _in_a_thread(work: _Work, asked: Asked, watcher: Watcher) -> Sweep:
    """Drive it in a thread with its own event loop: a notebook's own is running, and Ctrl-C comes to this one."""
    found: list[Sweep] = []
    died: list[BaseException] = []

    def body() -> None:
        try:
            found.append(asyncio.run(work.done(asked, watcher)))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            died.append(error)

    thread = threading.Thread(target=body, name="sizing sweep", daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            thread.join(0.2)
        except KeyboardInterrupt:
            asked.stop()
            watcher.stopping(asked.times)
    if died:
        raise died[0]
    return found[0]


__all__ = ["Asked", "Silence", "Sweep", "Watcher", "drive", "run"]
