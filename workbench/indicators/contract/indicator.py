"""An indicator: one declared class, and the script that measures what it declares.

The script gets its parameters from environment variables and prints one JSON document. The class says which
parameters, results and checks that document holds, in which units, and which direction is better.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import types
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from workbench.core.errors import ConfigError
from workbench.stats import MARGIN

Role = Literal["parameter", "result", "check"]
Better = Literal["higher", "lower"]
Value = int | float | str | bool | None
USAGE = (
    "ru_utime",
    "ru_stime",
    "ru_maxrss",
    "ru_ixrss",
    "ru_idrss",
    "ru_isrss",
    "ru_minflt",
    "ru_majflt",
    "ru_nswap",
    "ru_inblock",
    "ru_oublock",
    "ru_msgsnd",
    "ru_msgrcv",
    "ru_nsignals",
    "ru_nvcsw",
    "ru_nivcsw",
)
"""Fields of a process's resource usage, by their POSIX names."""
BASE_COLUMNS = frozenset(
    {
        "id",
        "inspection_id",
        "inspection_run_id",
        "session_id",
        "run_id",
        "run",
        "round",
        "stack",
        "stack_key",
        "name",
        "indicator",
        "indicator_version",
        "case",
        "component",
        "origin",
        "version",
        "overall_score",
        "exit_code",
        "status",
        "reason",
        "threads",
        "started_at",
        "duration_s",
        *USAGE,
    }
)
"""Columns that every run has; fields cannot have these names."""
NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_KEY_LENGTH = 12


def parameter(
    default: Any = ...,
    *,
    unit: str = "",
    env: str | None = None,
    about: str = "",
    optional: bool = False,
    named: bool = False,
    **limits: Any,
) -> Any:
    """A field that the user sets: the script reads it from an environment variable (`PI_NAME`, or `env`).

    Parameters
    ----------
    default
        Its default value; may be left out only if documents alone set it.
    unit, about
        Unit and description, for tables and forms.
    env
        Name of the variable, if it is not PI_ with the name in capitals.
    optional
        Whether documents may omit it (null then), for scripts that changed over time.
    named
        Whether the names of cases contain it even at its default, since it decides what is measured.
    limits
        Bounds of pydantic: ge, gt, le, lt, max_length; `alias`, its name in documents.
    """
    extra: dict[str, Any] = {"role": "parameter", "unit": unit, "env": env, "named": named}
    return Field(None if optional else default, description=about, json_schema_extra=extra, **limits)


def result(
    *,
    unit: str,
    better: Better | None = None,
    tolerance: float = MARGIN,
    derived: bool = False,
    about: str = "",
    optional: bool = False,
    **limits: Any,
) -> Any:
    """A field that the script measures.

    Parameters
    ----------
    unit
        Its unit; "" for a number without one.
    better
        Which direction is better; results without one are kept but not compared.
    tolerance
        The practical margin, as a share: differences within it do not matter (0.02).
    derived
        Whether it follows from another result (a rate from a time): kept but not compared.
    about, optional, limits
        As of `parameter`, except that an alias is refused.
    """
    extra: dict[str, Any] = {
        "role": "result",
        "unit": unit,
        "better": better,
        "tolerance": tolerance,
        "derived": derived,
    }
    default: dict[str, Any] = {"default": None} if optional else {}
    return Field(description=about, json_schema_extra=extra, **default, **limits)


def check(*, at_most: float | str | None = None, equals: Value = None, unit: str = "", about: str = "") -> Any:
    """A field that checks the script's answer: an error bound, a digest, a flag.

    If the value is above `at_most` or differs from `equals`, the document is valid but its stack fails the check: it is
    shown, never recommended. `at_most` may name a parameter. With neither, the value must equal the baseline's (a
    digest).
    """
    return Field(
        description=about, json_schema_extra={"role": "check", "unit": unit, "at_most": at_most, "equals": equals}
    )


def field_role(field: FieldInfo) -> Role | None:
    """The role of a field; null for a field declared without one."""
    role: Role | None = field_metadata(field).get("role")
    return role


