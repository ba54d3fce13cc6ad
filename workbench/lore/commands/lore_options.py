"""Options that several lore commands share, and how their values are parsed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from workbench.core.field_options import FieldOption

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
Master = Annotated[str, typer.Option("--master", help="Spark master URL.")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Memory of the driver, like 4g.")]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="A folder loreId-N, a bundle FILE.zip, or a URL.")]

Folders = Annotated[
    list[str], typer.Argument(metavar="DIR...", help="Folders loreId-N, bundles FILE.zip, or URLs.", show_default=False)
]


def parse_setting_flags(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """`KEY=VALUE` options as a dictionary; see `config.parse_settings`.

    >>> parse_setting_flags(["spark.sql.ansi.enabled=true"], "--conf")
    {'spark.sql.ansi.enabled': 'true'}
    """
    from workbench.lore.config import parse_settings

    return parse_settings(texts, where=flag)


def _build_settings_option(name: str) -> FieldOption:
    return FieldOption(name, kind=list[str], metavar="KEY=VALUE", parse=parse_setting_flags)


REPLAY_FLAGS = {
    "partition": FieldOption(min=0),
    "confs": _build_settings_option("conf"),
    "confs_a": _build_settings_option("a"),
    "confs_b": _build_settings_option("b"),
}
"""Flags of `VariantOptions` that differ from its fields."""
