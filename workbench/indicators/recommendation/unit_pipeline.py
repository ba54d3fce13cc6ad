"""Run boots, sieves, steps, strides and wraps in order, and load a user's own units."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.indicators.recommendation.evidence import Justification
from workbench.indicators.recommendation.pipeline_units import (
    KINDS,
    Boot,
    Candidate,
    Context,
    NotAcceptable,
    Sieve,
    Step,
    Stride,
    Unit,
    Wrap,
)


def load_unit(text: str) -> Unit:
    """Load a unit from `module:Class` or `file.py:Class`; it is created without arguments.

    Raises
    ------
    ConfigError
        It cannot be imported or created, there is no such class, or it is none of the five kinds.
    """
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise ConfigError("not a unit", where="--unit", found=text[:200], allowed="module:Class or file.py:Class")
    try:
        module = _import_file(Path(where)) if where.endswith(".py") else _import_module(where)
    except ConfigError:
        raise
    # User code may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        raise ConfigError("the unit cannot be imported", where=text[:200], found=format_exception(error)) from error
    unit_class = getattr(module, name, None)
    if not (isinstance(unit_class, type) and issubclass(unit_class, KINDS) and unit_class not in KINDS):
        names = [key for key, member in vars(module).items() if isinstance(member, type) and issubclass(member, KINDS)]
        unit_names = [key for key in names if vars(module)[key] not in KINDS]
        message = "no such class" if unit_class is None else "not a unit"
        raise ConfigError(
            message, where=text[:200], found=f"units there: {', '.join(unit_names) or 'none'}",
            allowed="a class derived from " + ", ".join(kind.__name__ for kind in KINDS),
        )  # fmt: skip
    try:
        return unit_class()
    except (Exception, SystemExit) as error:
        raise ConfigError("the unit cannot be created", where=text[:200], found=format_exception(error)) from error


def format_exception(error: BaseException) -> str:
    """An exception of user code in one short line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _import_module(name: str) -> ModuleType:
    """Import an installed module, or one in the current folder."""
    before = list(sys.path)
    # Last, so that a file in the current folder cannot shadow a library.
    sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError("no such file", where="--unit", found=str(path))
    name = f"workbench_unit_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", where="--unit", found=str(path))
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look the module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Excluded:
    """An excluded stack, with the unit and the reason."""

    stack: Candidate
    unit: str
    reason: str
    link: str | None
    runs: tuple[str, ...]
    package_name: str | None = None
    version_range: str | None = None


@dataclass
class Accepted:
    """An accepted stack: the scores of the steps, the measured part of them, and its sentences."""

    stack: Candidate
    scores: list[tuple[str, float]] = field(default_factory=list)
    measured: float = 0.0
    said: list[Justification] = field(default_factory=list)

    @property
    def score(self) -> float:
        """The sum of the steps' scores."""
        return math.fsum(score for _, score in self.scores)

    @property
    def extra(self) -> float:
        """The part of the score that does not come from the measured mix."""
        return self.score - self.measured


def select_units(units: Sequence[Unit], context: Context) -> list[Unit]:
    """Select the units for this type of recommendation, and set their context."""
    active = []
    for unit in units:
        with _blame_unit(unit):
            if unit.should_include(context.recommendation_type):
                unit.context = context
                active.append(unit)
    return active


def boot_units(units: Sequence[Unit], context: Context) -> str | None:
    """Run the boots, then load every unit's observations; return null, or why nothing can be recommended."""
    for unit in units:
        if isinstance(unit, Boot):
            try:
                _load_unit_observations(unit, context)
                with _blame_unit(unit, may_refuse=True):
                    unit.run(context)
            except NotAcceptable as refused:
                return f"{unit.label}: {refused.reason}"
    for unit in units:
        if not isinstance(unit, Boot):
            _load_unit_observations(unit, context)
    return None


def sieve_stacks(units: Sequence[Unit], stacks: Sequence[Candidate]) -> tuple[list[Candidate], list[Excluded]]:
    """Run the sieves: the stacks that pass all of them, and the excluded ones."""
    candidates, excluded = list(stacks), list[Excluded]()
    for unit in units:
        if isinstance(unit, Sieve):
            unit.rejected.clear()
            with _blame_unit(unit):
                survivors = list(unit.run(iter(candidates)))
            names = {_check_known_stack(unit, stack, candidates) for stack in survivors}
            for stack in candidates:
                if stack.name not in names:
                    refused = unit.rejected.get(stack.name) or NotAcceptable(f"excluded by {unit.label}")
                    excluded.append(_build_exclusion(unit, stack, refused))
            candidates = [stack for stack in candidates if stack.name in names]
    return candidates, excluded


