"""Files of airspeed velocity (asv): results of a commit, the list of benchmarks, the description of a machine."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from workbench.core.data_files import read_json_file
from workbench.core.errors import InputError
from workbench.core.schema import validate_model
from workbench.indicators.store.session_import import OUTSIDE, is_inside

RESULT_VERSION = 2
MAX_BYTES = 64 << 20
MAX_DEPTH = 20
MAX_FILES = 10_000
MAX_PARAMETERS = 50
MAX_COMBINATIONS = 10_000
BENCHMARKS, MACHINE = "benchmarks.json", "machine.json"
_NOUN = "result file of asv"
_UPDATE = "write it with asv 0.5 or newer; `asv update` converts older files"


class ResultFile(BaseModel):
    """What is read of a result file: a commit in an environment on a machine. Further keys are ignored."""

    commit_hash: str = Field(pattern=r"^[0-9A-Za-z._-]{1,64}$")
    env_name: str
    date: Any = None
    python: str = ""
    params: dict[str, Any] = {}
    requirements: dict[str, Any] = {}
    env_vars: dict[str, Any] = {}
    result_columns: list[str]
    results: dict[str, list[Any]]


@dataclass(frozen=True)
class StoredValue:
    """What a file has for one combination of a benchmark's parameters.

    `arguments` are its parameters as source texts, null without parameters. `value` is a number, null after a failure
    or NaN if the benchmark was skipped; `samples` are empty if none were recorded. None of the three is checked.
    """

    arguments: tuple[str, ...] | None
    value: Any
    samples: list[Any]


def list_result_files(path: Path) -> list[Path]:
    """Result files of a folder and of the machines' folders in it; a path that is no folder as it is."""
    if not path.is_dir():
        return [path]
    listed = itertools.chain(path.glob("*.json"), path.glob("*/*.json"))
    paths = sorted(itertools.islice((file for file in listed if file.name not in (BENCHMARKS, MACHINE)), MAX_FILES + 1))
    if outside := [file for file in paths if not is_inside(file, path.resolve())]:
        raise InputError(OUTSIDE, where=outside[0], do="name the file itself")
    if not paths:
        allowed = ".asv/results, or the folder of a machine in it"
        raise InputError("no results of asv in this folder", where=path, allowed=allowed)
    if len(paths) > MAX_FILES:
        raise InputError("too many result files", where=path, allowed=f"at most {MAX_FILES:,}", do="name some of them")
    return paths


def is_results(path: Path) -> bool:
    """Whether a path is a result file of asv, or a folder of results."""
    if path.is_dir() and (path / BENCHMARKS).is_file():
        return True
    try:
        return any(_has_result_keys(_read_json(file)) for file in list_result_files(path)[:5])
    except InputError:
        return False


def read_result_file(path: Path) -> ResultFile:
    """Read a result file."""
    document = _read_json(path)
    if _has_result_keys(document) and document.get("version") != RESULT_VERSION:
        version = json.dumps(document.get("version"))[:40]
        raise InputError(f"{_NOUN} in another format", where=path, found=version, allowed=RESULT_VERSION, do=_UPDATE)
    return validate_model(ResultFile, document, noun=_NOUN, where=path, do=_UPDATE)


def read_benchmarks(path: Path, cache: dict[Path, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The list of benchmarks for a result file, by name: beside it or beside its folder; empty if there is none.

    `cache` holds the lists that were read before.
    """
    folder = path.parent.resolve()
    for file in (folder / BENCHMARKS, folder.parent / BENCHMARKS):
        if file not in cache and file.is_file():
            cache[file] = _read_object(file, "list of asv's benchmarks")
        if file in cache:
            return cache[file]
    return {}


def read_machine(path: Path, result_file: ResultFile) -> Mapping[str, Any]:
    """Facts of the machine of a result file, from the file itself and from `machine.json` beside it."""
    file = path.parent / MACHINE
    return {**(_read_object(file, "description of a machine") if file.is_file() else {}), **result_file.params}


def iterate_values(columns: Mapping[str, Any], where: str) -> Iterator[StoredValue]:
    """Values of a benchmark by combination of its parameters, the last parameter varying fastest."""
    params = columns.get("params") or []
    if not isinstance(params, list) or not all(isinstance(levels, list) for levels in params):
        raise InputError("not lists of parameters", where=where, allowed="a list of values for each parameter")
    count = math.prod(map(len, params))
    if len(params) > MAX_PARAMETERS or count > MAX_COMBINATIONS:
        allowed = f"at most {MAX_PARAMETERS} parameters and {MAX_COMBINATIONS:,} combinations"
        raise InputError("too many parameters", where=where, allowed=allowed)
    values, samples = (_align_column(columns.get(name), count, where) for name in ("result", "samples"))
    texts = itertools.product(*([str(value) for value in levels] for levels in params))
    for combination, value, several in zip(texts, values, samples, strict=True):
        yield StoredValue(combination if params else None, value, several if isinstance(several, list) else [])


def _align_column(column: Any, count: int, where: str) -> list[Any]:
    """Entries of a column, one per combination; asv writes null for a list of nulls."""
    if column is None:
        return [None] * count
    if not isinstance(column, list) or len(column) != count:
        finding = len(column) if isinstance(column, list) else type(column).__name__
        raise InputError("not one entry per combination of parameters", where=where, found=finding, allowed=count)
    return column


def _read_json(path: Path) -> Any:
    return read_json_file(path, noun=_NOUN, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)


def _has_result_keys(document: Any) -> bool:
    return isinstance(document, dict) and {"commit_hash", "results"} <= document.keys()


def _read_object(path: Path, noun: str) -> dict[str, Any]:
    if not is_inside(path, path.parent.resolve()):
        raise InputError(OUTSIDE, where=path, do="replace the link by the file")
    document = read_json_file(path, noun=noun, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    if not isinstance(document, dict):
        raise InputError(f"not a {noun}", where=path, found=type(document).__name__, allowed="an object")
    return document
