"""What RAPIDS and Comet run, from tables that the package carries: operators, functions, formats and types."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from workbench.core.errors import ConfigError
from workbench.speedup.rapids_facts import (
    list_supported_execs,
    list_supported_expressions,
    list_supported_formats,
)

# Levels of RAPIDS' tables that mean yes; PS is with limits.
_YES = ("S", "PS", "TON")
# Comet's own documents name what its scan reads: datafusion.apache.org/comet/user-guide
_COMET_FORMATS = ("parquet", "iceberg")


@dataclass(frozen=True)
class Limit:
    """Operators that an engine leaves although it has them: patterns of their name and text (empty: any)."""

    operator: re.Pattern[str]
    text: re.Pattern[str]
    what: str
    note: str | None


@dataclass(frozen=True)
class EngineSupport:
    """What one engine runs.

    `execs`: Operators that it runs, by the name of Spark's class. `functions`: Functions and classes of expressions in
    lower case that it computes; `known`: all that the tables tell of. `notes`: Why not, where the tables say so.
    `formats`: By format in lower case the types that its scan reads; an empty set: all types. `limits`: What it leaves
    by its defaults. `takes_native`: Whether an operator can only follow one of its own, but for exchanges.
    `merges_own`: Whether it merges only the results of its own aggregates.
    """

    name: str
    execs: frozenset[str]
    functions: frozenset[str]
    known: frozenset[str]
    formats: Mapping[str, frozenset[str]]
    notes: Mapping[str, str]
    limits: tuple[Limit, ...] = ()
    takes_native: bool = False
    merges_own: bool = False


def list_engines() -> tuple[str, ...]:
    """Engines with tables, newest of each first."""
    return ("rapids", *(f"comet@{version}" for version in sorted(_read_comet_versions(), reverse=True)))


def load_support(engine: str) -> EngineSupport:
    """What an engine of `list_engines` runs; a name alone means the newest one."""
    found = next((name for name in list_engines() if name == engine or name.partition("@")[0] == engine), None)
    if found is None:
        raise ConfigError("no tables of this engine", where="--engine", found=engine, allowed=list_engines())
    return _load_rapids() if found == "rapids" else _load_comet(found.partition("@")[2])


@cache
def _load_rapids() -> EngineSupport:
    execs, expressions = list_supported_execs(), list_supported_expressions()
    names = {row: _list_names(row.name, [function.strip("`") for function in row.functions]) for row in expressions}
    formats = {}
    for row in list_supported_formats():
        if row["Direction"] == "read":
            types = {name for name, level in row.items() if level in _YES}
            if types:
                formats[row["Format"].lower()] = frozenset(types)
    refused = [row for row in (*execs, *expressions) if row.level not in _YES and row.note not in ("", "None")]
    return EngineSupport(
        "rapids",
        frozenset(row.name for row in execs if row.level in _YES),
        frozenset(name for row, of_row in names.items() if row.level in _YES for name in of_row),
        frozenset(name for of_row in names.values() for name in of_row) | _list_spark_functions(),
        formats,
        {name: row.note for row in refused for name in _list_names(row.name, [f.strip("`") for f in row.functions])},
    )


@cache
def _load_comet(version: str) -> EngineSupport:
    rows = _read_comet_rows()
    execs = [name for kind, name, _, told in rows if kind == "exec" and version in told]
    functions = [
        one for kind, name, known, told in rows if kind == "expression" and version in told for one in (name, *known)
    ]
    return EngineSupport(
        f"comet@{version}",
        frozenset(execs) | {"FileSourceScanExec", "BatchScanExec"},
        frozenset(map(str.lower, functions)),
        _list_spark_functions(),
        dict.fromkeys(_COMET_FORMATS, frozenset()),
        {},
        tuple(limit for versions, limit in _read_comet_limits() if version in versions),
        takes_native=True,
        merges_own=version == "0.12",
    )


@cache
def _read_comet_rows() -> tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]:
    """Kind, name of the class, its functions, and the versions of Comet that run it."""
    text = (files("workbench.speedup") / "comet_facts" / "supported.csv").read_text(encoding="utf-8")
    _, *rows = csv.reader(text.splitlines())
    return tuple(
        (kind, name, tuple(filter(None, functions.split(";"))), tuple(filter(None, versions.split(";"))))
        for kind, name, functions, versions in rows
    )


@cache
def _read_comet_limits() -> tuple[tuple[tuple[str, ...], Limit], ...]:
    """Limits of Comet, found in the explanations of its own plans of TPC-DS, with the versions that have them."""
    text = (files("workbench.speedup") / "comet_facts" / "limits.csv").read_text(encoding="utf-8")
    return tuple(
        (
            tuple(row["versions"].split(";")),
            Limit(re.compile(row["operator"] or ".*"), re.compile(row["text"]), row["what"], row["note"] or None),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _read_comet_versions() -> set[str]:
    return {version for *_, versions in _read_comet_rows() for version in versions}


@cache
def _list_spark_functions() -> frozenset[str]:
    """Functions of Spark's SQL, and classes of their expressions, in lower case."""
    return frozenset(
        name for kind, class_name, known, _ in _read_comet_rows() if kind == "expression"
        for name in _list_names(class_name, known)
    )  # fmt: skip


def _list_names(class_name: str, functions: tuple[str, ...] | list[str]) -> list[str]:
    return [class_name.lower(), *(function.lower() for function in functions)]
