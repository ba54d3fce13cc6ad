-- Set-up, not measured: a table of made-up sales.
CREATE TABLE sales AS
SELECT range AS sale, range % 365 AS day, (range % 1000) / 10.0 AS price
FROM range(1000000);
-- The query that is measured: the last statement.
SELECT day, count(*) AS sales, median(price) AS usual, quantile_cont(price, 0.9) AS high
FROM sales
GROUP BY day
ORDER BY day;
