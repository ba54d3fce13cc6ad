"""Check a run against its thresholds: each rule passed, broken or refused."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, model_validator

from workbench.core import files
from workbench.core.data_files import parse_yaml
from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.formats import escape_html, format_ends, format_number
from workbench.core.schema import FiniteModel
from workbench.core.units import find_unit_factor
from workbench.runs import catalogue, compare
from workbench.runs.baselines import combine_baselines, list_baseline_runs, parse_baseline_words
from workbench.runs.run_folder import NO_VERDICT
from workbench.stats import LEVEL, Interval, adjust_holm
from workbench.stats import ratios as stats_ratios

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.catalogue import StoredRun

MAX_BYTES = 1 << 18
MAX_DEPTH = 20
MAX_RULES = 1000
LIMIT_NAMES = ("at_least", "at_most", "between", "equals", "no_worse_than")
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Scalar = bool | int | float | str
Number = Annotated[float, Field(allow_inf_nan=False)]
# Areas whose notebooks were part of another one: its rules hold for them where a file has none of their own.
SPLIT_AREAS = {"fleet": "speedup", "profile": "speedup"}
_OUTCOME_ORDER = ("refused", "broken", "passed")
_OUTCOME_WORDS = {"refused": "cannot be checked", "broken": "broken", "passed": "passed"}
Kind = Literal["passed", "broken", "refused"]
MAX_NAMED = 3
VALID_RUN = "the run is valid"


class _Model(FiniteModel):
    model_config = ConfigDict(strict=True)


class Baseline(_Model):
    """Limit relative to an earlier run."""

    run: Name = Field(
        description="run folder or URL, a run id among the runs, or words: last valid, median of last N, since DATE"
    )
    better: Literal["lower", "higher"] = Field(description="which direction is the good one")
    tolerance: float = Field(0.02, ge=0, le=10, description="how much worse is still no worse, as a share")
    proven: bool = Field(
        False, description="demand evidence that it is no worse; without it, evidence that it is worse"
    )

    @model_validator(mode="after")
    def _has_known_words(self) -> Self:
        try:
            parse_baseline_words(self.run)
        except ConfigError as error:
            raise ValueError(str(error).replace("\n  ", "; ")) from error
        return self


class Rule(_Model):
    """One or several limits on a figure, for every row that matches `where`."""

    name: Name | None = Field(None, description="what the rule is about, for people")
    key: Literal["verdict", "status", "duration_s"] | None = Field(None, description="a key figure of the run")
    rows: Name | None = Field(None, description="the table whose rows are counted")
    table: Name | None = Field(None, description="the table that holds the column")
    column: Name | None = Field(None, description="the column that is judged")
    where: dict[Name, Scalar | list[Scalar] | None] = Field(
        default_factory=dict, description="column: value, or a list of values; the rows that are meant"
    )
    unit: Name | None = Field(None, description="unit of the limits; the column is converted to it")
    at_least: Number | int | None = None
    at_most: Number | int | None = None
    between: Annotated[list[Number | int], Field(min_length=2, max_length=2)] | None = None
    equals: Scalar | None = None
    no_worse_than: Baseline | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        meant = [name for name in ("key", "rows", "table") if getattr(self, name) is not None]
        if len(meant) != 1:
            raise ValueError("give exactly one of key, rows and table")
        if (self.table is None) != (self.column is None):
            raise ValueError("table and column go together")
        if self.key and self.where:
            raise ValueError("where is for tables")
        if self.unit is not None and self.column is None:
            raise ValueError("unit is for columns")
        if not self.limits:
            raise ValueError("no limit: give " + ", ".join(LIMIT_NAMES))
        if self.key in ("verdict", "status") and set(self.limits) != {"equals"}:
            raise ValueError(f"{self.key} is a word: its limit is equals")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between: the lower limit comes first")
        return self

    @property
    def limits(self) -> list[str]:
        """Names of the given limits."""
        return [name for name in LIMIT_NAMES if getattr(self, name) is not None]

    @property
    def figure(self) -> str:
        """Short name of the figure.

        Examples
        --------
        >>> Rule(table="factors", column="factor", where={"operator": "Filter"}, at_least=1.5).figure
        'factors[operator=Filter].factor'
        """
        if self.key:
            return self.key
        chosen = ", ".join(f"{name}={_format_value(value)}" for name, value in self.where.items())
        picked = f"{self.rows or self.table}[{chosen}]" if chosen else f"{self.rows or self.table}"
        return f"rows of {picked}" if self.rows else f"{picked}.{self.column}"

    @property
    def sentence(self) -> str:
        """The rule as a short sentence.

        Examples
        --------
        >>> Rule(key="duration_s", at_most=60).sentence
        'duration_s at most 60'
        """
        return f"{self.figure} {' and '.join(self._format_limit(name) for name in self.limits)}"

    def _format_limit(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, Baseline):
            proof = ", proven" if value.proven else ""
            choice = parse_baseline_words(value.run)
            earlier = choice.text if choice else f"in {value.run}"
            return f"no worse than {earlier} by more than {value.tolerance:.3g} ({value.better} is better{proof})"
        if name == "between":
            return f"between {_format_value(value[0])} and {_format_value(value[1])}" + self._unit_suffix
        return f"{name.replace('_', ' ')} {_format_value(value)}" + self._unit_suffix

    @property
    def _unit_suffix(self) -> str:
        return f" {self.unit}" if self.unit else ""


class _File(_Model):
    areas: dict[Name, Annotated[list[Rule], Field(min_length=1)]]


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(_format_value, value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


class Thresholds:
    """The rules of a file, by area.

    Attributes
    ----------
    path, sha256
        The file, and the digest of its bytes.
    areas
        Rules by area.
    """

    def __init__(self, path: Path, sha256: str, areas: dict[str, list[Rule]]) -> None:
        self.path, self.sha256, self.areas = path, sha256, areas

    def list_rules(self, area: str) -> list[Rule]:
        """The rules for runs of an area."""
        return self.areas.get(area) or self.areas.get(SPLIT_AREAS.get(area, area), [])

    def check_areas(self, present: Sequence[str], all_areas: Iterable[str]) -> None:
        """Refuse unknown areas, and a file without rules for the areas that run."""
        all_areas = sorted({*all_areas, *present})
        for area in self.areas:
            if area not in all_areas:
                close = difflib.get_close_matches(area, all_areas, n=1)
                do = f"did you mean {close[0]}?" if close else None
                raise ConfigError(
                    "thresholds for an unknown area", where=self.path, found=area, allowed=all_areas, do=do
                )
        if not any(map(self.list_rules, present)):
            raise ConfigError(
                "no thresholds for this notebook",
                where=self.path,
                found=list(self.areas),
                allowed=sorted(set(present)),
            )


def load_thresholds(path: str | Path) -> Thresholds:
    """Read a file of thresholds: a list of rules by area."""
    path = Path(path)
    try:
        content = files.read_up_to(path, MAX_BYTES)
    except OSError as error:
        raise ConfigError("cannot read the thresholds", where=path, found=error.strerror) from error
    except InputError as error:
        raise ConfigError("not a file of thresholds", where=path, found=error.what) from error
    document = parse_yaml(
        content, noun="file of thresholds", where=path, max_depth=MAX_DEPTH, decimal=True, error_type=ConfigError
    )
    return parse_thresholds(document, path, hashlib.sha256(content).hexdigest())


def parse_thresholds(document: Any, path: Path, sha256: str) -> Thresholds:
    """Check the content of a file of thresholds: a list of rules by area."""
    try:
        areas = _File(areas=document).areas
    except (ValidationError, RecursionError) as error:
        problems = _list_problems(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise ConfigError("not a file of thresholds", where=path, found=problems, do="see docs/guide/runs.md") from None
    if not areas or sum(map(len, areas.values())) > MAX_RULES:
        raise ConfigError("not a file of thresholds", where=path, allowed=f"1 to {MAX_RULES} rules")
    return Thresholds(path, sha256, areas)


def _list_problems(error: ValidationError, max_problems: int = 8) -> list[str]:
    """Describe the faults of a file of rules, one line each, with the number of the rule."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        # Rules count from 1; the model's own field comes first in the path and is left out.
        place = [str(part + 1) if isinstance(part, int) else part for part in problem["loc"][1:]]
        text = problem["msg"].removeprefix("Value error, ").replace("Extra inputs are not permitted", "unknown key")
        lines.append(f"{' '.join(place)[:120]}: {text}" if place else text)
    lines = list(dict.fromkeys(lines))
    return lines[:max_problems] + ([f"and {len(lines) - max_problems} more"] if len(lines) > max_problems else [])


