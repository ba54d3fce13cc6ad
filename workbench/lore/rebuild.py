"""An operator put together again over given inputs: for replays, and for dumps whose inputs were changed on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.lore import stubs
from workbench.lore.bridge import Bridge, class_of
from workbench.lore.sidecar import ZERO_COLUMN, InputEntry, Sidecar
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators whose output partitions draw on other partitions of their inputs than the one of the same number.
MIXES_PARTITIONS = (
    "ShuffleExchange",
    "Coalesce",
    "Union",
    "CartesianProduct",
    "CollectLimit",
    "CollectTail",
    "TakeOrderedAndProject",
)


@dataclass(frozen=True)
class Rebuilt:
    """An operator over its inputs, ready to run.

    Attributes
    ----------
    plan
        What is executed.
    operator
        The operator in it, before it was fused with its leaves.
    attributes
        Of the output.
    """

    bridge: Bridge
    plan: Any
    operator: Any
    attributes: list[Any]

    def rdd(self) -> Any:
        """Rows of the output; each call is computed anew."""
        self.bridge.activate()
        return self.plan.execute()

    def metrics(self) -> dict[str, int]:
        """What the plan's nodes counted since it was made: node.metric → value."""
        found: dict[str, int] = {}

        def visit(node: Any) -> None:
            entries = node.metrics().iterator()
            while entries.hasNext():
                entry = entries.next()
                if not entry._2().isZero():
                    found[f"{node.nodeName().strip()}.{entry._1()}"] = int(entry._2().value())
            for child in self.bridge.listed(node.children()):
                visit(child)

        visit(self.plan)
        return found


def is_one_to_one(operator: str, n_inputs: Iterable[int], n_output: int) -> bool:
    """Does partition P of the output come from partition P of each input alone?

    Parameters
    ----------
    operator
        Its name without Spark's ending.
    n_inputs
        Partitions of each input that is neither broadcast nor a subquery.
    n_output
        Partitions of the output.
    """
    return operator not in MIXES_PARTITIONS and set(n_inputs) == {n_output}


# Gives the RDD of rows of an input and how many partitions it has.
Source = Callable[[int], tuple[Any, int]]


def assemble(operator: Any, source: Source, bridge: Bridge, *, engine: bool = False) -> Rebuilt:
    """Put an operator of stubs (`stubs.plan_meta`) over real inputs.

    Parameters
    ----------
    operator
        As loaded from plan.meta; its children are stubs, and so are those of its subqueries.
    source
        Called with the input's number.
    bridge
        Of the session it is to run in.
    engine
        Let the session's columnar rules change the plan.
    """
    bridge.activate()

    def leaf(index: int, output: Any) -> Any:
        rdd, n_partitions = source(index)
        return bridge.scan_of(output, rdd, n_partitions, f"LoreReplay input-{index}")

    children = []
    for index, stub in enumerate(bridge.listed(operator.children())):
        kind = class_of(stub)
        if kind == "BroadcastExchangeExec":
            children.append(stub.withNewChildren(bridge.seq([leaf(index, stub.child().output())])))
        elif kind == "RowToColumnarExec":
            children.append(bridge.execution.RowToColumnarExec(leaf(index, stub.output())))
        else:
            children.append(leaf(index, stub.output()))

    def subquery(number: int, expression: Any) -> Any:
        plan = expression.plan()
        below = leaf(len(children) + number, plan.child().output())
        return expression.withNewPlan(plan.withNewChildren(bridge.seq([below])))

    operator = stubs.with_subqueries(bridge, operator, subquery)
    operator = operator.withNewChildren(bridge.seq(children))
    if engine:
        plan = bridge.with_transitions(operator)
    else:
        plan = bridge.execution.ColumnarToRowExec(operator) if bridge.is_columnar(operator) else operator
    return Rebuilt(bridge, bridge.collapse(plan), operator, bridge.listed(operator.output()))


