"""Parameters of a notebook: read from its tagged cell, validated against given values.

The cell holds annotated literals, each with a comment on meaning and unit:

    event_log: str = "../data/samples/q1.zstd"  # Spark event log, file or folder
    top_operators: int = 10  # rows in the table
    limits: dict[str, list[float]] = {"eu": [0.5, 2]}  # by region

Without annotation the default shows the type: a scalar's, that of a list's scalars, else any JSON value in the list or
the dict. Text from the command line is parsed by the type, never guessed: "3.10" for a `str` stays "3.10", and nested
values are JSON. Values from YAML must already have the type. The cell is parsed, never executed.
"""

from __future__ import annotations

import ast
import difflib
import io
import json
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from workbench.core import formats, redaction, samples
from workbench.core.data_files import find_foreign_part, parse_json, parse_yaml, read_yaml_file
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import cut_text

if TYPE_CHECKING:
    from pydantic import BaseModel

ALLOWED_TYPES = "str, int, float, bool, list[…], dict[str, …], Literal[…], … | None"
_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_LISTS, _DICTS = ("list", "List"), ("dict", "Dict")
_TRUTH_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_NONE_WORDS = ("none", "null")
PARAMETERS_TAG = "parameters"
ENV_SUFFIX = "_env"
MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_SHOWN_CHARS = 200
_MAGIC = re.compile(r"\s*(%(?!%)|!)")
_PATH_WORDS = ("log", "logs", "path", "paths", "dir", "file", "files", "folder")


def parse_annotation(node: ast.expr, place: str) -> Any:
    """The type of an annotation."""
    try:
        return _parse_annotation_node(node)
    except (ValueError, SyntaxError) as error:
        annotation = ast.unparse(node)
        raise InputError(
            "type of a parameter is not supported", where=place, found=annotation, allowed=ALLOWED_TYPES
        ) from error


def _parse_annotation_node(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _parse_annotation_node(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.Name) and node.id in _SCALARS:
        return _SCALARS[node.id]
    if isinstance(node, ast.Name) and node.id in _LISTS + _DICTS:
        return list[Any] if node.id in _LISTS else dict[str, Any]
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[_parse_annotation_node(node.left), _parse_annotation_node(node.right)]  # noqa: UP007
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _parse_subscript(node.value.id, node.slice)
    raise ValueError("another type")


def _parse_subscript(name: str, node: ast.expr) -> Any:
    if name in _LISTS:
        return list[_parse_item(node)]  # type: ignore[misc]
    if name in _DICTS and isinstance(node, ast.Tuple) and len(node.elts) == 2:
        if _parse_annotation_node(node.elts[0]) is str:
            return dict[str, _parse_item(node.elts[1])]  # type: ignore[misc]
    elif name == "Optional":
        return Union[_parse_annotation_node(node), None]  # noqa: UP007
    elif name == "Literal":
        choices = ast.literal_eval(node)
        return Literal[choices if isinstance(choices, tuple) else (choices,)]
    raise ValueError("another type")


def _parse_item(node: ast.expr) -> Any:
    """The type of what a list or dict holds; there `Any` is any JSON value."""
    return Any if isinstance(node, ast.Name) and node.id == "Any" else _parse_annotation_node(node)


def infer_type(default: Any, place: str) -> Any:
    """The type of a parameter without annotation, by its default.

    Scalars of one type in a list keep it, so that "3.10" in a list of texts is no number. Of None nothing is known:
    a text or a number would both be a guess, so the parameter keeps None until it is annotated.
    """
    if type(default) in _SCALARS.values() or default is None:
        return type(default)
    if isinstance(default, dict):
        return dict[str, Any]
    if isinstance(default, list):
        kinds = {type(item) for item in default}
        return list[kinds.pop()] if len(kinds) == 1 and kinds <= {*_SCALARS.values()} else list[Any]  # type: ignore[misc]
    do = "write a list, or a dict with texts as keys" if isinstance(default, tuple | set) else None
    raise InputError("parameter has no type", where=place, found=repr(default)[:80], allowed=ALLOWED_TYPES, do=do)


def parse_value(kind: Any, text: str) -> Any:
    """Parse text from a command line as a value of a declared type.

    >>> parse_value(str, "3.10"), parse_value(list[int], "[1, 2]"), parse_value(int | None, "none")
    ('3.10', [1, 2], None)
    >>> parse_value(dict[str, list[float]], '{"eu": [0.5, 2]}')
    {'eu': [0.5, 2]}
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _parse_optional(kind, text)
    if origin is Literal:
        return _parse_choice(kind, text)
    if origin is dict:
        return _parse_json_text(text, kind)
    if origin is list:
        (item,) = get_args(kind)
        if _is_json(item):
            values: list[Any] = _parse_json_text(text, kind)
            return values
        return _read_json_texts(text) or [parse_value(item, part) for part in _split_items(text)]
    if kind is str:
        return text
    if kind is bool:
        if text.strip().lower() not in _TRUTH_WORDS:
            raise ValueError("write true or false")
        return _TRUTH_WORDS[text.strip().lower()]
    if kind is int:
        return parse_integer(text.strip())
    if kind is float:
        if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text) or abs(
            float(text)
        ) == float("inf"):
            raise ValueError("write a finite number such as 0.5")
        return float(text)
    if text.strip().lower() in _NONE_WORDS:
        return None
    raise ValueError("declare in the parameters cell what else it may be, such as str | None")


def parse_integer(text: str) -> int:
    """The number of a text in decimal form; another form of a number is no number to whoever wrote it.

    >>> parse_integer("-12")
    -12
    >>> parse_integer("007")
    Traceback (most recent call last):
    ...
    ValueError: write 7 for the number; where the text itself counts (an id), declare the parameter as str
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}", text):
        raise ValueError("write digits only, such as 12")
    if str(int(text)) != text:
        advice = "where the text itself counts (an id), declare the parameter as str"
        raise ValueError(f"write {int(text)} for the number; {advice}")
    return int(text)


