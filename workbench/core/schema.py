"""Strict models of settings and documents, and one wording of all that is wrong with what was given for them.

Parameters are those of `data_files`, which reads without pydantic: `noun` says what the data should be ("sweep"),
`error_type` whose mistake it is, `do` the command that helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.core import redaction
from workbench.core.data_files import MAX_BYTES, add_article, parse_json, parse_yaml, read_text_file
from workbench.core.errors import InputError, WorkbenchError
from workbench.core.formats import cut_text

MAX_PROBLEMS = 10
_MAX_SHOWN_CHARS = 80
_UPGRADE = "pip install --upgrade accelerated-workbench"
FieldPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)
_UNKNOWN = "there is no such field"
_MISSING = "is missing"


class StrictModel(BaseModel):
    """Base of settings and documents: an unknown field is an error, and no field changes afterwards.

    >>> class Plan(StrictModel):
    ...     n_gpus: int
    >>> validate_model(Plan, {"n_gpu": 1}, noun="plan", where="plan.yaml")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: not a plan
      where: plan.yaml
      found: n_gpus: is missing; n_gpu: there is no such field
      allowed: n_gpus
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class FiniteModel(StrictModel):
    """A strict model whose numbers are finite: neither infinity nor NaN."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class FieldProblem:
    """One thing that is wrong: the field's path, what must hold, and the value where it may be shown."""

    path: FieldPath
    message: str
    found: str | None = None

    def format_text(self, flags: Mapping[str, str] | None = None) -> str:
        """One line, such as `users[0]: must be greater than 0 (found -1)`; the field by its flag where it has one."""
        place = format_field_path(self.path, flags)
        shown = "" if self.found is None else f" (found {self.found})"
        return f"{place}: {self.message}{shown}" if place else f"{self.message}{shown}"


def format_field_path(path: Sequence[str | int], flags: Mapping[str, str] | None = None) -> str:
    """A field's path in the one spelling that all messages use; a first part with a flag is called by it.

    >>> format_field_path(("workloads", 0, "template"))
    'workloads[0].template'
    >>> format_field_path(("think_time_s",), {"think_time_s": "--think-time"})
    '--think-time'
    """
    parts: list[str | int] = list(path)
    if parts and flags:
        parts[0] = flags.get(str(parts[0]), parts[0])
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{str(part)[:60]}" for part in parts)
    return text.removeprefix(".")


def list_problems(error: ValidationError) -> list[FieldProblem]:
    """Problems that pydantic found, in our words and in its order.

    A list that is too short is left out where one of its entries is wrong: the entry is the mistake. Values are left
    out where the field's name says that it holds a secret.

    >>> class Settings(StrictModel):
    ...     rows: list[int]
    >>> try:
    ...     Settings.model_validate({"rows": ["x"], "column": 1})
    ... except ValidationError as error:
    ...     print(*(problem.format_text() for problem in list_problems(error)), sep="\\n")
    rows[0]: must be a valid integer, unable to parse string as an integer (found 'x')
    column: there is no such field
    """
    details = error.errors(include_url=False, include_context=False)
    mistakes = [
        detail for detail in details if not (detail["type"] == "too_short" and _has_deeper(detail["loc"], details))
    ]
    problems = [_build_problem(detail) for detail in mistakes]
    return list(dict.fromkeys(problems))


def validate_model(
    model: type[Model],
    values: Any,
    *,
    noun: str,
    where: object = None,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
    flags: Mapping[str, str] | None = None,
    show_values: bool = True,
) -> Model:
    """Build the model from these values; one error says all that is wrong: a single problem by its field, else a list.

    >>> class Settings(StrictModel):
    ...     rows: int
    >>> validate_model(Settings, {"rows": "x"}, noun="setting", where="a.yaml")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: not a setting
      where: a.yaml, rows
      found: 'x'
      allowed: a valid integer, unable to parse string as an integer
    """
    try:
        return model.model_validate(values)
    except RecursionError:
        raise error_type(f"nested too deeply for {add_article(noun)}", where=where, do=do) from None
    except ValidationError as error:
        problems = list_problems(error)
    if not show_values:
        problems = [FieldProblem(problem.path, problem.message) for problem in problems]
    message = f"not {add_article(noun)}"
    has_unknown = any(problem.message == _UNKNOWN and len(problem.path) == 1 for problem in problems)
    fields = [(flags or {}).get(name, name) for name in model.model_fields] if has_unknown else None
    if len(problems) == 1 and problems[0].path:
        raise error_type(message, **_describe_single(problems[0], where, flags, fields), do=do)
    texts = [problem.format_text(flags) for problem in problems[:MAX_PROBLEMS]]
    if (more := len(problems) - len(texts)) > 0:
        texts.append(f"and {more} more")
    raise error_type(message, where=where, found="; ".join(texts), allowed=fields, do=do)


