"""Parse and validate the document that an indicator's script prints.

Nothing here is trusted: size, form, names and numbers are checked before a value goes anywhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from workbench.core.formats import format_items
from workbench.indicators.contract.indicator import BASE_COLUMNS, Indicator, Role, Value, field_metadata

Status = Literal[
    "ok",
    "timeout",
    "cpu limit",
    "out of memory",
    "killed",
    "exit code",
    "too long",
    "empty",
    "not JSON",
    "not finite",
    "invalid document",
    "not started",
]
"""How a run ended. Only `ok` has values; every other one is counted, and never becomes a zero."""

MAX_STDOUT_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_SAMPLES = 10_000
PACKAGES = {"pytorch": "torch", "sklearn": "scikit-learn", "cpython": "python"}
"""Names of frameworks whose package has another name."""
_PARTS = ("@parameters", "@result", "@checks", "@samples", "@cpu")
_KNOWN = ("name", "framework", "component", "version", "overall_score", *_PARTS)


class DocumentError(Exception):
    """Why an output is no document: a status and a reason."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason[:500]


@dataclass(frozen=True)
class Document:
    """A document of a known indicator, checked.

    `indicator`, `component`: The class it was checked against; the measured framework in lower case (null: not told).
    `parameters`, `results`, `checks`: By field name; null only where the field may be.
    `cpu`: CPU time of a result, in its unit, if the script measured it beside the wall time.
    `overall_score`, `version`: As printed; null when absent.
    `build_info`: The framework's own account of how it was built, by key; any JSON.
    """

    indicator: type[Indicator]
    component: str | None
    parameters: Mapping[str, Value]
    results: Mapping[str, Value]
    checks: Mapping[str, Value]
    samples: Mapping[str, list[float]]
    cpu: Mapping[str, float]
    overall_score: float | None
    version: str | None
    build_info: Mapping[str, Any]
    failed_checks: tuple[str, ...]


def parse_document(stdout: bytes, *, max_bytes: int = MAX_STDOUT_BYTES) -> dict[str, Any]:
    """The JSON object that a script printed, and nothing else."""
    if len(stdout) > max_bytes:
        raise DocumentError("too long", f"more than {max_bytes:,} bytes on stdout")
    if not stdout.strip():
        raise DocumentError("empty", "nothing on stdout")
    try:
        document = json.loads(
            stdout.decode("utf-8"), parse_constant=_refuse_non_finite, object_pairs_hook=_build_unique_object
        )
    except (ValueError, RecursionError) as error:
        raise DocumentError("not JSON", f"{str(error)[:200]}; it begins {stdout[:60]!r}") from None
    if not isinstance(document, dict):
        raise DocumentError("not JSON", f"a JSON object is needed, found {type(document).__name__}")
    _check_depth_and_numbers(document, 0)
    return document


def validate_document(
    document: Mapping[str, Any], indicator: type[Indicator], expected: Mapping[str, Value] | None = None
) -> Document:
    """Hold a document to what its indicator declares.

    `expected`: The parameters that the run was given; the document must repeat each of them.
    """
    if document.get("name") != indicator.__name__:
        raise DocumentError(
            "invalid document", f"name is {_shorten_value(document.get('name'))}, not {indicator.__name__}"
        )
    parts = {part: _get_part(document, part) for part in _PARTS}
    _check_names(document, indicator, parts)
    # No parameter is filled in: what a script used is what it says, and a default here is not what it used there.
    for name, field in indicator.fields_of("parameter").items():
        if field.default is not None and (field.alias or name) not in parts["@parameters"]:
            raise DocumentError("invalid document", f"@parameters: {field.alias or name} is not told")
    values = _validate_values(indicator, {**parts["@parameters"], **parts["@result"], **parts["@checks"]})
    roles: tuple[Role, ...] = ("parameter", "result", "check")
    by_role = {role: {name: values[name] for name in indicator.fields_of(role)} for role in roles}
    for name, value in (expected or {}).items():
        if value is not None and by_role["parameter"].get(name) != value:
            actual = _shorten_value(by_role["parameter"].get(name))
            raise DocumentError("invalid document", f"@parameters.{name}: {value!r} was asked for, {actual} was used")
    return Document(
        indicator=indicator,
        component=_read_framework(document),
        parameters=by_role["parameter"],
        results=by_role["result"],
        checks=by_role["check"],
        samples=_read_samples(parts["@samples"], indicator),
        cpu=_read_cpu(parts["@cpu"], indicator),
        overall_score=_read_score(document),
        version=_read_text(document, "version"),
        build_info={key: value for key, value in document.items() if _is_build_info(key)},
        failed_checks=tuple(_list_failing_checks(indicator, by_role["check"], by_role["parameter"])),
    )


