"""Answers of queries: comparison between sides, storage by digest, verdict per query."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
import zstandard

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.formats import cut_text
from workbench.speedup import tables
from workbench.speedup.recording.recording_plan import GOOD_VERDICTS, Recording

Verdict = Literal["reference", "equal", "equal up to ties at the limit", "wrong answer", "failed", "not comparable"]
FLOAT_TOLERANCE = 1e-9
# Largest number of rows that are matched one by one; beyond it they are matched in sorted order only.
MAX_MATCHED = 2000
MAX_TEXT = 200
Row = list[Any]
MAX_ANSWER_BYTES = 1 << 30
# A side has the first of these verdicts that one of its sessions has.
_WORST_FIRST: tuple[Verdict, ...] = (
    "failed",
    "wrong answer",
    "not comparable",
    "equal up to ties at the limit",
    "reference",
    "equal",
)


@dataclass(frozen=True)
class Answer:
    """Answer of a query: columns with Spark's types, rows, and the outermost limit with its sort columns."""

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Row]
    limit: int | None = None
    keys: tuple[int, ...] | None = None

    @classmethod
    def from_line(cls, line: dict[str, Any]) -> Answer:
        """Build an answer from a line of a session."""
        keys = None if line["keys"] is None else tuple(line["keys"])
        columns = tuple((str(name), str(kind)) for name, kind in line["columns"])
        return cls(columns, line["rows"], line["limit"], keys)


@dataclass(frozen=True)
class AnswerComparison:
    """The verdict, and how the answers differ (null if they do not)."""

    verdict: Verdict
    difference: str | None = None


def compare_answers(reference: Answer, other: Answer) -> AnswerComparison:
    """Compare an answer with the reference.

    Returns: Equal: the same rows the same number of times, in any order. Decimals, dates and texts are equal to the
    last digit, floating point to 1e-9 of the larger value, and NaN equals NaN. Equal up to ties: rows differ only
    among those that tie with the last row in the sort columns of the outermost LIMIT. Not comparable: rows differ,
    and a limit without a sort, or with sort columns outside the answer, may allow it. Wrong answer: otherwise.

    It does not show which answer is right, or whether tied rows belong to the full result. It does not check the order
    of rows.

    >>> columns = (("city", "string"), ("n", "bigint"))
    >>> a = Answer(columns, [["Rome", 2], ["Oslo", 1]], limit=2, keys=(1,))
    >>> b = Answer(columns, [["Rome", 2], ["Bonn", 1]], limit=2, keys=(1,))
    >>> compare_answers(a, b).verdict, compare_answers(a, Answer(columns, [["Rome", 3], ["Oslo", 1]], 2, (1,))).verdict
    ('equal up to ties at the limit', 'wrong answer')
    """
    types, others = [kind for _, kind in reference.columns], [kind for _, kind in other.columns]
    if types != others:
        found = f"columns {', '.join(others)} instead of {', '.join(types)}"
        return AnswerComparison("wrong answer", cut_text(found, 3 * MAX_TEXT))
    if len(reference.rows) != len(other.rows):
        return AnswerComparison("wrong answer", f"{len(other.rows):,} rows instead of {len(reference.rows):,}")
    missing, extra = list_unmatched_rows(reference.rows, other.rows, types)
    if not missing:
        return AnswerComparison("equal")
    difference = cut_text(
        f"{len(missing):,} of {len(reference.rows):,} rows; {_row_text(extra[0])} instead of {_row_text(missing[0])}",
        3 * MAX_TEXT,
    )
    if reference.limit is None or len(reference.rows) < reference.limit:
        return AnswerComparison("wrong answer", difference)
    if not reference.keys or reference.keys != other.keys:
        return AnswerComparison("not comparable", f"limit without sort columns in the answer: {difference}")
    if _differ_only_in_ties(reference, other, missing, extra, types):
        return AnswerComparison("equal up to ties at the limit")
    return AnswerComparison("wrong answer", difference)


def _differ_only_in_ties(
    reference: Answer, other: Answer, missing: list[Row], extra: list[Row], types: list[str]
) -> bool:
    """Tell whether all differing rows tie with the last row in the sort columns, which are equal on the whole."""
    keys = reference.keys or ()
    kinds = [types[place] for place in keys]

    def sort_key_of(row: Row) -> Row:
        return [row[place] for place in keys]

    last = sort_key_of(reference.rows[-1])
    differing = [sort_key_of(row) for row in [*missing, *extra, other.rows[-1]]]
    if not all((not list_unmatched_rows([key], [last], kinds)[0]) for key in differing):
        return False
    # The same number of rows ties with the last one on both sides, and all rows before it matched.
    return not list_unmatched_rows(
        [sort_key_of(row) for row in reference.rows], [sort_key_of(row) for row in other.rows], kinds
    )[0]


