"""Third parties' tables of facts: operator scores per platform, what RAPIDS supports.

They come from the package spark-rapids-user-tools (Apache-2.0, see NOTICE; `SOURCE.json` holds version and sha256) and
are made by `docs/extract_rapids_facts.py`. `seed_operators.csv` lists the rows that the original generator writes, in
its order.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from workbench.core.errors import ConfigError

HERE = Path(__file__).parent
Release = Literal["24.08", "26.08"]


class SupportRow(NamedTuple):
    """Whether the accelerator runs an operator: level S, PS (partly), TON are yes; TNEW, TOFF, NS, CO, NA are no."""

    name: str
    level: str
    functions: tuple[str, ...]
    note: str


def _read_csv_rows(file: str) -> list[list[str]]:
    with (HERE / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.reader(opened))


@cache
def list_platforms() -> tuple[str, ...]:
    """Names of the built-in score tables.

    >>> "onprem-a100" in list_platforms(), len(list_platforms())
    (True, 12)
    """
    return tuple(_read_csv_rows("operator_scores.csv")[0][1:])


def get_operator_scores(platform: str) -> dict[str, float]:
    """Speedup score of every operator and expression on one platform.

    >>> get_operator_scores("onprem-a100")["FilterExec"]
    4.51
    """
    if platform not in list_platforms():
        raise ConfigError("no such platform", where="--platform", found=platform, allowed=list_platforms())
    column = list_platforms().index(platform) + 1
    return {row[0]: float(row[column]) for row in _read_csv_rows("operator_scores.csv")[1:] if row[column]}


@cache
def list_seed_operators() -> tuple[tuple[str, str], ...]:
    """(operator, score) in the order of the seed generator's output; an empty score is taken from the logs."""
    return tuple((row[0], row[1]) for row in _read_csv_rows("seed_operators.csv")[1:])


def _read_support_rows(file: str, kind: str, release: Release) -> list[SupportRow]:
    """Read the support table of a release: the newest one, with the rows that an older release had otherwise."""
    rows = [SupportRow(row[0], row[1], _parse_functions(row[2]), row[3]) for row in _read_csv_rows(file)[1:]]
    if release == "26.08":
        return rows
    older = {row[1]: row for row in _read_csv_rows("changed_since_24_08.csv")[1:] if row[0] == kind}
    same_rows = [row for row in rows if row.name not in older]
    changed = [
        SupportRow(row[1], row[2], _parse_functions(row[3]), row[4]) for row in older.values() if row[2] != "absent"
    ]
    return same_rows + changed


def _parse_functions(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(";")) if text and text != "None" else ()


@cache
def list_supported_execs(release: Release = "26.08") -> tuple[SupportRow, ...]:
    """List what the accelerator's release says about physical operators (`FilterExec`)."""
    return tuple(_read_support_rows("supported_execs.csv", "exec", release))


@cache
def list_supported_expressions(release: Release = "26.08") -> tuple[SupportRow, ...]:
    """List what the accelerator's release says about expressions, with the names of their SQL functions."""
    return tuple(_read_support_rows("supported_expressions.csv", "expression", release))


@cache
def list_supported_formats(release: Release = "26.08") -> tuple[dict[str, str], ...]:
    """Data formats: `Format`, `Direction` (read or write) and the level of every type in lower case."""
    head, *rows = _read_csv_rows("supported_formats.csv" if release == "26.08" else "supported_formats_24_08.csv")
    names = [*head[:2], *(name.lower() for name in head[2:])]
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


@cache
def list_known_operators() -> frozenset[str]:
    """List every name that a factor file may hold: physical operators, expressions, machine learning functions."""
    names = {row[0] for row in _read_csv_rows("operator_scores.csv")[1:]} | {name for name, _ in list_seed_operators()}
    return frozenset(names | {row.name for row in (*list_supported_execs(), *list_supported_expressions())})
