"""Declaration of a script without a class: the model is made from its first valid document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model

from workbench.core.errors import ConfigError
from workbench.core.schema import StrictModel
from workbench.indicators.contract.documents import DocumentError
from workbench.indicators.contract.indicator import Better, Case, Indicator, Value, check, parameter, result

Kind = Literal["int", "float", "str", "bool", "null"]
MAX_FIELDS = 500
_TYPES: Mapping[Kind, Any] = {
    "int": int | None, "float": float | None, "str": str | None, "bool": bool | None, "null": float | str | None,
}  # fmt: skip
_UNITS = {
    "ms": "ms", "us": "us", "ns": "ns", "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns",
}  # fmt: skip
_TIMES = frozenset({"elapsed", "time", "duration", "latency", "runtime", "walltime", *_UNITS})
_RATES = frozenset({"rate", "throughput", "flops", "gflops", "ops", "qps", "ips", "fps", "bandwidth", "speed"})
_ANSWERS = frozenset(
    {"answer", "answers", "checksum", "count", "counts", "crc", "digest", "distinct", "found", "hash", "hits", "items"}
    | {
        "lines",
        "matches",
        "md",
        "n",
        "norm",
        "output",
        "records",
        "result",
        "results",
        "rows",
        "score",
        "sha",
        "solution",
    }
    | {"accuracy", "loss", "mean", "sum", "total", "trace", "unique", "value", "words"}
)
_CONDITIONS = frozenset(
    {
        "arch",
        "backend",
        "blas",
        "build",
        "compiler",
        "cpu",
        "date",
        "device",
        "dir",
        "ended",
        "engine",
        "file",
        "folder",
    }
    | {
        "framework",
        "gpu",
        "host",
        "hostname",
        "id",
        "iterations",
        "kernel",
        "label",
        "lib",
        "library",
        "loops",
        "memory",
    }
    | {"model", "name", "os", "path", "peak", "pid", "platform", "python", "repeats", "reps", "rounds", "rss", "seed"}
    | {"gb", "gib", "kb", "kib", "mb", "mib", "started", "temp", "threads", "timestamp", "tmp", "unit", "units", "uuid"}
    | {"version", "versions", "workers"}
)
"""Words in names of results: what a script found, and how or where it ran."""
MAX_FILES = 100
MAX_BYTES = 1 << 20
PYTEST_SCRIPT = r"""
import contextlib, json, re, sys
import pytest


class Watch:
    failed = 0

    def pytest_runtest_logreport(self, report):
        self.failed += report.failed

    def pytest_collectreport(self, report):
        self.failed += report.failed

    # Facts of the machine take a second to find, and are in the session already.
    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_generate_machine_info(self, config):
        return {"node": "", "cpu": {}}

    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_generate_commit_info(self, config):
        return {"id": None, "dirty": False}


watch = Watch()
with contextlib.redirect_stdout(sys.stderr):
    options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--benchmark-only", "--benchmark-json=measured.json"]
    code = pytest.main([*options, "--benchmark-max-time=0.25", *TARGETS], plugins=[watch])
if code not in (0, 1):
    sys.exit(f"pytest ended with code {int(code)}: nothing was collected, or the suite cannot be run")
with open("measured.json") as file:
    found = json.load(file)["benchmarks"]
result = {}
for one in found:
    name = re.sub(r"[^A-Za-z0-9]+", "_", one["name"]).strip("_")[:60]
    if name in result:
        name = re.sub(r"[^A-Za-z0-9]+", "_", one["fullname"]).strip("_")[-60:].lstrip("_0123456789")
    result[name] = 1000 * one["stats"]["median"]
if not result:
    sys.exit("no benchmark of the suite has a value")
document = {"name": NAME, "framework": "pytest-benchmark", "@parameters": {}, "@result": result}
print(json.dumps({**document, "@checks": {"failed": watch.failed}}))
"""
PYPERF_SCRIPT = r"""
import json, os, re, statistics, subprocess, sys

# Workers get the variables of this run: pyperf would drop the limits of threads.
options = ["-o", "measured.json", "--processes", "1", "--inherit-environ", ",".join(os.environ)]
done = subprocess.run([sys.executable, TARGETS[0], *options], stdout=sys.stderr)
if done.returncode:
    sys.exit(done.returncode)
with open("measured.json") as file:
    suite = json.load(file)
result = {}
for one in suite["benchmarks"]:
    about = {**suite.get("metadata", {}), **one.get("metadata", {})}
    values = [value for run in one["runs"] for value in run.get("values", ())]
    if values and about.get("unit", "second") == "second":
        result[re.sub(r"[^A-Za-z0-9]+", "_", about.get("name", "value")).strip("_")[:60]] = (
            1000 * statistics.median(values)
        )
if not result:
    sys.exit("no benchmark of the suite has a time")
