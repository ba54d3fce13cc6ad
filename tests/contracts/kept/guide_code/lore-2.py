with lore.enable(spark):
    spark.conf.set("spark.rapids.sql.lore.idsToDump", "9[*]")
    spark.conf.set("spark.rapids.sql.lore.dumpPath", "dumps/nightly")
    df.collect()  # any action
