"""Spark internals through py4j: every call that is not public Spark API is in this file.

One class per supported line of Spark; others are refused, since these calls are no stable API.

Pitfalls: a Scala Set is a function Int => Boolean and a Scala Map a function of its keys, so they need neither a
callback nor a jar. py4j unboxes AtomicInteger, so rules that take one cannot be created and are taken from a query.
`withNewChildren` binds nodes to the active session: call `activate` first.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODEGEN_WRAPPERS = ("WholeStageCodegenExec", "InputAdapter")
# Concurrent jobs of one dump.
MAX_JOBS = 4
# Settings of the session that writes and hashes; nodes of the plan keep those that they were planned with.
QUIET_CONFS = {
    "spark.sql.adaptive.enabled": "false",
    # Identical code is compiled once for all stages.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.shuffle.partitions": "1",
    # Exact values: no calendar conversion, no truncated timestamps.
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
    # Fingerprints are computed by Spark itself.
    "spark.comet.enabled": "false",
    "spark.comet.exec.enabled": "false",
    "spark.rapids.sql.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}


def connect_bridge(spark: SparkSession) -> Bridge:
    """The bridge for this session's line of Spark."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "a Spark Connect session has no JVM in this process, and LORE works on the JVM's plan",
            where="the session",
            do='create a classic session, SparkSession.builder.master("local[*]") or --master on the command line',
        )
    major, minor = (int(part) for part in spark.version.split(".")[:2])
    if (major, minor) == (3, 5):
        return Bridge(spark)
    if major == 4:
        return Spark4(spark)
    raise ConfigError("LORE does not support this line of Spark", found=spark.version, allowed="3.5, 4.x")


