"""What a comparison of two runs comes to: causes, key numbers, figures that moved, and the sentence above them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.core.formats import cut_text, fit_answer
from workbench.runs.compare import Comparison, Contrast, TableDiff
from workbench.runs.levels import Fact

# Parts of the record that may explain a difference; the others are what the run came to.
_VERSIONS = ("package_version", "git_commit")
_KINDS = ("setting", "input", "version", "machine")
MAX_FACT_CHARS = 40


@dataclass(frozen=True)
class KeyChange:
    """A key number of the reports of two runs, as they show it."""

    label: str
    baseline: str
    candidate: str
    unit: str

    @property
    def is_change(self) -> bool:
        """Whether the two runs show something else."""
        return self.baseline != self.candidate


@dataclass(frozen=True)
class Move:
    """A figure that went up or down: its table, the contrast, and better, worse or "" where nothing says."""

    table: str
    contrast: Contrast
    effect: str


@dataclass(frozen=True)
class Differences:
    """Two runs side by side: first what may be the cause, then what moved."""

    comparison: Comparison
    key_numbers: tuple[KeyChange, ...]

    @cached_property
    def causes(self) -> tuple[Fact, ...]:
        """Settings, inputs, versions and parts of the machine that differ."""
        facts: list[Fact] = [
            ("version", name, _shorten_commit(before), _shorten_commit(after))
            if kind == "run" and name in _VERSIONS
            else (kind, name, before, after)
            for kind, name, before, after in self.comparison.facts
        ]
        chosen = [fact for fact in facts if fact[0] in _KINDS]
        return tuple(sorted(chosen, key=lambda fact: _KINDS.index(fact[0])))

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Figures told apart, the surest first."""
        found = [
            Move(table.name, contrast, _find_effect(self.comparison, table, contrast))
            for table in self.comparison.tables
            for contrast in table.contrasts
            if contrast.verdict in ("HIGHER", "LOWER")
        ]
        return tuple(sorted(found, key=lambda move: move.contrast.adjusted_p_value or 0.0))

    @property
    def answer(self) -> str:
        """What differs, and because of what, in at most 90 characters."""
        objection = self.comparison.objection
        if objection:
            return fit_answer(f"No verdicts: {objection}.", "No verdicts: one of the two runs is not valid.")
        changed = [number for number in self.key_numbers if number.is_change]
        if not changed:
            return fit_answer(
                *(f"{text}{cause}." for text in [self._describe_moves()] for cause in self._list_reasons())
            )
        first = changed[0]
        figures = f"{first.candidate} instead of {first.baseline} {first.unit}".rstrip()
        named = f"{first.label}: {figures}"
        whole = [figures] if first.unit else []
        return fit_answer(*(f"{text}{reason}." for reason in self._list_reasons() for text in (named, *whole)))

    def _list_reasons(self) -> list[str]:
        """The cause as a clause, the longest first; a single difference is named as the reason."""
        settings = [fact for fact in self.causes if fact[0] == "setting"]
        others = len(self.causes) - len(settings)
        n_more = f" and {others} other difference{'s' if others > 1 else ''}" if others else ""
        if not self.causes:
            return [", with the same settings, inputs and versions", ""]
        if len(self.causes) == 1:
            return [f", because {describe_change(self.causes[0])}", f", because {self.causes[0][1]} differs", ""]
        if len(settings) == 1:
            return [f", with {describe_change(settings[0])}{n_more}", f", with another {settings[0][1]}{n_more}", ""]
        counted = f"{len(settings)} settings" if settings else f"{others} inputs or versions"
        return [f", with {counted} changed{n_more if settings else ''}", f", with {counted} changed", ""]

    def _describe_moves(self) -> str:
        counts = self.comparison.counts
        total, moved = sum(counts.values()), len(self.moves)
        changed = [table.name for table in self.comparison.tables if table.changes]
        others = f"; values without one differ in {len(changed)} table{'s'[: len(changed) != 1]}" if changed else ""
        if not total:
            return f"No figure has an interval in both runs{others}"
        if not moved:
            equal = f": {counts['EQUAL']} of {total} are equal" if counts["EQUAL"] else f" of {total}"
            return f"No figure with an interval moved{equal}{others}"
        effects = [f"{n} {word}" for word in ("better", "worse") if (n := sum(m.effect == word for m in self.moves))]
        return f"{moved} of {total} figures moved" + (f": {', '.join(effects)}" if effects else "")


def describe_change(fact: Fact) -> str:
    """A difference around the figures in a few words.

    >>> describe_change(("setting", "users", "400.0", "800.0"))
    'users 400 -> 800'
    """
    _, name, before, after = fact
    return f"{name} {' -> '.join(map(_shorten_side, (before, after)))}"


def _shorten_commit(text: str | None) -> str | None:
    return None if text is None else re.sub(r"^([0-9a-f]{10})[0-9a-f]{30}", r"\1", text)


def _shorten_side(text: str | None) -> str:
    return cut_text(text.removesuffix(".0"), MAX_FACT_CHARS) if text else "none"


def find_differences(comparison: Comparison) -> Differences:
    """What two compared runs differ in; key numbers are those of their reports."""
    from workbench.report.gallery import read_headline_and_charts

    sides = [read_headline_and_charts(run)[0].get("key_numbers") for run in (comparison.baseline, comparison.candidate)]
    before, after = (_read_key_numbers(numbers) for numbers in sides)
    numbers = [
        KeyChange(label, before[label][0], value, unit)
        for label, (value, unit) in after.items()
        if label in before and before[label][1] == unit
    ]
    return Differences(comparison, tuple(numbers))


def _read_key_numbers(numbers: object) -> dict[str, tuple[str, str]]:
    entries = [entry for entry in numbers if isinstance(entry, dict)] if isinstance(numbers, list) else []
    return {
        str(entry["label"]): (str(entry.get("value", "")), str(entry.get("unit") or ""))
        for entry in entries
        if "label" in entry
    }


def _find_effect(comparison: Comparison, table: TableDiff, contrast: Contrast) -> str:
    better = comparison.candidate.table_entry(table.name).get("better")
    good = {"lower": "LOWER", "higher": "HIGHER"}.get(
        better.get(contrast.column, "") if isinstance(better, dict) else ""
    )
    return "" if good is None else "better" if good == contrast.verdict else "worse"


def list_undecided(tables: Sequence[TableDiff]) -> list[tuple[str, Contrast]]:
    """Figures of which nobody knows whether they moved, by table: undecided, or without a ratio."""
    found = [(table.name, one) for table in tables for one in table.contrasts if one.verdict in (None, "UNDECIDED")]
    return sorted(found, key=lambda pair: pair[1].verdict is None)