def field_metadata(field: FieldInfo) -> dict[str, Any]:
    """The metadata that `parameter`, `result` or `check` stored in a field."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {}


def list_scalar_types(annotation: Any) -> tuple[set[type], bool]:
    """The scalar types of an annotation (`object` for any other type), and whether it may be null."""
    if annotation is None or annotation is type(None):
        return set(), True
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [list_scalar_types(part) for part in get_args(annotation)]
        return set().union(*(kinds for kinds, _ in parts)), any(null for _, null in parts)
    if get_origin(annotation) is Literal:
        return {type(value) for value in get_args(annotation)}, False
    return ({annotation} if annotation in (int, float, str, bool) else {object}), False


def describe_field(name: str, field: FieldInfo) -> list[Any]:
    """Describe what defines a field: names, type, default, limits and metadata."""
    default = "required" if field.is_required() else [field.default]
    return [
        name,
        field.alias,
        _type_text(field.annotation),
        default,
        sorted(map(repr, field.metadata)),
        field_metadata(field),
    ]


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return "|".join(sorted(map(_type_text, get_args(annotation))))
    if get_origin(annotation) is Literal:
        return f"Literal{list(get_args(annotation))}"
    return getattr(annotation, "__name__", repr(annotation))


@dataclass(frozen=True)
class Metric:
    """A result by which stacks are compared."""

    field: str
    unit: str
    better: Better
    tolerance: float


class Indicator(BaseModel):
    """Declaration of a measuring script: a subclass whose fields are parameters, results and checks.

    Class variables: `script`, the script's path (a `Path`) or source (a `str`); `files`, further files beside it, name
    to path or source; `requires`, the packages that a stack must have, where `{field}` stands for a parameter's value.

    Raises
    ------
    ConfigError
        A field has no role, a type without a column type, or the name of a column that every run has.

    Examples
    --------
    >>> class Sort(Indicator):
    ...     '''Sort random numbers.'''
    ...     requires: ClassVar[tuple[str, ...]] = ("numpy",)
    ...     n: int = parameter(1000, ge=1)
    ...     elapsed_ms: float = result(unit="ms", better="lower")
    ...     wrong: int = check(equals=0)
    >>> Sort.metrics()
    (Metric(field='elapsed_ms', unit='ms', better='lower', tolerance=0.02),)
    >>> Sort.environment(Sort.parameters({"n": 5}))
    {'PI_N': '5'}
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    script: ClassVar[Path | str] = ""
    files: ClassVar[Mapping[str, Path | str]] = {}
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Check that documents and tables can hold the declared fields."""
        where = f"indicator {cls.__name__}"
        if not NAME_PATTERN.fullmatch(cls.__name__):
            raise ConfigError("not a name for an indicator", where=where, allowed="letters, digits, _; at most 63")
        for name, field in cls.model_fields.items():
            _check_field(name, field, f"{where}, field {name}")
            _check_bound(cls, field, f"{where}, field {name}")
        if not any(field_role(field) == "result" for field in cls.model_fields.values()):
            raise ConfigError(
                "an indicator without a result", where=where, do="declare one: elapsed_ms: float = result(…)"
            )

    @classmethod
    def fields_of(cls, role: Role) -> dict[str, FieldInfo]:
        """The fields of a role, in order of declaration."""
        return {name: field for name, field in cls.model_fields.items() if field_role(field) == role}

    @classmethod
    def metrics(cls) -> tuple[Metric, ...]:
        """The results by which stacks are compared: those with a direction that are not derived."""
        metrics = []
        for name, field in cls.fields_of("result").items():
            extra = field_metadata(field)
            if extra["better"] and not extra["derived"]:
                metrics.append(Metric(name, extra["unit"], extra["better"], extra["tolerance"]))
        return tuple(metrics)

    @classmethod
    def named_metrics(cls, label: str) -> Iterator[tuple[str, Metric]]:
        """The metrics of a case by name: the case's label for a single one, else the label with the field."""
        metrics = cls.metrics()
        for metric in metrics:
            yield (label if len(metrics) == 1 else f"{label}.{metric.field}"), metric

    @classmethod
    def compared_checks(cls) -> tuple[str, ...]:
        """The checks without a bound, whose values are compared with the baseline's."""
        checks = {name: field_metadata(field) for name, field in cls.fields_of("check").items()}
        return tuple(name for name, extra in checks.items() if extra["at_most"] is None and extra["equals"] is None)

    @classmethod
    def compared_results(cls) -> tuple[str, ...]:
        """The results that are answers, whose values must be the baseline's; declared classes have checks instead."""
        return ()

    @classmethod
    def list_faults(cls, document: Mapping[str, Any]) -> tuple[str, ...]:
        """Why the values of a valid document are not those of the work, in words; none unless a class knows better."""
        del document
        return ()

    @classmethod
    def parameters(cls, overrides: Mapping[str, Any] | None = None) -> dict[str, Value]:
        """Return all parameters: the given ones, validated, and the defaults of the others.

        Raises
        ------
        ConfigError
            Unknown names, values out of bounds, or missing values without a default.
        """
        declared, overrides = cls.fields_of("parameter"), dict(overrides or {})
        where = f"indicator {cls.__name__}"
        if unknown := [name for name in overrides if name not in declared]:
            raise ConfigError("unknown parameter", where=where, found=unknown, allowed=list(declared) or "none")
        values: dict[str, Value] = {}
        for name, field in declared.items():
            if name in overrides:
                # A parameter's value by its declared type and bounds.
                value = overrides[name]
                try:
                    valid_value: Value = getattr(
                        cls.__pydantic_validator__.validate_assignment(cls.model_construct(), name, value), name
                    )
                except ValidationError as error:
                    problem = error.errors()[0]
                    raise ConfigError(
                        "not a value for this parameter", where=f"{where}, {name}", found=value, allowed=problem["msg"]
                    ) from None
                values[name] = valid_value
            elif field.is_required():
                raise ConfigError("a parameter without a value", where=f"{where}, {name}", do=f"give {name}=VALUE")
            else:
                values[name] = field.default
        return values

    @classmethod
    def environment(cls, parameters: Mapping[str, Value]) -> dict[str, str]:
        """The environment variables for these parameters, without null ones."""
        declared = cls.fields_of("parameter")
        return {
            field_metadata(declared[name])["env"] or f"PI_{name.upper()}": str(value)
            for name, value in parameters.items()
            if value is not None
        }

    @classmethod
    def needs(cls, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """The packages that a stack must have for these parameters; `a|b` means either of them."""
        return tuple(text.format_map(parameters) for text in cls.requires)

    @classmethod
    def lacks(cls, parameters: Mapping[str, Value], packages: Container[str]) -> tuple[str, ...]:
        """The needed packages that are missing in a stack, given by its packages' normalised names."""
        return tuple(
            need
            for need in cls.needs(parameters)
            if not any(package.strip() in packages for package in need.split("|"))
        )

    @classmethod
    def sources(cls) -> dict[str, str]:
        """The texts of the script (as `script.py`) and of its files, by name.

        Raises
        ------
        ConfigError
            There is no script, or a file cannot be read.
        """
        if not cls.script:
            raise ConfigError("the indicator has no script", where=cls.__name__, do="set `script`, or give --script")
        return {
            "script.py": _read_source(cls.script, cls),
            **{name: _read_source(file, cls) for name, file in cls.files.items()},
        }

    @classmethod
    def version(cls, sources: Mapping[str, str] | None = None) -> str:
        """Digest (twelve hex digits) of the declaration and the scripts; versions are never compared.

        Docstrings, `about` and everything that depends on pydantic's version are not part of it.
        """
        declared = json.dumps(
            [cls.__name__, cls.requires, [describe_field(name, field) for name, field in cls.model_fields.items()]],
            sort_keys=True,
            default=repr,
        )
        texts = sources if sources is not None else (cls.sources() if cls.script else {})
        digest = hashlib.sha256(declared.encode())
        for name in sorted(texts):
            digest.update(f"\0{name}\0{texts[name]}".encode())
        return digest.hexdigest()[:_KEY_LENGTH]


@dataclass(frozen=True)
class Case:
    """An indicator with its parameters, measured on every stack; `variables`: further variables of its runs."""

    indicator: type[Indicator]
    parameters: Mapping[str, Value]
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_parameters(cls, indicator: type[Indicator], overrides: Mapping[str, Any] | None = None) -> Case:
        """Build a case from given parameters; the others have their defaults."""
        return cls(indicator, indicator.parameters(overrides))

    @property
    def label(self) -> str:
        """Name in tables and mixes: the indicator's name with the parameters that differ from their defaults."""
        fields = self.indicator.fields_of("parameter")
        odd = [
            f"{name}={value}"
            for name, value in self.parameters.items()
            if value != fields[name].default or field_metadata(fields[name])["named"]
        ]
        return self.indicator.__name__ + (f"[{','.join(odd)}]" if odd else "")

    @cached_property
    def sources(self) -> dict[str, str]:
        """The script and its files, read once for all runs."""
        return self.indicator.sources()

    @cached_property
    def version(self) -> str:
        """Digest of the indicator's declaration and of these sources."""
        return self.indicator.version(self.sources)

    @cached_property
    def script_sha256(self) -> str:
        """Digest of the script alone, as in Amun's results."""
        return hashlib.sha256(self.sources["script.py"].encode()).hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of its runs: parameters, then further ones."""
        return {**self.indicator.environment(self.parameters), **self.variables}

    def metrics(self) -> Iterator[tuple[str, Metric]]:
        """The metrics by name, see `Indicator.named_metrics`."""
        return self.indicator.named_metrics(self.label)


def _check_field(name: str, field: FieldInfo, where: str) -> None:
    """Refuse a declared field without a role, with a name that is taken, or with a type that no column has."""
    if not NAME_PATTERN.fullmatch(name):
        raise ConfigError(
            "not a name for a field", where=where, allowed="a letter, then letters, digits, _; at most 63"
        )
    if name.lower() in BASE_COLUMNS:
        raise ConfigError("every run has a column of this name", where=where, do="choose another name")
    if hasattr(Indicator, name):
        raise ConfigError("the class itself has something of this name", where=where, do="choose another name")
    role = field_role(field)
    if role is None:
        raise ConfigError("a field without a role", where=where, allowed="= parameter(…), result(…) or check(…)")
    kinds, _ = list_scalar_types(field.annotation)
    if object in kinds or not kinds:
        raise ConfigError("a type that no column has", where=where, allowed="int, float, str, bool, Literal; or null")
    # Values are found again by the field's name, in documents on disk, too.
    if role != "parameter" and (field.alias or field.validation_alias):
        alias = field.alias or str(field.validation_alias)
        raise ConfigError("only parameters have an alias", where=where, found=alias, do="give the field this name")
    if role == "result" and field_metadata(field)["better"] and kinds - {int, float}:
        raise ConfigError("only numbers can be better", where=where, allowed="int or float")


def _check_bound(cls: type[Indicator], field: FieldInfo, where: str) -> None:
    """Refuse a bound of a check that is no number, and a bound that names no numeric parameter."""
    bound = field_metadata(field).get("at_most")
    if bound is None:
        return
    if list_scalar_types(field.annotation)[0] - {int, float}:
        raise ConfigError("only numbers have a bound", where=where, do="use equals=…, or declare int or float")
    if isinstance(bound, str):
        named = cls.fields_of("parameter").get(bound)
        kinds, null = list_scalar_types(named.annotation) if named else (set(), True)
        if null or not kinds or kinds - {int, float}:
            raise ConfigError(
                "a bound that is no parameter", where=where, found=bound, allowed="a parameter that is a number"
            )


def _read_source(source: Path | str, cls: type[Indicator]) -> str:
    if isinstance(source, str):
        return source
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot read a script", where=f"indicator {cls.__name__}", found=str(error)[:200]) from None
