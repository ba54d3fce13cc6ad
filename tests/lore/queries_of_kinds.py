"""Queries whose values, sources or chance the matrix does not have: each is dumped by operator, and replayed.

They have a list of their own, since the matrix promises more of its queries (ids, order, answers) than holds for
queries that give other rows in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tests.lore.queries import Make, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: dict[str, Query] = {}
# They give other rows in each run: a replay over the same inputs may, too.
UNREPEATABLE = {"current_times_and_uuids", "limit_in_the_middle", "order_of_collected"}
# Those of the default tier, run with the quick ones of the matrix.
QUICK = ("window_by_range_of_days", "grouping_sets", "maps_and_structs_as_keys", "limit_in_the_middle")


def kind(name: str, make: Make, *, since: tuple[int, int] = (3, 5), confs: Mapping[str, str] | None = None) -> None:
    """Put a query into the list."""
    assert name not in KINDS
    KINDS[name] = Query(name, make, frozenset(), confs or {}, since, quick=name in QUICK)


def sql(name: str, text: str, *, since: tuple[int, int] = (3, 5), confs: Mapping[str, str] | None = None) -> None:
    """Put a query in SQL into the list."""
    kind(name, lambda spark: spark.sql(text), since=since, confs=confs)


def of_line(line: tuple[int, int], *, quick: bool = False) -> list[Query]:
    """The queries that a Spark line has; only the quick ones on request."""
    return [one for one in KINDS.values() if one.since <= line and (one.quick or not quick)]


sql(
    "window_by_range_of_days",
    """select o_orderkey, sum(o_totalprice) over (partition by o_custkey order by cast(o_orderdate as timestamp)
    range between interval '30' day preceding and interval '7' day following) s,
    min(o_orderkey) over (partition by o_custkey order by cast(o_orderdate as timestamp)
    range between unbounded preceding and interval '1' day preceding) m from orders""",
)


sql(
    "grouping_sets",
    """select l_returnflag f, l_quantity % 5 q, grouping_id() g, grouping(l_returnflag) h, count(*) n,
    sum(l_discount) s from lineitem group by grouping sets ((l_returnflag, l_quantity % 5), (l_returnflag), ())""",
)
sql(
    "statistics_and_sketches",
    """select l_returnflag, corr(l_quantity, l_extendedprice) c, covar_pop(l_quantity, l_partkey) v,
    skewness(l_quantity) w, regr_slope(l_quantity, l_partkey) r, approx_count_distinct(l_partkey) a,
    percentile(l_quantity, array(0.1, 0.9)) p, median(l_quantity) m, mode(l_quantity) o,
    histogram_numeric(l_quantity, 5) h, bit_xor(l_orderkey) x, count_if(l_comment is null) i,
    max_by(l_comment, l_extendedprice) b, bool_or(l_quantity > 49) y, hex(count_min_sketch(l_partkey, 0.5d, 0.5d, 1)) k
    from lineitem group by l_returnflag""",
)
sql(
    "maps_and_structs_as_keys",
    """select k, m['a'] a, cast(collect_set(n) as string) is not null c, count(*) c2 from
    (select struct(o_custkey % 3 x, array(o_custkey % 2, null) y) k, map('a', o_custkey % 4, 'b', 1) m, o_orderkey n
    from orders) group by k, m['a']""",
)


sql(
    "decimals_of_38_digits",
    """select k, sum(d) s, avg(d) a, max(d * 3) m from (select o_custkey % 9 k,
    cast(o_totalprice as decimal(38, 10)) * 1000001 + cast('0.0000000001' as decimal(38, 10)) d from orders)
    group by k""",
)
sql(
    "higher_order_functions",
    """select k, transform_values(m, (k, v) -> v + k) t, map_filter(m, (k, v) -> v > 3) f, zip_with(a, b, (x,
    y) -> x * y) z,
    exists(a, x -> x is null) e, forall(b, x -> x > 0) l, array_sort(b, (x, y) -> cast(y - x as int)) s,
    flatten(array(a, b)) n,
    map_zip_with(m, map(1, 9), (k, x, y) -> coalesce(x, 0) + coalesce(y, 0)) w from
    (select /*+ repartition(3) */ o_orderkey k, map(1, o_custkey, 2, o_orderkey % 5) m, array(o_custkey, null, 3) a,
    array(o_custkey % 7, 1, 2) b from orders) where rand(3) < 0.9""",
)
sql(
    "json_csv_and_xpath",
    """select get_json_object(j, '$.a.b[1]') g, json_tuple(j, 'c', 'd'), from_csv(c, 'x int, y string') x,
    to_csv(named_struct('p', k, 'q', null)) t, schema_of_json('{"a": [1]}') s, xpath_int(m, 'a/b') p,
    parse_url(u, 'QUERY', 'q') r, str_to_map(c, ',', ';') w from
    (select /*+ repartition(2) */ o_orderkey k, concat('{"a": {"b": [1, ', o_custkey, ']}, "c": null, "d": "ä"}') j,
    concat(o_orderkey, ',z') c, concat('<a><b>', o_custkey, '</b></a>') m, concat('http://h/p?q=', o_custkey) u
    from orders)
    where rand(4) < 0.9""",
)


sql(
    "current_times_and_uuids",
    "select /*+ repartition(2) */ o_orderkey, uuid() u, current_timestamp() t, shuffle(array(1, 2, 3)) s from orders",
)
sql("limit_in_the_middle", "select k, count(*) n from (select o_custkey % 5 k from orders limit 333) group by k")
sql(
    "order_of_collected",
    "select l_returnflag, first(l_comment) f, collect_list(l_partkey) c from "
    "(select /*+ repartition(4) */ * from lineitem) group by l_returnflag",
)


def sample_by_value(spark: SparkSession) -> DataFrame:
    """A stratified sample, and one without replacement."""
    strata = spark.table("lineitem").sampleBy("l_returnflag", {"A": 0.5, "R": 0.1}, 3)
    return strata.sample(0.6, seed=2).groupBy("l_returnflag").count()


kind("sample_by_value", sample_by_value)


def udf_that_is_declared_nondeterministic(spark: SparkSession) -> DataFrame:
    """A row function in Python that is not a function of its row."""
    from pyspark.sql import functions

    @functions.udf("double")
    def noise(number: int) -> float:
        import random

        return number + random.random()

    drawn = noise.asNondeterministic()
    return (
        spark.table("orders").select("o_custkey", drawn("o_orderkey").alias("x")).repartition(3, "o_custkey").sort("x")
    )


kind("udf_that_is_declared_nondeterministic", udf_that_is_declared_nondeterministic)


def files_of_a_second_kind(spark: SparkSession) -> DataFrame:
    """Files read by a data source of the second version, whose scan is another operator."""
    import tempfile

    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    folder = tempfile.mkdtemp(prefix="lore-kinds-")
    spark.table("orders").write.mode("overwrite").csv(f"{folder}/orders")
    rows = spark.read.schema("o_orderkey bigint, o_custkey bigint, o_orderdate date").csv(f"{folder}/orders")
    return rows.where("o_custkey % 3 = 0").groupBy("o_custkey").count()


kind("files_of_a_second_kind", files_of_a_second_kind, confs={"spark.sql.sources.useV1SourceList": ""})


def rows_of_an_rdd(spark: SparkSession) -> DataFrame:
    """Rows that Python makes, in an RDD without a name."""
    rows = spark.sparkContext.parallelize(range(500), 3).map(lambda number: (number % 7, float(number), [number]))
    return spark.createDataFrame(rows, "k int, v double, a array<int>").groupBy("k").sum("v")


kind("rows_of_an_rdd", rows_of_an_rdd)


def data_source_in_python(spark: SparkSession) -> DataFrame:
    """A data source of the user, of Spark 4."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> list[Any]:
            return [InputPartition(number) for number in range(3)]

        def read(self, partition: Any) -> Iterator[tuple[int, str]]:
            for number in range(100):
                yield (partition.value, f"row {number}")

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "lore_kinds"

        def schema(self) -> str:
            return "p int, t string"

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(Source)
    return spark.read.format("lore_kinds").load().where("t like '%7%'").groupBy("p").count()


kind("data_source_in_python", data_source_in_python, since=(4, 0))

sql(
    "session_windows",
    "select o_custkey % 5 k, session_window(cast(o_orderdate as timestamp), '20 days') w, count(*) n from orders "
    "group by 1, 2",
)