class Bridge:
    """Spark 3.5; Spark 4 overrides what differs."""

    session_object = "org.apache.spark.sql.SparkSession"
    # Does a union zip the partitions of inputs that are partitioned alike?
    unions_keep_partitions = False

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.context = spark.sparkContext
        self._names = _jvm_names(self.context._jvm)
        self.jvm: Any = self._names
        self.session: Any = spark._jsparkSession
        self.execution: Any = self.jvm.org.apache.spark.sql.execution
        self._rules: dict[str, Any] = {}
        self._quiet: Bridge | None = None

    # Scala and Java values

    def to_scala_seq(self, items: Iterable[Any]) -> Any:
        """A Scala List; plans are serialized, so no wrapped java.util.List."""
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(items)).toList()

    def to_list(self, seq: Any) -> list[Any]:
        """A Scala Seq as a list; empty for null."""
        return [] if seq is None else [seq.apply(index) for index in range(seq.size())]

    def to_scala_map(self, pairs: dict[Any, Any] | None = None, *, keyed: Sequence[tuple[Any, Any]] = ()) -> Any:
        """A Scala Map, which is a function from its keys to its values."""
        plain = self.jvm.java.util.HashMap()
        for key, value in [*(pairs or {}).items(), *keyed]:
            plain.put(key, value)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(plain)

    def scala_object(self, name: str) -> Any:
        """A Scala object by its class name."""
        if (instance := self._names.objects.get(name)) is None:
            utils = self.jvm.org.apache.spark.util.Utils
            instance = utils.classForName(name + "$", True, False).getField("MODULE$").get(None)
            self._names.objects[name] = instance
        return instance

    def scala_none(self) -> Any:
        """Scala's None."""
        return self.jvm.scala.Option.empty()

    # Sessions

    def find_jvm_process(self) -> Any:
        """The driver's JVM as a psutil.Process, whose children are Python workers; null where it is not ours."""
        import psutil

        launched = getattr(self.context._gateway, "proc", None)
        if launched is None:
            return None
        try:
            return psutil.Process(launched.pid)
        except psutil.Error:
            return None

    def shares_jvm(self) -> bool:
        """Do tasks run in the JVM of the driver?"""
        master = str(self.context.master)
        return master.startswith("local") and not master.startswith("local-cluster")

    def activate(self) -> None:
        """Make this session the active one of the thread; new nodes belong to it."""
        self.scala_object(self.session_object).setActiveSession(self.session)

    def quiet_bridge(self) -> Bridge:
        """A session with the same settings that writes and hashes without the user's listeners.

        `enable` does not see its queries, and its additional settings affect no plan of the user.
        """
        if self._quiet is not None:
            return self._quiet
        other = type(self)(self.spark.newSession())
        target = other.session.sessionState().conf()
        entries = self.session.sessionState().conf().getAllConfs().iterator()
        while entries.hasNext():
            entry = entries.next()
            with contextlib.suppress(Exception):  # static settings are shared by all sessions and refused here
                target.setConfString(entry._1(), entry._2())
        for key, value in QUIET_CONFS.items():
            target.setConfString(key, value)
        self._quiet = other
        return other

    def to_frame(self, rdd: Any, schema: Any) -> DataFrame:
        """A DataFrame over an RDD of InternalRow."""
        from pyspark.sql import DataFrame

        return DataFrame(self.session.internalCreateDataFrame(rdd, schema, False), self.spark)

    def internal_rows(self, frame: DataFrame) -> Any:
        """The RDD of InternalRow behind a DataFrame."""
        self.activate()
        return frame._jdf.queryExecution().toRdd()

    def build_struct(self, columns: Iterable[tuple[str, Any]]) -> Any:
        """A StructType of nullable columns."""
        struct = self.jvm.org.apache.spark.sql.types.StructType()
        for name, data_type in columns:
            struct = struct.add(name, data_type, True)
        return struct

    # Plans

    def final_plan(self, execution: Any) -> Any:
        """The physical plan of a query execution; with AQE in its current state."""
        return execution.executedPlan()

    def is_final(self, plan: Any) -> bool:
        """Has AQE finished this plan?"""
        return simple_class_name(plan) != "AdaptiveSparkPlanExec" or "isFinalPlan=true" in plan.simpleString(1)

    def is_columnar(self, plan: Any) -> bool:
        """Does the node produce columnar batches only?"""
        return bool(plan.supportsColumnar()) and not bool(plan.supportsRowBased())

    def fuse_codegen_stages(self, plan: Any) -> Any:
        """Fuse operators into code-generated stages, the last step of the planner."""
        return self._preparation_rule("CollapseCodegenStages").apply(plan)

    def insert_transitions(self, plan: Any) -> Any:
        """Apply the session's columnar rules (also of an accelerator) and insert row-to-batch transitions."""
        return self._preparation_rule("ApplyColumnarRulesAndInsertTransitions").apply(plan)

    def distribute_inputs(self, plan: Any) -> Any:
        """The operator with the exchanges and sorts that it asks of its children, as the planner inserts them."""
        if simple_class_name(plan) in ("SortMergeJoinExec", "ShuffledHashJoinExec"):
            # A skewed join asks for nothing: AQE had split its partitions.
            self.set_field(plan, "isSkewJoin", False)
        return self._preparation_rule("EnsureRequirements").apply(plan)

    def prepare_rules(self) -> None:
        """Get the planner's rules now: a query is analysed for it, which reads settings."""
        self._preparation_rule("CollapseCodegenStages")

    def _preparation_rule(self, name: str) -> Any:
        if name not in self._rules:
            # Every query has the rules; `range` would need an encoder by reflection.
            rules = self.session.emptyDataFrame().queryExecution().preparations()
            self._rules |= {simple_class_name(rule): rule for rule in self.to_list(rules)}
        self.activate()
        return self._rules[name]

    def build_scan(self, output: Any, rdd: Any, n_partitions: int, name: str, *, partitioning: Any = None) -> Any:
        """A leaf over the rows of an RDD, with the given attributes and, where it matters, how they are partitioned."""
        if partitioning is None:
            partitioning = self.jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(n_partitions)
        return self.execution.RDDScanExec(output, rdd, name, partitioning, self.to_scala_seq([]), *self.no_stream())

    def build_empty_leaf(self, output: Any, partitioning: Any = None) -> Any:
        """A leaf without rows, the placeholder of an input in plan.meta."""
        if partitioning is not None:
            leaf = self.build_scan(output, self.context._jsc.emptyRDD().rdd(), 0, "input", partitioning=partitioning)
            self.set_field(leaf, "rdd", None)  # without it the plan has no data; it cannot be made without
            return leaf
        return self.execution.LocalTableScanExec(output, self.to_scala_seq([]), *self.no_stream())

    def no_stream(self) -> tuple[Any, ...]:
        """Arguments for the stream parameter of leaves; empty if this Spark has no such parameter."""
        return ()

    def build_logical_rows(self, output: Any, rdd: Any, n_rows: int) -> Any:
        """A logical leaf over the rows of an RDD, with a size estimated from their number and types."""
        # No statistics: py4j turns a BigInt into a number. Without them the size is a setting of the leaf's session.
        row_bytes = 8 + sum(int(attribute.dataType().defaultSize()) for attribute in self.to_list(output))
        sized = self.spark.newSession()
        sized.conf.set("spark.sql.defaultSizeInBytes", str(max(n_rows, 1) * row_bytes))
        unknown = self.jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(0)
        session, nothing = sized._jsparkSession, self.scala_none()
        arguments = (unknown, self.to_scala_seq([]), False, *self.no_stream(), session, nothing, nothing)
        return self.execution.LogicalRDD(output, rdd, *arguments)

    def build_logical_join(self, left: Any, right: Any, kind: Any, condition: Any) -> Any:
        """A logical join without hints."""
        no_hint = self.scala_object("org.apache.spark.sql.catalyst.plans.logical.JoinHint").NONE()
        return self.jvm.org.apache.spark.sql.catalyst.plans.logical.Join(left, right, kind, condition, no_hint)

    def plan_logical(self, plan: Any) -> Any:
        """The physical plan of a logical one under the settings of this session."""
        self.activate()
        modes = self.scala_object("org.apache.spark.sql.execution.CommandExecutionMode")
        return self.session.sessionState().executePlan(plan, modes.SKIP()).executedPlan()

    def read_files(self, reader: Any, partitions: list[Any], schema: Any, options: Any) -> Any:
        """An RDD that reads the files of each partition in the given order."""
        sources = self.execution.datasources
        return sources.FileScanRDD(
            self.session,
            reader,
            self.to_scala_seq(partitions),
            schema,
            self.to_scala_seq([]),
            self.to_scala_map(),
            options,
        )

    # Execution

    def run_in_execution(self, query: Any, name: str, body: Callable[[], Any]) -> None:
        """Run a Python function inside a SQL execution that Spark's UI shows; its error is re-raised.

        Source: SQLExecution.withNewExecutionId. The function runs in this thread, so its events precede the end of the
        execution.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.context._gateway)
        call = _ScalaFunction(body)
        try:
            self.scala_object("org.apache.spark.sql.execution.SQLExecution").withNewExecutionId(
                query, self.jvm.scala.Option.apply(name), call
            )
        except Exception:
            if call.error is not None:
                raise call.error from None
            raise

    @contextlib.contextmanager
    def propagate_settings(self) -> Iterator[None]:
        """Tasks of jobs inside the block see the settings of this session, as those of a query do.

        Source: SQLExecution.withSQLConfPropagated. Without it, tasks of an RDD see Spark's defaults.
        """
        context = self.context._jsc.sc()
        entries = self.session.sessionState().conf().getAllConfs().iterator()
        before: dict[str, Any] = {}
        while entries.hasNext():
            entry = entries.next()
            key = str(entry._1())
            before[key] = context.getLocalProperty(key)
            context.setLocalProperty(key, entry._2())
        try:
            yield
        finally:
            for key, value in before.items():
                context.setLocalProperty(key, value)

    def prune_partitions(self, rdd: Any, partitions: Iterable[int]) -> Any:
        """Only the chosen partitions of an RDD, renumbered from 0; the others are never computed."""
        chosen = self.to_scala_seq(sorted(partitions)).toSet()
        return self.jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd, chosen)

    def pad_partitions(self, rdd: Any, partitions: Iterable[int]) -> Any:
        """The RDD with all but the given partitions empty; these are never computed."""
        chosen, count = set(partitions), int(rdd.getNumPartitions())
        if len(chosen) == count:
            return rdd
        tag = rdd.elementClassTag()
        nothing = self.context._jsc.sc().parallelize(self.to_scala_seq([]), 1, tag)
        parts = [self.prune_partitions(rdd, [number]) if number in chosen else nothing for number in range(count)]
        return self.context._jsc.sc().union(self.to_scala_seq(parts), tag)

    # Serialization

    def serialize(self, thing: Any) -> bytes:
        """Java serialization, whatever spark.serializer is."""
        sink = self.jvm.java.io.ByteArrayOutputStream()
        stream = self.jvm.java.io.ObjectOutputStream(sink)
        stream.writeObject(thing)
        stream.flush()
        return bytes(sink.toByteArray())

    def deserialize(self, data: bytes) -> Any:
        """Load the operator of a Java stream, which runs code of its classes: call `trust_check.check_trust` first.

        The stream has its own filter, narrower than that of a replay's process.
        """
        from workbench.lore.trust.allow_lists import PLAN_SERIAL_FILTER

        stream = self.jvm.java.io.ObjectInputStream(self.jvm.java.io.ByteArrayInputStream(bytearray(data)))
        config = getattr(self.jvm.java.io, "ObjectInputFilter$Config")
        stream.setObjectInputFilter(config.createFilter(PLAN_SERIAL_FILTER))
        return stream.readObject()

    def set_field(self, target: Any, name: str, value: Any) -> None:
        """Set a private field of a Scala object, declared by its class or a superclass."""
        field = self._declared_field(target, name)
        if field is None:
            raise ConfigError("this class of Spark has no such field", where=target.getClass().getName(), found=name)
        field.set(target, value)

    def find_field(self, target: Any, name: str) -> Any:
        """The value of a private field of a Scala object; null without one."""
        field = self._declared_field(target, name)
        return None if field is None else field.get(target)

    def _declared_field(self, target: Any, name: str) -> Any:
        """Find a Java object's field by name in its class or a class above, made accessible; null if there is none."""
        declared = target.getClass()
        while declared is not None:
            for field in declared.getDeclaredFields():
                if field.getName() == name:
                    field.setAccessible(True)
                    return field
            declared = declared.getSuperclass()
        return None


