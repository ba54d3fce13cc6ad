"""Which Java classes may come out of a stream: of plan.meta, and of anything at all in the process of a replay.

Reading Java serialization runs code of the classes in it (readObject, readResolve, hashCode of keys, compare of sorted
things). On Spark's class path lie classes that can be strung together so that this runs whatever the writer wants. So
nothing is listed as bad: what is good is listed, and the rest is refused. Of what is good, no class runs given code.

Left out on purpose, with what each would open:

- commons-collections (functors, TransformedMap, LazyMap), commons-beanutils, groovy, hive-exec, janino, javassist,
  com.sun.org.apache.xalan (TemplatesImpl), javax.* (JMX, naming, scripts), java.rmi, java.net, com.sun.*, sun.*: the
  known chains, and what they end in.
- java.util.PriorityQueue, TreeMap and TreeSet, scala's TreeMap and TreeSet: they call a comparator while they are read.
- scala.collection.immutable.LazyList and Stream, scala.collection.View: they call a function while they are read, and
  scala.sys.process and the lambdas of scala-library have functions worth calling (CVE-2022-36944).
- LazilyGeneratedOrdering of catalyst's codegen: it compiles Java text, made from its expressions, when it is read.
- HiveFunctionWrapper of Spark's Hive module: it hands bytes to Kryo, which has no such list.
- SerializableWritable, SerializableJobConf: they make objects of classes named in their bytes.
- CallMethodViaReflection and TryReflect (SQL's reflect, java_method): they call a method named in a text when they run.
- PipedRDD (runs a command), JdbcRDD and Hadoop's RDDs (open what a text names) when they run.

A lambda names the class it was written in as a class of the stream, and Scala's classes give back only lambdas of
their own: lambdas come out of listed classes only.
"""

from __future__ import annotations

from collections.abc import Iterable

# Patterns as in jdk.serialFilter: "a.b.*" a package, "a.b.**" with those below, "a.b.C*" names that start so, else the
# name; "!" refuses. The first that matches counts.
SPARK = "org.apache.spark"
SQL = f"{SPARK}.sql"
EXPRESSIONS = f"{SQL}.catalyst.expressions"

