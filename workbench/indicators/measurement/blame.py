"""Measure which differences between two sides make one slower: packages, Python, threads, variables.

Flow: two sides → the list of their differences → sessions whose arms have some of them, chosen by
`analysis.blame_search` → the smallest set that explains the slowdown. Sessions in the folder are read, so that a search
goes on where it ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from workbench.core import files, locks
from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import FiniteModel, StrictModel, read_model_file
from workbench.indicators.analysis import version_search
from workbench.indicators.analysis.blame_search import GOOD, Arm, BlameSearch
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import SessionOutcome, check_single_indicator, choose_metric
from workbench.indicators.measurement.stack_variants import (
    build_python_variants,
    build_stack_set,
    solve_requirement_sets,
)
from workbench.indicators.stacks import stack_matrix, stack_solver
from workbench.indicators.stacks.stack_sets import Stack, StackSet, Variation
from workbench.indicators.store import archive
from workbench.stats import Interval

PLAN = "blame.json"
MAX_ATTEMPTS = 2
SLOW, GOOD_NAME = "slow", "good"
Text = Annotated[str, StringConstraints(max_length=4000)]
Watch = Callable[[], AbstractContextManager[SessionWatcher]]
Kind = Literal["package", "python", "threads", "variable"]
PACKAGE, PYTHON, THREADS = "package", "python", "threads"


class Side(StrictModel):
    """What one side runs with. `packages`: Versions by name."""

    python: Text
    packages: dict[Text, Text]
    threads: int | None = None
    variables: dict[Text, Text] = Field(default={})


class Difference(StrictModel):
    """One thing that differs; null where a side does not have it."""

    kind: Kind
    name: Text
    good: Text | None
    bad: Text | None

    @property
    def text(self) -> str:
        """In one line, such as numpy 2.2.6 -> 2.4.6."""
        ends = " -> ".join("none" if value is None else value for value in (self.good, self.bad))
        return f"{self.name} {ends}"


class BlamePlan(FiniteModel):
    """The two sides, what differs, and the settings of each session."""

    format_version: Literal[1] = 1
    good: Side
    bad: Side
    differences: Annotated[tuple[Difference, ...], Field(min_length=1, max_length=500)]
    config: SessionConfig
    metric: Text | None = None
    created_at: Text


def read_side(text: str, *, max_download_bytes: int) -> Side:
    """A side from a text: requirements, a file of stacks or a matrix of one arm, an environment, or SESSION:ARM."""
    path = Path(text).expanduser()
    folder, colon, name = text.rpartition(":")
    if colon and (Path(folder) / archive.SESSION_FILE).is_file():
        session = archive.read_session(Path(folder))
        arm = session.get_arm(name)
        return Side(python=arm.python, packages=dict(arm.packages), threads=arm.threads)
    if path.is_file() and path.suffix in (".json", *stack_matrix.SUFFIXES):
        stacks = stack_matrix.read_stacks([path], max_download_bytes=max_download_bytes)
    elif path.exists():
        arm = build_python_variants({"side": text})[0].arm
        return Side(python=arm.python, packages=dict(arm.packages))
    else:
        stacks = solve_requirement_sets([text], max_download_bytes)
    variations = stacks.variations or (Variation(name=stacks.stacks[0].name, stack=stacks.stacks[0].key),)
    if len(variations) != 1 or variations[0].stack is None:
        raise ConfigError(
            "not one side", where=text[:200], found=f"{len(variations)} arms", allowed="one arm with packages"
        )
    stack = stacks.by_arm_key[variations[0].key or ""]
    only = variations[0]
    return Side(python=stack.python, packages=stack.versions, threads=only.threads, variables=only.variables)


def list_differences(good: Side, bad: Side) -> list[Difference]:
    """Everything that differs between two sides."""
    found = [
        Difference(kind="package", name=name, good=good.packages.get(name), bad=bad.packages.get(name))
        for name in sorted(good.packages.keys() | bad.packages.keys())
    ]
    found += [
        Difference(kind="variable", name=name, good=good.variables.get(name), bad=bad.variables.get(name))
        for name in sorted(good.variables.keys() | bad.variables.keys())
    ]
    threads = [None if side.threads is None else str(side.threads) for side in (good, bad)]
    found.append(Difference(kind="threads", name="threads", good=threads[0], bad=threads[1]))
    # The third number of a Python is a build; wheels are those of the second.
    found.append(Difference(kind="python", name="Python", good=good.python, bad=bad.python))
    return [one for one in found if one.good != one.bad]


def build_side(plan: BlamePlan, arm: Arm) -> Side:
    """The good side with some of the differences."""
    side = plan.good.model_copy(deep=True)
    for place in arm:
        one = plan.differences[place]
        if one.kind == THREADS:
            side.threads = plan.bad.threads
        elif one.kind == PYTHON:
            side.python = plan.bad.python
        else:
            values = side.packages if one.kind == PACKAGE else side.variables
            if one.bad is None:
                del values[one.name]
            else:
                values[one.name] = one.bad
    return side


def start_blame(
    good: str, bad: str, config: SessionConfig, *, metric: str | None = None, out: str | Path | None = None
) -> tuple[Path, BlamePlan]:
    """Find what differs, and write the plan into a new folder."""
    check_single_indicator(config)
    sides = [read_side(text, max_download_bytes=config.max_download_bytes) for text in (good, bad)]
    differences = list_differences(*sides)
    if not differences:
        raise ConfigError("the sides do not differ", where="GOOD BAD", found=f"{len(sides[0].packages)} equal packages")
    plan = BlamePlan(
        good=sides[0],
        bad=sides[1],
        differences=tuple(differences),
        config=config.model_copy(update={"script": tuple(str(Path(text).absolute()) for text in config.script)}),
        metric=metric,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    folder = sessions.name_search_folder("blame", out)
    _write_plan(folder, plan)
    return folder, plan


def load_blame(folder: str | Path, *, metric: str | None = None) -> tuple[Path, BlamePlan]:
    """Read the plan of a folder; a metric that is given takes the place of the plan's, from now on."""
    folder = Path(folder).absolute()
    if not (folder / PLAN).is_file():
        raise InputError("not the folder of a search", where=folder, found=f"no {PLAN}")
    plan = read_model_file(BlamePlan, folder / PLAN, noun="plan of a search", max_version=1)
    if metric is not None:
        plan = plan.model_copy(update={"metric": metric})
        _write_plan(folder, plan)
    return folder, plan


