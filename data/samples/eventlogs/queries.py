"""The queries of the sample logs: TPC-H-derived, written for this project in Spark SQL, with fixed parameters.

They ask TPC-H's questions on TPC-H's tables, but follow neither its validation rules nor its audit: timings of them
are no TPC-H results. `skew` and `cached` are not TPC-H at all: they make a skewed exchange and a cached table.
"""

from __future__ import annotations

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price,
               sum(l_extendedprice * (1 - l_discount)) AS discounted,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charge,
               avg(l_quantity) AS mean_quantity, avg(l_discount) AS mean_discount, count(*) AS lines
        FROM lineitem WHERE l_shipdate <= date_sub(DATE '1998-12-01', 90)
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "q3": """
        SELECT o_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY o_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM region JOIN nation ON r_regionkey = n_regionkey
             JOIN supplier ON s_nationkey = n_nationkey
             JOIN lineitem ON l_suppkey = s_suppkey
             JOIN orders ON o_orderkey = l_orderkey
             JOIN customer ON c_custkey = o_custkey AND c_nationkey = s_nationkey
        WHERE r_name = 'ASIA' AND year(o_orderdate) = 1994
        GROUP BY n_name ORDER BY revenue DESC""",
    "q6": """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
          AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q9": """
        SELECT n_name, year(o_orderdate) AS order_year,
               sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
        FROM part JOIN lineitem ON p_partkey = l_partkey
             JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
             JOIN supplier ON s_suppkey = l_suppkey
             JOIN nation ON n_nationkey = s_nationkey
             JOIN orders ON o_orderkey = l_orderkey
        WHERE p_name LIKE '%green%'
        GROUP BY n_name, year(o_orderdate) ORDER BY n_name, order_year DESC""",
    "q13": """
        WITH per_customer AS (
            SELECT c_custkey, count(o_orderkey) AS orders
            FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey)
        SELECT orders, count(*) AS customers FROM per_customer
        GROUP BY orders ORDER BY customers DESC, orders DESC""",
    "q15": """
        WITH revenue AS (
            SELECT l_suppkey AS supplier_key, sum(l_extendedprice * (1 - l_discount)) AS total
            FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
            GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, total FROM supplier JOIN revenue ON s_suppkey = supplier_key
        WHERE total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey""",
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate LIMIT 100""",
    "q21": """
        WITH late AS (SELECT l_orderkey, l_suppkey FROM lineitem WHERE l_receiptdate > l_commitdate),
             blamed AS (
                SELECT a.l_orderkey, a.l_suppkey FROM late a
                WHERE EXISTS (
                        SELECT 1 FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)
                  AND NOT EXISTS (
                        SELECT 1 FROM late c WHERE c.l_orderkey = a.l_orderkey AND c.l_suppkey <> a.l_suppkey))
        SELECT s_name, count(*) AS waits
        FROM blamed JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
             JOIN orders ON o_orderkey = l_orderkey
        WHERE o_orderstatus = 'F' AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name ORDER BY waits DESC, s_name LIMIT 100""",
    # A window has no partial aggregation, so six rows in ten go through one partition of the exchange.
    "skew": """
        WITH keyed AS (
            SELECT if(l_orderkey % 10 < 6, 0, l_suppkey) AS skewed_key, l_extendedprice FROM lineitem),
             ranked AS (
            SELECT skewed_key, rank() OVER (PARTITION BY skewed_key ORDER BY l_extendedprice DESC) AS place FROM keyed)
        SELECT count(*) AS rows, max(place) AS longest FROM ranked""",
    "cached": """
        SELECT o_orderpriority, count(*) AS orders, avg(o_totalprice) AS mean_price
        FROM orders_cached WHERE o_orderstatus = 'O' GROUP BY o_orderpriority ORDER BY o_orderpriority""",
}
