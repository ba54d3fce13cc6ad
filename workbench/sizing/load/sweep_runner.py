"""Runs a sweep: measures a service at one load after the other, with limits and resume."""

from __future__ import annotations

import contextlib
import functools
import itertools
from pathlib import Path
from typing import Any

import orjson

from workbench.core import files, redaction
from workbench.core.errors import ConfigError, InputError
from workbench.core.nvml import NvmlError, open_nvml
from workbench.core.signals import run_in_thread
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.config import SweepConfig, build_sweep_config, confirm_target
from workbench.sizing.estimation.backlog import sample_backlog
from workbench.sizing.estimation.step_points import PointLimits, assess_steps
from workbench.sizing.load import client_messages, request_plan
from workbench.sizing.load.agent_traces import load_agent_tasks
from workbench.sizing.load.client_pool import ClientPool
from workbench.sizing.load.conversation_file import read_conversations
from workbench.sizing.load.dask_pool import DaskPool
from workbench.sizing.load.load_step import (
    LoadStep,
    StepResult,
    StepRules,
    StopRequest,
    build_requests_frame,
    build_step_frame,
)
from workbench.sizing.load.quality_probe import read_probes
from workbench.sizing.load.request_plan import Prompts, read_prompts
from workbench.sizing.load.request_trace import RequestTrace, read_request_trace
from workbench.sizing.load.server_metrics import MetricsSampler
from workbench.sizing.load.service_targets.function_target import Workflow, check_workflow, load_workflow
from workbench.sizing.load.service_targets.target_factory import check_listener, resolve_secret_headers
from workbench.sizing.load.sweep_journal import (
    StepNote,
    SweepJournal,
    create_sweep_journal,
    load_sweep_journal,
    lock_sweep_folder,
    record_failure,
)
from workbench.sizing.load.sweep_plan import LevelSchedule, Prices, SweepLimits, SweepUsage, build_stop_rule
from workbench.sizing.load.sweep_report import SweepResult, SweepWatcher
from workbench.sizing.tables import BACKLOG, POINTS, QUANTILES

N_CHECKED_PROMPTS = 64

# Ramp before the first runtime is known: softens the burst, and still has all requests in flight together.
FIRST_RAMP_S = 0.05
RAMP_STARTS_PER_S = 5000.0
MAX_RAMP_S = 10.0
# Settings that may change when a sweep is resumed.
LIMIT_NAMES = ("max_requests", "max_duration_s", "max_tokens", "max_cost")


