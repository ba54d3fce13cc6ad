"""Measurements for the notebook: virtual time, live service, simulator or stored sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, NotebookConfig, SweepConfig, build_sweep_config
from workbench.sizing.estimation.sizing_answer import concat_sweeps
from workbench.sizing.estimation.step_points import PointLimits
from workbench.sizing.estimation.verification import share_load, verify_sweep
from workbench.sizing.load.agent_traces import describe_agent_tasks, load_agent_tasks
from workbench.sizing.load.service_targets.function_target import Workflow
from workbench.sizing.load.sweep_report import SweepResult, SweepWatcher
from workbench.sizing.simulation.cluster_model import Service

SIMULATED_CHAT = {"protocol": "openai", "model": "simulated"}
"""Settings of sessions with a simulated service."""
VerifyGpus = Callable[[int], "pl.DataFrame"]
"""From the recommended count to the table `verification`."""


@dataclass(frozen=True)
class Measurements:
    """Raw tables, and what can be done to check what follows from them.

    `verify`: Verifies a count; null when nothing can be driven.
    `server_metrics`: Table of that name; null in virtual time.
    `served`: Model and GPU type; empty where they are not known.
    """

    requests: pl.DataFrame
    steps: pl.DataFrame
    goals: list[Goal]
    how: str
    limits: PointLimits
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    service: Service | None = None
    config: SweepConfig | None = None
    verify: VerifyGpus | None = None
    server_metrics: pl.DataFrame | None = None
    served: str = ""


_TIMES_ALONE = (
    "Of the trace only the arrival times are used; the lengths are those of the service. A live run sends the trace's."
)


def _note_traffic(swept: SweepConfig) -> list[str]:
    """What virtual time makes of a trace, or of tasks."""
    if swept.agent_tasks is None:
        return [_TIMES_ALONE] if swept.trace else []
    return [f"{text[0].upper()}{text[1:]}." for text in describe_agent_tasks(load_agent_tasks(swept).describe())]


@contextlib.contextmanager
def open_measurements(
    config: NotebookConfig, workflow: Workflow | None, watcher: SweepWatcher
) -> Iterator[Measurements]:
    """Measure as configured; what is driven stays there while the block runs, for the verification."""
    if workflow is not None and not config.live:
        raise ConfigError("a workflow of your own runs in real time", where="workflow", do="set live to True")
    if config.sweep:
        yield _load_sweep_folders(config)
    elif not config.live:
        yield _measure_virtual(config)
    elif workflow is not None or config.url or config.function:
        yield _measure_service(config, workflow, watcher)
    else:
        with contextlib.ExitStack() as stack:
            yield _measure_simulator(config, watcher, stack)


def _measure_virtual(config: NotebookConfig) -> Measurements:
    from workbench.sizing.simulation import virtual_time

    service, goals = config.simulated_service, config.parsed_goals
    fixed_settings = {"protocol": "function", "simulated": True, "goals": goals, "seed": config.seed}
    if config.sweep_settings.get("turns", 1) > 1 or config.agent_tasks:
        fixed_settings |= SIMULATED_CHAT | {"url": "http://simulated"}
    swept = build_sweep_config(**(config.sweep_settings | fixed_settings))
    tables = [
        virtual_time.simulate_sweep(service.model_copy(update={"gpus": gpus}), swept.model_copy(update={"gpus": gpus}))
        for gpus in sorted(config.gpu_counts)
    ]
    requests, steps = concat_sweeps(tables)
    return Measurements(
        requests,
        steps,
        goals,
        "simulated, virtual time",
        PointLimits.from_config(swept),
        notes=["No request was sent; the same seed gives the same figures.", *_note_traffic(swept)],
        service=service,
        config=swept,
        served=service.served,
        verify=lambda gpus: virtual_time.simulate_verification(service, swept, config.load, gpus),
    )


def _load_sweep_folders(config: NotebookConfig) -> Measurements:
    from workbench.sizing.estimation import sweep_store
    from workbench.sizing.load import sweep_journal

    read = [sweep_journal.load_sweep_journal(Path(folder)) for folder in config.sweep]
    requests, steps, samples = concat_sweeps([(sweep.requests, sweep.steps, sweep.server_metrics) for sweep, _ in read])
    swept = read[0][1]
    sweep_store.check_load_unit(steps, sweep_store.TargetLoad(config.load, "1/s" if swept.is_open else "users"))
    unfinished = [folder for folder, (sweep, _) in zip(config.sweep, read, strict=True) if not sweep.record.finished]
    return Measurements(
        requests,
        steps,
        config.parsed_goals,
        "a sweep that was there",
        PointLimits.from_config(swept),
        notes=[f"A load is {read[0][0].record.load_means}.", *(f"{folder} was not finished." for folder in unfinished)],
        verify=_stored_verification(Path(config.sweep[0]), config),
        server_metrics=samples,
        served=swept.served,
    )


def _stored_verification(folder: Path, config: NotebookConfig) -> VerifyGpus:
    """The verification in the sweep's folder, where it is of the same count, load and targets."""

    def read_stored_verification(gpus: int) -> pl.DataFrame:
        from workbench.runs import run_folder
        from workbench.sizing.tables import VERIFICATION

        try:
            table = run_folder.load_run(folder).read_table(VERIFICATION)
        except InputError:
            return VERIFICATION.frame([])
        estimated = table["estimated_gpus"].fill_null(table["predicted_gpus"])
        same = table.filter((estimated == gpus) & (table["load"] == config.load))
        names = [goal.name for goal in config.parsed_goals]
        return same if sorted(same["target"].to_list()) == sorted(names) else VERIFICATION.frame([])

    return read_stored_verification


