"""Form of a notebook's settings: fields from its model, inputs, validation of their values."""

from __future__ import annotations

import contextlib
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from workbench.core.errors import ConfigError, WorkbenchError
from workbench.core.formats import cut_text, escape_html
from workbench.live.file_picker import FilePicker, Pick

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.config import JsonDict
    from pydantic.fields import FieldInfo

    from workbench.execution.parameters import Parameter

    Config = TypeVar("Config", bound=BaseModel)


WHOLE_MODEL = ""
"""Key of a problem that belongs to no single field."""
_MAX_VALUE_CHARS = 80
_ADDED: JsonDict = {"added": True}
Kind = Literal["choice", "truth", "whole", "number", "text", "list", "json"]
_KIND_OF_TYPE: dict[Any, Kind] = {bool: "truth", int: "whole", float: "number", str: "text"}
LABEL_PX = 165
_MAX_LINES = 6


@dataclass(frozen=True)
class FieldGroup:
    """Fields that fold together; a model lists its groups as `FORM_GROUPS`, and fields in none of them are basic.

    `when`, `unless`: Field of the mode in which the group is used: where it has a value, or where it has none. Null:
    in every mode.
    """

    title: str
    fields: tuple[str, ...]
    when: str | None = None
    unless: str | None = None

    def is_used(self, values: Mapping[str, Any]) -> bool:
        """Whether the settings of the group count with these values.

        >>> FieldGroup("Live", ("url",), when="live").is_used({"live": False})
        False
        """
        return not (self.when and not values.get(self.when)) and not (self.unless and values.get(self.unless))

    @property
    def mode_note(self) -> str:
        """Condition under which the group is used, in words; empty when it is always used."""
        return f"used with {self.when}" if self.when else f"used without {self.unless}" if self.unless else ""


def added_field(default: Any, description: str, **rules: Any) -> Any:
    """A field that notebooks of earlier versions lack: without its name there, its default holds."""
    from pydantic import Field

    return Field(default, description=description, json_schema_extra=_ADDED, **rules)


def list_groups(model: type[BaseModel]) -> tuple[FieldGroup, ...]:
    """Groups of a model's fields; empty where it lists none."""
    groups: tuple[FieldGroup, ...] = getattr(model, "FORM_GROUPS", ())
    return groups


class FoldedFields:
    """A heading that opens and folds the lines of a group, by mouse or keyboard.

    A group of a mode is open while its mode is chosen; others are folded until they are opened, or a field has a
    problem.
    """

    def __init__(self, group: FieldGroup, lines: Sequence[Any], *, layout: Any) -> None:
        import ipywidgets

        self.group = group
        self.heading = ipywidgets.Button(layout=ipywidgets.Layout(width="auto"))
        self.heading.add_class("wb-fold")
        self.note = ipywidgets.HTML(f'<span class="wb-help">{group.mode_note}</span>')
        self.lines = ipywidgets.GridBox(list(lines), layout=layout)
        self.box = ipywidgets.VBox([ipywidgets.HBox([self.heading, self.note]), self.lines])
        self.heading.on_click(lambda _: self.open(not self.is_open))
        self._used: bool | None = None
        self._n_changed = 0
        self.open(False)

    @property
    def is_open(self) -> bool:
        """Whether the lines are seen."""
        return bool(self.lines.layout.display != "none")

    def open(self, is_open: bool) -> None:
        """Show or fold the lines."""
        self.lines.layout.display = "" if is_open else "none"
        self._write_heading()

    def follow(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """Count the values that are not those of the notebook's cell; open or fold where the mode has changed."""
        names = self.group.fields
        self._n_changed = sum(values.get(name) != defaults.get(name) for name in names)
        used = self.group.is_used(values)
        if self.group.mode_note and used != self._used:
            self.open(used)
        self._used = used
        self._write_heading()

    def _write_heading(self) -> None:
        changed = f", {self._n_changed} changed" if self._n_changed else ""
        sign, action = ("▾", "Fold") if self.is_open else ("▸", "Show")
        self.heading.description = f"{sign} {self.group.title} ({len(self.group.fields)}{changed})"
        self.heading.tooltip = f"{action} these settings"


def select_values(model: type[BaseModel], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values of a model's fields from a notebook's names.

    An `added_field` came later than notebooks that people keep: where its name is missing, its default holds. Any
    other missing name is an error, because it may be a misspelt one.
    """
    added = {name for name, field in model.model_fields.items() if field.json_schema_extra == _ADDED}
    if missing := [name for name in model.model_fields if name not in namespace and name not in added]:
        do = "run the parameters cell first, or add them to it"
        raise ConfigError("the notebook lacks parameters", where="parameters cell", found=missing, do=do)
    return {name: namespace[name] for name in model.model_fields if name in namespace}


def validate_values(model: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Validate values by a model."""
    config, problems = check_values(model, values)
    if config is None:
        lines = "\n".join(f"{name}: {text}" if name else text for name, text in problems.items())
        raise ConfigError(
            lines, where=f"parameters of {where}", do="change them in the panel, or in the parameters cell"
        )
    return config


def check_values(model: type[Config], values: Mapping[str, Any]) -> tuple[Config | None, dict[str, str]]:
    """The validated model, or the problems by field (`WHOLE_MODEL` for those of no single field).

    >>> import pydantic
    >>> class Settings(pydantic.BaseModel):
    ...     rows: int = pydantic.Field(ge=1)
    >>> check_values(Settings, {"rows": 0})
    (None, {'rows': 'must be greater than or equal to 1; found 0'})
    """
    from pydantic import ValidationError

    try:
        return model(**values), {}
    except ValidationError as error:
        problems: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0]) if detail["loc"] else WHOLE_MODEL
            text = _format_finding(detail)
            problems[name] = f"{problems[name]}; {text}" if name in problems else text
        return None, problems
    except WorkbenchError as error:
        # Validators may raise these, which pydantic does not catch.
        return None, {WHOLE_MODEL: str(error)}