def list_unmatched_rows(
    rows: Iterable[Row], others: Iterable[Row], types: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """List the rows of each side without a match on the other; both lists are empty if the sides hold the same rows."""
    floating = [place for place, kind in enumerate(types) if "float" in kind or "double" in kind]
    exact = [place for place in range(len(types)) if place not in set(floating)]
    if not floating:
        return _list_unmatched_exact_rows(list(rows), list(others))
    left, right = _group_by_exact_columns(rows, exact), _group_by_exact_columns(others, exact)
    missing: list[Row] = []
    extra: list[Row] = []
    for key in {**left, **right}:
        lost, surplus = _list_unmatched_floating_rows(left.get(key, []), right.get(key, []), floating)
        missing += lost
        extra += surplus
    return missing, extra


def _list_unmatched_exact_rows(rows: list[Row], others: list[Row]) -> tuple[list[Row], list[Row]]:
    """List the rows of each side that the other lacks, counted with repeats."""
    left, right = Counter(map(_row_key, rows)), Counter(map(_row_key, others))
    if left == right:
        return [], []
    return [json.loads(key) for key in (left - right).elements()], [
        json.loads(key) for key in (right - left).elements()
    ]


def _group_by_exact_columns(rows: Iterable[Row], exact: Sequence[int]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_row_key([row[place] for place in exact]), []).append(row)
    return groups


def _list_unmatched_floating_rows(
    rows: list[Row], others: list[Row], floating: Sequence[int]
) -> tuple[list[Row], list[Row]]:
    """Rows of each side without a counterpart that is equal up to rounding; all rows equal in their exact columns.

    `floating`: Positions of the floating-point columns. Rows are paired in sorted order, then with the first that fits.
    """

    def order_key(row: Row) -> str | tuple[Any, ...]:
        return tuple(_value_sort_key(row[place]) for place in floating)

    left, right = sorted(rows, key=order_key), sorted(others, key=order_key)
    pairs = list(zip(left, right, strict=False))
    odd = [not _is_same_floating(one, two, floating) for one, two in pairs]
    missing = [one for (one, _), is_odd in zip(pairs, odd, strict=True) if is_odd] + left[len(pairs) :]
    extra = [two for (_, two), is_odd in zip(pairs, odd, strict=True) if is_odd] + right[len(pairs) :]
    if len(missing) > MAX_MATCHED or len(extra) > MAX_MATCHED:
        return missing, extra
    lost = []
    for row in missing:
        # Rounding in the first floating column may change the sort order.
        partner = next((place for place, two in enumerate(extra) if _is_same_floating(row, two, floating)), None)
        if partner is None:
            lost.append(row)
        else:
            del extra[partner]
    return lost, extra


def _is_same_floating(one: Row, two: Row, floating: Sequence[int]) -> bool:
    return all(is_same_value(one[place], two[place]) for place in floating)


def is_same_value(one: Any, two: Any) -> bool:
    """Whether two values are equal, floating point to 1e-9 of the larger; NaN equals NaN, null equals null.

    >>> is_same_value(0.1 + 0.2, 0.3), is_same_value(float("nan"), float("nan")), is_same_value(None, 0.0)
    (True, True, False)
    """
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(is_same_value, one, two))
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=FLOAT_TOLERANCE)
    return type(one) is type(two) and bool(one == two)


def _value_sort_key(value: Any) -> tuple[int, float, str]:
    """Sort key of a value: nulls first, then floats by size, then all other values by their JSON."""
    if isinstance(value, float) and not math.isnan(value):
        return (1, value, "")
    return (0 if value is None else 2, 0.0, json.dumps(value))


