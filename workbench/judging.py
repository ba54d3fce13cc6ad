"""Does a run keep its thresholds? Each rule passed, broken, or refused because it cannot be checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import catalogue, contrasts, pairing, thresholds
from workbench.errors import ConfigError, InputError, WorkbenchError
from workbench.formats import number
from workbench.stats import LEVEL, Interval, holm

if TYPE_CHECKING:
    import polars as pl

    from workbench.catalogue import Kept
    from workbench.thresholds import Baseline, Rule, Thresholds

Kind = Literal["passed", "broken", "refused"]
MOST_NAMED = 3


@dataclass(frozen=True)
class Outcome:
    """How a run stands to one rule.

    Attributes
    ----------
    rule
        The rule as a sentence, and before it what the file calls it.
    outcome
        passed, broken, or refused: the rule names a table or column that there is not, or asks what makes no sense.
    found
        What was found, in short.
    rows, broken_rows
        How many rows (1 for a key figure) were judged, and how many of them break the rule.
    """

    rule: str
    outcome: Kind
    found: str
    rows: int = 1
    broken_rows: int = 0

    def document(self) -> dict[str, Any]:
        """The outcome for run.json and `--json`."""
        names = ("rule", "outcome", "found", "rows", "broken_rows")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Gate:
    """Thresholds that are ready: areas known, runs to compare with found."""

    rules: Thresholds
    baselines: Mapping[str, Kept]

    def judge(self, run: Kept) -> dict[str, Any] | None:
        """What run.json says of a run's thresholds; null when none is for its area.

        Returns
        -------
        dict
            file, sha256, passed, broken, refused (counts), and rules: each of `Outcome.document`.
        """
        rules = self.rules.areas.get(run.area)
        if rules is None:
            return None
        outcomes = [_outcome(rule, run, self.baselines) for rule in rules]
        counts = {kind: sum(one.outcome == kind for one in outcomes) for kind in ("passed", "broken", "refused")}
        listed = [one.document() for one in outcomes]
        return {"file": self.rules.path.name, "sha256": self.rules.sha256, **counts, "rules": listed}


def prepare(path: str | Path, present: Iterable[str], known: Iterable[str], place: str | Path) -> Gate:
    """Read thresholds and refuse what can be refused before anything runs.

    Parameters
    ----------
    path
        The file.
    present, known
        Areas that are judged, and all areas that there are.
    place
        The runs folder or URL in which run ids of `no_worse_than` are looked for; folders count from the file's own.

    Raises
    ------
    ConfigError, InputError
        The file is none, an area unknown, or a run to compare with not there or of another area.
    """
    present = list(present)
    rules = thresholds.read(path)
    rules.check_areas(present, known)
    baselines: dict[str, Kept] = {}
    compared = [
        (area, rule, rule.no_worse_than.run)
        for area in rules.areas
        for rule in rules.areas[area]
        if area in present and rule.no_worse_than
    ]
    for area, rule, name in compared:
        baselines[name] = baselines.get(name) or _baseline(name, rules.path, place)
        _check_baseline(baselines[name], area, rule, rules.path)
    return Gate(rules, baselines)


def _check_baseline(found: Kept, area: str, rule: Rule, path: Path) -> None:
    where = f"{path}, {area}: {rule.told}"
    if found.area != area:
        raise ConfigError("the run to be no worse than is of another area", where=where, found=found.area)
    table = rule.table or rule.rows
    if table and table not in found.table_names():
        raise ConfigError(
            "the run to be no worse than has no such table", where=where, found=table, allowed=found.table_names()
        )


def _baseline(name: str, path: Path, place: str | Path) -> Kept:
    beside = path.absolute().parent / name
    try:
        return catalogue.one(str(beside) if (beside / "run.json").is_file() else name, place)
    except WorkbenchError as error:
        raise ConfigError(
            "no run to be no worse than", where=path, found=f"{name}: {error.what}", do="workbench runs list"
        ) from error


class _CannotBeCheckedError(Exception):
    """The rule asks for what there is not."""


def _outcome(rule: Rule, run: Kept, baselines: Mapping[str, Kept]) -> Outcome:
    told = f"{rule.name}: {rule.told}" if rule.name else rule.told
    try:
        kind, found, rows, broken = _judged(rule, run, baselines)
    except (_CannotBeCheckedError, InputError) as error:
        return Outcome(told, "refused", str(error).replace("\n  ", "; "), rows=0)
    return Outcome(told, kind, found, rows, broken)


def _judged(rule: Rule, run: Kept, baselines: Mapping[str, Kept]) -> tuple[Kind, str, int, int]:
    figures = _figures(rule, run)
    if not figures:
        return "broken", "no row is meant by it", 0, 0
    problems = [found for name, value in figures if (found := _problem(rule, name, value))]
    notes: list[str] = []
    if rule.no_worse_than and not problems:
        problems, notes = _worse(rule, run, baselines[rule.no_worse_than.run])
    if problems:
        more = f" and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        # Rows that only the earlier run has were judged, too.
        return "broken", "; ".join(problems[:MOST_NAMED]) + more, max(len(figures), len(problems)), len(problems)
    return "passed", "; ".join([_range(figures), *notes[:MOST_NAMED]]), len(figures), 0


def _figures(rule: Rule, run: Kept) -> list[tuple[str, Any]]:
    """What is judged: a name for people, and the value, of each row that is meant."""
    if rule.key:
        return [(rule.key, run.state if rule.key == "status" else run.record.get(rule.key))]
    rows = _meant(rule, run)
    if rule.rows:
        return [(rule.rows, rows.height)]
    return [(_name(row, rule), row[rule.column or ""]) for row in rows.iter_rows(named=True)]


def _meant(rule: Rule, run: Kept) -> pl.DataFrame:
    """The rows that a rule means."""
    import polars as pl

    table = rule.rows or rule.table or ""
    if table not in run.table_names():
        raise _CannotBeCheckedError(f"the run has no table {table}; it has {', '.join(run.table_names()) or 'none'}")
    frame = run.table(table)
    if unknown := [name for name in (*rule.where, rule.column) if name is not None and name not in frame.columns]:
        raise _CannotBeCheckedError(f"no column {', '.join(unknown)} in {table}; it has {', '.join(frame.columns)}")
    for name, value in rule.where.items():
        column = frame[name]
        wanted = value if isinstance(value, list) else [value]
        if problems := [item for item in wanted if not _comparable(item, column.dtype)]:
            raise _CannotBeCheckedError(f"column {name} holds {column.dtype}, not such values as {problems[0]!r}")
        frame = frame.filter(pl.Series([item in wanted for item in column.to_list()], dtype=pl.Boolean))
    return frame


def _comparable(value: Any, dtype: Any) -> bool:
    import polars as pl

    if value is None:
        return True
    if isinstance(value, bool):
        return bool(dtype == pl.Boolean)
    return bool(dtype == pl.String) if isinstance(value, str) else bool(dtype.is_numeric())


def _name(row: Mapping[str, Any], rule: Rule) -> str:
    """A row by its first texts that the rule does not name already: what a person would call it."""
    known = {*rule.where, rule.column} if len(rule.where) < len(row) - 1 else {rule.column}
    texts = [value[:60] for name, value in row.items() if isinstance(value, str) and value and name not in known]
    return ", ".join(texts[:2]) or ", ".join(map(_spelled_where, rule.where.items())) or str(rule.table)


def _spelled_where(pair: tuple[str, Any]) -> str:
    return f"{pair[0]}={pair[1]}"


def _problem(rule: Rule, name: str, value: Any) -> str | None:
    """Why a figure breaks its plain limits; null when it keeps them all."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{name}: missing"
    if (isinstance(value, bool) or not isinstance(value, int | float)) and set(rule.limits) != {"equals"}:
        raise _CannotBeCheckedError(f"{rule.figure} is no number: its limit is equals")
    if rule.equals is not None:
        if isinstance(value, str) != isinstance(rule.equals, str) or isinstance(value, bool) != isinstance(
            rule.equals, bool
        ):
            raise _CannotBeCheckedError(f"{rule.figure} is {number(value)}, which is of another kind than the limit")
        if not _equal(value, rule.equals):
            return f"{name}: {number(value)}"
    lower = rule.at_least if rule.at_least is not None else -math.inf
    upper = rule.at_most if rule.at_most is not None else math.inf
    if rule.between is not None:
        lower, upper = max(lower, rule.between[0]), min(upper, rule.between[1])
    if isinstance(value, int | float) and not lower <= value <= upper:
        return f"{name}: {number(value)}"
    return None


