"""Where the notebook's raw tables come from: virtual time, a live service, or a sweep that is there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError
from workbench.sizing.answering import joined
from workbench.sizing.config import Goal, SweepConfig, sweep_config
from workbench.sizing.driving.outcome import Sweep, Watcher
from workbench.sizing.notebook_config import NotebookConfig
from workbench.sizing.points import Limits
from workbench.sizing.verifying import loads_per_test, of_sweep

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.driving.targets.function import Workflow
    from workbench.sizing.simulation.service import Service

Verify = Callable[[int], "pl.DataFrame"]
"""From the recommended count to the table `verification`."""


@dataclass(frozen=True)
class Measured:
    """Raw tables, and what can be done to check what follows from them.

    Attributes
    ----------
    requests, steps
        The raw tables of all GPU counts.
    goals
        What must hold; limits of a scaled simulator are scaled alike.
    how
        Where they come from, in a few words.
    limits
        From when on a point is not valid.
    notes
        What a reader should know of them.
    reasons
        Why they are not whole; empty when they are.
    service, config
        The simulated service and its sweep, in virtual time only.
    verify
        Verifies a count; null when nothing can be driven.
    """

    requests: pl.DataFrame
    steps: pl.DataFrame
    goals: list[Goal]
    how: str
    limits: Limits
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    service: Service | None = None
    config: SweepConfig | None = None
    verify: Verify | None = None


@contextlib.contextmanager
def measured(config: NotebookConfig, workflow: Workflow | None, watcher: Watcher) -> Iterator[Measured]:
    """Measure as configured; what is driven stays there while the block runs, for the verification.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, the target is not confirmed, or a folder holds no sweep.
    RunFailedError
        A client process or the simulator died.
    """
    if workflow is not None and not config.live:
        raise ConfigError("a workflow of your own runs in real time", where="workflow", do="set live to True")
    if config.sweep:
        yield _folders(config)
    elif not config.live:
        yield _virtual(config)
    elif workflow is not None or config.url or config.function:
        yield _service(config, workflow, watcher)
    else:
        with contextlib.ExitStack() as stack:
            yield _simulator(config, watcher, stack)


def _virtual(config: NotebookConfig) -> Measured:
    from workbench.sizing.simulation import virtual

    service, goals = config.simulated_service, config.wanted
    own = {"protocol": "function", "simulated": True, "goals": goals, "seed": config.seed}
    swept = sweep_config(**(config.sweep_settings | own))
    tables = [
        virtual.sweep(service.model_copy(update={"gpus": gpus}), swept.model_copy(update={"gpus": gpus}))
        for gpus in sorted(config.gpu_counts)
    ]
    requests, steps = joined(tables)
    return Measured(
        requests,
        steps,
        goals,
        "simulated, virtual time",
        _limits(swept),
        notes=["No request was sent; the same seed gives the same figures."],
        service=service,
        config=swept,
        verify=lambda gpus: virtual.verify(service, swept, config.users, gpus),
    )


def _folders(config: NotebookConfig) -> Measured:
    from workbench.sizing import keeping
    from workbench.sizing.driving import journal

    read = [journal.resume(Path(folder)) for folder in config.sweep]
    requests, steps = joined([(sweep.requests, sweep.steps) for sweep, _ in read])
    swept = read[0][1]
    keeping.check_unit(steps, keeping.Load(config.users, "1/s" if swept.is_open else "users"))
    unfinished = [folder for folder, (one, _) in zip(config.sweep, read, strict=True) if not one.record.finished]
    return Measured(
        requests,
        steps,
        config.wanted,
        "a sweep that was there",
        _limits(swept),
        notes=[f"A load is {read[0][0].record.load_means}.", *(f"{folder} was not finished." for folder in unfinished)],
        verify=_earlier(Path(config.sweep[0]), config),
    )


def _earlier(folder: Path, config: NotebookConfig) -> Verify:
    """The verification in the sweep's folder, where it is of the same count, load and targets."""

    def verify(gpus: int) -> pl.DataFrame:
        from workbench import runs
        from workbench.sizing.tables import VERIFICATION

        try:
            table = runs.load(folder).read_table(VERIFICATION)
        except InputError:
            return VERIFICATION.frame([])
        same = table.filter((table["predicted_gpus"] == gpus) & (table["load"] == config.users))
        names = [goal.name for goal in config.wanted]
        return same if sorted(same["target"].to_list()) == sorted(names) else VERIFICATION.frame([])

    return verify


