"""Script that makes workbench/speedup/comet_facts from jars of Apache DataFusion Comet and an installed pyspark.

    python docs/extract_comet_facts.py JAR...

The class that turns a plan into Comet's names the expressions that it can turn, that of its rules the operators.
Functions are those by which Spark's SQL calls an expression. Licence: Apache-2.0, see NOTICE.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

from docs.extract_spark_functions import read_constants
from workbench.core.files import write_text

OUT = Path(__file__).parents[1] / "workbench" / "speedup" / "comet_facts"
# The second: functions of windows, which have a serializer of their own.
SERDES = re.compile(r"org/apache/comet/serde/QueryPlanSerde\$\.class|.*/comet/CometWindow\w*\$?\.class")
RULES = "org/apache/comet/rules/CometExecRule$.class"
EXPRESSION = re.compile(r"org/apache/spark/sql/catalyst/expressions/(?:[a-z]+/)*([A-Z]\w*)")
OPERATOR = re.compile(r"org/apache/spark/sql/execution/(?:[a-z]+/)*([A-Z]\w*Exec)\b")
# Operators of its own, named as those of Spark that they stand for.
OWN = re.compile(r"org/apache/spark/sql/comet/Comet([A-Z]\w*Exec)\.class")
VERSION = re.compile(r"comet-spark-spark[\d.]+_[\d.]+-(\d+\.\d+)\.\d+\.jar")
# Both rules know these without naming them there: exchanges have a rule of their own.
EXCHANGES = ("BroadcastExchangeExec", "ShuffleExchangeExec")
CLASS = re.compile(r"Class: org\.apache\.spark\.sql\.catalyst\.expressions\.(?:[a-z]+\.)*(\w+)")


def list_texts(code: bytes) -> list[str]:
    """Texts in the constants of a class file."""
    return list(read_constants(code)[0].values())


def list_spark_operators() -> set[str]:
    """Names of Spark's own operators."""
    import pyspark

    found: set[str] = set()
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar"):
        with zipfile.ZipFile(jar) as content:
            found |= {name for path in content.namelist() for name in OPERATOR.findall(path)}
    return found


def list_functions() -> dict[str, list[str]]:
    """Names of functions by the class of their expression."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    by_class: dict[str, list[str]] = defaultdict(list)
    for (name,) in spark.sql("SHOW FUNCTIONS").collect():
        told = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION `{name}`").collect())
        if match := CLASS.search(told):
            by_class[match[1]].append(name)
    spark.stop()
    return by_class


def main(jars: list[Path]) -> None:
    of_spark = list_spark_operators()
    versions: dict[tuple[str, str], list[str]] = defaultdict(list)
    sources = []
    for jar in jars:
        match = VERSION.fullmatch(jar.name)
        assert match is not None, jar.name
        with zipfile.ZipFile(jar) as content:
            serdes = [
                text for name in filter(SERDES.fullmatch, content.namelist()) for text in list_texts(content.read(name))
            ]
            rules = list_texts(content.read(RULES))
            own = [found[1] for found in map(OWN.fullmatch, content.namelist()) if found and found[1] in of_spark]
        found = {("expression", name) for text in serdes for name in EXPRESSION.findall(text)}
        found |= {("exec", name) for text in rules for name in OPERATOR.findall(text)}
        for key in found | {("exec", name) for name in (*EXCHANGES, *own)}:
            versions[key].append(match[1])
        sources.append({"file": jar.name, "sha256": hashlib.sha256(jar.read_bytes()).hexdigest()})
    functions = list_functions()
    for name in functions:
        # Those that no version turns stand with none, so that they are known to be functions of Spark.
        versions.setdefault(("expression", name), [])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", "name", "functions", "versions"])
    for (kind, name), told in sorted(versions.items()):
        writer.writerow([kind, name, ";".join(sorted(functions.get(name, []))), ";".join(told)])
    OUT.mkdir(exist_ok=True)
    write_text(OUT / "supported.csv", text.getvalue())
    about = {"package": "org.apache.datafusion:comet-spark", "licence": "Apache-2.0", "sources": sources}
    write_text(OUT / "SOURCE.json", json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
