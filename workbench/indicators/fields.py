"""The fields of an indicator: parameters, results and checks, with what is noted of each."""

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
"""The fields of a process's resource usage, by the names that POSIX gave them."""

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
"""Names that every run has anyway: no field may be called so, or it would stand in for the measured one."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


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
        Its value when none is asked for; must be given, unless documents alone set it.
    unit, about
        For tables and forms.
    env
        Name of the variable, where it is not PI_ and the name in capitals.
    optional
        Documents may leave it out (then null): for models of scripts that changed over time.
    named
        It stands in the names of cases by default, too: what is measured is another thing for another value.
    limits
        Bounds that pydantic knows: ge, gt, le, lt, max_length; `alias`, the name that documents use.
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
        Which direction is better. Without one it is kept, but stacks are not compared by it.
    tolerance
        The practical margin, as a share: differences within it do not matter (0.02).
    derived
        It follows from another result (a rate from a time): kept, but not compared a second time.
    about, optional, limits
        As of `parameter`; but an alias is refused: what is measured has one name everywhere.
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
    """A field that says whether the script's answer was right: an error bound, a digest, a flag.

    A document whose value is above `at_most`, or not `equals`, is valid, but its stack did not pass: it can be shown,
    never recommended. `at_most` may name a parameter, so that who measures sets the bound. With neither, the values of
    all stacks are held against the baseline's (a digest).
    """
    return Field(
        description=about, json_schema_extra={"role": "check", "unit": unit, "at_most": at_most, "equals": equals}
    )


def role_of(field: FieldInfo) -> Role | None:
    """Parameter, result or check; null for a field that was declared as none of them."""
    role: Role | None = extra_of(field).get("role")
    return role


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """What `parameter`, `result` or `check` noted of a field."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {}


def scalars(annotation: Any) -> tuple[set[type], bool]:
    """The plain types that an annotation allows, and whether it may be null. Anything else: `object`."""
    if annotation is None or annotation is type(None):
        return set(), True
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [scalars(part) for part in get_args(annotation)]
        return set().union(*(kinds for kinds, _ in parts)), any(null for _, null in parts)
    if get_origin(annotation) is Literal:
        return {type(value) for value in get_args(annotation)}, False
    return ({annotation} if annotation in (int, float, str, bool) else {object}), False


def declaration(name: str, field: FieldInfo) -> list[Any]:
    """What decides what a field means: its names, type, default, limits, and what was noted of it."""
    default = "required" if field.is_required() else [field.default]
    return [
        name,
        field.alias,
        _type_text(field.annotation),
        default,
        sorted(map(repr, field.metadata)),
        extra_of(field),
    ]


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return "|".join(sorted(map(_type_text, get_args(annotation))))
    if get_origin(annotation) is Literal:
        return f"Literal{list(get_args(annotation))}"
    return getattr(annotation, "__name__", repr(annotation))
