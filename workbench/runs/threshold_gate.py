"""Check a run against its thresholds: each rule passed, broken or refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.formats import format_number
from workbench.runs import catalogue, table_pairs, thresholds
from workbench.stats import LEVEL, Interval, adjust_holm
from workbench.stats import ratios as stats_ratios

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.catalogue import StoredRun
    from workbench.runs.thresholds import Baseline, Rule, Thresholds

Kind = Literal["passed", "broken", "refused"]
MAX_NAMED = 3


@dataclass(frozen=True)
class RuleOutcome:
    """Outcome of one rule for a run.

    `outcome`: passed, broken, or refused: a table or column is missing, or the limit does not fit the column.
    `rows`, `broken_rows`: Number of rows checked (1 for a key figure), and of those that break the rule.
    """

    rule: str
    outcome: Kind
    found: str
    rows: int = 1
    broken_rows: int = 0

    def build_document(self) -> dict[str, Any]:
        """The outcome for run.json and `--json`."""
        names = ("rule", "outcome", "found", "rows", "broken_rows")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ThresholdGate:
    """Checked thresholds with the baseline runs that they name."""

    rules: Thresholds
    baselines: Mapping[str, StoredRun]

    def check_run(self, run: StoredRun) -> dict[str, Any] | None:
        """Check a run; the result is the `thresholds` of run.json, null without rules for the area.

        Returns: file, sha256, passed, broken, refused (counts), and rules, each by `RuleOutcome.build_document`.
        """
        if not (rules := self.rules.list_rules(run.area)):
            return None
        outcomes = [_check_rule(rule, run, self.baselines) for rule in rules]
        counts = {
            kind: sum(outcome.outcome == kind for outcome in outcomes) for kind in ("passed", "broken", "refused")
        }
        documents = [outcome.build_document() for outcome in outcomes]
        return {"file": self.rules.path.name, "sha256": self.rules.sha256, **counts, "rules": documents}


def load_gate(path: str | Path, present: Iterable[str], all_areas: Iterable[str], place: str | Path) -> ThresholdGate:
    """Read thresholds and check them as far as possible before anything runs.

    `place`: Folder or URL of the runs that `no_worse_than` names by id; folders there are relative to the file.
    """
    present = list(present)
    rules = thresholds.load_thresholds(path)
    rules.check_areas(present, all_areas)
    baselines: dict[str, StoredRun] = {}
    compared = [
        (area, rule, rule.no_worse_than.run)
        for area in rules.areas
        for rule in rules.areas[area]
        if area in present and rule.no_worse_than
    ]
    for area, rule, name in compared:
        baselines[name] = baselines.get(name) or _find_baseline_run(name, rules.path, place)
        _check_baseline(baselines[name], area, rule, rules.path)
    return ThresholdGate(rules, baselines)


def _check_baseline(baseline: StoredRun, area: str, rule: Rule, path: Path) -> None:
    where = f"{path}, {area}: {rule.sentence}"
    if baseline.area != area:
        raise ConfigError("baseline run is of another area", where=where, found=baseline.area)
    table = rule.table or rule.rows
    if table and table not in baseline.list_table_names():
        raise ConfigError(
            "baseline run has no such table", where=where, found=table, allowed=baseline.list_table_names()
        )


def _find_baseline_run(name: str, path: Path, place: str | Path) -> StoredRun:
    beside = path.absolute().parent / name
    try:
        return catalogue.resolve_run(str(beside) if (beside / "run.json").is_file() else name, place)
    except WorkbenchError as error:
        raise ConfigError(
            "baseline run not found", where=path, found=f"{name}: {error.what}", do="workbench runs list"
        ) from error


class _CannotBeCheckedError(Exception):
    """The rule does not fit the run."""


def _check_rule(rule: Rule, run: StoredRun, baselines: Mapping[str, StoredRun]) -> RuleOutcome:
    sentence = f"{rule.name}: {rule.sentence}" if rule.name else rule.sentence
    try:
        kind, finding, rows, broken = _evaluate_rule(rule, run, baselines)
    except (_CannotBeCheckedError, InputError) as error:
        return RuleOutcome(sentence, "refused", str(error).replace("\n  ", "; "), rows=0)
    return RuleOutcome(sentence, kind, finding, rows, broken)


def _evaluate_rule(rule: Rule, run: StoredRun, baselines: Mapping[str, StoredRun]) -> tuple[Kind, str, int, int]:
    figures = _list_figures(rule, run)
    if not figures:
        return "broken", "no row is meant by it", 0, 0
    problems = [problem for name, value in figures if (problem := _find_limit_problem(rule, name, value))]
    notes: list[str] = []
    if rule.no_worse_than and not problems:
        problems, notes = _compare_with_baseline(rule, run, baselines[rule.no_worse_than.run])
    if problems:
        more = f" and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
        # Rows of the earlier run alone count, too.
        return "broken", "; ".join(problems[:MAX_NAMED]) + more, max(len(figures), len(problems)), len(problems)
    return "passed", "; ".join([_format_value_range(figures), *notes[:MAX_NAMED]]), len(figures), 0


def _list_figures(rule: Rule, run: StoredRun) -> list[tuple[str, Any]]:
    """Name and value of each figure that the rule applies to."""
    if rule.key:
        return [(rule.key, run.state if rule.key == "status" else run.record.get(rule.key))]
    rows = _select_rows(rule, run)
    if rule.rows:
        return [(rule.rows, rows.height)]
    return [(_format_row_name(row, rule), row[rule.column or ""]) for row in rows.iter_rows(named=True)]


def _select_rows(rule: Rule, run: StoredRun) -> pl.DataFrame:
    """Rows that match the rule's `where`."""
    import polars as pl

    table = rule.rows or rule.table or ""
    if table not in run.list_table_names():
        raise _CannotBeCheckedError(
            f"the run has no table {table}; it has {', '.join(run.list_table_names()) or 'none'}"
        )
    frame = run.read_table(table)
    if unknown := [name for name in (*rule.where, rule.column) if name is not None and name not in frame.columns]:
        raise _CannotBeCheckedError(f"no column {', '.join(unknown)} in {table}; it has {', '.join(frame.columns)}")
    for name, value in rule.where.items():
        column = frame[name]
        wanted = value if isinstance(value, list) else [value]
        if problems := [item for item in wanted if not _is_comparable(item, column.dtype)]:
            raise _CannotBeCheckedError(f"column {name} holds {column.dtype}, not such values as {problems[0]!r}")
        frame = frame.filter(pl.Series([item in wanted for item in column.to_list()], dtype=pl.Boolean))
    return frame


