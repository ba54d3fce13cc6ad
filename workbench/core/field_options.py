"""How a field of a model becomes an option of a command: what its flag, its value and its help have of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError
from workbench.core.formats import cut_text

UNSET: Any = object()
MAX_SHOWN_CHARS = 60
Parse = Callable[[Any, str], Any]
"""Makes a field's value of what stands behind the flag; the second argument is the flag, for an error."""


@dataclass(frozen=True)
class FieldOption:
    """How a command shows a field, where the field's name, type and description do not tell it.

    It is given with the field (`setting`), or by the one command that differs.
    `group`: Heading in the help; a command takes the fields of the groups that it names.
    `flags`: All spellings of the flag, where that does not tell them: ("--output-dir", "-o"), ("--cache/--no-
    cache",).
    `min`, `max`: Bounds that the command line checks itself; the model's are checked in any case.
    """

    name: str | None = None
    flags: tuple[str, ...] = ()
    kind: Any = None
    default: Any = UNSET
    show_default: bool | str | None = None
    help: str | None = None
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    parse: Parse | None = None
    group: str = ""


def setting(default: Any, description: str, group: str = "", *, flag: str | None = None, **rules: Any) -> Any:
    """A field with its option: default, meaning, heading in the help, and rules of pydantic or `FieldOption`.

    >>> from pydantic import BaseModel
    >>> class Load(BaseModel):
    ...     users: int = setting(1, "Users at once.", "Load", ge=1, metavar="N")
    >>> Load().users, [rule for rule in Load.model_fields["users"].metadata if isinstance(rule, FieldOption)][0].metavar
    (1, 'N')
    """
    from pydantic import Field

    own = {name: rules.pop(name) for name in [*rules] if name in FieldOption.__dataclass_fields__}
    info = Field(default, description=description, **rules)
    info.metadata.append(FieldOption(flag, group=group, **own))
    return info


def parse_numbers(text: str, flag: str) -> list[int] | list[float]:
    """Numbers between commas: whole ones where all are, as `N,N,…`.

    >>> parse_numbers("1,2,4", "--users"), parse_numbers("0.5,2", "--rates")
    ([1, 2, 4], [0.5, 2.0])
    """
    parts = [part.strip() for part in text.split(",")]
    for kind in (int, float):
        try:
            return [kind(part) for part in parts]
        except ValueError:
            continue
    raise ConfigError("not a list of numbers", where=flag, found=shorten_value(text), allowed="like 1,2,4,8")


def parse_pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """NAME=VALUE, repeated, as a dictionary.

    >>> parse_pairs(["Authorization=TOKEN"], "--header-env")
    {'Authorization': 'TOKEN'}
    """
    pairs = [text.partition("=") for text in texts]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise ConfigError("not a name and a value", where=flag, allowed="NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_json_option(text: str, flag: str) -> Any:
    """JSON, or `@FILE` that holds it.

    >>> parse_json_option('{"temperature": 0}', "--extra-body")
    {'temperature': 0}
    """
    from workbench.core.data_files import parse_json, read_text_file

    if text.startswith("@"):
        text = read_text_file(text[1:], noun=f"file of {flag}", error_type=ConfigError)
    return parse_json(text, noun="option's value", where=flag, error_type=ConfigError)


def shorten_value(value: object) -> str:
    text = str(value)
    return cut_text(text, MAX_SHOWN_CHARS)