_NESTED_TYPES = {"dict_type": dict[str, Any], "list_type": list[Any]}


def _find_json_problem(kind: Any, text: str) -> str:
    from workbench.execution import parameters

    try:
        parameters.parse_value(kind, text)
    except ValueError as error:
        return str(error)
    return "not JSON"


def _format_finding(detail: Any) -> str:
    """An error of pydantic in our wording."""
    text = str(detail["msg"])
    if detail["type"] in _NESTED_TYPES and isinstance(detail.get("input"), str) and len(detail["loc"]) == 1:
        return _find_json_problem(_NESTED_TYPES[detail["type"]], detail["input"])
    if detail["type"] == "value_error":
        return text.removeprefix("Value error, ")
    text = text.replace("Input should be", "must be").replace("String should have", "must have")
    text = text.replace("List should have", "must have")
    place = "".join(
        f", entry {part + 1 if isinstance(part, int) else repr(part)}"
        for part in detail["loc"][1:]
        if isinstance(part, int) or not part.startswith(("list[", "dict["))
    )
    value_text = repr(detail.get("input"))
    value_text = cut_text(value_text, _MAX_VALUE_CHARS)
    return f"{text[:1].lower()}{text[1:]}; found {value_text}{place}"


@dataclass(frozen=True)
class Field:
    """One line of the form.

    `kind`: choice (of `choices`), truth, whole, number, text, list (of `item`, one per line), or json (of `item`).
    `optional`: Whether it may be empty, for null.
    `low`, `high`: Inclusive bounds; null for none. Exclusive bounds of the model count as inclusive here.
    """

    name: str
    kind: Kind
    help: str
    optional: bool = False
    choices: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    item: Any = str
    pick: Pick | None = None


def list_fields(model: type[BaseModel], declared: Iterable[Parameter] = ()) -> tuple[Field, ...]:
    """Fields of the form in the model's order, with the comment of the parameters cell or the model's description."""
    comments: Mapping[str, str] = {item.name: item.comment for item in declared if item.comment}
    return tuple(
        _build_field(name, info, comments.get(name) or info.description or "")
        for name, info in model.model_fields.items()
    )


def _build_field(name: str, info: FieldInfo, words: str) -> Field:
    from workbench.execution import parameters

    kind, optional = _split_optional(info.annotation)
    low, high = _find_bound(info.metadata, "ge", "gt"), _find_bound(info.metadata, "le", "lt")
    pick = next((annotation for annotation in info.metadata if isinstance(annotation, Pick)), None)
    if get_origin(kind) is Literal:
        return Field(name, "choice", words, optional, choices=get_args(kind))
    if parameters.is_nested(kind):
        return Field(name, "json", words, optional, item={list: list[Any], dict: dict[str, Any]}.get(kind, kind))
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return Field(name, "list", words, optional, item=_strip_annotation(item), pick=pick)
    return Field(name, _KIND_OF_TYPE.get(kind, "text"), words, optional, low=low, high=high, pick=pick)


def _strip_annotation(kind: Any) -> Any:
    """The type inside of `Annotated`."""
    return get_args(kind)[0] if get_origin(kind) is typing.Annotated else kind