def score_stacks(
    units: Sequence[Unit], stacks: Sequence[Candidate], context: Context
) -> tuple[list[Accepted], list[Excluded]]:
    """Run steps, strides and wraps: the accepted stacks with scores and sentences, and the excluded ones.

    All stacks are scored before the first stride; `context.scores` then holds the scores by name.
    """
    excluded: list[Excluded] = []
    contenders = [Accepted(stack) for stack in stacks]
    for kind, through in ((Step, _run_step), (Stride, _run_stride), (Wrap, _run_wrap)):
        kind_units = [unit for unit in units if isinstance(unit, kind)]
        survivors = []
        for contender in contenders:
            refused = _run_units(kind_units, through, contender)
            if refused is None:
                survivors.append(contender)
            else:
                excluded.append(refused)
        contenders = survivors
        context.scores.update({survivor.stack.name: survivor.score for survivor in contenders})
    return contenders, excluded


def _run_units(units: Sequence[Unit], through: Callable[[Any, Accepted], None], contender: Accepted) -> Excluded | None:
    """Run all units of a kind on one stack; return null, or its exclusion."""
    for unit in units:
        try:
            through(unit, contender)
        except NotAcceptable as refused:
            return _build_exclusion(unit, contender.stack, refused)
    return None


def _run_step(unit: Step, contender: Accepted) -> None:
    with _blame_unit(unit, may_refuse=True):
        answer = unit.run(contender.stack)
    try:
        score, sentences = answer
        value = _check_score(unit, score)
    except (TypeError, ValueError):
        raise InputError(
            "a step did not return a score and a list of sentences",
            where=f"unit {unit.label}",
            found=repr(answer)[:80],
        ) from None
    contender.scores.append((unit.label, value))
    contender.measured += value if unit.measured else 0.0
    contender.said += _check_sentences(unit, sentences)


def _run_stride(unit: Stride, contender: Accepted) -> None:
    with _blame_unit(unit, may_refuse=True):
        accepted = unit.run(contender.stack)
    if not accepted:
        raise NotAcceptable(f"denied by {unit.label}")


def _run_wrap(unit: Wrap, contender: Accepted) -> None:
    with _blame_unit(unit, may_refuse=True):
        sentences = unit.run(contender.stack)
    contender.said += _check_sentences(unit, sentences)


def _check_score(unit: Step, score: Any) -> float:
    value = float(score)
    if not math.isfinite(value) or abs(value) > unit.most:
        raise InputError(
            "a score that is not a number" if math.isnan(value) else "a score out of bounds",
            where=f"unit {unit.label}", found=value, allowed=f"-{unit.most:g} to {unit.most:g}",
        )  # fmt: skip
    return value


def _check_sentences(unit: Unit, sentences: Any) -> list[Justification]:
    if isinstance(sentences, list | tuple) and all(isinstance(sentence, Justification) for sentence in sentences):
        return list(sentences)
    raise InputError(
        "a unit did not return a list of Justification", where=f"unit {unit.label}", found=repr(sentences)[:80],
        do='return [stack.info("…")]',
    )  # fmt: skip


def _check_known_stack(unit: Sieve, stack: Any, stacks: Sequence[Candidate]) -> str:
    if not any(stack is candidate for candidate in stacks):
        raise InputError(
            "a sieve returned a stack that it was not given", where=f"unit {unit.label}", found=repr(stack)[:80]
        )
    name: str = stack.name
    return name


def _load_unit_observations(unit: Unit, context: Context) -> None:
    if unit.query is None:
        return
    try:
        unit.observations = context.query(unit.query)
    except WorkbenchError as error:
        error.facts["where"] = f"unit {unit.label}, query"
        raise


@contextlib.contextmanager
def _blame_unit(unit: Unit, *, may_refuse: bool = False) -> Iterator[None]:
    """Turn whatever a unit raises into an error that names it, except refusals where these are allowed."""
    where = f"unit {unit.label}"
    try:
        yield
    except NotAcceptable as refused:
        if may_refuse:
            raise
        raise InputError(
            "a unit raised NotAcceptable outside of a single stack", where=where, found=refused.reason[:200],
            do="in a sieve, call self.reject(stack, reason)",
        ) from refused  # fmt: skip
    except WorkbenchError as error:
        error.facts["where"] = error.facts.get("where") or where
        raise
    # User code may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        raise InputError(
            "a unit failed", where=where, found=format_exception(error), do="fix the unit, or leave it out"
        ) from error


def _build_exclusion(unit: Unit, stack: Candidate, refused: NotAcceptable) -> Excluded:
    runs = refused.runs or stack.basis
    link = refused.link or (runs[0] if runs else None)
    return Excluded(
        stack, unit.label, refused.reason[:1000], link, runs, refused.package_name, refused.version_range
    )  # fmt: skip