def _write_plan(folder: Path, plan: BlamePlan) -> None:
    files.write_text(folder / PLAN, json.dumps(plan.model_dump(mode="json"), indent=1) + "\n")


@dataclass
class Blame:
    """A search as far as it got. `reasons`: Why its answer is not known. `outcomes`: Its sessions."""

    folder: Path
    plan: BlamePlan
    search: BlameSearch
    metric: str = ""
    reasons: list[str] = field(default_factory=list)
    outcomes: list[SessionOutcome] = field(default_factory=list)
    is_machine: bool = False
    interrupted: bool = False

    @property
    def found(self) -> bool:
        """Whether the answer is known: causes, or that there is nothing to explain."""
        return not self.reasons and not self.interrupted and self.search.kind in ("found", "nothing", "faster")


def measure_blame(
    folder: Path, plan: BlamePlan, *, budget_s: float, watch: Watch | None = None, command: str | None = None
) -> Blame:
    """Measure session after session until the causes are known, or the time has passed."""
    started, watch = time.monotonic(), watch or (lambda: nullcontext(SessionWatcher()))
    blame: Blame | None = None
    with locks.lock_exclusively(folder, "another process is measuring this search"):
        number = 0
        while True:
            arms = blame.search.list_arms() if blame else list_first_arms(plan)
            if not arms:
                break
            if time.monotonic() - started > budget_s and blame is not None:
                blame.reasons.append(
                    f"the time of {budget_s:.0f} s has passed; {len(blame.search.slow)} differences are left"
                )
                break
            number += 1
            slow = blame.search.slow if blame else frozenset(range(len(plan.differences)))
            outcome = _measure_session(folder, plan, number, slow, arms, watch, command)
            if blame is None:
                metric = choose_metric(outcome, plan.metric, resume=f"workbench indicators blame --resume {folder}")
                blame = Blame(folder, plan, BlameSearch(len(plan.differences), metric.tolerance), metric.name)
            blame.outcomes.append(outcome)
            if outcome.interrupted:
                blame.interrupted = True
                break
            if not outcome.compared.sound:
                blame.is_machine = True
                blame.reasons.append(str(outcome.compared.judgement["reasons"][0][0]))
                break
            blame.search.take(_read_ratios(outcome, blame.metric, slow, arms))
    assert blame is not None
    if blame.search.kind == "not known" and blame.search.reason:
        blame.reasons.append(blame.search.reason)
    return blame


