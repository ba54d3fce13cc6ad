"""From a question to its stacks: the points of its plan solved to locks by uv, duplicates merged, each named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from workbench.indicators.stacks import naming, space, tool
from workbench.indicators.stacks.index import moment
from workbench.indicators.stacks.model import Rejected, Stack, StackSet, make_stack
from workbench.indicators.stacks.planning import UNLIMITED, Plan, last_day, plan
from workbench.indicators.stacks.request import Request, decimal_size
from workbench.indicators.stacks.solving import Solved, Solver, Unsolved, solve_all
from workbench.indicators.stacks.sources import Sources

Progress = Callable[[int, int], None]


def make(request: Request, sources: Sources | None = None, progress: Progress | None = None) -> StackSet:
    """The stacks that a request asks for, each a lock with hashes.

    Parameters
    ----------
    request
        What is asked for.
    sources
        The index; the configured one without it.
    progress
        Called with (points solved, of how many).

    Returns
    -------
    StackSet
        Points without a solution are kept with the reason; points that give the same lock are one stack. The same
        request with the same seed and limit gives the same bytes.

    Raises
    ------
    WorkbenchError
        As `plan` does; RunFailedError also when uv fails otherwise than by finding no solution.
    """
    return solve(plan(request, sources), progress)


def solve(made: Plan, progress: Progress | None = None) -> StackSet:
    """The stacks of a plan; see `make`."""
    solver = Solver(made.requirements, made.index, made.before)
    answers = _answers(made, solver, progress)
    untimed = sorted({name for answer in answers for name in answer.untimed})
    if untimed and made.before is not None and made.request.before is None:
        # Only a solution shows which packages take part: one of them has files that the limit drops.
        return solve(replace(made, before=None, notes=(UNLIMITED.format(untimed[0]),)), progress)
    notes = made.notes
    if untimed:
        were = "file without upload time was" if len(untimed) == 1 else "files without upload time were"
        shown = ", ".join(untimed[:3]) + (", …" if len(untimed) > 3 else "")
        notes += (f"{len(untimed)} {were} passed over: {shown}",)
    return _gathered(made, answers, notes)


def _answers(made: Plan, solver: Solver, progress: Progress | None) -> list[Solved | Unsolved]:
    """Solve until there are as many different stacks as wanted, or no points any more.

    The size of a batch follows from earlier answers alone, so that the same seed solves the same points.
    """
    answers: list[Solved | Unsolved] = []
    points = iter(made.points())
    most = min(made.total, made.request.most)
    while True:
        different = {answer.packages for answer in answers if isinstance(answer, Solved)}
        missing = most if made.wanted is None else made.wanted - len(different)
        batch = list(itertools.islice(points, max(0, min(missing, most - len(answers)))))
        if not batch:
            return answers
        done = len(answers)
        told = None if progress is None else _shifted(progress, done)
        answers += solve_all(solver, batch, told)


def _shifted(progress: Progress, by: int) -> Progress:
    return lambda done, total: progress(by + done, by + total)


def _gathered(made: Plan, answers: Sequence[Solved | Unsolved], notes: tuple[str, ...]) -> StackSet:
    rejected: list[Rejected] = []
    stacks: dict[str, Stack] = {}
    merged = 0
    for answer in answers:
        if isinstance(answer, Unsolved):
            rejected.append(answer.rejected)
            continue
        label = answer.point.label
        stack = make_stack(
            answer.packages, python=made.index.target.python, platform=made.index.target.platform, origin=(label,)
        )
        if reason := _too_large(stack, made.request.max_download_bytes):
            rejected.append(Rejected(point=label, reason=reason))
        elif known := stacks.get(stack.key):
            merged += 1
            stacks[stack.key] = known.model_copy(update={"origin": (*known.origin, label)})
        else:
            stacks[stack.key] = stack
    if made.wanted is not None and len(stacks) < made.wanted:
        notes += (f"{len(stacks)} of {made.wanted} wanted stacks: {len(answers)} of {made.total} points were tried",)
    return StackSet(
        requirements=made.request.requirements,
        free=made.request.free,
        decision=made.request.decision,
        seed=made.seed,
        exclude_newer=None if made.before is None else moment(made.before),
        python=made.index.target.python,
        platform=made.index.target.platform,
        uv_version=tool.version(),
        stacks=tuple(naming.named(list(stacks.values()), made.free or _names(made.request.requirements))),
        rejected=tuple(rejected),
        merged=merged,
        notes=notes,
        options=_options(made.request),
        context=made.request.context,
    )


def _options(request: Request) -> dict[str, int | str | None]:
    """The settings that decide which points there are; the last day as it was on the day of asking."""
    # Those of most requests stay out of the file.
    limits = {"most": request.most, "max_download_bytes": request.max_download_bytes}
    usual = {name: Request.model_fields[name].default for name in limits}
    more: dict[str, int | str | None] = {name: value for name, value in limits.items() if value != usual[name]}
    names = ["step", "latest"] if request.decision in ("grid", "random", "latest") else []
    if request.decision == "dates":
        return {"first_day": str(request.first_day), "last_day": str(last_day(request)), "every": request.every} | more
    return {name: getattr(request, name) for name in [*names, "count"]} | more


def _names(requirements: Sequence[str]) -> tuple[str, ...]:
    return tuple(canonicalize_name(space.requirement(text, "--requirements").name) for text in requirements)


def _too_large(stack: Stack, most_bytes: int) -> str | None:
    size = sum(package.download_bytes or 0 for package in stack.packages)
    if size <= most_bytes:
        return None
    return f"download of {decimal_size(size)} is above --max-download {decimal_size(most_bytes)}"