def rebuild(
    folder: Store,
    sidecar: Sidecar,
    plan: bytes,
    bridge: Bridge,
    *,
    keep: Mapping[int, DataFrame] | None = None,
    engine: bool = False,
) -> Rebuilt:
    """Load a dump's operator and put it over the dump's files.

    `trust.check` must have let the folder through: plan.meta runs code of its classes when it is loaded.

    Parameters
    ----------
    folder
        loreId-N.
    sidecar
        What `trust.check` gave back.
    plan
        The bytes of plan.meta that were checked.
    bridge
        Of the session it is to run in.
    keep
        Frames that stand in for inputs, by number.
    engine
        Let the session's columnar rules, an accelerator's, change the plan.
    """
    operator = bridge.deserialize(plan)
    stubs.at_home(operator, bridge)
    frames = dict(keep or {})

    def source(index: int) -> tuple[Any, int]:
        entry = sidecar.inputs[index]
        if index in frames:
            return bridge.rows(frames[index]), entry.n_partitions
        return rows_of(folder, entry, bridge), entry.n_partitions

    return assemble(operator, source, bridge, engine=engine)


def rows_of(folder: Store, entry: InputEntry, bridge: Bridge) -> Any:
    """The rows of a dumped input in its original partitions, batch by batch; partitions not dumped are empty."""
    rdd, schema = _scan(folder, entry, bridge)
    if not entry.zero_columns:
        return rdd
    return bridge.rows(bridge.frame(rdd, schema).select())


def _scan(folder: Store, entry: InputEntry, bridge: Bridge) -> tuple[Any, Any]:
    """One file partition for each original partition: spark.read would pack and sort the files anew."""
    sources = bridge.execution.datasources
    schema = stored_schema(entry, bridge)
    options = bridge.map({"returning_batch": "false"})
    empty = bridge.jvm.org.apache.spark.sql.types.StructType()
    reader = sources.parquet.ParquetFileFormat().buildReaderWithPartitionValues(
        bridge.session,
        schema,
        empty,
        schema,
        bridge.seq([]),
        options,
        bridge.session.sessionState().newHadoopConf(),
    )
    partitions = [
        sources.FilePartition(number, _files(folder, entry, number, bridge)) for number in range(entry.n_partitions)
    ]
    case_insensitive = bridge.jvm.org.apache.spark.sql.catalyst.util.CaseInsensitiveMap(options)
    file_options = bridge.jvm.org.apache.spark.sql.catalyst.FileSourceOptions(case_insensitive)
    return bridge.file_rdd(reader, partitions, schema, file_options), schema


def stored_schema(entry: InputEntry, bridge: Bridge) -> Any:
    """The schema of an input's files."""
    columns = [(ZERO_COLUMN, "byte")] if entry.zero_columns else []
    columns += [(column.stored_as, column.type) for column in entry.columns if column.masked != "dropped"]
    document = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns],
    }
    return bridge.object("org.apache.spark.sql.types.DataType").fromJson(json.dumps(document))


def _files(folder: Store, entry: InputEntry, number: int, bridge: Bridge) -> Any:
    sources = bridge.execution.datasources
    gateway = bridge.context._gateway
    count = entry.batches.get(str(number), 0)
    found = gateway.new_array(sources.PartitionedFile, count)
    if not count:
        return found
    nowhere = gateway.new_array(bridge.jvm.java.lang.String, 0)
    row = bridge.object("org.apache.spark.sql.catalyst.InternalRow").empty()
    paths = bridge.object("org.apache.spark.paths.SparkPath")
    for batch in range(count):
        path = folder.path(f"input-{entry.index}/partition-{number}/batch-{batch}.parquet")
        size = int(folder.system.getFileStatus(path).getLen())
        found[batch] = sources.PartitionedFile(
            row, paths.fromPathString(str(path.toString())), 0, size, nowhere, 0, size, bridge.map()
        )
    return found


def output_rows(folder: Store, sidecar: Sidecar, like: DataFrame) -> DataFrame:
    """The kept output of a dump, in the schema of a replay's frame (columns c0, c1 …) and its session."""
    names = [column.stored_as for column in sidecar.output.columns] or [ZERO_COLUMN]
    wanted = tuple(f"output/partition-{number}/" for number in sidecar.output.fingerprint)
    paths = [name for name in sidecar.files if name.startswith(wanted)]
    if not paths:
        return like.limit(0)
    reader = like.sparkSession.read
    if like.columns:
        reader = reader.schema(like.schema)
    frame = reader.parquet(*(str(folder.path(name).toString()) for name in paths))
    return frame.select(*names) if like.columns else frame.select()
