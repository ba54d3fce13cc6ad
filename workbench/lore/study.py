"""What the notebook shows: a query tagged, one operator dumped, replayed in a fresh process, and held to account."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from workbench import renderer
from workbench.display import KeyNumber
from workbench.lore import key_numbers, next_steps
from workbench.lore.commands.options import pairs
from workbench.lore.invariants import check_outcome
from workbench.lore.notebook_config import NotebookConfig, spelled
from workbench.lore.open_query import OpenQuery, files_of
from workbench.lore.outcome import Outcome, outcome
from workbench.lore.picking import TREE, pick, plan_table
from workbench.lore.telling import Say, live_line
from workbench.runs import Run
from workbench.tables import Table

DUMP = "dump"


@dataclass(frozen=True)
class Study:
    """One operator of a query, or one dump that was there already.

    Attributes
    ----------
    config, run
        What was asked for, and where it is kept.
    result
        The dump and its replay.
    plan
        Table `picking.TREE`; null without a query, or when the query failed.
    why
        Why this operator.
    warnings
        What the dump wants to be known.
    query
        The open session, live; null when it has ended.
    """

    config: NotebookConfig
    run: Run
    result: Outcome
    plan: pl.DataFrame | None
    why: str
    warnings: tuple[str, ...] = ()
    query: OpenQuery | None = None

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return key_numbers.answer(self.result)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the result is invalid; empty when it is valid."""
        return self.result.reasons

    @property
    def notes(self) -> tuple[str, ...]:
        """Why this operator, and what dump and replay want to be known."""
        replayed = self.result.replayed
        return (f"Chosen: {self.why}", *self.warnings, *(replayed.notes if replayed is not None else ()))

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_outcome(self.result)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_outcome(self.result)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        return [*([(TREE, self.plan)] if self.plan is not None else []), *self.result.tables()]

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return check_outcome(self.result, self.config.repeat, self.plan)

    def picker(self) -> Any:
        """The operators to pick from: controls live, a table otherwise."""
        from workbench.lore.controls import Controls, operators

        if self.plan is None:
            return None
        if self.query is None:
            return operators(self.plan)
        return Controls(self)

    def other(self, lore_id: int, partition: int | None, say: Say = lambda _: None) -> Outcome:
        """Dump and replay another operator of the same query; its tables stay with the caller.

        Raises
        ------
        ConfigError
            The session has ended, no such operator or partition, or it cannot be dumped.
        """
        if self.query is None:
            from workbench.errors import ConfigError

            raise ConfigError("the query's session has ended", do="run the notebook's first code cells again")
        say(f"dumping loreId {lore_id} …")
        folder, _ = self.query.dump(spelled(lore_id, partition), dump_path(self.config, self.run))
        say(f"replaying loreId {lore_id} in a fresh process …")
        return _outcome(folder, self.config)


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the run valid?"""
    return "invalid" if study.reasons else "valid"


def study(config: NotebookConfig, run: Run) -> Study:
    """Tag, dump and replay as configured, and write the tables into the run folder.

    Raises
    ------
    InputError, ConfigError
        An input is not there or is none, no such operator, a setting that is none.
    RunFailedError
        The fresh process died.
    """
    _sides(config)  # A setting that is none is told before Spark starts.
    with live_line() as say:
        found = _of_dump(config, run, say) if config.dump_source else _of_query(config, run, say)
    for declared, frame in found.tables():
        run.write_table(declared, frame)
    return found


def dump_path(config: NotebookConfig, run: Run) -> Path:
    """Where dumps go."""
    return Path(config.dump_path) if config.dump_path else run.folder / DUMP


def _of_dump(config: NotebookConfig, run: Run, say: Say) -> Study:
    place = Path(config.dump_folder)
    run.add_input(place, digest=False)
    say("replaying the dump in a fresh process …")
    return Study(config, run, _outcome(place, config, config.partition), None, "the dump that was named")


def _of_query(config: NotebookConfig, run: Run, say: Say) -> Study:
    for path in files_of(config):
        run.add_input(path)
    say("starting Spark and running the query …")
    opened = OpenQuery(config)
    try:
        plan = plan_table(opened.tree) if opened.tree is not None else None
        ids, why = _chosen(config, plan, opened)
        say(f"dumping {ids or 'the operator that fails'} …")
        folder, notes = opened.dump(ids, dump_path(config, run))
        if renderer.is_headless():
            # Its memory and its cores belong to the replay.
            opened.close()
        say("replaying it in a fresh process …")
        result = _outcome(folder, config)
    except BaseException:
        opened.close()
        raise
    return Study(config, run, result, plan, why, tuple(notes), None if renderer.is_headless() else opened)


def _chosen(config: NotebookConfig, plan: pl.DataFrame | None, opened: OpenQuery) -> tuple[str, str]:
    if plan is None:
        return "", f"the query failed in it: {opened.failure}"
    if config.selection:
        return config.selection, "the parameter ids names it"
    picked = pick(plan)
    return spelled(picked.lore_id, config.partition), picked.reason


def _outcome(place: Path, config: NotebookConfig, partition: int | None = None) -> Outcome:
    return outcome(
        place,
        level=config.level,
        partition=partition,
        repeat=config.repeat,
        engine=config.engine,
        trust=config.trust,
        **_sides(config),
    )


def _sides(config: NotebookConfig) -> dict[str, dict[str, str]]:
    return {name: pairs(getattr(config, name), where=name) for name in ("confs_a", "confs_b")}
