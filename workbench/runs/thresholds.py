"""Threshold files: rules by area, and their outcome as text and HTML."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, model_validator

from workbench.core import files
from workbench.core.data_files import parse_yaml
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import escape_html
from workbench.core.schema import FiniteModel

RECORD_KEYS = ("verdict", "status", "duration_s")
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


class _Model(FiniteModel):
    model_config = ConfigDict(strict=True)


class Baseline(_Model):
    """Limit relative to an earlier run."""

    run: Name = Field(description="run folder or URL, or a run id among the runs")
    better: Literal["lower", "higher"] = Field(description="which direction is the good one")
    tolerance: float = Field(0.02, ge=0, le=10, description="how much worse is still no worse, as a share")
    proven: bool = Field(
        False, description="demand evidence that it is no worse; without it, evidence that it is worse"
    )


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
    at_least: Number | int | None = None
    at_most: Number | int | None = None
    between: Annotated[list[Number | int], Field(min_length=2, max_length=2)] | None = None
    equals: Scalar | None = None
    no_worse_than: Baseline | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        meant = [name for name in ("key", "rows", "table") if getattr(self, name) is not None]
        if len(meant) != 1:
            raise ValueError("exactly one of key, rows and table says what is judged")
        if (self.table is None) != (self.column is None):
            raise ValueError("table and column go together")
        if self.key and self.where:
            raise ValueError("where is for tables")
        if not self.limits:
            raise ValueError("no limit: give " + ", ".join(LIMIT_NAMES))
        if self.key in ("verdict", "status") and set(self.limits) != {"equals"}:
            raise ValueError(f"{self.key} is a word: its limit is equals")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between: the lower limit stands first")
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
            return f"no worse than in {value.run} by more than {value.tolerance:.3g} ({value.better} is better{proof})"
        if name == "between":
            return f"between {_format_value(value[0])} and {_format_value(value[1])}"
        return f"{name.replace('_', ' ')} {_format_value(value)}"


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
                "no thresholds for what is judged",
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
    document = parse_yaml(content, noun="file of thresholds", where=path, max_depth=MAX_DEPTH, error_type=ConfigError)
    try:
        areas = _File(areas=document).areas
    except (ValidationError, RecursionError) as error:
        problems = _list_problems(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise ConfigError("not a file of thresholds", where=path, found=problems, do="see docs/guide/runs.md") from None
    if not areas or sum(map(len, areas.values())) > MAX_RULES:
        raise ConfigError("not a file of thresholds", where=path, allowed=f"1 to {MAX_RULES} rules")
    return Thresholds(path, hashlib.sha256(content).hexdigest(), areas)


def _list_problems(error: ValidationError, max_problems: int = 8) -> list[str]:
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
