"""Spark's inside, reached through py4j: everything that is no public API of Spark stands in this file.

One class for each line of Spark that is known; another line is refused, since these calls are not promised by anyone.

Traps. A Scala Set is a function Int => Boolean and a Scala Map a function of its keys, so that neither a callback nor
a jar is needed for them. py4j unboxes AtomicInteger, so that rules which take one cannot be made and are borrowed.
`withNewChildren` binds nodes to the active session: `activate` first.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODEGEN_WRAPPERS = ("WholeStageCodegenExec", "InputAdapter")
# Jobs at once of one dump.
MOST_JOBS = 4
# Settings of the session that writes and hashes; the plan's own nodes keep those that they were planned with.
QUIET_CONFS = {
    "spark.sql.adaptive.enabled": "false",
    # Code of the same text is compiled once, whichever stage it is for.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.shuffle.partitions": "1",
    # Exact values: no calendar is turned into another, no timestamp cut.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.legacy.allowHashOnMapType": "true",
    # Fingerprints are Spark's own, whatever made the rows.
    "spark.comet.enabled": "false",
    "spark.comet.exec.enabled": "false",
    "spark.rapids.sql.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}


def bridge(spark: SparkSession) -> Bridge:
    """The bridge for this session's line of Spark.

    Raises
    ------
    ConfigError
        A Spark Connect session, which has no JVM here, or a line of Spark that is not known.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "a Spark Connect session has no JVM in this process, and LORE works on the JVM's plan",
            where="the session",
            do='make a classic session, SparkSession.builder.master("local[*]") or --master on the command line',
        )
    major, minor = (int(part) for part in spark.version.split(".")[:2])
    if (major, minor) == (3, 5):
        return Bridge(spark)
    if major == 4:
        return Spark4(spark)
    raise ConfigError("not a line of Spark that LORE knows", found=spark.version, allowed="3.5, 4.x")