def format_threshold_summary(gate_result: Mapping[str, Any]) -> str:
    """Number of rules that passed, are broken, or cannot be checked.

    >>> format_threshold_summary({"passed": 3, "broken": 1, "refused": 0})
    '3 passed, 1 broken'
    """
    counts = [(_OUTCOME_WORDS[kind], _count_outcomes(gate_result, kind)) for kind in reversed(_OUTCOME_ORDER)]
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "none"


def _count_outcomes(gate_result: Mapping[str, Any], kind: str) -> int:
    count = gate_result.get(kind)
    return count if isinstance(count, int) and count > 0 else 0


def threshold_exit_code(gate_result: object) -> int:
    """0 without a broken threshold, 1 when one is broken, 2 when one cannot be checked."""
    if not isinstance(gate_result, Mapping):
        return 0
    return 2 if _count_outcomes(gate_result, "refused") else 1 if _count_outcomes(gate_result, "broken") else 0


def format_threshold_lines(gate_result: object) -> list[str]:
    """The summary and a line for each rule, broken ones first; empty without thresholds."""
    if not isinstance(gate_result, Mapping):
        return []
    lines = [f"thresholds: {format_threshold_summary(gate_result)}"]
    return lines + [
        f"  {_OUTCOME_WORDS[rule['outcome']]}: {rule.get('rule')} ({rule.get('found')})"
        for rule in _list_rules(gate_result)
    ]


