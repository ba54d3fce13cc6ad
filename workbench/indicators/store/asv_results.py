"""Import results of airspeed velocity (asv) as sessions, each a commit in an environment on a machine."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from workbench.core import redaction
from workbench.core.data_files import read_json_file
from workbench.core.errors import InputError
from workbench.core.schema import validate_model
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store import session_import
from workbench.indicators.store.archive import OUTSIDE, Arm, is_inside
from workbench.indicators.store.benchmark_import import MAX_RUNS
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile, list_result_files
from workbench.indicators.store.session_import import ImportedCase, ImportedRun, shorten_text

RESULT_VERSION = 2
MAX_BYTES = 64 << 20
MAX_DEPTH = 20
MAX_PARAMETERS = 50
MAX_COMBINATIONS = 10_000
BENCHMARKS, MACHINE = "benchmarks.json", "machine.json"
NOUN = "result file of asv"
_UPDATE = "write it with asv 0.5 or newer; `asv update` converts older files"
MAX_CASES = 10_000
MAX_SAMPLES = 10_000
MAX_PACKAGES = 5000
MAX_TEXT = 120
MAX_MILLISECONDS = 253_402_300_800_000
FAILED = "failed or timed out: asv stores null"
SKIPPED = "skipped by its benchmark, or NaN itself: asv stores NaN"
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_*-]{0,99}")
_shorten_text = partial(shorten_text, most=MAX_TEXT)
_PLACE = re.compile(r"[/\\:@]")
# asv tells the kind of a benchmark from the name of its function; these kinds have one unit.
_UNITS_BY_NAME = (
    (re.compile(r"time(raw)?_|Time(raw)?[A-Z_]"), "seconds"),
    (re.compile(r"(peak)?mem_|(Peak)?Mem[A-Z_]"), "bytes"),
)


class ResultDocument(BaseModel):
    """Fields that are read of a result file: a commit in an environment on a machine. Further keys are ignored."""

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
    """Values that a file has for one combination of a benchmark's parameters.

    `arguments` are its parameters as source texts, null without parameters. `value` is a number, null after a failure
    or NaN if the benchmark was skipped; `samples` are empty if none were recorded. None of the three is checked.
    """

    arguments: tuple[str, ...] | None
    value: Any
    samples: list[Any]


def read_asv_file(document: Any, path: Path) -> ResultDocument:
    """A result file by its document."""
    has_keys = isinstance(document, dict) and {"commit_hash", "results"} <= document.keys()
    if has_keys and document.get("version") != RESULT_VERSION:
        version = json.dumps(document.get("version"))[:40]
        raise InputError(f"{NOUN} in another format", where=path, found=version, allowed=RESULT_VERSION, do=_UPDATE)
    return validate_model(ResultDocument, document, noun=NOUN, where=path, do=_UPDATE)


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


def read_machine(path: Path, result_file: ResultDocument) -> Mapping[str, Any]:
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
    # asv writes null for a list of nulls.
    found: list[Any] = [
        columns.get(name) if columns.get(name) is not None else [None] * count for name in ("result", "samples")
    ]
    for column in found:
        if not isinstance(column, list) or len(column) != count:
            finding = len(column) if isinstance(column, list) else type(column).__name__
            raise InputError("not one entry per combination of parameters", where=where, found=finding, allowed=count)
    texts = itertools.product(*([str(value) for value in levels] for levels in params))
    values, samples = found
    for combination, value, several in zip(texts, values, samples, strict=True):
        yield StoredValue(combination if params else None, value, several if isinstance(several, list) else [])


def _read_object(path: Path, noun: str) -> dict[str, Any]:
    if not is_inside(path, path.parent.resolve()):
        raise InputError(OUTSIDE, where=path, do="replace the link by the file")
    document = read_json_file(path, noun=noun, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    if not isinstance(document, dict):
        raise InputError(f"not a {noun}", where=path, found=type(document).__name__, allowed="an object")
    return document


class AsvSeconds(Indicator):
    """asv benchmark in seconds: a sample, or the one value that asv stored."""

    benchmark: str = parameter()
    arguments: str = parameter()
    elapsed_s: float = result(unit="s", better="lower")


class AsvBytes(Indicator):
    """asv benchmark of memory in bytes."""

    benchmark: str = parameter()
    arguments: str = parameter()
    size_bytes: float = result(unit="bytes", better="lower")


class AsvNumber(Indicator):
    """asv benchmark in a unit of its own. Its direction is unknown, so it is not compared."""

    benchmark: str = parameter()
    arguments: str = parameter()
    unit: str = parameter()
    number: float = result(unit="")


_INDICATORS: dict[str, tuple[type[Indicator], str]] = {
    "seconds": (AsvSeconds, "elapsed_s"),
    "bytes": (AsvBytes, "size_bytes"),
}


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """Each result file is a session: a commit (its `revision`) in an environment (its only arm) on a machine.

    A session is created when the commit was. Each sample is a run, up to 10,000 of a case; without samples the stored
    value is the only run. Failed and skipped benchmarks are runs without a value. The version of a benchmark is part of
    its indicator's version. Names of machines are only part of the hardware's key; paths and secrets in the names of
    environments are left out.
    """
    for document in file.read_documents(NOUN, context.notices):
        found = read_asv_file(document, file.path)
        benchmarks = read_benchmarks(file.path, context.kept)
        # The samples of a result file as runs; each combination of parameters is a case.
        arm, facts = _build_arm(found), read_machine(file.path, found)
        count = str(facts.get("num_cpu"))
        hardware = session_import.build_hardware(
            model=_shorten_text(str(facts.get("cpu") or session_import.UNKNOWN)),
            cores=int(count) if re.fullmatch(r"[0-9]{1,6}", count) else None,
            machine=str(facts.get("machine") or ""),
            joined=context.options.machine,
        )
        runs: list[ImportedRun] = []
        labels: set[str] = set()
        for name, row in found.results.items():
            where = f"{file.path}, {_shorten_text(name)}"
            columns = dict(zip(found.result_columns, row, strict=False))
            start = _format_time(columns.get("started_at"))
            for case, field, values in _iterate_cases(name, columns, benchmarks.get(name), where):
                if case.label in labels:
                    raise InputError("a combination of parameters twice", where=where, found=case.label)
                labels.add(case.label)
                for value in values:
                    status, reason = _judge_value(value)
                    stdout = {"name": case.name, "@parameters": dict(case.parameters), "@result": {field: value}}
                    document = {
                        "stdout": stdout if status == "ok" else "",
                        "exit_code": 0 if status == "ok" else None,
                        "start_datetime": start,
                    }
                    runs.append(ImportedRun(arm, case, hardware, status, document, reason))
                if len(labels) > MAX_CASES or len(runs) > MAX_RUNS:
                    allowed = f"at most {MAX_CASES:,} combinations of parameters and {MAX_RUNS:,} samples"
                    raise InputError("too many results for a session", where=where, allowed=allowed)
        yield ImportedSet(runs, found.commit_hash, _format_time(found.date) or None)


def _iterate_cases(
    name: str, columns: Mapping[str, Any], benchmark: Any, where: str
) -> Iterator[tuple[ImportedCase, str, list[Any]]]:
    """Case, result field and values of each combination of a benchmark's parameters."""
    version, about = str(columns.get("version") or ""), _shorten_text(name)
    unit = _find_unit(name, version, benchmark)
    indicator, field = _INDICATORS.get(unit, (AsvNumber, "number"))
    key = indicator.version({"asv": _shorten_text(version)})
    for entry in iterate_values(columns, where):
        text = _shorten_text(", ".join(map(_shorten_text, entry.arguments or ())))
        parameters = {"benchmark": about, "arguments": text} | ({"unit": unit} if indicator is AsvNumber else {})
        label = about if entry.arguments is None else f"{about}({text})"
        # Of a failed or skipped benchmark, samples would be those of an earlier run.
        has_value = entry.value is not None and entry.value == entry.value
        values = entry.samples[:MAX_SAMPLES] if has_value and entry.samples else [entry.value]
        yield ImportedCase(indicator.__name__, key, indicator, parameters, label), field, values


