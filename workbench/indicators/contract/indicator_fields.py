"""Fields of an indicator: parameters, results and checks, with their metadata."""

from __future__ import annotations

import re
import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

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
    """What defines a field: names, type, default, limits and metadata."""
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
