"""Two runs of the same notebook, compared: what went in, where it ran, what came out, table by table.

Figures with intervals in both runs get the ratio candidate / baseline with its interval and a verdict; all others the
difference, and no verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench import contrasts, pairing
from workbench.errors import ConfigError, WorkbenchError
from workbench.stats import LEVEL, MARGIN, Interval, decide

if TYPE_CHECKING:
    from workbench.catalogue import Kept
    from workbench.pairing import Paired

Verdict = Literal["HIGHER", "LOWER", "SAME", "UNDECIDED"]
VERDICTS: tuple[Verdict, ...] = ("HIGHER", "LOWER", "UNDECIDED", "SAME")
MOST_ROWS = 5000
MOST_TEXT = 200
# How sure and how many: they say how good a figure is, and are no figures themselves.
_BESIDE = ("level", "n", "p_value", "adjusted_p_value")
# What differs between any two runs, and explains nothing.
_OF_THE_MOMENT = ("load_1m",)
_WORDS: dict[str, Verdict] = {"FASTER": "HIGHER", "SLOWER": "LOWER", "SAME": "SAME", "UNDECIDED": "UNDECIDED"}


@dataclass(frozen=True)
class Contrast:
    """One figure with its interval in both runs.

    Attributes
    ----------
    row, column, unit
        Whose figure: the row's key, the column and its unit ("" for none).
    baseline, candidate
        The figure in each run, with its ends.
    ratio
        candidate / baseline with its interval at 90 %; null ends with the reason.
    verdict
        HIGHER, LOWER or SAME where that is told apart by Holm over all contrasts of the comparison, else UNDECIDED;
        null without an interval.
    adjusted_p_value
        What the verdict rests on; null where there was none.
    """

    row: str
    column: str
    unit: str
    baseline: Interval
    candidate: Interval
    ratio: Interval
    verdict: Verdict | None = None
    adjusted_p_value: float | None = None


@dataclass(frozen=True)
class Change:
    """A value without interval that is not the same in both runs; `difference` is candidate - baseline, of numbers."""

    row: str
    column: str
    unit: str
    baseline: Any
    candidate: Any
    difference: float | None


@dataclass(frozen=True)
class TableDiff:
    """One table in two runs; `note` says why it was not compared, or only in part.

    `rows` counts those of both runs; `only_baseline` and `only_candidate` name rows that one of them has.
    """

    name: str
    rows: int = 0
    key: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    changes: tuple[Change, ...] = ()
    note: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many contrasts have each verdict."""
        found = Counter(one.verdict for one in self.contrasts if one.verdict)
        return {verdict: found[verdict] for verdict in VERDICTS}


