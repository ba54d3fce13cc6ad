"""A sweep: loads held one after the other on a service, every request in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench import files
from workbench.asking import in_a_thread
from workbench.errors import ConfigError, InputError
from workbench.sizing.config import SweepConfig, confirm_target, sweep_config
from workbench.sizing.driving import journal as journals
from workbench.sizing.driving.limits import Spent
from workbench.sizing.driving.outcome import Silence, Sweep, Watcher
from workbench.sizing.driving.prompts import Prompts, read_prompts
from workbench.sizing.driving.step import Asked
from workbench.sizing.driving.targets.function import Workflow, checked, loaded
from workbench.sizing.driving.targets.listening import need_listener
from workbench.sizing.driving.targets.opening import secret_headers
from workbench.sizing.driving.work import Work

# What may be given anew when a sweep is gone on with.
LIMIT_NAMES = ("max_requests", "max_duration_s", "max_tokens", "max_cost")


def run(
    workflow: Workflow | None = None,
    *,
    out: Path | None = None,
    keep: bool = False,
    resume: Path | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
    needs_listener: bool = False,
    before: Spent | None = None,
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
    needs_listener
        Begin only where somebody listens at the URL: else every request of the sweep is counted as refused.
    before
        What was used up before, of the same limits.
    **settings
        Fields of `SweepConfig`.

    Returns
    -------
    Sweep
        Its tables; Ctrl-C ends it early and keeps what there is.

    Raises
    ------
    ConfigError, InputError
        The settings are wrong or contradict each other, the target is not confirmed, or nobody listens there.
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
    work = _prepared(workflow, out, keep, resume, command, settings, listener=needs_listener)
    told = watcher or Silence()
    return in_a_thread(lambda: work.done(asked, told, before), asked, told.stopping, name="sizing sweep")


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
    *,
    listener: bool = False,
) -> Work:
    if workflow is not None:
        checked(workflow, "the function")
        settings = {"protocol": "function", **settings, "processes": 0}
    if resume is not None:
        journal, config = journals.resume(resume)
        config = _with_new_limits(config, settings)
        confirm_target(config)
        secret_headers(config.header_env)
        prompts, described = _prompts(config)
        if described != journal.record.prompts:
            raise InputError("the prompts are no longer those of the sweep", where=config.prompts, found=described)
        _listened(config, listener and not journal.record.finished)
        return Work(config, journal, prompts, workflow)
    config = sweep_config(**settings)
    if config.protocol == "function" and workflow is None and not config.function:
        raise ConfigError("no function to drive", where="function", allowed="module:function")
    confirm_target(config)
    secret_headers(config.header_env)
    if config.function:
        # The client's processes load it anew; here it is only found out whether they can.
        loaded(config.function)
    prompts, described = _prompts(config)
    _listened(config, listener)
    journal = journals.create(config, out=out, keep=keep or out is not None, prompts=described, command=command)
    return Work(config, journal, prompts, workflow)


def _listened(config: SweepConfig, needed: bool) -> None:
    if needed and config.protocol != "function":
        need_listener(config.url)


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


__all__ = ["Asked", "Silence", "Sweep", "Watcher", "drive", "run"]