def _list_rules(gate_result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = gate_result.get("rules")
    rules = listed if isinstance(listed, list) else []
    valid_rules = [rule for rule in rules if isinstance(rule, Mapping) and rule.get("outcome") in _OUTCOME_ORDER]
    return sorted(valid_rules, key=lambda rule: _OUTCOME_ORDER.index(rule["outcome"]))


def render_threshold_chip(gate_result: object) -> str:
    """A chip with the outcome of the thresholds; "" without any."""
    if not isinstance(gate_result, Mapping) or not (
        total := sum(_count_outcomes(gate_result, kind) for kind in _OUTCOME_ORDER)
    ):
        return ""
    bad = [kind for kind in ("broken", "refused") if _count_outcomes(gate_result, kind)]
    noun = "threshold" if total == 1 else "thresholds"
    if not bad:
        return f'<span class="wb-chip wb-valid">{total} {noun} passed</span>'
    words = ", ".join(f"{_count_outcomes(gate_result, kind)} of {total} {noun} {_OUTCOME_WORDS[kind]}" for kind in bad)
    return f'<span class="wb-chip wb-failed">{escape_html(words)}</span>'


def render_thresholds(gate_result: object) -> str:
    """Broken thresholds for the report, and a collapsed list of the passed ones."""
    if not isinstance(gate_result, Mapping):
        return ""
    rules = _list_rules(gate_result)
    bad = [rule for rule in rules if rule["outcome"] != "passed"]
    passing_rules = [rule for rule in rules if rule["outcome"] == "passed"]
    file_name = f"<span>{escape_html(gate_result.get('file') or '')}</span>"
    parts = [f'<p class="verdict">{render_threshold_chip(gate_result)} {file_name}</p>']
    if bad:
        parts.append(f'<ul class="limits">{"".join(map(_render_rule, bad))}</ul>')
    if passing_rules:
        items = "".join(map(_render_rule, passing_rules))
        summary_line = f"<summary>Passed ({len(passing_rules)})</summary>"
        parts.append(f'<details class="words">{summary_line}<ul class="limits">{items}</ul></details>')
    return f'<div class="gate">{"".join(parts)}</div>'


def _render_rule(rule: Mapping[str, Any]) -> str:
    kind = rule["outcome"]
    sign = f"<strong>{_OUTCOME_WORDS[kind]}</strong>" if kind != "passed" else ""
    finding = f"<em>{escape_html(rule.get('found'))}</em>"
    return f"<li{'' if kind == 'passed' else ' class=bad'}>{sign} {escape_html(rule.get('rule'))} {finding}</li>"


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


@dataclass(frozen=True)
class ThresholdGate:
    """Checked thresholds with the baseline runs that they name, and the place of those they choose by words."""

    rules: Thresholds
    baselines: Mapping[str, StoredRun]
    place: str | Path

    def check_run(self, run: StoredRun) -> dict[str, Any] | None:
        """Check a run; the result is the `thresholds` of run.json, null without rules for the area.

        A run that is invalid or did not succeed passes no rule on its figures, and is broken by itself.

        Returns: file, sha256, passed, broken, refused (counts), and rules, the fields of each `RuleOutcome`.
        """
        if not (rules := self.rules.list_rules(run.area)):
            return None
        objection = "" if run.objection == NO_VERDICT else run.objection
        outcomes = [RuleOutcome(VALID_RUN, "broken", objection, rows=0)] if objection else []
        outcomes += [_check_rule(rule, run, self._find_baselines, objection) for rule in rules]
        return {"file": self.rules.path.name, "sha256": self.rules.sha256, **build_gate_result(outcomes)}

    def _find_baselines(self, run: StoredRun, limit: Baseline) -> list[StoredRun]:
        """The baseline runs of a limit, newest first."""
        if (choice := parse_baseline_words(limit.run)) is None:
            if (baseline := self.baselines[limit.run]).run_id == run.run_id:
                raise _CannotBeCheckedError("the baseline is the run itself: name an earlier one, or 'last valid'")
            return [baseline]
        if chosen := choice.choose_runs(run, list_baseline_runs(self.place)):
            return chosen
        since = f" since {choice.since}" if choice.since else ""
        raise _CannotBeCheckedError(f"there is no valid run of {run.area} before this one{since}")


def build_gate_result(outcomes: Sequence[RuleOutcome]) -> dict[str, Any]:
    """Outcomes of rules as the `thresholds` of run.json: counts by kind, and rules."""
    counts = {kind: sum(outcome.outcome == kind for outcome in outcomes) for kind in _OUTCOME_ORDER[::-1]}
    return {**counts, "rules": [dataclasses.asdict(outcome) for outcome in outcomes]}


def load_gate(path: str | Path, present: Iterable[str], all_areas: Iterable[str], place: str | Path) -> ThresholdGate:
    """Read thresholds and check them as far as possible before anything runs.

    `place`: Folder or URL of the runs that `no_worse_than` names by id; folders there are relative to the file.
    """
    rules = load_thresholds(path)
    present = list(present)
    rules.check_areas(present, all_areas)
    return build_gate(rules, present, place, lambda name: _find_baseline_run(name, rules.path, place))


def build_gate(
    rules: Thresholds, present: Sequence[str], place: str | Path, find_run: Callable[[str], StoredRun]
) -> ThresholdGate:
    """Find the baseline runs that rules name, and refuse those that are no yardstick."""
    baselines: dict[str, StoredRun] = {}
    compared = [
        (area, rule, rule.no_worse_than.run)
        for area in rules.areas
        for rule in rules.areas[area]
        if area in present and rule.no_worse_than
    ]
    for area, rule, name in compared:
        if parse_baseline_words(name) is None:
            baselines[name] = baselines.get(name) or find_run(name)
            baseline = baselines[name]
            where = f"{rules.path}, {area}: {rule.sentence}"
            if baseline.area != area:
                raise ConfigError("baseline run is of another area", where=where, found=baseline.area)
            if baseline.objection:
                raise ConfigError(
                    "baseline run is not valid",
                    where=where,
                    found=f"{baseline.run_id}: {baseline.objection}",
                    allowed="a finished, valid run",
                    do="name another, as 'last valid', or find one: workbench runs list --verdict valid",
                )
            table = rule.table or rule.rows
            if table and table not in baseline.list_table_names():
                raise ConfigError(
                    "baseline run has no such table", where=where, found=table, allowed=baseline.list_table_names()
                )
    return ThresholdGate(rules, baselines, place)


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


FindBaselines = Callable[["StoredRun", Baseline], "list[StoredRun]"]


def _check_rule(rule: Rule, run: StoredRun, find_baselines: FindBaselines, objection: str) -> RuleOutcome:
    """Check one rule; with an `objection` to the run only its status and verdict count."""
    sentence = f"{rule.name}: {rule.sentence}" if rule.name else rule.sentence
    if objection and rule.key not in ("verdict", "status"):
        return RuleOutcome(sentence, "broken", "not checked: the run is not valid", rows=0)
    notes: list[str] = []
    remarks: list[str] = []
    try:
        figures = _list_figures(rule, run)
        problems = [problem for name, value in figures if (problem := _find_limit_problem(rule, name, value))]
        if rule.no_worse_than and figures and not problems:
            baselines = find_baselines(run, rule.no_worse_than)
            problems, notes, remarks = _compare_with_baselines(rule, run, baselines)
    except (_CannotBeCheckedError, InputError) as error:
        return RuleOutcome(sentence, "refused", str(error).replace("\n  ", "; "), rows=0)
    if not figures:
        return RuleOutcome(sentence, "broken", "no row is meant by it", rows=0)
    if problems:
        more = f" and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
        finding = "; ".join(["; ".join(problems[:MAX_NAMED]) + more, *remarks])
        # Rows of the earlier run alone count, too.
        return RuleOutcome(sentence, "broken", finding, max(len(figures), len(problems)), len(problems))
    finding = "; ".join([_format_value_range(figures), *notes[:MAX_NAMED], *remarks])
    return RuleOutcome(sentence, "passed", finding, len(figures))


def _list_figures(rule: Rule, run: StoredRun) -> list[tuple[str, Any]]:
    """List the name and value of each figure that the rule applies to."""
    if rule.key:
        known = {"status": run.state, "verdict": run.verdict}
        return [(rule.key, known.get(rule.key, run.record.get(rule.key)))]
    rows = _select_rows(rule, run)
    if rule.rows:
        return [(rule.rows, rows.height)]
    factor = _find_limit_factor(rule, run)
    return [
        (_format_row_name(row, rule), _scale_value(row[rule.column or ""], factor))
        for row in rows.iter_rows(named=True)
    ]


def _find_limit_factor(rule: Rule, run: StoredRun) -> float:
    """What one unit of the rule's column is in the unit of its limits."""
    if rule.unit is None:
        return 1.0
    columns = compare.load_run_table(run, rule.table or "").columns
    unit = columns[rule.column or ""].unit
    if unit is None or (factor := find_unit_factor(unit, rule.unit)) is None:
        shown = "a unit that the run does not record" if unit is None else unit or "no unit"
        raise _CannotBeCheckedError(f"{rule.figure} has {shown}, which is not convertible to {rule.unit}")
    return factor


def _scale_value(value: Any, factor: float) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value * factor if is_number and factor != 1 else value


def _select_rows(rule: Rule, run: StoredRun) -> pl.DataFrame:
    """Select the rows of the rule's table that match its `where`."""
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
    """Whether a rule's value can be compared with a column of this Polars type."""
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
    conditions = [f"{name}={value}" for name, value in rule.where.items()]
    return ", ".join(texts[:2]) or ", ".join(conditions) or str(rule.table)


def _find_limit_problem(rule: Rule, name: str, value: Any) -> str | None:
    """Describe how a figure breaks the rule's plain limits; null if it keeps them."""
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
        if value == rule.equals or not isinstance(value, float):
            is_equal = bool(value == rule.equals)
        else:
            try:
                is_equal = math.isclose(value, float(rule.equals))
            except OverflowError:  # an integer of more than 308 digits
                is_equal = False
        if not is_equal:
            return f"{name}: {format_number(value)}"
    lower = rule.at_least if rule.at_least is not None else -math.inf
    upper = rule.at_most if rule.at_most is not None else math.inf
    if rule.between is not None:
        lower, upper = max(lower, rule.between[0]), min(upper, rule.between[1])
    if isinstance(value, int | float) and not lower <= value <= upper:
        return f"{name}: {format_number(value)}"
    return None


def _format_value_range(figures: list[tuple[str, Any]]) -> str:
    values = [value for _, value in figures]
    if len(values) == 1:
        return format_number(values[0])
    if all(isinstance(value, int | float) for value in values):
        return f"{format_number(min(values))} to {format_number(max(values))} in {len(values)} rows"
    return f"{format_number(values[0])} in {len(values)} rows" if len(set(values)) == 1 else f"{len(values)} rows"


def _compare_with_baselines(
    rule: Rule, run: StoredRun, baselines: Sequence[StoredRun]
) -> tuple[list[str], list[str], list[str]]:
    """List the figures that are worse than in the baseline runs, notes on the others, and remarks on the runs."""
    limit = rule.no_worse_than
    assert limit is not None
    sides = [_pair_figures(rule, run, baseline) for baseline in baselines]
    remarks = [*_describe_baselines(limit, baselines), *dict.fromkeys(note for side in sides for note in side.notes)]
    remarks += _list_changed_settings(run, baselines)
    # Rows that are gone are those of the newest baseline.
    names = list(sides[0].pairs)
    pairs = [
        (combine_baselines([side.pairs[name][0] for side in sides if name in side.pairs]), sides[0].pairs[name][1])
        for name in names
    ]
    earlier = baselines[0].run_id if len(baselines) == 1 else f"{len(baselines)} runs"
    turned = [pair if limit.better == "lower" else pair[::-1] for pair in pairs]
    ratios = [stats_ratios.independent_ratio(*pair) for pair in turned]
    adjusted = adjust_holm([stats_ratios.p_above(*pair, 1 + limit.tolerance) for pair in turned])
    problems: list[str] = []
    notes: list[str] = []
    for name, pair, ratio, p_value in zip(names, pairs, ratios, adjusted, strict=True):
        if (before := pair[0].estimate) is None or pair[1].estimate is None:
            missing = "missing" if before is not None else f"missing in {earlier}"
            problems.append(f"{name}: {missing}" + ("" if before is None else f", after {format_number(before)}"))
            continue
        change = f"{format_number(pair[1].estimate)} after {format_number(pair[0].estimate)}"
        is_broken = _breaks_limit(limit, pair, ratio, p_value)
        (problems if is_broken else notes).append(f"{name}: {change}{_format_worsening(ratio)}")
    return problems, notes, remarks


def _describe_baselines(limit: Baseline, baselines: Sequence[StoredRun]) -> list[str]:
    """Which runs the words of a limit chose; nothing for a run that is named."""
    if (choice := parse_baseline_words(limit.run)) is None:
        return []
    if len(baselines) == 1:
        return [f"baseline {baselines[0].run_id}"]
    fewer = f" ({choice.n} asked for)" if choice.since is None and len(baselines) < choice.n else ""
    return [f"baseline: median of {len(baselines)} valid runs{fewer}, the newest {baselines[0].run_id}"]


def _list_changed_settings(run: StoredRun, baselines: Sequence[StoredRun]) -> list[str]:
    """Which settings and facts of the machine are not those of the baseline runs."""
    found: Counter[str] = Counter()
    for baseline in baselines:
        facts = compare.list_fact_differences(baseline.record, run.record)
        found.update(name for kind, name, *_ in facts if kind in ("setting", "machine"))
    if not found:
        return []
    names = ", ".join(list(found)[:MAX_NAMED]) + (" and more" if len(found) > MAX_NAMED else "")
    runs = "the baseline" if len(baselines) == 1 else f"up to {max(found.values())} of the {len(baselines)} runs"
    return [f"not the same as in {runs}: {names}"]


@dataclass(frozen=True)
class _PairedFigures:
    """A rule's figures in an earlier and in this run, by the name of the row, and notes on their column."""

    pairs: Mapping[str, tuple[Interval, Interval]]
    notes: Sequence[str] = ()


def _pair_figures(rule: Rule, run: StoredRun, earlier: StoredRun) -> _PairedFigures:
    """Pair the rule's figures of an earlier and of this run; the earlier ones in this run's unit.

    A row that one run lacks is paired with an empty interval.
    """
    if rule.key or rule.rows:
        before, after = (_build_bare_interval(_list_figures(rule, side)[0][1]) for side in (earlier, run))
        return _PairedFigures({rule.figure: (before, after)})
    table, column = rule.table or "", rule.column or ""
    if table not in earlier.list_table_names():
        raise _CannotBeCheckedError(f"baseline {earlier.run_id} has no table {table}")
    old, new = compare.load_run_table(earlier, table), compare.load_run_table(run, table)
    paired = compare.pair_rows(old, compare.RunTable(_select_rows(rule, run), new.key, new.intervals, new.columns))
    _check_column(rule, paired, earlier)
    # A missing row counts as a missing value: a query that fails now must not pass the gate.
    meant = [
        row
        for row in paired.only_baseline
        if all(_matches_condition(row, *condition) for condition in rule.where.items())
    ]
    empty = _build_bare_interval(None)
    pairs = {
        paired.format_row_name(after): paired.read_intervals(before, after, column) for before, after in paired.both
    }
    pairs |= {paired.format_row_name(row): (empty, new.read_interval(row, column)) for row in paired.only_candidate}
    pairs |= {
        paired.format_row_name(row): (compare.scale_interval(value, paired.find_factor(column)), empty)
        for row in meant
        if (value := old.read_interval(row, column)).estimate is not None
    }
    return _PairedFigures(pairs, paired.describe_column(column))


def _check_column(rule: Rule, paired: compare.PairedTable, earlier: StoredRun) -> None:
    """Refuse a column that the baseline lacks, that is another one there, or whose good direction is another."""
    column, limit = rule.column or "", rule.no_worse_than
    if column not in paired.columns:
        raise _CannotBeCheckedError(f"no column {column} in {rule.table} of {earlier.run_id}")
    if mismatch := paired.find_mismatch(column):
        raise _CannotBeCheckedError(f"column {column} is not the one of {earlier.run_id}: {mismatch}")
    declared = paired.candidate.columns[column].better
    if limit and declared and declared != limit.better:
        raise _CannotBeCheckedError(f"the run says that {declared} is better for {column}, the rule {limit.better}")


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
    """Whether a figure is worse than its baseline by more than the tolerance.

    `pair`: Baseline and candidate. `ratio`: Worse over better, with its interval. `p_value`: Null without intervals.
    With `limit.proven` it breaks the limit unless it is proven to keep it, otherwise only if it surely breaks it.
    """
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
    ends = "" if ratio.low is None else f", {format_ends(ratio.low, ratio.high)}"
    return f" ({format_number(ratio.estimate)} times as bad{ends})"