def _get_part(document: Mapping[str, Any], part: str) -> dict[str, Any]:
    content = document.get(part, {} if part in ("@checks", "@samples", "@cpu") else None)
    if not isinstance(content, dict):
        fault = "is missing" if content is None else f"is {type(content).__name__}, not an object"
        raise DocumentError("invalid document", f"{part} {fault}")
    return content


def _check_names(document: Mapping[str, Any], indicator: type[Indicator], parts: Mapping[str, dict[str, Any]]) -> None:
    """Check that every key is known, is in its own part, and is in one part only."""
    if unknown := [key for key in document if key not in _KNOWN and not _is_build_info(key)]:
        raise DocumentError("invalid document", f"unknown key(s): {format_items(name[:60] for name in unknown)}")
    roles: dict[str, Role] = {"@parameters": "parameter", "@result": "result", "@checks": "check"}
    seen: dict[str, str] = {}
    for part, role in roles.items():
        allowed = {field.alias or name for name, field in indicator.fields_of(role).items()}
        for key in parts[part]:
            if key.lower() in BASE_COLUMNS:
                raise DocumentError("invalid document", f"{part}.{key[:60]}: every run has a column of this name")
            if key in seen:
                raise DocumentError("invalid document", f"{key[:60]} stands in {seen[key]} and in {part}")
            seen[key] = part
            if key not in allowed:
                raise DocumentError("invalid document", f"{part}.{key[:60]} is not declared by {indicator.__name__}")


def _validate_values(indicator: type[Indicator], values: dict[str, Any]) -> dict[str, Value]:
    """The values by the types of the indicator's fields; nothing is converted."""
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise DocumentError("not finite", f"{name} is {value}")
    try:
        instance = indicator.model_validate(values, strict=True)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()[:5]]
        raise DocumentError("invalid document", "; ".join(problems)) from None
    return instance.model_dump()


def _list_failing_checks(
    indicator: type[Indicator], values: Mapping[str, Value], parameters: Mapping[str, Value]
) -> list[str]:
    """A sentence on each check whose value is above its limit, or not what it must equal."""
    failed = []
    for name, field in indicator.fields_of("check").items():
        extra, value = field_metadata(field), values[name]
        unit = f" {extra['unit']}" if extra["unit"] else ""
        bound = extra["at_most"]
        limit = parameters[bound] if isinstance(bound, str) else bound
        if limit is not None and (value is None or not float(value) <= float(limit)):
            failed.append(f"{name} is {_shorten_value(value)}{unit}, at most {limit:g}{unit} is allowed")
        if extra["equals"] is not None and value != extra["equals"]:
            failed.append(f"{name} is {_shorten_value(value)}, not {extra['equals']}")
    return failed


def _read_samples(samples: dict[str, Any], indicator: type[Indicator]) -> dict[str, list[float]]:
    """The samples of each result; refused unless they are lists of finite numbers."""
    results = indicator.fields_of("result")
    total = 0
    for name, values in samples.items():
        if name not in results or not isinstance(values, list):
            raise DocumentError("invalid document", f"@samples.{name[:60]}: lists of numbers, by the name of a result")
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            raise DocumentError("invalid document", f"@samples.{name[:60]} contains something that is not a number")
        if not all(math.isfinite(value) for value in values):
            raise DocumentError("not finite", f"@samples.{name[:60]} contains a value that is not finite")
        total += len(values)
    if total > MAX_SAMPLES:
        raise DocumentError("invalid document", f"@samples holds {total:,} numbers, at most {MAX_SAMPLES:,}")
    return {name: [float(value) for value in values] for name, values in samples.items()}