document = {"name": NAME, "framework": "pyperf", "@parameters": {}, "@result": result, "@checks": {"failed": 0}}
print(json.dumps(document))
"""
SUITES = {"pytest": (PYTEST_SCRIPT, ("pytest", "pytest-benchmark")), "pyperf": (PYPERF_SCRIPT, ("pyperf",))}


class ScriptField(StrictModel):
    """A field of the script's documents, with its role, type, unit and direction (null: kept, not compared)."""

    name: str
    role: Literal["parameter", "result", "check"]
    kind: Kind
    unit: str = ""
    better: Better | None = None


class ScriptDeclaration(StrictModel):
    """A script as it is: its sources, the variables that it is run with, and the fields of its first valid document.

    `declared` names the class of Thoth's that its documents are of; null: the class is made from `fields`. `requires`
    are packages that a stack must have. `suite`: tests of a suite, of which one may be missing in a stack.
    """

    name: str
    sources: dict[str, str]
    variables: dict[str, str] = Field(default={})
    parameters: dict[str, Value] = Field(default={})
    fields: tuple[ScriptField, ...] = ()
    declared: str | None = None
    requires: tuple[str, ...] = ()
    suite: bool = False


def is_answer(field: ScriptField) -> bool:
    """Whether a result without a direction is what the script found, and not a figure about how.

    >>> is_answer(ScriptField(name="digest", role="result", kind="str"))
    True
    >>> is_answer(ScriptField(name="library_version", role="result", kind="str"))
    False
    """
    words = set(re.findall(r"[a-z]+|\d+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", field.name).lower()))
    if field.role != "result" or field.better or words & _CONDITIONS:
        return False
    return field.kind in ("str", "bool") or bool(words & _ANSWERS)


def guess_direction(name: str) -> Better | None:
    """Which direction of a result is better, by its name; null where the name does not say.

    >>> guess_direction("elapsed"), guess_direction("items_per_s"), guess_direction("seconds_per_step")
    ('lower', 'higher', 'lower')
    >>> guess_direction("total") is None
    True
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")
    if len(words) > 1 and words[-2] == "per" and words[-1] in _UNITS:
        return "higher"
    if words[0] in _TIMES or words[-1] in _TIMES:
        return "lower"
    return "higher" if words[-1] in _RATES or words[0] in _RATES else None


def guess_unit(name: str) -> str:
    """Unit of a result by the end of its name; empty where it does not say.

    >>> guess_unit("elapsed_ms"), guess_unit("items_per_s"), guess_unit("rate")
    ('ms', '1/s', '')
    """
    words = name.lower().split("_")
    unit = _UNITS.get(words[-1], "") if len(words) > 1 else ""
    return f"1/{unit}" if unit and words[-2] == "per" else unit


def infer_fields(document: Mapping[str, Any], better: Mapping[str, Better]) -> tuple[ScriptField, ...]:
    """The fields of a document.

    Results whose direction the user or the name tells are compared; where there is a time, a rate is not: it follows
    from it. Of checks, whole numbers, words and flags must equal the baseline's; other numbers are kept.
    """
    fields: list[ScriptField] = []
    roles: tuple[tuple[str, Literal["parameter", "result", "check"]], ...] = (
        ("@parameters", "parameter"), ("@result", "result"), ("@checks", "check"),
    )  # fmt: skip
    for part, role in roles:
        section = document.get(part, {} if role == "check" else None)
        if not isinstance(section, dict):
            raise DocumentError("invalid document", f"{part} is missing, or no object")
        fields += [_infer_field(part, role, str(name), value, better) for name, value in section.items()]
    if len(fields) > MAX_FIELDS:
        raise DocumentError("invalid document", f"{len(fields)} fields, at most {MAX_FIELDS}")
    results = {field.name: field for field in fields if field.role == "result"}
    if unknown := [name for name in better if name not in results]:
        raise ConfigError("a direction for no result", where="--better", found=unknown, allowed=list(results))
    if not any(field.better for field in results.values()):
        names = ", ".join(list(results)[:5]) or "none"
        raise DocumentError(
            "invalid document",
            f"no result whose name shows which direction is better (results: {names}): add --better NAME=lower "
            f"or NAME=higher",
        )
    timed = any(field.better == "lower" and field.name not in better for field in results.values())
    return tuple(
        field.model_copy(update={"better": None})
        if timed and field.role == "result" and field.better == "higher" and field.name not in better
        else field
        for field in fields
    )


def _infer_field(
    part: str, role: Literal["parameter", "result", "check"], name: str, value: Any, better: Mapping[str, Better]
) -> ScriptField:
    """The declaration of a field by a value that a script printed; a result's unit and direction follow from its
    name.
    """
    kinds: tuple[tuple[type, Kind], ...] = ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"))
    kind: Kind | None = (
        "null" if value is None else next((word for python_type, word in kinds if isinstance(value, python_type)), None)
    )
    if kind is None:
        raise DocumentError("invalid document", f"{part}.{name[:60]} is nested: a table has one value a field")
    if role == "result" and kind == "int":
        # A time of 5 is 5.2 in the next run.
        kind = "float"
    numeric = role == "result" and kind in ("float", "null")
    direction = better.get(name) or (guess_direction(name) if numeric else None)
    if name in better and not numeric:
        raise ConfigError("only numbers can be better", where="--better", found=name)
    return ScriptField(name=name, role=role, kind=kind, unit=guess_unit(name) if numeric else "", better=direction)


def build_script_case(declaration: ScriptDeclaration, declared: type[Indicator] | None = None) -> Case:
    """The case of a declaration, with a class made from it; `declared` is the class of Thoth's, where it is of one."""
    fields: dict[str, Any] = dict(_build_model_field(field, declaration.suite) for field in declaration.fields)
    doc = "An unchanged script."
    parent: type[Indicator] = declared or create_model(
        declaration.name, __base__=Indicator, __module__=__name__, __doc__=doc, **fields
    )
    variables = dict(declaration.variables)

    def environment(cls: type[Indicator], parameters: Mapping[str, Value]) -> dict[str, str]:
        """The variables that the user gave: what else the script reads is left to its defaults."""
        del cls, parameters
        return dict(variables)

    answers = tuple(field.name for field in declaration.fields if is_answer(field))

    def list_answers(cls: type[Indicator]) -> tuple[str, ...]:
        """The results that are answers, by their names."""
        del cls
        return answers

    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": parent.__doc__,
        "__annotations__": {"script": ClassVar[str], "files": ClassVar[Any], "requires": ClassVar[Any]},
        "script": declaration.sources["script.py"],
        "files": {name: text for name, text in declaration.sources.items() if name != "script.py"},
        "requires": declaration.requires,
        "environment": classmethod(environment),
    }
    if declared is None and not declaration.suite:
        namespace["compared_results"] = classmethod(list_answers)
    indicator: type[Indicator] = type(parent.__name__, (parent,), namespace)
    return Case(indicator, declaration.parameters)


