"""The form's plan: what each field of a notebook's model is, read from the model and from the parameters cell."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from workbench.live.choosing import Pick

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from workbench.parameters import Parameter

Kind = Literal["choice", "truth", "whole", "number", "text", "list"]
_KINDS: dict[Any, Kind] = {bool: "truth", int: "whole", float: "number", str: "text"}


@dataclass(frozen=True)
class Field:
    """One line of the form.

    Attributes
    ----------
    kind
        choice (of `choices`), truth, whole, number, text, or list (of `item`, one a line).
    optional
        May it be empty, which means null?
    low, high
        Bounds that it may reach; null where there is none. A bound that must not be reached counts as one here: the
        model has the last word.
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


def fields(model: type[BaseModel], declared: Iterable[Parameter] = ()) -> tuple[Field, ...]:
    """The form's lines in the model's order; the help is the parameters cell's comment, else the model's words."""
    comments: Mapping[str, str] = {item.name: item.comment for item in declared if item.comment}
    return tuple(
        _field(name, info, comments.get(name) or info.description or "") for name, info in model.model_fields.items()
    )


def _field(name: str, info: FieldInfo, words: str) -> Field:
    kind, optional = _without_none(info.annotation)
    low, high = _bounds(info.metadata)
    pick = next((one for one in info.metadata if isinstance(one, Pick)), None)
    if get_origin(kind) is Literal:
        return Field(name, "choice", words, optional, choices=get_args(kind))
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return Field(name, "list", words, optional, item=_plain(item), pick=pick)
    return Field(name, _KINDS.get(kind, "text"), words, optional, low=low, high=high, pick=pick)


def _plain(kind: Any) -> Any:
    """A type without what it is annotated with."""
    return get_args(kind)[0] if get_origin(kind) is typing.Annotated else kind


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    others = [one for one in get_args(kind) if one is not type(None)]
    return _plain(others[0]), len(others) < len(get_args(kind))


def _bounds(metadata: Iterable[Any]) -> tuple[float | None, float | None]:
    low = high = None
    for one in metadata:
        low = next((bound for bound in (getattr(one, "ge", None), getattr(one, "gt", None)) if bound is not None), low)
        high = next(
            (bound for bound in (getattr(one, "le", None), getattr(one, "lt", None)) if bound is not None), high
        )
    return low, high


def shown(field: Field, value: Any) -> Any:
    """A value as its input holds it: texts for what is typed, empty for null, a line for each entry of a list.

    Examples
    --------
    >>> shown(Field("a", "list", ""), ["x", "y"]), shown(Field("b", "number", "", optional=True), None)
    ('x\\ny', '')
    """
    if field.kind == "list":
        # A cell, or a run of another version, may hold no list.
        return "\n".join(map(str, value if isinstance(value, list | tuple) else [] if value is None else [value]))
    if field.kind in ("choice", "truth"):
        return value
    return "" if value is None else str(value)


def read(field: Field, held: Any) -> Any:
    """What an input holds as a value of the model; a text that spells none stays one, for the model to refuse.

    Examples
    --------
    >>> read(Field("a", "list", "", item=int), "1\\n\\n2"), read(Field("b", "number", "", optional=True), " ")
    ([1, 2], None)
    >>> read(Field("c", "whole", ""), "many")
    'many'
    """
    if field.kind == "list":
        return [_typed(field.item, line.strip()) for line in str(held).splitlines() if line.strip()]
    if field.kind == "choice" or isinstance(held, bool):
        return held
    if field.optional and not str(held).strip():
        return None
    return _typed({"whole": int, "number": float}.get(field.kind, str), str(held))


def _typed(kind: Any, text: str) -> Any:
    from workbench import literals

    if kind is str:
        return text
    try:
        return literals.from_text(kind, text)
    except (ValueError, TypeError):
        return text
