"""Which queries of two sides are the same: by what they read and compute, then by name or work; or not at all.

A query has one plan fingerprint on a side; engines word plans in their own ways, so that sides meet by the tables and
columns that they read. Several queries of the same tables meet by a description that is theirs alone, by equal
fingerprints, by expressions that no engine changes, by operators that no engine changes, or by the rows that they read;
what still cannot be told apart is left out by name, and so is what differs in such expressions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import polars as pl

from workbench.core.formats import format_items
from workbench.speedup.attribution.plan_identity import CALL_SITE, add_identity
from workbench.speedup.attribution.time_pieces import Measured

# Sides that read the same data agree in rows, or in the size of the files, within this share.
WORK_TOLERANCE = 0.01
# Days that queries compute from the day they run on lie within so many of it.
_DAYS_AROUND = 400
_EPOCH = date(1970, 1, 1)
_DATE, _NUMBER = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"-?\d+(?:\.\d*)?(?:E-?\d+)?")
CLASS_KEY = ("label", "fingerprint", "plan", "description")
Key = tuple[str, str | None, str | None, str]
# Operators that are in a plan or not, whatever the engine: code of users, caches, windows, and writes.
_TELLING = re.compile(
    r"\w*(?:Python|InPandas|InArrow)\w*|InMemoryTableScan|Window|Generate|Expand|DataWritingCommand|\w*Write\w*"
)
NOT_TOLD_APART = "several queries read the same tables, and nothing shows which of them match on both sides"
OTHER_WORK = "the sides read different numbers of rows"
OTHER_EXPRESSIONS = "its filters, joins or aggregates are not the same"
MAX_NAMED = 3


@dataclass(frozen=True)
class QueryClass:
    """Executions of one side that are repeats: of one plan and description; `name` is that in most of its logs."""

    label: str
    inputs: str | None
    plan: str | None
    name: str
    description: str
    rows: float | None
    file_bytes: float | None
    operators: tuple[str, ...] = ()
    expressions: frozenset[str] = frozenset()
    started: str | None = None

    @property
    def key(self) -> Key:
        """What its executions have in common."""
        return self.label, self.inputs, self.plan, self.description

    def is_same_work(self, other: QueryClass) -> bool | None:
        """Whether both read the same data; null where neither rows nor files tell."""
        rows = _compare_amounts(self.rows, other.rows)
        # Logs without files have none on either side; that tells nothing.
        files = _compare_amounts(self.file_bytes or None, other.file_bytes or None)
        # Filters pushed into the files change the rows, another compression the files: both differ where the data do.
        return files if rows is None else rows or bool(files)

    def computes_something_else(self, other: QueryClass) -> bool:
        """Whether each has expressions that the other has not: one that has fewer may hide some.

        A day that is told from today is the same one on another day.
        """
        same_day = _differ(_normalize_expressions(self.expressions), _normalize_expressions(other.expressions))
        since_start = [_normalize_expressions(one.expressions, one.started) for one in (self, other)]
        return same_day and _differ(*since_start)


def match_queries(measured: Measured, baseline: str, candidate: str) -> tuple[Measured, dict[str, str]]:
    """Give the queries of both sides names by which they meet.

    Returns: The same executions under these names, and the queries that cannot be paired, with the reason. Facts of
    earlier versions, without fingerprints of plans, keep their names.
    """
    executions = measured.executions
    if not executions["plan"].drop_nulls().len():
        return measured, {}
    classes = list(_list_classes(executions))
    names: dict[Key, str] = {}
    refused: dict[str, str] = {}
    taken: set[str] = set()
    pairs, alone = _pair_classes(classes, baseline, candidate)
    for first, second in pairs:
        name = _find_free_name(first, taken)
        names[first.key] = names[second.key] = name
        if first.is_same_work(second) is False:
            refused[name] = OTHER_WORK
        elif first.computes_something_else(second):
            sides = [
                f"{format_items(sorted(one.expressions - other.expressions), MAX_NAMED)} on {one.label}"
                for one, other in ((first, second), (second, first))
            ]
            refused[name] = f"{OTHER_EXPRESSIONS}: {', '.join(sides)}"
    unpaired: set[str] = set()
    for one, is_ambiguous in alone:
        # What has the same name on the other side, and reads other tables, is told as such.
        name = one.name if one.name in unpaired - taken and not is_ambiguous else _find_free_name(one, taken | unpaired)
        unpaired.add(name)
        names[one.key] = name
        if is_ambiguous:
            refused[name] = NOT_TOLD_APART
    keys = executions.with_columns(_description_expr()).select(*CLASS_KEY).iter_rows()
    renamed = executions.with_columns(query=pl.Series([names[key] for key in keys], dtype=pl.String))
    return Measured(renamed, measured.pieces), refused


def _list_classes(executions: pl.DataFrame) -> Iterator[QueryClass]:
    """Classes of all sides. `executions`: Table EXECUTIONS."""
    ordered = executions.sort("label", "session", "sql_id").with_columns(_description_expr())
    for (label, inputs, plan, description), rows in ordered.group_by(*CLASS_KEY, maintain_order=True):
        names = Counter(rows["query"])
        read = [rows[column].drop_nulls().median() for column in ("read_rows", "file_bytes")]
        n_rows, file_bytes = (float(value) if isinstance(value, int | float) else None for value in read)
        planned = rows["planned_operators"].drop_nulls()
        names_of_first = planned[0].to_list() if planned.len() else []
        yield QueryClass(
            str(label),
            None if inputs is None else str(inputs),
            None if plan is None else str(plan),
            names.most_common(1)[0][0],
            str(description),
            n_rows,
            file_bytes,
            tuple(sorted(name for name in names_of_first if _TELLING.fullmatch(name))),
            frozenset(rows["expressions"][0].to_list() if rows["expressions"][0] is not None else ()),
            rows["started"][0],
        )


def _description_expr() -> pl.Expr:
    """Descriptions; empty for places in a program, which differ from run to run."""
    text = pl.col("description").fill_null("")
    return (
        pl.when(text.str.contains(f"^(?:{CALL_SITE.pattern})$")).then(pl.lit("")).otherwise(text).alias("description")
    )


def _pair_classes(
    classes: Sequence[QueryClass], baseline: str, candidate: str
) -> tuple[list[tuple[QueryClass, QueryClass]], list[tuple[QueryClass, bool]]]:
    """Pairs of classes, and those without one: with whether any on the other side may be the same."""
    by_inputs: dict[str | None, dict[str, list[QueryClass]]] = defaultdict(lambda: {baseline: [], candidate: []})
    for one in classes:
        by_inputs[one.inputs][one.label].append(one)
    pairs: list[tuple[QueryClass, QueryClass]] = []
    alone: list[tuple[QueryClass, bool]] = []
    for sides in by_inputs.values():
        firsts, seconds = sides[baseline], sides[candidate]
        if len(firsts) == len(seconds) == 1:
            pairs.append((firsts[0], seconds[0]))
            continue
        for key in (_by_description, _by_plan, _by_expressions, _by_operators):
            # Move the classes to the pairs whose key only one of each side has.
            assert callable(key)
            counts = [Counter(map(key, side)) for side in (firsts, seconds)]
            for first in list(firsts):
                value = key(first)
                if value is not None and counts[0][value] == counts[1][value] == 1:
                    second = next(one for one in seconds if key(one) == value)
                    firsts.remove(first)
                    seconds.remove(second)
                    pairs.append((first, second))
        # Move the classes to the pairs that read the same data as only one on the other side.
        likely = {id(first): [one for one in seconds if first.is_same_work(one)] for first in firsts}
        n_wanted = Counter(id(one) for ones in likely.values() for one in ones)
        for first in list(firsts):
            ones = likely[id(first)]
            if len(ones) == 1 and n_wanted[id(ones[0])] == 1:
                firsts.remove(first)
                seconds.remove(ones[0])
                pairs.append((first, ones[0]))
        is_ambiguous = bool(firsts and seconds)
        alone += [(one, is_ambiguous) for one in (*firsts, *seconds)]
    return pairs, alone


def _by_description(one: QueryClass) -> str | None:
    return one.description or None


def _by_plan(one: QueryClass) -> str | None:
    return one.plan


def _by_expressions(one: QueryClass) -> frozenset[str] | None:
    return _normalize_expressions(one.expressions) or None


def _by_operators(one: QueryClass) -> tuple[str, ...] | None:
    return one.operators or None


def _find_free_name(one: QueryClass, taken: set[str]) -> str:
    """Its name in the logs, else with its fingerprint; becomes taken."""
    name = one.name
    if name in taken:
        name = add_identity(one.name.partition(" [")[0], one.plan, ())
    if name in taken:
        name = f"{name} ({one.label})"
    taken.add(name)
    return name


def _compare_amounts(first: float | None, second: float | None) -> bool | None:
    """Whether two amounts are alike; null where one is unknown."""
    if first is None or second is None:
        return None
    return abs(first - second) <= WORK_TOLERANCE * max(first, second)


def _differ(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether each has what the other has not."""
    return bool(first - second and second - first)


def _normalize_expressions(expressions: Iterable[str], started: str | None = None) -> frozenset[str]:
    """Expressions as all engines write them: dates as days since 1970, numbers in one form.

    `started`: Day from which days of a year around it count instead.
    """
    start = date.fromisoformat(started) if started else None
    return frozenset(_normalize_literal(text, start) for text in expressions)


def _normalize_literal(value: str, start: date | None) -> str:
    """A literal as both engines would print it: dates as days from 1970 or from the start, numbers without zeros.

    >>> _normalize_literal("1970-01-11", None), _normalize_literal("2026-11-01", date(2026, 11, 2))
    ('10', 'start -1')
    >>> _normalize_literal("68.00", None), _normalize_literal("1001-5000", None)
    ('68', '1001-5000')
    """
    try:
        if _DATE.fullmatch(value):
            days = date.fromisoformat(value)
            if start is not None and abs((days - start).days) <= _DAYS_AROUND:
                return f"start {(days - start).days}"
            return str((days - _EPOCH).days)
        return f"{float(value):.15g}" if _NUMBER.fullmatch(value) else value
    except ValueError:
        return value