def _read_cpu(cpu_times: dict[str, Any], indicator: type[Indicator]) -> dict[str, float]:
    results = indicator.fields_of("result")
    for name, value in cpu_times.items():
        if name not in results or isinstance(value, bool) or not isinstance(value, int | float):
            raise DocumentError("invalid document", f"@cpu.{name[:60]}: a number, by the name of a result")
        if not math.isfinite(value) or value < 0:
            raise DocumentError("not finite", f"@cpu.{name[:60]} is {_shorten_value(value)}, not a time")
    return {name: float(value) for name, value in cpu_times.items()}


def _read_score(document: Mapping[str, Any]) -> float | None:
    """The document's `overall_score`; null without one."""
    score = document.get("overall_score")
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise DocumentError("invalid document", f"overall_score is {_shorten_value(score)}, not a number")
    if not math.isfinite(score):
        raise DocumentError("not finite", f"overall_score is {score}")
    return float(score)


def _read_text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    if value is not None and (not isinstance(value, str) or len(value) > 256):
        raise DocumentError(
            "invalid document", f"{key} is {_shorten_value(value)}, not a text of at most 256 characters"
        )
    return value or None


def _read_framework(document: Mapping[str, Any]) -> str | None:
    """The framework under one of its two keys; refused where these differ."""
    told = [text for key in ("component", "framework") if (text := _read_text(document, key))]
    if len({name_framework(text, PACKAGES.values()) for text in told}) > 1:
        raise DocumentError("invalid document", f"framework and component differ: {', '.join(sorted(told))[:200]}")
    return name_framework(told[0]) if told else None


def name_framework(text: str, packages: Container[str] = ()) -> str:
    """A framework in lower case, or the name of its package where the stack has it.

    >>> name_framework("PyTorch", {"torch"}), name_framework("PyTorch"), name_framework("My Own")
    ('torch', 'pytorch', 'my own')
    """
    name = " ".join(text.lower().split())
    package = re.sub(r"[-_. ]+", "-", name)
    package = PACKAGES.get(package, package)
    return package if package in packages else name


def is_framework_of(name: str, packages: Iterable[str]) -> bool:
    """Whether a framework is a package of a stack, also as one of its variants such as tensorflow-cpu, or Python.

    >>> is_framework_of("tensorflow", ["tensorflow-cpu"]), is_framework_of("torch", ["numpy"])
    (True, False)
    """
    return name == "python" or any(package == name or package.startswith(f"{name}-") for package in packages)


def _is_build_info(key: str) -> bool:
    return key.endswith(("buildinfo", "build_info"))


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    json_object: dict[str, Any] = {}
    for key, value in pairs:
        if key in json_object:
            raise DocumentError("invalid document", f"the key {_shorten_value(key)} is given twice in one object")
        json_object[key] = value
    return json_object


def _refuse_non_finite(word: str) -> float:
    raise DocumentError("not finite", f"{word} is in the document")


def _check_depth_and_numbers(value: Any, depth: int) -> None:
    """Refuse what is nested too deep, or a number that only looks finite (1e999)."""
    if depth > MAX_DEPTH:
        raise DocumentError("invalid document", f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise DocumentError("not finite", "a number in the document is too large")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise DocumentError("invalid document", "a whole number of more than 64 bits")
    for text in (value,) if isinstance(value, str) else value if isinstance(value, dict) else ():
        try:
            text.encode()
        except UnicodeEncodeError:
            message = "an unpaired surrogate in a text cannot be stored in a file"
            raise DocumentError("invalid document", message) from None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in inner:
        _check_depth_and_numbers(child, depth + 1)


def _shorten_value(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