def _service(config: NotebookConfig, workflow: Workflow | None, watcher: Watcher) -> Measured:
    """A service or a function that is there."""
    settings: dict[str, Any] = {"gpus": config.gpu_counts[0], "goals": config.wanted, "seed": config.seed}
    if config.url:
        settings |= {"protocol": config.protocol, "url": config.url, "target_confirm": config.target_confirm}
        settings |= {"header_env": _headers(config.header_env)}
    else:
        settings |= {"protocol": "function", "function": config.function}
    settings |= config.sweep_settings
    return _driven([settings], config, config.wanted, workflow, watcher, "live, real time", [])


def _simulator(config: NotebookConfig, watcher: Watcher, stack: contextlib.ExitStack) -> Measured:
    from workbench.sizing.simulation import process

    scale = config.time_scale
    goals = [goal.model_copy(update={"limit_s": goal.limit_s * scale}) for goal in config.wanted]
    sweeps = []
    for gpus in sorted(config.gpu_counts):
        service = config.simulated_service.model_copy(update={"gpus": gpus})
        url = stack.enter_context(process.running(service, time_scale=scale))
        shared = {"protocol": "nat", "url": url, "simulated": True, "gpus": gpus, "goals": goals, "seed": config.seed}
        sweeps.append(shared | config.sweep_settings)
    faster = f"the simulator runs {1 / scale:g} times as fast as described, and limits are as much shorter"
    note = f"Requests were sent: {faster}."
    return _driven(sweeps, config, goals, None, watcher, "simulated, over HTTP in real time", [note])


def _driven(
    sweeps: Sequence[dict[str, Any]],
    config: NotebookConfig,
    goals: list[Goal],
    workflow: Workflow | None,
    watcher: Watcher,
    how: str,
    notes: list[str],
) -> Measured:
    from workbench.sizing import checking
    from workbench.sizing.driving import sweep
    from workbench.sizing.driving.limits import spent_by

    found: list[Sweep] = []
    for settings in sweeps:
        found.append(sweep.run(workflow, watcher=watcher, needs_listener=True, **settings))
        if found[-1].ended != "finished":
            break
    last = found[-1]
    limits = _limits(last.config)

    def verify(gpus: int) -> pl.DataFrame:
        """The test GPUs at their share of the load."""
        loads = loads_per_test(config.users, gpus, last.config.gpus, whole=not last.config.is_open)
        changed = checking.longer(last.config, loads)
        again, before = sweeps[len(found) - 1] | changed, spent_by(last.requests, last.steps)
        driven = sweep.run(workflow, watcher=watcher, needs_listener=True, before=before, **again)
        return of_sweep(driven, goals, predicted_gpus=gpus, load=config.users, limits=limits)

    requests, steps = joined([(one.requests, one.steps) for one in found])
    unfinished = [] if last.ended == "finished" else [f"the sweep ended early: {last.limit or last.ended}"]
    told = [*notes, f"A load is {last.config.load_means}."]
    return Measured(requests, steps, goals, how, limits, told, unfinished, verify=verify if not unfinished else None)


def _headers(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=")[::2] for text in texts]
    return {header.strip(): variable.strip() for header, variable in pairs}


def _limits(swept: SweepConfig) -> Limits:
    return Limits(max_error_ratio=swept.max_error_ratio, fewest=swept.least_samples)
