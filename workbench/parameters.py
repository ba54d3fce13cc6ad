"""A notebook's parameters: read from its one cell tagged `parameters`, and the values given for them, checked.

The cell holds annotated literals, each with a comment that tells meaning and unit:

    event_log: str = "../data/samples/q1.zstd"  # Spark event log, file or folder
    top_operators: int = 10  # rows in the table

A text from the command line becomes what the annotation says and is never guessed: "3.10" given to a `str` stays
"3.10". Values from a YAML file keep the type that YAML gave them, and are refused where it is another one.
The cell is read, never run: annotations and values are literals.
"""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import literals, redaction
from workbench.errors import ConfigError, InputError
from workbench.files import read_bounded

if TYPE_CHECKING:
    from pydantic import BaseModel

TAG = "parameters"
ENV_SUFFIX = "_env"
MOST_FILE_BYTES = 1 << 20
MOST_DEPTH = 20
_PATH_WORDS = ("log", "logs", "path", "paths", "dir", "file", "files", "folder")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a notebook: `type` is the Python type, `annotation` as it is written there."""

    name: str
    type: Any
    annotation: str
    default: Any
    comment: str

    @property
    def names_variable(self) -> bool:
        """Does it hold the name of an environment variable with a secret?"""
        return self.name.endswith(ENV_SUFFIX)

    @property
    def is_path(self) -> bool:
        """Does its name say that it holds a path (ends in _log, _path, _dir, _file, _folder, or is that word)?"""
        return self.name.rpartition("_")[2] in _PATH_WORDS

    def __str__(self) -> str:
        line = f"{self.name}: {self.annotation} = {self.default!r}"
        return f"{line}  # {self.comment}" if self.comment else line


@dataclass(frozen=True)
class Resolved:
    """Checked values: `config` for all parameters, `given` for those that differ from the cell on purpose."""

    config: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    secret_variables: tuple[str, ...] = ()


def read(notebook: Mapping[str, Any], where: object = "notebook") -> tuple[Parameter, ...]:
    """The parameters that a notebook (its JSON) declares; none when no cell is tagged.

    Raises
    ------
    InputError
        More than one cell is tagged, or the cell holds something else than annotated literals.
    """
    cells = [cell for cell in notebook.get("cells", []) if TAG in cell.get("metadata", {}).get("tags", [])]
    if not cells:
        return ()
    if len(cells) > 1:
        raise InputError(f"more than one cell is tagged {TAG!r}", where=where, found=len(cells), allowed="one")
    return parse("".join(cells[0].get("source", "")), where)


def parse(source: str, where: object = "parameters cell") -> tuple[Parameter, ...]:
    """Read the source of a parameters cell.

    Raises
    ------
    InputError
        It is no Python, or a statement is no annotated literal (a derived value would keep the default).

    Examples
    --------
    >>> print(parse("top: int = 5  # rows")[0])
    top: int = 5  # rows
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise InputError(
            "parameters cell is no Python", where=where, found=f"line {error.lineno}: {error.msg}"
        ) from error
    comments = _comments(source)
    found = [_parameter(node, comments, where) for node in body if not _is_preamble(node)]
    names = [parameter.name for parameter in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("parameter is set twice", where=where, found=repeated)
    return tuple(found)


def _is_preamble(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("__future__", "typing")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ").strip() for token in tokens if token.type == tokenize.COMMENT}


def _parameter(node: ast.stmt, comments: Mapping[int, str], where: object) -> Parameter:
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
    kind = literals.annotated(annotation, place) if annotation is not None else literals.inferred(default, place)
    written = ast.unparse(annotation) if annotation is not None else type(default).__name__
    return Parameter(target.id, kind, written, default, comments.get(node.end_lineno or node.lineno, ""))


def resolve(
    declared: Iterable[Parameter],
    texts: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    where: object = "notebook",
) -> Resolved:
    """Check what was given against what is declared; every problem is told at once.

    Parameters
    ----------
    declared
        The notebook's parameters.
    texts
        From the command line: text that becomes the declared type.
    values
        From a file or a program: values that must already be of the declared type. `texts` win over them.

    Raises
    ------
    ConfigError
        A parameter that the notebook lacks, a value of another type, a secret where only the name of an environment
        variable may stand (the value is not repeated), or such a variable that is not set.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    texts, values = dict(texts or {}), dict(values or {})
    problems = [
        _secret_problem(name) for name in dict.fromkeys([*by_name, *texts, *values]) if redaction.names_a_secret(name)
    ]
    unknown = [
        name for name in dict.fromkeys([*values, *texts]) if name not in by_name and not redaction.names_a_secret(name)
    ]
    problems += [_unknown_problem(name, by_name) for name in unknown]
    given: dict[str, Any] = {name: value for name, value in values.items() if name in by_name and name not in texts}
    for name, text in texts.items():
        if name in by_name and not redaction.names_a_secret(name):
            try:
                given[name] = literals.from_text(by_name[name].type, text)
            except ValueError as error:
                problems.append(f"{name}: {_shown(by_name[name], text)} is no {by_name[name].annotation}: {error}")
    given = {name: value for name, value in given.items() if not redaction.names_a_secret(name)}
    problems += [_user_info_problem(name) for name, value in given.items() if redaction.holds_user_info(value)]
    # A default, too: the cell with it is part of the report.
    for name, value in [*((item.name, item.default) for item in by_name.values()), *given.items()]:
        problems += [_setting_problem(name, key) for key in dict.fromkeys(redaction.secret_settings(name, value))]
    config, more = _validated(by_name, given)
    problems += [problem for problem in more if problem.split(":")[0] not in {old.split(":")[0] for old in problems}]
    variables, more = _variables(by_name, config)
    if problems := problems + more:
        listed = "".join(f"\n    {parameter}" for parameter in by_name.values()) or "none"
        raise ConfigError(
            "\n".join(problems), where=where, allowed=listed if unknown else None, do=_advice(bool(unknown), where)
        )
    return Resolved(config, {name: config[name] for name in given}, variables)


def _advice(unknown: bool, where: object) -> str | None:
    return f"workbench run {where} --parameters" if unknown else None


def _shown(parameter: Parameter, value: Any) -> str:
    # What stands in an *_env parameter by mistake is most likely the secret itself.
    parts = value.split(",") if isinstance(value, str) else value
    holds_secret = redaction.holds_user_info(value) or redaction.secret_settings(parameter.name, parts)
    hidden = parameter.names_variable or holds_secret
    return "the value" if hidden else repr(value)


def _user_info_problem(name: str) -> str:
    return (
        f"{name}: a URL with a user or password in it would be written to files; give it without them, and the "
        "credentials as the environment variables that the store reads"
    )


def _setting_problem(name: str, key: str) -> str:
    return (
        f"{name}: what is given for {key} may be a secret and would be written to files; set it in the file "
        f"spark-defaults.conf of the folder that SPARK_CONF_DIR names, or, of a spark.hadoop.* setting, give the "
        f"environment variable that holds it: {key}=${{env.NAME}}"
    )


def _secret_problem(name: str) -> str:
    return f"{name}: secrets are not passed as parameters; pass the NAME of an environment variable ({name}_env)"


def _unknown_problem(name: str, by_name: Mapping[str, Parameter]) -> str:
    close = difflib.get_close_matches(name, by_name, n=1)
    return f"{name}: the notebook has no such parameter" + (f"; did you mean {close[0]}?" if close else "")


def model(declared: Iterable[Parameter]) -> type[BaseModel]:
    """The pydantic model of a notebook's parameters: strict types, finite numbers, no unknown names."""
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {f"p_{item.name}": (item.type, _field(item)) for item in declared}
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)
    return create_model("Parameters", __config__=strict, **fields)


def _field(parameter: Parameter) -> Any:
    from pydantic import Field

    # Aliases, since pydantic takes no field named like its own methods, with a leading underscore or model_….
    return Field(default=parameter.default, alias=parameter.name, description=parameter.comment)


def _validated(by_name: Mapping[str, Parameter], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    from pydantic import ValidationError

    try:
        # Defaults are passed as if they were given, so that a wrong one is told by its own name.
        defaults = {parameter.name: parameter.default for parameter in by_name.values()}
        checked = model(by_name.values()).model_validate(defaults | dict(given), by_alias=True)
    except ValidationError as error:
        problems = [_type_problem(detail, by_name, given) for detail in error.errors(include_url=False)]
        return {}, list(dict.fromkeys(problems))
    return checked.model_dump(by_alias=True), []


def _type_problem(detail: Any, by_name: Mapping[str, Parameter], given: Mapping[str, Any]) -> str:
    parameter = by_name[str(detail["loc"][0])]
    value = given.get(parameter.name, parameter.default)
    advice = ""
    items = value if isinstance(value, list) else [value]
    if parameter.annotation.startswith(("str", "list[str")) and not all(isinstance(item, str) for item in items):
        advice = "; quote it in the YAML file, so that it stays as it is written"
    elif isinstance(value, str) and not parameter.annotation.startswith("Literal"):
        advice = "; without quotes in the YAML file"
    kind = f"{_shown(parameter, value)} ({type(value).__name__})"
    source = "" if parameter.name in given else "the notebook's default "
    return f"{parameter.name}: {source}{kind} is no {parameter.annotation}{advice}"


def _variables(by_name: Mapping[str, Parameter], config: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables that hold secrets, and what is wrong with them; values are never repeated."""
    found: list[str] = []
    problems: list[str] = []
    for parameter in by_name.values():
        named = config.get(parameter.name) if parameter.names_variable else None
        # Of a list an item may say what the variable is for: HEADER=VARIABLE.
        for variable in [str(item).split("=", 1)[-1] for item in named] if isinstance(named, list) else [named]:
            if not variable:
                continue
            if problem := _variable_problem(parameter, str(variable)):
                problems.append(f"{parameter.name}: {problem}")
            else:
                found.append(str(variable))
    return tuple(found), problems


def _variable_problem(parameter: Parameter, variable: str) -> str | None:
    value = os.environ.get(variable, "") if "\0" not in variable and "=" not in variable else ""
    if not value and not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,79}", variable):
        return (
            "is not the name of an environment variable (capitals, digits, _); pass its name, never the secret itself"
        )
    if not value:
        # A pasted key may look like a name, so only a name that stands in the notebook is repeated.
        named = f" ({variable})" if variable == parameter.default else ""
        return f"the environment variable that it names{named} is not set; export it first"
    if len(value) < redaction.MIN_LENGTH:
        too_short = f"fewer than {redaction.MIN_LENGTH} characters, too few to keep them out of the report"
        return f"the environment variable that it names holds {too_short}"
    return None


def absolute_paths(resolved: Resolved, declared: Iterable[Parameter], *, base: Path, notebook_folder: Path) -> Resolved:
    """Make given relative paths absolute: the notebook runs in its own folder, its user stood in `base`.

    The rule: a given text is a path when the parameter's name says so (`Parameter.is_path`), or when it has a
    slash and names something that exists below `base`. URLs and absolute paths stay. A path that only exists below
    the notebook's own folder stays too, so that a default can be typed as it stands there.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    changed = {name: _absolute(by_name[name], value, base, notebook_folder) for name, value in resolved.given.items()}
    return Resolved(resolved.config | changed, changed, resolved.secret_variables)


def _absolute(parameter: Parameter, value: Any, base: Path, notebook_folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(parameter, item, base, notebook_folder) for item in value]
    if not isinstance(value, str) or not value or "://" in value or "\0" in value or parameter.names_variable:
        return value
    path = Path(value).expanduser() if value.startswith("~") else Path(value)
    there = (base / path).exists()
    if not there and (notebook_folder / path).exists():
        return value
    named = parameter.is_path or (there and "/" in value)
    return os.path.normpath(base / path) if named else value


def _refuse_traps(text: str, path: str | Path) -> None:
    """A few lines of aliases can stand for more than any memory holds, deep nesting for more than any stack."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError("YAML aliases are not taken", where=path, do="write the value out")
        if depth > MOST_DEPTH:
            raise ConfigError("nested too deeply for parameters", where=path, allowed=f"{MOST_DEPTH} levels")


def read_file(path: str | Path) -> dict[str, Any]:
    """Read the values of a YAML file; each keeps the type that YAML gives it.

    Raises
    ------
    ConfigError
        The file cannot be read, is no YAML mapping, or gives a name twice.
    """
    import yaml

    try:
        text = read_bounded(path, MOST_FILE_BYTES).decode("utf-8-sig")
        _refuse_traps(text, path)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot read the parameters file", where=path, found=str(error)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        # Not the text of the error: it quotes the file, which may hold what should not be there.
        raise ConfigError(
            "not a YAML file", where=path, found=f"{line}{getattr(error, 'problem', None) or 'bad YAML'}"
        ) from error
    except (ValueError, RecursionError) as error:
        # A date such as 2026-02-30, a number of thousands of digits, lists in lists without end.
        raise ConfigError("not a YAML file", where=path, found=str(error)[:120]) from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigError("not a mapping of parameter names to values", where=path, allowed="name: value, a line each")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError("parameter is given twice", where=path, found=repeated)
    return content
