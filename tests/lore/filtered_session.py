"""`python -m tests.lore.filtered_session`: what the filter of replays lets through, as JSON on stdout."""

from __future__ import annotations

import json
from typing import Any

from tests.lore.small_dump import java_stream
from workbench.lore.dump_reader.java_stream import list_class_names
from workbench.lore.spark_bridge import replay_session
from workbench.lore.spark_bridge.spark_internals import connect_bridge
from workbench.lore.trust.allow_lists import PLAN_SERIAL_FILTER, list_refused_classes

GADGETS = {
    "commons-collections": "org.apache.commons.collections.functors.ConstantTransformer",
    "commons-collections4": "org.apache.commons.collections4.functors.ConstantTransformer",
    "javax": "javax.management.BadAttributeValueExpException",
    "xalan": "com.sun.org.apache.xalan.internal.xsltc.trax.TemplatesImpl",
    "queue": "java.util.PriorityQueue",
    "url": "java.net.URL",
    "hive": "org.apache.spark.sql.hive.HiveShim$HiveFunctionWrapper",
}


def rows(spark: Any) -> dict[str, Any]:
    """Ordinary queries: joins, aggregates, windows, sorts, functions in Python."""
    from pyspark.sql import functions as F  # noqa: N812

    double = F.udf(lambda value: value * 2, "long")
    halved = F.pandas_udf(lambda values: values / 2, "double")
    numbers = spark.range(1000).withColumn("k", F.col("id") % 7)
    few = spark.range(7).withColumnRenamed("id", "k")
    joined = numbers.repartition(4).hint("merge").join(few.hint("merge"), "k")
    ranked = "select max(r) from (select row_number() over (partition by k order by id) r from numbers)"
    numbers.createOrReplaceTempView("numbers")
    return {
        "joined": joined.groupBy("k").count().orderBy("k").collect()[0]["count"],
        "broadcast": numbers.join(F.broadcast(few), "k").count(),
        "sorted": numbers.repartition(3).orderBy(F.desc("id")).first()["id"],
        "ranked": spark.sql(ranked).first()[0],
        "udf": numbers.select(F.sum(double("id"))).first()[0],
        "pandas_udf": numbers.select(F.sum(halved("id"))).first()[0],
        "cached": numbers.cache().filter("k = 3").count(),
    }


def failure(spark: Any) -> str:
    """The message of a task's error, which reaches the driver as a Java stream."""
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        spark.range(10).repartition(2).selectExpr("1 / (id - 5)").collect()
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return str(error)
    return "none"


def read(found: Any, data: bytes, serial_filter: str | None = None) -> str:
    """Class of the object that the JVM reads from a stream, or the error of reading."""
    jvm = found.jvm
    stream = jvm.java.io.ObjectInputStream(jvm.java.io.ByteArrayInputStream(bytearray(data)))
    if serial_filter is not None:
        config = getattr(jvm.java.io, "ObjectInputFilter$Config")
        stream.setObjectInputFilter(config.createFilter(serial_filter))
    try:
        return str(found.jvm.java.util.Objects.requireNonNull(stream.readObject()).getClass().getName())
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return str(getattr(error, "java_exception", error))


def main() -> None:
    with replay_session.fresh_session(master="local[2]", settings={"spark.sql.shuffle.partitions": "3"}) as spark:
        found = connect_bridge(spark)
        operator = spark.range(5).selectExpr("id + 1 as a").filter("a > 2")._jdf.queryExecution().sparkPlan()
        plan = found.serialize(
            operator.withNewChildren(found.to_scala_seq([found.build_empty_leaf(operator.child().output())]))
        )
        own = found.serialize(found.jvm.javax.management.BadAttributeValueExpException(None))
        document = {
            "filter": found.jvm.java.lang.System.getProperty("jdk.serialFilter"),
            "rows": rows(spark),
            "error": failure(spark),
            "gadgets": {name: read(found, java_stream(gadget)) for name, gadget in GADGETS.items()},
            "own_gadget": read(found, own),
            "own_gadget_refused": list_refused_classes(list_class_names(own)),
            "plan": read(found, plan, PLAN_SERIAL_FILTER),
            "plan_refused": list_refused_classes(list_class_names(plan)),
            "rdd_in_plan": read(found, java_stream("org.apache.spark.rdd.MapPartitionsRDD"), PLAN_SERIAL_FILTER),
        }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