def list_first_arms(plan: BlamePlan) -> list[Arm]:
    """The arms of the first session, whose metric and margin are not known yet."""
    return BlameSearch(len(plan.differences), 0.0).list_arms()


def name_arms(slow: Arm, arms: Sequence[Arm]) -> dict[Arm, str]:
    """Short names of the arms of a session, in their order.

    >>> list(name_arms(frozenset({0, 1}), [frozenset(), frozenset({0})]).values())
    ['slow', 'good', 'without 1']
    """
    names = {slow: SLOW, GOOD: GOOD_NAME}
    for arm in arms:
        left_out = sorted(slow - arm)
        is_alone = len(arm) == 1 and len(left_out) > 1
        places = sorted(arm) if is_alone else left_out
        shown = ",".join(map(str, places[:6])) + (f",… ({len(places)})" if len(places) > 6 else "")
        names.setdefault(arm, f"{'only' if is_alone else 'without'} {shown}")
    return names


def _measure_session(
    folder: Path, plan: BlamePlan, number: int, slow: Arm, arms: Sequence[Arm], watch: Watch, command: str | None
) -> SessionOutcome:
    """A session of these arms: read, resumed, or measured now; an invalid one is repeated once."""
    outcome: SessionOutcome | None = None
    for attempt in range(MAX_ATTEMPTS):
        root = folder / f"session-{number}" / str(attempt)
        there = sorted((root / sessions.AREA).glob(f"*/{archive.SESSION_FILE}"))
        with watch() as watcher:
            if there:
                outcome = sessions.read_or_resume_session(there[0].parent, watcher=watcher)
            else:
                watcher.report_note(f"session {number}: {len(slow)} differences left, {len(arms) + 1} arms")
                path = root / "stacks.json"
                _build_stacks(plan, name_arms(slow, arms)).write(path)
                config = plan.config.model_copy(update={"stacks": (str(path),), "baseline": SLOW})
                outcome = sessions.start_session(config, out=root, watcher=watcher, command=command)
        if outcome.compared.sound or outcome.interrupted:
            break
    assert outcome is not None
    return outcome


def _build_stacks(plan: BlamePlan, names: Mapping[Arm, str]) -> StackSet:
    """A lock for each arm, its packages as they are, whatever they ask for; with threads and variables."""
    locked: dict[tuple[str, tuple[tuple[str, str], ...]], Stack] = {}
    variations = []
    for arm, name in names.items():
        side = build_side(plan, arm)
        pins = tuple(sorted(side.packages.items()))
        if (side.python, pins) not in locked:
            locked[side.python, pins] = stack_solver.lock_pins(dict(pins), side.python)
        stack = locked[side.python, pins]
        variations.append(Variation(name=name, stack=stack.key, threads=side.threads, variables=side.variables))
    stacks = build_stack_set(list(locked.values()), [stack.name for stack in locked.values()])
    return stacks.model_copy(update={"variations": tuple(variations)})