def _split_optional(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    others = [argument for argument in get_args(kind) if argument is not type(None)]
    return _strip_annotation(others[0]), len(others) < len(get_args(kind))


def _find_bound(metadata: Iterable[Any], *names: str) -> float | None:
    """The bound that the last of a field's constraints sets, by the first of these names; null without one."""
    bounds = [getattr(constraint, name, None) for constraint in metadata for name in reversed(names)]
    return next((bound for bound in reversed(bounds) if bound is not None), None)


def format_field_value(field: Field, value: Any) -> Any:
    """A value as its input widget has it: text, empty for null, a line per list item.

    >>> format_field_value(Field("a", "list", ""), ["x", "y"]), format_field_value(Field("b", "number", ""), None)
    ('x\\ny', '')
    """
    if field.kind == "json" and value is not None:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    if field.kind == "list":
        # The cell or an older run may have another type.
        return "\n".join(map(str, value if isinstance(value, list | tuple) else [] if value is None else [value]))
    if field.kind in ("choice", "truth"):
        return value
    return "" if value is None else str(value)


def parse_field_value(field: Field, input_value: Any) -> Any:
    """The value of an input widget; text that cannot be parsed is returned as text, for the model to refuse.

    >>> parse_field_value(Field("a", "list", "", item=int), "1\\n\\n2")
    [1, 2]
    >>> parse_field_value(Field("b", "number", "", optional=True), " ") is None
    True
    >>> parse_field_value(Field("c", "whole", ""), "many")
    'many'
    """
    if field.kind == "list":
        return [_parse_typed_text(field.item, line.strip()) for line in str(input_value).splitlines() if line.strip()]
    if field.kind == "choice" or isinstance(input_value, bool):
        return input_value
    if field.optional and not str(input_value).strip():
        return None
    if field.kind == "json":
        return _parse_typed_text(field.item, str(input_value))
    return _parse_typed_text({"whole": int, "number": float}.get(field.kind, str), str(input_value))


def _parse_typed_text(kind: Any, text: str) -> Any:
    from workbench.execution import parameters

    if kind is str:
        return text
    try:
        return parameters.parse_value(kind, text)
    except (ValueError, TypeError):
        return text


class Form:
    """Input widgets of the fields; works without a front end."""

    def __init__(
        self, plan: Sequence[Field], values: Mapping[str, Any], base: Path, groups: Sequence[FieldGroup] = ()
    ) -> None:
        import ipywidgets

        self.plan = {field.name: field for field in plan}
        self.cell = {field.name: values[field.name] for field in plan}
        self.base = base
        self.inputs: dict[str, Any] = {field.name: _create_input(field, values[field.name]) for field in plan}
        self.problems: dict[str, Any] = {name: ipywidgets.HTML() for name in self.plan}
        self.whole = ipywidgets.HTML()
        lines = {field.name: self._build_line(field) for field in plan}
        self.folds = [
            FoldedFields(group, [lines.pop(name) for name in group.fields], layout=_columns()) for group in groups
        ]
        self.basic = ipywidgets.GridBox(list(lines.values()), layout=_columns())
        self._follow_modes()
        self._changed: Callable[[], None] | None = None
        self._quiet = False
        for widget in self.inputs.values():
            widget.observe(lambda _: self._notify_change(), "value")

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a callback for changes."""
        self._changed = call

    def read_values(self) -> dict[str, Any]:
        """Values by field, not validated."""
        return {name: parse_field_value(field, self.inputs[name].value) for name, field in self.plan.items()}

    def set_values(self, values: Mapping[str, Any]) -> list[str]:
        """Set the values of inputs; notifies once, ignores unknown names.

        Returns the names whose inputs cannot have the value: an unknown choice, a number out of bounds.
        """
        settings = {name: value for name, value in values.items() if name in self.inputs}
        with self._pause_notifications():
            for name, value in settings.items():
                widget = self.inputs[name]
                field = self.plan[name]
                content = format_field_value(field, value)
                if (
                    isinstance(widget.value, int | float)
                    and not isinstance(widget.value, bool)
                    and field.kind != "choice"
                ):
                    content = value if isinstance(value, int | float) else widget.value
                # Unknown choices are refused by the widget.
                with contextlib.suppress(Exception):
                    widget.value = content
        self._notify_change()
        current = self.read_values()
        return [name for name, value in settings.items() if current[name] != value]

    def show_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem below its field."""
        for name, place in self.problems.items():
            place.value = _render_problem(problems.get(name, ""))
        for fold in self.folds:
            if not fold.is_open and problems.keys() & {*fold.group.fields}:
                fold.open(True)
        self.whole.value = _render_problem(problems.get(WHOLE_MODEL, ""))

    def box(self) -> Any:
        """The form as a widget with as many columns as fit: basic fields, then the groups."""
        import ipywidgets

        return ipywidgets.VBox([self.basic, *(fold.box for fold in self.folds), self.whole])

    def _build_line(self, field: Field) -> Any:
        import ipywidgets

        widget = self.inputs[field.name]
        parts = [widget]
        if field.pick:
            picker = FilePicker(
                field.pick, self.base, lambda: self._read_path_text(field), lambda text: self._set_path(field, text)
            )
            parts = [ipywidgets.HBox([widget, picker.button]), picker.place]
        words = ipywidgets.HTML(f'<div class="wb-help">{escape_html(field.help)}</div>')
        line = ipywidgets.VBox([*parts, words, self.problems[field.name]])
        line.add_class("wb-line")
        return line

    def _read_path_text(self, field: Field) -> str:
        lines = str(self.inputs[field.name].value).splitlines()
        return lines[-1] if lines else ""

    def _set_path(self, field: Field, text: str) -> None:
        widget = self.inputs[field.name]
        if field.kind == "list":
            old = [line for line in widget.value.splitlines() if line.strip()]
            text = "\n".join([*old, *([text] if text not in old else [])])
        widget.value = text

    def _notify_change(self) -> None:
        if self._quiet:
            return
        self._follow_modes()
        if self._changed:
            self._changed()

    def _follow_modes(self) -> None:
        """Open the groups of the mode that the values choose, and fold those of the others."""
        values = self.read_values()
        for fold in self.folds:
            fold.follow(values, self.cell)

    @contextlib.contextmanager
    def _pause_notifications(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


def _columns() -> Any:
    """Layout of lines in as many columns as fit."""
    import ipywidgets

    columns = "repeat(auto-fill, minmax(min(420px, 100%), 1fr))"
    return ipywidgets.Layout(grid_template_columns=columns, grid_gap="2px 28px")


def _render_problem(text: str) -> str:
    # The role makes screen readers announce it.
    return f'<div class="wb-problem" role="alert">{escape_html(text)}</div>' if text else ""


def _create_input(field: Field, value: Any) -> Any:
    import ipywidgets

    shared: dict[str, Any] = {
        "description": field.name,
        "tooltip": field.help,
        "style": {"description_width": f"{LABEL_PX}px"},
        "layout": ipywidgets.Layout(width="auto", flex="1 1 auto", min_width="0"),
    }
    # Values that a bounded input cannot have are shown as text, for the model to refuse.
    if field.kind == "truth" and isinstance(value, bool):
        return ipywidgets.Checkbox(value=value, indent=True, **shared)
    if field.kind == "choice":
        choices = [*field.choices, *([None] if field.optional and None not in field.choices else [])]
        choices += [value] if value not in choices else []
        options = [("" if choice is None else str(choice), choice) for choice in choices]
        return ipywidgets.Dropdown(options=options, value=value, **shared)
    if field.kind == "list":
        text = format_field_value(field, value)
        lines = max(1, min(_MAX_LINES, len(text.splitlines())))
        placeholder = "one a line"
        return ipywidgets.Textarea(value=text, rows=lines, placeholder=placeholder, continuous_update=False, **shared)
    if (bounded := _create_bounded_input(field, value)) is not None:
        kind, limits = bounded
        return kind(value=value, **limits, **shared)
    # Updated on Enter or blur, not at each key, so that unfinished paths are not validated.
    placeholder = "empty: none" if field.optional else "JSON" if field.kind == "json" else ""
    return ipywidgets.Text(
        value=format_field_value(field, value), placeholder=placeholder, continuous_update=False, **shared
    )


def _create_bounded_input(field: Field, value: Any) -> tuple[Any, dict[str, Any]] | None:
    """A bounded number input and its limits; null without both bounds, or when the value is outside."""
    import ipywidgets

    kinds = (int,) if field.kind == "whole" else (int, float)
    if field.optional or field.low is None or field.high is None or not isinstance(value, kinds):
        return None
    if isinstance(value, bool) or not field.low <= value <= field.high:
        return None
    if field.kind == "whole":
        return ipywidgets.BoundedIntText, {"min": int(field.low), "max": int(field.high)}
    return (ipywidgets.BoundedFloatText, {"min": field.low, "max": field.high}) if field.kind == "number" else None