def _parse_optional(kind: Any, text: str) -> Any:
    kinds = [item for item in get_args(kind) if item is not type(None)]
    if len(kinds) < len(get_args(kind)) and text.strip().lower() in _NONE_WORDS:
        return None
    reasons = []
    # Every text is a valid str, so other types are tried first.
    for item in sorted(kinds, key=lambda item: item is str):
        try:
            return parse_value(item, text)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; or ".join(reasons))


def _parse_choice(kind: Any, text: str) -> Any:
    for choice in get_args(kind):
        try:
            if parse_value(type(choice), text) == choice:
                return choice
        except ValueError:
            continue
    raise ValueError("one of " + ", ".join(map(str, get_args(kind))))


def _is_json(kind: Any) -> bool:
    """Whether values of a type are written as JSON: lists, dicts, and Any in them."""
    if get_origin(kind) in (Union, UnionType):
        return any(map(_is_json, get_args(kind)))
    return kind is Any or get_origin(kind) in (list, dict)


def is_nested(kind: Any) -> bool:
    """Whether a type holds lists or dicts in a list or dict.

    >>> [is_nested(kind) for kind in (list[str], list[list[int]], dict[str, int] | None, str | None)]
    [False, True, True, False]
    """
    if get_origin(kind) in (Union, UnionType):
        return any(map(is_nested, get_args(kind)))
    return kind is dict or get_origin(kind) is dict or kind is list or (_is_json(kind) and _is_json(get_args(kind)[0]))


def _parse_json_text(text: str, kind: Any) -> Any:
    advice = 'a dict such as {"name": [1, 2]}' if get_origin(kind) is dict else 'a list such as ["a", 1]'
    try:
        value = parse_json(text, noun="value", max_depth=MAX_DEPTH, exact=True)
    except InputError as error:
        place = f" at {error.facts['where']}" if error.facts["where"] else ""
        raise ValueError(f"not JSON: {error.facts['found'] or error.what}{place}; write {advice}") from None
    if not isinstance(value, get_origin(kind)):
        raise ValueError(f"write {advice}")
    return value