_JAVA = (
    *(f"java.lang.{name}" for name in ("Object", "Number", "Boolean", "Byte", "Character", "Short", "Integer", "Long")),
    *(f"java.lang.{name}" for name in ("Float", "Double", "String", "Enum")),
    # Spark 4 keeps where an expression was written.
    "java.lang.StackTraceElement",
    "java.lang.invoke.SerializedLambda",
    *(f"java.math.{name}" for name in ("BigDecimal", "BigInteger", "MathContext", "RoundingMode")),
    *(f"java.util.{name}" for name in ("ArrayList", "HashMap", "Map$Entry", "UUID", "Locale", "Arrays$ArrayList")),
    *(f"java.util.Collections${name}" for name in ("EmptyList", "EmptyMap", "SingletonList")),
    # Holds the value of a lambda's variable (transform, filter, aggregate).
    "java.util.concurrent.atomic.AtomicReference",
    "java.time.Ser",
    "java.time.ZoneRegion",
)
_SCALA = (
    *(f"scala.{name}" for name in ("Enumeration*", "None$", "Option", "Some", "Tuple*", "Product*")),
    "scala.collection.IterableFactory$ToFactory",
    "scala.collection.MapFactory$ToFactory",
    "scala.collection.generic.DefaultSerializationProxy",
    "scala.collection.generic.SerializeEnd$",
    *(
        f"scala.collection.immutable.{name}"
        for name in ("$colon$colon", "ArraySeq*", "HashMap*", "HashSet*", "IndexedSeq$", "List", "List$*")
    ),
    *(
        f"scala.collection.immutable.{name}"
        for name in ("ListMap*", "ListSerializeEnd$", "Map$*", "Nil$", "Range*", "Seq$", "Set$*", "Vector*")
    ),
    *(f"scala.collection.mutable.{name}" for name in ("ArrayBuffer*", "ArraySeq*", "HashMap*", "ListBuffer*")),
    "scala.collection.mutable.WrappedArray*",
    # Of numbers and how they compare. What compares while it is read is not listed.
    *(f"scala.math.{name}" for name in ("BigDecimal*", "BigInt*", "ScalaNumber", "Numeric$*", "Ordering$*")),
    "scala.runtime.BoxedUnit",
    "scala.runtime.ModuleSerializationProxy",
)
_NEVER = (
    f"!{EXPRESSIONS}.CallMethodViaReflection*",
    f"!{EXPRESSIONS}.TryReflect*",
    f"!{SPARK}.SerializableWritable*",
    f"!{SPARK}.util.SerializableJobConf*",
    *(f"!{SPARK}.rdd.{name}*" for name in ("PipedRDD", "JdbcRDD", "HadoopRDD", "NewHadoopRDD", "WholeTextFileRDD")),
    f"!{SQL}.hive.**",
)
_OPERATORS = (
    f"{SQL}.catalyst.*",
    f"{EXPRESSIONS}.*",
    f"{EXPRESSIONS}.aggregate.*",
    *(f"{EXPRESSIONS}.{name}.*" for name in ("csv", "json", "url", "variant", "xml")),
    # Functions whose work is a static method of Spark's (aes_encrypt, url_decode, parse_json).
    *(f"{EXPRESSIONS}.objects.{name}" for name in ("StaticInvoke*", "Invoke*", "AssertNotNull*")),
    *(f"{SQL}.catalyst.{name}.*" for name in ("optimizer", "plans", "plans.physical", "trees", "util", "json", "csv")),
    *(f"{SQL}.catalyst.{name}.*" for name in ("xml", "types", "types.ops")),
    f"{SQL}.execution.*",
    *(f"{SQL}.execution.{name}.*" for name in ("aggregate", "exchange", "metric", "python", "window")),
    f"{SQL}.execution.adaptive.AQEShuffleReadExec*",
    *(f"{SQL}.execution.joins.{name}*" for name in ("BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec")),
    *(f"{SQL}.execution.joins.{name}*" for name in ("CartesianProductExec", "HashedRelationBroadcastMode")),
    *(f"{SQL}.execution.joins.{name}*" for name in ("ShuffledHashJoinExec", "SortMergeJoinExec")),
    f"{SQL}.internal.SQLConf$*",
    f"{SQL}.types.*",
    f"{SQL}.internal.types.*",
    f"{SPARK}.unsafe.types.*",
    *(f"{SPARK}.api.python.{name}*" for name in ("ChainedPythonFunctions", "PythonAccumulatorV2")),
    *(f"{SPARK}.api.python.{name}*" for name in ("PythonFunction", "SimplePythonFunction")),
    *(f"{SPARK}.util.{name}" for name in ("AccumulatorMetadata", "AccumulatorV2", "CollectionAccumulator", "LazyTry*")),
    f"{SPARK}.util.collection.*",
    f"{SPARK}.QueryContextType",
    # Where startswith, endswith and contains of binary values are.
    f"{SPARK}.unsafe.array.ByteArrayMethods",
    "org.apache.datasketches.hll.TgtHllType",
    "com.univocity.parsers.csv.UnescapedQuoteHandling",
)
ALLOWED_CLASSES: tuple[str, ...] = (*_NEVER, *_JAVA, *_SCALA, *_OPERATORS)

