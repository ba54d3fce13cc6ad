"""Options of a command made from the fields of a pydantic model, and what the user gave, by field.

The model is named as "module:Class" and imported when the command is entered: the help of a group does not wait for
it. What a flag has otherwise than its field stands in one `FieldOption`. Register with `app.command(cls=ModelCommand)`.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from workbench.console.completion import COMPLETION_VARIABLE, complete_samples_of
from workbench.console.screen import open_screen
from workbench.core.errors import ConfigError
from workbench.core.field_options import UNSET, FieldOption, Parse, parse_json_option, parse_pairs, shorten_value
from workbench.core.samples import PREFIX, find_sample, is_sample

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    Model = TypeVar("Model", bound=BaseModel)

_SPECIFICATION = "workbench_options"
_CONTEXT = "_context"
_WIDE = "workbench_wide"
Function = TypeVar("Function", bound=Callable[..., Any])

# How typer's help names the type of a value, and what help here calls it; choices stay as they are.
_TYPE = re.compile(r"<(?:list\[)?([^<>\[\]]+)\]?>")
_TYPED = {
    "str": "TEXT",
    "int": "N",
    "int range": "N",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "PATH",
    "%Y-%m-%d": "YYYY-MM-DD",
}
# Longer than any first sentence: lines wrap, never truncate.
_MAX_HELP_CHARS = 1000


class OptionValues(dict[str, Any]):
    """Values given on the command line, by the model's field; `flags` names each field's flag."""

    def __init__(self, values: Mapping[str, Any] = types.MappingProxyType({}), flags: Mapping[str, str] | None = None):
        super().__init__(values)
        self.flags = dict(flags or {})

    def build_model(self, model: type[Model], *, show_values: bool = True) -> Model:
        """The model of these values."""
        from workbench.core.schema import validate_model

        return validate_model(
            model, dict(self), noun="valid option", flags=self.flags, error_type=ConfigError, show_values=show_values
        )


def take_options_from(
    model: str | type[BaseModel],
    fields: str | Sequence[str] = (),
    options: Mapping[str, str | FieldOption] = types.MappingProxyType({}),
    *,
    units: Mapping[str, str] = types.MappingProxyType({}),
    groups: Mapping[str, str] | Sequence[str] = types.MappingProxyType({}),
    omit: str = "",
    defaults: Literal["none", "model"] = "none",
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Give a command options for a model's fields; its first parameter gets the `OptionValues`.

    A field `n_gpus` becomes `--n-gpus` with its type, its default and its description. Texts of choices stay texts:
    the model refuses others, and names the flag. Lists are repeatable, yes-or-no fields are switches.

    `model`: The class, or "module:Class" for one that is imported when the command is entered.
    `fields`: Fields that become options, in the order of the help; a text has spaces between them. Names of the
    function's own parameters may stand among them; those that do not come last. Without them: all of the model, those
    of `groups` first, those of its base classes last.
    `options`: What differs from a field's own `FieldOption`, which `setting` gives it.
    `units`: By the unit that a field's name ends with: the flag drops it, and shows this: {"s": "S"}.
    `groups`: Headings in the help, with the fields below each, spaces between them; or headings alone: the fields are
    then those whose own option names that group.
    `omit`: Fields that do not become options.
    `defaults`: Default of an option: "none", where help tells the model's default; or the "model"'s own.

    >>> from pydantic import BaseModel, Field
    >>> class Load(BaseModel):
    ...     think_time_s: float = Field(0.0, ge=0, description="Pause of a user.")
    >>> app = typer.Typer()
    >>> @app.command(cls=ModelCommand)
    ... @take_options_from(Load, "think_time_s", units={"s": "S"})
    ... def drive(load: OptionValues) -> None:
    ...     print(load, load.build_model(Load))
    >>> app(["--think-time", "2"], standalone_mode=False)
    {'think_time_s': 2.0} think_time_s=2.0
    """
    rules = {name: FieldOption(name=rule) if isinstance(rule, str) else rule for name, rule in options.items()}
    headings: dict[str, str] = {}
    if isinstance(groups, Mapping):
        headings = {name: heading for heading, members in groups.items() for name in members.split()}
    shared = () if isinstance(groups, Mapping) else tuple(groups)
    names = tuple(fields.split() if isinstance(fields, str) else fields)

    def decorate(function: Callable[..., None]) -> Callable[[], None]:
        def command() -> None:
            raise TypeError(f"register {function.__name__} with app.command(cls=ModelCommand)")

        # Without its annotations: a group that lists its commands must not evaluate them.
        update_wrapper(command, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        del command.__wrapped__  # type: ignore[attr-defined]
        specification = _Specification(
            function, model, names, rules, units, headings, defaults, shared, tuple(omit.split())
        )
        setattr(command, _SPECIFICATION, specification)
        return command

    return decorate


def _find_given_sample(text: str) -> str:
    """An argument with the path of the sample that it names: `sample:NAME`, `--flag=sample:NAME`, `KEY=sample:NAME`."""
    key, equals, value = text.partition("=")
    if equals and (key.startswith("-") or is_sample(value)) and value.startswith(PREFIX):
        return f"{key}={find_sample(value)}"
    return find_sample(text)


class HelpCommand(TyperCommand):
    """A command whose help names values by what is typed, and shows options in the groups that they name.

    Commands with `--json` have `--wide` beside it: their text is for people, so its tables fit the terminal.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments."""
        parameters = super().get_params(ctx)
        if COMPLETION_VARIABLE in os.environ:
            for parameter in parameters:
                complete_samples_of(parameter)
        at = next((at for at, parameter in enumerate(parameters) if parameter.name == "as_json"), None)
        return parameters if at is None else [*parameters[: at + 1], _build_wide_option(), *parameters[at + 1 :]]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; samples are found by name, and those of examples from any folder."""
        return super().parse_args(ctx, [_find_given_sample(text) for text in args])

    def invoke(self, ctx: Any) -> Any:
        """Run the command, its output fitted to the terminal."""
        with open_screen(is_wide=ctx.meta.get(_WIDE, False)):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options without a group, and those of each group (`rich_help_panel`)."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            name = "Arguments" if parameter.param_type_name == "argument" else "Options"
            rows = sections.setdefault(getattr(parameter, "rich_help_panel", None) or name, [])
            named = _TYPE.sub(lambda kind: _TYPED.get(kind[1], kind[1]), record[0])
            # A default that is told as a text stands in parentheses.
            rows.append((named, re.sub(r"\[default: \((.+?)\)(?=[];])", r"[default: \1", record[1])))
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


@cache
def _build_wide_option() -> Any:
    def note_width(context: typer.Context, is_wide: bool) -> None:
        context.meta[_WIDE] = is_wide

    def command(
        wide: Annotated[
            bool,
            typer.Option(
                "--wide", expose_value=False, callback=note_width, help="Print tables wider than the terminal."
            ),
        ] = False,
    ) -> None:
        del wide

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # The closure is only known here, so its annotations cannot stay texts.
    command.__annotations__ = get_type_hints(command, {**globals(), "note_width": note_width}, include_extras=True)
    app.command()(command)
    return typer.main.get_command(app).params[0]


class ModelCommand(HelpCommand):
    """A command whose options are made when it is entered, or when somebody looks at them."""

    def __init__(self, name: str | None, *, callback: Any = None, params: Any = None, **options: Any) -> None:
        del params  # those of the stand-in, which has none
        self._specification: _Specification = getattr(callback, _SPECIFICATION)
        super().__init__(name, callback=callback, **options)

    @property
    def params(self) -> list[Any]:
        """The options and arguments."""
        return self._specification.command.params  # type: ignore[no-any-return]

    @params.setter
    def params(self, parameters: list[Any]) -> None:
        """Nothing: they are made from the model."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        self.callback = self._specification.command.callback
        return super().invoke(ctx)


@dataclass(frozen=True)
class _FieldParameter:
    """An option of a field: what it is called, how its value is made, and what holds without it."""

    field: str
    name: str
    flag: str
    parameter: inspect.Parameter
    parse: Parse | None
    is_tuple: bool
    own_default: Any

    def read_value(self, value: Any) -> Any:
        if self.parse is None:
            return tuple(value) if self.is_tuple else value
        try:
            return self.parse(value, self.flag)
        except ValueError as error:
            raise ConfigError(
                "not an option's value", where=self.flag, found=shorten_value(value), allowed=error
            ) from None


@dataclass(frozen=True)
class _Specification:
    """Everything passed to the decorator; `command` is built from it once."""

    function: Callable[..., None]
    model: str | type[BaseModel]
    fields: tuple[str, ...]
    rules: Mapping[str, FieldOption]
    units: Mapping[str, str]
    headings: Mapping[str, str]
    defaults: Literal["none", "model"]
    groups: tuple[str, ...]
    omit: tuple[str, ...]

    @cached_property
    def command(self) -> Any:
        """Typer's own command of a function with these parameters."""
        first, *parameters = self._list_own_parameters()
        own = {parameter.name: parameter for parameter in parameters}
        by_field = self._build_field_parameters({*own})
        order = own | {name: option.parameter for name, option in by_field.items()}
        order = {name: order[name] for name in [*self.fields, *self.headings, *by_field, *own]}
        context = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        def call(**values: Any) -> None:
            given = values.pop(_CONTEXT)
            option_values = OptionValues(flags={option.field: option.flag for option in by_field.values()})
            for option in by_field.values():
                source = given.get_parameter_source(option.name)
                if source is not None and source.name != "DEFAULT":
                    option_values[option.field] = option.read_value(values[option.name])
                elif option.own_default not in (None, ""):
                    # A command's own default that is not the model's counts as given.
                    option_values[option.field] = option.read_value(option.own_default)
            self.function(**{first.name: option_values}, **{name: values[name] for name in own})

        update_wrapper(call, self.function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        del call.__wrapped__  # type: ignore[attr-defined]
        call.__signature__ = inspect.Signature([*order.values(), context])  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in [*order.values(), context]}
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cls=HelpCommand)(call)
        return typer.main.get_command(app)

    def _list_own_parameters(self) -> list[inspect.Parameter]:
        """Parameters of the function, each below its heading."""
        hints = get_type_hints(self.function, include_extras=True)
        parameters = []
        for parameter in inspect.signature(self.function).parameters.values():
            annotation = hints[parameter.name]
            if (heading := self.headings.get(parameter.name)) is not None:
                kind, option = get_args(annotation)
                option = copy.copy(option)
                option.rich_help_panel = heading
                annotation = Annotated[kind, option]
            parameters.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))
        return parameters

    def _build_field_parameters(self, own_names: set[str]) -> dict[str, _FieldParameter]:
        model = self.model
        if isinstance(model, str):
            module, _, name = model.partition(":")
            model = getattr(importlib.import_module(module), name)
        model_fields = model.model_fields
        if unknown := sorted({*self.fields, *self.rules, *self.headings, *self.omit} - {*model_fields, *own_names}):
            raise TypeError(f"{self.function.__name__}: no fields of the model: {', '.join(unknown)}")
        rules = {name: self._find_rule(name, info) for name, info in model_fields.items()}
        if self.groups:
            taken = [name for group in self.groups for name in model_fields if rules[name].group == group]
        elif self.fields:
            taken = []
        else:
            own_first = [name for kind in model.__mro__ for name in vars(kind).get("__annotations__", ())]
            taken = [*self.headings, *(name for name in own_first if name in model_fields)]
        wanted = dict.fromkeys([*self.fields, *taken])
        return {
            name: self._build_field_parameter(name, model_fields[name], rules[name])
            for name in wanted
            if name not in own_names and name not in self.omit
        }

    def _find_rule(self, name: str, info: FieldInfo) -> FieldOption:
        """The field's own option, with what this command has otherwise."""
        own = next((item for item in info.metadata if isinstance(item, FieldOption)), FieldOption())
        if (rule := self.rules.get(name)) is None:
            return own
        changes = {field.name: value for field in fields(rule) if (value := getattr(rule, field.name)) != field.default}
        return replace(own, **changes)

    def _build_field_parameter(self, field_name: str, info: FieldInfo, rule: FieldOption) -> _FieldParameter:
        stem, _, unit = field_name.rpartition("_")
        drops_unit = bool(stem) and unit in self.units
        name = rule.name or (stem if drops_unit else field_name)
        flags = rule.flags or (f"--{name.strip('_').replace('_', '-')}",)
        inferred = _infer_form(info.annotation) if rule.kind is None and rule.parse is None else None
        kind, parse, metavar = inferred or (rule.kind or str, rule.parse, None)
        is_list = get_origin(kind) is list
        default, shown = self._choose_default(info, rule, kind, is_parsed=parse is not None)
        is_required = default is inspect.Parameter.empty
        annotation = kind if default is not None else kind | None
        option = typer.Option(
            *flags,
            help=rule.help if rule.help is not None else info.description,
            metavar=rule.metavar or metavar or (self.units[unit] if drops_unit else None),
            min=rule.min,
            max=rule.max,
            show_default=shown,
            rich_help_panel=self.headings.get(field_name) or (rule.group if rule.group in self.groups else None),
        )
        return _FieldParameter(
            field=field_name,
            name=name,
            flag=flags[0].partition("/")[0],
            parameter=inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
            ),
            parse=parse,
            is_tuple=is_list and get_origin(_strip_optional(info.annotation)) is tuple,
            own_default=None if is_required or default is False or default == info.default else default,
        )

    def _choose_default(self, info: FieldInfo, rule: FieldOption, kind: Any, *, is_parsed: bool) -> tuple[Any, Any]:
        """The option's default, and what help tells of it."""
        model_default = info.default
        if rule.default is not UNSET:
            default = rule.default
        elif info.is_required():
            return inspect.Parameter.empty, False
        elif kind is bool:
            default = bool(model_default)
        elif get_origin(kind) is list or is_parsed or info.default_factory is not None:
            default = None
        elif model_default == "" or self.defaults == "model":
            default = model_default
        else:
            default = None
        if rule.show_default is not None:
            return default, rule.show_default
        if default is not None or is_parsed or model_default is None or isinstance(model_default, list | tuple | dict):
            return default, kind is not bool
        return default, f"{model_default:g}" if isinstance(model_default, float) else str(model_default)


