"""What the accelerator supports by the tables of the original's release, and the factor of each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.speedup.builtin import Support as Row
from workbench.speedup.builtin import supported_execs, supported_expressions, supported_formats
from workbench.speedup.seed.reads import Read
from workbench.speedup.seed.scala_order import immutable

RELEASE = "24.08"
SUPPORTED = frozenset({"S", "PS", "TON"})
# Levels whose notes become the reason; the second group only when there is a note.
ALWAYS_TOLD, TOLD_WITH_NOTE = frozenset({"TOFF"}), frozenset({"NS", "CO"})
OTHER_NAMES = {
    "long": ("bigint",),
    "short": ("smallint",),
    "int": ("integer",),
    "byte": ("tinyint",),
    "float": ("real",),
    "decimal": ("dec", "numeric"),
    "calendar": ("interval",),
}


class Unsupported(NamedTuple):
    """An expression that is not supported, with the reason where the tables give one."""

    name: str
    reason: str


class Support:
    """The tables, ready to be asked; `factors` are those of the factor file or the platform."""

    def __init__(self, factors: Mapping[str, float]) -> None:
        self.factors = factors
        self.execs = {row.name: row.level for row in supported_execs(RELEASE)}
        self.expressions: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        for row in supported_execs(RELEASE):
            self._note(row.name.removesuffix("Exec"), row)
        for row in supported_expressions(RELEASE):
            for name in (row.name, *row.functions):
                key = name.lower().replace("`", "").replace(" ", "")
                self.expressions[key] = row.level
                self._note(key, row)
        self.reads: dict[str, list[str]] = {}
        self.writes: list[str] = []
        for found in supported_formats(RELEASE):
            kind, direction = found["Format"].lower(), found["Direction"].lower()
            if direction == "write":
                self.writes.append(kind)
            else:
                self.reads[kind] = _unsupported_types(found)

    def _note(self, name: str, row: Row) -> None:
        if row.level in ALWAYS_TOLD or (row.level in TOLD_WITH_NOTE and row.note != "None"):
            self.reasons[name] = row.note if row.note != "None" else "Force disabled by the Tools"

    def factor(self, operator: str) -> float:
        """Its factor; 1.0 for what has none (the original's way)."""
        return self.factors.get(operator, 1.0)

    def exec_supported(self, operator: str) -> bool:
        return self.execs.get(operator, "NS") in SUPPORTED

    def expression_supported(self, name: str) -> bool:
        return self.expressions.get(name.lower(), "NS") in SUPPORTED

    def unsupported(self, names: Sequence[str]) -> list[Unsupported]:
        """Those of the expressions that are not supported."""
        return [Unsupported(name, self.reasons.get(name, "")) for name in names if not self.expression_supported(name)]

    def reason(self, operator: str) -> str:
        return self.reasons.get(operator, "")

    def unsupported_types(self, read: Read) -> list[str]:
        """Types in a schema that cannot be read from this format; `*` for an unknown format."""
        types = self.reads.get(read.data_format.lower())
        if types is None:
            return ["*"]
        schema = read.schema.lower()
        return immutable(name for name in types if name in schema)

    def write_supported(self, data_format: str) -> bool:
        return data_format.lower().strip() in self.writes


def _unsupported_types(row: Mapping[str, str]) -> list[str]:
    types = immutable(name for name in row if name not in ("Format", "Direction"))
    return [name for found in types if row[found] not in SUPPORTED for name in (*OTHER_NAMES.get(found, ()), found)]
