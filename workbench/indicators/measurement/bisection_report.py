"""A search over versions as text and as a JSON document."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING, Any

from workbench.console.tables import format_table
from workbench.indicators.summary import count_more_rounds
from workbench.stats.verdicts import DIFFERENT, SAME, UNDECIDED

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.indicators.analysis.version_search import Step
    from workbench.indicators.measurement.version_bisection import BisectionOutcome, VersionRecord
    from workbench.stats import Interval

_HEADERS = ("version", "", "times better", "low", "high", "verdict", "rounds", "session", "")
_MAX_REMARK_CHARS = 120


def format_bisection_answer(outcome: BisectionOutcome) -> str:
    """The answer in a sentence, and what else must be known with it in further ones."""
    if outcome.interrupted:
        return f"Stopped after {_count_probes(outcome)}: not known yet."
    if outcome.result is None:
        if outcome.records[-1].verdict == SAME:
            return f"{_format_ends(outcome)}: {outcome.reasons[0]}."
        advice = "; measure more rounds (--rounds), or on a quieter machine" if outcome.records[-1].folder else ""
        return f"Not known: {outcome.reasons[0]}{advice}. {_format_ends(outcome)}."
    if outcome.result.step.verdict not in DIFFERENT:
        return f"Not known which version: {'; '.join(outcome.reasons)}. {_format_ends(outcome)}."
    sentences = [_format_step_answer(outcome), *_format_share(outcome), *_format_dependencies(outcome)]
    return " ".join([*sentences, *(f"Not known more exactly: {reason}." for reason in outcome.reasons)])


def _format_step_answer(outcome: BisectionOutcome) -> str:
    assert outcome.result is not None
    step, between = outcome.result.step, outcome.result.between
    before, after = _name_versions(outcome, step)
    package, change, interval = outcome.bisection.plan.package, _format_change(step.ratio), _format_ends_of(step.ratio)
    tail = f"{_count_probes(outcome)} of {outcome.bisection.last - 1} versions between."
    if not between:
        return f"{package} {after} made {outcome.metric} {change} ({interval}) than {before}; {tail}"
    names = ", ".join(outcome.bisection.plan.versions[place] for place in between)
    return (
        f"{package} made {outcome.metric} {change} ({interval}) between {before} and {after}, by {after} or a version "
        f"that was not measured ({names}); {tail}"
    )


def _name_versions(outcome: BisectionOutcome, step: Step) -> tuple[str, str]:
    versions = outcome.bisection.plan.versions
    return versions[step.before], versions[step.after]


def _count_probes(outcome: BisectionOutcome) -> str:
    return f"{outcome.n_probes} probe{'' if outcome.n_probes == 1 else 's'}"


def _format_change(ratio: Interval) -> str:
    """1.42x slower, or faster."""
    estimate = ratio.estimate or 1.0
    return f"{format_factor(max(estimate, 1 / estimate))}x {'faster' if estimate > 1 else 'slower'}"


def format_factor(value: float) -> str:
    """A factor with three digits, more where it is near 1.

    >>> format_factor(1.4231), format_factor(1.0312), format_factor(22.04)
    ('1.42', '1.031', '22.0')
    """
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}" if value < 1.1 else f"{value:.2f}"


def _format_ends_of(ratio: Interval) -> str:
    """The interval in the direction in which the change is told."""
    if ratio.low is None or ratio.high is None:
        return "no interval"
    faster = (ratio.estimate or 1.0) > 1
    low, high = (ratio.low, ratio.high) if faster else (1 / ratio.high, 1 / ratio.low)
    return f"{100 * ratio.level:.3g} % interval {format_factor(low)} to {format_factor(high)}"


def _format_ends(outcome: BisectionOutcome) -> str:
    """Both ends against each other."""
    plan, newest = outcome.bisection.plan, outcome.records[-1]
    names = f"{plan.package} {plan.versions[-1]} against {plan.versions[0]}"
    if newest.ratio is None:
        return names
    return f"{names}: {outcome.metric} is {_format_change(newest.ratio)} ({_format_ends_of(newest.ratio)})"


def _format_share(outcome: BisectionOutcome) -> list[str]:
    """Which part of the whole change the step is, if there are other steps."""
    result, newest = outcome.result, outcome.records[-1].ratio
    if result is None or not result.others or result.share is None or newest is None:
        return []
    versions = outcome.bisection.plan.versions
    total_change = f"{versions[0]} to {versions[-1]}: {_format_change(newest)}"
    parts = [
        f"from {versions[step.before]} to {versions[step.after]} ({_format_change(step.ratio)})"
        for step in result.others
    ]
    share = f"This step is {100 * result.share:.0f} % of the whole change ({total_change})"
    return [f"{share}; there are other steps {' and '.join(parts)}."]


def list_changed_packages(outcome: BisectionOutcome) -> list[tuple[str, str | None, str | None]]:
    """Other packages that differ between the locks of the step's two versions: name, before, after; null: absent."""
    if outcome.result is None:
        return []
    step, stacks = outcome.result.step, outcome.bisection.stacks
    before, after = stacks[step.before].versions, stacks[step.after].versions
    names = sorted((before.keys() | after.keys()) - {outcome.bisection.plan.package})
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def _format_dependencies(outcome: BisectionOutcome) -> list[str]:
    packages = list_changed_packages(outcome)
    if not packages:
        return []
    changes = ", ".join(f"{name} changed too: {old or 'none'} -> {new or 'none'}" for name, old, new in packages)
    fixed = next((f" --with {name}=={old}" for name, old, new in packages if old and new), " other requirements")
    return [f"{changes}; that may be the cause: fix it with{fixed}."]