def _read_json_texts(text: str) -> list[Any] | None:
    """The texts of a JSON list of them; null for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def _split_items(text: str) -> Iterator[str]:
    """Split "[1, 2]", "1,2" or "'a, b', c": brackets may be left out, quotes keep commas."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    if not text:
        return
    item = r"""\s*(?:"([^"]*)"|'([^']*)'|([^,]*?))\s*"""
    if not re.fullmatch(rf"{item}(?:,{item})*", text):
        raise ValueError("write a list as [a, b] or a,b")
    for match in re.finditer(rf"{item}(?:,|$)", text):
        if match.start() < len(text) or text.endswith(","):
            yield next(part for part in (*match.groups(), "") if part is not None)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a notebook: `type` is the Python type, `annotation` its source text."""

    name: str
    type: Any
    annotation: str
    default: Any
    comment: str

    @property
    def names_variable(self) -> bool:
        """Whether it holds the name of an environment variable with a secret."""
        return self.name.endswith(ENV_SUFFIX)

    def __str__(self) -> str:
        line = f"{self.name}: {self.annotation} = {formats.spell_nested(self.default) or repr(self.default)}"
        return f"{line}  # {self.comment}" if self.comment else line


def is_path_name(name: str) -> bool:
    """Whether a name is, or ends in, log, path, dir, file, folder or a plural of them."""
    return name.rpartition("_")[2] in _PATH_WORDS


@dataclass(frozen=True)
class ResolvedValues:
    """Checked values: `config` of all parameters, `given` of those that were set."""

    config: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    secret_variables: tuple[str, ...] = ()


def read_parameters(notebook: Mapping[str, Any], where: object = "notebook") -> tuple[Parameter, ...]:
    """Parameters that a notebook (its JSON) declares; empty without a tagged cell."""
    cells = check_one_cell(notebook, where)
    return parse_parameters("".join(cells[0].get("source", "")), where) if cells else ()


def check_one_cell(notebook: Mapping[str, Any], where: object = "notebook") -> list[Mapping[str, Any]]:
    """The cell that is tagged for parameters, or none; more are refused."""
    cells = [
        cell for cell in notebook.get("cells", []) if PARAMETERS_TAG in (cell.get("metadata", {}).get("tags") or ())
    ]
    if len(cells) > 1:
        message = f"more than one cell is tagged {PARAMETERS_TAG!r}"
        do = "put all parameters into one cell, and take the tag from the others"
        raise InputError(message, where=where, found=len(cells), allowed="one", do=do)
    return cells


def parse_parameters(source: str, where: object = "parameters cell") -> tuple[Parameter, ...]:
    """Parse the source of a parameters cell.

    >>> print(parse_parameters("top: int = 5  # rows")[0])
    top: int = 5  # rows
    """
    source = _blank_magics(source)
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        line = source.splitlines()[(error.lineno or 1) - 1 : error.lineno]
        raise InputError(
            "parameters cell is no Python",
            where=where,
            found=f"line {error.lineno}: {error.msg}: {' '.join(line).strip()[:80]}",
            do="keep lines like name: type = value in this cell, and move all else into the cell before",
        ) from error
    except ValueError as error:  # null bytes, before Python 3.11.4
        raise InputError("parameters cell is no Python", where=where, found=str(error)) from error
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ").strip() for token in tokens if token.type == tokenize.COMMENT}
    parameters = [_parse_parameter(node, comments, where) for node in body if not _is_preamble(node)]
    names = [parameter.name for parameter in parameters]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("parameter is set twice", where=where, found=repeated)
    return tuple(parameters)


def _blank_magics(source: str) -> str:
    """The source with blanks for IPython's lines (%matplotlib inline, !pip list), which set no parameter."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return "\n".join("" if _MAGIC.match(line) else line for line in source.split("\n"))
    return source