# What tasks, their results and their errors are made of besides; a plan names none of it. Spark's own classes are let
# through here by whole packages, for tasks have an ordering that compiles itself and RDDs of all kinds in them.
_SPARK = (
    *(f"!{SQL}.{name}.**" for name in ("connect", "jdbc", "streaming", "execution.streaming", "execution.r")),
    *(f"{SPARK}.{name}" for name in ("*", "api.java.*", "api.python.*", "broadcast.*", "deploy.*", "executor.*")),
    *(f"{SPARK}.{name}" for name in ("errors.*", "internal.**", "io.*", "memory.*", "metrics.**", "network.**")),
    *(f"{SPARK}.{name}" for name in ("paths.*", "rdd.*", "resource.*", "rpc.**", "scheduler.**", "serializer.*")),
    *(f"{SPARK}.{name}" for name in ("shuffle.**", "sql.**", "status.**", "storage.**", "unsafe.**", "util.**")),
)
_ERRORS = (
    *(f"java.lang.{name}" for name in ("Throwable", "Exception", "RuntimeException", "Error", "LinkageError")),
    *(f"java.lang.{name}Exception" for name in ("Arithmetic", "ArrayIndexOutOfBounds", "ClassCast", "ClassNotFound")),
    *(f"java.lang.{name}Exception" for name in ("IllegalArgument", "IllegalState", "IndexOutOfBounds", "Interrupted")),
    *(f"java.lang.{name}Exception" for name in ("NegativeArraySize", "NullPointer", "NumberFormat", "Security")),
    *(f"java.lang.{name}Exception" for name in ("StringIndexOutOfBounds", "UnsupportedOperation")),
    "java.lang.ReflectiveOperationException",
    *(f"java.lang.{name}Error" for name in ("Assertion", "OutOfMemory", "StackOverflow", "VirtualMachine")),
    *(f"java.io.{name}Exception" for name in ("IO", "EOF", "FileNotFound", "UncheckedIO", "ObjectStream")),
    *(f"java.io.{name}Exception" for name in ("InvalidClass", "NotSerializable")),
    "java.time.DateTimeException",
    "java.time.format.DateTimeParseException",
    "java.util.NoSuchElementException",
    "java.util.Collections$UnmodifiableCollection",
    "java.util.Collections$UnmodifiableList",
    "java.util.Collections$UnmodifiableRandomAccessList",
    "java.util.concurrent.ExecutionException",
    "scala.MatchError",
    f"{SPARK}.ThrowableSerializationWrapper",
)
_TASKS = (
    *(f"java.util.{name}" for name in ("BitSet", "Date", "HashSet", "Hashtable", "LinkedHashMap", "LinkedHashSet")),
    *(f"java.util.{name}" for name in ("Properties", "concurrent.ConcurrentHashMap*", "concurrent.atomic.*")),
    "java.util.concurrent.locks.*",
    "java.util.concurrent.TimeUnit*",
    "java.sql.Date",
    "java.sql.Timestamp",
    *(f"java.time.{name}" for name in ("Duration", "Instant", "LocalDate", "LocalDateTime", "Period", "ZoneOffset")),
    *(f"scala.collection.mutable.{name}*" for name in ("HashSet", "LinkedHashMap", "LinkedHashSet", "LinkedEntry")),
    *(f"scala.collection.mutable.{name}*" for name in ("DefaultEntry", "OpenHashMap")),
    # As the element of an array. A function's class is that of a lambda, in the package it was written in.
    "scala.Function1",
    "scala.concurrent.duration.*",
    "scala.math.Numeric*",
    "scala.math.Ordering*",
    "scala.reflect.*",
    *(f"scala.util.{name}" for name in ("Either", "Failure", "Left", "Right", "Success", "Try")),
    "org.apache.parquet.**",
    "org.apache.datasketches.hll.TgtHllType",
    "com.univocity.parsers.csv.UnescapedQuoteHandling",
)


def _filter(patterns: Iterable[str]) -> str:
    return ";".join([*patterns, "!*"])


# For a stream of its own (ObjectInputStream.setObjectInputFilter) that reads plan.meta.
PLAN_SERIAL_FILTER = _filter(ALLOWED_CLASSES)
# For the whole process of a replay: -Djdk.serialFilter=... of the driver's and the executors' Java.
# Each class is held against the patterns in turn, in every task: the usual ones come first.
JDK_SERIAL_FILTER = _filter((*_NEVER, *_SPARK, *_JAVA, *_SCALA, *_TASKS, *_ERRORS))


def is_allowed(name: str, serial_filter: str = PLAN_SERIAL_FILTER) -> bool:
    """Would a filter let a class through? As the JDK decides; arrays are asked for by their element's class.

    Examples
    --------
    >>> is_allowed("org.apache.spark.sql.execution.FilterExec"), is_allowed("java.io.File")
    (True, False)
    """
    for pattern in serial_filter.split(";"):
        wanted = pattern.removeprefix("!")
        if _matches(name, wanted):
            return wanted == pattern
    return False


def refused(names: Iterable[str]) -> list[str]:
    """Which of these classes may not be in a plan.meta? Sorted.

    Examples
    --------
    >>> refused(["java.lang.Integer", "javax.management.BadAttributeValueExpException"])
    ['javax.management.BadAttributeValueExpException']
    """
    return sorted(name for name in set(names) if not is_allowed(name))


def _matches(name: str, pattern: str) -> bool:
    # Source: java.io.ObjectInputFilter.Config.createFilter of the JDK's documentation.
    if pattern == "*":
        return True
    if pattern.endswith(".**"):
        return name.startswith(pattern[:-2])
    if pattern.endswith(".*"):
        return name.startswith(pattern[:-1]) and "." not in name[len(pattern) - 1 :]
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
