"""What the user may set for a dump: from the plugin's keys on the session, from Python, from the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import ConfigError
from workbench.lore.selection import EXAMPLE, Selection, selected, spelled

PREFIX = "spark.rapids.sql.lore."
MiB = 1 << 20
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": MiB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgtp]?b?)", re.IGNORECASE | re.ASCII)
Get = Callable[[str, str | None], str | None]


def size_bytes(value: object, *, where: str = "max_bytes") -> int:
    """How many bytes are meant by `512m`, `1g` or a number? Units are powers of 1024, as Spark's.

    Raises
    ------
    ConfigError
        Anything else; 0 as well, for nothing could be written.

    Examples
    --------
    >>> size_bytes("512m"), size_bytes("1 GB"), size_bytes(4096)
    (536870912, 1073741824, 4096)
    """
    matched = _SIZE.fullmatch(str(value).strip())
    if matched is None or isinstance(value, bool | float):
        raise ConfigError("not a size", where=where, found=repr(value)[:60], allowed="bytes, or like 512m, 1g, 2t")
    unit = matched[2].lower()
    n_bytes = int(matched[1]) * _UNITS[unit if unit == "b" else unit.removesuffix("b")]
    if not 0 < n_bytes < 1 << 63:
        raise ConfigError("a size out of range", where=where, found=repr(value)[:60], allowed="1 byte to 8 EiB")
    return n_bytes


def boolean(value: object, *, where: str) -> bool:
    """`true` or `false` in any case, as Spark reads its own settings; yes, 1 and the like are errors there, too.

    Raises
    ------
    ConfigError
        Anything else.

    Examples
    --------
    >>> boolean(" True", where="key"), boolean(False, where="key")
    (True, False)
    """
    text = str(value).strip().lower()
    if text not in ("true", "false") or not isinstance(value, str | bool):
        raise ConfigError("neither true nor false", where=where, found=repr(value)[:60], allowed=["true", "false"])
    return text == "true"


def _inverted(value: object, *, where: str) -> bool:
    return not boolean(value, where=where)


def _text(value: object, *, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError("not a text", where=where, found=repr(value)[:60])
    return value.strip()


# The plugin's keys, and the setting that each of them is.
# Source: its RapidsConf, as of 2026-04. The key is `skip.plan.dump`, whatever texts about it say.
KEYS: dict[str, tuple[str, Callable[..., object]]] = {
    "idsToDump": ("ids", _text),
    "dumpPath": ("path", _text),
    "tag.enabled": ("tag_enabled", boolean),
    "skip.plan.dump": ("skip_plan_dump", boolean),
    "nonStrictMode.enabled": ("strict", _inverted),
    "parquet.useOriginalSchemaNames": ("original_names", boolean),
}


def _whole_numbers(value: object) -> object:
    # Pydantic would take True for 1 and "7" for 7.
    if isinstance(value, bool):
        raise ValueError("true or false is no number")
    return value


Rows = Annotated[int, BeforeValidator(_whole_numbers)]
InputNumber = Annotated[int, Field(ge=0, le=1_000)]
ColumnNames = Annotated[list[str], Field(min_length=1)]


class DumpSettings(BaseModel):
    """What is dumped, where to, and how.

    `ids` may be given as the plugin's text or as partitions by id, `max_bytes` as a text like 512m.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    ids: dict[int, Selection] = Field(default={}, description=f"Operators and partitions, like {EXAMPLE}.")
    path: str = Field(default="", description="Folder or Hadoop URL that gets loreId-N; new, or empty.")
    strict: bool = Field(default=True, description="Refuse the whole dump where an operator cannot be dumped.")
    tag_enabled: bool = Field(default=True, description="Give ids and show them; without, nothing can be dumped.")
    skip_plan_dump: bool = Field(default=False, description="Write data only; it can be inspected, not replayed.")
    original_names: bool = Field(default=True, description="Parquet columns named as in the plan where possible.")
    max_bytes: int | None = Field(default=None, description="Largest dump in bytes, or like 512m; no cap when null.")
    batch_rows: Rows = Field(default=1_000_000, ge=1, le=2**31 - 1, description="Most rows of one batch file.")
    columns: ColumnNames | dict[InputNumber, ColumnNames] = Field(
        default={}, description="Columns kept: of every input, or by input; then all of an input that is not named."
    )
    mask: dict[str, Literal["hash", "null"]] = Field(
        default={}, description="Columns whose values are replaced: by a keyed hash of the same type, or by null."
    )
    keep_output_rows: Annotated[int, BeforeValidator(_whole_numbers)] = Field(
        default=100_000, ge=0, description="Rows of the output kept beside its fingerprint, for a diff; 0 for none."
    )
    mode: Literal["post-hoc", "inline"] = Field(
        default="post-hoc", description="Compute the inputs again after the run, or write them during it."
    )

    @model_validator(mode="before")
    @classmethod
    def _readable(cls, given: Any) -> Any:
        """The forms that people write."""
        if not isinstance(given, Mapping):
            return given
        read = dict(given)
        if (ids := read.get("ids")) is not None and not _are_selections(ids):
            read["ids"] = selected(ids)
        if isinstance(path := read.get("path"), PurePath):
            read["path"] = str(path)
        if (cap := read.get("max_bytes")) is not None:
            read["max_bytes"] = size_bytes(cap)
        for name in ("strict", "tag_enabled", "skip_plan_dump", "original_names"):
            if name in read:
                read[name] = boolean(read[name], where=name)
        return read

    @model_validator(mode="after")
    def _fits(self) -> DumpSettings:
        if self.ids and not self.path.strip():
            raise ConfigError(
                "ids are chosen, but not where to dump them",
                where=f"{PREFIX}dumpPath",
                found=spelled(self.ids)[:60],
                do=f"set {PREFIX}dumpPath, or give path=, to a new folder",
            )
        if self.ids and not self.tag_enabled:
            raise ConfigError(
                "operators are chosen by id, but ids are switched off",
                where=f"{PREFIX}tag.enabled",
                do=f"unset {PREFIX}tag.enabled, or {PREFIX}idsToDump",
            )
        return self


