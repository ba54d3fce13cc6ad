"""Spark's internals as LORE needs them: plans, operators, sessions and query runs."""
