"""Columns hidden or left out of a dump, before anything of them is written or fingerprinted."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import ConfigError
from workbench.lore.bridge import Bridge, class_of
from workbench.lore.inputs import Input
from workbench.lore.plan import Node

if TYPE_CHECKING:
    from workbench.lore.config import DumpSettings

MASKED = "masked: results differ from the original"
How = Literal["hash", "null"]
# A table's keys are bound by position there, and a union pairs its inputs' columns by position.
_BY_POSITION = ("broadcast", "subquery")


def key_literal() -> str:
    """SQL of a new key of hashes, for expressions that are no part of a query: a plan's text shows literals."""
    return f"'{secrets.token_hex(16)}'"


@contextlib.contextmanager
def masking_key(bridge: Bridge) -> Iterator[str]:
    """SQL of a new key of hashes for one call of dump, for queries of the quiet session made within the block.

    Equal values stay equal across inputs and operators, and nobody can look them up: the key is written nowhere. It is
    the row of a table, which no plan's text shows, for those texts go into Spark's event log and its UI.
    """
    quiet = bridge.quiet()
    table = f"lore_key_{secrets.token_hex(8)}"
    strings = quiet.jvm.org.apache.spark.sql.Encoders.STRING()
    quiet.session.createDataset([secrets.token_hex(16)], strings).createOrReplaceTempView(table)
    try:
        yield f"(SELECT value FROM {table})"  # noqa: S608 - the name is of digits
    finally:
        quiet.session.catalog().dropTempView(table)


@dataclass
class Masking:
    """What becomes of each input's columns.

    Attributes
    ----------
    key
        SQL of the hashes' key (`masking_key`): one for all operators of a call of dump.
    warnings
        Where the operator itself uses a masked column.
    """

    settings: DumpSettings
    key: str
    warnings: list[str] = field(default_factory=list)

    def how(self, name: str) -> How | None:
        """How a column is masked; null when it is not."""
        wanted: Mapping[str, How] = {column.lower(): how for column, how in (self.settings.mask or {}).items()}
        return wanted.get(name.lower())

    def applies(self, inputs: list[Input], bridge: Bridge) -> bool:
        """Does any input have a column that is masked or left out?"""
        return bool(self.settings.columns) or any(
            self.how(str(attribute.name())) for one in inputs for attribute in bridge.listed(one.output)
        )

    def check(self, node: Node, inputs: list[Input], bridge: Bridge) -> None:
        """Refuse names that no input has; say where the operator uses what is masked.

        Raises
        ------
        ConfigError
            A name that is no column of any input.
        """
        names = {str(attribute.name()).lower() for one in inputs for attribute in bridge.listed(one.output)}
        asked = [*(self.settings.mask or {}), *[name for list_ in self._kept_lists() for name in list_]]
        if unknown := sorted({name for name in asked if name.lower() not in names}):
            raise ConfigError(
                "no input has such a column", where=f"loreId {node.lore_id}", found=unknown, allowed=sorted(names)
            )
        used = used_names(node, bridge)
        for name in self.settings.mask or {}:
            if name.lower() in used:
                self.warnings.append(
                    f"loreId {node.lore_id}: {node.name} compares, sorts or computes on {name}, which is masked: "
                    "rows may be matched, ordered or computed otherwise than before"
                )

    def _kept_lists(self) -> list[list[str]]:
        columns = self.settings.columns
        return list(columns.values()) if isinstance(columns, dict) else [columns] if columns else []

    def kept(self, node: Node, index: int, one: Input, bridge: Bridge) -> Input:
        """The input with only the columns that are to be kept.

        Raises
        ------
        ConfigError
            The operator needs one that is not.
        """
        columns = self.settings.columns
        wanted = columns.get(index) if isinstance(columns, dict) else columns
        attributes = bridge.listed(one.output)
        if not wanted:
            return one
        names = {name.lower() for name in wanted}
        kept = [attribute for attribute in attributes if str(attribute.name()).lower() in names]
        if len(kept) == len(attributes):
            return one
        needed = sorted(used_names(node, bridge) & {str(a.name()).lower() for a in attributes} - names)
        by_position = one.kind in _BY_POSITION or node.kind == "UnionExec"
        if needed or by_position:
            raise ConfigError(
                "the operator needs columns that would be left out",
                where=f"--columns, loreId {node.lore_id}, input-{index}",
                found=needed or "its columns are known by their position",
                do="name these, too, or hide them with --mask",
            )
        return replace(one, output=bridge.seq(kept))

    def expression(self, attribute: Any, stored: str) -> str | None:
        """SQL of a masked column; null when it is not masked."""
        how = self.how(str(attribute.name()))
        if how is None:
            return None
        column, kind = f"`{stored}`", str(attribute.dataType().catalogString())
        if how == "null":
            return f"CAST(NULL AS {kind})"
        return f"IF({column} IS NULL, NULL, {_hashed(column, kind, self.key, str(attribute.name()))})"


def used_names(node: Node, bridge: Bridge) -> set[str]:
    """Lower-case names of the columns that the operator's own expressions refer to, passing on not counted."""
    found: set[str] = set()
    for expression in bridge.listed(node.java.expressions()):
        passes = class_of(expression) == "AttributeReference" and node.kind in ("ProjectExec", "GenerateExec")
        if passes:
            continue
        for attribute in bridge.listed(expression.references().toSeq()):
            found.add(str(attribute.name()).lower())
    return found


def _hashed(column: str, kind: str, key: str, name: str) -> str:
    """SQL of a keyed hash of the same type."""
    number = f"xxhash64({key}, {column})"
    plain = {
        "string": f"substring(sha2(concat({key}, {column}), 256), 1, 32)",
        "binary": f"unhex(sha2(concat(encode({key}, 'UTF-8'), {column}), 256))",
        "bigint": number,
        "int": f"CAST({number} & 2147483647L AS INT)",
        "smallint": f"CAST({number} & 32767L AS SMALLINT)",
        "tinyint": f"CAST({number} & 127L AS TINYINT)",
        "boolean": f"({number} & 1L) = 1L",
        "double": f"CAST({number} & 4294967295L AS DOUBLE)",
        "float": f"CAST({number} & 16777215L AS FLOAT)",
        "date": f"date_add(DATE'1970-01-01', CAST(pmod({number}, 36500L) AS INT))",
        "timestamp": f"timestamp_seconds(pmod({number}, 4102444800L))",
        "timestamp_ntz": f"CAST(timestamp_seconds(pmod({number}, 4102444800L)) AS TIMESTAMP_NTZ)",
    }
    if kind in plain:
        return plain[kind]
    if kind.startswith("decimal("):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        digits = min(precision - scale, 18)
        return f"CAST(pmod({number}, {10**digits}L) AS {kind})" if digits else f"CAST(0 AS {kind})"
    raise ConfigError(
        "a column of this type cannot be hashed", where=f"--mask {name}", found=kind, do=f"--mask {name}=null"
    )
