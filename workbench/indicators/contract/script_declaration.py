"""Declaration of a script without a class: the model is made from its first valid document."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
            f"no result whose direction its name tells (results: {names}): add --better NAME=lower or NAME=higher",
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
    doc = "A script as it is."
    parent: type[Indicator] = declared or create_model(
        declaration.name, __base__=Indicator, __module__=__name__, __doc__=doc, **fields
    )
    variables = dict(declaration.variables)

    def environment(cls: type[Indicator], parameters: Mapping[str, Value]) -> dict[str, str]:
        """The variables that the user gave: what else the script reads is left to its defaults."""
        del cls, parameters
        return dict(variables)

    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": parent.__doc__,
        "__annotations__": {"script": ClassVar[str], "files": ClassVar[Any], "requires": ClassVar[Any]},
        "script": declaration.sources["script.py"],
        "files": {name: text for name, text in declaration.sources.items() if name != "script.py"},
        "requires": declaration.requires,
        "environment": classmethod(environment),
    }
    indicator: type[Indicator] = type(parent.__name__, (parent,), namespace)
    return Case(indicator, declaration.parameters)


def _build_model_field(field: ScriptField, suite: bool) -> tuple[str, tuple[Any, Any]]:
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
