"""Forty queries of kinds that the matrix does not have: each is dumped, operator by operator, and replayed.

They have a list of their own, since the matrix promises more of its queries (ids, order, answers) than holds for
queries that give other rows in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tests.lore.queries import Make, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROADCASTS = {"spark.sql.autoBroadcastJoinThreshold": "10MB"}
KINDS: dict[str, Query] = {}
# They give other rows in each run: a replay over the same inputs may, too.
UNREPEATABLE = {"current_times_and_uuids", "rand_without_a_seed", "limit_in_the_middle", "order_of_collected"}
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


# Windows

sql(
    "window_by_range_of_days",
    """select o_orderkey, sum(o_totalprice) over (partition by o_custkey order by cast(o_orderdate as timestamp)
    range between interval '30' day preceding and interval '7' day following) s,
    min(o_orderkey) over (partition by o_custkey order by cast(o_orderdate as timestamp)
    range between unbounded preceding and interval '1' day preceding) m from orders""",
)
sql(
    "window_functions_of_rank",
    """select l_partkey, l_extendedprice, rank() over w r, dense_rank() over w d, percent_rank() over w p,
    cume_dist() over w c, ntile(7) over w n, first_value(l_comment) ignore nulls over w f,
    last_value(l_comment) respect nulls over w l, nth_value(l_quantity, 3) over w h,
    lead(l_comment, 2, 'none') over w e
    from lineitem window w as (partition by l_partkey order by l_extendedprice, l_orderkey)""",
)
sql(
    "window_of_rows_that_move",
    """select l_orderkey, avg(l_quantity) over (partition by l_returnflag order by l_orderkey, l_partkey
    rows between 5 preceding and 2 preceding) a, max(l_comment) over (partition by l_returnflag order by l_orderkey,
    l_partkey rows between 1 following and unbounded following) b, stddev(l_quantity) over (partition by l_partkey) c,
    collect_list(l_quantity) over (partition by l_partkey order by l_orderkey, l_extendedprice
    rows between 1 preceding and current row) d from lineitem""",
)
sql(
    "window_without_partitions",
    "select o_orderkey, row_number() over (order by o_totalprice desc, o_orderkey) r, "
    "sum(o_shippriority + 1) over (order by o_orderdate, o_orderkey) s from orders",
)

# Groups

sql(
    "grouping_sets",
    """select l_returnflag f, l_quantity % 5 q, grouping_id() g, grouping(l_returnflag) h, count(*) n,
    sum(l_discount) s from lineitem group by grouping sets ((l_returnflag, l_quantity % 5), (l_returnflag), ())""",
)
sql(
    "cube_with_distinct",
    "select l_returnflag f, l_quantity % 3 q, count(distinct l_partkey) n, sum(l_discount) s "
    "from lineitem group by cube(l_returnflag, l_quantity % 3) having count(*) > 10",
)
sql(
    "pivot",
    "select * from (select l_returnflag f, l_quantity % 4 q, l_discount d from lineitem) "
    "pivot (sum(d) as s, count(*) as n for f in ('A' as a, 'N' as n, 'X' as x))",
)
sql(
    "unpivot",
    "select * from (select o_orderkey, o_custkey, o_shippriority * 1L p from orders where o_orderkey % 9 = 0) "
    "unpivot include nulls (v for n in (o_custkey, p))",
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

# Joins

sql(
    "full_outer_of_nulls",
    """select * from (select if(o_custkey % 7 = 0, null, o_custkey) k, o_orderkey from orders) o
    full outer join (select if(c_custkey % 5 = 0, null, c_custkey) k, c_name from customer) c on o.k = c.k""",
)
sql(
    "null_safe_join",
    """select /*+ merge(c) */ o.k, c.c_name from (select if(o_custkey % 7 = 0, null, o_custkey) k from orders) o
    join (select if(c_custkey % 50 = 0, null, c_custkey) k, c_name from customer) c on o.k <=> c.k""",
)
sql(
    "anti_and_semi_joins",
    """select * from (select /*+ shuffle_hash(c) */ o_orderkey from orders left anti join customer c
    on o_custkey = c_custkey and c_name > 'Customer#00020')
    union all select * from (select o_orderkey from orders left semi join customer on o_custkey = c_custkey)""",
)
sql(
    "range_join",
    """select /*+ broadcast(w) */ o_orderkey, w.id from orders join (select id, id * 5000000 low from range(40)) w
    on o_totalprice * 100 >= w.low and o_totalprice * 100 < w.low + 5000000""",
)
sql(
    "right_outer_with_a_condition",
    "select /*+ merge(c) */ o_orderkey, c_name from orders right join customer c "
    "on o_custkey = c_custkey and o_totalprice > c_custkey * 1000 order by c_name, o_orderkey nulls first",
)
sql(
    "hash_full_outer",
    "select /*+ shuffle_hash(c) */ o_orderkey, c_name from orders full outer join customer c on o_custkey = c_custkey",
)
sql(
    "self_join_of_three",
    "select a.c_custkey, b.c_name, c.c_mktsegment from customer a join customer b on a.c_custkey = b.c_custkey + 1 "
    "join customer c on b.c_custkey = c.c_custkey + 1 where a.c_mktsegment = c.c_mktsegment",
    confs=BROADCASTS,
)

# Subqueries and sets

sql(
    "correlated_subquery",
    "select c_name, (select max(o_totalprice) from orders where o_custkey = c_custkey) m from customer "
    "where c_custkey in (select o_custkey from orders where o_totalprice > 900000) or c_custkey < 5",
)
sql(
    "lateral_subquery",
    "select c_name, o.* from customer, lateral (select o_orderkey, o_totalprice from orders "
    "where o_custkey = c_custkey order by o_totalprice desc, o_orderkey limit 2) o",
    since=(4, 0),
)
sql(
    "exists_and_not_exists",
    """select c_name from customer where exists (select 1 from orders where o_custkey = c_custkey and
    o_totalprice > 9e5)
    and not exists (select 1 from orders where o_custkey = c_custkey and o_totalprice < 1e5)""",
)
sql(
    "intersect_and_except",
    """(select o_custkey % 60 k from orders intersect all select c_custkey k from customer)
    except all (select l_partkey k from lineitem where l_quantity < 3)
    union (select c_custkey k from customer where c_custkey > 140)""",
)
sql(
    "offset_and_limit",
    "select * from (select * from orders order by o_totalprice limit 90 offset 20) where o_orderkey > 9",
)
sql(
    "sort_of_nulls_and_nans",
    """select * from (select if(l_partkey % 3 = 0, null, if(l_partkey % 3 = 1, double('NaN'), l_extendedprice)) v,
    l_comment c, l_orderkey, array(l_quantity, null) a from lineitem)
    order by v nulls first, c desc nulls last, a desc, l_orderkey""",
)

# Values

sql(
    "decimals_of_38_digits",
    """select k, sum(d) s, avg(d) a, max(d * 3) m from (select o_custkey % 9 k,
    cast(o_totalprice as decimal(38, 10)) * 1000001 + cast('0.0000000001' as decimal(38, 10)) d from orders)
    group by k""",
)
sql(
    "binary_and_char_keys",
    """select b, ch, count(*) n, max(encode(vc, 'UTF-16')) e from (select unhex(hex(o_custkey % 7)) b,
    cast(concat('x', o_custkey % 3) as char(6)) ch, cast(o_custkey as varchar(8)) vc from orders) group by b, ch""",
)
sql(
    "unicode_that_looks_alike",
    """select s, count(*) n, min(length(s)) l, max(upper(s)) u, min(reverse(s)) r, min(hex(s)) h from
    (select decode(o_orderkey % 5, 0, concat('e', char(769)), 1, char(233), 2, 'ﬁ', 3, 'ß', '👩‍👧') s
    from orders) group by s order by s""",
)
sql(
    "changes_of_the_clock",
    """select ts, date_trunc('day', ts) d, ts + interval '1' day a, hour(ts) h, to_utc_timestamp(ts,
    'America/New_York') u,
    date_format(ts, 'yyyy-MM-dd HH:mm:ss XXX') f, unix_timestamp(ts) x, cast(ts as timestamp_ntz) n, window(ts,
    '3 hours') w
    from (select timestamp'2024-03-31 00:30:00' + make_dt_interval(0, cast(o_orderkey % 6 as int)) ts from orders)
    distribute by h""",
)
sql(
    "intervals_as_keys",
    """select i, y, count(*) n, sum(i) s, avg(y) a from (select make_dt_interval(cast(o_custkey % 3 as int)) i,
    make_ym_interval(1, cast(o_custkey % 4 as int)) y from orders) group by i, y order by i, y""",
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
    "generators_of_many_kinds",
    """select o_orderkey, k, v, c, s from orders lateral view explode(map('a', o_custkey, 'b', null)) t as k, v
    lateral view stack(2, o_orderkey, 'x', null, 'y') u as c, s where o_orderkey % 11 = 0""",
)

# Of chance and of the run

sql(
    "rand_without_a_seed",
    "select k, count(*) n from (select cast(rand() * 9 as int) k, o_orderkey from orders) group by k",
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


# Python


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


def udfs_of_decimals_and_dates(spark: SparkSession) -> DataFrame:
    """Rows with decimals, dates and binary values pass through Python."""
    from pyspark.sql import functions

    @functions.udf("struct<d: decimal(20,4), t: date, b: binary>")
    def change(price: Any, day: Any) -> Any:
        import datetime as dt

        return (price * 2, day + dt.timedelta(days=1), str(price).encode())

    return (
        spark.table("orders").select("o_orderkey", change("o_totalprice", "o_orderdate").alias("c")).where("c.d > 100")
    )


kind("udfs_of_decimals_and_dates", udfs_of_decimals_and_dates)


def arrow_udf_of_nested(spark: SparkSession) -> DataFrame:
    """A row function through Arrow with lists and nulls, above an aggregate."""
    from pyspark.sql import functions

    @functions.udf("array<string>", useArrow=True)
    def spell(numbers: Any, name: str | None) -> list[str | None]:
        return [name, *(str(number) for number in sorted(numbers))][:4]

    grouped = spark.sql("select o_custkey % 20 k, collect_list(o_orderkey) l, max(null) n from orders group by 1")
    return grouped.select("k", spell("l", functions.col("k").cast("string")).alias("s"))


kind("arrow_udf_of_nested", arrow_udf_of_nested)


def pandas_iterators_and_scalars(spark: SparkSession) -> DataFrame:
    """mapInPandas above a window, with an empty frame among those it gives."""

    def odd(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[frame["r"] < 0]
            yield frame[frame["r"] % 2 == 1]

    ranked = spark.sql("select o_custkey, row_number() over (partition by o_custkey order by o_orderkey) r from orders")
    return ranked.mapInPandas(odd, "o_custkey long, r int").groupBy("r").count()


kind("pandas_iterators_and_scalars", pandas_iterators_and_scalars)


# Plans and sources


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
    "exchange_by_range_and_rebalance",
    "select /*+ rebalance(k) */ k, sum(n) s from (select /*+ repartition_by_range(4, o_custkey) */ o_custkey % 11 k, "
    "o_orderkey n from orders) group by k",
)
sql(
    "one_aggregate_used_three_times",
    """with t as (select o_custkey, sum(o_totalprice) s from orders group by o_custkey)
    select * from t where s > (select avg(s) from t) union all select o_custkey, max(s) from t group by o_custkey""",
)
sql(
    "variants_and_collations",
    """select variant_get(v, '$.a', 'int') % 5 a, c collate utf8_lcase k, count(*) n,
    max(to_json(v)) j from (select parse_json(concat('{"a": ', o_orderkey, ', "b": [1, null]}')) v,
    if(o_orderkey % 2 = 0, 'AB', 'ab') c from orders) group by 1, 2""",
    since=(4, 0),
)
sql(
    "session_windows",
    "select o_custkey % 5 k, session_window(cast(o_orderdate as timestamp), '20 days') w, count(*) n from orders "
    "group by 1, 2",
)
