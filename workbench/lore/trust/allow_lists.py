"""Java classes and Spark settings that a dump may bring into a replay."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workbench.core import redaction

# Patterns as in jdk.serialFilter: "a.b.*" a package, "a.b.**" with subpackages, "a.b.C*" a prefix, else a name; "!"
# refuses. The first match counts.
SPARK_PACKAGE = "org.apache.spark"
SQL_PACKAGE = f"{SPARK_PACKAGE}.sql"
EXPRESSIONS_PACKAGE = f"{SQL_PACKAGE}.catalyst.expressions"

_JAVA_CLASSES = (
    *(f"java.lang.{name}" for name in ("Object", "Number", "Boolean", "Byte", "Character", "Short", "Integer", "Long")),
    *(f"java.lang.{name}" for name in ("Float", "Double", "String", "Enum")),
    # Spark 4 stores the origin of an expression.
    "java.lang.StackTraceElement",
    "java.lang.invoke.SerializedLambda",
    *(f"java.math.{name}" for name in ("BigDecimal", "BigInteger", "MathContext", "RoundingMode")),
    *(f"java.util.{name}" for name in ("ArrayList", "HashMap", "Map$Entry", "UUID", "Locale", "Arrays$ArrayList")),
    *(f"java.util.Collections${name}" for name in ("EmptyList", "EmptyMap", "SingletonList")),
    # Value of a lambda's variable (transform, filter, aggregate).
    "java.util.concurrent.atomic.AtomicReference",
    "java.time.Ser",
    "java.time.ZoneRegion",
)
_SCALA_CLASSES = (
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
    # Numbers and orderings; classes that compare while they are read are not listed.
    *(f"scala.math.{name}" for name in ("BigDecimal*", "BigInt*", "ScalaNumber", "Numeric$*", "Ordering$*")),
    "scala.runtime.BoxedUnit",
    "scala.runtime.ModuleSerializationProxy",
)
_NEVER_CLASSES = (
    f"!{EXPRESSIONS_PACKAGE}.CallMethodViaReflection*",
    f"!{EXPRESSIONS_PACKAGE}.TryReflect*",
    f"!{SPARK_PACKAGE}.SerializableWritable*",
    f"!{SPARK_PACKAGE}.util.SerializableJobConf*",
    *(
        f"!{SPARK_PACKAGE}.rdd.{name}*"
        for name in ("PipedRDD", "JdbcRDD", "HadoopRDD", "NewHadoopRDD", "WholeTextFileRDD")
    ),
    f"!{SQL_PACKAGE}.hive.**",
)
_OPERATOR_CLASSES = (
    f"{SQL_PACKAGE}.catalyst.*",
    f"{EXPRESSIONS_PACKAGE}.*",
    f"{EXPRESSIONS_PACKAGE}.aggregate.*",
    *(f"{EXPRESSIONS_PACKAGE}.{name}.*" for name in ("csv", "json", "url", "variant", "xml")),
    # Functions implemented by a static method of Spark (aes_encrypt, url_decode, parse_json).
    *(f"{EXPRESSIONS_PACKAGE}.objects.{name}" for name in ("StaticInvoke*", "Invoke*", "AssertNotNull*")),
    *(
        f"{SQL_PACKAGE}.catalyst.{name}.*"
        for name in ("optimizer", "plans", "plans.physical", "trees", "util", "json", "csv")
    ),
    *(f"{SQL_PACKAGE}.catalyst.{name}.*" for name in ("xml", "types", "types.ops")),
    f"{SQL_PACKAGE}.execution.*",
    *(f"{SQL_PACKAGE}.execution.{name}.*" for name in ("aggregate", "exchange", "metric", "python", "window")),
    f"{SQL_PACKAGE}.execution.adaptive.AQEShuffleReadExec*",
    *(f"{SQL_PACKAGE}.execution.joins.{name}*" for name in ("BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec")),
    *(f"{SQL_PACKAGE}.execution.joins.{name}*" for name in ("CartesianProductExec", "HashedRelationBroadcastMode")),
    *(f"{SQL_PACKAGE}.execution.joins.{name}*" for name in ("ShuffledHashJoinExec", "SortMergeJoinExec")),
    f"{SQL_PACKAGE}.internal.SQLConf$*",
    f"{SQL_PACKAGE}.types.*",
    f"{SQL_PACKAGE}.internal.types.*",
    f"{SPARK_PACKAGE}.unsafe.types.*",
    *(f"{SPARK_PACKAGE}.api.python.{name}*" for name in ("ChainedPythonFunctions", "PythonAccumulatorV2")),
    *(f"{SPARK_PACKAGE}.api.python.{name}*" for name in ("PythonFunction", "SimplePythonFunction")),
    *(
        f"{SPARK_PACKAGE}.util.{name}"
        for name in ("AccumulatorMetadata", "AccumulatorV2", "CollectionAccumulator", "LazyTry*")
    ),
    f"{SPARK_PACKAGE}.util.collection.*",
    f"{SPARK_PACKAGE}.QueryContextType",
    # startswith, endswith and contains of binary values.
    f"{SPARK_PACKAGE}.unsafe.array.ByteArrayMethods",
    "org.apache.datasketches.hll.TgtHllType",
    "com.univocity.parsers.csv.UnescapedQuoteHandling",
)
ALLOWED_CLASSES: tuple[str, ...] = (*_NEVER_CLASSES, *_JAVA_CLASSES, *_SCALA_CLASSES, *_OPERATOR_CLASSES)

# What tasks, their results and their errors are made of besides; a plan names none of it. Spark's own classes are let
# through here by whole packages, for tasks have an ordering that compiles itself and RDDs of all kinds in them.
_SPARK_CLASSES = (
    *(f"!{SQL_PACKAGE}.{name}.**" for name in ("connect", "jdbc", "streaming", "execution.streaming", "execution.r")),
    *(
        f"{SPARK_PACKAGE}.{name}"
        for name in ("*", "api.java.*", "api.python.*", "broadcast.*", "deploy.*", "executor.*")
    ),
    *(
        f"{SPARK_PACKAGE}.{name}"
        for name in ("errors.*", "internal.**", "io.*", "memory.*", "metrics.**", "network.**")
    ),
    *(
        f"{SPARK_PACKAGE}.{name}"
        for name in ("paths.*", "rdd.*", "resource.*", "rpc.**", "scheduler.**", "serializer.*")
    ),
    *(
        f"{SPARK_PACKAGE}.{name}"
        for name in ("shuffle.**", "sql.**", "status.**", "storage.**", "unsafe.**", "util.**")
    ),
)
_ERROR_CLASSES = (
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
    f"{SPARK_PACKAGE}.ThrowableSerializationWrapper",
)
_TASK_CLASSES = (
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
TIME_ZONE = "spark.sql.session.timeZone"
MAX_CONF_CHARS = 500
_KEY_PATTERN = re.compile(r"spark\.sql\.[A-Za-z][A-Za-z0-9_.-]{0,200}", re.ASCII)
_ZONE_PATTERN = re.compile(r"[A-Za-z0-9_+:-]{1,32}(?:/[A-Za-z0-9_+:-]{1,32}){0,2}", re.ASCII)
_VALUE_PATTERN = re.compile(r"[A-Za-z0-9_ .,;:+*=<>()%|?-]*", re.ASCII)
# Like org.example.Name, but not numbers with a dot.
_CLASS_PATTERN = re.compile(r"(?:^|[^\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
# Parts of forbidden keys: code to load, places of data, programs and services.
_FORBIDDEN_PARTS = {
    "extension": "extensions are code",
    "class": "it names classes",
    "jar": "it names jars",
    "plugin": "plugins are code",
    "javaoption": "Java's options",
    "option": "options of other programs",
    "listener": "listeners are code",
    "catalog": "catalogs are code and places",
    "provider": "it names classes",
    "serializer": "it names classes",
    "hive": "Hive loads code",
    "artifact": "artifacts are code",
    "maven": "it names places from which code is loaded",
    "repositories": "it names places from which code is loaded",
    "streaming": "streams are not replayed",
    "warehouse": "it names a place",
    "path": "it names a place",
    "location": "it names a place",
    "dir": "it names a place",
    "uri": "it names a place",
    "url": "it names a place",
    "sources.default": "it names classes",
    "excludedrules": "it names classes",
    "pyspark.python": "it names a program",
    "pyspark.driver": "it names a program",
    "worker": "it names a program",
    "command": "it names a program",
    "redaction": "it changes which values are hidden",
    "secret": "it may be a secret",
    "password": "it may be a secret",
    "token": "it may be a secret",
    "credential": "it may be a secret",
}


def _format_filter(patterns: Iterable[str]) -> str:
    return ";".join([*patterns, "!*"])


# Filter of the stream that reads plan.meta (ObjectInputStream.setObjectInputFilter).
PLAN_SERIAL_FILTER = _format_filter(ALLOWED_CLASSES)
# Filter of the whole replay process: -Djdk.serialFilter=... of driver and executors.
# Patterns are tried in order for each class in every task, so common ones come first.
JDK_SERIAL_FILTER = _format_filter(
    (*_NEVER_CLASSES, *_SPARK_CLASSES, *_JAVA_CLASSES, *_SCALA_CLASSES, *_TASK_CLASSES, *_ERROR_CLASSES)
)


def is_allowed_class(name: str, serial_filter: str = PLAN_SERIAL_FILTER) -> bool:
    """Does a filter allow a class, by the rules of the JDK? Arrays are checked by their element class.

    >>> is_allowed_class("org.apache.spark.sql.execution.FilterExec"), is_allowed_class("java.io.File")
    (True, False)
    """
    for pattern in serial_filter.split(";"):
        wanted = pattern.removeprefix("!")
        if _matches_pattern(name, wanted):
            return wanted == pattern
    return False


def list_refused_classes(names: Iterable[str]) -> list[str]:
    """Classes that a plan.meta may not contain, sorted.

    >>> list_refused_classes(["java.lang.Integer", "javax.management.BadAttributeValueExpException"])
    ['javax.management.BadAttributeValueExpException']
    """
    return sorted(name for name in set(names) if not is_allowed_class(name))


def _matches_pattern(name: str, pattern: str) -> bool:
    # Source: java.io.ObjectInputFilter.Config.createFilter of the JDK's documentation.
    if pattern == "*":
        return True
    if pattern.endswith(".**"):
        return name.startswith(pattern[:-2])
    if pattern.endswith(".*"):
        return name.startswith(pattern[:-1]) and "." not in name[len(pattern) - 1 :]
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def find_conf_fault(key: str, value: str) -> str | None:
    """Reason why a dump may not contain a setting; null when it may.

    >>> find_conf_fault("spark.sql.session.timeZone", "Europe/Berlin") is None
    True
    >>> find_conf_fault("spark.jars", "evil.jar"), find_conf_fault("spark.sql.extensions", "org.example.Evil")
    ('only keys of spark.sql.* are taken', 'extensions are code')
    """
    if not _KEY_PATTERN.fullmatch(key):
        return "only keys of spark.sql.* are taken"
    if key == TIME_ZONE:
        return None if _ZONE_PATTERN.fullmatch(value) else "not a time zone"
    lowered = key.lower()
    for part, reason in _FORBIDDEN_PARTS.items():
        if part in lowered:
            return reason
    if redaction.is_secret_key(key):
        return "it may be a secret"
    if len(value) > MAX_CONF_CHARS:
        return "the value is too long"
    if not _VALUE_PATTERN.fullmatch(value) or "://" in value:
        return "the value may be a path, a URI or a reference"
    return "the value may name a class" if _CLASS_PATTERN.search(value) else None
