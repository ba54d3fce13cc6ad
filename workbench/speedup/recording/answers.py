"""Are two answers the same? Compared without order, exactly but for floating point, ties at a limit allowed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["reference", "equal", "equal up to ties at the limit", "wrong answer", "failed", "not comparable"]
FLOAT_TOLERANCE = 1e-9
# Rows of one group that differ in floating point only, tried against each other; beyond, sorted pairs must do.
MAX_MATCHED = 2000
MAX_TEXT = 200
Row = list[Any]


@dataclass(frozen=True)
class Answer:
    """What a query gave: columns with Spark's types, rows, and the outermost limit with its sort columns."""

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Row]
    limit: int | None = None
    keys: tuple[int, ...] | None = None

    @classmethod
    def of(cls, line: dict[str, Any]) -> Answer:
        """From a line of a session's answers."""
        keys = None if line["keys"] is None else tuple(line["keys"])
        columns = tuple((str(name), str(kind)) for name, kind in line["columns"])
        return cls(columns, line["rows"], line["limit"], keys)


@dataclass(frozen=True)
class Comparison:
    """The verdict, and where and how the answers differ (null when they do not)."""

    verdict: Verdict
    difference: str | None = None


def compare(reference: Answer, other: Answer) -> Comparison:
    """Is the other answer that of the reference?

    Parameters
    ----------
    reference, other
        Two answers to one query.

    Returns
    -------
    Comparison
        Equal: the same rows the same number of times, in whatever order. Decimals, dates and texts are the same to
        the last digit; floating point to 1e-9 of the larger, NaN as NaN. Equal up to ties: rows differ only among
        those that tie with the last kept row in the sort columns of the outermost LIMIT. Not comparable: rows differ
        where a limit without a sort, or sorted by what is not in the answer, may allow it. Wrong answer: else.

    Notes
    -----
    Does not show which one is right, nor whether rows that tie are rows of the whole result. Does not check the
    order of rows.

    Examples
    --------
    >>> columns = (("city", "string"), ("n", "bigint"))
    >>> a = Answer(columns, [["Rome", 2], ["Oslo", 1]], limit=2, keys=(1,))
    >>> b = Answer(columns, [["Rome", 2], ["Bonn", 1]], limit=2, keys=(1,))
    >>> compare(a, b).verdict, compare(a, Answer(columns, [["Rome", 3], ["Oslo", 1]], 2, (1,))).verdict
    ('equal up to ties at the limit', 'wrong answer')
    """
    types, others = [kind for _, kind in reference.columns], [kind for _, kind in other.columns]
    if types != others:
        return Comparison("wrong answer", _short(f"columns {', '.join(others)} in place of {', '.join(types)}"))
    if len(reference.rows) != len(other.rows):
        return Comparison("wrong answer", f"{len(other.rows):,} rows in place of {len(reference.rows):,}")
    missing, extra = unmatched(reference.rows, other.rows, types)
    if not missing:
        return Comparison("equal")
    difference = _short(f"{len(missing):,} of {len(reference.rows):,} rows; {_text(extra[0])} for {_text(missing[0])}")
    if reference.limit is None or len(reference.rows) < reference.limit:
        return Comparison("wrong answer", difference)
    if not reference.keys or reference.keys != other.keys:
        return Comparison("not comparable", f"a limit without sort columns in the answer: {difference}")
    if _only_ties(reference, other, missing, extra, types):
        return Comparison("equal up to ties at the limit")
    return Comparison("wrong answer", difference)


def _only_ties(reference: Answer, other: Answer, missing: list[Row], extra: list[Row], types: list[str]) -> bool:
    """Do all rows that differ tie with the last kept row, and are the sort columns the same as a whole?"""
    keys = reference.keys or ()
    kinds = [types[place] for place in keys]

    def key_of(row: Row) -> Row:
        return [row[place] for place in keys]

    last = key_of(reference.rows[-1])
    differing = [key_of(row) for row in [*missing, *extra, other.rows[-1]]]
    if not all(_same_row(key, last, kinds) for key in differing):
        return False
    # As many rows tie with the last one on both sides: the rows before it were all matched.
    return not unmatched([key_of(row) for row in reference.rows], [key_of(row) for row in other.rows], kinds)[0]


def unmatched(rows: Iterable[Row], others: Iterable[Row], types: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Rows of each side that have no partner on the other; both empty when the sides hold the same rows."""
    floating = [place for place, kind in enumerate(types) if "float" in kind or "double" in kind]
    exact = [place for place in range(len(types)) if place not in set(floating)]
    if not floating:
        return _unmatched_exact(list(rows), list(others))
    left, right = _grouped(rows, exact), _grouped(others, exact)
    missing: list[Row] = []
    extra: list[Row] = []
    for key in {**left, **right}:
        lost, found = _unmatched_floating(left.get(key, []), right.get(key, []), floating)
        missing += lost
        extra += found
    return missing, extra


def _unmatched_exact(rows: list[Row], others: list[Row]) -> tuple[list[Row], list[Row]]:
    left, right = Counter(map(_key, rows)), Counter(map(_key, others))
    if left == right:
        return [], []
    return [json.loads(key) for key in (left - right).elements()], [
        json.loads(key) for key in (right - left).elements()
    ]


def _grouped(rows: Iterable[Row], exact: Sequence[int]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_key([row[place] for place in exact]), []).append(row)
    return groups


def _unmatched_floating(rows: list[Row], others: list[Row], floating: Sequence[int]) -> tuple[list[Row], list[Row]]:
    """Rows alike in all exact columns: paired in sorted order, and where that fails each with the first that fits."""

    def order(row: Row) -> str | tuple[Any, ...]:
        return tuple(_sortable(row[place]) for place in floating)

    left, right = sorted(rows, key=order), sorted(others, key=order)
    pairs = list(zip(left, right, strict=False))
    odd = [not _same_floating(one, two, floating) for one, two in pairs]
    missing = [one for (one, _), is_odd in zip(pairs, odd, strict=True) if is_odd] + left[len(pairs) :]
    extra = [two for (_, two), is_odd in zip(pairs, odd, strict=True) if is_odd] + right[len(pairs) :]
    if len(missing) > MAX_MATCHED or len(extra) > MAX_MATCHED:
        return missing, extra
    lost = []
    for row in missing:
        # Values that differ by rounding may sort differently in the first of several floating columns.
        partner = next((place for place, two in enumerate(extra) if _same_floating(row, two, floating)), None)
        if partner is None:
            lost.append(row)
        else:
            del extra[partner]
    return lost, extra


def _same_floating(one: Row, two: Row, floating: Sequence[int]) -> bool:
    return all(same_value(one[place], two[place]) for place in floating)


def _same_row(one: Row, two: Row, types: Sequence[str]) -> bool:
    return not unmatched([one], [two], types)[0]


def same_value(one: Any, two: Any) -> bool:
    """Are two values with floating point in them the same, to 1e-9 of the larger? NaN is NaN, null is null.

    Examples
    --------
    >>> same_value(0.1 + 0.2, 0.3), same_value(float("nan"), float("nan")), same_value(None, 0.0)
    (True, True, False)
    """
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same_value, one, two))
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=FLOAT_TOLERANCE)
    return type(one) is type(two) and bool(one == two)


def _sortable(value: Any) -> tuple[int, float, str]:
    if isinstance(value, float) and not math.isnan(value):
        return (1, value, "")
    return (0 if value is None else 2, 0.0, json.dumps(value))


def _key(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


def _text(row: Row) -> str:
    return _short(_key(row), MAX_TEXT // 2)


def _short(text: str, limit: int = 3 * MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
