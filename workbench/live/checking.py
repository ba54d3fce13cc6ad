"""Values against the notebook's own model, and what is wrong with them in the words of the house."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import ConfigError, WorkbenchError

if TYPE_CHECKING:
    from pydantic import BaseModel

    Config = TypeVar("Config", bound=BaseModel)

WHOLE = ""
"""The key of a problem that is not one field's alone."""
_SHOWN_CHARS = 80


def taken(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a model's fields among a notebook's names.

    Raises
    ------
    ConfigError
        The notebook has no such name.
    """
    if missing := [name for name in model.model_fields if name not in given]:
        do = "run the parameters cell first, or add them to it"
        raise ConfigError("the notebook lacks parameters", where="parameters cell", found=missing, do=do)
    return {name: given[name] for name in model.model_fields}


def checked(model: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """The model of these values.

    Raises
    ------
    ConfigError
        It refuses them; every problem is told.
    """
    config, problems = examined(model, values)
    if config is None:
        told = "\n".join(f"{name}: {text}" if name else text for name, text in problems.items())
        raise ConfigError(
            told, where=f"parameters of {where}", do="change them in the panel, or in the parameters cell"
        )
    return config


def examined(model: type[Config], values: Mapping[str, Any]) -> tuple[Config | None, dict[str, str]]:
    """The model of these values, or what is wrong with them by field; `WHOLE` where it is not one field's alone.

    Examples
    --------
    >>> import pydantic
    >>> class Settings(pydantic.BaseModel):
    ...     rows: int = pydantic.Field(ge=1)
    >>> examined(Settings, {"rows": 0})
    (None, {'rows': 'must be greater than or equal to 1; found 0'})
    """
    from pydantic import ValidationError

    try:
        return model(**values), {}
    except ValidationError as error:
        problems: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0]) if detail["loc"] else WHOLE
            text = _words(detail)
            problems[name] = f"{problems[name]}; {text}" if name in problems else text
        return None, problems
    except WorkbenchError as error:
        # A model may ask a tested function; pydantic lets through what is no ValueError.
        return None, {WHOLE: str(error)}


def _words(detail: Any) -> str:
    """One of pydantic's findings as we say it."""
    text = str(detail["msg"])
    if detail["type"] == "value_error":
        return text.removeprefix("Value error, ")
    text = text.replace("Input should be", "must be").replace("String should have", "must have")
    text = text.replace("List should have", "must have")
    place = "".join(f", entry {part + 1}" for part in detail["loc"][1:] if isinstance(part, int))
    found = repr(detail.get("input"))
    found = found if len(found) <= _SHOWN_CHARS else found[: _SHOWN_CHARS - 1] + "…"
    return f"{text[:1].lower()}{text[1:]}; found {found}{place}"