def _read_ratios(outcome: SessionOutcome, metric: str, slow: Arm, arms: Sequence[Arm]) -> dict[Arm, Interval]:
    """How many times as fast as the slow set each arm is; no interval where it has no values."""
    table = outcome.compared.effects
    rows = {
        row["arm"]: row for row in table.filter(~table["control"] & (table["metric"] == metric)).iter_rows(named=True)
    }
    is_sequence = outcome.session.method == "sequence"
    missing = Interval(None, None, None, 0.95, 0, "", reason="it does not run")
    return {
        arm: version_search.build_level(rows[name], is_sequence=is_sequence) if name in rows else missing
        for arm, name in name_arms(slow, arms).items()
        if arm != slow
    }


def format_answer(blame: Blame) -> str:
    """The answer in a few sentences."""
    search, plan = blame.search, blame.plan
    whole = search.total
    n = len(plan.differences)
    if blame.interrupted:
        return f"Stopped after {search.n_sessions} sessions: not known yet."
    if blame.is_machine:
        return f"The machine, or nothing that can be told: two equal copies differ. {blame.reasons[0]}."
    if search.kind == "nothing":
        return f"Nothing: {blame.metric} is the same on both sides, which differ in {n} things."
    if search.kind == "faster":
        return f"The bad side is not slower: {blame.metric} is better on it ({_format_ratio(whole)})."
    if blame.reasons and not search.causes:
        return f"Not known: {blame.reasons[0]}. Bad against good: {_format_ratio(whole)}."
    causes = " and ".join(plan.differences[cause.difference].text for cause in search.causes)
    shares = sum(cause.share for cause in search.causes)
    verb = "make" if len(search.causes) > 1 else "makes"
    together = " together: none is slow alone" if len(search.causes) > 1 and shares > 1.5 else ""
    open_ = (
        f" Not decided: {', '.join(plan.differences[place].text for place in search.open_)}." if search.open_ else ""
    )
    left = f"{n - len(search.causes)} other differences do not matter"
    return f"{causes} {verb} {blame.metric} worse{together}: {_format_ratio(whole)}; {left}.{open_}"


def _format_ratio(ratio: Interval | None) -> str:
    if ratio is None or ratio.estimate is None:
        return "no ratio"
    ends = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{ratio.estimate:.3f}x{ends}"


def list_cause_rows(blame: Blame) -> list[dict[str, Any]]:
    """Causes with how much each explains: without it, alone, and its share."""
    rows = []
    for cause in blame.search.causes:
        one = blame.plan.differences[cause.difference]
        rows.append(
            one.model_dump()
            | {"share": cause.share, **_list_ends("without", cause.without), **_list_ends("alone", cause.alone)}
        )
    return rows


def _list_ends(name: str, ratio: Interval | None) -> dict[str, float | None]:
    """Columns of a ratio and the ends of its interval."""
    ends = (None, None, None) if ratio is None else (ratio.estimate, ratio.low, ratio.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def build_blame_document(blame: Blame) -> dict[str, Any]:
    """A search as one JSON document."""
    total = blame.search.total
    return {
        "answer": format_answer(blame),
        "found": blame.found,
        "kind": "machine" if blame.is_machine else blame.search.kind,
        "metric": blame.metric,
        "folder": str(blame.folder),
        "n_differences": len(blame.plan.differences),
        "n_sessions": blame.search.n_sessions,
        "ratio": total and total.estimate,
        "ratio_low": total and total.low,
        "ratio_high": total and total.high,
        "causes": list_cause_rows(blame),
        "not_decided": [blame.plan.differences[place].model_dump() for place in blame.search.open_],
        "reasons": blame.reasons,
        "sessions": [str(outcome.folder.relative_to(blame.folder)) for outcome in blame.outcomes],
    }