class Bridge:
    """Spark 3.5; Spark 4 overrides what differs.

    Parameters
    ----------
    spark
        A classic session.
    """

    session_object = "org.apache.spark.sql.SparkSession"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.context = spark.sparkContext
        self._names = _names(self.context._jvm)
        self.jvm: Any = self._names
        self.session: Any = spark._jsparkSession
        self.execution: Any = self.jvm.org.apache.spark.sql.execution
        self._rules: dict[str, Any] = {}
        self._quiet: Bridge | None = None

    # Scala and Java values

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala Seq: a List, since plans are serialized, and a wrapped java.util.List has no business in them."""
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(items)).toList()

    def listed(self, seq: Any) -> list[Any]:
        """A Scala Seq as a list; empty for null."""
        return [] if seq is None else [seq.apply(index) for index in range(seq.size())]

    def map(self, pairs: dict[Any, Any] | None = None, *, keyed: Sequence[tuple[Any, Any]] = ()) -> Any:
        """A Scala Map, which is a function from its keys to its values."""
        plain = self.jvm.java.util.HashMap()
        for key, value in [*(pairs or {}).items(), *keyed]:
            plain.put(key, value)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(plain)

    def object(self, name: str) -> Any:
        """A Scala object by its class name."""
        if (found := self._names.objects.get(name)) is None:
            utils = self.jvm.org.apache.spark.util.Utils
            found = utils.classForName(name + "$", True, False).getField("MODULE$").get(None)
            self._names.objects[name] = found
        return found

    def none(self) -> Any:
        """Scala's None."""
        return self.jvm.scala.Option.empty()

    # Sessions

    def activate(self) -> None:
        """Make this session the active one of the thread: nodes that are made belong to it."""
        self.object(self.session_object).setActiveSession(self.session)

    def quiet(self) -> Bridge:
        """The same settings in a session of its own, which writes and hashes without the user's listeners.

        What runs in it never shows up among the queries that `enable` watches, and its own settings touch no plan.
        """
        if self._quiet is not None:
            return self._quiet
        other = type(self)(self.spark.newSession())
        target = other.session.sessionState().conf()
        entries = self.session.sessionState().conf().getAllConfs().iterator()
        while entries.hasNext():
            entry = entries.next()
            with contextlib.suppress(Exception):  # static settings are the same in every session, and refused here
                target.setConfString(entry._1(), entry._2())
        for key, value in QUIET_CONFS.items():
            target.setConfString(key, value)
        self._quiet = other
        return other

    # Frames

    def frame(self, rdd: Any, schema: Any) -> DataFrame:
        """A DataFrame over an RDD of InternalRow."""
        from pyspark.sql import DataFrame

        return DataFrame(self.session.internalCreateDataFrame(rdd, schema, False), self.spark)

    def rows(self, frame: DataFrame) -> Any:
        """The RDD of InternalRow behind a DataFrame."""
        self.activate()
        return frame._jdf.queryExecution().toRdd()

    def struct(self, columns: Iterable[tuple[str, Any]]) -> Any:
        """A StructType of nullable columns."""
        found = self.jvm.org.apache.spark.sql.types.StructType()
        for name, data_type in columns:
            found = found.add(name, data_type, True)
        return found

    # Plans

    def final_plan(self, execution: Any) -> Any:
        """The physical plan of a query execution; with AQE as far as it is final now."""
        return execution.executedPlan()

    def is_final(self, plan: Any) -> bool:
        """Is nothing of this plan open to AQE any more?"""
        return class_of(plan) != "AdaptiveSparkPlanExec" or "isFinalPlan=true" in plan.simpleString(1)

    def is_columnar(self, plan: Any) -> bool:
        """Does the node give batches of columns and no rows?"""
        return bool(plan.supportsColumnar()) and not bool(plan.supportsRowBased())

    def collapse(self, plan: Any) -> Any:
        """Fuse operators into code-generated stages, as the planner does last."""
        return self._preparation("CollapseCodegenStages").apply(plan)

    def with_transitions(self, plan: Any) -> Any:
        """Apply the session's columnar rules (an accelerator's, too); put in transitions between rows and batches."""
        return self._preparation("ApplyColumnarRulesAndInsertTransitions").apply(plan)

    def _preparation(self, name: str) -> Any:
        if name not in self._rules:
            # Any query of this session has them; `range` would work out an encoder by reflection for each session.
            rules = self.session.emptyDataFrame().queryExecution().preparations()
            self._rules |= {class_of(rule): rule for rule in self.listed(rules)}
        self.activate()
        return self._rules[name]

    def scan_of(self, output: Any, rdd: Any, n_partitions: int, name: str) -> Any:
        """A leaf that gives the rows of an RDD under the given attributes."""
        partitioning = self.jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(n_partitions)
        return self.execution.RDDScanExec(output, rdd, name, partitioning, self.seq([]))

    def stub(self, output: Any) -> Any:
        """A leaf that gives no rows: what stands for an input in plan.meta."""
        return self.execution.LocalTableScanExec(output, self.seq([]))

    def file_rdd(self, reader: Any, partitions: list[Any], schema: Any, options: Any) -> Any:
        """An RDD that reads the given files of each partition in the given order."""
        sources = self.execution.datasources
        return sources.FileScanRDD(
            self.session, reader, self.seq(partitions), schema, self.seq([]), self.map(), options
        )

    # Execution

    def within_execution(self, query: Any, name: str, body: Callable[[], Any]) -> None:
        """Run a Python function inside a SQL execution that Spark's UI shows; its error is raised again.

        Source: SQLExecution.withNewExecutionId. The function runs in this thread, so that what it posts about the
        execution comes before its end.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.context._gateway)
        call = _Body(body)
        try:
            self.object("org.apache.spark.sql.execution.SQLExecution").withNewExecutionId(
                query, self.jvm.scala.Option.apply(name), call
            )
        except Exception:
            if call.error is not None:
                raise call.error from None
            raise

    def prune(self, rdd: Any, partitions: Iterable[int]) -> Any:
        """Only the chosen partitions of an RDD, renumbered from 0; the others are never computed."""
        chosen = self.seq(sorted(partitions)).toSet()
        return self.jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd, chosen)

    def padded(self, rdd: Any, partitions: Iterable[int]) -> Any:
        """The same RDD with empty partitions where these are not; what is left out is never computed."""
        chosen, count = set(partitions), int(rdd.getNumPartitions())
        if len(chosen) == count:
            return rdd
        tag = rdd.elementClassTag()
        nothing = self.context._jsc.sc().parallelize(self.seq([]), 1, tag)
        parts = [self.prune(rdd, [number]) if number in chosen else nothing for number in range(count)]
        return self.context._jsc.sc().union(self.seq(parts), tag)

    # Serialization

    def serialize(self, thing: Any) -> bytes:
        """Java serialization, whatever spark.serializer is."""
        sink = self.jvm.java.io.ByteArrayOutputStream()
        stream = self.jvm.java.io.ObjectOutputStream(sink)
        stream.writeObject(thing)
        stream.flush()
        return bytes(sink.toByteArray())

    def deserialize(self, data: bytes) -> Any:
        """The operator in a Java stream: runs code of the classes named in it. Check it first (`trust`).

        The stream has a filter of its own, narrower than that of a replay's process.
        """
        from workbench.lore.javaclasses import PLAN_SERIAL_FILTER

        stream = self.jvm.java.io.ObjectInputStream(self.jvm.java.io.ByteArrayInputStream(bytearray(data)))
        config = getattr(self.jvm.java.io, "ObjectInputFilter$Config")
        stream.setObjectInputFilter(config.createFilter(PLAN_SERIAL_FILTER))
        return stream.readObject()

    def set_field(self, target: Any, name: str, value: Any) -> None:
        """Set a private field of a Scala object, whichever class of its ancestry declares it."""
        declared = target.getClass()
        while declared is not None:
            for field in declared.getDeclaredFields():
                if field.getName() == name:
                    field.setAccessible(True)
                    field.set(target, value)
                    return
            declared = declared.getSuperclass()
        raise ConfigError("this Spark's class has another shape", where=target.getClass().getName(), found=name)


class Spark4(Bridge):
    """Spark 4: sessions are classic.SparkSession, scans know of streams."""

    session_object = "org.apache.spark.sql.classic.SparkSession"

    def scan_of(self, output: Any, rdd: Any, n_partitions: int, name: str) -> Any:
        """A leaf that gives the rows of an RDD under the given attributes."""
        partitioning = self.jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(n_partitions)
        return self.execution.RDDScanExec(output, rdd, name, partitioning, self.seq([]), self.none())

    def stub(self, output: Any) -> Any:
        """A leaf that gives no rows: what stands for an input in plan.meta."""
        return self.execution.LocalTableScanExec(output, self.seq([]), self.none())


class Names:
    """Packages and classes of a JVM by their dotted names, each asked for once.

    py4j asks at every dot, and the JVM looks for a class of every package's name in all jars and imports: that was a
    quarter of what a replay of a small dump computes.

    Parameters
    ----------
    found
        py4j's view of a JVM, or a package of it.

    Attributes
    ----------
    objects
        Scala objects by class name, of which a JVM has one each.
    """

    def __init__(self, found: Any) -> None:
        self._found = found
        self.objects: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._found, name)
        if type(found).__name__ == "JavaPackage":
            found = Names(found)
            # A class that is not there is a package to py4j: it may come with a jar.
            if not name.islower():
                return found
        setattr(self, name, found)
        return found


@lru_cache(maxsize=1)
def _names(jvm: Any) -> Names:
    return Names(jvm)


class _Body:
    """A Python function as Scala's () => T."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self.body = body
        self.error: BaseException | None = None

    def apply(self) -> None:
        """Called by the JVM."""
        try:
            self.body()
        except BaseException as error:
            self.error = error
            raise

    class Java:
        """What py4j makes of it."""

        implements: tuple[str, ...] = ("scala.Function0",)


def class_of(thing: Any) -> str:
    """Simple name of a JVM object's class."""
    return str(thing.getClass().getSimpleName())


def side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What these give, called in threads, so that their jobs share the cores: a job of one task leaves the others idle.

    Local properties of this thread (description, job group) hold in the threads, too. All are waited for; of several
    errors the first call's is raised.
    """
    from concurrent.futures import Future

    # Spark's own kind of thread: it closes its connection to the JVM when it ends.
    from pyspark import InheritableThread

    futures: list[Future[Any]] = [Future() for _ in calls]
    waiting = deque(zip(futures, calls, strict=True))

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                future, call = waiting.popleft()
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                    future.set_exception(error)

    threads = [InheritableThread(target=work) for _ in range(min(MOST_JOBS, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [future.result() for future in futures]


@contextlib.contextmanager
def described(bridge: Bridge, text: str) -> Iterator[None]:
    """Jobs started within are called so in Spark's UI; the description before is put back."""
    before = bridge.context.getLocalProperty("spark.job.description")
    bridge.context.setLocalProperty("spark.job.description", text)
    try:
        yield
    finally:
        bridge.context.setLocalProperty("spark.job.description", before)
