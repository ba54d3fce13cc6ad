"""The matrix of queries: together they meet every operator class that a dump must hold, and every one that it refuses.

A query is a name, how to make it, settings it needs, and the operator classes that it is there for. Queries in SQL are
below; those over values and names are in `queries_of_values`, those that run Python in `queries_in_python`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Make = Callable[["SparkSession"], "DataFrame"]
BATCHES = "spark.sql.parquet.enableVectorizedReader"


@dataclass(frozen=True)
class Query:
    """A query of the matrix, and the operator classes that its final plan has on every line, adaptive or not."""

    name: str
    make: Make
    shows: frozenset[str]
    confs: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, int] = (3, 5)
    quick: bool = False


_queries: dict[str, Query] = {}


def query(
    shows: str, *, confs: Mapping[str, str] | None = None, since: tuple[int, int] = (3, 5), quick: bool = False
) -> Callable[[Make], Make]:
    """Put the function that makes a query into the matrix, by its name; `shows` are class names without `Exec`."""

    def keep(make: Make) -> Make:
        assert make.__name__ not in _queries
        classes = frozenset(f"{name}Exec" for name in shows.split())
        # The quick ones are few, and pass batches from scan to rows as Spark does unasked.
        batches = {BATCHES: "true"} if quick or "ColumnarToRow" in shows else {}
        _queries[make.__name__] = Query(make.__name__, make, classes, {**batches, **(confs or {})}, since, quick)
        return make

    return keep


def sql(name: str, shows: str, text: str, *, confs: Mapping[str, str] | None = None, quick: bool = False) -> None:
    """Put a query in SQL into the matrix."""

    def make(spark: SparkSession) -> DataFrame:
        return spark.sql(text)

    make.__name__ = name
    query(shows, confs=confs, quick=quick)(make)


def of_line(line: tuple[int, int], *, quick: bool = False) -> list[Query]:
    """The queries that a Spark line has, in the order of their definition; only the quick ones on request."""
    from tests.lore import queries_in_python, queries_of_values

    # Importing them filled the matrix.
    assert all((queries_in_python, queries_of_values))
    return [found for found in _queries.values() if found.since <= line and (found.quick or not quick)]


# Scans, filters, aggregates

sql(
    "filter_project",
    "Filter Project ColumnarToRow FileSourceScan",
    "select l_orderkey + 1 k, upper(l_comment) u, l_extendedprice * 2 p from lineitem where l_quantity < 20",
)
sql(
    "hash_aggregate",
    "HashAggregate ShuffleExchange",
    """select l_returnflag, l_partkey, sum(l_extendedprice) s, avg(l_quantity) a, sum(l_discount) d, count(*) n,
    sum(l_quantity) filter (where l_comment is null) f from lineitem group by l_returnflag, l_partkey""",
    quick=True,
)
sql(
    "sort_aggregate",
    "SortAggregate Sort",
    "select l_partkey, max(l_comment) a, min(l_comment) b from lineitem group by l_partkey",
)
sql(
    "object_aggregate",
    "ObjectHashAggregate",
    """select o_custkey, collect_list(o_orderkey) l, collect_set(o_shippriority) s,
    percentile_approx(o_totalprice, 0.5) p from orders group by o_custkey""",
)
sql(
    "distinct_aggregates",
    "Expand HashAggregate",
    "select l_returnflag, count(distinct l_partkey) p, count(distinct l_quantity) q, sum(l_quantity) s "
    "from lineitem group by l_returnflag",
)

# Joins

sql(
    "merge_inner",
    "SortMergeJoin Sort ShuffleExchange",
    "select /*+ merge(o) */ * from lineitem join orders o on l_orderkey = o_orderkey",
    quick=True,
)
sql(
    "merge_existence",
    "SortMergeJoin Filter",
    "select * from orders o where exists (select /*+ merge(customer) */ 1 from customer where c_custkey = o_custkey) "
    "or o_totalprice < 1000",
)
sql(
    "hash_left",
    "ShuffledHashJoin",
    "select /*+ shuffle_hash(c) */ * from orders left join customer c on o_custkey = c_custkey",
)
sql(
    "broadcast_inner",
    "BroadcastHashJoin BroadcastExchange",
    "select /*+ broadcast(c) */ * from orders join customer c on o_custkey = c_custkey",
    quick=True,
)
sql(
    "broadcast_null_aware",
    "BroadcastHashJoin",
    "select * from orders where o_custkey not in "
    "(select /*+ broadcast(customer) */ if(c_custkey < 9, 1, c_custkey) from customer)",
    confs={"spark.sql.autoBroadcastJoinThreshold": "10MB"},
)
sql(
    "nested_full",
    "BroadcastNestedLoopJoin",
    "select /*+ broadcast(o) */ * from customer full join (select * from orders where o_orderkey < 20) o "
    "on c_custkey > o_custkey + 90",
)
sql(
    "cartesian",
    "CartesianProduct",
    "select /*+ shuffle_replicate_nl(c) */ * from (select * from customer where c_custkey < 20) c, "
    "(select * from orders where o_orderkey < 30) o",
)
sql(
    "join_with_no_columns",
    "BroadcastNestedLoopJoin LocalLimit GlobalLimit",
    "select o_orderkey from orders cross join (select /*+ broadcast */ 1 from customer limit 3)",
    confs={"spark.sql.autoBroadcastJoinThreshold": "10MB"},
)
SKEWED = {
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "8KB",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.2",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8KB",
}
sql(
    "skewed_join",
    "SortMergeJoin",
    """select /*+ merge(o) */ * from
    (select if(l_orderkey % 10 < 9, 1, l_orderkey) k, l_comment, l_extendedprice from lineitem) l
    join orders o on k = o_orderkey""",
    confs=SKEWED,
)
sql(
    "join_turned_broadcast",
    "HashAggregate",
    """select * from (select o_custkey, count(*) n from orders group by o_custkey having count(*) > 14) o
    join lineitem on o_custkey = l_orderkey""",
    confs={"spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB"},
)

# Windows, generators, sets, limits, orders

sql(
    "window",
    "Window Sort",
    """select l_orderkey, row_number() over (partition by l_partkey order by l_extendedprice) r,
    sum(l_quantity) over (partition by l_partkey order by l_shipdate, l_extendedprice
    rows between 2 preceding and 1 following) s,
    lag(l_comment) over (partition by l_partkey order by l_extendedprice) g,
    count(*) over (partition by l_returnflag) n from lineitem""",
    quick=True,
)
sql(
    "window_group_limit",
    "Window WindowGroupLimit Filter",
    """select * from (select l_partkey, l_extendedprice,
    row_number() over (partition by l_partkey order by l_extendedprice) r from lineitem) where r <= 2""",
)
sql(
    "generate_outer",
    "Generate",
    """select o_orderkey, p, e, x, y from orders
    lateral view outer posexplode(if(o_orderkey % 3 = 0, array(), array(o_custkey, null))) t as p, e
    lateral view inline(array(named_struct('x', o_orderkey, 'y', 'a'), named_struct('x', null, 'y', 'b'))) u as x, y""",
)
sql("union_all", "Union", "select o_custkey from orders union all select c_custkey from customer")
sql("collect_limit", "CollectLimit", "select * from orders where o_orderkey % 3 = 1 limit 100")
sql(
    "take_ordered",
    "TakeOrderedAndProject",
    "select upper(c_name) n from customer order by c_mktsegment, c_custkey desc limit 12 offset 2",
)
sql("sort", "Sort ShuffleExchange", "select * from lineitem order by l_extendedprice desc nulls last, l_comment")
sql("rebalance", "FileSourceScan", "select /*+ rebalance(o_custkey) */ * from orders")
sql("coalesce", "Coalesce", "select /*+ coalesce(2) */ o_orderkey, spark_partition_id() p from orders")

# Subqueries, reuse, caches

sql(
    "scalar_subqueries",
    "Filter Subquery",
    """select * from lineitem where l_extendedprice > (select avg(l_extendedprice) from lineitem)
    and l_quantity < (select max(l_quantity) - 5 from lineitem)""",
    quick=True,
)
sql(
    "dynamic_pruning",
    "BroadcastHashJoin SubqueryBroadcast",
    """select /*+ broadcast(d) */ * from orders_by_year join (select 1990 + c_custkey y, c_name from customer
    where c_name < 'Customer#00006') d on o_year = y""",
    confs={"spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "true"},
)
sql(
    "reused_exchange",
    "ReusedExchange SortMergeJoin",
    """with a as (select l_partkey, count(*) n from lineitem group by l_partkey)
    select /*+ merge(y) */ * from a x join a y on x.l_partkey = y.l_partkey""",
    quick=True,
)
sql(
    "reused_broadcast",
    "ReusedExchange BroadcastHashJoin",
    "select /*+ broadcast(c), broadcast(d) */ * from orders join customer c on o_custkey = c.c_custkey "
    "join customer d on o_orderkey = d.c_custkey",
)
sql(
    "cached_input",
    "InMemoryTableScan HashAggregate",
    "select c_mktsegment, count(*) n from cached_customer where c_custkey > 3 group by 1",
)
