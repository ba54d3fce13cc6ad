"""A sweep at work: level after level, each written as it ends, then judged."""

from __future__ import annotations

import orjson

from workbench.sizing.config import SweepConfig
from workbench.sizing.driving import journal as journals
from workbench.sizing.driving import toolkit_file, wire
from workbench.sizing.driving.arrivals import read_trace
from workbench.sizing.driving.crew import Crew
from workbench.sizing.driving.journal import Journal, StepNote
from workbench.sizing.driving.levels import Levels
from workbench.sizing.driving.limits import Limits, Prices, Spent
from workbench.sizing.driving.outcome import Sweep, Watcher
from workbench.sizing.driving.prompts import Prompts
from workbench.sizing.driving.rows import requests_frame, step_frame
from workbench.sizing.driving.step import Asked, Held, Rules, Step
from workbench.sizing.driving.targets.function import Workflow
from workbench.sizing.points import Limits as PointLimits
from workbench.sizing.points import points
from workbench.sizing.stopping import StopRule
from workbench.sizing.tables import POINTS, QUANTILES

# When nothing is known of the service yet: a burst that is softened, but in flight as a whole on any service.
SHORT_RAMP_S = 0.05
RAMP_PER_S = 5000.0
LONGEST_RAMP_S = 10.0


class Work:
    """A sweep that is ready to be driven."""

    def __init__(self, config: SweepConfig, journal: Journal, prompts: Prompts, workflow: Workflow | None) -> None:
        self.config = config
        self.journal = journal
        self._the_prompts = prompts
        self._workflow = workflow
        self._trace = read_trace(config.trace) if config.trace is not None else []
        self._last_runtime_s: float | None = None

    async def done(self, asked: Asked, watcher: Watcher, before: Spent | None = None) -> Sweep:
        """Drive it to its end; its limits are on what was used up before, too.

        Raises
        ------
        ConfigError, RunFailedError
            A client process cannot go on; the steps before are written.
        """
        with journals.alone_in(self.journal.folder), journals.ending(self.journal.run):
            opening = wire.Open(_target(self.config), self._the_prompts)
            async with Crew(opening, self.config.processes, self._workflow) as crew:
                ended, limit = await self._levels(crew, asked, watcher, before or Spent())
            if ended == "finished":
                self.journal.finish()
            return self._concluded(ended, limit)

    async def _levels(self, crew: Crew, asked: Asked, watcher: Watcher, before: Spent) -> tuple[str, str | None]:
        """Hold one level after the other; why it ended, and the limit when it was one."""
        journal, rules = self.journal, _rules(self.config)
        spent = journal.spent().plus(before)
        levels = Levels(self.config)
        while (load := levels.following(journal.requests, journal.steps)) is not None:
            if (limit := rules.limits.reached(spent)) is not None:
                return "limit", limit
            held = await self._step(crew, self._load(load), rules, spent, asked, watcher)
            if held.stopped == "interrupted":
                return "interrupted", None
            if held.limit is not None:
                return "limit", held.limit
        return "finished", None

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
        self, crew: Crew, load: wire.Load, rules: Rules, spent: Spent, asked: Asked, watcher: Watcher
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
        """Over about one runtime: all are in flight when the first comes back, and they come back evenly spread."""
        if self.config.ramp_s is not None:
            return self.config.ramp_s
        if users == 1:
            return 0.0
        known_s = self._last_runtime_s if self._last_runtime_s is not None else min(users / RAMP_PER_S, SHORT_RAMP_S)
        return min(known_s + self.config.think_time_s, LONGEST_RAMP_S)


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