def _describe_single(
    problem: FieldProblem, where: object, flags: Mapping[str, str] | None, fields: list[str] | None
) -> dict[str, Any]:
    """Arguments (where, found, allowed) of the error about one faulty field."""
    place = format_field_path(problem.path, flags)
    if problem.message == _UNKNOWN:
        return {"where": where, "found": problem.format_text(flags), "allowed": fields}
    if problem.message == _MISSING:
        return {"where": where, "found": f"{place} is missing"}
    allowed = problem.message.removeprefix("must be ")
    return {"where": place if where is None else f"{where}, {place}", "found": problem.found, "allowed": allowed}


def _has_deeper(path: Sequence[object], details: Sequence[Any]) -> bool:
    return any(len(detail["loc"]) > len(path) and detail["loc"][: len(path)] == path for detail in details)


def _build_problem(detail: Any) -> FieldProblem:
    """Turn an error of Pydantic into a plain sentence; the value of a secret field is left out."""
    path = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return FieldProblem(path, _UNKNOWN)
    if detail["type"] == "missing":
        return FieldProblem(path, _MISSING)
    text = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for begin in ("Input should be ", "Input should ", "String should ", "List should ", "Value should "):
        if text.startswith(begin):
            text = f"must {'be ' if begin.endswith('be ') else ''}{text.removeprefix(begin)}"
    is_secret = any(isinstance(part, str) and redaction.is_secret_name(part) for part in path)
    return FieldProblem(path, text[:300], None if is_secret or not path else _format_value(detail.get("input")))


def _format_value(value: object) -> str | None:
    if not isinstance(value, str | int | float | bool | None):
        # A list or an object may be long, and holds what other messages are about.
        return f"a {type(value).__name__}"
    text = repr(redaction.redact_value(value))
    return cut_text(text, _MAX_SHOWN_CHARS)


def read_model_file(
    model: type[Model],
    path: str | Path,
    *,
    noun: str,
    max_bytes: int = MAX_BYTES,
    max_version: int | None = None,
    do: str | None = None,
) -> Model:
    """Read the model from a JSON file, or from a YAML file (`.yaml`, `.yml`).

    `max_version`: Newest `format_version` that this workbench knows; the field is not looked at without it.
    """
    parse = parse_yaml if Path(path).suffix.lower() in (".yaml", ".yml") else parse_json
    document = parse(read_text_file(path, noun=noun, max_bytes=max_bytes, do=do), noun=noun, where=path, do=do)
    if max_version is not None:
        check_format_version(document, max_version, noun=noun, where=path)
    return validate_model(model, document, noun=noun, where=path, do=do)


def check_format_version(
    document: object,
    max_version: int,
    *,
    noun: str,
    where: object = None,
    is_required: bool = False,
    error_type: type[WorkbenchError] = InputError,
) -> None:
    """Refuse a document whose `format_version` is newer than what this workbench knows."""
    version = document.get("format_version") if isinstance(document, Mapping) else None
    if not isinstance(version, int) or isinstance(version, bool):
        if is_required:
            raise error_type(f"not {add_article(noun)}", where=where, found="no format_version")
        return
    if version > max_version:
        raise error_type(
            f"{noun} of a newer workbench",
            where=where,
            found=f"format version {version}",
            allowed=f"up to {max_version}",
            do=_UPGRADE,
        )
