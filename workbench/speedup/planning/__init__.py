"""Plans of an engine before a run: what it takes over, what it leaves to Spark and why, which joins change."""
