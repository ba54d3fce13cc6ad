"""Read Spark event logs into tables: every codec, rolled and cut logs, exact statistics, bounded memory."""