class Spark4(Bridge):
    """Spark 4: sessions are classic.SparkSession, leaves have a stream parameter, unions may keep partitions."""

    session_object = "org.apache.spark.sql.classic.SparkSession"
    unions_keep_partitions = True

    def no_stream(self) -> tuple[Any, ...]:
        """The parameter of leaves that is a stream."""
        return (self.scala_none(),)


class JvmNames:
    """Packages and classes of a JVM by their dotted names, each looked up once.

    py4j asks the JVM at every dot, which then searches all jars and imports: a quarter of the CPU time of a small
    replay.
    """

    def __init__(self, package: Any) -> None:
        self._found = package
        self.objects: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """Look up a Java package or class, and keep it unless it may be a class that is missing as yet."""
        if name.startswith("__"):
            raise AttributeError(name)
        member = getattr(self._found, name)
        if type(member).__name__ == "JavaPackage":
            member = JvmNames(member)
            # py4j takes a missing class for a package; a jar may add it later.
            if not name.islower():
                return member
        setattr(self, name, member)
        return member


@lru_cache(maxsize=1)
def _jvm_names(jvm: Any) -> JvmNames:
    return JvmNames(jvm)


class _ScalaFunction:
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
        """Declaration of the Scala interface that py4j implements by it."""

        implements: tuple[str, ...] = ("scala.Function0",)


