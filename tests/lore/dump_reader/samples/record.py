"""The script that made the samples beside it: `python record.py FOLDER`, with a pyspark and javac at hand.

Once with pyspark 3.5 (Scala 2.12), once with 4.x (2.13). `simulated_*.meta` are no metas of a GPU: classes of the same
name and fields, compiled here, hold what a real Spark gave (its Seqs, attributes and types), written by Spark's own
serializer. `plan.meta` is a real plan of CPU operators. names.json holds what a JVM resolved while reading each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
META = """package com.nvidia.spark.rapids.lore;
public class {name} implements scala.Serializable {{
    private static final long serialVersionUID = 1;
    {fields}
    public {name}({parameters}) {{ {assigned} }}
}}
"""
FIELDS = {
    "LoreRDDMeta": ("int numPartitions", "{seq} outputPartitions", "{seq} attrs"),
    "LoreRDDPartitionMeta": ("int numBatches", "{seq} dataType"),
}
COLUMNS = """SELECT CAST(id AS BIGINT) AS id, CAST(id AS STRING) AS name, CAST(id AS DECIMAL(12,2)) AS price,
    DATE'2024-01-01' AS day, TIMESTAMP'2024-01-01 00:00:00' AS at, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS local,
    array('a') AS tags, named_struct('x', 1.5D, 'y', CAST(NULL AS FLOAT)) AS point, map('k', 1) AS kv,
    X'00' AS raw, true AS yes, INTERVAL '1' DAY AS days, INTERVAL '1' MONTH AS months, id AS id FROM range(1)"""


def sources(folder: Path, scala: str) -> list[str]:
    seq = "scala.collection.Seq" if scala == "2.12" else "scala.collection.immutable.Seq"
    marker = "scala.Serializable" if scala == "2.12" else "java.io.Serializable"
    paths = [str(HERE / "Protocol.java")]
    for name, fields in FIELDS.items():
        typed = [field.format(seq=seq) for field in fields]
        names = [field.split()[1] for field in typed]
        text = META.replace("scala.Serializable", marker).format(
            name=name,
            fields=" ".join(f"private final {field};" for field in typed),
            parameters=", ".join(typed),
            assigned=" ".join(f"this.{each} = {each};" for each in names),
        )
        path = folder / f"{name}.java"
        path.write_text(text)
        paths.append(str(path))
    return paths


def record(target: Path) -> None:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    scala = "2.12" if list(jars.glob("scala-library-2.12*")) else "2.13"
    folder = target / f"scala_{scala}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        classes = Path(built, "classes")
        subprocess.run(
            ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", classes, *sources(Path(built), scala)], check=True
        )
        lines = subprocess.run(
            ["java", "-cp", classes, "Protocol", target], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        names = {line.split("\t")[0]: [name for name in line.split("\t")[1:] if name] for line in lines}
        names |= {f"{folder.name}/{name}": found for name, found in spark_samples(folder, classes).items()}
    path = target / "names.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    # A line for each sample, so that a diff shows which one has changed.
    entries = (f"{json.dumps(name)}: {json.dumps(resolved)}" for name, resolved in sorted((known | names).items()))
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def spark_samples(folder: Path, classes: Path) -> dict[str, list[str]]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.driver.extraClassPath", str(classes)).getOrCreate()
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    serializer = jvm.org.apache.spark.SparkEnv.get().serializer().newInstance()
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.Object"))
    output = spark.sql(COLUMNS)._jdf.queryExecution().analyzed().output()
    types = jvm.org.apache.spark.api.python.PythonUtils.toSeq(
        [output.apply(index).dataType() for index in range(output.size())]
    )
    numbers = gateway.new_array(jvm.int, 5)
    for index in range(5):
        numbers[index] = index
    partitions = ints(jvm, numbers)
    metas = jvm.com.nvidia.spark.rapids.lore
    made = {
        "simulated_rdd.meta": metas.LoreRDDMeta(5, partitions, output.toList()),
        "simulated_rdd_vector.meta": metas.LoreRDDMeta(5, partitions.toVector(), output.take(2).toVector()),
        "simulated_rdd_list.meta": metas.LoreRDDMeta(5, partitions.toList(), types.take(0).toList()),
        "simulated_partition.meta": metas.LoreRDDPartitionMeta(2, types.toList()),
        "plan.meta": plan(spark),
    }
    found = {}
    for name, value in made.items():
        buffer = serializer.serialize(value, tag)
        data = bytes(buffer.array())[: buffer.limit()]
        (folder / name).write_bytes(data)
        found[name] = jvm.Protocol.resolved(data).split("\n")
    spark.stop()
    return found


def ints(jvm, numbers):
    if jvm.scala.util.Properties.versionNumberString().startswith("2.12"):
        return jvm.scala.Predef.wrapIntArray(numbers)
    return jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(numbers)


def plan(spark):
    """A filter over a Python function over a range, without what a session's own plan has of this machine."""
    from pyspark.sql import functions

    # Not in this file's own text: pickled code names the file that it came from.
    scope = {"__name__": "__main__"}
    exec("def double_it(value):\n    return 2 * value", scope)
    double_it = functions.udf(scope["double_it"], "long")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    frame = spark.range(0, 9, 1, 3).select("id", double_it("id").alias("twice")).where("id > 2")
    root = frame._jdf.queryExecution().sparkPlan()
    at = root
    while at.nodeName() != "BatchEvalPython":
        at = at.children().apply(0)
    function = at.udfs().apply(0).func()
    for name, value in {
        "pythonExec": "python3",
        "envVars": spark._jvm.java.util.HashMap(),
        "accumulator": None,
    }.items():
        field = function.getClass().getDeclaredField(name)
        field.setAccessible(True)
        field.set(function, value)
    return root


if __name__ == "__main__":
    record(Path(sys.argv[1]))