def _equal(value: Any, wanted: Any) -> bool:
    if value == wanted or not isinstance(value, float):
        return bool(value == wanted)
    try:
        return math.isclose(value, float(wanted))
    except OverflowError:  # an integer of more than 308 digits
        return False


def _range(figures: list[tuple[str, Any]]) -> str:
    values = [value for _, value in figures]
    if len(values) == 1:
        return number(values[0])
    if all(isinstance(value, int | float) for value in values):
        return f"{number(min(values))} to {number(max(values))} in {len(values)} rows"
    return f"{number(values[0])} in {len(values)} rows" if len(set(values)) == 1 else f"{len(values)} rows"


def _worse(rule: Rule, run: Kept, earlier: Kept) -> tuple[list[str], list[str]]:
    """What is worse than in the earlier run, and notes on what is not."""
    limit = rule.no_worse_than
    assert limit is not None
    names, pairs = _pairs(rule, run, earlier)
    turned = [pair if limit.better == "lower" else pair[::-1] for pair in pairs]
    ratios = [contrasts.ratio(*pair) for pair in turned]
    adjusted = holm([contrasts.p_above(*pair, 1 + limit.tolerance) for pair in turned])
    problems: list[str] = []
    notes: list[str] = []
    for name, pair, ratio, p_value in zip(names, pairs, ratios, adjusted, strict=True):
        if (before := pair[0].estimate) is None or pair[1].estimate is None:
            missing = "missing" if before is not None else f"missing in {earlier.run_id}"
            problems.append(f"{name}: {missing}" + ("" if before is None else f", after {number(before)}"))
            continue
        said = f"{name}: {number(pair[1].estimate)} after {number(pair[0].estimate)}{_spread(ratio)}"
        (problems if _breaks(limit, pair, ratio, p_value) else notes).append(said)
    return problems, notes