def _is_preamble(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("__future__", "typing")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _parse_parameter(node: ast.stmt, comments: Mapping[int, str], where: object) -> Parameter:
    place = f"{where}, parameters cell, line {node.lineno}"
    annotation: ast.expr | None = None
    target: ast.expr
    if isinstance(node, ast.AnnAssign):
        target, annotation, value = node.target, node.annotation, node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    else:
        raise InputError("not a parameter", where=place, found=ast.unparse(node), allowed="name: type = literal")
    if not isinstance(target, ast.Name) or value is None:
        raise InputError("not a parameter", where=place, found=ast.unparse(node), allowed="name: type = literal")
    try:
        default = ast.literal_eval(value)
    except ValueError as error:
        do = "move derived values into the next cell: a parameter given later would not reach them"
        raise InputError("not a literal", where=place, found=ast.unparse(value), do=do) from error
    kind = parse_annotation(annotation, place) if annotation is not None else infer_type(default, place)
    _check_default(default, f"{place}, {target.id}")
    written = ast.unparse(annotation) if annotation is not None else _name_inferred_type(kind)
    return Parameter(target.id, kind, written, default, comments.get(node.end_lineno or node.lineno, ""))


def _name_inferred_type(kind: Any) -> str:
    names = {list[Any]: "list", dict[str, Any]: "dict", type(None): "None"}
    return names.get(kind) or (str(kind) if get_origin(kind) else kind.__name__)


def _check_default(default: Any, place: str) -> None:
    """Refuse a nested default that JSON cannot hold; it matters only where parameters are given."""
    if isinstance(default, dict | list) and (found := find_foreign_part(default, MAX_DEPTH)) is not None:
        do = "move it into the next cell, or write it as JSON can hold it"
        message = "the default is no JSON value"
        raise InputError(message, where=place, found=f"{_format_place(found[0])}{found[1]}", do=do)


def resolve_values(
    declared: Iterable[Parameter],
    texts: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    where: object = "notebook",
) -> ResolvedValues:
    """Check given values against the declared parameters; the error lists all problems.

    `values`: Values from a file or a program, of the declared type. `texts` win over them.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    texts, values = dict(texts or {}), dict(values or {})
    names = dict.fromkeys([*by_name, *values, *texts])
    problems = [_format_secret_problem(name) for name in names if redaction.is_secret_name(name)]
    unknown = [name for name in names if name not in by_name and not redaction.is_secret_name(name)]
    problems += [_format_unknown_problem(name, by_name) for name in unknown]
    overrides, more = _parse_given(by_name, texts, values)
    problems += more + _list_leaked_secrets(by_name, overrides) + _list_foreign_parts(overrides)
    config, more = _validate_values(by_name, overrides)
    problems += [problem for problem in more if problem.split(":")[0] not in {old.split(":")[0] for old in problems}]
    variables, more = _list_secret_variables(by_name, config)
    if problems := problems + more:
        declarations = "".join(f"\n    {parameter}" for parameter in by_name.values()) or "none"
        do = f"workbench run {where} --parameters"
        help_facts = {"allowed": declarations, "do": do} if unknown else {}
        raise ConfigError("\n".join(problems), where=where, **help_facts)
    return ResolvedValues(config, {name: config[name] for name in overrides}, variables)


def _parse_given(
    by_name: Mapping[str, Parameter], texts: Mapping[str, str], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Given values of known parameters that are no secrets, and texts that are not of the declared type."""
    overrides: dict[str, Any] = {name: value for name, value in values.items() if name not in texts}
    problems: list[str] = []
    for name, text in texts.items():
        if name in by_name and not redaction.is_secret_name(name):
            parameter = by_name[name]
            try:
                overrides[name] = parse_value(parameter.type, text)
            except ValueError as error:
                problems.append(f"{name}: {_format_value(parameter, text)} is not {_name_type(parameter)}: {error}")
    public_names = {name for name in by_name if not redaction.is_secret_name(name)}
    return {name: value for name, value in overrides.items() if name in public_names}, problems


def _list_leaked_secrets(by_name: Mapping[str, Parameter], overrides: Mapping[str, Any]) -> list[str]:
    """Secrets inside of values; also of defaults, since the parameters cell is part of the report."""
    problems = []
    for name, value in [*((item.name, item.default) for item in by_name.values()), *overrides.items()]:
        problems += [_format_user_info_problem(name)] if redaction.has_user_info(value) else []
        keys = dict.fromkeys(redaction.find_secret_settings(name, value))
        problems += [_format_setting_problem(name, key) for key in keys]
    return problems


def _list_foreign_parts(overrides: Mapping[str, Any]) -> list[str]:
    """What in given values no JSON can hold: a record, a command and a cell would each write it in another way."""
    problems = []
    for name, value in overrides.items():
        if isinstance(value, dict | list) and (found := find_foreign_part(value, MAX_DEPTH)) is not None:
            problems.append(f"{name}: {_format_place(found[0])}{found[1]}")
    return problems


def _format_place(place: Sequence[str | int]) -> str:
    return f"at {''.join(f'[{json.dumps(part, ensure_ascii=False)}]' for part in place)}: " if place else ""


def _format_value(parameter: Parameter, value: Any) -> str:
    # A wrong value of an *_env parameter is probably the secret itself.
    if parameter.names_variable or redaction.has_user_info(value) or redaction.may_hold_secret(parameter.name, value):
        return "the value"
    text = repr(value)
    return cut_text(text, MAX_SHOWN_CHARS)


def _format_user_info_problem(name: str) -> str:
    return (
        f"{name}: a URL with a user or password in it would be written to files; give it without them, and the "
        "credentials as the environment variables that the store reads"
    )


def _format_setting_problem(name: str, key: str) -> str:
    if redaction.is_secret_name(key):
        return f"{name}: in it {_format_secret_problem(key)}; where it is no secret, call it by another name"
    return (
        f"{name}: what is given for {key} may be a secret and would be written to files; set it in the file "
        f"spark-defaults.conf of the folder that SPARK_CONF_DIR names, or, of a spark.hadoop.* setting, give the "
        f"environment variable that holds it: {key}=${{env.NAME}}"
    )


def _format_secret_problem(name: str) -> str:
    return f"{name}: secrets are not passed as parameters; pass the NAME of an environment variable ({name}_env)"


def _format_unknown_problem(name: str, by_name: Mapping[str, Parameter]) -> str:
    close = difflib.get_close_matches(name, by_name, n=1)
    return f"{name}: the notebook has no such parameter" + (f"; did you mean {close[0]}?" if close else "")


def build_model(declared: Iterable[Parameter]) -> type[BaseModel]:
    """The pydantic model of a notebook's parameters: strict types, finite numbers, no unknown names."""
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {f"p_{item.name}": (item.type, _build_field(item)) for item in declared}
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)
    return create_model("Parameters", __config__=strict, **fields)


