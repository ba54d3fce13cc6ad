-- Revenue by category and month, each sale at the price that was valid on its day.
SELECT /*+ MERGE(prices) */
  products.category,
  month(sales.day) AS month,
  count(*) AS n_sales,
  sum(sales.quantity * prices.price_cents) / 100 AS revenue
FROM sales
JOIN prices
  ON sales.product_id = prices.product_id
  AND sales.day >= prices.valid_from
  AND sales.day < prices.valid_until
JOIN products
  ON sales.product_id = products.product_id
GROUP BY products.category, month(sales.day)
ORDER BY revenue DESC
