"""Read Spark event logs into tables: every codec, rolled and cut logs, exact statistics, bounded memory.

Flow: log files → chunks → folded chunks → rows in order → 15 Parquet tables
"""