def build_prompts(config: SweepConfig) -> tuple[Prompts, dict[str, Any]]:
    """Prompts and answer lengths of a sweep, and what its record says of them."""
    trace = _read_trace(config)
    if trace.sessions and (config.protocol not in client_messages.CHAT_PROTOCOLS or config.prompts is not None):
        what = "a trace with sessions needs protocol openai, responses or anthropic, and brings its own prompts"
        raise ConfigError(
            what, where="--trace", found=f"protocol {config.protocol}", do="remove --prompts, or session_id"
        )
    tokenizer = request_plan.load_tokenizer(config.tokenizer) if config.tokenizer else None
    texts = [] if config.prompts is None else read_prompts(config.prompts, config.prompt_key)
    agents = None if config.agent_tasks is None else load_agent_tasks(config)
    prompts = Prompts(
        texts,
        config.input_tokens,
        config.input_cv,
        config.unique_prefix,
        config.seed,
        words=[] if tokenizer is None or texts else request_plan.choose_prompt_words(tokenizer),
        trace_input=[] if texts else trace.input_tokens,
        trace_output=trace.output_tokens,
        trace_blocks=[] if texts else trace.block_ids,
        output_tokens=config.output_tokens,
        output_cv=config.output_cv,
        block_tokens=trace.block_tokens if agents is None else agents.block_tokens,
        tasks=[] if agents is None else agents.tasks,
        conversations=[] if config.conversations is None else read_conversations(config.conversations),
        probes=[] if config.probes is None else read_probes(config.probes),
        probe_share=config.probe_share,
    )
    described: dict[str, Any] = {"made": not texts}
    if config.conversations is not None:
        n_turns = sum(map(len, prompts.conversations))
        described |= {"conversations": len(prompts.conversations), "conversation_turns": n_turns, "made": False}
        described["conversations_sha256"] = files.hash_file(config.conversations)
    if config.probes is not None:
        described |= {"probes": len(prompts.probes), "probes_sha256": files.hash_file(config.probes)}
    if config.prompts is not None:
        described |= {"rows": len(texts), "different": len(set(texts)), "sha256": files.hash_file(config.prompts)}
    elif agents is not None:
        described |= agents.describe()
    elif not trace.input_tokens:
        described |= {"tokens": config.input_tokens, "cv": config.input_cv}
    if trace.input_tokens or trace.notes:
        described |= trace.describe()
    if tokenizer is not None and agents is None:
        # Describe token lengths: those of the user's prompts, or how many generated prompts have the requested length.
        taken = list(itertools.islice(prompts.iterate_items(0, 0, 1), N_CHECKED_PROMPTS))
        counts = request_plan.count_tokens(tokenizer, (text for _, text in taken))
        if prompts.texts:
            token_lengths = {"median_tokens": sorted(counts)[len(counts) // 2], "max_tokens": max(counts)}
        else:
            # A prompt has as many words as tokens were asked for.
            wrong = [count - len(text.split(" ")) for count, (_, text) in zip(counts, taken, strict=True)]
            token_lengths = {"checked": len(taken), "exact": wrong.count(0), "max_error_tokens": max(map(abs, wrong))}
        described |= token_lengths
    return prompts, described


def _read_trace(config: SweepConfig) -> RequestTrace:
    """The part of the trace that is replayed; empty without a trace."""
    return RequestTrace([]) if config.trace is None else read_request_trace(config.trace, config.trace_replay)


class SweepRun:
    """A sweep ready to run."""

    def __init__(self, config: SweepConfig, journal: SweepJournal, prompts: Prompts, workflow: Workflow | None) -> None:
        self.config = config
        self.journal = journal
        self._the_prompts = prompts
        self._workflow = workflow
        self._trace = _read_trace(config)
        self._last_runtime_s: float | None = None
        self._example: str | None = None
        self._has_answer = bool((journal.requests["outcome"] == "ok").any())
        self._sampler = (
            MetricsSampler(config.metrics_url, config.metrics_every_s, gpus=config.gpu_metrics)
            if config.metrics_url or config.gpu_metrics
            else None
        )

    async def run_to_end(
        self, stop_request: StopRequest, watcher: SweepWatcher, before: SweepUsage | None = None
    ) -> SweepResult:
        """Run the sweep to its end; usage from before counts towards its limits."""
        with lock_sweep_folder(self.journal.folder), record_failure(self.journal.run):
            config = self.config
            target_spec = client_messages.TargetSpec(
                protocol=config.protocol,
                url=config.url,
                function=config.function,
                timeout_s=config.timeout_s,
                header_env=config.header_env,
                max_answer_bytes=config.max_answer_bytes,
                model=config.model,
                output_tokens=config.output_tokens,
                exact_output=config.exact_output,
                extra_body=orjson.dumps(config.extra_body),
                method=config.method,
                body=None if config.body is None else orjson.dumps(config.body),
                answer_at=config.answer_at,
                input_tokens_at=config.input_tokens_at,
                output_tokens_at=config.output_tokens_at,
            )
            opening = client_messages.Open(target_spec, self._the_prompts)
            sampling = contextlib.nullcontext() if self._sampler is None else self._sampler.run_beside()
            async with sampling, self._create_pool(opening) as pool:
                ended, limit = await self._run_levels(pool, stop_request, watcher, before or SweepUsage())
            if ended == "finished":
                self.journal.mark_complete()
            return self._conclude_sweep(ended, limit)

    def _create_pool(self, opening: client_messages.Open) -> ClientPool | DaskPool:
        if self.config.workers:
            return DaskPool(opening, self.config.workers)
        return ClientPool(opening, self.config.processes, self._workflow)

    async def _run_levels(
        self, pool: ClientPool | DaskPool, stop_request: StopRequest, watcher: SweepWatcher, before: SweepUsage
    ) -> tuple[str, str | None]:
        """Run the levels; returns why the sweep ended, and the limit if there was one.

        `before`: Usage of earlier sweeps that the limits also count.
        """
        config = self.config
        prices = Prices(config.price_request, config.price_million_input, config.price_million_output)
        limits = SweepLimits(config.max_requests, config.max_duration_s, config.max_tokens, config.max_cost, prices)
        step_rules = StepRules(build_stop_rule(config), config.min_step_s, config.max_step_s, limits)
        journal, rules = self.journal, step_rules
        # Each LoadStep adds what it sends and how long it takes to this object, so that it is always the total.
        usage = journal.total_usage().combine_with(before)
        levels = LevelSchedule(self.config)
        while (load := levels.next_level(journal.requests, journal.steps)) is not None:
            if (limit := rules.limits.find_reached_limit(usage)) is not None:
                return "limit", limit
            result = await self._run_step(pool, self._build_step_load(load), rules, usage, stop_request, watcher)
            if result.stopped == "interrupted":
                return "interrupted", None
            if result.refusal is not None:
                return "refused", result.refusal
            if result.limit is not None:
                return "limit", result.limit
        return "finished", None

    def _conclude_sweep(self, ended: str, limit: str | None) -> SweepResult:
        """Assess the points, write the tables and the toolkit's file, conclude the run."""
        config, journal = self.config, self.journal
        judged, quantiles = assess_steps(
            journal.requests,
            journal.steps,
            limits=PointLimits.from_config(config),
            server_metrics=journal.server_metrics,
        )
        failures = {note.step: note.failures for note in journal.record.notes if note.failures}
        sweep = SweepResult(
            config,
            journal.requests,
            journal.steps,
            judged,
            quantiles,
            journal.folder,
            ended,
            failures,
            limit,
            None if self._example is None else str(redaction.redact_value(self._example, journal.secrets)),
            journal.server_metrics,
            dict(self._sampler.failures) if self._sampler is not None else {},
            journal.record.prompts,
            tuple(dict.fromkeys(text for note in journal.record.notes for text in note.notes)),
        )
        if journal.run is not None:
            journal.run.write_table(POINTS, judged)
            journal.run.write_table(QUANTILES, quantiles)
            journal.run.write_table(BACKLOG, sample_backlog(journal.requests, journal.steps))
            calc_file.write_sweep_calc_file(
                journal.run.folder, calc_file.build_calc_output(sweep.requests, sweep.steps, judged)
            )
            reasons = sweep.reasons
            journal.run.conclude("invalid" if reasons else "valid", reasons, sweep.answer)
            if ended == "interrupted":
                journal.run.end("cancelled")
        return sweep

    async def _run_step(
        self,
        pool: ClientPool | DaskPool,
        load: client_messages.StepLoad,
        rules: StepRules,
        usage: SweepUsage,
        stop_request: StopRequest,
        watcher: SweepWatcher,
    ) -> StepResult:
        watcher.on_step_start(load)
        result = await LoadStep(pool, load, rules, usage, stop_request, watcher.on_progress).run()
        runtimes = sorted(row.ended_s - row.sent_s for row in result.requests if row.outcome == "ok")
        self._last_runtime_s = runtimes[len(runtimes) // 2] if runtimes else self._last_runtime_s
        self._example = self._example or result.example
        note = StepNote(
            step=load.step,
            failures=dict(result.failures.most_common()),
            limit=result.limit,
            broken_off=result.broken_off,
            notes=result.notes,
        )
        self._has_answer = self._has_answer or bool(runtimes)
        samples = None if self._sampler is None else self._sampler.take_samples(load.step, result.base)
        self.journal.add_step(build_requests_frame(result), build_step_frame(result, self.config), note, samples)
        watcher.on_step_end(result)
        return result

    def _build_step_load(self, load: float) -> client_messages.StepLoad:
        config = self.config
        users = 0 if config.is_open else int(load)
        return client_messages.StepLoad(
            step=self.journal.next_step,
            loop="open" if config.is_open else "closed",
            seed=config.seed,
            users=users,
            think_s=config.think_time_s,
            ramp_s=0.0 if config.is_open else self._choose_ramp_s(users),
            rate_per_s=load if config.is_open else 0.0,
            arrivals=config.arrivals,
            arrivals_cv=config.arrivals_cv,
            turns=config.turns,
            trace_s=self._trace.times_s,
            sessions=self._trace.sessions,
            pauses_s=self._trace.pauses_s,
            max_in_flight=config.max_in_flight,
            retries=config.retries,
            tool_factor=config.tool_factor,
            watches_refusals=not self._has_answer,
        )

    def _choose_ramp_s(self, users: int) -> float:
        """About one runtime: all requests are in flight before the first ends, and they end evenly spread."""
        if self.config.ramp_s is not None:
            return self.config.ramp_s
        if users == 1:
            return 0.0
        known_s = (
            self._last_runtime_s if self._last_runtime_s is not None else min(users / RAMP_STARTS_PER_S, FIRST_RAMP_S)
        )
        return min(known_s + self.config.think_time_s, MAX_RAMP_S)


def run_sweep(
    workflow: Workflow | None = None,
    *,
    out: Path | None = None,
    keep: bool = False,
    resume: Path | None = None,
    watcher: SweepWatcher | None = None,
    command: str | None = None,
    needs_listener: bool = False,
    before: SweepUsage | None = None,
    **settings: Any,
) -> SweepResult:
    """Measure a service at several loads, from plain Python or from a notebook with a running event loop.

    Parameters
    ----------
    workflow
        Async callable that takes a prompt; runs in its own thread and event loop. By default the settings name it.
    out
        Create the sweep's folder below this one; by default, with `keep`, below the runs folder.
    keep
        Write the sweep into a folder; implied by `out`.
    resume
        Folder of a sweep to resume with its settings; only limits may change.
    watcher
        Receives the progress.
    needs_listener
        Fail if no server listens at the URL, instead of counting every request as refused.
    before
        Usage that already counts towards the limits.
    **settings
        Fields of `SweepConfig`.

    Returns
    -------
    Sweep
        Tables of the sweep; Ctrl-C ends it early and keeps the finished steps.

    Raises
    ------
    ConfigError, InputError
        The settings are wrong or contradict each other, the target is not confirmed, or no server listens.
    RunFailedError
        A client process died.

    Examples
    --------
    >>> async def workflow(prompt: str) -> str:
    ...     return prompt.upper()
    >>> found = run_sweep(workflow, users=[2], least_samples=50, most_samples=50, min_step_s=0)
    >>> found.ended, found.steps["stopped"].to_list(), set(found.requests["outcome"])
    ('finished', ['samples'], {'ok'})
    """
    stop_request = StopRequest()
    # The loads of a verification are not chosen by who asked.
    sweep = _prepare_sweep(
        workflow, out, keep, resume, command, settings, listener=needs_listener, checks_steps=before is None
    )
    watcher = watcher or SweepWatcher()
    run = functools.partial(sweep.run_to_end, stop_request, watcher, before)
    return run_in_thread(run, stop_request, watcher.on_stop_request, name="sizing sweep")


async def run_sweep_async(
    workflow: Workflow | None = None,
    *,
    asked: StopRequest | None = None,
    watcher: SweepWatcher | None = None,
    out: Path | None = None,
    keep: bool = False,
    resume: Path | None = None,
    **settings: Any,
) -> SweepResult:
    """Run a sweep like `run_sweep`, in the running event loop: for a workflow that is bound to it."""
    work = _prepare_sweep(workflow, out, keep, resume, None, settings)
    return await work.run_to_end(asked or StopRequest(), watcher or SweepWatcher())


def _prepare_sweep(
    workflow: Workflow | None,
    out: Path | None,
    keep: bool,
    resume: Path | None,
    command: str | None,
    settings: dict[str, Any],
    *,
    listener: bool = False,
    checks_steps: bool = True,
) -> SweepRun:
    """Check the settings of a new or resumed sweep, build its prompts and open its journal.

    `workflow`: Function to measure, null for a service. `listener`: A service must listen at the target.
    `checks_steps`: Refuse steps that are too short for sessions of users.
    """
    if workflow is not None and settings.get("workers"):
        raise ConfigError("Dask workers cannot be given a function", where="workers", do="function='module:name'")
    if workflow is not None:
        check_workflow(workflow, "the function")
        settings = {"protocol": "function", **settings, "processes": 0}
    if resume is not None:
        journal, config = load_sweep_journal(resume)
        # Settings of a resumed sweep with new limits; any other new setting is refused.
        overrides = {name: value for name, value in settings.items() if value is not None}
        if others := sorted(set(overrides) - {*LIMIT_NAMES, "target_confirm", "protocol", "processes"}):
            raise ConfigError(
                "a resumed sweep keeps its settings", where="--resume", found=others, allowed=list(LIMIT_NAMES)
            )
        new = {name: value for name, value in overrides.items() if name in (*LIMIT_NAMES, "target_confirm")}
        config = build_sweep_config(**(config.model_dump(mode="python", exclude_defaults=True) | new))
        confirm_target(config)
        resolve_secret_headers(config.header_env)
        prompts, described = build_prompts(config)
        if described != journal.record.prompts:
            raise InputError("the prompts are no longer those of the sweep", where=config.prompts, found=described)
        _check_surroundings(config, listener and not journal.record.finished)
        return SweepRun(config, journal, prompts, workflow)
    config = build_sweep_config(**settings)
    if checks_steps and (plan := config.session_plan) is not None:
        plan.check_step(config.max_step_s)
    if config.protocol == "function" and workflow is None and not config.function:
        raise ConfigError("no function to measure", where="function", allowed="module:function")
    confirm_target(config)
    resolve_secret_headers(config.header_env)
    if config.function:
        # The client processes load it again; this only checks that they can.
        load_workflow(config.function)
    prompts, described = build_prompts(config)
    _check_surroundings(config, listener)
    journal = create_sweep_journal(config, out=out, keep=keep or out is not None, prompts=described, command=command)
    return SweepRun(config, journal, prompts, workflow)


def _check_surroundings(config: SweepConfig, needed: bool) -> None:
    if needed and config.protocol != "function":
        check_listener(config.url)
    if config.gpu_metrics:
        try:
            with open_nvml():
                pass
        except NvmlError as error:
            do = "omit it; for a server elsewhere use --metrics-url (dcgm-exporter)"
            raise ConfigError(str(error), where="--gpu-metrics", do=do) from error
