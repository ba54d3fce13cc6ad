"""Queries of the matrix that run Python on the executors.

Functions are nested in the query, so that they are pickled whole and the process that replays needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.lore.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@query("BatchEvalPython")
def chained_udfs(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    @functions.udf("string")
    def backwards(text: str | None) -> str | None:
        return None if text is None else text[::-1]

    @functions.udf("struct<a: int, b: array<string>>")
    def halves(number: int) -> tuple[int, list[str]]:
        return number // 2, [str(number)]

    @functions.udf("long")
    def plus(number: int) -> int:
        return number + 1

    halved = halves(plus(plus("l_partkey"))).alias("h")
    return spark.table("lineitem").select("l_orderkey", backwards("l_comment").alias("b"), halved)


@query("ArrowEvalPython")
def pandas_udf(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    def half_more(prices: Any) -> Any:
        return prices * 1.5

    udf = functions.pandas_udf(_of_series(half_more), "double")
    return spark.table("lineitem").select("l_orderkey", udf("l_extendedprice").alias("p"))


@query("MapInPandas")
def map_in_pandas(spark: SparkSession) -> DataFrame:
    def large(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[frame.l_quantity > 25]

    return (
        spark.table("lineitem").select("l_orderkey", "l_quantity").mapInPandas(large, "l_orderkey long, l_quantity int")
    )


@query("MapInArrow")
def map_in_arrow(spark: SparkSession) -> DataFrame:
    def every_second(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch[::1].slice(0, batch.num_rows // 2)

    return (
        spark.table("orders")
        .select("o_orderkey", "o_totalprice")
        .mapInArrow(every_second, "o_orderkey long, o_totalprice decimal(15,2)")
    )


@query("FlatMapGroupsInPandas Sort")
def apply_in_pandas(spark: SparkSession) -> DataFrame:
    def sizes(frame: Any) -> Any:
        return frame.assign(n=len(frame))[["l_partkey", "n"]].head(1)

    lines = spark.table("lineitem").select("l_partkey", "l_quantity")
    return lines.groupBy("l_partkey").applyInPandas(sizes, "l_partkey int, n long")


@query("FlatMapCoGroupsInPandas")
def cogroup_in_pandas(spark: SparkSession) -> DataFrame:
    def both(key: tuple[int], left: Any, right: Any) -> Any:
        import pandas as pd

        return pd.DataFrame({"k": [key[0]], "l": [len(left)], "r": [len(right)]})

    orders = spark.table("orders").select("o_custkey").groupBy("o_custkey")
    customers = spark.table("customer").select("c_custkey", "c_name").groupBy("c_custkey")
    return orders.cogroup(customers).applyInPandas(both, "k long, l long, r long")


@query("WindowInPandas Sort")
def window_in_pandas(spark: SparkSession) -> DataFrame:
    from pyspark.sql import Window, functions

    mean = functions.pandas_udf(_mean(), "double")
    parts = Window.partitionBy("l_partkey")
    near = parts.orderBy("l_extendedprice").rowsBetween(-2, 0)
    lines = spark.table("lineitem").select("l_partkey", "l_extendedprice", "l_quantity")
    return lines.withColumn("m", mean("l_extendedprice").over(parts)).withColumn("n", mean("l_quantity").over(near))


@query("AggregateInPandas")
def aggregate_in_pandas(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    mean = functions.pandas_udf(_mean(), "double")
    return spark.table("lineitem").groupBy("l_returnflag").agg(mean("l_extendedprice").alias("m"))


def _mean() -> Any:
    def mean(values: Any) -> float:
        return float(values.mean())

    return _of_series(mean, result=float)


def _of_series(function: Any, *, result: Any = None) -> Any:
    """The function with annotations that are types: pandas_udf reads its kind there, and pandas is imported late."""
    import pandas as pd

    function.__annotations__ = dict.fromkeys(function.__annotations__, pd.Series) | {"return": result or pd.Series}
    return function


@query("BatchEvalPythonUDTF")
def table_function(spark: SparkSession) -> DataFrame:
    from pyspark.sql.functions import udtf

    class Digits:
        def eval(self, number: int) -> Iterator[tuple[int, str]]:
            yield from enumerate(str(number))

    spark.udtf.register("digits_of", udtf(Digits, returnType="place: int, digit: string"))
    return spark.sql("select o_orderkey, place, digit from orders, lateral digits_of(o_orderkey)")


@query("ArrowEvalPythonUDTF")
def table_function_by_arrow(spark: SparkSession) -> DataFrame:
    from pyspark.sql.functions import udtf

    class Twice:
        def eval(self, name: str) -> Iterator[tuple[str]]:
            yield (name,)
            yield (name.upper(),)

    spark.udtf.register("twice_of", udtf(Twice, returnType="name: string", useArrow=True))
    return spark.sql("select c_custkey, name from customer, lateral twice_of(c_name)")


@query("FlatMapGroupsInArrow", since=(4, 0))
def apply_in_arrow(spark: SparkSession) -> DataFrame:
    def first(table: Any) -> Any:
        return table.slice(0, 1)

    lines = spark.table("lineitem").select("l_partkey", "l_quantity")
    return lines.groupBy("l_partkey").applyInArrow(first, "l_partkey int, l_quantity int")


@query("FlatMapCoGroupsInArrow", since=(4, 0))
def cogroup_in_arrow(spark: SparkSession) -> DataFrame:
    def counts(left: Any, right: Any) -> Any:
        import pyarrow as pa

        return pa.table({"l": [left.num_rows], "r": [right.num_rows]})

    orders = spark.table("orders").select("o_custkey").groupBy("o_custkey")
    return orders.cogroup(spark.table("customer").groupBy("c_custkey")).applyInArrow(counts, "l long, r long")
