"""Settings of a dump and of the notebook: session keys, Python arguments, command line, parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from workbench.core.errors import ConfigError
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup
from workbench.lore.dumps.operator_selection import EXAMPLE_SELECTION, Selection, build_selection, format_selection

PREFIX = "spark.rapids.sql.lore."
MiB = 1 << 20
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": MiB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgtp]?b?)", re.IGNORECASE | re.ASCII)
GetConf = Callable[[str, str | None], str | None]
InputNumber = Annotated[int, Field(ge=0, le=1_000)]
ColumnNames = Annotated[list[str], Field(min_length=1)]
_QUERY_PICK = Pick("query", files=("*.sql", "*.py"))
_TABLES_PICK = Pick("folder of tables", folders=("*.parquet",))
_DUMP_PICK = Pick("dump or bundle", files=("*.zip",), folders=("plan.json", "plan.meta"))
_PLACE_PICK = Pick("folder", folders=("*",))
_NUMBER_PATTERN = re.compile(r"\s*\d+\s*", re.ASCII)


def parse_size(value: object, *, where: str = "max_bytes") -> int:
    """Parse a size such as `512m`, `1g` or a number of bytes; units are powers of 1024, as in Spark.

    >>> parse_size("512m"), parse_size("1 GB"), parse_size(4096)
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


def parse_settings(texts: Iterable[str] | None, *, where: str, allowed: str = "KEY=VALUE") -> dict[str, str]:
    """Parse `KEY=VALUE` texts into a dictionary; the last value of a key wins, as in Spark.

    >>> parse_settings(["spark.sql.ansi.enabled=true", "spark.x=a=b"], where="--conf")
    {'spark.sql.ansi.enabled': 'true', 'spark.x': 'a=b'}
    """
    settings: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError("not a setting", where=where, found=text[:200], allowed=allowed)
        settings[key.strip()] = value
    return settings


def parse_boolean(value: object, *, where: str) -> bool:
    """Parse `true` or `false` in any case, as Spark does; other values are errors.

    >>> parse_boolean(" True", where="key"), parse_boolean(False, where="key")
    (True, False)
    """
    text = str(value).strip().lower()
    if text not in ("true", "false") or not isinstance(value, str | bool):
        raise ConfigError("neither true nor false", where=where, found=repr(value)[:60], allowed=["true", "false"])
    return text == "true"


def _parse_inverted_boolean(value: object, *, where: str) -> bool:
    return not parse_boolean(value, where=where)


