"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")
Source = Annotated[
    str | None,
    typer.Argument(metavar="[QUERY]", help="FILE.sql, or FILE.py:FUNCTION of the session.", show_default=False),
]
Sql = Annotated[str | None, typer.Option("--sql", help="The query itself, instead of a file.", show_default=False)]
Views = Annotated[
    list[str] | None,
    typer.Option("--view", metavar="NAME=PATH", help="A table: Parquet, ORC, JSON or CSV; repeat.", show_default=False),
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Every *.parquet in it becomes a table.", show_default=False)
]
Confs = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeat.", show_default=False)
]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Memory of the driver, like 4g.")]


def pairs(texts: Iterable[str] | None, *, where: str, allowed: str = "KEY=VALUE") -> dict[str, str]:
    """`key=value` texts as a mapping; of a key given twice the last one wins, as Spark has it.

    Raises
    ------
    ConfigError
        No = in it.
    """
    from workbench.errors import ConfigError

    found: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError("not a setting", where=where, found=text[:200], allowed=allowed)
        found[key.strip()] = value
    return found


def checked(model: type[Model], values: Mapping[str, Any]) -> Model:
    """The model of a command's options, made of what was given by their names.

    Raises
    ------
    ConfigError
        One is not what its option allows; named as on the command line.
    """
    from pydantic import ValidationError

    from workbench.errors import ConfigError

    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigError(
            "not an option's value", where=where, found=first.get("input"), allowed=first["msg"]
        ) from error


def written(path: Path | None, text: str) -> None:
    """Write a text file whole, when one is asked for."""
    from workbench import files

    if path is not None:
        files.write_text(path, text)