def _strip_optional(annotation: Any) -> Any:
    """A type without Annotated and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _strip_optional(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def _infer_form(annotation: Any) -> tuple[Any, Parse | None, str | None]:
    """Type on the command line, how the field's value is made of it, and how help calls it."""
    kind = _strip_optional(annotation)
    if kind in (bool, int, float, str) or (isinstance(kind, type) and issubclass(kind, Path | Enum)):
        return kind, None, None
    origin = get_origin(kind)
    if origin is Literal:
        return type(get_args(kind)[0]), None, None
    if origin in (list, tuple, set, frozenset):
        return list[_infer_form(get_args(kind)[0])[0]], None, None  # type: ignore[misc]
    if origin is dict and tuple(map(_strip_optional, get_args(kind))) == (str, str):
        return list[str], parse_pairs, "KEY=VALUE"
    if kind is Any or origin is dict:
        return str, parse_json_option, "JSON|@FILE"
    raise TypeError(f"no option can be made of {annotation}: give kind and parse")


@dataclass(frozen=True)
class Area:
    """A sub-app that is imported on use, as `app` of `module`.

    `needs`: abilities it requires; `uses`: abilities of some of its commands; `checks`: a module whose `checks()` tests
    one of them for `workbench doctor`; `questions`: one whose `list_questions(places)` are tools of `workbench mcp`.
    """

    module: str
    help: str
    needs: tuple[str, ...] = ("base",)
    uses: tuple[str, ...] = ()
    checks: str | None = None
    questions: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the module is installed; looked up on disk, without importing it."""
        place = Path(__file__).parents[2].joinpath(*self.module.split("."))
        return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


class CommandGroup(TyperGroup):
    """A group whose help shows whole sentences, which typer would truncate."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_MAX_HELP_CHARS))
            for name, command in commands
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(TyperGroup):
    """Placeholder of a sub-app in lists and help; loads the sub-app when a command line enters it."""

    def __init__(self, *, area: Area, **options: Any) -> None:
        super().__init__(**options)
        self.area = area

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        import importlib

        module = importlib.import_module(self.area.module)
        return typer.main.get_group(module.app).make_context(info_name, args, parent, **extra)


def _group() -> None:
    """Does nothing; without a callback typer would turn a group of one command into a command."""


class CommandApp(typer.Typer):
    """Commands with the help of `HelpCommand`."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = HelpCommand, **options: Any
    ) -> Callable[[Function], Function]:
        """Register a command."""
        return super().command(name, cls=cls, **options)


def build_group(text: str, *, first_steps: str = "") -> typer.Typer:
    """An empty group of commands."""
    return CommandApp(
        cls=CommandGroup,
        help=text,
        epilog=f"\b\nBegin with:\n{first_steps.rstrip()}" if first_steps else None,
        no_args_is_help=True,
        # Rich would double the time of the help.
        rich_markup_mode=None,
        callback=_group,
    )
