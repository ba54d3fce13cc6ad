"""What the inline hooks are told: by which signature an operator is met again, and what is stored of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.lore import fingerprint
from workbench.lore.inputs import Input, inputs, stored_names
from workbench.lore.masking import Masking, key_literal
from workbench.lore.plan import Node, Tree
from workbench.lore.sidecar import ZERO_COLUMN

if TYPE_CHECKING:
    from workbench.lore.bridge import Bridge
    from workbench.lore.config import DumpSettings

# Inputs that pass in the tasks of the operator itself; the others are made elsewhere and before.
JOINT = ("rows", "columnar")
# An accelerator hands batches from one of its operators to the next, and must not meet a node of ours between them.
_SPARKS_OWN = "org.apache.spark.sql.execution."


@dataclass(frozen=True)
class Stored:
    """How an input lies in the files of a dump.

    Attributes
    ----------
    one, attributes
        What the operator gets of it when it is replayed: columns left out are gone, nulled ones nullable.
    names
        Of the stored columns.
    columns
        SQL over c0..cn, the columns of the input as it passes, for each stored one; null when it is stored as it is.
    masks
        SQL of the masked ones by stored name.
    """

    one: Input
    attributes: list[Any]
    names: list[str]
    columns: list[str] | None
    masks: dict[str, str]


def stored(node: Node, index: int, one: Input, masking: Masking, bridge: Bridge) -> Stored:
    """How an input is stored under the settings of a masking.

    Raises
    ------
    ConfigError
        The operator needs a column that would be left out, or a column cannot be hashed.
    """
    places = {int(a.exprId().id()): f"c{place}" for place, a in reversed([*enumerate(bridge.listed(one.output))])}
    reduced = masking.kept(node, index, one, bridge)
    attributes = bridge.listed(reduced.output)
    names = stored_names(attributes, original=masking.settings.original_names)
    columns, masks = [], {}
    for name, attribute in zip(names, attributes, strict=True):
        place = places[int(attribute.exprId().id())]
        mask = masking.expression(attribute, place)
        if mask is not None:
            masks[name] = mask
        columns.append(mask or f"`{place}`")
    nullable = [
        attribute.withNullability(True) if masking.how(str(attribute.name())) == "null" else attribute
        for attribute in attributes
    ]
    if not attributes:
        # Parquet cannot carry rows without columns.
        return Stored(reduced, [], [ZERO_COLUMN], ["CAST(1 AS TINYINT)"], {})
    changed = reduced is not one or bool(masks)
    return Stored(replace(reduced, output=bridge.seq(nullable)), nullable, names, columns if changed else None, masks)


class Targets:
    """The orders of a capture, gathered operator by operator.

    Attributes
    ----------
    orders
        What the hooks read as JSON.
    expressions
        What they compute of rows, resolved by Spark: a Java map by place (loreId-5/input-0).
    """

    def __init__(self, tree: Tree, settings: DumpSettings) -> None:
        self.bridge, self.settings = tree.bridge, settings
        self.orders: list[dict[str, Any]] = []
        self.expressions: Any = self.bridge.jvm.java.util.HashMap()
        self._signatures: Any = self.bridge.jvm.workbench.lore.Signature()
        self._occurrences = self._places(tree)
        self.key = key_literal()

    def _places(self, tree: Tree) -> dict[int, tuple[str, int]]:
        seen: dict[str, int] = {}
        found = {}
        for lore_id, node in sorted(tree.nodes.items()):
            signature = str(self._signatures.of(node.java))
            found[lore_id] = (signature, seen.get(signature, 0))
            seen[signature] = seen.get(signature, 0) + 1
        return found

    def add(self, node: Node, partitions: Iterable[int] | None) -> None:
        """One more operator; null takes all partitions of its inputs.

        Raises
        ------
        ConfigError
            It cannot be dumped.
        """
        sources = inputs(node, self.bridge)
        owner = str(node.java.getClass().getName())
        if not owner.startswith(_SPARKS_OWN):
            raise ConfigError(
                f"{node.name} cannot be captured inline: it is not one of Spark's own operators",
                where=f"loreId {node.lore_id}",
                found=owner,
                do="dump without mode=inline, or run the query without the accelerator",
            )
        masking = Masking(self.settings, self.key)
        masking.check(node, sources, self.bridge)
        place = f"loreId-{node.lore_id}"
        bound: dict[str, Any] = {}
        told = []
        for index, one in enumerate(sources):
            how = stored(node, index, one, masking, self.bridge)
            if how.columns is not None:
                bound[f"{place}/input-{index}"] = self._bound(self._numbered(one.output), how.columns)
            elsewhere = None if one.kind in JOINT else str(self._signatures.of(one.source))
            told.append({"index": index, "elsewhere": elsewhere, "names": how.names})
        if not masking.applies(sources, self.bridge):
            output = self._numbered(node.java.output())
            hashing = fingerprint.row_hash_sql(str(kind.catalogString()) for _, kind in output)
            bound[f"{place}/output"] = self._bound(output, [hashing])
            bound[f"{place}/ordered"] = self._bound(self._hashed(), [fingerprint.ORDERED_SQL])
        for name, expressions in bound.items():
            self.expressions.put(name, expressions)
        signature, occurrence = self._occurrences[node.lore_id or 0]
        chosen = None if partitions is None else sorted(partitions)
        self.orders.append(
            {
                "lore_id": node.lore_id,
                "signature": signature,
                "occurrence": occurrence,
                "partitions": chosen,
                "inputs": told,
            }
        )

    def _numbered(self, output: Any) -> list[tuple[str, Any]]:
        return [(f"c{place}", attribute.dataType()) for place, attribute in enumerate(self.bridge.listed(output))]

    def _hashed(self) -> list[tuple[str, Any]]:
        long = self.bridge.object("org.apache.spark.sql.types.LongType")
        return [("h", long), ("i", long)]

    def _bound(self, columns: list[tuple[str, Any]], texts: list[str]) -> Any:
        """SQL over the given columns, resolved in the quiet session and bound to their places."""
        quiet = self.bridge.quiet()
        tag = self.bridge.object("scala.reflect.ClassTag").AnyRef()
        nothing = self.bridge.context._jsc.sc().emptyRDD(tag)
        # Named, or columns that a row has already would be taken for a table without a projection.
        named = [f"{text} AS x{number}" for number, text in enumerate(texts)]
        frame = quiet.frame(nothing, quiet.struct(columns)).selectExpr(*named)
        return self.bridge.jvm.workbench.lore.Expressions.of(frame._jdf.queryExecution().optimizedPlan())
