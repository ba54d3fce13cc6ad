"""Limits that a run must keep, read from a YAML file: the regression gate of `workbench run --thresholds`.

speedup:                                   # the area, as the notebook is called
  - key: verdict                           # a key figure of the run: verdict, status, duration_s
    equals: valid
  - table: factors                         # a column of a result table, in the rows that are meant
    where: {operator: Filter}
    column: factor
    at_least: 1.5
  - rows: factors                          # how many rows a table has
    at_least: 5
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from workbench import files
from workbench.errors import ConfigError, InputError

KEYS = ("verdict", "status", "duration_s")
MOST_BYTES = 1 << 18
MOST_DEPTH = 20
MOST_RULES = 1000
LIMITS = ("at_least", "at_most", "between", "equals", "no_worse_than")

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Scalar = bool | int | float | str
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Baseline(_Model):
    """How a figure stands to that of an earlier run."""

    run: Name = Field(description="run folder or URL, or a run id among the runs")
    better: Literal["lower", "higher"] = Field(description="which direction is the good one")
    tolerance: float = Field(0.02, ge=0, le=10, description="how much worse is still no worse, as a share")
    proven: bool = Field(
        False, description="demand evidence that it is no worse; without it, evidence that it is worse"
    )


class Rule(_Model):
    """One limit, or several on the same figure; every row that is meant must keep all of them."""

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
            raise ValueError("no limit: give " + ", ".join(LIMITS))
        if self.key in ("verdict", "status") and set(self.limits) != {"equals"}:
            raise ValueError(f"{self.key} is a word: its limit is equals")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between: the lower limit stands first")
        return self

    @property
    def limits(self) -> list[str]:
        """The limits that are given, by name."""
        return [name for name in LIMITS if getattr(self, name) is not None]

    @property
    def figure(self) -> str:
        """What is judged, in short.

        Examples
        --------
        >>> Rule(table="factors", column="factor", where={"operator": "Filter"}, at_least=1.5).figure
        'factors[operator=Filter].factor'
        """
        if self.key:
            return self.key
        chosen = ", ".join(f"{name}={_spelled(value)}" for name, value in self.where.items())
        picked = f"{self.rows or self.table}[{chosen}]" if chosen else f"{self.rows or self.table}"
        return f"rows of {picked}" if self.rows else f"{picked}.{self.column}"

    @property
    def told(self) -> str:
        """The rule as a short sentence.

        Examples
        --------
        >>> Rule(key="duration_s", at_most=60).told
        'duration_s at most 60'
        """
        return f"{self.figure} {' and '.join(self._limit(name) for name in self.limits)}"

    def _limit(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, Baseline):
            proof = ", proven" if value.proven else ""
            return f"no worse than in {value.run} by more than {value.tolerance:.3g} ({value.better} is better{proof})"
        if name == "between":
            return f"between {_spelled(value[0])} and {_spelled(value[1])}"
        return f"{name.replace('_', ' ')} {_spelled(value)}"


class _File(_Model):
    areas: dict[Name, Annotated[list[Rule], Field(min_length=1)]]


def _spelled(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(_spelled, value))
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

    def check_areas(self, present: Sequence[str], known: Iterable[str]) -> None:
        """Refuse areas that are none, and a file that has no rule for anything that is run.

        Raises
        ------
        ConfigError
            An area is not among `known`, or none is among `present`.
        """
        known = sorted({*known, *present})
        for area in self.areas:
            if area not in known:
                close = difflib.get_close_matches(area, known, n=1)
                do = f"did you mean {close[0]}?" if close else None
                raise ConfigError("thresholds for an unknown area", where=self.path, found=area, allowed=known, do=do)
        if not set(self.areas) & set(present):
            raise ConfigError(
                "no thresholds for what is judged",
                where=self.path,
                found=list(self.areas),
                allowed=sorted(set(present)),
            )


def read(path: str | Path) -> Thresholds:
    """Read a file of thresholds: a list of rules by area.

    Raises
    ------
    ConfigError
        The file cannot be read, is no such YAML, or a rule is none: all problems are told at once.
    """
    path = Path(path)
    try:
        content = files.read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError("cannot read the thresholds", where=path, found=error.strerror) from error
    except InputError as error:
        raise ConfigError("not a file of thresholds", where=path, found=error.what) from error
    document = _document(content, path)
    try:
        areas = _File(areas=document).areas
    except (ValidationError, RecursionError) as error:
        found = _problems(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise ConfigError("not a file of thresholds", where=path, found=found, do="see docs/guide/runs.md") from None
    if not areas or sum(map(len, areas.values())) > MOST_RULES:
        raise ConfigError("not a file of thresholds", where=path, allowed=f"1 to {MOST_RULES} rules")
    return Thresholds(path, hashlib.sha256(content).hexdigest(), areas)


def _document(content: bytes, path: Path) -> Any:
    import yaml

    try:
        text = content.decode("utf-8")
        _refuse_traps(text, path)
        _refuse_repeats(yaml.compose(text, Loader=yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)[:200]
        raise ConfigError("not a YAML file", where=path, found=f"{line}{problem}") from None


def _refuse_traps(text: str, path: Path) -> None:
    """A few lines of aliases can stand for more than any memory holds, deep nesting for more than any stack."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH or isinstance(event, yaml.AliasEvent):
            found = "YAML aliases" if depth <= MOST_DEPTH else "lists in lists without end"
            raise ConfigError("not a file of thresholds", where=path, found=found, allowed="plain YAML")


def _refuse_repeats(node: Any, path: Path) -> None:
    """YAML itself keeps the last of two equal keys: the first rule, or limit, would be lost without a word."""
    import yaml

    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                line = node.start_mark.line + 1
                raise ConfigError("given twice", where=f"{path}, below line {line}", found=repeated)
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _problems(error: ValidationError, most: int = 8) -> list[str]:
    found = []
    for problem in error.errors(include_url=False, include_input=False):
        # Pydantic counts rules from 0 and names the model's own field first; people do neither.
        place = [str(part + 1) if isinstance(part, int) else part for part in problem["loc"][1:]]
        text = problem["msg"].removeprefix("Value error, ").replace("Extra inputs are not permitted", "unknown key")
        found.append(f"{' '.join(place)[:120]}: {text}" if place else text)
    found = list(dict.fromkeys(found))
    return found[:most] + ([f"and {len(found) - most} more"] if len(found) > most else [])