def _pairs(rule: Rule, run: Kept, earlier: Kept) -> tuple[list[str], list[tuple[Interval, Interval]]]:
    if rule.key or rule.rows:
        before, after = (_bare(_figures(rule, side)[0][1]) for side in (earlier, run))
        return [rule.figure], [(before, after)]
    table, column = rule.table or "", rule.column or ""
    old, new = pairing.side(earlier, table), pairing.side(run, table)
    found = pairing.paired(old, pairing.Side(_meant(rule, run), new.key, new.intervals))
    if column not in found.columns:
        raise _CannotBeCheckedError(f"no column {column} in {table} of {earlier.run_id}")
    # A row that is gone is a value that is missing: a query that fails now must not make the gate pass.
    meant = [row for row in found.only_baseline if all(_is_meant(row, *one) for one in rule.where.items())]
    gone = [row for row in meant if old.interval(row, column).estimate is not None]
    names = [found.name_of(row) for row in (*(after for _, after in found.both), *found.only_candidate, *gone)]
    pairs = [(old.interval(before, column), new.interval(after, column)) for before, after in found.both]
    pairs += [(_bare(None), new.interval(row, column)) for row in found.only_candidate]
    pairs += [(old.interval(row, column), _bare(None)) for row in gone]
    return names, pairs


def _is_meant(row: Mapping[str, Any], name: str, value: Any) -> bool:
    """Does a row of the earlier run, which need not have the column, hold what is asked for?"""
    wanted = value if isinstance(value, list) else [value]
    found = row.get(name)
    return name in row and any(found == one and isinstance(found, bool) == isinstance(one, bool) for one in wanted)


def _bare(value: Any) -> Interval:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return Interval(float(value) if usable else None, None, None, LEVEL, 1, "a single value")


def _breaks(limit: Baseline, pair: tuple[Interval, Interval], ratio: Interval, p_value: float | None) -> bool:
    most = 1 + limit.tolerance
    if ratio.low is not None and ratio.high is not None and p_value is not None:
        surely = ratio.low > most and p_value <= (1 - LEVEL) / 2 + 1e-12
        return ratio.high > most if limit.proven else surely
    if limit.proven or pair[0].estimate is None or pair[1].estimate is None:
        return True
    # Without intervals the figures themselves; a tolerance is a share, so of 0 it is 0.
    before, after = pair[0].estimate, pair[1].estimate
    slack = limit.tolerance * abs(before)
    return after > before + slack if limit.better == "lower" else after < before - slack


def _spread(ratio: Interval) -> str:
    if ratio.estimate is None:
        return ""
    ends = "" if ratio.low is None else f", {number(ratio.low)} to {number(ratio.high)}"
    return f" ({number(ratio.estimate)} times as bad{ends})"
