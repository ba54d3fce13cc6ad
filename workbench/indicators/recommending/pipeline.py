"""Boots, sieves, steps, strides and wraps, in this order; what each did is kept, and nothing is dropped silently."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import InputError, WorkbenchError
from workbench.indicators.recommending.justification import Justification
from workbench.indicators.recommending.loading import told
from workbench.indicators.recommending.units import (
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


@dataclass(frozen=True)
class Excluded:
    """A stack that was left out: by which unit, and why."""

    stack: Candidate
    unit: str
    reason: str
    link: str | None
    runs: tuple[str, ...]
    package_name: str | None = None
    version_range: str | None = None


@dataclass
class Accepted:
    """A stack that stays: the scores of the steps, what of them was measured, and all sentences about it."""

    stack: Candidate
    scores: list[tuple[str, float]] = field(default_factory=list)
    measured: float = 0.0
    said: list[Justification] = field(default_factory=list)

    @property
    def score(self) -> float:
        """The plain sum of the steps' scores."""
        return math.fsum(score for _, score in self.scores)

    @property
    def extra(self) -> float:
        """What other steps than the measured mix add to the score."""
        return self.score - self.measured


def included(units: Sequence[Unit], context: Context) -> list[Unit]:
    """The units that take part, each with its context and the table of its query.

    Raises
    ------
    InputError
        A unit failed, or asks for a query that is not there.
    """
    taking_part = []
    for unit in units:
        with _blamed(unit):
            if unit.should_include(context.recommendation_type):
                unit.context = context
                taking_part.append(unit)
    return taking_part


def boot(units: Sequence[Unit], context: Context) -> str | None:
    """Run the boots, then give every unit its observations; null, or why nothing can be recommended."""
    for unit in units:
        if isinstance(unit, Boot):
            try:
                _observe(unit, context)
                with _blamed(unit, may_refuse=True):
                    unit.run(context)
            except NotAcceptable as refused:
                return f"{unit.label}: {refused.reason}"
    for unit in units:
        if not isinstance(unit, Boot):
            _observe(unit, context)
    return None


def sieved(units: Sequence[Unit], stacks: Sequence[Candidate]) -> tuple[list[Candidate], list[Excluded]]:
    """Which stacks pass all sieves, and why the others do not."""
    left, excluded = list(stacks), list[Excluded]()
    for unit in units:
        if isinstance(unit, Sieve):
            unit.rejected.clear()
            with _blamed(unit):
                kept = list(unit.run(iter(left)))
            names = {_known(unit, stack, left) for stack in kept}
            for stack in left:
                if stack.name not in names:
                    refused = unit.rejected.get(stack.name) or NotAcceptable(f"left out by {unit.label}")
                    excluded.append(_excluded(unit, stack, refused))
            left = [stack for stack in left if stack.name in names]
    return left, excluded


def scored(
    units: Sequence[Unit], stacks: Sequence[Candidate], context: Context
) -> tuple[list[Accepted], list[Excluded]]:
    """Which stacks the steps, strides and wraps accept, with scores and sentences, and why not the others.

    All stacks are scored before the first stride: `context.scores` then has the scores by name.
    """
    excluded: list[Excluded] = []
    left = [Accepted(stack) for stack in stacks]
    for kind, through in ((Step, _step), (Stride, _stride), (Wrap, _wrap)):
        own = [unit for unit in units if isinstance(unit, kind)]
        kept = []
        for done in left:
            refused = _through(own, through, done)
            if refused is None:
                kept.append(done)
            else:
                excluded.append(refused)
        left = kept
        context.scores.update({done.stack.name: done.score for done in left})
    return left, excluded


def _through(own: Sequence[Unit], through: Callable[[Any, Accepted], None], done: Accepted) -> Excluded | None:
    """Take one stack through all units of a kind; null, or why one of them did not want it."""
    for unit in own:
        try:
            through(unit, done)
        except NotAcceptable as refused:
            return _excluded(unit, done.stack, refused)
    return None


def _step(unit: Step, done: Accepted) -> None:
    with _blamed(unit, may_refuse=True):
        answer = unit.run(done.stack)
    try:
        score, said = answer
        value = _number(unit, score)
    except (TypeError, ValueError):
        raise InputError(
            "a step must give a number and a list of sentences", where=f"unit {unit.label}", found=repr(answer)[:80]
        ) from None
    done.scores.append((unit.label, value))
    done.measured += value if unit.measured else 0.0
    done.said += _sentences(unit, said)


def _stride(unit: Stride, done: Accepted) -> None:
    with _blamed(unit, may_refuse=True):
        accepted = unit.run(done.stack)
    if not accepted:
        raise NotAcceptable(f"denied by {unit.label}")


def _wrap(unit: Wrap, done: Accepted) -> None:
    with _blamed(unit, may_refuse=True):
        said = unit.run(done.stack)
    done.said += _sentences(unit, said)


def _number(unit: Step, score: Any) -> float:
    value = float(score)
    if not math.isfinite(value) or abs(value) > unit.most:
        raise InputError(
            "a score that is no number" if math.isnan(value) else "a score out of bounds",
            where=f"unit {unit.label}", found=value, allowed=f"-{unit.most:g} to {unit.most:g}",
        )  # fmt: skip
    return value


def _sentences(unit: Unit, said: Any) -> list[Justification]:
    if isinstance(said, list | tuple) and all(isinstance(one, Justification) for one in said):
        return list(said)
    raise InputError(
        "sentences must be a list of Justification", where=f"unit {unit.label}", found=repr(said)[:80],
        do='return [stack.info("…")]',
    )  # fmt: skip


def _known(unit: Sieve, stack: Any, given: Sequence[Candidate]) -> str:
    if not any(stack is one for one in given):
        raise InputError(
            "a sieve may only give back stacks it was given", where=f"unit {unit.label}", found=repr(stack)[:80]
        )
    name: str = stack.name
    return name


def _observe(unit: Unit, context: Context) -> None:
    if unit.query is None:
        return
    try:
        unit.observations = context.query(unit.query)
    except WorkbenchError as error:
        error.facts["where"] = f"unit {unit.label}, query"
        raise


@contextlib.contextmanager
def _blamed(unit: Unit, *, may_refuse: bool = False) -> Iterator[None]:
    """Whatever a unit raises is told as its error, but for a refusal where it may refuse."""
    where = f"unit {unit.label}"
    try:
        yield
    except NotAcceptable as refused:
        if may_refuse:
            raise
        raise InputError(
            "a unit refused where there is no single stack to refuse", where=where, found=refused.reason[:200],
            do="a sieve leaves stacks out by self.reject(stack, reason)",
        ) from refused  # fmt: skip
    except WorkbenchError as error:
        error.facts["where"] = error.facts.get("where") or where
        raise
    # Code of a user, which may even try to end the process.
    except (Exception, SystemExit) as error:
        raise InputError("a unit failed", where=where, found=told(error), do="mend it, or leave it out") from error


def _excluded(unit: Unit, stack: Candidate, refused: NotAcceptable) -> Excluded:
    runs = refused.runs or stack.basis
    link = refused.link or (runs[0] if runs else None)
    return Excluded(
        stack, unit.label, refused.reason[:1000], link, runs, refused.package_name, refused.version_range
    )  # fmt: skip