def _build_model_field(field: ScriptField, suite: bool) -> tuple[str, tuple[Any, Any]]:
    """Name, type and pydantic field of an indicator's class for a declared field."""
    kind = _TYPES[field.kind]
    if field.role == "parameter":
        alias: dict[str, Any] = {"alias": field.name} if hasattr(Indicator, field.name) else {}
        name = f"own_{field.name}" if alias else field.name
        return name, (kind, parameter(None, env=field.name, **alias))
    if field.role == "result":
        optional = suite or field.kind == "null"
        numeric = float | None if optional else float
        typed = numeric if field.kind in ("float", "null") and field.better else kind
        return field.name, (typed, result(unit=field.unit, better=field.better, optional=optional))
    if suite and field.name == "failed":
        return field.name, (int, check(equals=0, about="Tests that failed."))
    # Without a declared bound, a number such as an error is kept: it need not be the baseline's to the last digit.
    return field.name, (kind, check(at_most=1.7e308) if field.kind == "float" else check())


def read_suite(path: Path, kind: str) -> tuple[str, dict[str, str]]:
    """Name of a suite, and its sources with the script that runs it.

    A file is taken with the Python files beside it that it may import (`conftest.py`, helpers), a folder with all
    Python files directly in it.
    """
    where = f"--{kind} {path}"
    if kind == "pyperf" and not path.is_file():
        raise ConfigError("no such script", where=where, allowed="a script that runs pyperf.Runner")
    if not path.exists():
        raise ConfigError("no such suite", where=where, allowed="a test file, or a folder of test files")
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        targets = [
            file.name for file in sorted(folder.glob("*.py")) if re.fullmatch(r"test_.*\.py|.*_test\.py", file.name)
        ]
        if not targets:
            raise ConfigError("no test file in this folder", where=where, allowed="test_*.py or *_test.py")
        listed = sorted(folder.glob("*.py"))
    else:
        targets = [path.name]
        others = [file for file in sorted(folder.glob("*.py")) if not re.fullmatch(r"test_.*|.*_test\.py", file.name)]
        listed = [path, *(file for file in others if file != path)] if kind == "pytest" else [path]
    files = _read_files(listed, where)
    name = re.sub(r"[^A-Za-z0-9]+", "_", path.stem).strip("_").lstrip("0123456789_")[:60] or "suite"
    script, _ = SUITES[kind]
    head = f"NAME = {name!r}\nTARGETS = {targets!r}\n"
    return name, {"script.py": head + script, **files}


def _read_files(paths: list[Path], where: str) -> dict[str, str]:
    """The files of a suite, name to text."""
    if len(paths) > MAX_FILES:
        raise ConfigError("too many files in the suite's folder", where=where, found=len(paths), allowed=MAX_FILES)
    sources: dict[str, str] = {}
    total = 0
    for path in paths:
        if path.name == "script.py":
            raise ConfigError("a file of this name is written by the workbench", where=where, found=path.name)
        try:
            total += path.stat().st_size
            if total > MAX_BYTES:
                raise ConfigError("the suite is too large", where=where, allowed=f"{MAX_BYTES >> 20} MiB")
            sources[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("cannot read a file of the suite", where=path, found=str(error)[:200]) from None
    return sources
