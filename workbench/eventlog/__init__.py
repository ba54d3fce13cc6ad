"""Read Spark event logs into tables: every codec, rolled and cut logs, exact statistics, bounded memory.

Flow: log files → chunks → folded chunks → rows in order → 15 Parquet tables

Map, from what goes in to what comes out:

    eventlog.sources.list_all_logs(paths) -> LogSource
    eventlog.reader.read_event_logs(paths) -> EventLogFacts, by chunks:
    eventlog.fold.fold_chunk(Chunk) -> ChunkFacts
"""

__all__ = ["config", "reader", "tables"]
