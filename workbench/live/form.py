"""The form: an input for each field of a notebook's model, its meaning beside it, what is wrong beneath it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.formats import escape
from workbench.live import fields
from workbench.live.checking import WHOLE
from workbench.live.fields import Field
from workbench.live.picker import Picker

LABEL_PX = 165
_MOST_LINES = 6


class Form:
    """Inputs for fields; nothing here needs a front end: without one they are objects that nobody types into.

    Attributes
    ----------
    inputs
        The widget of each field, by name.
    """

    def __init__(self, plan: Sequence[Field], values: Mapping[str, Any], base: Path) -> None:
        import ipywidgets

        self.plan = {field.name: field for field in plan}
        self.base = base
        self.inputs: dict[str, Any] = {field.name: _input(field, values[field.name]) for field in plan}
        self.problems: dict[str, Any] = {name: ipywidgets.HTML() for name in self.plan}
        self.whole = ipywidgets.HTML()
        self._changed: Callable[[], None] | None = None
        self._quiet = False
        for widget in self.inputs.values():
            widget.observe(lambda _: self._tell(), "value")

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this when somebody changed a field."""
        self._changed = call

    def values(self) -> dict[str, Any]:
        """What the inputs hold, by field; not checked."""
        return {name: fields.read(field, self.inputs[name].value) for name, field in self.plan.items()}

    def set(self, values: Mapping[str, Any]) -> list[str]:
        """Put values into the inputs; names without an input are left out. Told once.

        Gives the names whose inputs cannot hold the value: a choice that is no longer offered, a number out of bounds.
        """
        known = {name: value for name, value in values.items() if name in self.inputs}
        with self._silently():
            for name, value in known.items():
                _put(self.inputs[name], self.plan[name], value)
        self._tell()
        held = self.values()
        return [name for name, value in known.items() if held[name] != value]

    def say(self, problems: Mapping[str, str]) -> None:
        """Show what is wrong, each beneath its field."""
        for name, place in self.problems.items():
            place.value = _problem(problems.get(name, ""))
        self.whole.value = _problem(problems.get(WHOLE, ""))

    def box(self) -> Any:
        """The form, in as many columns as there is room for."""
        import ipywidgets

        grid = ipywidgets.GridBox(
            [self._line(field) for field in self.plan.values()],
            layout=ipywidgets.Layout(
                grid_template_columns="repeat(auto-fill, minmax(min(420px, 100%), 1fr))", grid_gap="2px 28px"
            ),
        )
        return ipywidgets.VBox([grid, self.whole])

    def _line(self, field: Field) -> Any:
        import ipywidgets

        widget = self.inputs[field.name]
        parts = [widget]
        if field.pick:
            picker = Picker(
                field.pick, self.base, lambda: self._picked_from(field), lambda text: self._pick(field, text)
            )
            parts = [ipywidgets.HBox([widget, picker.button]), picker.place]
        words = ipywidgets.HTML(f'<div class="wb-help">{escape(field.help)}</div>')
        line = ipywidgets.VBox([*parts, words, self.problems[field.name]])
        line.add_class("wb-line")
        return line

    def _picked_from(self, field: Field) -> str:
        lines = str(self.inputs[field.name].value).splitlines()
        return lines[-1] if lines else ""

    def _pick(self, field: Field, text: str) -> None:
        widget = self.inputs[field.name]
        if field.kind == "list":
            old = [line for line in widget.value.splitlines() if line.strip()]
            text = "\n".join([*old, *([text] if text not in old else [])])
        widget.value = text

    def _tell(self) -> None:
        if self._changed and not self._quiet:
            self._changed()

    @contextlib.contextmanager
    def _silently(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


def _problem(text: str) -> str:
    # The role makes screen readers say it when it appears.
    return f'<div class="wb-problem" role="alert">{escape(text)}</div>' if text else ""


def _input(field: Field, value: Any) -> Any:
    import ipywidgets

    shared: dict[str, Any] = {
        "description": field.name,
        "tooltip": field.help,
        "style": {"description_width": f"{LABEL_PX}px"},
        "layout": ipywidgets.Layout(width="auto", flex="1 1 auto", min_width="0"),
    }
    # What a bounded input or a list of choices cannot hold is shown as it stands in the cell, for the model to refuse.
    if field.kind == "truth" and isinstance(value, bool):
        return ipywidgets.Checkbox(value=value, indent=True, **shared)
    if field.kind == "choice":
        choices = [*field.choices, *([None] if field.optional and None not in field.choices else [])]
        choices += [value] if value not in choices else []
        options = [("" if one is None else str(one), one) for one in choices]
        return ipywidgets.Dropdown(options=options, value=value, **shared)
    if field.kind == "list":
        text = fields.shown(field, value)
        lines = max(1, min(_MOST_LINES, len(text.splitlines())))
        placeholder = "one a line"
        return ipywidgets.Textarea(value=text, rows=lines, placeholder=placeholder, continuous_update=False, **shared)
    if (bounded := _bounded(field, value)) is not None:
        kind, limits = bounded
        return kind(value=value, **limits, **shared)
    # Told when it is left or Enter is pressed: half a path would be checked at every key.
    placeholder = "empty: none" if field.optional else ""
    return ipywidgets.Text(value=fields.shown(field, value), placeholder=placeholder, continuous_update=False, **shared)


def _bounded(field: Field, value: Any) -> tuple[Any, dict[str, Any]] | None:
    """A number's input with bounds; null where one of them is missing, or the value is not within."""
    import ipywidgets

    kinds = (int,) if field.kind == "whole" else (int, float)
    if field.optional or field.low is None or field.high is None or not isinstance(value, kinds):
        return None
    if isinstance(value, bool) or not field.low <= value <= field.high:
        return None
    if field.kind == "whole":
        return ipywidgets.BoundedIntText, {"min": int(field.low), "max": int(field.high)}
    return (ipywidgets.BoundedFloatText, {"min": field.low, "max": field.high}) if field.kind == "number" else None


def _put(widget: Any, field: Field, value: Any) -> None:
    held = fields.shown(field, value)
    if isinstance(widget.value, int | float) and not isinstance(widget.value, bool) and field.kind != "choice":
        held = value if isinstance(value, int | float) else widget.value
    # A choice that this version does not know is not offered.
    with contextlib.suppress(Exception):
        widget.value = held