def _row_key(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


def _row_text(row: Row) -> str:
    return cut_text(_row_key(row), MAX_TEXT // 2)


class AnswerStore:
    """The folder `answers/`: `<sha256>.json.zst` with an answer, `<label>-s<n>.json` with query to digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add_session(self, session: str, lines: Iterable[bytes]) -> None:
        """Store the answers of a session, then its index of digests."""
        index = {}
        for line in lines:
            answer = json.loads(line)
            query = answer.pop("query")
            index[query] = self._store_answer(answer)
        files.write_text(self.folder / f"{session}.json", json.dumps(index, indent=1) + "\n")

    def _store_answer(self, answer: dict[str, Any]) -> str:
        """Store the rows of an answer under their digest, which does not depend on the order of rows.

        Returns the digest.
        """
        rows = answer["rows"]
        # The order of rows does not matter, except for the last row, which decides about ties.
        ordered = answer | {"rows": sorted(json.dumps(row, ensure_ascii=False) for row in rows), "last": rows[-1:]}
        if answer["limit"] is None:
            del ordered["last"]
        digest = hashlib.sha256(json.dumps(ordered, ensure_ascii=False).encode()).hexdigest()
        path = self._answer_path(digest)
        if not path.exists():
            with files.replace_atomically(path) as temporary:
                content = json.dumps(answer, ensure_ascii=False).encode()
                temporary.write_bytes(zstandard.ZstdCompressor(level=12).compress(content))
        return digest

    def read_session_index(self, session: str) -> dict[str, str]:
        """Digest of each query's answer in a session; empty if the file is missing."""
        try:
            digests = json.loads((self.folder / f"{session}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise InputError("unreadable answers", where=self.folder / f"{session}.json", found=str(error)) from error
        if not isinstance(digests, dict):
            raise InputError("unreadable answers", where=self.folder / f"{session}.json", found=type(digests).__name__)
        return {str(query): str(digest) for query, digest in digests.items()}

    def load_answer(self, digest: str) -> Answer:
        """The answer with this digest."""
        path = self._answer_path(digest)
        try:
            packed = path.read_bytes()
            if not 0 < zstandard.frame_content_size(packed) <= MAX_ANSWER_BYTES:
                raise ValueError(f"size unknown or above {MAX_ANSWER_BYTES >> 20} MiB")
            content = zstandard.ZstdDecompressor().decompress(packed)
            return Answer.from_line(json.loads(content))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as error:
            raise InputError("unreadable answer", where=path, found=str(error)[:200]) from error

    def _answer_path(self, digest: str) -> Path:
        if not digest.isalnum():
            raise InputError("not a digest", where=self.folder, found=digest[:80])
        return self.folder / f"{digest}.json.zst"


# By digest of an answer: its comparison with the reference, and its number of rows.
_Cache = dict[str, tuple[AnswerComparison, int]]


@dataclass(frozen=True)
class _SessionVerdict:
    verdict: Verdict
    difference: str | None
    n_rows: int | None


def session_file_stem(label: str, number: int) -> str:
    """Stem of the file names of a session."""
    return f"{label}-s{number}"


def build_answer_verdicts(recording: Recording, store: AnswerStore, executions: pl.DataFrame) -> pl.DataFrame:
    """Compare the answers of all sides and sessions with the reference, query by query.

    Returns: Table `answers`. A query with a failed execution has the verdict failed on that side.
    """
    # Session and digest of each query's reference answer, from the first session of the first side that has one.
    references: dict[str, tuple[str, str]] = {}
    for label, number in ((session.label, session.session) for session in recording.list_good_sessions()):
        name = session_file_stem(label, number)
        for query, digest in store.read_session_index(name).items():
            references.setdefault(query, (name, digest))
    rows: list[dict[str, Any]] = []
    for query in recording.suite.queries:
        failures = executions.filter((pl.col("query") == query) & (pl.col("status") == "failed"))
        cache: _Cache = {}
        for label in recording.labels:
            if not recording.list_good_sessions(label):
                continue
            verdicts = _find_failure(failures.filter(pl.col("label") == label))
            verdicts += _compare_sessions(recording, store, label, query, references.get(query), cache)
            if not verdicts:
                continue
            worst = min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.verdict))
            n_rows = next((verdict.n_rows for verdict in verdicts if verdict.n_rows is not None), None)
            rows.append(
                {
                    "query": query,
                    "label": label,
                    "n_rows": n_rows,
                    "verdict": worst.verdict,
                    "difference": worst.difference,
                }
            )
    return tables.ANSWERS.frame(rows)


def _find_failure(failures: pl.DataFrame) -> list[_SessionVerdict]:
    """Verdict on the failed executions of a query; empty if there is none. `failures`: `session, error`."""
    if not failures.height:
        return []
    first = failures.row(0, named=True)
    text = f"{failures.height:,} executions failed; session {first['session']}: {first['error']}"
    return [_SessionVerdict("failed", text, None)]


def _compare_sessions(
    recording: Recording, store: AnswerStore, label: str, query: str, reference: tuple[str, str] | None, cache: _Cache
) -> list[_SessionVerdict]:
    """Verdicts on a side's answers to one query by session; each distinct answer is compared once."""
    if reference is None:
        return []
    verdicts = []
    for number in (session.session for session in recording.list_good_sessions(label)):
        name = session_file_stem(label, number)
        digest = store.read_session_index(name).get(query)
        if digest is None:
            continue
        if digest not in cache:
            answer = store.load_answer(digest)
            cache[digest] = (compare_answers(store.load_answer(reference[1]), answer), len(answer.rows))
        result, n_rows = cache[digest]
        if name == reference[0]:
            verdicts.append(_SessionVerdict("reference", None, n_rows))
        else:
            difference = f"session {number} against {reference[0]}: {result.difference}" if result.difference else None
            verdicts.append(_SessionVerdict(result.verdict, difference, n_rows))
    return verdicts


def list_excluded_queries(verdicts: pl.DataFrame) -> dict[str, dict[str, str]]:
    """Map each side to its queries that do not count, each with the reason. `verdicts`: Table ANSWERS.

    >>> verdicts = {"verdict": ["equal", "differs"], "difference": ["", "row 3"]}
    >>> list_excluded_queries(pl.DataFrame({"label": ["cpu", "gpu"], "query": ["q1", "q1"]} | verdicts))
    {'gpu': {'q1': 'differs: row 3'}}
    """
    reasons: dict[str, dict[str, str]] = {}
    for row in verdicts.filter(~pl.col("verdict").is_in(GOOD_VERDICTS)).iter_rows(named=True):
        reasons.setdefault(row["label"], {})[row["query"]] = f"{row['verdict']}: {row['difference']}"
    return reasons