def list_next_commands(outcome: BisectionOutcome) -> list[str]:
    """Commands that go on: the search, and before it further rounds of a session that is undecided."""
    again = f"workbench indicators bisect --resume {shlex.quote(str(outcome.bisection.folder))}"
    if outcome.interrupted:
        return [again]
    open_ = outcome.direct or outcome.records[-1]
    is_open = not outcome.found and open_.verdict == UNDECIDED and open_.folder is not None
    if is_open and open_.folder is not None:
        more = count_more_rounds([(open_.rounds_needed, open_.rounds or 0)])
        return [f"workbench indicators run --resume {shlex.quote(str(open_.folder))} --more {more}", again]
    return []


def format_bisection(outcome: BisectionOutcome) -> str:
    """A search as text: the answer, the versions, the folder, what to do next."""
    folder, plan = outcome.bisection.folder, outcome.bisection.plan
    rows = [_format_record(record, folder) for record in outcome.records]
    if outcome.direct is not None and outcome.result is not None:
        before, after = _name_versions(outcome, outcome.result.step)
        rows.append(("", f"{after} against {before}", *_format_record(outcome.direct, folder)[2:]))
    lines = [format_bisection_answer(outcome), "", *format_table(rows, _HEADERS, right=_HEADERS[2:5]), ""]
    lines += [f"left out, since they were yanked: {', '.join(plan.yanked)}"] if plan.yanked else []
    lines += [f"ratios are to {plan.versions[0]}, above 1 is better; times in {plan.config.clock} time"]
    lines += [f"written: {folder}", *(f"next: {command}" for command in list_next_commands(outcome))]
    return "\n".join(lines)


def _format_record(record: VersionRecord, folder: Path) -> tuple[str | int | None, ...]:
    ratio = record.ratio
    ends = (None, None, None) if ratio is None else (ratio.estimate, ratio.low, ratio.high)
    place = "" if record.folder is None else str(record.folder.relative_to(folder))
    cells = ["–" if end is None else f"{end:.3f}" for end in ends]
    remark = textwrap.shorten(record.reason or "", _MAX_REMARK_CHARS, placeholder=" …")
    rounds = "" if record.rounds is None else str(record.rounds)
    return record.version, record.state, *cells, record.verdict or "", rounds, place, remark


def build_bisection_document(outcome: BisectionOutcome) -> dict[str, Any]:
    """A search as one JSON document; folders of sessions are relative to its own."""
    plan, result = outcome.bisection.plan, outcome.result
    is_exact = outcome.found and result is not None and not result.between
    return {
        "package": plan.package,
        "folder": str(outcome.bisection.folder),
        "found": outcome.found,
        "version": plan.versions[result.step.after] if is_exact and result is not None else None,
        "answer": format_bisection_answer(outcome),
        "metric": outcome.metric,
        "margin": outcome.margin,
        "clock": plan.config.clock,
        "n_probes": outcome.n_probes,
        "interrupted": outcome.interrupted,
        "reasons": list(outcome.reasons),
        "step": None if result is None else _build_step_document(outcome, result.step),
        "possible_versions": []
        if result is None or result.step.verdict not in DIFFERENT
        else [plan.versions[place] for place in (*result.between, result.step.after)],
        "share_of_change": None if result is None else result.share,
        "other_steps": [] if result is None else [_build_step_document(outcome, step) for step in result.others],
        "changed_packages": [
            {"name": name, "before": old, "after": new} for name, old, new in list_changed_packages(outcome)
        ],
        "versions": [_build_record_document(record, outcome.bisection.folder) for record in outcome.records],
        "direct": None if outcome.direct is None else _build_record_document(outcome.direct, outcome.bisection.folder),
        "yanked": list(plan.yanked),
        "next": list_next_commands(outcome),
    }


def _build_step_document(outcome: BisectionOutcome, step: Step) -> dict[str, Any]:
    before, after = _name_versions(outcome, step)
    return {"before": before, "after": after, **_build_ratio_document(step.ratio), "verdict": step.verdict}


def _build_ratio_document(ratio: Interval | None) -> dict[str, Any]:
    values = {name: None if ratio is None else getattr(ratio, name) for name in ("low", "high", "level")}
    return {"ratio": None if ratio is None else ratio.estimate, **values}


def _build_record_document(record: VersionRecord, folder: Path) -> dict[str, Any]:
    return {
        "version": record.version,
        "state": record.state,
        "reason": record.reason,
        **_build_ratio_document(record.ratio),
        "verdict": record.verdict,
        "rounds": record.rounds,
        "session": None if record.folder is None else str(record.folder.relative_to(folder)),
    }
