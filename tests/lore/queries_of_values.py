"""Queries of the matrix that are there for their values, their names or the shape of their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lore.queries import query, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A shuffle, a filter and a sort: the values pass by rows and by columns, through an exchange and generated code.
_THROUGH = "ShuffleExchange Filter Sort"


def values(name: str, columns: str, *, since: tuple[int, int] = (3, 5)) -> None:
    """Put a query into the matrix that carries columns, and beside them a key, through operators."""

    def make(spark: SparkSession) -> DataFrame:
        key = f"select o_orderkey k, {columns} from orders where o_orderkey < 400"
        return spark.sql(key).repartition(3, "k").filter("rand(5) < 0.9").sortWithinPartitions("k")

    make.__name__ = name
    query(_THROUGH, since=since)(make)


values(
    "numbers_and_times",
    """cast(o_orderkey % 100 as tinyint) ti, cast(o_orderkey as smallint) si, o_orderkey % 2 = 0 bo,
    cast(decode(o_orderkey % 5, 0, 'NaN', 1, '-0.0', 2, '-Infinity', 3, '0.0', '1.5') as float) fl,
    cast(decode(o_orderkey % 5, 0, 'NaN', 1, '-0.0', 2, 'Infinity', 3, null, '2.5e-310') as double) db,
    cast(o_orderkey as decimal(38, 0)) * 1000000000000000001 big, cast(-o_orderkey as decimal(38, 18)) small,
    cast(o_orderkey as decimal(7, 3)) de,
    timestamp_micros(o_orderkey * 1234567) ts, cast(timestamp_micros(o_orderkey) as timestamp_ntz) tn,
    interval '2' day * (o_orderkey % 5) dt, interval '3' month * (o_orderkey % 4) ym,
    date_add(date'0001-01-01', cast(o_orderkey * 1500 as int)) old_date,
    timestamp'1582-10-04 23:59:59' + interval '1' hour * o_orderkey old_ts,
    timestamp_ntz'0001-01-01 00:00:00' + interval '1' day * o_orderkey old_tn""",
)
values(
    "nested",
    """map('a', o_orderkey, 'b', null) mp,
    struct(o_orderdate d, o_custkey c, named_struct('e', cast(null as int), 'f', o_orderkey) interval) st,
    array(o_custkey, null) ar, if(o_orderkey % 3 = 0, null, array(map(1, array('x', null)), null)) deep,
    cast(cast(o_orderkey as string) as binary) bn, if(o_orderkey % 2 = 0, cast(array() as array<int>), null) em,
    cast(map() as map<int, int>) em2,
    array(struct(cast('NaN' as double) n, -0.0D z), null) zs, concat('ä€𝄞', char(0), o_orderkey) un,
    cast(o_orderkey as char(5)) ch, cast(o_orderkey as varchar(5)) vc, repeat('x', 3000) lo""",
)
values("no_type", "null v, array(null) a")
values("alike_in_a_struct", "named_struct('x', o_custkey, 'x', o_totalprice, 'X', 1) s")
values("variants", "parse_json(concat('{\"a\": ', o_orderkey, '}')) v", since=(4, 0))
values("collations", "cast(o_custkey as string) collate UTF8_LCASE c", since=(4, 0))

sql(
    "calendar_intervals",
    "ShuffleExchange",
    """select /*+ repartition(2) */ o_orderkey, make_interval(0, 1, 0, cast(o_orderkey % 5 as int), 0, 0, 1.5) i
    from orders""",
)
sql(
    "duplicate_names",
    "ShuffleExchange Sort",
    """select /*+ repartition(2) */ o_custkey, o_orderkey as o_custkey, o_totalprice as O_CUSTKEY from orders
    sort by 2 desc""",
)
sql(
    "odd_names",
    "ShuffleExchange Filter",
    """select * from (select /*+ repartition(2, c_custkey) */ c_custkey `a.b`, c_custkey `a b`, c_name `a,b`,
    c_name `größe`, c_name `名`, c_custkey `;{}()=`, c_custkey `a``b`, c_custkey `"'\\\\/`, c_name `_0` from customer)
    where `a.b` + rand(1) > 3""",
)
sql(
    "empty_input",
    # With AQE nothing is left of it.
    "",
    "select * from (select /*+ repartition(2) */ c_custkey from customer where c_custkey * 2 > 1000) sort by c_custkey",
)
sql(
    "empty_partitions",
    "ShuffleExchange Sort",
    "select * from (select /*+ repartition(5, m) */ c_custkey % 2 m, c_name from customer) sort by c_name",
    confs={"spark.sql.adaptive.coalescePartitions.enabled": "false"},
)
sql(
    "formats_of_time_and_functions_on_arrays",
    "Filter Project",
    """select s, h, u, transform(a, x -> x * o_orderkey) t, filter(a, (x, i) -> i > 0) f,
    aggregate(a, 0D, (s, x) -> s + x) g, from_json(j, 'k int, v array<string>') q, regexp_extract(j, '([0-9]+)', 1) r,
    a[0] e from
    (select /*+ repartition(2) */ date_format(t, 'yyyy-MM-dd HH EEEE') s, hour(t) h, to_json(struct(t)) u, o_orderkey,
    array(o_custkey, 2) a, concat('{"k": ', o_custkey, '}') j
    from (select *, timestamp_micros(o_orderkey * 86400000000) t from orders)) where h + rand(2) >= 0""",
)
sql("range_of_ids", "Range Project", "select id * 2 i, monotonically_increasing_id() m from range(0, 500, 1, 3)")


@query("Sample")
def sample_with_replacement(spark: SparkSession) -> DataFrame:
    return spark.table("orders").sample(withReplacement=True, fraction=1.4, seed=7)


@query("Project")
def values_of_the_partition(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    orders = spark.table("orders").repartition(3, "o_custkey")
    place = (functions.monotonically_increasing_id().alias("m"), functions.spark_partition_id().alias("p"))
    return orders.select("o_orderkey", functions.rand(42).alias("r"), *place)


@query("Project")
def rows_of_the_driver(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    rows = [(1, "a", None), (2, None, [1.5]), (3, "ß", [])]
    return spark.createDataFrame(rows, "n int, t string, a array<double>").select(
        functions.col("n") + 1, functions.rand(1), "t", "a"
    )


@query("DataWritingCommand WriteFiles Project")
def insert(spark: SparkSession) -> DataFrame:
    spark.sql("create table if not exists kept (k bigint) using parquet")
    return spark.sql("insert into kept select o_orderkey + 1 from orders")


@query("DeserializeToObject MapPartitions SerializeFromObject")
def typed(spark: SparkSession) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(spark.table("customer")._jdf.toJSON().toDF(), spark)