def _measure_service(config: NotebookConfig, workflow: Workflow | None, watcher: SweepWatcher) -> Measurements:
    """A service or a function that is there."""
    settings: dict[str, Any] = {"gpus": config.gpu_counts[0], "goals": config.parsed_goals, "seed": config.seed}
    if config.url:
        settings |= {"protocol": config.protocol, "url": config.url, "target_confirm": config.target_confirm}
        pairs = [text.partition("=")[::2] for text in config.header_env]
        header_env = {header.strip(): variable.strip() for header, variable in pairs}
        settings |= {"header_env": header_env}
    else:
        settings |= {"protocol": "function", "function": config.function}
    settings |= config.sweep_settings
    return _measure_sweeps([settings], config, config.parsed_goals, workflow, watcher, "live, real time", [])


def _measure_simulator(config: NotebookConfig, watcher: SweepWatcher, stack: contextlib.ExitStack) -> Measurements:
    from workbench.sizing.simulation import simulator_process

    scale, settings = config.time_scale, dict(config.sweep_settings)
    settings |= {name: scale * settings[name] for name in ("think_time_s",) if name in settings}
    protocol: dict[str, Any] = {"protocol": "nat"}
    if config.agent_tasks:
        # Its answers are as long as asked for.
        protocol = SIMULATED_CHAT
        settings |= {"exact_output": True, "tool_factor": scale * settings.get("tool_factor", 1.0)}
    elif settings.get("turns", 1) > 1:
        if config.simulated_service.calls > 1:
            raise ConfigError("a turn over HTTP is one call", where="service", do="add calls=1")
        protocol = SIMULATED_CHAT
    goals = [goal.model_copy(update={"limit_s": goal.limit_s * scale}) for goal in config.parsed_goals]
    sweeps = []
    for gpus in sorted(config.gpu_counts):
        service = config.simulated_service.model_copy(update={"gpus": gpus})
        simulator = simulator_process.run_simulator(service, time_scale=scale, prompt_words=bool(config.agent_tasks))
        url = stack.enter_context(simulator)
        shared = protocol | {"url": url, "simulated": True, "gpus": gpus, "goals": goals, "seed": config.seed}
        sweeps.append(shared | settings)
    shorter = (
        "limits and think time are as much shorter" if "think_time_s" in settings else "limits are as much shorter"
    )
    faster = f"the simulator runs {1 / scale:g} times as fast as described, and {shorter}"
    note = f"Requests were sent: {faster}."
    measured = _measure_sweeps(sweeps, config, goals, None, watcher, "simulated, over HTTP in real time", [note])
    return replace(measured, served=config.simulated_service.served)


def _measure_sweeps(
    sweeps: Sequence[dict[str, Any]],
    config: NotebookConfig,
    goals: list[Goal],
    workflow: Workflow | None,
    watcher: SweepWatcher,
    how: str,
    notes: list[str],
) -> Measurements:
    """Run several sweeps, one for each GPU count, until one ends early; `how` says in words how it was measured."""
    from workbench.sizing.estimation import verification
    from workbench.sizing.load import sweep_runner
    from workbench.sizing.load.sweep_plan import usage_from_tables

    results: list[SweepResult] = []
    for settings in sweeps:
        results.append(sweep_runner.run_sweep(workflow, watcher=watcher, needs_listener=True, **settings))
        if results[-1].ended != "finished":
            break
    last = results[-1]
    limits = PointLimits.from_config(last.config)

    driven_counts: list[int] = []

    def verify_on_service(gpus: int) -> pl.DataFrame:
        """The test GPUs at their share of the load."""
        loads = share_load(config.load, gpus, last.config.gpus, whole=not last.config.is_open)
        changed = verification.build_verification_settings(last.config, loads, len(driven_counts))
        driven_counts.append(gpus)
        again, before = sweeps[len(results) - 1] | changed, usage_from_tables(last.requests, last.steps)
        driven = sweep_runner.run_sweep(workflow, watcher=watcher, needs_listener=True, before=before, **again)
        reference = verification.build_reference(last.requests, last.steps, limits)
        return verify_sweep(driven, goals, predicted_gpus=gpus, load=config.load, limits=limits, reference=reference)

    requests, steps, samples = concat_sweeps(
        [(result.requests, result.steps, result.server_metrics) for result in results]
    )
    unfinished = [] if last.ended == "finished" else [f"the sweep ended early: {last.limit or last.ended}"]
    all_notes = [*notes, f"A load is {last.config.load_means}."]
    return Measurements(
        requests,
        steps,
        goals,
        how,
        limits,
        all_notes,
        unfinished,
        verify=verify_on_service if not unfinished else None,
        server_metrics=samples,
        served=last.config.served,
    )
