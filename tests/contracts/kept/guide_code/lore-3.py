def query(spark):
    spark.conf.set("spark.sql.ansi.enabled", "true")
    texts = spark.range(20_000).selectExpr("id", "CASE WHEN id = 7777 THEN '12a' ELSE CAST(id AS STRING) END AS s")
    return texts.repartition(3).selectExpr("CAST(s AS INT) AS n")