@dataclass(frozen=True)
class Diff:
    """Two runs, and how they differ.

    Attributes
    ----------
    baseline, candidate
        The runs.
    facts
        What differs around the figures: (kind, name, baseline, candidate) as texts, null where a side has none.
    tables
        Table by table, in the candidate's order.
    notes
        What a reader has to know to trust the verdicts.
    """

    baseline: Kept
    candidate: Kept
    facts: tuple[tuple[str, str, str | None, str | None], ...]
    tables: tuple[TableDiff, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> dict[str, int]:
        """How many contrasts have each verdict, over all tables."""
        return {verdict: sum(table.counts[verdict] for table in self.tables) for verdict in VERDICTS}


def diff(baseline: Kept, candidate: Kept, *, other_area: bool = False) -> Diff:
    """How does one run differ from another of the same notebook?

    Parameters
    ----------
    baseline, candidate
        The runs; ratios are candidate / baseline.
    other_area
        Compare runs of different areas all the same: the tables that have one name.

    Returns
    -------
    Diff
        Verdicts hold for all contrasts at once (Holm, 90 %, margin 2 %).

    Raises
    ------
    ConfigError
        The runs are of different areas.

    Notes
    -----
    Takes the runs for independent of each other. Does not show why they differ, nor whether a third would lie between
    them: two runs know the spread within a run, and that between runs only as far as their intervals hold it.
    """
    if baseline.area != candidate.area and not other_area:
        found = f"{baseline.area} and {candidate.area}"
        raise ConfigError("runs of different areas", where="runs diff", found=found, do="compare them with --any")
    tables = _judged([_table(name, baseline, candidate) for name in _names(baseline, candidate)])
    return Diff(
        baseline, candidate, tuple(_facts(baseline.record, candidate.record)), tables, _notes(baseline, candidate)
    )


def _names(baseline: Kept, candidate: Kept) -> list[str]:
    return list(dict.fromkeys([*candidate.table_names(), *baseline.table_names()]))


def _table(name: str, baseline: Kept, candidate: Kept) -> TableDiff:
    for run, which in ((baseline, "candidate"), (candidate, "baseline")):
        if name not in run.table_names():
            return TableDiff(name, note=f"only the {which} has it")
    try:
        before, after = pairing.side(baseline, name), pairing.side(candidate, name)
        if max(before.frame.height, after.frame.height) > MOST_ROWS:
            counted = f"{before.frame.height:,} and {after.frame.height:,} rows"
            return TableDiff(name, note=f"{counted}: row by row at most {MOST_ROWS:,} are compared")
        found = pairing.paired(before, after)
    except WorkbenchError as error:
        return TableDiff(name, note=str(error).replace("\n  ", "; "))
    units = _units(candidate, name)
    return TableDiff(
        name,
        len(found.both),
        found.key,
        found.own,
        tuple(_short(found.name_of(row)) for row in found.only_baseline),
        tuple(_short(found.name_of(row)) for row in found.only_candidate),
        tuple(_contrasts(found, units)),
        tuple(_changes(found, units)),
    )


def _units(run: Kept, table: str) -> dict[str, str]:
    noted = run.entry(table).get("units")
    return {str(name): _short(unit) for name, unit in noted.items()} if isinstance(noted, Mapping) else {}


def _unit(column: str, units: Mapping[str, str]) -> str:
    from workbench.formats import unit_of

    return units.get(column) or unit_of(column)


def _contrasts(found: Paired, units: Mapping[str, str]) -> Iterator[Contrast]:
    for before, after in found.both:
        for column in found.interval_columns():
            one, other = found.baseline.interval(before, column), found.candidate.interval(after, column)
            if one.estimate is None and other.estimate is None:
                continue
            name, unit = _short(found.name_of(after)), _unit(column, units)
            yield Contrast(name, column, unit, one, other, contrasts.ratio(one, other))


def _changes(found: Paired, units: Mapping[str, str]) -> Iterator[Change]:
    with_ends = found.interval_columns()
    ends = {end for name in with_ends for side in (found.baseline, found.candidate) for end in side.intervals[name]}
    columns = [name for name in found.columns if name not in {*found.key, *found.own, *with_ends, *ends, *_BESIDE}]
    for before, after in found.both:
        for column in columns:
            if not _same(before[column], after[column]):
                values = (_value(before[column]), _value(after[column]))
                yield Change(_short(found.name_of(after)), column, _unit(column, units), *values, _difference(*values))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (isinstance(one, float) and isinstance(other, float) and one != one and other != other)


def _value(value: Any) -> Any:
    """A value that JSON can hold."""
    import math

    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _short(value)


def _difference(one: Any, other: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (one, other)):
        return None
    try:
        return float(other - one)
    except OverflowError:
        return None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _judged(tables: Sequence[TableDiff]) -> tuple[TableDiff, ...]:
    """Verdicts over all contrasts of all tables: they are read together."""
    family = [one.ratio for table in tables for one in table.contrasts]
    decisions = iter(decide(family, margin=MARGIN))
    judged = []
    for table in tables:
        rows = []
        for one in table.contrasts:
            decision = next(decisions)
            known = one.ratio.low is not None
            verdict = _WORDS[decision.verdict] if known else None
            rows.append(replace(one, verdict=verdict, adjusted_p_value=decision.adjusted_p_value))
        judged.append(replace(table, contrasts=tuple(rows)))
    return tuple(judged)


def _facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, str | None]]:
    """What differs besides the tables."""
    plain = ("status", "verdict", "answer", "notebook", "package_version", "git_commit")
    sides = [
        {("run", name): record.get(name) for name in plain}
        | {("run", "reasons"): "; ".join(map(str, record.get("reasons") or [])) or None}
        | {("setting", name): value for name, value in _flat(record.get("config"))}
        | {("input", name): digest for name, digest in _inputs(record)}
        | {("version", name): value for name, value in _flat(record.get("versions"))}
        | {("machine", name): value for name, value in _flat(record.get("host")) if name not in _OF_THE_MOMENT}
        for record in (before, after)
    ]
    order = ("run", "setting", "input", "version", "machine")
    for kind, name in sorted({**sides[0], **sides[1]}, key=lambda pair: order.index(pair[0])):
        one, other = (side.get((kind, name)) for side in sides)
        if one != other:
            texts = [None if value is None else _short(value) for value in (one, other)]
            yield kind, _short(name), texts[0], texts[1]


def _flat(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping) or depth > 5:
        return
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner and depth < 5:
            yield from _flat(inner, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", inner


def _inputs(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for entry in record["inputs"]:
        if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
            yield entry["path"], entry.get("sha256") or "no sha256"


def _notes(baseline: Kept, candidate: Kept) -> tuple[str, ...]:
    notes = [
        f"Intervals are {LEVEL:.0%}; the two runs are taken as independent of each other.",
        f"Verdicts allow for a margin of {MARGIN:.0%} and, by Holm, for all comparisons made here at once.",
    ]
    digests = [
        {entry.get("sha256") for entry in run.record["inputs"] if isinstance(entry, Mapping)} - {None}
        for run in (baseline, candidate)
    ]
    if digests[0] & digests[1]:
        notes.append(
            "Both runs read the same inputs: where a figure comes from those alone, the runs are not independent, and "
            "a difference comes from settings or versions, whatever its verdict."
        )
    notes += [
        f"The {which} is {run.record['verdict']}: its figures may mislead."
        for run, which in ((baseline, "baseline"), (candidate, "candidate"))
        if run.record["verdict"] == "invalid"
    ]
    notes += [
        f"The {which} has not succeeded ({run.state}): tables may be missing."
        for run, which in ((baseline, "baseline"), (candidate, "candidate"))
        if run.state != "succeeded"
    ]
    return tuple(notes)
