import polars as pl

from workbench.eventlog.reader import read

facts = read("data/samples/eventlogs/tpch_sf0.1.zstd")
slowest = facts.sql_executions.sort("duration_ms", descending=True).row(0, named=True)
times = (
    facts.node_metrics.filter(pl.col("sql_id") == slowest["sql_id"], pl.col("metric_type") == "timing")
    .select("node_name", "metric_name", "n", "median", "p95", "max", "total")
    .sort("total", descending=True)
)