def _find_unit(name: str, version: str, benchmark: Any) -> str:
    """Unit of a benchmark; empty if only another version of it is listed, and its name does not tell the unit."""
    listed = benchmark if isinstance(benchmark, Mapping) else {}
    if isinstance(listed.get("unit"), str) and (not version or listed.get("version") in (None, version)):
        return _shorten_text(listed["unit"])
    function = name.rpartition(".")[2]
    return next((unit for pattern, unit in _UNITS_BY_NAME if pattern.match(function)), "")


def _judge_value(value: Any) -> tuple[Status, str | None]:
    if value is None:
        return "empty", FAILED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "invalid document", f"not a number: {type(value).__name__}"
    if value != value:
        return "not finite", SKIPPED
    return ("not finite", "a value that is not finite") if abs(value) > sys.float_info.max else ("ok", None)


def _build_arm(result_file: ResultDocument) -> Arm:
    """Arm of an environment; asv's name of it is replaced where it has a path or a secret in it."""
    requirements = {
        name.removeprefix("pip+"): str(version) for name, version in sorted(result_file.requirements.items())
    }
    secrets = {name for name in result_file.env_vars if redaction.is_secret_key(name)}
    variables = {name: str(value) for name, value in sorted(result_file.env_vars.items()) if name not in secrets}
    texts = (result_file.python, *requirements, *requirements.values(), *variables.values())
    is_hidden = bool(secrets) or any(map(_PLACE.search, texts))
    name = result_file.env_name.partition("-py")[0] if is_hidden else result_file.env_name
    identity = json.dumps(["asv", name, result_file.python, requirements, variables])
    key = hashlib.sha256(identity.encode()).hexdigest()
    name = _shorten_text(f"{name} {key[:8]}" if is_hidden else name) or "environment"
    packages = {
        _shorten_text(package): version if _VERSION.fullmatch(version) else ""
        for package, version in requirements.items()
        if not _PLACE.search(package)
    }
    return Arm(
        name=name,
        stack=name,
        stack_key=key,
        python=result_file.python[:20] if _VERSION.fullmatch(result_file.python) else "",
        packages=dict(list(packages.items())[:MAX_PACKAGES]),
        notes={"source": "asv", "stack": "unknown: asv keeps no lock"},
    )


def _format_time(milliseconds: Any) -> str:
    """Time in ISO format of milliseconds since 1970; empty for anything else."""
    is_known = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    if not is_known or not 0 <= milliseconds < MAX_MILLISECONDS:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


FORMAT = ImportFormat(
    name="asv",
    tool="asv",
    noun=NOUN,
    marks=(('"commit_hash"', '"results"'),),
    takes=frozenset({"machine"}),
    read=_read_file,
    list_files=partial(list_result_files, skip=(BENCHMARKS, MACHINE)),
)