def _build_field(parameter: Parameter) -> Any:
    from pydantic import Field

    # Aliases, since pydantic refuses field names such as model_… or _name.
    return Field(default=parameter.default, alias=parameter.name, description=parameter.comment)


def _validate_values(
    by_name: Mapping[str, Parameter], overrides: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    from pydantic import ValidationError

    try:
        # Defaults are validated as given values, so that errors name them.
        defaults = {parameter.name: parameter.default for parameter in by_name.values()}
        checked = build_model(by_name.values()).model_validate(defaults | dict(overrides), by_alias=True)
    except ValidationError as error:
        problems = [_format_type_problem(detail, by_name, overrides) for detail in error.errors(include_url=False)]
        return {}, list(dict.fromkeys(problems))
    return checked.model_dump(by_alias=True), []


def _name_type(parameter: Parameter) -> str:
    """A type as a sentence names it."""
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    names["None"] = "None, the only value that its default shows"
    return names.get(parameter.annotation, f"of type {parameter.annotation}")


# By the type of pydantic's error.
_PART_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a dict",
    "none_required": "none",
}


def _format_type_problem(detail: Any, by_name: Mapping[str, Parameter], overrides: Mapping[str, Any]) -> str:
    parameter = by_name[str(detail["loc"][0])]
    value = overrides.get(parameter.name, parameter.default)
    source = "" if parameter.name in overrides else "the notebook's default "
    place, part = _find_part(value, detail["loc"][1:])
    if place and is_nested(parameter.type):
        kind = _PART_TYPES.get(detail["type"], str(detail["msg"]).replace("Input should be ", ""))
        found = f"{_format_value(parameter, part)} ({type(part).__name__})"
        return f"{parameter.name}: {source}{_format_place(place)}{found} is not {kind}"
    advice = ""
    items = value if isinstance(value, list) else [value]
    if parameter.type is type(None):
        advice = f"; declare in the parameters cell what else it may be, such as {parameter.name}: str | None = None"
    elif parameter.annotation.startswith(("str", "list[str")) and not all(isinstance(item, str) for item in items):
        advice = "; quote it in the YAML, so that it stays as it is written"
    elif isinstance(value, str) and not parameter.annotation.startswith("Literal"):
        advice = "; without quotes in the YAML"
    kind = f"{_format_value(parameter, value)} ({type(value).__name__})"
    return f"{parameter.name}: {source}{kind} is not {_name_type(parameter)}{advice}"


def _find_part(value: Any, location: Iterable[str | int]) -> tuple[list[str | int], Any]:
    """Where in a nested value an error is, and the part that is there; names of a union's types are no places."""
    place: list[str | int] = []
    for step in location:
        if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
            value = value[step]  # type: ignore[index]
            place.append(step)
    return place, value


