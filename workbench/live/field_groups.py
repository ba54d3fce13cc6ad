"""Groups of a form's fields: the basic ones stand open, others fold, by what they are for or by mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


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
        """When the group is used, in words; empty when always."""
        return f"used with {self.when}" if self.when else f"used without {self.unless}" if self.unless else ""


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