def _is_comparable(value: Any, dtype: Any) -> bool:
    import polars as pl

    if value is None:
        return True
    if isinstance(value, bool):
        return bool(dtype == pl.Boolean)
    return bool(dtype == pl.String) if isinstance(value, str) else bool(dtype.is_numeric())


def _format_row_name(row: Mapping[str, Any], rule: Rule) -> str:
    """A short name of a row: its first text columns that the rule does not fix."""
    fixed_columns = {*rule.where, rule.column} if len(rule.where) < len(row) - 1 else {rule.column}
    texts = [
        value[:60] for name, value in row.items() if isinstance(value, str) and value and name not in fixed_columns
    ]
    return ", ".join(texts[:2]) or ", ".join(map(_format_condition, rule.where.items())) or str(rule.table)


def _format_condition(pair: tuple[str, Any]) -> str:
    return f"{pair[0]}={pair[1]}"


def _find_limit_problem(rule: Rule, name: str, value: Any) -> str | None:
    """How a figure breaks the plain limits; null when it keeps them."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{name}: missing"
    if (isinstance(value, bool) or not isinstance(value, int | float)) and set(rule.limits) != {"equals"}:
        raise _CannotBeCheckedError(f"{rule.figure} is not a number: use equals")
    if rule.equals is not None:
        if isinstance(value, str) != isinstance(rule.equals, str) or isinstance(value, bool) != isinstance(
            rule.equals, bool
        ):
            raise _CannotBeCheckedError(
                f"{rule.figure} is {format_number(value)}, which is of another kind than the limit"
            )
        if not _is_equal(value, rule.equals):
            return f"{name}: {format_number(value)}"
    lower = rule.at_least if rule.at_least is not None else -math.inf
    upper = rule.at_most if rule.at_most is not None else math.inf
    if rule.between is not None:
        lower, upper = max(lower, rule.between[0]), min(upper, rule.between[1])
    if isinstance(value, int | float) and not lower <= value <= upper:
        return f"{name}: {format_number(value)}"
    return None


def _is_equal(value: Any, wanted: Any) -> bool:
    if value == wanted or not isinstance(value, float):
        return bool(value == wanted)
    try:
        return math.isclose(value, float(wanted))
    except OverflowError:  # an integer of more than 308 digits
        return False


def _format_value_range(figures: list[tuple[str, Any]]) -> str:
    values = [value for _, value in figures]
    if len(values) == 1:
        return format_number(values[0])
    if all(isinstance(value, int | float) for value in values):
        return f"{format_number(min(values))} to {format_number(max(values))} in {len(values)} rows"
    return f"{format_number(values[0])} in {len(values)} rows" if len(set(values)) == 1 else f"{len(values)} rows"


def _compare_with_baseline(rule: Rule, run: StoredRun, earlier: StoredRun) -> tuple[list[str], list[str]]:
    """Figures that are worse than in the baseline run, and notes on the others."""
    limit = rule.no_worse_than
    assert limit is not None
    names, pairs = _pair_figures(rule, run, earlier)
    turned = [pair if limit.better == "lower" else pair[::-1] for pair in pairs]
    ratios = [stats_ratios.independent_ratio(*pair) for pair in turned]
    adjusted = adjust_holm([stats_ratios.p_above(*pair, 1 + limit.tolerance) for pair in turned])
    problems: list[str] = []
    notes: list[str] = []
    for name, pair, ratio, p_value in zip(names, pairs, ratios, adjusted, strict=True):
        if (before := pair[0].estimate) is None or pair[1].estimate is None:
            missing = "missing" if before is not None else f"missing in {earlier.run_id}"
            problems.append(f"{name}: {missing}" + ("" if before is None else f", after {format_number(before)}"))
            continue
        change = f"{format_number(pair[1].estimate)} after {format_number(pair[0].estimate)}"
        is_broken = _breaks_limit(limit, pair, ratio, p_value)
        (problems if is_broken else notes).append(f"{name}: {change}{_format_worsening(ratio)}")
    return problems, notes


def _pair_figures(rule: Rule, run: StoredRun, earlier: StoredRun) -> tuple[list[str], list[tuple[Interval, Interval]]]:
    if rule.key or rule.rows:
        before, after = (_build_bare_interval(_list_figures(rule, side)[0][1]) for side in (earlier, run))
        return [rule.figure], [(before, after)]
    table, column = rule.table or "", rule.column or ""
    old, new = table_pairs.load_run_table(earlier, table), table_pairs.load_run_table(run, table)
    row_pairs = table_pairs.pair_rows(old, table_pairs.RunTable(_select_rows(rule, run), new.key, new.intervals))
    if column not in row_pairs.columns:
        raise _CannotBeCheckedError(f"no column {column} in {table} of {earlier.run_id}")
    # A missing row counts as a missing value: a query that fails now must not pass the gate.
    meant = [
        row
        for row in row_pairs.only_baseline
        if all(_matches_condition(row, *condition) for condition in rule.where.items())
    ]
    gone = [row for row in meant if old.read_interval(row, column).estimate is not None]
    names = [
        row_pairs.format_row_name(row)
        for row in (*(after for _, after in row_pairs.both), *row_pairs.only_candidate, *gone)
    ]
    pairs = [(old.read_interval(before, column), new.read_interval(after, column)) for before, after in row_pairs.both]
    pairs += [(_build_bare_interval(None), new.read_interval(row, column)) for row in row_pairs.only_candidate]
    pairs += [(old.read_interval(row, column), _build_bare_interval(None)) for row in gone]
    return names, pairs


def _matches_condition(row: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether a row of the baseline run, which may lack the column, matches a condition."""
    wanted = value if isinstance(value, list) else [value]
    actual = row.get(name)
    return name in row and any(
        actual == choice and isinstance(actual, bool) == isinstance(choice, bool) for choice in wanted
    )


def _build_bare_interval(value: Any) -> Interval:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return Interval(float(value) if usable else None, None, None, LEVEL, 1, "a single value")


def _breaks_limit(limit: Baseline, pair: tuple[Interval, Interval], ratio: Interval, p_value: float | None) -> bool:
    max_ratio = 1 + limit.tolerance
    if ratio.low is not None and ratio.high is not None and p_value is not None:
        surely = ratio.low > max_ratio and p_value <= (1 - LEVEL) / 2 + 1e-12
        return ratio.high > max_ratio if limit.proven else surely
    if limit.proven or pair[0].estimate is None or pair[1].estimate is None:
        return True
    # Without intervals: compare the figures. The tolerance is a fraction, so 0 for a baseline of 0.
    before, after = pair[0].estimate, pair[1].estimate
    slack = limit.tolerance * abs(before)
    return after > before + slack if limit.better == "lower" else after < before - slack


def _format_worsening(ratio: Interval) -> str:
    if ratio.estimate is None:
        return ""
    ends = "" if ratio.low is None else f", {format_number(ratio.low)} to {format_number(ratio.high)}"
    return f" ({format_number(ratio.estimate)} times as bad{ends})"