def from_session(get: Get, **arguments: Any) -> DumpSettings:
    """Settings from the plugin's keys on a session; arguments that are given and not None win over them.

    Parameters
    ----------
    get
        Called with a key and None; gives the key's text, or None where it is not set.
    **arguments
        Fields of `DumpSettings`.

    Returns
    -------
    DumpSettings
        Without ids when neither names any: there is nothing to dump then.

    Raises
    ------
    ConfigError
        A value that is none, an unknown argument, ids without a path; all that is wrong with the arguments at once.

    Examples
    --------
    >>> keys = {"spark.rapids.sql.lore.idsToDump": "3[0]", "spark.rapids.sql.lore.dumpPath": "dumps/a"}
    >>> from_session(keys.get, path="dumps/b").path
    'dumps/b'
    """
    found: dict[str, Any] = {}
    given = {name: value for name, value in arguments.items() if value is not None}
    for key, (name, read) in KEYS.items():
        value = get(PREFIX + key, None)
        if value is not None and name not in given:
            found[name] = selected(value, where=PREFIX + key) if name == "ids" else read(value, where=PREFIX + key)
    return settings(**(found | given))


def settings(**values: Any) -> DumpSettings:
    """`DumpSettings`, with what is wrong as one ConfigError.

    Raises
    ------
    ConfigError
        Unknown names (with those there are), wrong types, values out of range.
    """
    if unknown := sorted(set(values) - set(DumpSettings.model_fields)):
        raise ConfigError("unknown setting", found=unknown, allowed=sorted(DumpSettings.model_fields))
    try:
        return DumpSettings(**values)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"[:200] for fault in error.errors()]
        raise ConfigError("settings of the dump are wrong", found=faults) from error


def _are_selections(ids: object) -> bool:
    return isinstance(ids, Mapping) and all(isinstance(one, Selection) for one in ids.values())