def _check_text(value: object, *, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError("not a text", where=where, found=repr(value)[:60], do="give a text")
    return value.strip()


# Keys of the plugin, and their settings. Source: its RapidsConf, as of 2026-04 (texts on `skip.plan.dump` differ).
KEYS: dict[str, tuple[str, Callable[..., object]]] = {
    "idsToDump": ("ids", _check_text),
    "dumpPath": ("path", _check_text),
    "tag.enabled": ("tag_enabled", parse_boolean),
    "skip.plan.dump": ("skip_plan_dump", parse_boolean),
    "nonStrictMode.enabled": ("strict", _parse_inverted_boolean),
    "parquet.useOriginalSchemaNames": ("original_names", parse_boolean),
}


def _refuse_booleans(value: object) -> object:
    # Pydantic would accept True as 1.
    if isinstance(value, bool):
        raise ValueError("true or false is no number")
    return value


RowCount = Annotated[int, BeforeValidator(_refuse_booleans)]


class DumpSettings(BaseModel):
    """Settings of a dump.

    `ids` may be the plugin's text or partitions by id, `max_bytes` a text like 512m.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    ids: dict[int, Selection] = Field(default={}, description=f"Operators and partitions, like {EXAMPLE_SELECTION}.")
    path: str = Field(default="", description="New or empty folder, or Hadoop URL, for loreId-N.")
    strict: bool = Field(default=True, description="Refuse the whole dump when an operator cannot be dumped.")
    tag_enabled: bool = Field(default=True, description="Assign and show ids; needed for dumps.")
    skip_plan_dump: bool = Field(default=False, description="Write data only, for inspection; it cannot be replayed.")
    original_names: bool = Field(default=True, description="Parquet columns named as in the plan where possible.")
    max_bytes: int | None = Field(default=None, description="Maximum size in bytes, or like 512m; no limit when null.")
    batch_rows: RowCount = Field(default=1_000_000, ge=1, le=2**31 - 1, description="Maximum rows of one file.")
    columns: ColumnNames | dict[InputNumber, ColumnNames] = Field(
        default={}, description="Columns kept: of every input, or by input; then all of an input that is not named."
    )
    mask: dict[str, Literal["hash", "null"]] = Field(
        default={}, description="Columns whose values are replaced: by a keyed hash of the same type, or by null."
    )
    keep_output_rows: Annotated[int, BeforeValidator(_refuse_booleans)] = Field(
        default=100_000, ge=0, description="Keep the output up to this many rows, to show differences; 0 for none."
    )
    subtree: Literal["stage", "scans"] | None = Field(
        default=None,
        description="stage, scans: dump all operators below, too, down to the stage's exchanges or to the scans.",
    )
    mode: Literal["post-hoc", "inline"] = Field(
        default="post-hoc", description="post-hoc (after the run) or inline (during it)."
    )

    @model_validator(mode="before")
    @classmethod
    def _normalize_forms(cls, fields: Any) -> Any:
        """Accept texts for ids, paths, sizes and booleans."""
        if not isinstance(fields, Mapping):
            return fields
        read = dict(fields)
        if (ids := read.get("ids")) is not None and not (
            isinstance(ids, Mapping) and all(isinstance(selection, Selection) for selection in ids.values())
        ):
            read["ids"] = build_selection(ids)
        if isinstance(path := read.get("path"), PurePath):
            read["path"] = str(path)
        if (cap := read.get("max_bytes")) is not None:
            read["max_bytes"] = parse_size(cap)
        for name in ("strict", "tag_enabled", "skip_plan_dump", "original_names"):
            if name in read:
                read[name] = parse_boolean(read[name], where=name)
        return read

    @model_validator(mode="after")
    def _check_fields(self) -> DumpSettings:
        if self.ids and not self.path.strip():
            raise ConfigError(
                "ids are given without a dump path",
                where=f"{PREFIX}dumpPath",
                found=format_selection(self.ids)[:60],
                do=f"set {PREFIX}dumpPath, or give path=, to a new folder",
            )
        if self.subtree is not None and self.mode == "inline":
            raise ConfigError(
                "a subtree is dumped after the run",
                where="--subtree",
                found="mode inline",
                do="omit --mode inline, or dump one operator",
            )
        if self.ids and not self.tag_enabled:
            raise ConfigError(
                "ids are given, but tagging is disabled",
                where=f"{PREFIX}tag.enabled",
                do=f"unset {PREFIX}tag.enabled, or {PREFIX}idsToDump",
            )
        return self


def settings_from_session(get: GetConf, **arguments: Any) -> DumpSettings:
    """Settings from the plugin's keys on a session; arguments other than None override them.

    `get`: Called with a key and None; returns the key's text, or None.

    >>> keys = {"spark.rapids.sql.lore.idsToDump": "3[0]", "spark.rapids.sql.lore.dumpPath": "dumps/a"}
    >>> settings_from_session(keys.get, path="dumps/b").path
    'dumps/b'
    """
    session_settings: dict[str, Any] = {}
    overrides = {name: value for name, value in arguments.items() if value is not None}
    for key, (name, read) in KEYS.items():
        value = get(PREFIX + key, None)
        if value is not None and name not in overrides:
            session_settings[name] = (
                build_selection(value, where=PREFIX + key) if name == "ids" else read(value, where=PREFIX + key)
            )
    return build_dump_settings(**(session_settings | overrides))


def build_dump_settings(**values: Any) -> DumpSettings:
    """Build `DumpSettings`; all errors in one ConfigError."""
    if unknown := sorted(set(values) - set(DumpSettings.model_fields)):
        raise ConfigError("unknown setting", found=unknown, allowed=sorted(DumpSettings.model_fields))
    try:
        return DumpSettings(**values)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"[:200] for fault in error.errors()]
        raise ConfigError(
            "settings of the dump are wrong", found=faults, do="correct them; workbench lore dump --help lists them"
        ) from error


class NotebookConfig(BaseModel):
    """Settings of the notebook: query, operator and settings to replay, or an existing dump."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Sides to compare", ("confs_a", "confs_b", "engine")),
        FieldGroup("An existing dump", ("dump_folder", "trust")),
        FieldGroup("More settings", ("views", "confs", "partition", "repeat", "dump_path", "level")),
    )

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_file: Annotated[str, _QUERY_PICK] = Field(
        description="FILE.sql, or FILE.py:FUNCTION of the session, which gives a DataFrame."
    )
    data_folder: Annotated[str, _TABLES_PICK] = Field(
        default="", description="Folder whose *.parquet become views of their names; none if empty."
    )
    views: list[str] = Field(default=[], description="Further views, NAME=PATH each: Parquet, ORC, JSON or CSV.")
    confs: list[str] = Field(default=[], description="Settings of the query's session, KEY=VALUE each.")
    ids: str = Field(default="", description="Operator and partitions, 10 or 10[0 2]; the study chooses when empty.")
    partition: int | None = Field(default=None, ge=0, description="Only this one; all of them when null.")
    repeat: int = Field(
        default=11, ge=0, le=1000, description="Timed runs of each side, after the verified one; from 6 on at most."
    )
    confs_a: list[str] = Field(default=[], description="Settings of side A, KEY=VALUE each.")
    confs_b: list[str] = Field(default=[], description="Settings of side B; no comparison when both are empty.")
    engine: Literal["spark", "comet"] = Field(default="spark", description="comet: side B is that engine.")
    dump_folder: Annotated[str, _DUMP_PICK] = Field(
        default="", description="loreId-N or a bundle FILE.zip: only look into it and replay it."
    )
    trust: bool = Field(default=False, description="Load a dump that you did not sign.")
    dump_path: Annotated[str, _PLACE_PICK] = Field(
        default="", description="New folder for the dump; below the run folder when empty."
    )
    level: float = Field(default=0.9, gt=0.5, lt=1, description="Confidence of the intervals.")

    @model_validator(mode="after")
    def _check_parameters(self) -> NotebookConfig:
        if not self.dump_folder and not self.query_file:
            raise ValueError("give query_file, or dump_folder to replay an existing dump")
        if self.partition is not None and "[" in self.ids:
            raise ValueError("give partitions in ids or as partition, not both")
        for name in ("dump_folder", "dump_path"):
            if "://" in getattr(self, name):
                raise ValueError(f"{name} must be on this machine; `workbench lore` also takes URLs of Hadoop")
        return self

    @property
    def selection(self) -> str:
        """`ids` in the form of the plugin's key; empty when the study chooses.

        >>> NotebookConfig(query_file="q.sql", ids="10", partition=2).selection
        '10[2]'
        """
        return (
            format_operator_id(int(self.ids), self.partition)
            if _NUMBER_PATTERN.fullmatch(self.ids)
            else self.ids.strip()
        )

    @property
    def dump_source(self) -> Path | None:
        """The existing dump; null for a query."""
        return Path(self.dump_folder) if self.dump_folder else None


def format_operator_id(lore_id: int, partition: int | None) -> str:
    """One operator with one partition or all, in the form of the plugin's key."""
    return f"{lore_id}[{'*' if partition is None else partition}]"