def _list_secret_variables(
    by_name: Mapping[str, Parameter], config: Mapping[str, Any]
) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables that hold secrets, and what is wrong with them; values are never repeated."""
    variables: list[str] = []
    problems: list[str] = []
    for parameter in by_name.values():
        for variable in filter(None, _list_named_variables(parameter.name, config.get(parameter.name))):
            if problem := _find_variable_problem(parameter, variable):
                problems.append(f"{parameter.name}: {problem}")
            else:
                variables.append(variable)
    return tuple(variables), problems


def _list_named_variables(name: str, value: Any) -> list[str]:
    """The variables that a parameter and keys in it name; items of a list may be HEADER=VARIABLE."""
    if isinstance(value, dict):
        return [variable for key, item in value.items() for variable in _list_named_variables(str(key), item)]
    if isinstance(value, list):
        return [variable.split("=", 1)[-1] for item in value for variable in _list_named_variables(name, item)]
    return [str(value)] if name.endswith(ENV_SUFFIX) and value is not None else []


def _find_variable_problem(parameter: Parameter, variable: str) -> str | None:
    value = os.environ.get(variable, "") if "\0" not in variable and "=" not in variable else ""
    if not value and not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,79}", variable):
        return (
            "is not the name of an environment variable (capitals, digits, _); pass its name, never the secret itself"
        )
    if not value:
        # A pasted key may look like a name, so only the notebook's default is repeated.
        named = f" ({variable})" if variable == parameter.default else ""
        return f"the environment variable that it names{named} is not set; export it first"
    if len(value) < redaction.MIN_SECRET_LENGTH:
        too_short = f"fewer than {redaction.MIN_SECRET_LENGTH} characters, too few to keep them out of the report"
        return f"the environment variable that it names holds {too_short}"
    return None


def make_paths_absolute(
    resolved: ResolvedValues, declared: Iterable[Parameter], *, base: Path, notebook_folder: Path
) -> ResolvedValues:
    """Make given paths absolute that are relative to `base`, since the notebook runs in its own folder.

    `sample:NAME` is the path of a shipped sample. A text is a path when the parameter's name says so (`is_path_name`),
    when the parameter's default is a file or folder that exists, or when the text has a slash and exists below `base`.
    URLs and absolute paths stay, and so do paths that only exist below the notebook's folder, so that a default can be
    repeated as it is.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    changed = {
        name: _make_path_absolute(name, by_name[name].default, value, base, notebook_folder)
        for name, value in resolved.given.items()
    }
    return ResolvedValues(resolved.config | changed, changed, resolved.secret_variables)


def _make_path_absolute(name: str, default: Any, value: Any, base: Path, notebook_folder: Path) -> Any:
    """The value with its paths made absolute; in a dict each key says what its value is."""
    if isinstance(value, list):
        return [_make_path_absolute(name, default, item, base, notebook_folder) for item in value]
    if isinstance(value, dict):
        defaults = default if isinstance(default, dict) else {}
        return {
            key: _make_path_absolute(key, defaults.get(key), item, base, notebook_folder) for key, item in value.items()
        }
    if not isinstance(value, str) or not value or "://" in value or "\0" in value or name.endswith(ENV_SUFFIX):
        return value
    if value.startswith(samples.PREFIX):
        is_meant = is_path_name(name) or _is_path_there(default, notebook_folder) or samples.is_sample(value)
        return samples.find_sample(value) if is_meant else value
    path = Path(value).expanduser() if value.startswith("~") else Path(value)
    exists = _is_there(base, path)
    if not exists and _is_there(notebook_folder, path):
        return value
    is_path = is_path_name(name) or (exists and "/" in value) or _is_path_there(default, notebook_folder)
    return os.path.normpath(base / path) if is_path else value


def _is_path_there(default: Any, folder: Path) -> bool:
    """Whether a default, or each item of a list of them, is a path below the folder."""
    items = default if isinstance(default, list) else [default]
    return bool(items) and all(isinstance(path, str) and "/" in path and _is_there(folder, path) for path in items)


def _is_there(folder: Path, path: str | Path) -> bool:
    try:
        return (folder / path).exists()
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


_LIMITS: dict[str, Any] = {"max_depth": MAX_DEPTH, "decimal": True, "error_type": ConfigError}


def read_values_file(path: str | Path) -> dict[str, Any]:
    """Read the values of a YAML file; each keeps its YAML type."""
    return _check_values(read_yaml_file(path, noun="parameters file", max_bytes=MAX_FILE_BYTES, **_LIMITS), path)


def read_values_text(text: str, where: object = "-y") -> dict[str, Any]:
    """Read the values of a YAML text, as papermill's -y has them; each keeps its YAML type.

    >>> read_values_text("{limits: {eu: [0.5, 2]}}")
    {'limits': {'eu': [0.5, 2]}}
    """
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError("too long for a YAML text", where=where, do="write it into a file, and give -f FILE")
    return _check_values(parse_yaml(text, noun="YAML text", where=where, **_LIMITS), where)


def _check_values(content: Any, where: object) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigError("not a mapping of parameter names to values", where=where, allowed="name: value, a line each")
    return content
