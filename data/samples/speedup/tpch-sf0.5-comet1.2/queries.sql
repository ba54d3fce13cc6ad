-- name: q1
SELECT l_returnflag, l_linestatus,
       sum(l_quantity) AS quantity,
       sum(l_extendedprice) AS price,
       sum(l_extendedprice * (1 - l_discount)) AS discounted,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charge,
       avg(l_quantity) AS mean_quantity,
       avg(l_extendedprice) AS mean_price,
       avg(l_discount) AS mean_discount,
       count(*) AS lines
FROM lineitem
WHERE l_shipdate <= DATE '1998-09-02'
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus
;

-- name: q2
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part
    JOIN partsupp ON ps_partkey = p_partkey
    JOIN supplier ON s_suppkey = ps_suppkey
    JOIN nation ON n_nationkey = s_nationkey
    JOIN region ON r_regionkey = n_regionkey
WHERE p_size = 15 AND p_type LIKE '%BRASS' AND r_name = 'EUROPE'
  AND ps_supplycost = (
    SELECT min(ps_supplycost)
    FROM partsupp
        JOIN supplier ON s_suppkey = ps_suppkey
        JOIN nation ON n_nationkey = s_nationkey
        JOIN region ON r_regionkey = n_regionkey
    WHERE ps_partkey = p_partkey AND r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
LIMIT 100
;

-- name: q3
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer
    JOIN orders ON o_custkey = c_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority
ORDER BY revenue DESC, o_orderdate
LIMIT 10
;

-- name: q4
SELECT o_orderpriority, count(*) AS orders
FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
  AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority
ORDER BY o_orderpriority
;

-- name: q5
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer
    JOIN orders ON o_custkey = c_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
    JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
    JOIN nation ON n_nationkey = s_nationkey
    JOIN region ON r_regionkey = n_regionkey
WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
GROUP BY n_name
ORDER BY revenue DESC
;

-- name: q6
SELECT sum(l_extendedprice * l_discount) AS revenue
FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
  AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
;

-- name: q7
SELECT sellers.n_name AS seller, buyers.n_name AS buyer, year(l_shipdate) AS ship_year,
       sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM supplier
    JOIN lineitem ON l_suppkey = s_suppkey
    JOIN orders ON o_orderkey = l_orderkey
    JOIN customer ON c_custkey = o_custkey
    JOIN nation AS sellers ON sellers.n_nationkey = s_nationkey
    JOIN nation AS buyers ON buyers.n_nationkey = c_nationkey
WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
  AND (sellers.n_name = 'FRANCE' AND buyers.n_name = 'GERMANY'
    OR sellers.n_name = 'GERMANY' AND buyers.n_name = 'FRANCE')
GROUP BY sellers.n_name, buyers.n_name, year(l_shipdate)
ORDER BY seller, buyer, ship_year
;

-- name: q8
WITH sold AS (
    SELECT year(o_orderdate) AS order_year, sellers.n_name AS seller,
           l_extendedprice * (1 - l_discount) AS volume
    FROM part
        JOIN lineitem ON l_partkey = p_partkey
        JOIN supplier ON s_suppkey = l_suppkey
        JOIN orders ON o_orderkey = l_orderkey
        JOIN customer ON c_custkey = o_custkey
        JOIN nation AS buyers ON buyers.n_nationkey = c_nationkey
        JOIN region ON r_regionkey = buyers.n_regionkey
        JOIN nation AS sellers ON sellers.n_nationkey = s_nationkey
    WHERE r_name = 'AMERICA' AND p_type = 'ECONOMY ANODIZED STEEL'
      AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31')
SELECT order_year, sum(CASE WHEN seller = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS market_share
FROM sold
GROUP BY order_year
ORDER BY order_year
;

-- name: q9
SELECT n_name, year(o_orderdate) AS order_year,
       sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
FROM part
    JOIN lineitem ON l_partkey = p_partkey
    JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
    JOIN supplier ON s_suppkey = l_suppkey
    JOIN orders ON o_orderkey = l_orderkey
    JOIN nation ON n_nationkey = s_nationkey
WHERE p_name LIKE '%green%'
GROUP BY n_name, year(o_orderdate)
ORDER BY n_name, order_year DESC
;

-- name: q10
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue,
       c_acctbal, n_name, c_address, c_phone, c_comment
FROM customer
    JOIN orders ON o_custkey = c_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
    JOIN nation ON n_nationkey = c_nationkey
WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
GROUP BY c_custkey, c_name, c_acctbal, n_name, c_address, c_phone, c_comment
ORDER BY revenue DESC
LIMIT 20
;

-- name: q11
WITH stock AS (
    SELECT ps_partkey, ps_supplycost * ps_availqty AS value
    FROM partsupp
        JOIN supplier ON s_suppkey = ps_suppkey
        JOIN nation ON n_nationkey = s_nationkey
    WHERE n_name = 'GERMANY')
SELECT ps_partkey, sum(value) AS part_value
FROM stock
GROUP BY ps_partkey
HAVING sum(value) > (SELECT sum(value) * 0.0002 FROM stock)
ORDER BY part_value DESC
;

-- name: q12
SELECT l_shipmode,
       sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS urgent_lines,
       sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS other_lines
FROM orders
    JOIN lineitem ON l_orderkey = o_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_shipdate < l_commitdate AND l_commitdate < l_receiptdate
  AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
GROUP BY l_shipmode
ORDER BY l_shipmode
;

-- name: q13
WITH per_customer AS (
    SELECT c_custkey, count(o_orderkey) AS orders
    FROM customer
        LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%special%requests%'
    GROUP BY c_custkey)
SELECT orders, count(*) AS customers
FROM per_customer
GROUP BY orders
ORDER BY customers DESC, orders DESC
;

-- name: q14
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
       / sum(l_extendedprice * (1 - l_discount)) AS promotion_percent
FROM lineitem
    JOIN part ON p_partkey = l_partkey
WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'
;

-- name: q15
WITH revenue AS (
    SELECT l_suppkey AS supplier_key, sum(l_extendedprice * (1 - l_discount)) AS total
    FROM lineitem
    WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
    GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total
FROM supplier
    JOIN revenue ON supplier_key = s_suppkey
WHERE total = (SELECT max(total) FROM revenue)
ORDER BY s_suppkey
;

-- name: q16
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers
FROM partsupp
    JOIN part ON p_partkey = ps_partkey
WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
  AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size
ORDER BY suppliers DESC, p_brand, p_type, p_size
;

-- name: q17
SELECT sum(l_extendedprice) / 7.0 AS mean_yearly
FROM lineitem
    JOIN part ON p_partkey = l_partkey
WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX'
  AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
;

-- name: q18
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM customer
    JOIN orders ON o_custkey = c_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate
LIMIT 100
;

-- name: q19
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
    JOIN part ON p_partkey = l_partkey
WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON'
  AND (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
       AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5
    OR p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
       AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10
    OR p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
       AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15)
;

-- name: q20
SELECT s_name, s_address
FROM supplier
    JOIN nation ON n_nationkey = s_nationkey
WHERE n_name = 'CANADA'
  AND s_suppkey IN (
    SELECT ps_suppkey
    FROM partsupp
    WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
      AND ps_availqty > (
        SELECT 0.5 * sum(l_quantity)
        FROM lineitem
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
          AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'))
ORDER BY s_name
;

-- name: q21
SELECT s_name, count(*) AS waits
FROM supplier
    JOIN lineitem AS late ON late.l_suppkey = s_suppkey
    JOIN orders ON o_orderkey = late.l_orderkey
    JOIN nation ON n_nationkey = s_nationkey
WHERE o_orderstatus = 'F' AND n_name = 'SAUDI ARABIA' AND late.l_receiptdate > late.l_commitdate
  AND EXISTS (
    SELECT 1 FROM lineitem AS other
    WHERE other.l_orderkey = late.l_orderkey AND other.l_suppkey <> late.l_suppkey)
  AND NOT EXISTS (
    SELECT 1 FROM lineitem AS also_late
    WHERE also_late.l_orderkey = late.l_orderkey AND also_late.l_suppkey <> late.l_suppkey
      AND also_late.l_receiptdate > also_late.l_commitdate)
GROUP BY s_name
ORDER BY waits DESC, s_name
LIMIT 100
;

-- name: q22
WITH chosen AS (
    SELECT c_custkey, c_acctbal, substring(c_phone, 1, 2) AS country
    FROM customer
    WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
SELECT country, count(*) AS customers, sum(c_acctbal) AS balance
FROM chosen
WHERE c_acctbal > (SELECT avg(c_acctbal) FROM chosen WHERE c_acctbal > 0)
  AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
GROUP BY country
ORDER BY country
;