def simple_class_name(thing: Any) -> str:
    """Simple name of a JVM object's class."""
    return str(thing.getClass().getSimpleName())


def run_in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of calls run in threads to share the cores: a job of one task leaves the others idle.

    Local properties of this thread (description, job group) hold in the threads, too. All are waited for; of several
    errors the first call's is raised.
    """
    from concurrent.futures import Future

    # Spark's own kind of thread: it closes its connection to the JVM when it ends.
    from pyspark import InheritableThread

    futures: list[Future[Any]] = [Future() for _ in calls]
    waiting = deque(zip(futures, calls, strict=True))

    def run_waiting_calls() -> None:
        with contextlib.suppress(IndexError):
            while True:
                future, call = waiting.popleft()
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                    future.set_exception(error)

    threads = [InheritableThread(target=run_waiting_calls) for _ in range(min(MAX_JOBS, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [future.result() for future in futures]


@contextlib.contextmanager
def job_description(bridge: Bridge, text: str) -> Iterator[None]:
    """Jobs started within are called so in Spark's UI; the description before is put back."""
    before = bridge.context.getLocalProperty("spark.job.description")
    bridge.context.setLocalProperty("spark.job.description", text)
    try:
        yield
    finally:
        bridge.context.setLocalProperty("spark.job.description", before)
